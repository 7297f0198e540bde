// SPDX-License-Identifier: Apache-2.0
// The driver's calls that take or free device memory, charged to a payer's account.
//
//   Books books(driver->table(), {});
//   CUdeviceptr pointer;
//   const Answer answer = books.MemAlloc({.account = account}, &pointer, bytes);
//   if (answer.at_quota) ...   // CUDA_ERROR_OUT_OF_MEMORY; answer.left is what was left
//   ...
//   CUresult result = books.MemFree(pointer);   // credits the account that paid, whoever frees
//
// There is one object per process and driver. Each function is the driver's function of that name, with the same parameters and
// result. Functions that take memory have the payer as an additional first parameter. Calls about memory that the books do not
// know (a pointer that was allocated past them), or with parameters that the driver will refuse, are forwarded unchanged.
//
// Guarantees:
//   * Memory is reserved before the driver is called, so the bytes charged to an account never exceed its limit, not even for
//     an instant. The one exception is memory that pools and graphs turn out to have taken and cannot give back at once. It is
//     charged past the limit as a debt, and an account in debt gets no more memory from them.
//   * A byte is charged as long as the device may hold it. It is credited after the driver has given it up; for a
//     stream-ordered free, when the stream has reached the free (Settle() checks).
//   * A call that the driver refuses leaves nothing charged.
// docs/memory.md says what is charged for each family, when, and how exactly.
//
// Threading: thread-safe. No lock is held across a call of the driver, except for calls that begin and end primary contexts,
// queries of events, and, near the quota, allocations from one pool, which wait for each other for up to 100 ms; other threads
// wait for these locks through the clock. An account must outlive what is charged to it here.
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

