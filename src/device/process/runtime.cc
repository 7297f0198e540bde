// SPDX-License-Identifier: Apache-2.0
#include "device/process/runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock_lock.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "books/books.h"
#include "device/gpu/gpu.h"
#include "device/gpu/surroundings.h"
#include "device/process/runtimes.h"
#include "device/process/tenant.h"
#include "device/share/virtual_device.h"
#include "device/watch/trace.h"
#include "gate/graphs.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

constexpr char kDefaultTenant[] = "default";

// The memory that programs are told they have: includes what may be borrowed, as in cuMemGetInfo.
std::optional<uint64_t> MostOf(const spec::Limits& limits) {
  return limits.memory_cap.has_value() ? limits.memory_cap : limits.memory;
}

std::optional<uint64_t> QuotaOf(const spec::Limits& limits, const Runtime::Capacity& capacity) {
  const std::optional<uint64_t> most = MostOf(limits);
  // The program must not be told more than it can get within the limits of others.
  if (!capacity.limited) return most;
  return std::min(most.value_or(capacity.bytes), capacity.bytes);
}

constexpr char kReserveVariable[] = "GPUSHARE_MEMORY_RESERVE";

absl::StatusOr<std::optional<uint64_t>> ReserveFrom(const gpushare_runtime_options& options) {
  if (options.no_memory_reserve != 0) return std::optional<uint64_t>(0);
  if (options.memory_reserve != 0) return std::optional<uint64_t>(options.memory_reserve);
  const std::optional<std::string> text = base::GetEnv(kReserveVariable);
  if (!text.has_value()) return std::optional<uint64_t>();
  const absl::StatusOr<uint64_t> bytes = spec::ParseMemory(*text);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kReserveVariable, ": ", Quoted(*text), ": ", bytes.status().message(),
                     "; allowed: 0B (none) to the memory of the GPU, as in 512MiB"));
  }
  return std::optional<uint64_t>(*bytes);
}

BrokerOptions BrokerFrom(const gpushare_runtime_options& options) {
  BrokerOptions broker = BrokerOptions::OfEnvironment();
  if (options.broker != nullptr) broker.socket = options.broker;
  if (options.broker_tenant != nullptr) broker.tenant = options.broker_tenant;
  if (options.broker_spec != nullptr) {
    broker.spec = options.broker_spec;
    broker.of_environment = false;
  }
  if (broker.socket == BrokerOptions::kNoBroker) broker.socket.clear();
  return broker;
}

// The runtime of a preloaded program; null in others. It is never destroyed.
std::atomic<const std::shared_ptr<Runtime>*>& OfProcess() {
  static std::atomic<const std::shared_ptr<Runtime>*> runtime{nullptr};
  return runtime;
}

// The spec of a share on a GPU that can promise `capacity`.
gpushare_spec WithinReach(const Runtime::Share& share, uint64_t capacity) {
  gpushare_spec spec = share.spec;
  if (share.at_most && (spec.set & GPUSHARE_SPEC_MEMORY)) {
    spec.memory = std::min(spec.memory, capacity);
  }
  return spec;
}

