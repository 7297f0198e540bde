// SPDX-License-Identifier: Apache-2.0
// One GPU of a runtime: its primary context, its engine, its memory books, and the bindings of streams, contexts and threads.
//
// All openings of a GPU in one runtime share this object. Virtual devices keep it alive; it refers to them weakly.
//
// If a broker manages the GPU, all of this process's virtual devices together spend what its session is granted: quotas come
// out of the grant when the virtual devices are made, the rest as it is used.
//
// Locks: mutex_ guards the books. It is never held across a call of the driver or a wait.
#ifndef GPUSHARE_DEVICE_GPU_GPU_H_
#define GPUSHARE_DEVICE_GPU_GPU_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "client/gpu_session.h"
#include "device/gpu/context_scope.h"
#include "device/gpu/unfinished.h"
#include "device/process/runtime.h"
#include "device/share/admission.h"
#include "device/share/partition.h"
#include "device/share/placement.h"
#include "driver/driver.h"
#include "gate/engine.h"
#include "gate/footprint.h"
#include "gate/watchdog.h"
#include "gpushare/c/gpushare.h"
#include "quota/ledger.h"
#include "quota/loans.h"
#include "quota/pointer_table.h"
#include "quota/source.h"
#include "spec/spec.h"

namespace gpushare::device {

class DriverPool;
struct HeldLease;
class MemoryPool;
class Stream;
class Tenant;
class VirtualDevice;

class Gpu final : private quota::Source, private quota::Holder {
 public:
  static absl::StatusOr<std::shared_ptr<Gpu>> Open(std::shared_ptr<Runtime> runtime, int ordinal,
                                                   const gpushare_scheduler_options* scheduler);
  // Waits a while for work on destroyed streams that still runs, then frees memory that tenants have left allocated. If the
  // work does not end, the context and that memory are kept; TakeCloseReport() tells.
  ~Gpu() override;
  // What the last GPU that this thread has closed left behind; OK if nothing. Returned once.
  static absl::Status TakeCloseReport();

  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  const driver::Driver& driver() const { return driver_; }
  base::Clock& clock() const { return driver_.clock(); }
  int ordinal() const { return ordinal_; }
  const driver::Driver::DeviceInfo& info() const { return info_; }
  driver::Context context() const { return site_.context; }  // the primary one
  const Site& site() const { return site_; }
  gate::Engine& engine() const { return *engine_; }
  // A further engine, for a partition of `sm_count` SMs. The watchdog watches it too.
  absl::StatusOr<std::shared_ptr<gate::Engine>> NewEngine(int sm_count);
  // OK unless a context that virtual devices share is lost.
  absl::Status health() const;
  // Engine::Watch() for every engine of the GPU.
  bool Watch(const std::shared_ptr<gate::Watchdog>& watchdog);
  Partitions& partitions() { return *partitions_; }
  const std::shared_ptr<gate::Recorder>& recorder() const { return recorder_; }
  // The allocations in the driver's pools of virtual devices and their swappable memory, which are charged as they grow and move. All
  // others are in the runtime's books.
  quota::PointerTable& unbooked() { return unbooked_; }
  bool has_unbooked() const { return has_unbooked_.load(std::memory_order_relaxed); }
  // Call it before the first such allocation.
  void HasUnbooked() { has_unbooked_.store(true, std::memory_order_relaxed); }
  // The number by which the books know the virtual device in a slot.
  uint32_t OwnerIn(uint32_t slot) const { return number_ << Runtime::kSlotBits | slot; }
  gate::FootprintCache& footprints() { return footprints_; }
  const gpushare_scheduler_options& scheduler() const { return scheduler_; }
  // InvalidArgument unless the options given agree with those in force.
  absl::Status CheckSame(const gpushare_scheduler_options& options) const;
  // Memory less the reserve, or the share that the broker grants if that is less.
  uint64_t capacity() const;
  // What all virtual devices hold together, including those that are gone and have left memory.
  uint64_t HeldByAll() const;
  uint64_t reserve() const { return reserve_; }

