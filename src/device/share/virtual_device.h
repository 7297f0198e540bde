// SPDX-License-Identifier: Apache-2.0
// One share of one GPU, behind gpushare_vdev: an account, a gate, and the spec in force.
//
// Life: shared_ptrs (handles, streams, allocators, leases) keep the share; when the last is gone
// the share returns to the GPU. The object itself stays until the last byte charged to it is freed,
// because frees credit its account.
#ifndef GPUSHARE_DEVICE_SHARE_VIRTUAL_DEVICE_H_
#define GPUSHARE_DEVICE_SHARE_VIRTUAL_DEVICE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/interrupt.h"
#include "base/sync.h"
#include "device/gpu/context_door.h"
#include "device/gpu/door.h"
#include "device/gpu/gpu.h"
#include "device/memory/memory_order.h"
#include "device/process/tenant.h"
#include "gate/engine.h"
#include "gpushare/c/gpushare.h"
#include "quota/ledger.h"
#include "quota/pointer_table.h"
#include "spec/spec.h"

namespace gpushare::device {

class DriverPool;
class LeaseLine;
class MemoryPool;
class Stream;
class SwappableMemory;

class VirtualDevice : public std::enable_shared_from_this<VirtualDevice> {
 public:
  static absl::StatusOr<std::shared_ptr<VirtualDevice>> Create(std::shared_ptr<Gpu> gpu,
                                                               std::shared_ptr<Tenant> tenant,
                                                               const gpushare_spec& spec);

  Gpu& gpu() const { return *gpu_; }
  const std::shared_ptr<Gpu>& shared_gpu() const { return gpu_; }
  Tenant& tenant() const { return *tenant_; }
  gate::Gate& gate() const { return *gate_; }
  // Where its streams, events and memory are: the GPU's primary context, or one of its own.
  const Site& site() const { return has_context_ ? own_site_ : raw_gpu_->site(); }
  // Of a context of its own, for who does not keep the device; null: it is the GPU's, which stays. The door is there
  // as long as something is charged.
  ContextDoor* door() { return has_context_ ? &door_ : nullptr; }
  // A free found that the context of its own is lost: the device has its memory until that ends with this, so nothing of it is
  // credited before, and nobody waits for it.
  void LoseContext() { context_lost_.store(true); }
  bool context_lost() const { return context_lost_.load(); }
  // The SMs that new streams get; null: all.
  std::shared_ptr<Partition> partition() const;
  // What to make current for streams that may be bound: its own context, or its partition's.
  driver::Context native_context() const;
  // FailedPrecondition: `native` is of another context, or of other SMs.
  absl::Status CheckStream(driver::Stream native) const;
  // Streams that are gone, with work that goes on.
  Unfinished& unfinished() { return has_context_ ? own_unfinished_ : raw_gpu_->unfinished(); }
  quota::Account& account() const { return *account_; }
  // Whether it is of isolation `process`.
  bool has_process() const { return isolation_ == GPUSHARE_ISOLATION_PROCESS; }
  // Whether the account is of a quota of its own, and not of what the quotas leave, nor within a parent's.
  bool has_quota() const { return own_account_ != nullptr && own_account_->parent() == nullptr; }
  // Of the tenant's parent on this GPU, which bounds it; there as long as this is. Null: it has none.
  VirtualDevice* parent() const { return raw_parent_; }
  bool has_children() const { return children_.load(std::memory_order_relaxed) != 0; }

  absl::Status Resize(const gpushare_spec& change);
  gpushare_spec spec() const;
  sched::Band band() const { return band_.load(std::memory_order_relaxed); }

  // Whether something was launched since the last drain: only then is there anything to tell the gate
  // before a call that waits for the device.
  void SetBusy() {
    if (!busy_.load(std::memory_order_relaxed)) busy_.store(true, std::memory_order_relaxed);
  }
  bool TakeBusy() {
    return busy_.load(std::memory_order_relaxed) &&
           busy_.exchange(false, std::memory_order_relaxed);
  }

  // suspend.cc. With swappable memory, which leaves the device and comes back, they may fail: see the C ABI.
  absl::Status Suspend();
  absl::Status Resume();
  // Work enters before it is handed to the driver, and leases for as long as they are held: while it is closed the memory
  // of the virtual device may be gone.
  Door& work_door() { return work_door_; }
  // Launches that go past the gate, on streams that nobody has named.
  void HasUnseenWork() { unseen_work_.fetch_add(1, std::memory_order_relaxed); }
  bool suspended() const { return suspended_.load(std::memory_order_relaxed); }