// If a preloaded program asks for a runtime before its first driver call, makes that call here, so that there is only one engine.
// (Otherwise the runtime would open the driver by name and find the hooks.)
void AttachIfPreloaded() {
  if (dlsym(RTLD_DEFAULT, "gpushare_preload_version") == nullptr) return;
  using Init = int (*)(unsigned);
  if (const auto init = reinterpret_cast<Init>(dlsym(RTLD_DEFAULT, "cuInit"))) init(0);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::Create(const gpushare_runtime_options& options) {
  if (OfProcess().load(std::memory_order_acquire) == nullptr) AttachIfPreloaded();
  if (const std::shared_ptr<Runtime>* runtime = OfProcess().load(std::memory_order_acquire)) {
    GPUSHARE_RETURN_IF_ERROR((*runtime)->CheckSame(options));
    return *runtime;
  }
  driver::OpenOptions open;
  if (options.driver != nullptr) open.path = options.driver;
  if (options.simulation != nullptr) open.simulation = options.simulation;
  GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> runtime, Open(options, open, {}));
  BrokerOptions broker = BrokerFrom(options);
  if (broker.socket.empty()) return runtime;
  runtime->broker_ = std::make_unique<BrokerShares>(std::move(broker));
  const absl::Status connected = runtime->broker_->Connect(runtime->clock());
  if (connected.ok()) return runtime;
  // The simulation is reset, so that another attempt, perhaps with another tenant, can configure it again.
  if (!open.simulation.empty()) {
    runtime->broker_.reset();
    runtime->driver_->ResetSimulation();
  }
  return connected;
}

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::CreateOfProcess(void* driver_handle,
                                                                  const char* driver_path,
                                                                  BrokerOptions broker,
                                                                  books::Options books,
                                                                  const ShareOn& share_on) {
  driver::OpenOptions open;
  open.handle = driver_handle;
  open.path = driver_path;
  GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> runtime, Open({}, open, std::move(books)));
  runtime->of_process_ = true;
  if (!broker.socket.empty()) runtime->broker_ = std::make_unique<BrokerShares>(std::move(broker));
  for (int ordinal = 0; ordinal < runtime->gpu_count_; ++ordinal) {
    GPUSHARE_ASSIGN_OR_RETURN(const driver::Driver::DeviceInfo info,
                              runtime->driver_->Describe(ordinal));
    GPUSHARE_ASSIGN_OR_RETURN(Share share, runtime->broker_ != nullptr
                                               ? runtime->ShareOfBroker(ordinal, info)
                                               : share_on(*runtime, ordinal));
    GPUSHARE_ASSIGN_OR_RETURN(const Capacity capacity, runtime->CapacityOf(ordinal, info));
    share.spec = WithinReach(share, capacity.bytes);
    runtime->shares_.push_back(share);
    GPUSHARE_RETURN_IF_ERROR(runtime->DefaultMemory(ordinal).status());
  }
  OfProcess().store(new std::shared_ptr<Runtime>(runtime), std::memory_order_release);
  return runtime;
}

absl::StatusOr<Runtime::Share> Runtime::ShareOfBroker(int ordinal,
                                                      const driver::Driver::DeviceInfo& info) {
  GPUSHARE_ASSIGN_OR_RETURN(const Capacity capacity, CapacityOf(ordinal, info));
  GPUSHARE_ASSIGN_OR_RETURN(const BrokerShares::Share share,
                            broker_->ShareOn(clock(), ordinal, info, capacity.bytes));
  return Share{.spec = share.spec, .at_most = true, .session = share.session};
}

absl::StatusOr<std::shared_ptr<client::GpuSession>> Runtime::SessionOn(
    int ordinal, const driver::Driver::DeviceInfo& info) {
  if (broker_ == nullptr) return nullptr;
  GPUSHARE_ASSIGN_OR_RETURN(const Share share, ShareOfBroker(ordinal, info));
  return share.session;
}