// Handles and addresses as keys of the tables.
inline uint64_t KeyOf(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
// The key of an array over external memory. The high bit keeps it apart from the addresses of buffers in the same table.
inline uint64_t KeyOfMapped(CUmipmappedArray array) { return KeyOf(array) | uint64_t{1} << 63; }

class Books {
 public:
  // Called after bytes of an allocation that the program had were credited to an account, by the thread that detected the free
  // and without a lock.
  using OnCredit = std::function<void(uint32_t owner, uint64_t bytes)>;

  using Options = books::Options;

  // `driver` must outlive the books.
  explicit Books(const driver::Table& driver, OnCredit on_credit = nullptr)
      : Books(driver, std::move(on_credit), Options{}) {}
  Books(const driver::Table& driver, OnCredit on_credit, const Options& options);
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  // -- Direct (direct.cc) --
  Answer MemAlloc(const Payer& payer, CUdeviceptr* pointer, size_t bytes);
  Answer MemAllocPitch(const Payer& payer, CUdeviceptr* pointer, size_t* pitch, size_t width,
                       size_t height, unsigned element);
  // Charged as long as the allocation lives, wherever its pages are.
  Answer MemAllocManaged(const Payer& payer, CUdeviceptr* pointer, size_t bytes, unsigned flags);

  // -- Arrays (arrays.cc, array_bytes.h) --
  Answer ArrayCreate(const Payer& payer, CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor);
  Answer Array3DCreate(const Payer& payer, CUarray* array,
                       const CUDA_ARRAY3D_DESCRIPTOR* descriptor);
  CUresult ArrayDestroy(CUarray array);
  Answer MipmappedArrayCreate(const Payer& payer, CUmipmappedArray* array,
                              const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels);
  CUresult MipmappedArrayDestroy(CUmipmappedArray array);
  // For sparse arrays, whose only memory is what is mapped into them (sparse_arrays.cc).
  CUresult MemMapArrayAsync(CUarrayMapInfo* list, unsigned count, CUstream stream);

  // -- Virtual memory management (virtual_memory.cc) and multicast objects (multicast.cc) --
  Answer MemCreate(const Payer& payer, CUmemGenericAllocationHandle* handle, size_t bytes,
                   const CUmemAllocationProp* properties, unsigned long long flags);
  CUresult MemRelease(CUmemGenericAllocationHandle handle);
  CUresult MemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address);
  // Exported memory stays charged until every descriptor of it is closed.
  CUresult MemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags);
  // Memory imported from another process is charged in this one as well (imports.cc).
  Answer MemImportFromShareableHandle(PayerOn payer_on, CUmemGenericAllocationHandle* handle,
                                      void* shareable, CUmemAllocationHandleType type);
  Answer MemImportFromShareableHandle(const Payer& payer, CUmemGenericAllocationHandle* handle,
                                      void* shareable, CUmemAllocationHandleType type) {
    return MemImportFromShareableHandle([&](CUdevice) { return std::optional(payer); }, handle,
                                        shareable, type);
  }
  // Charges memory only if the handle was imported from outside these books and its size could not be determined then.
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

  // -- Stream-ordered memory (stream_ordered.cc) from any pool, including the default one --
  // A null `stream` is the legacy stream. For a _ptsz variant the caller passes CU_STREAM_PER_THREAD.
  Answer MemAllocAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes, CUstream stream);
  Answer MemAllocFromPoolAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                               CUmemoryPool pool, CUstream stream);
  // The device of a pool, whose share pays for it. kNoDevice means the stream's device.
  static constexpr int kNoDevice = -1;
  int PoolDevice(CUmemoryPool pool);
  // The driver has named this pool as one of a location, whose default or current pool it is.
  void MemPoolIsAt(CUmemoryPool pool, const CUmemLocation& location, CUmemAllocationType type);
  // Pools of page-locked memory on the host are not charged.
  CUresult MemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties);
  CUresult MemPoolTrimTo(CUmemoryPool pool, size_t keep);
  // Whether the program has destroyed the pool while it still has allocations. To the program the handle is invalid then, so a
  // hook must return that error instead of calling the driver with it.
  bool IsDestroyed(CUmemoryPool pool);
  CUresult MemPoolDestroy(CUmemoryPool pool);

  // -- Graph memory (graph_memory.cc), which launches take and which is kept until it is trimmed --
  CUresult GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags);
  // Whether launches and uploads of the graph take memory.
  bool TakesMemory(CUgraph graph);
  // Call it after instantiating in any other way. If host memory runs out, the executable is destroyed again.
  CUresult Instantiated(CUgraphExec* exec, CUgraph graph);
  CUresult GraphExecDestroy(CUgraphExec exec);
  // The first launch of a graph with allocations uploads the graph before: this shows how much memory it takes, so that the
  // launch can be refused if there is no room.
  Answer GraphLaunch(PayerOn payer_on, CUgraphExec exec, CUstream stream);
  Answer GraphUpload(PayerOn payer_on, CUgraphExec exec, CUstream stream);
  Answer GraphLaunch(const Payer& payer, CUgraphExec exec, CUstream stream) {
    return GraphLaunch([&](CUdevice) { return std::optional(payer); }, exec, stream);
  }
  Answer GraphUpload(const Payer& payer, CUgraphExec exec, CUstream stream) {
    return GraphUpload([&](CUdevice) { return std::optional(payer); }, exec, stream);
  }
  CUresult DeviceGraphMemTrim(CUdevice device);

  // -- Frees of any pointer (free.cc) --
  CUresult MemFree(CUdeviceptr pointer);
  CUresult MemFreeAsync(CUdeviceptr pointer, CUstream stream);
  // MemFree() in two steps, for a caller that first has to know who owns the allocation. Take() returns false if the pointer is
  // not in these books. `free` calls the driver; if that fails, the allocation is listed again.
  [[nodiscard]] bool Take(CUdeviceptr pointer, quota::Allocation* allocation) {
    return pointers_.Take(pointer, allocation);
  }
  CUresult FreeTaken(CUdeviceptr pointer, const quota::Allocation& allocation,
                     absl::FunctionRef<CUresult()> free);
  // Reports that a taken allocation has ended with its context.
  void Gone(const quota::Allocation& allocation) { Ended(allocation); }
  [[nodiscard]] bool Find(CUdeviceptr pointer, quota::Allocation* allocation) const {
    return pointers_.Find(pointer, allocation);
  }
  // Takes all allocations with an address that are charged to `account`, when a tenant leaves.
  std::vector<std::pair<uint64_t, quota::Allocation>> TakeAllOf(const quota::Account* account) {
    return pointers_.TakeAllOf(account);
  }
  // The bytes of an account's allocations whose streams still come to their frees: none do in a context that is lost. Taking
  // the allocations leaves it to the caller to release each, for an account that ends earlier than that.
  uint64_t LateBytesOf(const quota::Account* account) { return late_.BytesOf(account); }
  std::vector<quota::Allocation> TakeLateOf(const quota::Account* account);
  uint8_t TagOf(CUcontext context) { return tags_.Of(context); }

  // -- Contexts, whose end frees the memory that they hold (contexts.cc) --
  CUresult CtxDestroy(CUcontext context);
  CUresult CtxDetach(CUcontext context);  // ends the context with its last attachment
  CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
  CUresult DevicePrimaryCtxRelease(CUdevice device);
  CUresult DevicePrimaryCtxReset(CUdevice device);
  // Memory allocated in a green context belongs to the device's primary context and ends with that.
  CUresult CtxFromGreenCtx(CUcontext* context, CUgreenCtx green);
  CUresult GreenCtxDestroy(CUgreenCtx green);

  // What a direct allocation of so many bytes takes of the device, and is charged.
  uint64_t ChargeOf(uint64_t bytes) const {
    if (page_ == 0) [[likely]]
      return bytes;
    const uint64_t unit = bytes > page_ / 2 ? page_ : 512;
    return bytes > quota::kUnlimited - unit ? quota::kUnlimited : (bytes + unit - 1) & ~(unit - 1);
  }
  uint64_t page() const { return page_; }
  // Credits the memory that the device has given up in the meantime. Call it after the program has waited for a stream, an
  // event or a context; the books call it before they refuse. Cheap when nothing is outstanding.
  void Settle();
  // Also gives up idle memory that is charged to the account, for a request that waits for room there (Payer::room).
  void MakeRoom(quota::Account& account);
  // Makes the requests that wait for room in the account look again when streams reach the earlier frees. Later frees do this
  // themselves.
  void TellOfEarlierFrees(const quota::Account& account);

  // The bytes charged to `account` here. Exact while no other thread is in the books.
  uint64_t BytesOf(const quota::Account* account);
  // Internal if the tables are inconsistent, or charge more than an account holds. Exact while no other thread is in the
  // books.
  absl::Status CheckInvariants();

 private:
  // Reserves in the payer's account, or says why that failed.
  Answer Reserve(const Payer& payer, uint64_t bytes);
  // Reserves, calls the driver, and commits if the call succeeds.
  template <typename Call>
  Answer Charged(const Payer& payer, uint64_t bytes, const Call& call);
  template <typename Call>
  Answer Take(const Payer& payer, CUdeviceptr* pointer, uint64_t bytes, quota::Kind kind,
              const Call& call);
  // Enters an allocation that `payer` has committed into the table.
  Answer List(const Payer& payer, CUdeviceptr pointer, uint64_t bytes, quota::Kind kind);
  template <typename Undo>
  Answer Insert(quota::PointerTable& table, uint64_t key, const quota::Allocation& entry,
                const Undo& undo);
  // Refuses without a reservation: one larger than the address space would make all other requests fail meanwhile.
  static Answer Refused(const Payer& payer);
  // `levels`: of a mipmapped array; 0: it is none.
  uint64_t BytesOfArray(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels);
  template <typename Handle, typename Create, typename Destroy>
  Answer TakeArray(const Payer& payer, Handle* array, uint64_t bytes, quota::Kind kind,
                   const Create& create, const Destroy& destroy);
  template <typename Call>
  CUresult GiveArray(uint64_t key, const Call& call);
  uint8_t TagOf(const Payer& payer);
  // Tells waiting requests that memory of an account, which may be gone, was freed in the order of a stream.
  void TellWaiters(const quota::Account* account, quota::Waiters waiters, CUstream stream);
  // Tells them from a host function, which `put` puts into `stream`.
  using Put = absl::FunctionRef<CUresult(CUstream, CUhostFn, void*)>;
  static bool TellIn(CUstream stream, quota::Waiters waiters, Put put);
  bool TellBehind(CUcontext context, CUevent event, const quota::Account& account);
  // MakeRoom() for an account that may be gone: only its address is compared.
  void GiveUpIdle(const quota::Account* account);
  // Credits an allocation that the driver has given up. Its account may be gone then. `awaited` receives those who wait for
  // what a pool has idle now; to others memory is given as it is credited.
  void Ended(const quota::Allocation& allocation, Awaited* awaited = nullptr);
  // Credits an allocation that the program never got, without calling OnCredit.
  void NeverGiven(const quota::Allocation& allocation);
  template <typename Call>
  CUresult FreeBy(CUdeviceptr pointer, const quota::Allocation& allocation, const Call& call);
  void Ended(const LateFrees::Free& free);
  // Puts an allocation back into the table, unless another one has the key already.
  void Restore(quota::PointerTable& table, uint64_t key, const quota::Allocation& allocation);
  // Whether the pointer is still allocated. Asked when the driver refuses to free an allocation taken from the table.
  bool IsAllocated(CUdeviceptr pointer);
  CUresult FreeBuffer(CUdeviceptr pointer);
  CUresult DestroyMapped(CUmipmappedArray array);
  // Records under `key_of()` what `call` has mapped of external memory; `undo` unmaps it.
  template <typename Call, typename Key, typename Undo>
  CUresult MapExternal(CUexternalMemory handle, const Call& call, const Key& key_of,
                       const Undo& undo);
  void NotFreed(CUdeviceptr pointer, const quota::Allocation& allocation);

  // Credits an object that ended, and everything that ended with it.
  void Finish(SharedMemory& memory, const SharedMemory::Ended& ended);
  // Charges memory that the driver gave `handle` for on import. Not charged yet if its size is unknown.
  Answer ChargeImport(PayerOn payer_on, CUmemGenericAllocationHandle handle,
                      const SharedMemory::Place& place);
  uint64_t SizeOf(CUmemGenericAllocationHandle handle, const CUmemAllocationProp& properties);
  // Records that the driver gave `handle` for memory that is not new. `known` is marked as used.
  CUresult Adopt(CUmemGenericAllocationHandle* handle, const SharedMemory::Place& known);
  void Map(SharedMemory& memory, const SharedMemory::Mapping& mapping);
  void CreditClosed();  // credits memory whose last descriptors have been closed
  bool Exists(CUmemGenericAllocationHandle handle);
  int DeviceOf(CUmemGenericAllocationHandle handle);
  template <typename Call>
  CUresult Bind(uint64_t multicast, const SharedMemory::Place& memory, uint64_t offset,
                uint64_t bytes, const Call& call);

  // `given`: the allocation certainly comes from that pool.
  template <typename Call>
  Answer TakeFromPool(const Payer& payer, CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                      bool given, CUstream stream, const Call& call);
  // The state before a call, to tell how much the pool grows for it if no other call is in flight there.
  struct Growth {
    Pools::Solitude alone;
    uint64_t reserved = 0;  // before the call
  };
  Growth BeginGrowth(uint8_t number, bool whole, uint64_t expects);
  bool IsNew(uint8_t number, const Growth& since, uint64_t bytes);
  bool PayForAllocation(const Payer& payer, CUdeviceptr* pointer, uint64_t bytes, uint8_t number,
                        bool was_idle, CUstream stream, uint64_t ahead, const Growth& its_own,
                        Answer* answer, uint64_t* least);
  // Rounds up to a multiple of `unit`, a power of two. kUnlimited if that overflows.
  static uint64_t InUnits(uint64_t bytes, uint64_t unit);
  // The unit in which pools grow, as far as it is known.
  uint64_t PoolUnit(uint8_t number);
  // Learns the unit, which is at least `at_least`, from the growth for one need. If no unit explains the growth, it was for
  // several.
  static void LearnUnit(std::atomic<uint64_t>& unit, uint64_t at_least, uint64_t bytes,
                        uint64_t grown);
  static bool IsNearQuota(const quota::Account& account, uint64_t growth);
  static bool HasRoom(const quota::Account& account, uint64_t bytes);
  // Whether the account may lack the room to grow the pool by as much as will lie idle there after this free.
  bool MayRunShort(const quota::Allocation& freed);
  // Numbers a new pool. 0 with an answer that is ok: the books do not charge this pool.
  uint8_t Register(CUmemoryPool pool, Answer* answer);
  bool IsCapturing(CUstream stream);
  CUmemoryPool HandleAt(
      CUdeviceptr pointer);  // null if it is in no pool, or if there is no such memory yet
  bool IsOf(CUdeviceptr pointer, uint8_t* number);
  bool IsBalanced(CUmemoryPool pool, uint8_t number);
  // Charges the payer with the pool's growth. False if there is no room for `*claim` bytes, which stay claimed. `ahead` bytes
  // are reserved for the claim; unused ones are given back.
  bool PayForPool(const Payer& payer, uint8_t number, uint64_t ahead, uint64_t* claim);
  // Charges what is still missing, within the limit if there is room, else as a debt.
  void PayOrOwe(const Payer& payer, Pools& pools, uint8_t number, uint64_t claim, uint64_t ahead);
  bool PayDebt(const Payer& payer, Pools& pools, uint8_t number);
  // Frees in the order of the stream, which may have freed this memory before and still be using it.
  CUresult FreeUnseen(CUdeviceptr pointer, CUstream stream);
  // `is_new`: the memory was never used before, so it can be freed at once.
  void TakeBack(CUdeviceptr pointer, uint8_t number, CUstream stream, bool is_new);
  // `claim` is as in Pools::Reconcile().
  void Reconcile(Pools& pools, uint8_t number, uint64_t* claim);
  CUresult ReservedOf(const Pools& pools, uint8_t number, CUmemoryPool pool, uint64_t* reserved);
  void TrimPool(uint8_t number);
  // Reconciles the pools with idle memory or debts. Those with idle memory of `trim`, and those with debts, are trimmed first.
  void SettlePools(const quota::Account* trim);
  void ResetPools(CUdevice device);
  void Credit(const std::vector<Pools::Credit>& credits);

  // The memory that a graph allocates on one device.
  struct GraphNeed {
    CUdevice device;
    uint64_t bytes;  // of all allocation nodes
    // The most that is allocated at a time if the nodes run in their order. The driver may need no more, since nodes may use the
    // memory that others before them have freed.
    uint64_t peak;
  };
  struct GraphUse {
    std::shared_ptr<const std::vector<GraphNeed>> needs;  // null if none
    // For each need, the account that paid for the last launch; `trims` is the number of trims before it.
    absl::InlinedVector<quota::Account*, 2> accounts;
    uint64_t trims = 0;
  };
  // One need of a launch in progress.
  struct GraphTake {
    Payer payer;
    uint8_t number;
    uint64_t bytes = 0;  // reserved
  };
  using GraphTakes = absl::InlinedVector<GraphTake, 2>;
  class GraphWalk;
  GraphUse UseOf(CUgraphExec exec, bool forget);
  template <typename Call>
  Answer WithGraphMemory(const GraphUse& use, PayerOn payer_on, CUgraphExec exec, CUstream stream,
                         const Call& call);
  // Takes the memory that the graph needs: reserves, uploads, and gives everything back if there is no room.
  Answer TakeForGraph(const std::vector<GraphNeed>& needs, CUgraphExec exec, CUstream stream,
                      GraphTakes* takes);
  void GiveBack(const std::vector<GraphNeed>& needs, GraphTakes* takes);
  bool ReserveGrowth(const GraphNeed& need, GraphTake* take);
  void PayForGraphs(const GraphTake& take);
  // ArePaid(): there is no debt for graphs on these devices. AreBalanced(): the devices hold what was last paid for.
  bool ArePaid(const std::vector<GraphNeed>& needs);
  bool AreBalanced(const std::vector<GraphNeed>& needs);
  uint8_t NumberOf(const GraphNeed& need);
  uint64_t GraphUnit(CUdevice device);
  // The granularity of the device's memory, or a default if the driver does not tell.
  uint64_t GranularityOf(CUdevice device);
  CUresult TrimGraphMemory(CUdevice device);
  // Trims the devices on which the account (null: any account) has idle graph memory or a debt for it.
  void TrimGraphs(const quota::Account* account);
  void SettleGraphs();

  CUcontext PrimaryContext(CUdevice device);
  bool IsActive(CUdevice device);
  template <typename Call>
  CUresult EndContext(const ContextTags::Set& tags, const Call& call,
                      const std::function<bool()>& ended);
  // Credits what a context with these tags held, when it has ended together with its late frees.
  void Ended(const ContextTags::Set& tags, const LateFrees::List& late);
  std::atomic<uint32_t>& LifeOf(CUdevice device) {
    return primary_lives_[static_cast<unsigned>(device) % primary_lives_.size()];
  }

  const driver::Table& driver_;
  const OnCredit on_credit_;
  base::Clock& clock_;
  const std::function<CUresult(CUstream, CUhostFn, void*)> tell_;
  const std::function<std::optional<CUresult>(CUdeviceptr, const CUstream*)> free_elsewhere_;
  const uint64_t page_;
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
  std::atomic<uint64_t> pool_unit_{0};  // 0: not asked yet
  static constexpr int kHost = -2;      // the "device" of a pool in host memory
  static int PlaceOf(const CUmemLocation& location, CUmemAllocationType type);
  std::atomic<bool> has_captured_{false};  // an allocation was captured
  std::atomic<bool> has_made_pools_{false};
  quota::SpinLock made_lock_;
  std::unordered_map<CUmemoryPool, int>
      made_pools_;  // pools that the program created, with their devices
  std::atomic<bool> has_graph_memory_{false};
  quota::SpinLock graph_lock_;
  std::unordered_map<CUgraphExec, GraphUse> graph_uses_;
  std::atomic<uint64_t> graph_trims_{1};
  std::atomic<uint64_t> graph_unit_{0};  // 0: not asked yet
  LateFrees late_;
  std::array<std::atomic<uint32_t>, 16> primary_lives_{};  // ClockLocks, by device
  std::atomic<int> devices_{0};                            // 0: not asked yet
  std::atomic<uint64_t> pitch_unit_{512};  // rows are padded at most to multiples of it
};

template <typename Call>
Answer Books::Charged(const Payer& payer, uint64_t bytes, const Call& call) {
  if (bytes == quota::kUnlimited) return Refused(payer);
  Answer answer = Reserve(payer, bytes);
  if (!answer.ok()) return answer;
  try {
    answer.result = call();
  } catch (...) {  // the thread is cancelled in the driver
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
      Ended(replaced);  // freed past the books: otherwise the driver would not reuse its address
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
