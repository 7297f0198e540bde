// SPDX-License-Identifier: Apache-2.0
// A process on a shared simulated GPU: does what the lines of its input say, one answer a line.
#include <cuda.h>
#include <signal.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpushare/testing/sim.h"

namespace {

constexpr char kPtx[] = R"(.version 7.5
.target sm_90
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns) { ret; }
)";

struct Child {
  CUfunction spin = nullptr;
  CUstream stream = nullptr;
  std::vector<CUdeviceptr> held;

  CUresult Begin() {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) result = cuDeviceGet(&device, 0);
    if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) result = cuModuleLoadData(&module, kPtx);
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&spin, module, "spin");
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

  // Until it is killed.
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

  // What the line asks for; false: to end.
  bool Do(const std::string& line) {
    char verb[32] = "";
    uint64_t a = 0, b = 0;
    if (std::sscanf(line.c_str(), "%31s %" SCNu64 " %" SCNu64, verb, &a, &b) < 1) return true;
    const auto is = [&](const char* name) { return std::strcmp(verb, name) == 0; };
    if (is("begin")) {
      std::printf("%d\n", Begin());
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
      const int count = gpushare_sim_holdings(0, processes, 80);
      std::printf("%d", count);
      for (int i = 0; i < count; ++i) {
        std::printf(" %d:%" PRIu64 "%s", processes[i].place, processes[i].memory_bytes,
                    processes[i].freed_at_ns == UINT64_MAX ? "" : "!");
      }
      std::printf("\n");
    } else if (is("check")) {
      char error[256] = "ok";
      gpushare_sim_check_shared(error, sizeof(error));
      std::printf("%s\n", error);
    } else if (is("churn")) {
      std::printf("churns\n");
      std::fflush(stdout);
      Churn(a);
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
  char line[256];
  while (std::fgets(line, sizeof(line), stdin) != nullptr && child.Do(line)) {
  }
  return 0;
}