absl::Status Runtime::CheckSame(const gpushare_runtime_options& options) const {
  const std::string asked = options.driver != nullptr ? options.driver : "";
  const bool same_driver =
      asked.empty() || asked == driver_->path() || (asked == "sim" && driver_->simulated());
  if (!same_driver || options.simulation != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this process runs under gpushare's preloaded library, which has opened the driver '",
        driver_->path(),
        "': leave 'driver' and 'simulation' out, or set GPUSHARE_DRIVER and "
        "GPUSHARE_SIM before the process starts"));
  }
  const BrokerOptions share = BrokerOptions::OfEnvironment(), wanted = BrokerFrom(options);
  if (wanted.socket != share.socket || wanted.tenant != share.tenant || wanted.spec != share.spec) {
    return absl::FailedPreconditionError(
        "this process runs under gpushare's preloaded library, whose share is the environment's: "
        "leave the fields of the broker out, or set GPUSHARE_BROKER, GPUSHARE_TENANT and "
        "GPUSHARE_SPEC before the process starts");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::Open(const gpushare_runtime_options& options,
                                                       const driver::OpenOptions& open,
                                                       books::Options books) {
  const std::shared_ptr<Runtime> runtime(new Runtime);
  GPUSHARE_ASSIGN_OR_RETURN(runtime->reserve_, ReserveFrom(options));
  runtime->reserve_source_ = options.memory_reserve != 0 ? "memory_reserve" : kReserveVariable;
  GPUSHARE_ASSIGN_OR_RETURN(runtime->driver_, driver::Driver::Open(open));
  books.clock = &runtime->clock();
  books.page = books::PageOf(*runtime->driver_);
  runtime->books_ = std::make_unique<books::Books>(
      runtime->driver_->table(),
      [of = runtime.get()](uint32_t owner, uint64_t) { of->Credited(owner); }, books);
  GPUSHARE_ASSIGN_OR_RETURN(runtime->gpu_count_, runtime->driver_->DeviceCount());
  runtime->default_spec_.struct_size = sizeof(gpushare_spec);
  runtime->default_tenant_ = std::make_shared<Tenant>(kDefaultTenant, GPUSHARE_PRIORITY_UNSET,
                                                      std::map<std::string, std::string>());
  ListRuntime(runtime);
  base::MutexLock lock(&runtime->mutex_);
  runtime->tenants_[kDefaultTenant] = runtime->default_tenant_;
  return runtime;
}

Runtime::Runtime() : graphs_(std::make_unique<gate::Graphs>()) {}
Runtime::~Runtime() = default;

// ---- Whose memory was credited ----

absl::StatusOr<uint32_t> Runtime::Enlist(Gpu* gpu) {
  for (uint32_t number = 1; number < kMostOpen; ++number) {
    Gpu* nobody = nullptr;
    if (open_[number].compare_exchange_strong(nobody, gpu)) return number;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("GPU: ", kMostOpen - 1, " are open already; close one"));
}

void Runtime::Strike(uint32_t number) { open_[number].store(nullptr); }

VirtualDevice* Runtime::FindOwner(uint32_t owner) const {
  if (owner == books::kNobody) return nullptr;  // memory of a program that does not know gpushare
  const Gpu* const gpu = open_[owner >> kSlotBits].load(std::memory_order_acquire);
  return gpu->InSlot(owner & ((1u << kSlotBits) - 1));
}

void Runtime::Credited(uint32_t owner) const { FindOwner(owner)->Credited(); }

void Runtime::Close() {
  if (of_process_) return;
  std::map<int, std::shared_ptr<VirtualDevice>> devices;  // released outside the lock
  base::MutexLock lock(&mutex_);
  closed_ = true;
  devices.swap(default_devices_);
}

absl::StatusOr<uint64_t> Runtime::ReserveFor(std::optional<uint64_t> asked, const char* source,
                                             int ordinal, uint64_t memory_total) {
  if (!asked.has_value()) {
    // At most half, so that something is left to share of a small memory, such as under a limit of MPS or of the cgroup.
    return std::min(std::max<uint64_t>(uint64_t{256} << 20, memory_total / 100), memory_total / 2);
  }
  if (*asked <= memory_total) return *asked;
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": ", spec::ReadableBytes(*asked), " given, GPU ", ordinal, " has ",
                   spec::ReadableBytes(memory_total), "; allowed: 0B (none) to that"));
}

absl::StatusOr<Runtime::Capacity> Runtime::CapacityWithin(std::optional<uint64_t> reserve,
                                                          const char* source, int ordinal,
                                                          const std::string& pci_id,
                                                          uint64_t total) {
  const Surroundings around = LookAround(ordinal, pci_id);
  if (!around.wrong.empty()) return absl::InvalidArgumentError(around.wrong);
  if (around.dmem_limit != 0) total = std::min(total, around.dmem_limit);
  Capacity capacity = {.limited = around.limit_memory()};
  GPUSHARE_ASSIGN_OR_RETURN(capacity.reserve, ReserveFor(reserve, source, ordinal, total));
  capacity.bytes = total - capacity.reserve;
  if (around.mps_memory_limit != 0) {
    capacity.bytes = std::min(capacity.bytes, around.mps_memory_limit);
  }
  return capacity;
}

absl::StatusOr<Runtime::Capacity> Runtime::CapacityOf(
    int ordinal, const driver::Driver::DeviceInfo& info) const {
  const base::MutexLock lock(&capacities_mutex_);
  const auto known = capacities_.find(ordinal);
  if (known != capacities_.end()) return known->second;
  GPUSHARE_ASSIGN_OR_RETURN(
      const Capacity capacity,
      CapacityWithin(reserve_, reserve_source_, ordinal, info.pci_bus_id, info.total_memory));
  capacities_.emplace(ordinal, capacity);
  return capacity;
}

