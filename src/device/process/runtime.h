// SPDX-License-Identifier: Apache-2.0
// The driver of a process with its GPUs and tenants, behind gpushare_runtime.
//
// GPUs and tenants hold the runtime, which knows them weakly; only the devices of the tenant
// "default" are held from here, until Close().
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
  // In a process whose program was preloaded this is CreateOfProcess()'s. FailedPrecondition: other options.
  static absl::StatusOr<std::shared_ptr<Runtime>> Create(const gpushare_runtime_options& options);
  // The runtime of a program that knows nothing of gpushare, on a driver that is open already; it stays until
  // the process ends. The broker says what the default tenant gets on each GPU, else `share_on` does, of a runtime that
  // has a driver and nothing else yet. InvalidArgument: more than that has.
  struct Share {
    gpushare_spec spec;
    bool at_most = false;  // its memory is cut to what the GPU can promise
    std::shared_ptr<client::GpuSession>
        session{};  // whose limit counts in place of the spec's; null: the spec's does
  };
  using ShareOn = std::function<absl::StatusOr<Share>(const Runtime& runtime, int ordinal)>;
  static absl::StatusOr<std::shared_ptr<Runtime>> CreateOfProcess(void* driver_handle,
                                                                  const char* driver_path,
                                                                  BrokerOptions broker,
                                                                  books::Options books,
                                                                  const ShareOn& share_on);
  ~Runtime();
  // The quota that such a share comes to on a GPU with `total` memory that is not open, as DefaultMemory() has it for
  // one that is; nothing: none. `pci_id`: where it is, "" for nobody knows.
  static absl::StatusOr<std::optional<uint64_t>> MemoryOfShare(const Share& share, int ordinal,
                                                               const std::string& pci_id,
                                                               uint64_t total);
  // Lets go of the default tenant's devices; nothing new is attributed to it.
  void Close();

  const driver::Driver& driver() const { return *driver_; }
  base::Clock& clock() const { return driver_->clock(); }
  // The memory that is charged in this process, by whichever face it was asked for.
  books::Books& books() const { return *books_; }
  // The same of graphs: whichever face made one, either may change and launch it.
  gate::Graphs& graphs() const { return *graphs_; }
  // The books tell the owner of what is credited by a number: of its GPU here, and its slot there.
  static constexpr int kSlotBits = 20;
  VirtualDevice* FindOwner(uint32_t owner) const;  // which has memory; null: nobody
  // A number for `gpu`, for as long as it is open. ResourceExhausted: so many are.
  absl::StatusOr<uint32_t> Enlist(Gpu* gpu);
  void Strike(uint32_t number);
  int gpu_count() const { return gpu_count_; }
  // How much memory of a GPU can be promised, within the limits that others have set on this process: what MPS lets it have is
  // its own, of what the GPU or the cgroup has the reserve is never promised. InvalidArgument when that is more than
  // there is, or such a limit cannot be read.
  struct Capacity {
    uint64_t bytes = 0, reserve = 0;
    bool limited = false;  // by others
  };
  // As it was when it was first asked for.
  absl::StatusOr<Capacity> CapacityOf(int ordinal, const driver::Driver::DeviceInfo& info) const;

  // The ordinal of the GPU called `name`: an ordinal, a UUID or a PCI id. NotFound lists what there
  // is.
  absl::StatusOr<int> Locate(const std::string& name) const;
  absl::StatusOr<std::shared_ptr<Gpu>> OpenGpu(const std::string& name,
                                               const gpushare_scheduler_options* scheduler);
  // Null: not open.
  std::shared_ptr<Gpu> FindGpu(int ordinal) const;
  std::vector<std::shared_ptr<Gpu>> OpenGpus() const;

  // Attaches `trace` to the open GPUs, and to those that will be opened. AlreadyExists: another records.
  absl::Status StartTrace(const std::shared_ptr<Trace>& trace);

  // `parent`: whose handle the options have; null: none.
  absl::StatusOr<std::shared_ptr<Tenant>> CreateTenant(const gpushare_tenant_options& options,
                                                       const std::shared_ptr<Tenant>& parent);
  std::shared_ptr<Tenant> default_tenant() const { return default_tenant_; }
  // Whether `tenant` is of this runtime, and not of another that has the same names.
  bool Has(const Tenant& tenant) const;
  // Of a program that knows nothing of gpushare.
  bool of_process() const { return of_process_; }
  // Who this process is to its broker; empty: there is none.
  std::string broker_tenant() const { return broker_ == nullptr ? "" : broker_->tenant(); }
  // What it has of a GPU there; null: there is none.
  absl::StatusOr<std::shared_ptr<client::GpuSession>> SessionOn(
      int ordinal, const driver::Driver::DeviceInfo& info);
  // The default tenant's device on `gpu`, made on first use. FailedPrecondition after Close().
  absl::StatusOr<std::shared_ptr<VirtualDevice>> DefaultDevice(Gpu& gpu);
  // The quota that it has or will have on GPU `ordinal`, which need not be open, with what it may borrow; nothing: none.
  absl::StatusOr<std::optional<uint64_t>> DefaultMemory(int ordinal) const;

 private:
  absl::Status CheckParent(const std::string& name, const Tenant& parent) const;
  Runtime();
  // Of `asked`, or as it is without; `source` is the setting that asked for it.
  static absl::StatusOr<uint64_t> ReserveFor(std::optional<uint64_t> asked, const char* source,
                                             int ordinal, uint64_t memory_total);
  // With such a reserve, of a GPU with `total`.
  static absl::StatusOr<Capacity> CapacityWithin(std::optional<uint64_t> reserve,
                                                 const char* source, int ordinal,
                                                 const std::string& pci_id, uint64_t total);
  // As it is in force now, and no more than `capacity` of memory.
  gpushare_spec DefaultSpec(int ordinal, uint64_t capacity) const;
  absl::StatusOr<Share> ShareOfBroker(int ordinal, const driver::Driver::DeviceInfo& info);
  static absl::StatusOr<std::shared_ptr<Runtime>> Open(const gpushare_runtime_options& options,
                                                       const driver::OpenOptions& driver,
                                                       books::Options books);
  void Credited(uint32_t owner) const;
  // Whether `options` say nothing else than what this runtime of the process is.
  absl::Status CheckSame(const gpushare_runtime_options& options) const;

  std::unique_ptr<driver::Driver> driver_;
  static constexpr size_t kMostOpen = size_t{1} << 10;
  std::array<std::atomic<Gpu*>, kMostOpen> open_{};  // by number; 0 is nobody's
  std::unique_ptr<books::Books> books_;
  const std::unique_ptr<gate::Graphs> graphs_;
  int gpu_count_ = 0;
  std::optional<uint64_t> reserve_;
  const char* reserve_source_ = "";  // which setting gave it
  mutable base::Mutex capacities_mutex_;
  mutable std::map<int, Capacity> capacities_ ABSL_GUARDED_BY(capacities_mutex_);
  std::shared_ptr<Tenant> default_tenant_;
  gpushare_spec default_spec_ = {};
  std::unique_ptr<BrokerShares> broker_;  // null: there is none
  std::vector<Share> shares_;  // of the process, by ordinal; empty: the spec above on all
  bool of_process_ = false;

  std::atomic<uint32_t> opening_{0};  // a ClockLock's
  mutable base::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int, std::weak_ptr<Gpu>> gpus_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<Trace> trace_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<Tenant>> tenants_ ABSL_GUARDED_BY(mutex_);  // some are gone
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;  // so many of them: the gone are taken out
  std::map<int, std::shared_ptr<VirtualDevice>> default_devices_ ABSL_GUARDED_BY(mutex_);
};

// A thread of the runtime's clock.
class Thread {
 public:
  Thread(base::Clock& clock, std::string name, std::function<void()> body)
      : thread_(clock.StartThread(std::move(name), [id = id_, body = std::move(body)] {
          id->store(std::this_thread::get_id());
          body();
        })) {}
  void Join() { thread_->Join(); }
  // It cannot wait for its own end.
  bool OnItself() const { return id_->load() == std::this_thread::get_id(); }

 private:
  const std::shared_ptr<std::atomic<std::thread::id>> id_ =
      std::make_shared<std::atomic<std::thread::id>>();
  std::unique_ptr<base::ClockThread> thread_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_RUNTIME_H_