  // What a call says that waited for Resume() until its deadline.
  absl::Status SuspendedTooLong() const;

  void Memory(uint64_t* free_bytes, uint64_t* total_bytes) const;
  // Of what is free of it, what the driver may count for processes that have ended: it is waited for when it is wanted.
  uint64_t ReclaimingMemory() const;
  gpushare_vdev_stats Stats(Time now) const;
  void RecordMemory() const;  // into the GPU's flight recorder, when that is on

  // Memory, charged to this device; see allocator.h for the rules.
  struct Request {
    uint64_t bytes = 0;
    bool wait = false;
    Time deadline = kNever;
    // How often those who wait have been called off, and what it said when this request came.
    const std::atomic<uint64_t>* calls_off = nullptr;
    uint64_t calls_off_before = 0;
    base::InterruptWatch* interrupt = nullptr;  // of the calling thread
    bool CalledOff() const {
      return wait && ((calls_off != nullptr && calls_off->load() != calls_off_before) ||
                      (interrupt != nullptr && interrupt->ended()));
    }
    // The same, and asks the calling thread: with no lock held.
    bool AskCalledOff(Time now) const {
      return wait && ((interrupt != nullptr && interrupt->Ask(now)) || CalledOff());
    }
  };
  // By the books.
  absl::StatusOr<driver::DevicePtr> Allocate(const Request& request);
  // Room for the request in the account, reserved: what is idle or lent is given up for it, or it waits in line. Else what
  // was left; counted.
  quota::Grant Reserve(const Request& request);
  absl::Status Charge(const Request& request);  // the same, with what a caller is told
  // The same for who keeps books of its own: FreePointer() does not know what it takes. Each piece is a
  // reason for this object to exist.
  absl::StatusOr<driver::DevicePtr> Take(const Request& request);
  absl::StatusOr<driver::DevicePtr> TakeReserved(uint64_t bytes);  // which are charged already
  // What one request has asked of borrowers so far. They are asked once for what it lacks and those do who wait in
  // front of it, and again only when that has become more.
  struct Asked {
    uint64_t bytes = 0;
    std::optional<uint64_t> ahead = std::nullopt;  // the others', when it came
    const quota::Ticket* place = nullptr;          // in the line, of one that waits itself
    bool told = false;                             // who has freed something tells when it is there
    std::optional<Time> began = std::nullopt;      // when it was first asked for, of one that waits
  };
  // Has pools give up what is idle, where `bytes` would not fit otherwise: this device's, of those who have no quota
  // either, and, within what is guaranteed to it, of those who have borrowed from it. These are asked for more, unless
  // `asked` is null. Until the answer goes, nothing more is lent. `began`: of one that will wait and is not in line yet,
  // as of MemoryPool::Trim(); of one that is, `asked` has it.
  quota::Demand MakeRoom(uint64_t bytes, Asked* asked, std::optional<Time> began = std::nullopt);
  // Has who waits look when streams have come to what was freed on them in this device's pools before.
  void TellOfFreed();
  // Gives up to `bytes` that are idle in this device's pools back to the quota. `began`: as MemoryPool::Trim().
  void TrimPools(uint64_t bytes, std::optional<Time> began);
  // Who is asked for what this device has borrowed. Null: nobody.
  struct Reclaimer {
    Reclaimer(int (*c)(void*, uint64_t), void* x, void (*r)(void*))
        : call(c), context(x), release(r) {}
    ~Reclaimer() {
      if (release != nullptr) release(context);
    }
    Reclaimer(const Reclaimer&) = delete;
    Reclaimer& operator=(const Reclaimer&) = delete;

