// SPDX-License-Identifier: Apache-2.0
// The driver's calls about device memory, charged to whoever pays.
//
//   Books books(driver->table(), {});
//   CUdeviceptr pointer;
//   const Answer answer = books.MemAlloc({.account = account}, &pointer, bytes);
//   if (answer.at_quota) ...   // CUDA_ERROR_OUT_OF_MEMORY, and answer.left bytes were left
//   ...
//   CUresult result = books.MemFree(pointer);   // credits who paid, whoever frees
//
// One object per process and driver. Each function is the driver's of that name, with its parameters and its
// result; those that take memory have a payer before. What the books do not know (a pointer that was allocated
// past them, a parameter that the driver will refuse) is forwarded as it is.
//
// Guarantees:
//   * memory is reserved before the driver is asked, so that what is charged to an account never exceeds its limit, not
//     even for an instant. The one exception is what pools and graphs turn out to have taken and cannot give back at
//     once: that is charged past the limit, and who owes it gets nothing more of them;
//   * a byte is charged for as long as the device may hold it: it is credited after the driver has given it
//     up, for a free in the order of a stream when the stream has come to it (Settle() looks);
//   * of a call that the driver refuses nothing remains.
// docs/memory.md says what is charged for each family, when, and how exactly.
//
// Threading: thread-safe. No lock is held across a call of the driver, but for those that begin and end primary
// contexts, and the look at events; who waits for these does so through the clock. An account outlives what is
// charged to it here.
#ifndef GPUSHARE_BOOKS_BOOKS_H_
#define GPUSHARE_BOOKS_BOOKS_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "books/context_tags.h"
#include "books/descriptors.h"
#include "books/late_frees.h"
#include "books/options.h"
#include "books/payer.h"
#include "books/pool_frees.h"
#include "books/pools.h"
#include "books/shared_memory.h"
#include "books/sparse_arrays.h"
#include "driver/table.h"
#include "quota/ledger.h"
#include "quota/pointer_table.h"
#include "quota/spin_lock.h"