absl::StatusOr<std::optional<uint64_t>> Runtime::MemoryOfShare(const Share& share, int ordinal,
                                                               const std::string& pci_id,
                                                               uint64_t total) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::optional<uint64_t> reserve, ReserveFrom({}));
  GPUSHARE_ASSIGN_OR_RETURN(const Capacity capacity,
                            CapacityWithin(reserve, kReserveVariable, ordinal, pci_id, total));
  GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                            spec::ResolveSpec(WithinReach(share, capacity.bytes),
                                              GPUSHARE_PRIORITY_UNSET, capacity.bytes));
  return QuotaOf(limits, capacity);
}

absl::StatusOr<int> Runtime::Locate(const std::string& name) const {
  int ordinal = -1;
  if (absl::SimpleAtoi(name, &ordinal) && ordinal >= 0 && ordinal < gpu_count_) return ordinal;
  std::string there;
  for (int i = 0; i < gpu_count_; ++i) {
    GPUSHARE_ASSIGN_OR_RETURN(const driver::Driver::DeviceInfo info, driver_->Describe(i));
    if (absl::EqualsIgnoreCase(info.uuid, name) ||
        NormalPciId(info.pci_bus_id) == NormalPciId(name)) {
      return i;
    }
    absl::StrAppend(&there, "\n  ", i, "  ", info.uuid, "  ", info.pci_bus_id, "  ", info.name);
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no GPU ", Quoted(name),
      "; an ordinal, a UUID or a PCI id is wanted. GPUs:", there.empty() ? " none" : there));
}

absl::StatusOr<std::shared_ptr<Gpu>> Runtime::OpenGpu(const std::string& name,
                                                      const gpushare_scheduler_options* scheduler) {
  GPUSHARE_ASSIGN_OR_RETURN(const int ordinal, Locate(name));
  const base::ClockLock opening(clock(), opening_);
  if (std::shared_ptr<Gpu> gpu = FindGpu(ordinal)) {
    if (scheduler != nullptr) GPUSHARE_RETURN_IF_ERROR(gpu->CheckSame(*scheduler));
    return gpu;
  }
  GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Gpu> gpu,
                            Gpu::Open(shared_from_this(), ordinal, scheduler));
  std::shared_ptr<Trace> trace;
  {
    base::MutexLock lock(&mutex_);
    gpus_[ordinal] = gpu;
    trace = trace_.lock();
  }
  if (trace != nullptr) trace->Attach(gpu);
  return gpu;
}

std::shared_ptr<Gpu> Runtime::FindGpu(int ordinal) const {
  base::MutexLock lock(&mutex_);
  const auto at = gpus_.find(ordinal);
  return at == gpus_.end() ? nullptr : at->second.lock();
}

std::vector<std::shared_ptr<Gpu>> Runtime::OpenGpus() const {
  std::vector<std::shared_ptr<Gpu>> gpus;
  base::MutexLock lock(&mutex_);
  for (const auto& [ordinal, weak] : gpus_) {
    if (std::shared_ptr<Gpu> gpu = weak.lock()) gpus.push_back(std::move(gpu));
  }
  return gpus;
}

