// SPDX-License-Identifier: Apache-2.0
// The driver of a process with its GPUs and tenants, behind gpushare_runtime.
//
// GPUs and tenants keep the runtime alive; it refers to them weakly. It keeps only the devices of the tenant "default", until
// Close().
#ifndef GPUSHARE_DEVICE_PROCESS_RUNTIME_H_
#define GPUSHARE_DEVICE_PROCESS_RUNTIME_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/sync.h"
#include "device/process/broker_share.h"
#include "driver/driver.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::gate {
class Graphs;
}  // namespace gpushare::gate

namespace gpushare::books {
class Books;
struct Options;
}  // namespace gpushare::books

namespace gpushare::device {

class Gpu;
class Tenant;
class Trace;
class VirtualDevice;

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  // In a process with the preloaded library, returns the runtime of CreateOfProcess(). FailedPrecondition: that has other
  // options.
  static absl::StatusOr<std::shared_ptr<Runtime>> Create(const gpushare_runtime_options& options);
  // The runtime of a program that does not know gpushare, on a driver that is open already; it stays until the process ends.
  // The broker decides what the default tenant gets on each GPU; without a broker `share_on` does, which is called with a
  // runtime that has only a driver yet. InvalidArgument: the share exceeds the GPU.
  struct Share {
    gpushare_spec spec;
    bool at_most = false;  // its memory is cut to what the GPU can promise
    std::shared_ptr<client::GpuSession>
        session{};  // its limit replaces the spec's memory; null: the spec's memory counts
  };
  using ShareOn = std::function<absl::StatusOr<Share>(const Runtime& runtime, int ordinal)>;
  static absl::StatusOr<std::shared_ptr<Runtime>> CreateOfProcess(void* driver_handle,
                                                                  const char* driver_path,
                                                                  BrokerOptions broker,
                                                                  books::Options books,
                                                                  const ShareOn& share_on);
  ~Runtime();
  // The quota of such a share on a GPU with `total` memory, for a process without a runtime; a runtime's DefaultMemory()
  // agrees. nullopt: no quota. `pci_id` "": unknown.
  static absl::StatusOr<std::optional<uint64_t>> MemoryOfShare(const Share& share, int ordinal,
                                                               const std::string& pci_id,
                                                               uint64_t total);
  // Releases the default tenant's devices; nothing new is attributed to it.
  void Close();

  const driver::Driver& driver() const { return *driver_; }
  const std::shared_ptr<const driver::Driver>& shared_driver() const { return driver_; }
  base::Clock& clock() const { return driver_->clock(); }
  // The memory charged in this process, whether through the SDK or the preloaded library.
  books::Books& books() const { return *books_; }
  // The graphs of this process: both the SDK and the preloaded library may change and launch each of them.
  gate::Graphs& graphs() const { return *graphs_; }
  // The books identify the owner of memory by a number: the number of its GPU here, and its slot on that GPU.
  static constexpr int kSlotBits = 20;
  VirtualDevice* FindOwner(uint32_t owner) const;  // an owner that has memory; null: nobody
  // A number for `gpu`, for as long as it is open. ResourceExhausted: too many GPUs are open.
  absl::StatusOr<uint32_t> Enlist(Gpu* gpu);
  void Strike(uint32_t number);
  int gpu_count() const { return gpu_count_; }
  // How much memory of a GPU can be promised, within the limits that others have set on this process. A limit of MPS can be
  // promised completely; of the GPU's memory or the cgroup's limit the reserve is never promised. InvalidArgument: the
  // reserve is more than there is, or such a limit cannot be parsed.
  struct Capacity {
    uint64_t bytes = 0, reserve = 0;
    bool limited = false;  // whether a limit of others applies
  };
  // Returns the same as at the first call for the GPU.
  absl::StatusOr<Capacity> CapacityOf(int ordinal, const driver::Driver::DeviceInfo& info) const;

  // The ordinal of the GPU `name`: an ordinal, a UUID or a PCI id. NotFound lists the existing GPUs.
  absl::StatusOr<int> Locate(const std::string& name) const;
  absl::StatusOr<std::shared_ptr<Gpu>> OpenGpu(const std::string& name,
                                               const gpushare_scheduler_options* scheduler);
  // Null: the GPU is not open.
  std::shared_ptr<Gpu> FindGpu(int ordinal) const;
  std::vector<std::shared_ptr<Gpu>> OpenGpus() const;

  // Attaches `trace` to the open GPUs, and to those that will be opened. AlreadyExists: another trace is recording.
  absl::Status StartTrace(const std::shared_ptr<Trace>& trace);