  // The part of the SMs that a launch can occupy. InvalidArgument for an impossible shape.
  driver::Result FindFootprint(driver::Function function, const driver::LaunchShape& shape,
                               uint64_t key, float* footprint);

  // The virtual device of a call that does not name one; `stream` null: on no stream. FailedPrecondition: the thread's tenant
  // has no device here.
  absl::StatusOr<std::shared_ptr<VirtualDevice>> Resolve(driver::Stream stream);
  // The size of an allocation made by gpushare; `owner` becomes null if its virtual device is gone. NotFound: not gpushare's.
  absl::StatusOr<uint64_t> FindPointer(driver::DevicePtr pointer,
                                       std::shared_ptr<VirtualDevice>* owner) const;
  void BindContext(driver::Context context, const std::shared_ptr<VirtualDevice>& device);
  // AlreadyExists: the stream is bound.
  absl::Status BindStream(driver::Stream native, const std::weak_ptr<Stream>& stream);
  void UnbindStream(driver::Stream native);
  std::shared_ptr<Stream> BoundStream(driver::Stream native) const;  // null: none is bound
  // Those of a virtual device. `ending`: whether others are being destroyed right now, whosoever they are.
  std::vector<std::shared_ptr<Stream>> StreamsOf(const VirtualDevice* device,
                                                 bool* ending = nullptr) const;

  // Admission of a new device, and of new limits for a device. AlreadyExists: the tenant has a device.
  struct Seat {
    uint64_t promise = 0;
    uint64_t of_parent = 0;  // its promise among those of its parent's children; 0: no parent
    uint32_t slot = 0;
  };
  absl::StatusOr<Seat> Admit(VirtualDevice* device, const spec::Limits& limits);
  absl::Status Change(VirtualDevice* device, const spec::Limits& limits);
  // Gives the share back. The slot stays until Forget(), which comes when no memory is left.
  void Return(VirtualDevice* device);
  void Forget(VirtualDevice* device);
  VirtualDevice* InSlot(uint32_t slot) const {
    return slots_[slot >> kChunkBits].load(std::memory_order_acquire)[slot & kChunkMask].load(
        std::memory_order_acquire);
  }

  // Memory without a quota is also charged to this account. Its limit is what the quotas of others leave, with a broker of
  // what was granted.
  quota::Account& unpromised() { return *unpromised_; }
  // The session with the broker; null: no broker.
  const std::shared_ptr<client::GpuSession>& session() const { return session_; }
  // Lends the unused parts of quotas to tenants that may borrow.
  quota::LoanBook& loans() { return loans_; }
  // Takes back what `owner` lacks of the memory that it has lent, from the borrowers of the lowest priority first. Idle
  // memory of all borrowers is taken first; then, if `ask`, their callbacks are called. `began`: see
  // VirtualDevice::TrimPools().
  void Recall(const VirtualDevice& owner, absl::FunctionRef<uint64_t()> lacks, bool ask,
              std::optional<Time> began);
  // Arranges that waiters for memory of `whose` look again when streams have reached earlier frees: in its pools, in those
  // of devices charged to the same account, and in those of borrowers.
  void TellOfFreed(const VirtualDevice& whose);
  // Gives back idle memory in pools of other devices that are charged to the same root account (all without a quota, or a
  // parent and its children), and of virtual devices that are gone.
  void TrimFamily(const VirtualDevice& but, uint64_t bytes, std::optional<Time> began);

  void AddDevice(const std::shared_ptr<VirtualDevice>& device);
  std::vector<std::shared_ptr<VirtualDevice>> Devices() const;  // in order of creation
  uint64_t PromisedMemory() const;
  double PromisedGuarantees() const;
  Room room();
  // For a tenant with a parent: what the parent's virtual device here has left; nothing if it has none.
  Room RoomFor(const Tenant& tenant);