absl::Status Runtime::StartTrace(const std::shared_ptr<Trace>& trace) {
  const base::ClockLock opening(clock(), opening_);
  {
    base::MutexLock lock(&mutex_);
    const std::shared_ptr<Trace> other = trace_.lock();
    if (other != nullptr && other->recording()) {
      return absl::AlreadyExistsError(
          "another trace of this runtime is recording; stop that one first");
    }
    trace_ = trace;
  }
  for (const std::shared_ptr<Gpu>& gpu : OpenGpus()) trace->Attach(gpu);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Tenant>> Runtime::CreateTenant(
    const gpushare_tenant_options& options, const std::shared_ptr<Tenant>& parent) {
  if (options.name == nullptr) return absl::InvalidArgumentError("tenant name: it is null");
  const std::string name = options.name;
  GPUSHARE_RETURN_IF_ERROR(spec::ValidateTenantName(name));
  if (parent != nullptr) GPUSHARE_RETURN_IF_ERROR(CheckParent(name, *parent));
  if (options.priority < GPUSHARE_PRIORITY_UNSET || options.priority > GPUSHARE_PRIORITY_LOW) {
    return absl::InvalidArgumentError(absl::StrCat("tenant priority: ", options.priority,
                                                   " given, 0 (unset) to 3 (low) allowed"));
  }
  if (options.labels == nullptr && options.label_count != 0) {
    return absl::InvalidArgumentError("tenant labels: null with a count above 0");
  }
  std::map<std::string, std::string> labels;
  for (size_t i = 0; i < options.label_count; ++i) {
    const gpushare_label& label = options.labels[i];
    if (label.key == nullptr || label.value == nullptr) {
      return absl::InvalidArgumentError("tenant labels: a key or value is null");
    }
    if (!labels.emplace(label.key, label.value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tenant labels: ", Quoted(label.key), " is given twice"));
    }
  }
  auto tenant = std::make_shared<Tenant>(name, static_cast<gpushare_priority>(options.priority),
                                         std::move(labels), parent);
  base::MutexLock lock(&mutex_);
  std::weak_ptr<Tenant>& place = tenants_[name];
  if (!place.expired()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "there is a tenant ", Quoted(name),
        " already; it may have a virtual device on each GPU: create one of that tenant"));
  }
  place = tenant;
  if (tenants_.size() >= sweep_at_) {
    std::erase_if(tenants_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<size_t>(2 * tenants_.size(), 64);
  }
  return tenant;
}

absl::Status Runtime::CheckParent(const std::string& name, const Tenant& parent) const {
  const std::string tenant = absl::StrCat("tenant ", Quoted(name), ": ");
  if (&parent == default_tenant_.get()) {
    return absl::InvalidArgumentError(
        absl::StrCat(tenant, "the default tenant cannot be its parent; create one that is"));
  }
  if (!Has(parent)) {
    return absl::InvalidArgumentError(
        absl::StrCat(tenant, "its parent ", Quoted(parent.name()), " is of another runtime"));
  }
  if (parent.parent() != nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        tenant, "its parent ", Quoted(parent.name()), " has a parent itself, ",
        Quoted(parent.parent()->name()),
        "; budgets inside budgets are one level deep: make that one the parent of both"));
  }
  return absl::OkStatus();
}

bool Runtime::Has(const Tenant& tenant) const {
  base::MutexLock lock(&mutex_);
  const auto at = tenants_.find(tenant.name());
  return at != tenants_.end() && at->second.lock().get() == &tenant;
}

absl::StatusOr<std::shared_ptr<VirtualDevice>> Runtime::DefaultDevice(Gpu& gpu) {
  const base::ClockLock opening(clock(), opening_);
  std::shared_ptr<Gpu> owner = FindGpu(gpu.ordinal());
  {
    base::MutexLock lock(&mutex_);
    if (closed_ || owner == nullptr) {
      return absl::FailedPreconditionError("the runtime has been destroyed");
    }
    const auto at = default_devices_.find(gpu.ordinal());
    if (at != default_devices_.end()) return at->second;
  }
  // The program may have made a device for the default tenant itself.
  if (std::shared_ptr<VirtualDevice> own = default_tenant_->DeviceOn(&gpu)) return own;
  gpushare_spec spec = DefaultSpec(gpu.ordinal(), gpu.capacity());
  // The GPU's books enforce the memory of the broker's share, and the gates its copy rates.
  if (broker_ != nullptr) {
    spec.set &= ~uint32_t{GPUSHARE_SPEC_MEMORY | GPUSHARE_SPEC_H2D | GPUSHARE_SPEC_D2H};
  }
  GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<VirtualDevice> device,
                            VirtualDevice::Create(std::move(owner), default_tenant_, spec));
  base::MutexLock lock(&mutex_);
  if (!closed_) default_devices_[gpu.ordinal()] = device;
  return device;
}

absl::StatusOr<std::optional<uint64_t>> Runtime::DefaultMemory(int ordinal) const {
  GPUSHARE_ASSIGN_OR_RETURN(const driver::Driver::DeviceInfo info, driver_->Describe(ordinal));
  GPUSHARE_ASSIGN_OR_RETURN(const Capacity capacity, CapacityOf(ordinal, info));
  GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                            spec::ResolveSpec(DefaultSpec(ordinal, capacity.bytes),
                                              default_tenant_->priority(), capacity.bytes));
  return QuotaOf(limits, capacity);
}

gpushare_spec Runtime::DefaultSpec(int ordinal, uint64_t capacity) const {
  if (shares_.empty()) return default_spec_;
  Share share = shares_[static_cast<size_t>(ordinal)];
  // The operator may have changed the limit since. A forked child has no session, and keeps the former limit.
  if (share.session != nullptr && share.session->Limit() > 0) {
    share.spec.memory = share.session->Limit();
  }
  return WithinReach(share, capacity);
}

}  // namespace gpushare::device