  // `parent` is the object of the parent's handle in `options`; null: none.
  absl::StatusOr<std::shared_ptr<Tenant>> CreateTenant(const gpushare_tenant_options& options,
                                                       const std::shared_ptr<Tenant>& parent);
  std::shared_ptr<Tenant> default_tenant() const { return default_tenant_; }
  // Whether `tenant` belongs to this runtime, and not to another with the same names.
  bool Has(const Tenant& tenant) const;
  // Whether this is the runtime of a program that does not know gpushare.
  bool of_process() const { return of_process_; }
  // Sets how it is found out whether the program captures a stream by itself. For the preloaded library, before the program's
  // first call.
  void SeesCaptures(std::function<bool()> any) { program_captures_ = std::move(any); }
  bool ProgramCaptures() const { return program_captures_ != nullptr && program_captures_(); }
  // This process's tenant at its broker; empty: no broker.
  std::string broker_tenant() const { return broker_ == nullptr ? "" : broker_->tenant(); }
  // The session with the broker on a GPU; null: no broker.
  absl::StatusOr<std::shared_ptr<client::GpuSession>> SessionOn(
      int ordinal, const driver::Driver::DeviceInfo& info);
  // The default tenant's device on `gpu`, made on first use. FailedPrecondition after Close().
  absl::StatusOr<std::shared_ptr<VirtualDevice>> DefaultDevice(Gpu& gpu);
  // The quota that the default tenant has or will have on GPU `ordinal`, which need not be open, including what it may borrow.
  // nullopt: no quota.
  absl::StatusOr<std::optional<uint64_t>> DefaultMemory(int ordinal) const;

 private:
  absl::Status CheckParent(const std::string& name, const Tenant& parent) const;
  Runtime();
  // The reserve asked for, or the default one. `source` is the setting that asked for it.
  static absl::StatusOr<uint64_t> ReserveFor(std::optional<uint64_t> asked, const char* source,
                                             int ordinal, uint64_t memory_total);
  // The capacity of a GPU with `total` memory and that reserve.
  static absl::StatusOr<Capacity> CapacityWithin(std::optional<uint64_t> reserve,
                                                 const char* source, int ordinal,
                                                 const std::string& pci_id, uint64_t total);
  // The default tenant's spec in force now, with at most `capacity` of memory.
  gpushare_spec DefaultSpec(int ordinal, uint64_t capacity) const;
  absl::StatusOr<Share> ShareOfBroker(int ordinal, const driver::Driver::DeviceInfo& info);
  static absl::StatusOr<std::shared_ptr<Runtime>> Open(const gpushare_runtime_options& options,
                                                       const driver::OpenOptions& driver,
                                                       books::Options books);
  void Credited(uint32_t owner) const;
  // Whether `options` agree with this runtime of the process.
  absl::Status CheckSame(const gpushare_runtime_options& options) const;

  std::shared_ptr<const driver::Driver> driver_;
  static constexpr size_t kMostOpen = size_t{1} << 10;
  std::array<std::atomic<Gpu*>, kMostOpen> open_{};  // by number; 0 is not used
  std::unique_ptr<books::Books> books_;
  const std::unique_ptr<gate::Graphs> graphs_;
  int gpu_count_ = 0;
  std::optional<uint64_t> reserve_;
  const char* reserve_source_ = "";  // the setting that gave `reserve_`
  mutable base::Mutex capacities_mutex_;
  mutable std::map<int, Capacity> capacities_ ABSL_GUARDED_BY(capacities_mutex_);
  std::shared_ptr<Tenant> default_tenant_;
  gpushare_spec default_spec_ = {};
  std::unique_ptr<BrokerShares> broker_;  // null: no broker
  std::vector<Share> shares_;  // the process's shares by ordinal; empty: default_spec_ on all GPUs
  bool of_process_ = false;
  std::function<bool()> program_captures_;  // null: nobody sees them

  std::atomic<uint32_t> opening_{0};  // a ClockLock
  mutable base::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int, std::weak_ptr<Gpu>> gpus_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<Trace> trace_ ABSL_GUARDED_BY(mutex_);
  // May include ones that are gone.
  std::map<std::string, std::weak_ptr<Tenant>> tenants_ ABSL_GUARDED_BY(mutex_);
  // Size of tenants_ at which the gone ones are removed.
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
  std::map<int, std::shared_ptr<VirtualDevice>> default_devices_ ABSL_GUARDED_BY(mutex_);
};

// A thread on the runtime's clock.
class Thread {
 public:
  Thread(base::Clock& clock, std::string name, std::function<void()> body)
      : thread_(clock.StartThread(std::move(name), [id = id_, body = std::move(body)] {
          id->store(std::this_thread::get_id());
          body();
        })) {}
  void Join() { thread_->Join(); }
  // Whether the caller is the thread itself, which cannot wait for its own end.
  bool OnItself() const { return id_->load() == std::this_thread::get_id(); }

 private:
  const std::shared_ptr<std::atomic<std::thread::id>> id_ =
      std::make_shared<std::atomic<std::thread::id>>();
  std::unique_ptr<base::ClockThread> thread_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_RUNTIME_H_