    int (*const call)(void*, uint64_t);
    void* const context;
    void (*const release)(void*);
  };
  void SetReclaimer(std::shared_ptr<const Reclaimer> reclaimer);
  bool AskBack(uint64_t bytes) const;  // whether something was freed
  // What a request is told that the account had no room for, which had `left`; counted.
  // `growth`: what a pool or the card would take for it, where that is more.
  absl::Status Refuse(const Request& request, uint64_t left, uint64_t growth = 0);
  absl::Status DeviceFull(uint64_t bytes, driver::Result result, const char* call) const;
  // Gives back what Take() got; the last may end this object. `waits`: the caller, who is not known to
  // be alive otherwise, waits meanwhile, so that its unused time is lent.
  absl::Status Give(driver::DevicePtr pointer, uint64_t bytes, bool waits);
  // A pool of this device's memory, asked for what is idle before an allocation is refused.
  void AddPool(const std::weak_ptr<MemoryPool>& pool);
  // The driver's pool of this device, made when first asked for.
  absl::StatusOr<std::shared_ptr<DriverPool>> StreamOrderedPool();
  std::shared_ptr<DriverPool> driver_pool() const;  // null: never asked for
  // Of the leases that it was asked for and nobody waits for; made when first asked for.
  std::shared_ptr<LeaseLine> lease_line();
  // Its swappable allocations, made when first asked for.
  absl::StatusOr<std::shared_ptr<SwappableMemory>> Swappable();
  std::shared_ptr<SwappableMemory> swappable() const;  // null: never asked for
  bool swaps() const { return swaps_.load(); }         // whether it was, or is being made
  // A base::ClockLock: who suspends or resumes it, or changes what swappable memory there is, does so one at a time.
  std::atomic<uint32_t>& swap_turn() { return swap_turn_; }
  uint32_t slot() const { return seat_.slot; }
  // What the books know this device by.
  uint32_t owner() const { return raw_gpu_->OwnerIn(seat_.slot); }
  // The driver gave out an address again that Gpu::unbooked() has: that allocation ended past us.
  void Lost(const quota::Allocation& allocation);
  // The books have credited an allocation of it; the last may end this object.
  void Credited();
  // One reason more, and one less, to exist; the last may end this object.
  void Hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  bool TryHold();  // false: the last reason is gone, and it is about to end
  void Unhold();
  // As Credited(), of what is charged still: for a context that ended, or a GPU that closes.
  void Abandon(uint64_t bytes);
  // While one of its pools gives memory back that is out of the pool's hands: until the driver has it, it is charged, and
  // idle no more. Keeps the device, which is known to be alive; the end may be the device's.
  class GivingBack {
   public:
    explicit GivingBack(VirtualDevice& device) : device_(device) {
      device_.Hold();
      device_.giving_.fetch_add(1);
    }
    ~GivingBack() { device_.Given(); }
    GivingBack(const GivingBack&) = delete;
    GivingBack& operator=(const GivingBack&) = delete;

   private:
    VirtualDevice& device_;
  };
  // How often that was done, for who waits for the next time.
  const std::atomic<uint32_t>& given() const { return given_; }
  // Nothing is refused while memory is on its way back: waits for that, at most until `until`. False: nothing has come since
  // given() was `seen`, nor will it in time.
  bool AwaitGiven(uint32_t seen, Time until) const;

 private:
  friend class Gpu;

  std::vector<std::shared_ptr<MemoryPool>> memory_pools() const;  // that are there

  VirtualDevice(std::shared_ptr<Gpu> gpu, std::shared_ptr<Tenant> tenant);
  ~VirtualDevice() = default;
  absl::Status Start(const gpushare_spec& spec);
  // parent.cc: what a tenant's parent has to do with it.
  absl::Status FindParent();
  absl::Status CheckWithinParent(const spec::Limits& limits) const;
  absl::Status CheckChildren(const spec::Limits& limits,
                             const std::vector<std::shared_ptr<VirtualDevice>>& others) const;
  gpushare_priority DefaultPriority() const;
  absl::Status OverQuotaOfFamily(uint64_t bytes, uint64_t left) const;
  bool SpendsAll() const;
  // isolation.cc: what the spec's isolation takes, and what it leaves of the compute limits.
  absl::StatusOr<spec::Limits> Resolve(const gpushare_spec& spec) const;
  absl::Status StartIsolation(const spec::Limits& limits);
  absl::Status StartGate(const gate::TenantOptions& options);
  gate::TenantOptions InnerLimits(gate::TenantOptions options) const;
  void EndIsolation();
  void EndContext();
  absl::StatusOr<std::shared_ptr<Partition>> ChangePartition(const spec::Limits& limits) const;
  void Retire();  // the last shared_ptr is gone
  void Given();
  absl::Status AwaitIdle();
  absl::Status AwaitContext(const std::string& tenant, Time deadline);
  void RecallFor(uint64_t bytes, Asked* asked, std::optional<Time> began);
  absl::Status OverQuota(uint64_t bytes, uint64_t left) const;
  void RecordDenied(uint64_t bytes, uint64_t left, uint8_t flags) const;