  // Leases: the virtual device of which a thread holds leases, and how many; `held` is their common state.
  struct ThreadLease {
    VirtualDevice* device = nullptr;
    std::shared_ptr<HeldLease> held;
    int count = 0;
  };
  // Enters a lease of `thread`. Returns what the thread holds already, with the count raised if that is of `device`; without
  // a device if this is its first lease.
  ThreadLease EnterLease(uint64_t thread, VirtualDevice* device,
                         const std::shared_ptr<HeldLease>& held);
  // Removes one lease. True: that was the last.
  bool LeaveLease(uint64_t thread);
  VirtualDevice* LeaseOf(uint64_t thread) const;  // null: the thread holds no lease here

  // Segments of pools. PoolAt() is null for memory outside them.
  void AddSegment(driver::DevicePtr base, uint64_t bytes, std::shared_ptr<MemoryPool> pool);
  void RemoveSegment(driver::DevicePtr base);
  std::shared_ptr<MemoryPool> PoolAt(driver::DevicePtr pointer) const;

  // The driver's pools that hold memory, including those of virtual devices that are gone.
  void AddDriverPool(const std::shared_ptr<DriverPool>& pool);
  void RemoveDriverPool(const DriverPool* pool);

  // Puts back the entry of an allocation in a pool that the driver refused to free, unless the allocation is gone. It is
  // gone (false) if another thread freed the same pointer, found no entry because this thread had taken it, and reached the
  // driver first.
  bool PutBack(driver::DevicePtr pointer, const quota::Allocation& allocation);

  Unfinished& unfinished() { return unfinished_; }

  // The number of streams that gpushare is capturing.
  std::atomic<int>& captures() { return captures_; }
  // Whether any stream captures, as far as gpushare can see: also streams that the program captures through the preloaded
  // library's hooks, and bound streams, whoever captures them.
  bool AnyCaptures() const;
  // Waits for all work of the current context, whosesoever it is, and breaks no capture of AnyCaptures(). The thread must be in
  // the relaxed mode. kOutOfMemory: there was no room for what that takes (driver/await_context.h).
  driver::Result AwaitWork() const;
  absl::Status AwaitWorkOrSay() const;  // the same, with a message

 private:
  struct Segment {
    uint64_t bytes;
    std::shared_ptr<MemoryPool> pool;
  };

