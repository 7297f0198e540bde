// SPDX-License-Identifier: Apache-2.0
#include "gate/beside.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace gpushare::gate {
namespace {

// A command may delay the high band by at most this part of its own length, times how full the delay budget is. As the budget
// shrinks, it goes to the commands that cost the least delay.
constexpr double kWorth = 0.3;
// Time from a grant to a thread that does not sleep until its launch.
constexpr double kToLaunchNs = 4'000;
// The command, or those that it runs beside, may come this much earlier or later than predicted.
constexpr double kUnsureNs = 6'000;
// The command is launched at most this long before it is to begin, since more is known about what follows then.
constexpr double kAheadNs = 20'000;
// How many commands of each stream are looked at, and how many of their ends are tried as a better moment.
constexpr size_t kMostCommands = 64, kMostEnds = 8;
// A refused request is looked at again after this time whatever was foreseen, since more may have been launched meanwhile.
constexpr Nanos kLookAgain = Micros(100);
// A marker is seen at most this long after the end of the work that it closes.
constexpr Nanos kSeenIn = Micros(200);

}  // namespace

void Engine::Impl::SetDelay(TenantState& tenant) {
  const sched::TenantLimits& limits = tenant.options.limits;
  const double part = limits.band == sched::Band::kHigh ? limits.delay : 0;
  tenant.delay_budget.SetPart(part);
  looks_ahead |= part > 0;
}

bool Engine::Impl::LooksAhead::Prepare(Time now) {
  engine_.mu.AssertHeld();
  if (!engine_.looks_ahead || !engine_.arbiter.Closed(sched::Band::kNormal, now)) return false;
  for (TenantState* tenant : engine_.open_tenants) {
    if (tenant->options.limits.band == sched::Band::kHigh) engine_.SyncLaunches(*tenant, now);
  }
  return true;
}

bool Engine::Impl::LooksAhead::Admits(sched::TenantId id, Time now, Time* again) {
  engine_.mu.AssertHeld();
  const TenantState& tenant = *engine_.tenants[id];
  if (tenant.waiting.empty() || tenant.waiting.front()->stream == nullptr) return false;
  // The reconciler asks at each marker, and launching threads ask at each grant. While nothing has been seen to end, the
  // answer stays the same until `last.again`.
  const GrantRequest& request = *tenant.waiting.front();
  Look& last = engine_.last_look;
  if (last.began == request.began && last.tenant == id && last.seen == engine_.replay.now() &&
      now < last.again) {
    *again = last.again;
    return false;
  }
  try {
    const bool admits = Admit(request, now, again);
    last = {id, request.began, engine_.replay.now(),
            admits ? now : std::min(*again, now + kLookAgain)};
    *again = last.again;
    return admits;
  } catch (const std::bad_alloc&) {
    return false;  // it waits as if there were no delay budget
  }
}

// The greatest delay if the command, or those that it runs beside, come somewhat earlier or later. Between two commands of the
// high band there is a microsecond in which a wide kernel would get all SMs.
meter::Outlook::Delay Engine::Impl::LooksAhead::Worst(meter::Outlook& outlook,
                                                      meter::Outlook::Command command,
                                                      double most) {
  meter::Outlook::Delay worst = outlook.Of(command);
  for (const double off : {-kUnsureNs, 2 * kUnsureNs}) {
    if (!worst.known || worst.kept > most) break;
    command.not_before += off;
    const meter::Outlook::Delay other = outlook.Of(command);
    worst.known = other.known;
    worst.kept = std::max(worst.kept, other.kept);
  }
  return worst;
}

bool Engine::Impl::LooksAhead::Admit(const GrantRequest& request, Time now, Time* again) {
  engine_.mu.AssertHeld();
  absl::InlinedVector<TenantState*, 4> kept;
  const auto is_kept = [&](uint32_t id) {
    engine_.mu.AssertHeld();
    TenantState* tenant = engine_.tenants[id].get();
    if (tenant == nullptr || tenant->options.limits.band != sched::Band::kHigh) return false;
    if (std::find(kept.begin(), kept.end(), tenant) == kept.end()) kept.push_back(tenant);
    return true;
  };
  meter::Outlook& ahead = engine_.outlook;
  if (!engine_.replay.Look(request.stream->replay, is_kept, kMostCommands,
                           static_cast<double>(engine_.marker_cost.count()), ahead)) {
    return false;
  }
  Nanos left = kNoBound;
  double fill = 1;
  for (const TenantState* tenant : kept) {
    if (tenant->delay_budget.part() <= 0) return false;
    left = std::min(left, tenant->delay_budget.Left(now));
    fill = std::min(fill, tenant->delay_budget.Fill(now));
  }
  if (left < Nanos(0)) return false;

  const double footprint = static_cast<double>(request.footprint);
  meter::Outlook::Command command = {
      .length = static_cast<double>(request.length_ns),
      .groups = std::max(1, static_cast<int>(std::lround(footprint * engine_.options.sm_count)))};
  const double most = std::min(kWorth * fill * command.length, static_cast<double>(left.count()));
  // A thread that sleeps by then has to be woken first.
  const auto to_launch = [&](Time when) {
    engine_.mu.AssertHeld();
    const bool sleeps = when - request.began > engine_.options.spin;
    return kToLaunchNs + (sleeps ? static_cast<double>(engine_.wake_latency.count()) : 0);
  };
  const auto host = [&](double device_ns) {
    engine_.mu.AssertHeld();
    return std::max(engine_.HostTime(Nanos(static_cast<int64_t>(device_ns))), now + Micros(1));
  };
  const double launched = static_cast<double>(engine_.DeviceTime(now).count()) + to_launch(now);
  command.not_before = launched;
  const meter::Outlook::Delay delay = Worst(ahead, command, most);
  if (delay.known && delay.starts > launched + kAheadNs) {
    *again = host(delay.starts - kAheadNs);
    return false;
  }
  if (delay.known && delay.kept <= most) {
    const Time until = host(delay.ends) + kSeenIn;
    const Nanos by(static_cast<int64_t>(delay.kept));
    for (TenantState* tenant : kept) tenant->delay_budget.Reserve(by, until, now);
    return true;
  }
  // Looks for a begin as near behind an end as possible, but such that the command cannot come before that end, given how
  // unsure the times are.
  for (const double end : ahead.KeptEnds(launched, kMostEnds)) {
    const double at = end + kUnsureNs;
    command.not_before = at;
    const meter::Outlook::Delay then = Worst(ahead, command, most);
    *again = host(at - to_launch(host(at)));
    if (then.known && then.kept <= most) break;
  }
  return false;
}

}  // namespace gpushare::gate
