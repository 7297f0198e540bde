// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/session.h"

#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "cli/demo/api_port.h"
#include "cli/demo/tenant_memory.h"
#include "gpushare/allocator.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"

namespace gpushare::cli {
namespace {

// Turns std::bad_alloc into a status, since no exception may leave a thread.
template <typename Body>
absl::Status WithinMemory(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the host has no memory left for this");
  }
}

// One tenant with its objects and its results.
class Player {
 public:
  static absl::StatusOr<std::unique_ptr<Player>> Create(const OpenedGpu& opened,
                                                        const TenantPlan& plan) {
    GPUSHARE_ASSIGN_OR_RETURN(Tenant tenant, Tenant::Create(opened.runtime, {.name = plan.name}));
    GPUSHARE_ASSIGN_OR_RETURN(VirtualDevice device,
                              VirtualDevice::Create(opened.gpu, tenant, plan.spec));
    GPUSHARE_ASSIGN_OR_RETURN(Allocator allocator, Allocator::Create(device));
    GPUSHARE_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device));
    GPUSHARE_ASSIGN_OR_RETURN(LoadedProgram loaded, LoadProgram(opened.gpu, plan.trace));
    GPUSHARE_ASSIGN_OR_RETURN(const VirtualDevice::Memory memory, device.memory());
    return std::unique_ptr<Player>(new Player(plan, std::move(tenant), std::move(device),
                                              std::move(allocator), std::move(stream),
                                              std::move(loaded), memory.total));
  }

  const Stream& stream() const { return stream_; }
  const TenantPlan& plan() const { return plan_; }
  absl::StatusOr<VirtualDeviceStats> stats() const { return device_.stats(); }

  // Runs on the tenant's thread.
  void Run(const Runtime& runtime, Time start, Time end, std::atomic<bool>* stop) {
    status_ = WithinMemory([&]() -> absl::Status {
      ApiPort port(runtime, stream_);
      player::PlayOptions options;
      options.mode = plan_.mode;
      options.start = start;
      options.end = end;
      options.arrivals = plan_.arrivals;
      options.absences = plan_.absences;
      options.stop = stop;
      options.after_pass = [&] { return memory_.Continue(port.Now()); };
      const absl::Status started = memory_.Start(port.Now());
      return started.ok() ? Play(loaded_.program, options, port, &result_) : started;
    });
    if (!status_.ok()) stop->store(true);
  }

  // Valid after the thread has ended.
  const absl::Status& status() const { return status_; }
  player::PlayResult TakeResult() { return std::move(result_); }

 private:
  Player(const TenantPlan& plan, Tenant tenant, VirtualDevice device, Allocator allocator,
         Stream stream, LoadedProgram loaded, Bytes quota)
      : plan_(plan),
        tenant_(std::move(tenant)),
        device_(std::move(device)),
        allocator_(std::move(allocator)),
        loaded_(std::move(loaded)),
        stream_(std::move(stream)),
        memory_(plan.memory, allocator_, quota) {}

  const TenantPlan& plan_;
  Tenant tenant_;
  VirtualDevice device_;
  Allocator allocator_;
  LoadedProgram loaded_;
  Stream stream_;
  TenantMemory memory_;
  absl::Status status_;
  player::PlayResult result_;
};

class Session {
 public:
  Session(const OpenedGpu& opened, const std::vector<const TenantPlan*>& plans,
          const SessionOptions& options)
      : opened_(opened),
        plans_(plans),
        options_(options),
        truth_(opened.runtime, opened.probe.ordinal) {}