namespace gpushare::books {

// Handles and addresses as the tables know them.
inline uint64_t KeyOf(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
// Of an array over external memory: beside the buffers of it, whose addresses are lower.
inline uint64_t KeyOfMapped(CUmipmappedArray array) { return KeyOf(array) | uint64_t{1} << 63; }

class Books {
 public:
  // Called after bytes of an allocation that somebody had went back to an account, by the thread that found it out and
  // without a lock.
  using OnCredit = std::function<void(uint32_t owner, uint64_t bytes)>;

  using Options = books::Options;

  // `driver` outlives the books.
  explicit Books(const driver::Table& driver, OnCredit on_credit = nullptr)
      : Books(driver, std::move(on_credit), Options{}) {}
  Books(const driver::Table& driver, OnCredit on_credit, const Options& options);
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  // -- Direct (direct.cc) --
  Answer MemAlloc(const Payer& payer, CUdeviceptr* pointer, size_t bytes);
  Answer MemAllocPitch(const Payer& payer, CUdeviceptr* pointer, size_t* pitch, size_t width,
                       size_t height, unsigned element);
  // Charged for as long as it lives, wherever its pages are.
  Answer MemAllocManaged(const Payer& payer, CUdeviceptr* pointer, size_t bytes, unsigned flags);

  // -- Arrays (arrays.cc, array_bytes.h) --
  Answer ArrayCreate(const Payer& payer, CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor);
  Answer Array3DCreate(const Payer& payer, CUarray* array,
                       const CUDA_ARRAY3D_DESCRIPTOR* descriptor);
  CUresult ArrayDestroy(CUarray array);
  Answer MipmappedArrayCreate(const Payer& payer, CUmipmappedArray* array,
                              const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels);
  CUresult MipmappedArrayDestroy(CUmipmappedArray array);
  // Of sparse arrays, which have no memory but what is mapped into them (sparse_arrays.cc).
  CUresult MemMapArrayAsync(CUarrayMapInfo* list, unsigned count, CUstream stream);

  // -- Virtual memory management (virtual_memory.cc) and multicast objects (multicast.cc) --
  Answer MemCreate(const Payer& payer, CUmemGenericAllocationHandle* handle, size_t bytes,
                   const CUmemAllocationProp* properties, unsigned long long flags);
  CUresult MemRelease(CUmemGenericAllocationHandle handle);
  CUresult MemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address);
  // What was exported stays charged until every descriptor of it is closed.
  CUresult MemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags);
  // Memory of another process is charged here as well (imports.cc).
  Answer MemImportFromShareableHandle(PayerOn payer_on, CUmemGenericAllocationHandle* handle,
                                      void* shareable, CUmemAllocationHandleType type);
  Answer MemImportFromShareableHandle(const Payer& payer, CUmemGenericAllocationHandle* handle,
                                      void* shareable, CUmemAllocationHandleType type) {
    return MemImportFromShareableHandle([&](CUdevice) { return std::optional(payer); }, handle,
                                        shareable, type);
  }
  // Takes memory where the handle was imported, is not of these books and its size was not to be known.
  Answer MemMap(const Payer& payer, CUdeviceptr address, size_t bytes, size_t offset,
                CUmemGenericAllocationHandle handle, unsigned long long flags);
  CUresult MemUnmap(CUdeviceptr address, size_t bytes);
  CUresult MulticastCreate(CUmemGenericAllocationHandle* handle,
                           const CUmulticastObjectProp* properties);
  CUresult MulticastBindMem(CUmemGenericAllocationHandle multicast, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags);
  CUresult MulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags);
  CUresult MulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
                           size_t bytes);

  // -- External memory (external.cc) --
  Answer ImportExternalMemory(const Payer& payer, CUexternalMemory* handle,
                              const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* descriptor);
  CUresult ExternalMemoryGetMappedBuffer(CUdeviceptr* pointer, CUexternalMemory handle,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer);
  CUresult ExternalMemoryGetMappedMipmappedArray(
      CUmipmappedArray* array, CUexternalMemory handle,
      const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* descriptor);
  CUresult DestroyExternalMemory(CUexternalMemory handle);

  // -- Stream-ordered memory (stream_ordered.cc): of any pool, the default one included --
  // A null `stream` is the legacy stream; the caller of a _ptsz variant passes CU_STREAM_PER_THREAD.
  Answer MemAllocAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes, CUstream stream);
  Answer MemAllocFromPoolAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                               CUmemoryPool pool, CUstream stream);
  // The device that a pool is of, whose share pays for it; kNoDevice: that of the stream.
  static constexpr int kNoDevice = -1;
  int PoolDevice(CUmemoryPool pool);
  // Pools on the host are not charged.
  CUresult MemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties);
  CUresult MemPoolTrimTo(CUmemoryPool pool, size_t keep);
  // The program has destroyed it, and something is left in it: to the program it is none any more, and who calls the
  // driver with it answers that it is invalid.
  bool IsDestroyed(CUmemoryPool pool);
  CUresult MemPoolDestroy(CUmemoryPool pool);

  // -- Graph memory (graph_memory.cc): taken by launches, kept until it is trimmed --
  CUresult GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags);
  // Whether launches and uploads of it take memory.
  bool TakesMemory(CUgraph graph);
  // After any other way to instantiate. Without memory of the host the executable is destroyed again.
  CUresult Instantiated(CUgraphExec* exec, CUgraph graph);
  CUresult GraphExecDestroy(CUgraphExec exec);
  // Of a graph with allocations, the first launch uploads it before: then it is known what it takes, and it is refused
  // where there is no room.
  Answer GraphLaunch(PayerOn payer_on, CUgraphExec exec, CUstream stream);
  Answer GraphUpload(PayerOn payer_on, CUgraphExec exec, CUstream stream);
  Answer GraphLaunch(const Payer& payer, CUgraphExec exec, CUstream stream) {
    return GraphLaunch([&](CUdevice) { return std::optional(payer); }, exec, stream);
  }
  Answer GraphUpload(const Payer& payer, CUgraphExec exec, CUstream stream) {
    return GraphUpload([&](CUdevice) { return std::optional(payer); }, exec, stream);
  }
  CUresult DeviceGraphMemTrim(CUdevice device);

  // -- Frees of every pointer (free.cc) --
  CUresult MemFree(CUdeviceptr pointer);
  CUresult MemFreeAsync(CUdeviceptr pointer, CUstream stream);
  // MemFree() in two steps, for who has to know before whose it is. False: it is not of these books. `free` calls the
  // driver; what that does not free is of the books again.
  [[nodiscard]] bool Take(CUdeviceptr pointer, quota::Allocation* allocation) {
    return pointers_.Take(pointer, allocation);
  }
  CUresult FreeTaken(CUdeviceptr pointer, const quota::Allocation& allocation,
                     absl::FunctionRef<CUresult()> free);
  // What was taken went with its context.
  void Gone(const quota::Allocation& allocation) { Ended(allocation); }
  [[nodiscard]] bool Find(CUdeviceptr pointer, quota::Allocation* allocation) const {
    return pointers_.Find(pointer, allocation);
  }
  // Takes all that is charged to `account` and has an address: for a tenant that goes.
  std::vector<std::pair<uint64_t, quota::Allocation>> TakeAllOf(const quota::Account* account) {
    return pointers_.TakeAllOf(account);
  }
  uint8_t TagOf(CUcontext context) { return tags_.Of(context); }

  // -- Contexts, whose end frees what they hold (contexts.cc) --
  CUresult CtxDestroy(CUcontext context);
  CUresult CtxDetach(CUcontext context);  // ends it when nobody else is attached
  CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
  CUresult DevicePrimaryCtxRelease(CUdevice device);
  CUresult DevicePrimaryCtxReset(CUdevice device);
  // What is allocated in a context of a green context is its device's primary context's, and ends with that.
  CUresult CtxFromGreenCtx(CUcontext* context, CUgreenCtx green);
  CUresult GreenCtxDestroy(CUgreenCtx green);

  // Credits what the device has given up since. To be called after the program has waited for a stream, an
  // event or a context; the books call it before they refuse. Cheap when nothing is outstanding.
  void Settle();
  // The same, and gives up what is idle and charged to the account: for who waits for room there (Payer::room).
  void MakeRoom(quota::Account& account);
  // Who stands in line for room in the account looks again when streams have come to what was freed before; of what is
  // freed meanwhile frees see to that.
  void TellOfEarlierFrees(const quota::Account& account);

  // Bytes charged to `account` here. Exact while no other thread is in the books.
  uint64_t BytesOf(const quota::Account* account);
  // Internal when the tables contradict themselves, or charge more than an account holds. Exact while no
  // other thread is in the books.
  absl::Status CheckInvariants();

 private:
  // Reserved of the payer's account, else why not.
  Answer Reserve(const Payer& payer, uint64_t bytes);
  // Reserves, calls the driver, and commits what it gave.
  template <typename Call>
  Answer Charged(const Payer& payer, uint64_t bytes, const Call& call);
  uint64_t Rounded(uint64_t bytes) const {
    return bytes > quota::kUnlimited - unit_ ? quota::kUnlimited
                                             : (bytes + unit_ - 1) & ~(unit_ - 1);
  }
  template <typename Call>
  Answer Take(const Payer& payer, CUdeviceptr* pointer, uint64_t bytes, quota::Kind kind,
              const Call& call);
  // Lists what the driver gave and `payer` has committed.
  Answer List(const Payer& payer, CUdeviceptr pointer, uint64_t bytes, quota::Kind kind);
  template <typename Undo>
  Answer Insert(quota::PointerTable& table, uint64_t key, const quota::Allocation& entry,
                const Undo& undo);
  // Without a reservation: of a size that no address reaches it would refuse everybody else.
  static Answer Refused(const Payer& payer);
  template <typename Handle, typename Create, typename Destroy>
  Answer TakeArray(const Payer& payer, Handle* array, uint64_t bytes, quota::Kind kind,
                   const Create& create, const Destroy& destroy);
  template <typename Call>
  CUresult GiveArray(uint64_t key, const Call& call);
  uint8_t TagOf(const Payer& payer);
  // Something was freed that somebody may wait for: at once (null), or in the order of a stream.
  void TellWaiters(quota::Account& account, const CUstream* stream);
  // A function on the host, put into `stream` by `put`.
  using Put = absl::FunctionRef<CUresult(CUstream, CUhostFn, void*)>;
  static bool TellIn(CUstream stream, const quota::Account& account, Put put);
  bool TellBehind(CUcontext context, CUevent event, const quota::Account& account);
  // The driver has given the allocation up.
  void Ended(const quota::Allocation& allocation);
  // The same of one that nobody had, and nobody is told of.
  void NeverGiven(const quota::Allocation& allocation);
  template <typename Call>
  CUresult FreeBy(CUdeviceptr pointer, const quota::Allocation& allocation, const Call& call);
  void Ended(const LateFrees::Free& free);
  // Puts back what was taken from the table, unless the key is somebody else's already.
  void Restore(quota::PointerTable& table, uint64_t key, const quota::Allocation& allocation);
  // The driver would not free what was taken from the table: it goes back unless it is gone.
  bool IsAllocated(CUdeviceptr pointer);
  CUresult FreeBuffer(CUdeviceptr pointer);
  CUresult DestroyMapped(CUmipmappedArray array);
  // What `call` has mapped of external memory is known by `key_of()`, and undone by `undo`.
  template <typename Call, typename Key, typename Undo>
  CUresult MapExternal(CUexternalMemory handle, const Call& call, const Key& key_of,
                       const Undo& undo);
  void NotFreed(CUdeviceptr pointer, const quota::Allocation& allocation);

  // Credits an object that ended, and what went with it.
  void Finish(SharedMemory& memory, const SharedMemory::Ended& ended);
  // The driver gave `handle` for memory that is not new; `known` is in use.
  Answer ChargeImport(PayerOn payer_on, CUmemGenericAllocationHandle handle,
                      const SharedMemory::Place& place);
  uint64_t SizeOf(CUmemGenericAllocationHandle handle, const CUmemAllocationProp& properties);
  CUresult Adopt(CUmemGenericAllocationHandle* handle, const SharedMemory::Place& known);
  void Map(SharedMemory& memory, const SharedMemory::Mapping& mapping);
  void CreditClosed();  // what only descriptors kept that are closed by now
  bool Exists(CUmemGenericAllocationHandle handle);
  int DeviceOf(CUmemGenericAllocationHandle handle);
  template <typename Call>
  CUresult Bind(uint64_t multicast, const SharedMemory::Place& memory, uint64_t offset,
                uint64_t bytes, const Call& call);

  // `given`: the allocation is of that pool for certain.
  template <typename Call>
  Answer TakeFromPool(const Payer& payer, CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                      bool given, CUstream stream, const Call& call);
  // By how much a pool grows for one call: where it is the only one that is under way there.
  struct Growth {
    Pools::Solitude alone;
    uint64_t reserved = 0;  // before it
  };
  Growth BeginGrowth(uint8_t number, bool whole, uint64_t expects);
  bool IsNew(uint8_t number, const Growth& since, uint64_t bytes);
  bool PayForAllocation(const Payer& payer, CUdeviceptr* pointer, uint64_t bytes, uint8_t number,
                        bool was_idle, CUstream stream, uint64_t ahead, const Growth& its_own,
                        Answer* answer, uint64_t* least);
  // Of a power of two; kUnlimited: there is no such size.
  static uint64_t InUnits(uint64_t bytes, uint64_t unit);
  // In which pools grow, as far as it is known.
  uint64_t PoolUnit(uint8_t number);
  void LearnUnit(uint64_t bytes, uint64_t grown);
  static bool IsNearQuota(const quota::Account& account, uint64_t growth);
  static bool HasRoom(const quota::Account& account, uint64_t bytes);
  // Whether there may come to be no room for as much again as lies idle in the pool with `bytes` that are freed there.
  bool MayRunShort(const quota::Allocation& freed);
  // Of a pool that is new here. 0 and an answer that is ok: none of the books'.
  uint8_t Register(CUmemoryPool pool, Answer* answer);
  bool IsCapturing(CUstream stream);
  CUmemoryPool HandleAt(
      CUdeviceptr pointer);  // null: it is of none, or there is no such memory yet
  bool IsOf(CUdeviceptr pointer, uint8_t* number);
  bool IsBalanced(CUmemoryPool pool, uint8_t number);
  // Charges the payer with what the pool has grown by. False: no room for `*claim` bytes, which stay claimed.
  // Of the claim `ahead` bytes are reserved; the rest of them goes back.
  bool PayForPool(const Payer& payer, uint8_t number, uint64_t ahead, uint64_t* claim);
  // What is missing after all is paid if it can be, else owed.
  void PayOrOwe(const Payer& payer, Pools& pools, uint8_t number, uint64_t claim, uint64_t ahead);
  bool PayDebt(const Payer& payer, Pools& pools, uint8_t number);
  // In the order of the stream, since the memory may be what that has freed and still uses.
  CUresult FreeUnseen(CUdeviceptr pointer, CUstream stream);
  // `is_new`: it is not, and nobody has used it.
  void TakeBack(CUdeviceptr pointer, uint8_t number, CUstream stream, bool is_new);
  // `claim` as in Pools::Reconcile.
  void Reconcile(Pools& pools, uint8_t number, uint64_t* claim);
  CUresult ReservedOf(const Pools& pools, uint8_t number, CUmemoryPool pool, uint64_t* reserved);
  void TrimPool(uint8_t number);
  // Reconciles pools in which something lies idle or is owed; those trimmed first where it is `trim`'s.
  void SettlePools(const quota::Account* trim);
  void ResetPools(CUdevice device);
  void Credit(const std::vector<Pools::Credit>& credits);

  // What a graph allocates on one device.
  struct GraphNeed {
    CUdevice device;
    uint64_t bytes;
  };
  struct GraphUse {
    std::shared_ptr<const std::vector<GraphNeed>> needs;  // null: none
    // Of the last launch, after so many trims: for each need.
    absl::InlinedVector<quota::Account*, 2> accounts;
    uint64_t trims = 0;
  };
  // One need of a launch that is under way.
  struct GraphTake {
    Payer payer;
    uint8_t number;
    uint64_t bytes = 0;  // reserved
  };
  using GraphTakes = absl::InlinedVector<GraphTake, 2>;
  void AddNeeds(CUgraph graph, std::vector<GraphNeed>* needs);
  GraphUse UseOf(CUgraphExec exec, bool forget);
  template <typename Call>
  Answer WithGraphMemory(const GraphUse& use, PayerOn payer_on, CUgraphExec exec, CUstream stream,
                         const Call& call);
  // Takes what the graph needs: reserves, uploads, and gives back what there is no room for.
  Answer TakeForGraph(const std::vector<GraphNeed>& needs, CUgraphExec exec, CUstream stream,
                      GraphTakes* takes);
  void GiveBack(const std::vector<GraphNeed>& needs, GraphTakes* takes);
  bool ReserveGrowth(const GraphNeed& need, GraphTake* take);
  void PayForGraphs(const GraphTake& take);
  // Whether nothing is owed for graphs on any of the devices; whether these have what was last paid for.
  bool ArePaid(const std::vector<GraphNeed>& needs);
  bool AreBalanced(const std::vector<GraphNeed>& needs);
  uint8_t NumberOf(const GraphNeed& need);
  uint64_t GraphUnit(CUdevice device);
  // In which the device gives memory, if it tells.
  uint64_t GranularityOf(CUdevice device);
  CUresult TrimGraphMemory(CUdevice device);
  // Where the account (null: anybody) has something of it or owes something.
  void TrimGraphs(const quota::Account* account);
  void SettleGraphs();

  CUcontext PrimaryContext(CUdevice device);
  bool IsActive(CUdevice device);
  template <typename Call>
  CUresult EndContext(const ContextTags::Set& tags, const Call& call,
                      const std::function<bool()>& ended);
  // The context of the tags has ended, and the late frees went with it.
  void Ended(const ContextTags::Set& tags, const LateFrees::List& late);
  std::atomic<uint32_t>& LifeOf(CUdevice device) {
    return primary_lives_[static_cast<unsigned>(device) % primary_lives_.size()];
  }

  const driver::Table& driver_;
  const OnCredit on_credit_;
  base::Clock& clock_;
  const std::function<CUresult(CUstream, CUhostFn, void*)> tell_;
  const uint64_t unit_;
  ContextTags tags_;
  quota::PointerTable pointers_, arrays_;
  SharedMemory physical_, external_;
  std::atomic<bool> has_buffers_{false}, has_mapped_arrays_{false};  // of external memory
  Descriptors descriptors_;
  SparseArrays sparse_;
  Pools pools_, graphs_;
  PoolFrees pool_frees_;
  std::array<std::atomic<uint32_t>, 256> near_quota_{};  // ClockLocks, by pool
  static constexpr uint64_t kMostUnit = uint64_t{1} << 40;
  std::atomic<uint64_t> pool_unit_{0};     // 0: not asked yet
  static constexpr int kHost = -2;         // in the place of a pool's device
  std::atomic<bool> has_captured_{false};  // allocations too
  std::atomic<bool> has_made_pools_{false};
  quota::SpinLock made_lock_;
  std::unordered_map<CUmemoryPool, int> made_pools_;  // by the program, with their devices
  std::atomic<bool> has_graph_memory_{false};
  quota::SpinLock graph_lock_;
  std::unordered_map<CUgraphExec, GraphUse> graph_uses_;
  std::atomic<uint64_t> graph_trims_{1};
  std::atomic<uint64_t> graph_unit_{0};  // 0: not asked yet
  LateFrees late_;
  std::array<std::atomic<uint32_t>, 16> primary_lives_{};  // ClockLocks, by device
  std::atomic<int> devices_{0};                            // 0: not asked yet
  std::atomic<uint64_t> pitch_unit_{512};  // rows are padded to multiples of it, or of less
};

template <typename Call>
Answer Books::Charged(const Payer& payer, uint64_t bytes, const Call& call) {
  if (bytes == quota::kUnlimited) return Refused(payer);
  Answer answer = Reserve(payer, bytes);
  if (!answer.ok()) return answer;
  try {
    answer.result = call();
  } catch (...) {  // cancelled in the driver
    payer.account->Cancel(bytes);
    throw;
  }
  if (answer.ok()) [[likely]] {
    payer.account->Commit(bytes);
  } else {
    payer.account->Cancel(bytes);
  }
  return answer;
}

template <typename Undo>
Answer Books::Insert(quota::PointerTable& table, uint64_t key, const quota::Allocation& entry,
                     const Undo& undo) {
  using Inserted = quota::PointerTable::InsertResult;
  quota::Allocation replaced;
  switch (table.Insert(key, entry, &replaced)) {
    case Inserted::kInserted:
      break;
    case Inserted::kReplaced:
      Ended(replaced);  // past the books, else the driver would not give its address out
      break;
    case Inserted::kNoMemory:
      undo();
      NeverGiven(entry);
      return Answer::NoHostMemory();
  }
  return {};
}

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_BOOKS_H_