  // Before gate_ and account_, which use what the GPU owns. Null once retired, when the GPU owns
  // this object instead.
  std::shared_ptr<Gpu> gpu_;
  Gpu* const raw_gpu_;
  const std::shared_ptr<Tenant> tenant_;
  std::shared_ptr<VirtualDevice> parent_;  // until it is retired
  VirtualDevice* raw_parent_ = nullptr;    // which it holds until it is gone
  std::unique_ptr<quota::Account> own_account_;
  quota::Account* account_ = nullptr;              // that, or the GPU's
  int32_t isolation_ = GPUSHARE_ISOLATION_SHARED;  // from Start() on
  bool has_context_ = false;                       // own_site_ is its own; for good
  Site own_site_;
  ContextDoor door_;
  std::atomic<bool> context_lost_{false};
  Unfinished own_unfinished_;
  std::shared_ptr<gate::Engine> own_engine_;  // of a partition; null: the GPU's
  gate::Gate* gate_ = nullptr;
  Gpu::Seat seat_;
  bool seated_ = false;
  Admission of_children_{
      quota::kUnlimited};  // what they are promised of its guarantee; the GPU's to guard
  bool entered_ = false;   // EnterProcess()

  // The shared_ptrs together, each live allocation, and each virtual device of a child's.
  std::atomic<uint64_t> holds_{1};
  std::atomic<uint64_t> children_{0};  // those of children
  std::atomic<uint64_t> denied_bytes_{0};
  std::atomic<sched::Band> band_{sched::Band::kNormal};
  std::atomic<bool> guaranteed_{false};  // device time is guaranteed to it
  std::atomic<bool> suspended_{false};
  std::atomic<bool> busy_{false};
  Door work_door_;
  std::atomic<bool> swaps_{false};
  std::atomic<uint64_t> unseen_work_{0},
      awaited_work_{0};  // how often it had some; at the last wait for it
  std::atomic<uint32_t> swap_turn_{0};
  uint64_t suspensions_ = 0;  // how often work_door_ was closed; with swap_turn_

  mutable base::Mutex mutex_;
  gpushare_spec spec_ ABSL_GUARDED_BY(mutex_) = {};
  spec::Limits limits_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;  // of limits_
  std::vector<std::weak_ptr<MemoryPool>> pools_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_pools_{false};
  std::atomic<uint32_t> giving_{0}, given_{0};  // see GivingBack
  std::shared_ptr<DriverPool> driver_pool_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<SwappableMemory> swappable_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Reclaimer> reclaimer_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Partition> partition_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<LeaseLine> lease_line_ ABSL_GUARDED_BY(mutex_);
};

// One Hold() of a virtual device; its end may be the device's.
class HeldDevice {
 public:
  explicit HeldDevice(VirtualDevice& device) : device_(device) {}
  ~HeldDevice() { device_.Unhold(); }
  HeldDevice(const HeldDevice&) = delete;
  HeldDevice& operator=(const HeldDevice&) = delete;

 private:
  VirtualDevice& device_;
};

// A call of the driver that waits for the device: the unused time of `caller`, if any, is lent meanwhile.
template <typename Call>
auto LentMeanwhile(VirtualDevice* caller, const Call& call) {
  const bool tell = caller != nullptr && caller->TakeBusy();
  if (tell) caller->gate().Synchronizing(nullptr);
  auto result = call();
  if (tell) caller->gate().Synchronized();
  return result;
}

// Frees `pointer`, crediting who allocated it; what is not in the table goes to the driver.
// `caller` (may be null) is who waits meanwhile, since freeing waits for the device. What lies in a pool is
// freed in the order of a stream of this GPU; in none: of the one it was allocated for.
absl::Status FreePointer(Gpu& gpu, VirtualDevice* caller, driver::DevicePtr pointer,
                         const MemoryOrder& order = {});

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_SHARE_VIRTUAL_DEVICE_H_