  Gpu(std::shared_ptr<Runtime> runtime, int ordinal);
  absl::Status Start(const gpushare_scheduler_options* scheduler);
  absl::Status StartBooks();
  // The source of memory for unpromised(), with a broker.
  bool GetRoom(quota::Account& account, uint64_t bytes, Time deadline) override;
  uint64_t Limit() const override;
  uint64_t Left() const override;
  uint64_t Reclaiming() const override;
  // The memory of all virtual devices of the GPU, as charged to the broker.
  uint64_t Charged() const override;
  void SetLimit(uint64_t limit) override;
  quota::Holder::Figures figures() const override;
  // Asks the broker for what a promise needs beyond its grants. ResourceExhausted: the broker refuses.
  absl::Status AskFor(const Tenant& tenant, uint64_t bytes);
  // Whether `limits` of `device` are within its parent's limits and cover its children's.
  absl::Status CheckFamily(const VirtualDevice& device, const spec::Limits& limits) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All or nothing, also if the host has no memory. None: the unpromised memory is not enough.
  absl::StatusOr<std::optional<Seat>> TakeSeat(VirtualDevice* device,
                                               const Admission::Promise& promise,
                                               const spec::Limits& limits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The slot to take next, which is not taken yet.
  absl::StatusOr<uint32_t> FindSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes back the device's promises. Returns its place among the seated.
  std::map<const Tenant*, VirtualDevice*>::node_type GiveUpSeat(VirtualDevice* device,
                                                                const Seat& seat)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t HeldByQuotas() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t HeldWithoutQuota() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<gate::Engine>> Engines() const;
  void UpdateUnpromised() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<DriverPool>> DriverPools() const;
  std::vector<std::shared_ptr<Stream>> Streams() const;
  // What ~Gpu() does with memory of virtual devices that are gone. `devices` are held. AwaitLateFrees() waits for the streams
  // of a program in which it has freed some of it, and returns whose have not come so far, as Unfinished::Await() does.
  // GiveBack() returns the bytes that are left to the driver.
  std::string AwaitLateFrees(const std::vector<VirtualDevice*>& devices, Time deadline);
  // AwaitOthersFrees() waits for those that other threads are about to credit, on the way through the GPU's books.
  void AwaitOthersFrees(Time deadline);
  uint64_t GiveBackPools(bool give);
  uint64_t GiveBack(VirtualDevice& device, bool give);
  void TrimUnusedPools();
  const Segment* SegmentAt(driver::DevicePtr pointer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Runtime> runtime_;
  const driver::Driver& driver_;
  const int ordinal_;
  driver::Driver::DeviceInfo info_;
  Site site_;
  gpushare_scheduler_options scheduler_ = {};
  gate::EngineOptions engine_options_;
  std::unique_ptr<Partitions> partitions_;
  const std::shared_ptr<gate::Recorder> recorder_ = std::make_shared<gate::Recorder>();
  std::unique_ptr<gate::Engine> engine_;
  uint64_t capacity_ = 0, reserve_ = 0;
  std::shared_ptr<client::GpuSession> session_;
  uint32_t number_ = 0;  // the GPU's number in the runtime; 0: none yet
  quota::PointerTable unbooked_;
  std::atomic<bool> has_unbooked_{false};
  gate::FootprintCache footprints_;
  quota::LoanBook loans_;  // outlives the accounts
  std::unique_ptr<quota::Account> unpromised_;
  std::atomic<uint64_t> apart_{
      0};  // promised, or held beyond a quota: the part of the limit that is not available to unpromised_
  mutable std::atomic<uint64_t> most_charged_{0};
  std::atomic<int> captures_{0};
  Unfinished unfinished_;

  mutable base::Mutex mutex_;
  std::optional<Admission> books_ ABSL_GUARDED_BY(mutex_);
  uint64_t limit_ ABSL_GUARDED_BY(mutex_) =
      0;  // limit of all devices together: capacity_, or what the broker has granted
  uint64_t denied_before_ ABSL_GUARDED_BY(mutex_) = 0;  // refusals of devices that are gone
  std::map<uint64_t, std::weak_ptr<VirtualDevice>> devices_ ABSL_GUARDED_BY(mutex_);  // by promise
  // Every virtual device to which memory may be charged, including those that are gone and have left memory. Read without
  // the lock by callers that know that the device exists.
  static constexpr int kChunkBits = 10;
  static constexpr uint32_t kChunkMask = (1u << kChunkBits) - 1;
  using Chunk = std::atomic<VirtualDevice*>;
  std::array<std::atomic<Chunk*>, 1024> slots_{};
  uint32_t slots_used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint32_t> free_slots_ ABSL_GUARDED_BY(mutex_);
  std::map<const Tenant*, VirtualDevice*> seated_ ABSL_GUARDED_BY(mutex_);
  // Gone, with memory left. They move here from seated_, which takes no memory.
  std::multimap<const Tenant*, VirtualDevice*> retired_ ABSL_GUARDED_BY(mutex_);
  // Devices with a seat whose quota was made smaller than what they hold.
  std::set<VirtualDevice*> over_quota_ ABSL_GUARDED_BY(mutex_);
  std::map<driver::Stream, std::weak_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<driver::Context, std::weak_ptr<VirtualDevice>> contexts_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, ThreadLease> leases_ ABSL_GUARDED_BY(mutex_);
  std::map<driver::DevicePtr, Segment> segments_ ABSL_GUARDED_BY(mutex_);
  std::map<const DriverPool*, std::shared_ptr<DriverPool>> driver_pools_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<gate::Engine>> engines_ ABSL_GUARDED_BY(mutex_);  // of partitions
  std::shared_ptr<gate::Watchdog> watchdog_ ABSL_GUARDED_BY(mutex_);
};

inline ContextScope::ContextScope(const Gpu& gpu, Mode mode) : ContextScope(gpu.site(), mode) {}

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_GPU_H_
