// SPDX-License-Identifier: Apache-2.0
// Any bytes as a sequence of the driver's memory calls, by two tenants on two streams of the simulated GPU: after each
// call the books charge what a plain model says, and what the driver counts.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "books/books.h"
#include "driver/driver.h"
#include "tests/fuzz/books_model.h"
#include "tests/support/sim_control.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

namespace gpushare::books {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGranule = 2 * kMiB, kLimit = 32 * kMiB;
constexpr unsigned kPlaces = 6;  // addresses for mappings, of two granules each

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

struct Machine {
  const driver::Driver* driver;
  const driver::Table* cu;
  std::unique_ptr<testing::SimControl> sim;
  CUcontext context = nullptr;
  CUstream streams[2] = {};
  CUdeviceptr addresses = 0;
  uint64_t before = 0;

  template <typename F>
  F* Symbol(const char* name) const {
    return reinterpret_cast<F*>(driver->Symbol(name));
  }
  uint64_t Used() const {
    size_t free = 0, total = 0;
    Require(cu->MemGetInfo(&free, &total) == CUDA_SUCCESS, "the driver tells what is free");
    return total - free - before;
  }
  void Faults(const std::string& what) const {
    char error[128];
    Require(sim->inject(what.c_str(), error, sizeof error) == 0, "the fault is known");
  }
};

const Machine& TheMachine() {
  static const Machine machine = [] {
    Machine made;
    auto opened = driver::Driver::Open({.path = "sim"});
    Require(opened.ok(), "there is a simulated GPU");
    made.driver = opened->release();
    made.cu = &made.driver->table();
    made.sim = std::make_unique<testing::SimControl>(*made.driver);
    Require(made.sim
                ->Restart(*made.driver,
                          "clock=virtual,memory=256MiB,pool_granule=2MiB,call_host=0,"
                          "query_host=0,record_host=0,record_device=0,launch_host=0,launch_latency="
                          "0,d2d=1GB/s")
                .ok(),
            "it begins anew");
    const bool ready =
        made.cu->DevicePrimaryCtxRetain(&made.context, 0) == CUDA_SUCCESS &&
        made.cu->CtxPushCurrent(made.context) == CUDA_SUCCESS &&
        made.cu->StreamCreateWithPriority(&made.streams[0], CU_STREAM_NON_BLOCKING, 0) ==
            CUDA_SUCCESS &&
        made.cu->StreamCreateWithPriority(&made.streams[1], CU_STREAM_NON_BLOCKING, 0) ==
            CUDA_SUCCESS &&
        made.Symbol<CUresult(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(
            "cuMemAddressReserve")(&made.addresses, kPlaces * 2 * kGranule, 0, 0, 0) ==
            CUDA_SUCCESS;
    Require(ready, "the GPU is ready");
    made.before = made.Used();
    return made;
  }();
  return machine;
}

class Sequence {
 public:
  explicit Sequence(Bytes bytes) : bytes_(bytes) {}

  void Run() {
    while (bytes_.more()) {
      Step();
      Check();
    }
    End();
  }

 private:
  Payer payer(int tenant) const {
    return {.account = accounts_[tenant].get(), .owner = static_cast<uint32_t>(tenant)};
  }
  CUstream AnyStream() { return m_.streams[bytes_.Next() % 2]; }
  uint64_t AnySize() {
    const uint64_t count = bytes_.Next();
    return 1 + count * (bytes_.Next() % 4 == 0 ? 37'813 : 301);
  }

  // `thing` is held if the driver gave it; at the quota it is true that there was no room.
  void Took(const Answer& answer, Thing thing) {
    if (answer.at_quota) {
      const auto& account = accounts_[thing.tenant];
      Require(answer.result == CUDA_ERROR_OUT_OF_MEMORY, "at the quota it is out of memory");
      Require(thing.held == Held::kPool ||
                  thing.bytes > quota::Minus(account->limit(), account->charged()),
              "what fits is not refused");
    }
    if (!answer.ok()) {
      refused_ |= thing.held == Held::kPool;
      return;
    }
    m_.cu->CtxGetCurrent(&thing.context);
    things_.push_back(std::move(thing));
  }

  void Step() {
    const unsigned what = bytes_.Next();
    const int tenant = what >= 128 ? 1 : 0;
    static const bool trace = std::getenv("BOOKS_FUZZ_TRACE") != nullptr;
    if (trace) {
      std::fprintf(stderr, "step %u of tenant %d; held %zu, charged %lu and %lu, used %lu\n",
                   what % 24, tenant, things_.size(),
                   static_cast<unsigned long>(accounts_[0]->charged()),
                   static_cast<unsigned long>(accounts_[1]->charged()),
                   static_cast<unsigned long>(m_.Used()));
    }
    switch (what % 24) {
      case 0:
        return Direct(tenant);
      case 1:
        return Pitched(tenant);
      case 2:
        return Array(tenant);
      case 3:
      case 4:
        return Async(tenant, nullptr);
      case 5:
        return Async(tenant, pools_.empty() ? nullptr : pools_[bytes_.Next() % pools_.size()]);
      case 6:
      case 7:
        return Create(tenant);
      case 8:
        return Map(tenant);
      case 9:
        return Unmap();
      case 10:
        return Retain();
      case 11:
        return Export();
      case 12:
        return Import();
      case 13:
        return CloseDescriptor();
      case 14:
        return External(tenant);
      case 15:
        return Buffer();
      case 16:
        return NewContext();
      case 17:
        return EndContext();
      case 18:
        return Pool();
      case 19:
        return Work();
      case 20:
        m_.cu->StreamSynchronize(AnyStream());
        return;
      case 21:
        m_.Faults(bytes_.Next() % 2 == 0 ? "oom after=1" : "clear");
        return;
      default:
        return Give(bytes_.Next() % 2 == 0);
    }
  }

  void Direct(int tenant) {
    CUdeviceptr pointer = 0;
    const uint64_t size = AnySize();
    const bool managed = bytes_.Next() % 4 == 0;
    const Answer answer =
        managed ? books_.MemAllocManaged(payer(tenant), &pointer, size, CU_MEM_ATTACH_GLOBAL)
                : books_.MemAlloc(payer(tenant), &pointer, size);
    Took(answer, {.held = Held::kPointer, .tenant = tenant, .handle = pointer, .bytes = size});
  }
  void Pitched(int tenant) {
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    const size_t width = 1 + bytes_.Next() * 9, height = 1 + bytes_.Next() * 9;
    const Answer answer = books_.MemAllocPitch(payer(tenant), &pointer, &pitch, width, height, 4);
    if (!answer.ok()) pitch = (width + 511) / 512 * 512;
    Took(answer,
         {.held = Held::kPointer, .tenant = tenant, .handle = pointer, .bytes = pitch * height});
  }
  void Array(int tenant) {
    CUDA_ARRAY_DESCRIPTOR shape{};
    shape.Width = 1 + bytes_.Next() * 3;
    shape.Height = bytes_.Next() * 3;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 2;
    CUarray array = nullptr;
    const Answer answer = books_.ArrayCreate(payer(tenant), &array, &shape);
    const uint64_t elements = shape.Width * std::max<size_t>(shape.Height, 1);
    Took(answer, {.held = Held::kArray,
                  .tenant = tenant,
                  .handle = reinterpret_cast<uint64_t>(array),
                  .bytes = (8 * elements + 511) / 512 * 512});
  }
  void Async(int tenant, CUmemoryPool pool) {
    CUdeviceptr pointer = 0;
    const uint64_t size = AnySize();
    CUstream const stream = AnyStream();
    const Answer answer =
        pool == nullptr ? books_.MemAllocAsync(payer(tenant), &pointer, size, stream)
                        : books_.MemAllocFromPoolAsync(payer(tenant), &pointer, size, pool, stream);
    if (pool == nullptr) m_.cu->DeviceGetDefaultMemPool(&pool, 0);
    Took(answer,
         {.held = Held::kPool, .tenant = tenant, .handle = pointer, .bytes = size, .pool = pool});
  }
  void Create(int tenant) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const uint64_t size = (1 + bytes_.Next() % 2) * kGranule;
    CUmemGenericAllocationHandle handle = 0;
    const Answer answer = books_.MemCreate(payer(tenant), &handle, size, &properties, 0);
    Took(answer, {.held = Held::kPhysical, .tenant = tenant, .handle = handle, .bytes = size});
  }
  static bool IsPhysical(const Thing& one) { return one.held == Held::kPhysical && one.live(); }
  static bool IsMapped(const Thing& one) {
    return one.held == Held::kPhysical && !one.mappings.empty();
  }
  void Map(int tenant) {
    Thing* const thing = bytes_.Choose(&things_, IsPhysical);
    if (thing == nullptr) return;
    const CUdeviceptr address = m_.addresses + bytes_.Next() % kPlaces * 2 * kGranule;
    if (books_.MemMap(payer(tenant), address, thing->bytes, 0, thing->handle, 0).ok()) {
      thing->mappings.push_back(address);
    }
  }
  void Unmap() {
    Thing* const thing = bytes_.Choose(&things_, IsMapped);
    if (thing == nullptr) return;
    if (books_.MemUnmap(thing->mappings.back(), thing->bytes) == CUDA_SUCCESS) {
      thing->mappings.pop_back();
    }
  }
  void Retain() {
    Thing* const thing = bytes_.Choose(&things_, IsMapped);
    CUmemGenericAllocationHandle handle = 0;
    if (thing == nullptr ||
        books_.MemRetainAllocationHandle(
            &handle, reinterpret_cast<void*>(thing->mappings.back() + 77)) != CUDA_SUCCESS) {
      return;
    }
    Require(handle == thing->handle, "memory has one handle in simulation");
    ++thing->references;
  }
  void Export() {
    Thing* const thing = bytes_.Choose(&things_, IsPhysical);
    int descriptor = -1;
    if (thing == nullptr || thing->descriptors.size() > 3 ||
        books_.MemExportToShareableHandle(&descriptor, thing->handle,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          0) != CUDA_SUCCESS) {
      return;
    }
    thing->descriptors.push_back(bytes_.Next() % 2 == 0 ? descriptor : dup(descriptor));
    if (thing->descriptors.back() != descriptor) close(descriptor);
  }
  static bool IsExported(const Thing& one) { return !one.descriptors.empty(); }
  void Import() {
    Thing* const thing = bytes_.Choose(&things_, IsExported);
    CUmemGenericAllocationHandle handle = 0;
    if (thing == nullptr ||
        books_.MemImportFromShareableHandle(
            &handle, reinterpret_cast<void*>(intptr_t{thing->descriptors.back()}),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS) {
      return;
    }
    Require(handle == thing->handle, "memory has one handle in simulation");
    ++thing->references;
  }
  void CloseDescriptor() {
    Thing* const thing = bytes_.Choose(&things_, IsExported);
    if (thing == nullptr) return;
    close(thing->descriptors.back());
    thing->descriptors.pop_back();
  }
  void External(int tenant) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC file{};
    file.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    file.handle.fd = memfd_create("exporter", MFD_CLOEXEC);
    file.size = AnySize();
    Require(ftruncate(file.handle.fd, static_cast<off_t>(file.size)) == 0, "the file has a size");
    CUexternalMemory memory = nullptr;
    const Answer answer = books_.ImportExternalMemory(payer(tenant), &memory, &file);
    if (!answer.ok()) close(file.handle.fd);
    Took(answer, {.held = Held::kExternal,
                  .tenant = tenant,
                  .handle = reinterpret_cast<uint64_t>(memory),
                  .bytes = file.size});
  }
  void Buffer() {
    Thing* const thing = bytes_.Choose(
        &things_, [](const Thing& one) { return one.held == Held::kExternal && one.live(); });
    CUdeviceptr pointer = 0;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part{};
    part.size = 1;
    if (thing != nullptr &&
        books_.ExternalMemoryGetMappedBuffer(
            &pointer, reinterpret_cast<CUexternalMemory>(thing->handle), &part) == CUDA_SUCCESS) {
      thing->mappings.push_back(pointer);
    }
  }
  void NewContext() {
    if (other_ != nullptr) return;
    const auto create = m_.Symbol<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
    Require(create(&other_, 0, 0) == CUDA_SUCCESS, "there is another context");
  }
  void EndContext() {
    if (other_ == nullptr) return;
    Require(books_.CtxDestroy(other_) == CUDA_SUCCESS, "a context ends");
    std::erase_if(things_, [this](const Thing& one) {
      const bool ended =
          one.context == other_ && one.held != Held::kPool && one.held != Held::kPhysical;
      if (ended && one.freed != nullptr) m_.cu->EventDestroy(one.freed);
      return ended;
    });
    other_ = nullptr;
  }
  void Pool() {
    const unsigned which = bytes_.Next();
    if (pools_.size() < 2) {
      CUmemPoolProps properties{};
      properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      CUmemoryPool pool = nullptr;
      Require(books_.MemPoolCreate(&pool, &properties) == CUDA_SUCCESS, "there is another pool");
      uint64_t keep = which % 2 == 0 ? UINT64_MAX : 0;
      m_.cu->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
      pools_.push_back(pool);
    } else if (which % 2 == 0) {
      books_.MemPoolTrimTo(pools_[0], which);
    } else {
      Require(books_.MemPoolDestroy(pools_[0]) == CUDA_SUCCESS, "a pool is destroyed");
      pools_.erase(pools_.begin());
    }
  }
  // Takes its time, so that frees behind it are late.
  void Work() {
    Thing* const thing = bytes_.Choose(&things_, [](const Thing& one) {
      return one.held == Held::kPointer && one.live() && one.bytes > 64;
    });
    if (thing != nullptr) m_.cu->MemsetD8Async(thing->handle, 1, thing->bytes, AnyStream());
  }

  void Give(bool in_order) {
    Thing* const thing = bytes_.Choose(&things_, [](const Thing&) { return true; });
    if (thing != nullptr) Give(thing, in_order, AnyStream());
  }
  void Give(Thing* thing, bool in_order, CUstream stream) {
    switch (thing->held) {
      case Held::kPool:
      case Held::kPointer:
        if (thing->freed != nullptr) return;
        if (!in_order) {
          if (books_.MemFree(thing->handle) == CUDA_SUCCESS) thing->references = 0;
        } else if (books_.MemFreeAsync(thing->handle, stream) == CUDA_SUCCESS) {
          FreedIn(stream, thing);
        }
        return;
      case Held::kArray:
        if (books_.ArrayDestroy(reinterpret_cast<CUarray>(thing->handle)) == CUDA_SUCCESS) {
          thing->references = 0;
        }
        return;
      case Held::kPhysical:
        if (thing->references > 0 && books_.MemRelease(thing->handle) == CUDA_SUCCESS) {
          --thing->references;
        }
        return;
      case Held::kExternal:
        if (!thing->mappings.empty() && (in_order || thing->references == 0)) {
          if (books_.MemFree(thing->mappings.back()) == CUDA_SUCCESS) thing->mappings.pop_back();
        } else if (thing->references > 0 &&
                   books_.DestroyExternalMemory(
                       reinterpret_cast<CUexternalMemory>(thing->handle)) == CUDA_SUCCESS) {
          --thing->references;
        }
        return;
    }
  }
  void FreedIn(CUstream stream, Thing* thing) {
    if (thing->held == Held::kPool) {
      thing->references = 0;  // the pool has it
      return;
    }
    // The streams are the first context's, and so are their events.
    CUcontext popped = nullptr;
    m_.cu->CtxPushCurrent(m_.context);
    const bool made = m_.cu->EventCreate(&thing->freed, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
                      m_.cu->EventRecord(thing->freed, stream) == CUDA_SUCCESS;
    m_.cu->CtxPopCurrent(&popped);
    Require(made, "the model has its event");
  }

  void Check() {
    m_.sim->spend(1);  // what happens at this instant has happened
    books_.Settle();
    std::erase_if(things_, [this](const Thing& one) {
      if (one.gone()) return true;
      if (one.freed == nullptr || m_.cu->EventQuery(one.freed) != CUDA_SUCCESS) return false;
      m_.cu->EventDestroy(one.freed);
      return true;
    });
    uint64_t held[2] = {}, live_in_pools = 0;
    for (const Thing& one : things_) {
      if (one.held != Held::kPool) held[one.tenant] += one.bytes;
      if (one.held == Held::kPool) live_in_pools += one.bytes;
    }
    uint64_t pooled = 0;
    for (int tenant : {0, 1}) {
      const quota::Account& account = *accounts_[tenant];
      const uint64_t its = account.charged();
      // What was refused after a pool grew is owed until the stream has come to its free.
      Require(its <= kLimit || refused_, "what is charged is within the limit");
      Require(its == account.Usage().committed, "nothing stays reserved");
      Require(its == books_.BytesOf(&account), "the books add up");
      Require(its >= held[tenant], "what a tenant holds is charged to it");
      pooled += its - held[tenant];
    }
    Require(pooled >= live_in_pools, "what is live in pools is charged");
    const uint64_t used = m_.Used(), charged = held[0] + held[1] + pooled;
    refused_ &= accounts_[0]->IsOverdrawn() || accounts_[1]->IsOverdrawn();
    Require(charged == used, "what is charged is the driver's count");
    Require(books_.CheckInvariants().ok(), "the books do not contradict themselves");
  }

  void End() {
    m_.Faults("clear");
    for (Thing& thing : things_) {
      for (const int descriptor : thing.descriptors) close(descriptor);
      thing.descriptors.clear();
      while (!thing.gone() && thing.freed == nullptr) {
        if (thing.held == Held::kPhysical && !thing.mappings.empty()) {
          Require(books_.MemUnmap(thing.mappings.back(), thing.bytes) == CUDA_SUCCESS,
                  "what is mapped is unmapped");
          thing.mappings.pop_back();
        } else {
          Give(&thing, /*in_order=*/false, m_.streams[0]);
        }
      }
    }
    EndContext();
    for (CUstream stream : m_.streams) m_.cu->StreamSynchronize(stream);
    for (CUmemoryPool pool : pools_) books_.MemPoolDestroy(pool);
    CUmemoryPool standard = nullptr;
    m_.cu->DeviceGetDefaultMemPool(&standard, 0);
    books_.MemPoolTrimTo(standard, 0);
    refused_ = false;
    Check();
    Require(things_.empty() && m_.Used() == 0, "the device is empty");
    Require(accounts_[0]->charged() + accounts_[1]->charged() == 0, "nothing is charged");
  }

  Bytes bytes_;
  const Machine& m_ = TheMachine();
  const std::unique_ptr<quota::Account> accounts_[2] = {*quota::Account::Create(kLimit),
                                                        *quota::Account::Create(kLimit)};
  Books books_{*m_.cu};
  std::vector<Thing> things_;
  std::vector<CUmemoryPool> pools_;
  CUcontext other_ = nullptr;
  bool refused_ = false;
};

}  // namespace
}  // namespace gpushare::books

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gpushare::books::Sequence({data, size}).Run();
  return 0;
}
