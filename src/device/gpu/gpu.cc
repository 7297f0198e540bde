// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/gpu.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "books/books.h"
#include "device/memory/driver_pool.h"
#include "device/memory/memory_pool.h"
#include "device/memory/swappable_memory.h"
#include "device/process/runtime.h"
#include "device/process/scheduler.h"
#include "device/process/tenant.h"
#include "device/share/virtual_device.h"
#include "device/stream/poll.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

thread_local absl::Status close_report;

}  // namespace

Gpu::Gpu(std::shared_ptr<Runtime> runtime, int ordinal)
    : runtime_(std::move(runtime)),
      driver_(runtime_->driver()),
      ordinal_(ordinal),
      site_{.driver = driver_, .id = ContextScope::NewSite()} {}

absl::StatusOr<std::shared_ptr<Gpu>> Gpu::Open(std::shared_ptr<Runtime> runtime, int ordinal,
                                               const gpushare_scheduler_options* scheduler) {
  std::shared_ptr<Gpu> gpu(new Gpu(std::move(runtime), ordinal));
  GPUSHARE_RETURN_IF_ERROR(gpu->Start(scheduler));
  return gpu;
}

absl::Status Gpu::Start(const gpushare_scheduler_options* scheduler) {
  GPUSHARE_ASSIGN_OR_RETURN(number_, runtime_->Enlist(this));
  GPUSHARE_ASSIGN_OR_RETURN(info_, driver_.Describe(ordinal_));
  gate::EngineOptions options;
  options.sm_count = std::max(info_.sm_count, 1);
  options.recorder = recorder_;
  options.blocking_launches = base::GetEnv("CUDA_LAUNCH_BLOCKING").value_or("0") != "0";
  if (scheduler != nullptr) GPUSHARE_RETURN_IF_ERROR(ApplyScheduler(*scheduler, &options));
  scheduler_ = SchedulerInForce(options);
  engine_options_ = options;  // used for partitions as well
  GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<client::GpuSession> session,
                            runtime_->SessionOn(ordinal_, info_));
  if (session != nullptr) session->Enter();  // waits for the session's former user
  session_ = std::move(session);
  options.supply = session_;
  options.copy_supply = session_;
  partitions_ = std::make_unique<Partitions>(driver_, ordinal_, options.sm_count);

  GPUSHARE_ASSIGN_OR_RETURN(const Runtime::Capacity capacity,
                            runtime_->CapacityOf(ordinal_, info_));
  reserve_ = capacity.reserve;
  capacity_ = capacity.bytes;
  GPUSHARE_RETURN_IF_ERROR(StartBooks());
  GPUSHARE_ASSIGN_OR_RETURN(site_.context, driver_.RetainPrimaryContext(ordinal_));
  const ContextScope current(*this);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  // The engine only calls the driver, so the const_cast is safe.
  GPUSHARE_ASSIGN_OR_RETURN(
      engine_, gate::Engine::Create(const_cast<driver::Driver&>(driver_), site_.context, options));
  if (session_ != nullptr) {
    session_->SetFigures([engine = engine_.get()] {
      const gate::Engine::Totals all = engine->totals();
      return client::GpuSession::Figures{
          .launches = all.launches, .waits = all.waits, .throttled = all.throttled};
    });
    session_->SetOnTime([engine = engine_.get()] { engine->Supplied(); });
  }
  return absl::OkStatus();
}