  // Runs on a thread of the runtime's clock, so that no tenant begins before all are created.
  absl::Status Conduct() {
    GPUSHARE_RETURN_IF_ERROR(CreatePlayers());
    const Time start = ToTime(opened_.runtime.Now()) + Millis(10);
    std::vector<Thread> threads;
    absl::Status status;
    for (auto& player : players_) {
      Player* const each = player.get();
      absl::StatusOr<Thread> thread = opened_.runtime.StartThread(each->plan().name, [=, this] {
        each->Run(opened_.runtime, start, start + options_.length, &stop_);
      });
      if (!thread.ok()) {
        status = thread.status();
        stop_.store(true);
        break;
      }
      threads.push_back(*std::move(thread));
    }
    if (status.ok()) status = Watch(start);
    if (!status.ok()) stop_.store(true);
    threads.clear();  // joins
    for (const auto& player : players_) {
      if (status.ok() && !player->status().ok()) status = AboutTenant(*player, player->status());
    }
    if (status.ok()) status = Collect();
    players_.clear();
    return status;
  }

  Outcome TakeOutcome() { return std::move(outcome_); }

 private:
  static absl::Status AboutTenant(const Player& player, const absl::Status& status) {
    return absl::Status(status.code(),
                        "tenant " + player.plan().name + ": " + std::string(status.message()));
  }

  absl::Status CreatePlayers() {
    for (const TenantPlan* plan : plans_) {
      absl::StatusOr<std::unique_ptr<Player>> player = Player::Create(opened_, *plan);
      if (!player.ok()) {
        return absl::Status(player.status().code(),
                            "tenant " + plan->name + ": " + std::string(player.status().message()));
      }
      players_.push_back(*std::move(player));
      truth_.SetAccount(players_.back()->stream(), static_cast<uint32_t>(players_.size()));
    }
    outcome_.step = options_.step;
    outcome_.tenants.resize(players_.size());
    // The device's accounts include earlier sessions.
    for (uint32_t i = 0; i < players_.size(); ++i) used_before_.push_back(truth_.Used(i + 1));
    busy_before_ = truth_.busy();
    return absl::OkStatus();
  }

  absl::Status Watch(Time start) {
    const Nanos length = options_.length;
    for (Nanos at{0}; at <= length && !stop_.load(); at += options_.step) {
      opened_.runtime.SleepUntil(FromTime(start + at));
      for (size_t i = 0; i < players_.size(); ++i) {
        GPUSHARE_ASSIGN_OR_RETURN(const VirtualDeviceStats stats, players_[i]->stats());
        TenantOutcome& outcome = outcome_.tenants[i];
        outcome.used_ns.push_back(truth_.Used(static_cast<uint32_t>(i) + 1) - used_before_[i]);
        outcome.metered_ns.push_back(absl::ToDoubleNanoseconds(stats.compute.measured));
      }
      const DeviceTruth::Busy busy = truth_.busy();
      outcome_.busy.push_back(
          {busy.time_ns - busy_before_.time_ns, busy.sm_ns - busy_before_.sm_ns});
      if (options_.progress) {
        options_.progress(static_cast<double>(at.count()) / static_cast<double>(length.count()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Collect() {
    for (size_t i = 0; i < players_.size(); ++i) {
      GPUSHARE_ASSIGN_OR_RETURN(outcome_.tenants[i].stats, players_[i]->stats());
      outcome_.tenants[i].play = players_[i]->TakeResult();
    }
    return absl::OkStatus();
  }

  const OpenedGpu& opened_;
  const std::vector<const TenantPlan*>& plans_;
  const SessionOptions& options_;
  const DeviceTruth truth_;
  std::vector<std::unique_ptr<Player>> players_;
  std::vector<double> used_before_;
  DeviceTruth::Busy busy_before_;
  std::atomic<bool> stop_{false};
  Outcome outcome_;
};

}  // namespace

absl::StatusOr<Outcome> RunTenants(const OpenedGpu& opened,
                                   const std::vector<const TenantPlan*>& plans,
                                   const SessionOptions& options) {
  Session session(opened, plans, options);
  absl::Status status;
  GPUSHARE_ASSIGN_OR_RETURN(Thread conductor, opened.runtime.StartThread("demo", [&] {
    status = WithinMemory([&] { return session.Conduct(); });
  }));
  conductor.Join();
  if (!status.ok()) return status;
  return session.TakeOutcome();
}

}  // namespace gpushare::cli
