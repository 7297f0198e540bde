// SPDX-License-Identifier: Apache-2.0
// A process on a shared simulated GPU. It does what each line of its input says, and prints one answer for each.
#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpushare/testing/sim.h"
#include "tests/support/send_descriptors.h"

namespace {

constexpr char kPtx[] = R"(.version 7.5
.target sm_90
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns) { ret; }
//gpushare.sim cost=param:0 blocks_per_sm=1 stamps=param:1 away=yes
.visible .entry stamped(.param .u64 ns, .param .u64 stamps) { ret; }
)";

struct Child {
  CUfunction spin = nullptr, stamped = nullptr;
  CUdeviceptr stamps = 0;  // followed by the log, with room for 3 entries
  CUstream stream = nullptr;
  CUevent event = nullptr;
  std::vector<CUdeviceptr> held, imported;
  CUmemGenericAllocationHandle physical = 0;
  CUdeviceptr mapped = 0;
  uint64_t physical_bytes = 0;
  int listens = -1, received = -1;

  CUresult Begin(int ordinal) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) result = cuDeviceGet(&device, ordinal);
    if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) result = cuModuleLoadData(&module, kPtx);
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&spin, module, "spin");
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&stamped, module, "stamped");
    if (result == CUDA_SUCCESS) result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    return result;
  }

  CUresult Allocate(uint64_t bytes) {
    CUdeviceptr pointer;
    const CUresult result = cuMemAlloc(&pointer, bytes);
    if (result == CUDA_SUCCESS) held.push_back(pointer);
    return result;
  }

  CUresult Free() {
    if (held.empty()) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = cuMemFree(held.back());
    held.pop_back();
    return result;
  }

  CUresult Launch(uint64_t ns, unsigned sms) const {
    void* parameters[] = {&ns};
    return cuLaunchKernel(spin, sms, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }

  CUresult LaunchStamped(uint64_t ns, unsigned sms) {
    if (stamps == 0) {
      CUresult result = cuMemAlloc(&stamps, 14 * sizeof(uint64_t));
      const uint64_t words[14] = {UINT64_MAX, 0, 0, 0, stamps + 5 * sizeof(uint64_t), 0, 0, 3};
      if (result == CUDA_SUCCESS) result = cuMemcpyHtoD(stamps, words, sizeof(words));
      if (result != CUDA_SUCCESS) return result;
    }
    void* parameters[] = {&ns, &stamps};
    return cuLaunchKernel(stamped, sms, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }

  void PrintAway() const {
    uint64_t words[14] = {};
    (void)cuMemcpyDtoH(words, stamps, sizeof(words));
    std::printf("%" PRIu64 " told, ran %" PRIu64, words[6], words[2]);
    for (size_t i = 0; i < std::min<uint64_t>(words[6], 3); ++i) {
      std::printf(" [%" PRIu64 " %" PRIu64 "]", words[8 + 2 * i] - words[0],
                  words[9 + 2 * i] - words[0]);
    }
    std::printf("\n");
  }

  // Handles as text.
  template <typename T>
  static std::string ToText(const T& handle) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&handle);
    std::string text;
    for (size_t i = 0; i < sizeof(T); ++i) {
      char two[3];
      std::snprintf(two, sizeof(two), "%02x", bytes[i]);
      text += two;
    }
    return text;
  }
  template <typename T>
  static T FromText(const char* text) {
    T handle{};
    auto* const bytes = reinterpret_cast<unsigned char*>(&handle);
    for (size_t i = 0; i < sizeof(T) && text[2 * i] != 0 && text[2 * i + 1] != 0; ++i) {
      const char two[3] = {text[2 * i], text[2 * i + 1], 0};
      bytes[i] = static_cast<unsigned char>(std::strtoul(two, nullptr, 16));
    }
    return handle;
  }

  // Physical memory of virtual memory management, mapped. Descriptors are passed through named sockets.
  static CUresult Map(CUmemGenericAllocationHandle handle, uint64_t bytes, CUdeviceptr* pointer) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult result = cuMemAddressReserve(pointer, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = cuMemMap(*pointer, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) result = cuMemSetAccess(*pointer, bytes, &access, 1);
    return result;
  }
  CUresult Make(uint64_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    physical_bytes = bytes;
    const CUresult result = cuMemCreate(&physical, bytes, &properties, 0);
    return result == CUDA_SUCCESS ? Map(physical, bytes, &mapped) : result;
  }
  static sockaddr_un Named(const char* name, socklen_t* size) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const size_t length = std::min(std::strcspn(name, "\n"), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name, length);
    *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    return address;
  }
  int Listen(const char* name) {
    socklen_t size;
    const sockaddr_un address = Named(name, &size);
    listens = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return bind(listens, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
                   listen(listens, 4) != 0
               ? -1
               : 0;
  }
  int Give(const char* name) const {
    int descriptor = -1;
    const CUresult result = cuMemExportToShareableHandle(
        &descriptor, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) return result;
    socklen_t size;
    const sockaddr_un address = Named(name, &size);
    const int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool sent = connect(to, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                      gpushare::testing::SendWithDescriptors(to, "x", {descriptor});
    close(to);
    close(descriptor);
    return sent ? 0 : -1;
  }
  int Receive() {
    const int from = accept4(listens, nullptr, nullptr, SOCK_CLOEXEC);
    char byte;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    close(from);
    if (got != 1 || CMSG_FIRSTHDR(&message) == nullptr) return -1;
    std::memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return 0;
  }
  CUresult Import(uint64_t bytes) {
    physical_bytes = bytes;
    CUresult result = cuMemImportFromShareableHandle(
        &physical, reinterpret_cast<void*>(static_cast<intptr_t>(received)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == CUDA_SUCCESS) result = Map(physical, bytes, &mapped);
    if (result == CUDA_SUCCESS) close(received);
    return result;
  }
  CUresult Drop() const {
    CUresult result = cuMemUnmap(mapped, physical_bytes);
    if (result == CUDA_SUCCESS) result = cuMemRelease(physical);
    if (result == CUDA_SUCCESS) result = cuMemAddressFree(mapped, physical_bytes);
    return result;
  }
  // False: the line is something else.
  bool DoPhysical(const std::string& verb, const char* text) {
    const uint64_t number = std::strtoull(text, nullptr, 10);
    if (verb == "make") {
      std::printf("%d\n", Make(number));
    } else if (verb == "listen") {
      std::printf("%d\n", Listen(text));
    } else if (verb == "give") {
      std::printf("%d\n", Give(text));
    } else if (verb == "receive") {
      std::printf("%d\n", Receive());
    } else if (verb == "take") {
      std::printf("%d\n", Import(number));
    } else if (verb == "drop") {
      std::printf("%d\n", Drop());
    } else if (verb == "set") {
      CUresult result = cuMemsetD32(mapped, static_cast<unsigned>(number), 16);
      if (result == CUDA_SUCCESS) result = cuCtxSynchronize();
      std::printf("%d\n", result);
    } else if (verb == "get") {
      unsigned words[16] = {};
      const CUresult result = cuMemcpyDtoH(words, mapped, sizeof(words));
      std::printf("%d %u\n", result, words[15]);
    } else {
      return false;
    }
    return true;
  }

  // Handles between processes. False: the line is something else.
  bool DoShared(const std::string& verb, const char* text) {
    const auto number = static_cast<unsigned>(std::strtoul(text, nullptr, 10));
    if (verb == "export") {  // the latest allocation
      CUipcMemHandle handle{};
      const CUresult result = cuIpcGetMemHandle(&handle, held.back());
      std::printf("%d %s\n", result, ToText(handle).c_str());
    } else if (verb == "import") {
      CUdeviceptr pointer = 0;
      const CUresult result = cuIpcOpenMemHandle(&pointer, FromText<CUipcMemHandle>(text),
                                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      if (result == CUDA_SUCCESS) imported.push_back(pointer);
      std::printf("%d\n", result);
    } else if (verb == "close") {
      const CUresult result = cuIpcCloseMemHandle(imported.back());
      imported.pop_back();
      std::printf("%d\n", result);
    } else if (verb == "fill" || verb == "poke") {
      std::printf("%d\n", cuMemsetD32(verb == "fill" ? held.back() : imported.back(), number, 16));
    } else if (verb == "look" || verb == "peek") {
      unsigned words[16] = {};
      const CUresult result =
          cuMemcpyDtoH(words, verb == "look" ? held.back() : imported.back(), sizeof(words));
      std::printf("%d %u\n", result, words[15]);
    } else if (verb == "event") {
      CUipcEventHandle handle{};
      CUresult result = cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
      if (result == CUDA_SUCCESS) result = cuIpcGetEventHandle(&handle, event);
      std::printf("%d %s\n", result, ToText(handle).c_str());
    } else if (verb == "open") {
      std::printf("%d\n", cuIpcOpenEventHandle(&event, FromText<CUipcEventHandle>(text)));
    } else if (verb == "record") {
      std::printf("%d\n", cuEventRecord(event, stream));
    } else if (verb == "query") {
      std::printf("%d\n", cuEventQuery(event));
    } else if (verb == "await") {
      const CUresult result = cuEventSynchronize(event);
      std::printf("%d at %" PRIu64 "\n", result, gpushare_sim_now());
    } else if (verb == "follow") {
      std::printf("%d\n", cuStreamWaitEvent(stream, event, 0));
    } else if (verb == "destroy") {
      std::printf("%d\n", cuEventDestroy(event));
    } else {
      return false;
    }
    return true;
  }

  // Runs until it is killed.
  [[noreturn]] void Churn(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (;;) {
      const uint64_t what = random() % 8;
      if (what < 4) {
        (void)Allocate(1 + random() % (64 << 20));
      } else if (what < 7) {
        (void)Free();
      } else {
        (void)Launch(1000, 1);
        (void)cuStreamSynchronize(stream);
      }
    }
  }

  // Does what the line says. False: the process is to end.
  bool Do(const std::string& line) {
    char verb[32] = "";
    uint64_t a = 0, b = 0;
    if (std::sscanf(line.c_str(), "%31s %" SCNu64 " %" SCNu64, verb, &a, &b) < 1) return true;
    const size_t space = line.find(' ');
    const char* const text = space == line.npos ? "" : line.c_str() + space + 1;
    if (DoShared(verb, text) || DoPhysical(verb, text)) {
      std::fflush(stdout);
      return true;
    }
    const auto is = [&](const char* name) { return std::strcmp(verb, name) == 0; };
    if (is("begin")) {  // on the GPU of that number
      std::printf("%d\n", Begin(static_cast<int>(a)));
    } else if (is("copy")) {  // a bytes to the device
      std::vector<char> bytes(a);
      CUresult result = cuMemcpyHtoDAsync(held.back(), bytes.data(), a, stream);
      if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream);
      std::printf("%d at %" PRIu64 "\n", result, gpushare_sim_now());
    } else if (is("enter")) {
      std::printf("%d\n", gpushare_sim_thread_enter("child"));
    } else if (is("leave")) {
      std::printf("%d\n", gpushare_sim_thread_leave());
    } else if (is("alloc")) {
      std::printf("%d\n", Allocate(a));
    } else if (is("free")) {
      std::printf("%d\n", Free());
    } else if (is("left")) {
      size_t left = 0, total = 0;
      (void)cuMemGetInfo(&left, &total);
      std::printf("%zu\n", left);
    } else if (is("launch")) {
      std::printf("%d\n", Launch(a, static_cast<unsigned>(b)));
    } else if (is("stamped")) {
      std::printf("%d\n", LaunchStamped(a, static_cast<unsigned>(b)));
    } else if (is("away")) {
      PrintAway();
    } else if (is("sync")) {
      const CUresult result = cuStreamSynchronize(stream);
      std::printf("%d at %" PRIu64 "\n", result, gpushare_sim_now());
    } else if (is("work")) {  // a kernel of a ns at a time, b of them
      CUresult result = CUDA_SUCCESS;
      for (uint64_t i = 0; i < b && result == CUDA_SUCCESS; ++i) {
        result = Launch(a, 1);
        if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream);
      }
      std::printf("%d at %" PRIu64 "\n", result, gpushare_sim_now());
    } else if (is("spend")) {
      gpushare_sim_spend(a);
      std::printf("at %" PRIu64 "\n", gpushare_sim_now());
    } else if (is("now")) {
      std::printf("at %" PRIu64 "\n", gpushare_sim_now());
    } else if (is("used")) {
      gpushare_sim_truth truth{};
      gpushare_sim_account_truth(0, 0, &truth);
      std::printf("%.0f\n", truth.used_ns);
    } else if (is("processes")) {
      gpushare_sim_holding processes[80];
      const int count = gpushare_sim_holdings(static_cast<int>(a), processes, 80);
      std::printf("%d", count);
      for (int i = 0; i < count; ++i) {
        std::printf(" %d:%" PRIu64 "%s", processes[i].place, processes[i].memory_bytes,
                    processes[i].freed_at_ns == UINT64_MAX ? "" : "!");
      }
      std::printf("\n");
    } else if (is("uses")) {  // by management
      gpushare_sim_process_sample samples[80];
      gpushare_sim_device_info info{};
      const int count = gpushare_sim_process_samples(static_cast<int>(a), samples, 80);
      gpushare_sim_get_device_info(static_cast<int>(a), &info);
      std::printf("%d", count);
      for (int i = 0; i < count; ++i) {
        const bool own = samples[i].pid == static_cast<uint32_t>(getpid());
        std::printf(" %s:%u/%u", own ? "own" : "other", samples[i].kernels_percent,
                    samples[i].copies_percent);
      }
      std::printf(" all:%u/%u\n", info.kernels_percent, info.copies_percent);
    } else if (is("seen")) {  // by management
      gpushare_sim_device_info info{};
      gpushare_sim_process processes[80];
      const int count = gpushare_sim_device_processes(static_cast<int>(a), processes, 80);
      gpushare_sim_get_device_info(static_cast<int>(a), &info);
      uint64_t sum = 0;
      for (int i = 0; i < count; ++i) sum += processes[i].memory_used;
      std::printf("%d %" PRIu64 " %" PRIu64 "\n", count, sum, info.memory_used);
    } else if (is("check")) {
      char error[256] = "ok";
      gpushare_sim_check_shared(error, sizeof(error));
      std::printf("%s\n", error);
    } else if (is("churn")) {
      std::printf("churns\n");
      std::fflush(stdout);
      Churn(a);
    } else if (is("reopen")) {  // the common file, by another descriptor
      const std::string path =
          line.substr(line.find(' ') + 1, line.find('\n') - line.find(' ') - 1);
      const int other = open(path.c_str(), O_RDWR | O_CLOEXEC);
      if (other >= 0) close(other);
      std::printf("%d\n", other >= 0 ? 0 : -1);
    } else if (
        is("fork")) {  // a child that sets what this process holds, frees it and takes it again
      const pid_t pid = fork();
      if (pid == 0) {
        const bool set = cuMemsetD32(held.back(), static_cast<unsigned>(a), 16) == CUDA_SUCCESS;
        (void)Free();
        _exit(set ? 0 : 1);
      }
      int status = -1;
      waitpid(pid, &status, 0);
      std::printf("%d\n", status);
    } else if (is("leavechild")) {  // that outlives this process for a while
      if (fork() == 0) {
        for (int fd = 0; fd <= 2; ++fd)
          close(fd);  // a reader of the output does not wait for this child
        sleep(20);
        _exit(0);
      }
      std::printf("0\n");
    } else if (is("die")) {
      std::fflush(stdout);
      kill(getpid(), SIGKILL);
    } else if (is("exit")) {
      return false;
    } else {
      std::printf("what is '%s'?\n", verb);
    }
    std::fflush(stdout);
    return true;
  }
};

}  // namespace

int main() {
  gpushare_sim_set_log([](const char* line, void*) { std::fprintf(stderr, "%s\n", line); },
                       nullptr);
  Child child;
  char line[512];
  while (std::fgets(line, sizeof(line), stdin) != nullptr && child.Do(line)) {
  }
  return 0;
}
