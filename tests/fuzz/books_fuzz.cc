// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a sequence of the driver's memory calls, by two tenants on two streams of each of two simulated
// GPUs. After each call the books charge what a plain model says, and what the driver counts on each GPU.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "books/books.h"
#include "tests/fuzz/books_machine.h"
#include "tests/fuzz/books_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

namespace gpushare::books {
namespace {

constexpr uint64_t kLimit = 32 * kMiB;  // for each tenant on each GPU
constexpr unsigned kCalls = 36;

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
    return {.account = accounts_[tenant][gpu_].get(),
            .owner = static_cast<uint32_t>(2 * tenant + gpu_),
            .device = gpu_};
  }
  CUstream AnyStream() { return m_.gpus[gpu_].streams[bytes_.Next() % 2]; }
  CUmemLocation here() const { return {CU_MEM_LOCATION_TYPE_DEVICE, gpu_}; }
  CUmemPoolProps pool_here() const {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = here();
    return properties;
  }
  uint64_t AnySize() {
    const uint64_t count = bytes_.Next();
    return 1 + count * (bytes_.Next() % 4 == 0 ? 37'813 : 301);
  }

  // Records `thing` if the driver returned it. A refusal at the quota must be true.
  void Took(const Answer& answer, Thing thing) {
    if (thing.held == Held::kPointer || thing.held == Held::kArray) {
      thing.asked = std::exchange(thing.bytes, m_.Taken(thing.bytes));
    }
    if (answer.at_quota) {
      const auto& account = accounts_[thing.tenant][gpu_];
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
    if (thing.context == green_context_) thing.context = m_.gpus[0].context;
    thing.gpu = gpu_;
    thing.number = ++number_;
    things_.push_back(std::move(thing));
  }

  void Step() {
    const unsigned what = bytes_.Next(), who = bytes_.Next();
    const int tenant = static_cast<int>(who % 2);
    gpu_ = who % 8 >= 6 ? 1 : 0;
    static const bool trace = std::getenv("BOOKS_FUZZ_TRACE") != nullptr;
    if (trace) {
      std::fprintf(stderr, "step %u of tenant %d on GPU %d; held %zu", what % kCalls, tenant, gpu_,
                   things_.size());
      for (const auto& of : accounts_) {
        for (const auto& account : of) {
          std::fprintf(stderr, " %lu", static_cast<unsigned long>(account->charged()));
        }
      }
      std::fprintf(stderr, ", used %lu %lu\n", static_cast<unsigned long>(m_.Used(0)),
                   static_cast<unsigned long>(m_.Used(1)));
    }
    // On the first GPU another context or a green one may be current.
    CUcontext context = gpu_ == 1 ? m_.gpus[1].context : nullptr;
    if (gpu_ == 0 && green_context_ != nullptr && who >= 128) context = green_context_;
    const auto step = [&] { return Step(what % kCalls, tenant), true; };
    static_cast<void>(context != nullptr ? m_.In(context, step) : step());
  }
  void Step(unsigned what, int tenant) {
    switch (what) {
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
        return Async(tenant, AnyPool());
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
      case 22:
        return Volume(tenant);
      case 23:
        return Mipmapped(tenant);
      case 24:
        return Graph();
      case 25:
      case 26:
        return Launch(tenant);
      case 27:
        return EndGraph();
      case 28:
        books_.DeviceGraphMemTrim(gpu_);
        return;
      case 29:
        return Multicast();
      case 30:
        return Bind();
      case 31:
        return Unbind();
      case 32:
        return Green();
      case 33:
        // Only rarely, since otherwise little would ever accumulate.
        if (bytes_.Next() % 4 == 0) Reset();
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
  static CUDA_ARRAY3D_DESCRIPTOR FloatShape(unsigned width, unsigned height, unsigned depth) {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    shape.Width = width;
    shape.Height = height;
    shape.Depth = depth;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 2;
    return shape;
  }
  void Volume(int tenant) {
    const CUDA_ARRAY3D_DESCRIPTOR shape =
        FloatShape(1 + bytes_.Next() % 64, 1 + bytes_.Next() % 64, bytes_.Next() % 64);
    CUarray array = nullptr;
    const Answer answer = books_.Array3DCreate(payer(tenant), &array, &shape);
    Took(answer, {.held = Held::kArray,
                  .tenant = tenant,
                  .handle = reinterpret_cast<uint64_t>(array),
                  .bytes = BytesOfArray(shape, 8, 1)});
  }
  void Mipmapped(int tenant) {
    const CUDA_ARRAY3D_DESCRIPTOR shape =
        FloatShape(1 + bytes_.Next(), 1 + bytes_.Next(), bytes_.Next() % 8);
    const unsigned levels = 1 + bytes_.Next() % 16;
    CUmipmappedArray array = nullptr;
    const Answer answer = books_.MipmappedArrayCreate(payer(tenant), &array, &shape, levels);
    Took(answer, {.held = Held::kMipmapped,
                  .tenant = tenant,
                  .handle = reinterpret_cast<uint64_t>(array),
                  .bytes = BytesOfArray(shape, 8, levels)});
  }

  // ---- graphs ----
  struct Executable {
    CUgraphExec exec;
    CUdeviceptr pointer;  // memory that a launch leaves to the program; 0: none
    uint64_t bytes;
    int gpu;
    CUcontext context;
  };
  // The executables of a context end with it.
  void ForgetExecutables(CUcontext context) {
    std::erase_if(executables_, [&](const Executable& one) { return one.context == context; });
  }
  CUcontext Current() const {
    CUcontext context = nullptr;
    m_.cu->CtxGetCurrent(&context);
    return context == green_context_ ? m_.gpus[0].context : context;
  }
  void Graph() {
    if (executables_.size() >= 6) return;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps = pool_here();
    parameters.bytesize = AnySize();
    const bool frees = bytes_.Next() % 2 == 0;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr, free = nullptr;
    CUgraphExec exec = nullptr;
    m_.Symbol<CUresult(CUgraph*, unsigned)>("cuGraphCreate")(&graph, 0);
    const bool made = m_.Symbol<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                         CUDA_MEM_ALLOC_NODE_PARAMS*)>("cuGraphAddMemAllocNode")(
                          &node, graph, nullptr, 0, &parameters) == CUDA_SUCCESS;
    if (made && frees) {
      m_.Symbol<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUdeviceptr)>(
          "cuGraphAddMemFreeNode")(&free, graph, &node, 1, parameters.dptr);
    }
    if (made && books_.GraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS) {
      executables_.push_back(
          {exec, frees ? 0 : parameters.dptr, parameters.bytesize, gpu_, Current()});
    }
    m_.cu->GraphDestroy(graph);
  }
  // In any context: the nodes say on which GPU the memory is.
  void Launch(int tenant) {
    if (executables_.empty()) return;
    const Executable& one = executables_[bytes_.Next() % executables_.size()];
    const auto payer_on = [&](CUdevice device) {
      return std::optional<Payer>({.account = accounts_[tenant][device].get(),
                                   .owner = static_cast<uint32_t>(2 * tenant + device)});
    };
    CUstream const stream = AnyStream();
    if (bytes_.Next() % 4 == 0) {
      static_cast<void>(books_.GraphUpload(payer_on, one.exec, stream));
    } else if (books_.GraphLaunch(payer_on, one.exec, stream).ok() && one.pointer != 0) {
      things_.push_back({.held = Held::kGraph,
                         .tenant = tenant,
                         .handle = one.pointer,
                         .bytes = one.bytes,
                         .gpu = one.gpu,
                         .number = ++number_});
    }
    refused_ = true;  // beside another launch it may take more than there is room for
  }
  void EndGraph() {
    if (executables_.empty()) return;
    const size_t which = bytes_.Next() % executables_.size();
    Require(books_.GraphExecDestroy(executables_[which].exec) == CUDA_SUCCESS,
            "an executable is destroyed");
    executables_.erase(executables_.begin() + static_cast<ptrdiff_t>(which));
  }

  // ---- multicast objects ----
  static constexpr unsigned kParts = 2;
  void Multicast() {
    CUmulticastObjectProp properties{};
    properties.numDevices = 1;
    properties.size = kParts * kGranule;
    CUmemGenericAllocationHandle handle = 0;
    if (books_.MulticastCreate(&handle, &properties) != CUDA_SUCCESS) return;
    Require(m_.Symbol<CUresult(CUmemGenericAllocationHandle, CUdevice)>("cuMulticastAddDevice")(
                handle, gpu_) == CUDA_SUCCESS,
            "an object has its GPU");
    Took({}, {.held = Held::kMulticast,
              .tenant = 0,
              .handle = handle,
              .bytes = 0,
              .bound = std::vector<uint64_t>(kParts)});
  }
  static bool IsObject(const Thing& one) {
    return one.held == Held::kMulticast && one.references > 0;
  }
  void Bind() {
    Thing* const object = bytes_.Choose(&things_, IsObject);
    Thing* const memory = bytes_.Choose(&things_, [](const Thing& one) {
      return one.held == Held::kPhysical && (one.live() || !one.mappings.empty());
    });
    const unsigned part = bytes_.Next() % kParts;
    if (object == nullptr || memory == nullptr) return;
    const bool by_address =
        !memory->mappings.empty() && (bytes_.Next() % 2 == 0 || !memory->live());
    if (!by_address && !memory->live()) return;
    const CUresult result = by_address
                                ? books_.MulticastBindAddr(object->handle, part * kGranule,
                                                           memory->mappings.back(), kGranule, 0)
                                : books_.MulticastBindMem(object->handle, part * kGranule,
                                                          memory->handle, 0, kGranule, 0);
    if (result != CUDA_SUCCESS) return;
    Require(object->bound[part] == 0, "a part has one binding");
    object->bound[part] = memory->number;
    ++memory->bindings;
  }
  void Unbound(uint64_t number) {
    for (Thing& one : things_) {
      if (one.number == number) --one.bindings;
    }
  }
  void Unbind() {
    Thing* const object = bytes_.Choose(&things_, IsObject);
    const unsigned part = bytes_.Next() % kParts;
    if (object == nullptr || books_.MulticastUnbind(object->handle, object->gpu, part * kGranule,
                                                    kGranule) != CUDA_SUCCESS) {
      return;
    }
    Require(object->bound[part] != 0, "what is unbound was bound");
    Unbound(std::exchange(object->bound[part], 0));
  }

  // ---- contexts ----
  void Green() {
    if (green_ != nullptr) return EndGreen();
    CUdevResource sms{};
    CUdevResourceDesc description = nullptr;
    const bool made =
        m_.cu->DeviceGetDevResource(0, &sms, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
        m_.cu->DevResourceGenerateDesc(&description, &sms, 1) == CUDA_SUCCESS &&
        m_.cu->GreenCtxCreate(&green_, description, 0, CU_GREEN_CTX_DEFAULT_STREAM) ==
            CUDA_SUCCESS &&
        books_.CtxFromGreenCtx(&green_context_, green_) == CUDA_SUCCESS;
    Require(made, "there is a green context");
  }
  // Memory that was allocated in it belongs to the primary context.
  void EndGreen() {
    if (green_ == nullptr) return;
    CUcontext current = nullptr;
    m_.cu->CtxGetCurrent(&current);
    if (current == green_context_) return;
    Require(books_.GreenCtxDestroy(green_) == CUDA_SUCCESS, "a green context ends");
    green_ = nullptr;
    green_context_ = nullptr;
  }
  // A reset ends everything that was allocated on the GPU, except memory behind handles.
  void Reset() {
    CUcontext current = nullptr, popped = nullptr;
    m_.cu->CtxGetCurrent(&current);
    if (current == green_context_ && green_ != nullptr) return;
    if (gpu_ == 0) {
      EndContext();
      EndGreen();
    }
    const int gpu = gpu_;
    ForgetExecutables(m_.gpus[gpu].context);
    Require(books_.DevicePrimaryCtxReset(gpu) == CUDA_SUCCESS, "a GPU is reset");
    std::erase_if(things_, [gpu](const Thing& one) {
      return one.gpu == gpu && one.held != Held::kPhysical && one.held != Held::kMulticast;
    });
    std::erase_if(pools_, [gpu](const PoolOf& one) { return one.gpu == gpu; });
    m_.cu->CtxPopCurrent(&popped);
    m_.Enter(gpu);
    m_.cu->CtxPushCurrent(m_.gpus[gpu].context);
  }

  // A pool of this GPU; null: the current one.
  CUmemoryPool AnyPool() {
    const unsigned which = bytes_.Next();
    for (size_t i = 0; i < pools_.size(); ++i) {
      const PoolOf& one = pools_[(which + i) % pools_.size()];
      if (one.gpu == gpu_) return one.pool;
    }
    return nullptr;
  }
  void Async(int tenant, CUmemoryPool pool) {
    CUdeviceptr pointer = 0;
    const uint64_t size = AnySize();
    CUstream const stream = AnyStream();
    const Answer answer =
        pool == nullptr ? books_.MemAllocAsync(payer(tenant), &pointer, size, stream)
                        : books_.MemAllocFromPoolAsync(payer(tenant), &pointer, size, pool, stream);
    if (pool == nullptr) m_.cu->DeviceGetDefaultMemPool(&pool, gpu_);
    Took(answer,
         {.held = Held::kPool, .tenant = tenant, .handle = pointer, .bytes = size, .pool = pool});
  }
  void Create(int tenant) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = here();
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
    const CUdeviceptr address = m_.gpus[gpu_].addresses + bytes_.Next() % kPlaces * 2 * kGranule;
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
        !books_
             .MemImportFromShareableHandle(
                 payer(0), &handle, reinterpret_cast<void*>(intptr_t{thing->descriptors.back()}),
                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
             .ok()) {
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
    if (thing != nullptr && bytes_.Next() % 4 == 0) return MapArray(thing);
    CUdeviceptr pointer = 0;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part{};
    part.size = 1;
    if (thing != nullptr &&
        books_.ExternalMemoryGetMappedBuffer(
            &pointer, reinterpret_cast<CUexternalMemory>(thing->handle), &part) == CUDA_SUCCESS) {
      thing->mappings.push_back(pointer);
    }
  }
  void MapArray(Thing* thing) {
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC part{};
    part.arrayDesc = {.Width = 4,
                      .Height = 4,
                      .Depth = 0,
                      .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                      .NumChannels = 1,
                      .Flags = 0};
    part.numLevels = 1;
    CUmipmappedArray array = nullptr;
    if (books_.ExternalMemoryGetMappedMipmappedArray(
            &array, reinterpret_cast<CUexternalMemory>(thing->handle), &part) == CUDA_SUCCESS) {
      thing->mappings.push_back(reinterpret_cast<CUdeviceptr>(array) | kMappedArray);
    }
  }
  bool GiveMapping(CUdeviceptr one) {
    if ((one & kMappedArray) == 0) return books_.MemFree(one) == CUDA_SUCCESS;
    return books_.MipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(one & ~kMappedArray)) ==
           CUDA_SUCCESS;
  }
  void NewContext() {
    if (other_ != nullptr || gpu_ != 0) return;
    CUcontext current = nullptr;
    m_.cu->CtxGetCurrent(&current);
    if (current != m_.gpus[0].context) return;
    const auto create = m_.Symbol<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
    Require(create(&other_, 0, 0) == CUDA_SUCCESS, "there is another context");
  }
  void EndContext() {
    CUcontext current = nullptr;
    m_.cu->CtxGetCurrent(&current);
    if (other_ == nullptr || current != other_) return;
    Require(books_.CtxDestroy(other_) == CUDA_SUCCESS, "a context ends");
    ForgetExecutables(other_);
    std::erase_if(things_, [this](const Thing& one) {
      const bool ended = one.context == other_ && one.held != Held::kPool &&
                         one.held != Held::kPhysical && one.held != Held::kMulticast &&
                         one.held != Held::kGraph;
      if (ended && one.freed != nullptr) m_.cu->EventDestroy(one.freed);
      return ended;
    });
    other_ = nullptr;
  }
  void Pool() {
    const unsigned which = bytes_.Next();
    if (pools_.size() < 3) {
      const CUmemPoolProps properties = pool_here();
      CUmemoryPool pool = nullptr;
      Require(books_.MemPoolCreate(&pool, &properties) == CUDA_SUCCESS, "there is another pool");
      uint64_t keep = which % 2 == 0 ? UINT64_MAX : 0;
      m_.cu->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
      pools_.push_back({pool, gpu_});
    } else if (which % 2 == 0) {
      books_.MemPoolTrimTo(pools_[0].pool, which);
    } else {
      Require(books_.MemPoolDestroy(pools_[0].pool) == CUDA_SUCCESS, "a pool is destroyed");
      pools_.erase(pools_.begin());
    }
  }
  // Takes a while, so that frees behind it are late.
  void Work() {
    Thing* const thing = bytes_.Choose(&things_, [](const Thing& one) {
      return one.held == Held::kPointer && one.live() && one.asked > 64;
    });
    if (thing != nullptr) m_.cu->MemsetD8Async(thing->handle, 1, thing->asked, AnyStream());
  }

  void Give(bool in_order) {
    Thing* const thing = bytes_.Choose(&things_, [](const Thing&) { return true; });
    if (thing != nullptr) Give(thing, in_order, AnyStream());
  }
  void Give(Thing* thing, bool in_order, CUstream stream) {
    switch (thing->held) {
      case Held::kGraph:
        if ((in_order ? books_.MemFreeAsync(thing->handle, stream)
                      : books_.MemFree(thing->handle)) == CUDA_SUCCESS) {
          thing->references = 0;
        }
        return;
      case Held::kMipmapped:
        if (books_.MipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(thing->handle)) ==
            CUDA_SUCCESS) {
          thing->references = 0;
        }
        return;
      case Held::kMulticast:
        if (books_.MemRelease(thing->handle) == CUDA_SUCCESS) {
          thing->references = 0;
          for (uint64_t& number : thing->bound) Unbound(std::exchange(number, 0));
        }
        return;
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
          if (GiveMapping(thing->mappings.back())) thing->mappings.pop_back();
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
      thing->references = 0;  // the pool has the memory
      return;
    }
    // The streams belong to the primary contexts, so the events must too.
    const bool made = m_.In(m_.gpus[gpu_].context, [&] {
      return m_.cu->EventCreate(&thing->freed, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
             m_.cu->EventRecord(thing->freed, stream) == CUDA_SUCCESS;
    });
    Require(made, "the model has its event");
  }

  void Check() {
    m_.sim->spend(1);  // lets everything that is due at this instant happen
    books_.Settle();
    std::erase_if(things_, [this](const Thing& one) {
      if (one.gone()) return true;
      if (one.freed == nullptr) return false;
      const CUresult result = m_.cu->EventQuery(one.freed);
      if (result == CUDA_SUCCESS) m_.cu->EventDestroy(one.freed);
      return result != CUDA_ERROR_NOT_READY;  // the event may have ended with its context
    });
    bool overdrawn = false;
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      uint64_t held[2] = {}, live_in_pools = 0, pooled = 0;
      for (const Thing& one : things_) {
        if (one.gpu != gpu) continue;
        if (one.held == Held::kPool) {
          live_in_pools += one.bytes;
        } else if (one.held != Held::kGraph) {
          held[one.tenant] += one.bytes;
        }
      }
      for (int tenant : {0, 1}) {
        const quota::Account& account = *accounts_[tenant][gpu];
        const uint64_t its = account.charged();
        // After a pool grew for a refused allocation, the growth is owed until the stream has reached its free.
        Require(its <= kLimit || refused_, "what is charged is within the limit");
        Require(its == account.Usage().committed, "nothing stays reserved");
        Require(its == books_.BytesOf(&account), "the books add up");
        Require(its >= held[tenant], "what a tenant holds is charged to it");
        pooled += its - held[tenant];
        overdrawn |= account.IsOverdrawn();
      }
      Require(pooled >= live_in_pools, "what is live in pools is charged");
      Require(held[0] + held[1] + pooled == m_.Used(gpu) - m_.UnusedOfPages(gpu),
              "what is charged is the driver's count");
    }
    refused_ &= overdrawn;
    Require(books_.CheckInvariants().ok(), "the books do not contradict themselves");
  }

  void End() {
    m_.Faults("clear");
    for (Thing& thing : things_) {  // bound memory stays until then
      if (IsObject(thing)) Give(&thing, /*in_order=*/false, nullptr);
    }
    for (Thing& thing : things_) {
      for (const int descriptor : thing.descriptors) close(descriptor);
      thing.descriptors.clear();
      while (!thing.gone() && thing.freed == nullptr) {
        if (thing.held == Held::kPhysical && !thing.mappings.empty()) {
          Require(books_.MemUnmap(thing.mappings.back(), thing.bytes) == CUDA_SUCCESS,
                  "what is mapped is unmapped");
          thing.mappings.pop_back();
        } else {
          Give(&thing, /*in_order=*/false, m_.gpus[thing.gpu].streams[0]);
        }
      }
    }
    EndContext();
    EndGreen();
    while (!executables_.empty()) EndGraph();
    // A stream may still have to reach work on another GPU.
    for (const Machine::Gpu& gpu : m_.gpus) {
      for (CUstream stream : gpu.streams) m_.cu->StreamSynchronize(stream);
    }
    for (const PoolOf& one : pools_) books_.MemPoolDestroy(one.pool);
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      CUmemoryPool standard = nullptr;
      m_.cu->DeviceGetDefaultMemPool(&standard, gpu);
      books_.MemPoolTrimTo(standard, 0);
      books_.DeviceGraphMemTrim(gpu);
    }
    refused_ = false;
    Check();
    Require(things_.empty() && m_.Used(0) + m_.Used(1) == 0, "the GPUs are empty");
    for (const auto& of : accounts_) {
      for (const auto& account : of) Require(account->charged() == 0, "nothing is charged");
    }
  }

  Bytes bytes_;
  Machine& m_ = TheMachine();
  int gpu_ = 0;  // the GPU of the current step
  const std::unique_ptr<quota::Account> accounts_[2][kGpus] = {
      {*quota::Account::Create(kLimit), *quota::Account::Create(kLimit)},
      {*quota::Account::Create(kLimit), *quota::Account::Create(kLimit)}};
  Books books_{*m_.cu, nullptr, {.page = m_.page}};
  std::vector<Thing> things_;
  uint64_t number_ = 0;
  struct PoolOf {
    CUmemoryPool pool;
    int gpu;
  };
  std::vector<PoolOf> pools_;
  std::vector<Executable> executables_;
  CUcontext other_ = nullptr, green_context_ = nullptr;
  CUgreenCtx green_ = nullptr;
  bool refused_ = false;
};

}  // namespace
}  // namespace gpushare::books

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gpushare::books::Sequence({data, size}).Run();
  return 0;
}