absl::Status Gpu::StartBooks() {
  GPUSHARE_ASSIGN_OR_RETURN(unpromised_, quota::Account::Create(capacity_, std::nullopt, loans_));
  loans_.Join(*unpromised_);
  {
    base::MutexLock lock(&mutex_);
    books_.emplace(capacity_);
    limit_ = capacity_;
  }
  if (session_ == nullptr) return absl::OkStatus();
  unpromised_->SetSource(
      std::shared_ptr<quota::Source>(std::shared_ptr<void>(), static_cast<quota::Source*>(this)));
  session_->SetHolder(this);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<gate::Engine>> Gpu::NewEngine(int sm_count) {
  if (session_ != nullptr) {
    return absl::UnimplementedError(
        "isolation 'green': where a broker has the GPU's time, a process cannot divide its SMs; "
        "leave 'isolation' out, or use 'context'");
  }
  gate::EngineOptions options = engine_options_;
  options.sm_count = sm_count;
  GPUSHARE_ASSIGN_OR_RETURN(
      std::shared_ptr<gate::Engine> made,
      gate::Engine::Create(const_cast<driver::Driver&>(driver_), site_.context, options));
  std::shared_ptr<gate::Watchdog> watchdog;
  {
    base::MutexLock lock(&mutex_);
    std::erase_if(engines_, [](const auto& engine) { return engine.expired(); });
    engines_.push_back(made);
    watchdog = watchdog_;
  }
  if (watchdog != nullptr) static_cast<void>(made->Watch(watchdog));
  return made;
}

std::vector<std::shared_ptr<gate::Engine>> Gpu::Engines() const {
  std::vector<std::shared_ptr<gate::Engine>> engines;
  base::MutexLock lock(&mutex_);
  for (const auto& weak : engines_) {
    if (std::shared_ptr<gate::Engine> engine = weak.lock()) engines.push_back(std::move(engine));
  }
  return engines;
}

absl::Status Gpu::health() const {
  GPUSHARE_RETURN_IF_ERROR(engine_->health());
  for (const auto& engine : Engines()) GPUSHARE_RETURN_IF_ERROR(engine->health());
  return absl::OkStatus();
}

bool Gpu::Watch(const std::shared_ptr<gate::Watchdog>& watchdog) {
  if (!engine_->Watch(watchdog)) return false;
  {
    base::MutexLock lock(&mutex_);
    watchdog_ = watchdog;
  }
  // Without using host memory. From the last one down: those that others remove meanwhile move the rest down.
  for (size_t left = SIZE_MAX;;) {
    std::shared_ptr<gate::Engine> engine;
    {
      base::MutexLock lock(&mutex_);
      left = std::min(left, engines_.size());
      if (left == 0) return true;
      engine = engines_[--left].lock();
    }
    if (engine == nullptr) continue;
    static_cast<void>(engine->Watch(nullptr));
    static_cast<void>(engine->Watch(watchdog));
  }
}

absl::Status Gpu::TakeCloseReport() { return std::exchange(close_report, absl::OkStatus()); }

Gpu::~Gpu() {
  if (session_ != nullptr) {
    session_->SetOnTime(nullptr);
    session_->SetFigures(nullptr);
  }
  const bool told = engine_ != nullptr;
  engine_.reset();
  if (session_ != nullptr && told) session_->EngineEnds();
  bool abandoned = false;
  uint64_t bytes_left = 0;
  if (context() != nullptr) {
    const ContextScope current(*this);
    std::vector<VirtualDevice*> left;
    {
      base::MutexLock lock(&mutex_);
      // Releasing a child's last memory may end its parent, so all are held meanwhile.
      for (const auto& [tenant, device] : retired_) {
        if (device->TryHold()) left.push_back(device);
      }
    }
    // Freeing memory and releasing the context may wait in the driver for work that never ends, so wait for the work first, with
    // a bound.
    const Time deadline = clock().Now() + Nanos(static_cast<int64_t>(GPUSHARE_CLOSE_GRACE_NS));
    std::string running = unfinished_.Await(clock(), deadline);
    if (running.empty()) running = AwaitLateFrees(left, deadline);
    abandoned = !running.empty();
    bytes_left = GiveBackPools(/*give=*/!abandoned);
    for (VirtualDevice* device : left) bytes_left += GiveBack(*device, /*give=*/!abandoned);
    for (const std::shared_ptr<DriverPool>& pool : DriverPools()) {
      bytes_left += pool->Abandon(/*give=*/!abandoned);
    }
    for (VirtualDevice* device : left) device->Unhold();
    // A thread that is about to credit needs a moment, also if the deadline has passed.
    AwaitOthersFrees(std::max(deadline, clock().Now() + Millis(100)));
    if (abandoned) {
      close_report = absl::DeadlineExceededError(
          absl::StrCat("GPU ", ordinal_, " is closed, and work of ", running, " still runs after ",
                       GPUSHARE_CLOSE_GRACE_NS / 1'000'000'000, " s; its context and ",
                       spec::ReadableBytes(bytes_left),
                       " that nobody freed are left to the driver until the process ends"));
    }
  }
  if (session_ != nullptr) {
    session_->SetHolder(nullptr, bytes_left);
    session_->Leave();
  }
  if (number_ != 0) runtime_->Strike(number_);
  for (std::atomic<Chunk*>& chunk : slots_) delete[] chunk.load();
  ContextScope::Forget(site_);
  if (context() != nullptr && !abandoned) {
    static_cast<void>(driver_.ReleasePrimaryContext(ordinal_));
  }
}

std::string Gpu::AwaitLateFrees(const std::vector<VirtualDevice*>& devices, Time deadline) {
  books::Books& books = runtime_->books();
  for (;;) {
    books.Settle();
    std::string who;
    for (const VirtualDevice* device : devices) {
      const uint64_t bytes = books.LateBytesOf(&device->account());
      if (bytes == 0) continue;
      absl::StrAppend(&who, who.empty() ? "" : ", ", "tenant ", Quoted(device->tenant().name()),
                      " (", spec::ReadableBytes(bytes), " freed in a stream)");
    }
    const Time now = clock().Now();
    if (who.empty() || now >= deadline) return who;
    clock().SleepUntil(std::min(deadline, now + kPoll));
  }
}

void Gpu::AwaitOthersFrees(Time deadline) {
  const auto others = [&] {
    base::MutexLock lock(&mutex_);
    return !retired_.empty();
  };
  for (; others() && clock().Now() < deadline;) clock().SleepUntil(clock().Now() + kPoll);
}

uint64_t Gpu::GiveBackPools(bool give) {
  std::set<std::shared_ptr<MemoryPool>> pools;
  {
    base::MutexLock lock(&mutex_);
    for (const auto& [base, segment] : segments_) pools.insert(segment.pool);
  }
  uint64_t bytes_left = 0;
  for (const std::shared_ptr<MemoryPool>& pool : pools) bytes_left += pool->Abandon(give);
  return bytes_left;
}

uint64_t Gpu::GiveBack(VirtualDevice& device, bool give) {
  books::Books& books = runtime_->books();
  uint64_t bytes_left = 0;
  for (const auto& [pointer, allocation] : books.TakeAllOf(&device.account())) {
    if (give) {
      static_cast<void>(driver_.MemFree(pointer));
    } else {
      bytes_left += allocation.bytes;
    }
    device.Abandon(allocation.bytes);
  }
  for (const quota::Allocation& late : books.TakeLateOf(&device.account())) {
    if (!give) bytes_left += late.bytes;  // else they go with the context, which is lost
    device.Abandon(late.bytes);
  }
  for (const auto& [pointer, allocation] : unbooked_.TakeAllOf(&device.account())) {
    if (allocation.kind == quota::Kind::kMapping) {
      bytes_left += device.swappable()->Abandon(pointer, give);
      continue;
    }
    if (give) static_cast<void>(driver_.MemFree(pointer));
    device.Unhold();  // the pool's memory is credited with the pool
  }
  return bytes_left;
}

absl::Status Gpu::CheckSame(const gpushare_scheduler_options& options) const {
  gate::EngineOptions wanted;
  GPUSHARE_RETURN_IF_ERROR(ApplyScheduler(options, &wanted));
  if (SameScheduler(SchedulerInForce(wanted), scheduler_)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "GPU ", ordinal_, " is open with other scheduler options; they count at the first opening"));
}

driver::Result Gpu::FindFootprint(driver::Function function, const driver::LaunchShape& shape,
                                  uint64_t key, float* footprint) {
  if (footprints_.Find(key, footprint)) return driver::Result::kSuccess;
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  if (threads == 0 || threads > 1u << 16) return driver::Result::kInvalidValue;
  int blocks = 0;
  const driver::Result result =
      driver_.BlocksPerSm(&blocks, function, static_cast<int>(threads), shape.shared_bytes);
  if (result != driver::Result::kSuccess) return result;
  *footprint = gate::Footprint(shape, blocks, info_.concurrent_kernels ? info_.sm_count : 0);
  footprints_.Put(key, *footprint);
  return driver::Result::kSuccess;
}

}  // namespace gpushare::device
