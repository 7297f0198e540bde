// SPDX-License-Identifier: Apache-2.0
#include "broker/time_book.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace gpushare::broker {
namespace {

// ns. A larger step between two looks cannot be true.
constexpr int64_t kMostStep = 60'000'000'000;

// A process may report any debt. Without a process it is remembered for no longer than this.
constexpr Nanos kMostOwed = Seconds(24 * 3600);

sched::ArbiterOptions ArbiterOptionsOf(const TimeBook::Options& options,
                                       const TimeBook::Settings& settings) {
  sched::ArbiterOptions made;
  made.window = options.overlap;
  made.low_window = options.overlap / 4;
  made.high_band_window = options.overlap;
  made.min_commands = made.high_band_min_commands = 0;
  // `grant` is also what a used-up cap has to cover before it lets go again.
  made.grant = made.lone_grant = made.high_grant = settings.slice;
  made.sole_grant = Nanos(0);
  made.grant_commands = 1;
  made.slack = 2 * settings.slice;
  made.active_grace = Millis(2);
  // A process that has to be woken answers later than a thread.
  made.idle_budget = 0.03;
  made.anticipation = Micros(200);
  made.high_grace = Pauses().grace();
  made.idle_budget_depth = Millis(4);
  made.high_waits = settings.slice;
  made.high_waits_foreseen = options.believed;
  return made;
}

// Keeps sums of what pages say far from overflow.
constexpr int64_t kMostCounted = INT64_MAX / 16;
// The most in-flight time, in ns, for which a bypassing member closes the others; longer work is seen again at later looks.
constexpr int64_t kMostBypassing = 50'000'000;

// A tenant that uses at least half of the time in which it has the device does not keep it from others.
constexpr int64_t kUsesHalf = 2;
// For so many slices nothing is charged to one that does.
constexpr int kFree = 2;

// The growth of a counter on a page, limited to what can be true: it does not go back, nor grow by more than kMostStep.
int64_t Step(const std::atomic<int64_t>& counter, int64_t before) {
  const int64_t now = counter.load(std::memory_order_acquire);
  return now <= before || before >= kMostCounted ? 0 : std::min(now - before, kMostStep);
}

// Takes `ns` off what the member is charged, since they were `used` or are given back. `tell` is called with the part of each phase
// in which they were charged. A process uses its grants before what was charged beyond them: otherwise one that says that it has
// much in flight would get its grants back from the one phase, and pay for what it uses in the other.
template <typename Tell>
void TakeOff(TimeBook::Member& member, int64_t ns, bool used, const Tell& tell) {
  member.charged_ns -= ns;
  const auto take = [&](size_t phase) {
    const int64_t part = std::min(ns, member.charged_in[phase]);
    if (part == 0) return;
    member.charged_in[phase] -= part;
    ns -= part;
    tell(static_cast<sched::Phase>(phase), Nanos(part));
  };
  const auto of_grants = static_cast<size_t>(member.phase);
  if (used) take(of_grants);
  for (size_t phase = 0; phase < member.charged_in.size(); ++phase) {
    if (phase != of_grants) take(phase);
  }
  if (!used) take(of_grants);
}

// Whether the process does not know when its work in flight ends.
bool IsGuess(const TimeBook::Member& member) {
  return member.seat->usage->time_ends_ns.load(kRelaxed) == ipc::UsagePage::kGuess;
}

}  // namespace

TimeBook::TimeBook(const Options& options)
    : options_(options), arbiter_(ArbiterOptionsOf(options, settings_)) {}

void TimeBook::Configure(const Settings& settings) {
  settings_ = settings;
  floor_.SetPart(settings.floor);
  sched::ArbiterOptions options = ArbiterOptionsOf(options_, settings);
  options.high_grace = pauses_.grace();
  arbiter_.SetOptions(options);
}

TimeBook::Tenant* TimeBook::AddTenant(const sched::TenantLimits& limits, Time now,
                                      Collective* collective, Tenant* parent) {
  Tenant& tenant = tenants_.emplace_back();
  tenant.limits = limits;
  tenant.parent = parent;
  tenant.collective = collective;
  if (collective != nullptr) tenant.side = collective->Enter();
  tenant.id = arbiter_.Add(limits, now, parent == nullptr ? sched::kNoTenant : parent->id);
  by_id_[tenant.id] = &tenant;
  return &tenant;
}

void TimeBook::Update(Tenant* tenant, const sched::TenantLimits& limits, Time now,
                      Changed& changed) {
  tenant->limits = limits;
  arbiter_.Update(tenant->id, limits, now);
  for (Member& member : members_) {
    if (member.tenant == tenant || member.tenant->parent == tenant) SetLimits(member, changed);
  }
}

void TimeBook::RemoveTenant(Tenant* tenant, Time now) {
  if (tenant->collective != nullptr) tenant->collective->Leave(tenant->side);
  arbiter_.Remove(tenant->id, now);
  by_id_.erase(tenant->id);
  tenants_.remove_if([tenant](const Tenant& other) { return &other == tenant; });
}

Time TimeBook::ClearAt(const Tenant& tenant, Time now) const {
  Time clear = now;
  if (tenant.used_ns + tenant.paid_ns > 0)
    clear = std::max(clear, tenant.used_at + sched::ArbiterOptions().debt_horizon);
  const sched::TenantLimits& limits = tenant.limits;
  if (limits.cap >= 1) return clear;
  const Nanos missing = limits.cap_depth - arbiter_.View(tenant.id).cap_tokens;
  if (missing <= Nanos(0)) return clear;
  const double ns = std::ceil(static_cast<double>(missing.count()) / limits.cap);
  const auto most = static_cast<double>(kMostOwed.count());
  return std::max(clear, now + Nanos(static_cast<int64_t>(std::min(ns, most))));
}

void TimeBook::Suspend(Tenant* tenant, bool suspended, Time now, Changed& changed) {
  tenant->suspended = suspended;
  for (Member& member : members_) {
    if (member.tenant == tenant) SetLimits(member, changed);
  }
  Ask(*tenant, now);
}

void TimeBook::SetLimits(Member& member, Changed& changed) {
  const Tenant& tenant = *member.tenant;
  SetFlags(*member.seat, ipc::LimitsPage::kSuspended | ipc::LimitsPage::kBypass,
           (tenant.suspended ? uint32_t{ipc::LimitsPage::kSuspended} : 0u) |
               (Bypasses(tenant) ? uint32_t{ipc::LimitsPage::kBypass} : 0u),
           changed);
}

namespace {

// Those that divide the device, or their parent's part of it.
struct Dividing {
  double guaranteed = 0, weights = 0;
  void Add(double guarantee, double weight) {
    guaranteed += guarantee;
    weights += weight;
  }
  double PartOf(double guarantee, double weight, double cap, double whole) const {
    const double rest = std::max(0.0, whole - guaranteed) * weight / weights;
    return std::min({guarantee + rest, cap, whole});
  }
};

}  // namespace

// Wakes no process: these figures count only when the broker is gone.
void TimeBook::PublishParts() {
  Dividing device;
  std::map<const Tenant*, Dividing>
      families;  // by parent, with the parent itself as a child of weight 1
  for (const Tenant& tenant : tenants_) {
    if (tenant.members == 0) continue;
    const sched::TenantLimits& limits = tenant.limits;
    if (tenant.parent == nullptr) {
      device.Add(limits.guarantee, limits.weight);
      continue;
    }
    const auto [family, is_new] = families.try_emplace(tenant.parent);
    family->second.Add(limits.guarantee, limits.weight);
    if (is_new && tenant.parent->members > 0) family->second.Add(0, 1);
    if (is_new && tenant.parent->members == 0) {
      device.Add(tenant.parent->limits.guarantee, tenant.parent->limits.weight);
    }
  }
  const auto part_of = [&](const Tenant& tenant) {
    const Tenant& root = tenant.parent != nullptr ? *tenant.parent : tenant;
    const double part =
        device.PartOf(root.limits.guarantee, root.limits.weight, root.limits.cap, 1);
    const auto family = families.find(&root);
    if (family == families.end()) return part;
    const sched::TenantLimits& limits = tenant.limits;
    return tenant.parent == nullptr
               ? family->second.PartOf(0, 1, 1, part)
               : family->second.PartOf(limits.guarantee, limits.weight, limits.cap, part);
  };
  for (const Member& member : members_) {
    const double part = part_of(*member.tenant) / member.tenant->members;
    const auto ppm = static_cast<uint32_t>(std::clamp(part, 0.0, 1.0) * 1e6);
    std::atomic<uint32_t>& place = member.seat->limits->guarantee_ppm;
    if (place.load(kRelaxed) != ppm) place.store(ppm, kRelaxed);
  }
}

TimeBook::Member* TimeBook::Join(Tenant* tenant, Seat& seat, Time now, Changed& changed) {
  Member& member = members_.emplace_back(Member{.tenant = tenant, .seat = &seat, .looked_at = now});
  ++tenant->members;
  SetLimits(member, changed);
  arbiter_.Touch(tenant->id, now);
  return &member;
}

void TimeBook::Leave(Member* member, Time now, Changed& changed) {
  Tenant& tenant = *member->tenant;
  // Charges what the process used since the last look.
  Bypasses(tenant) ? ReadBypass(*member, now) : Read(*member, now, changed);
  // Work in flight runs to its end, so it is charged in full.
  Settle(*member, ChargedInFlight(*member), now);
  KeepCharged(*member, 0, now);
  --tenant.members;
  std::erase(tenant.line, member);
  members_.remove_if([member](const Member& other) { return &other == member; });
  Ask(tenant, now);
}

// ---- What a member says

int64_t TimeBook::ChargedInFlight(const Member& member) {
  return std::clamp<int64_t>(member.seat->usage->time_in_flight_ns.load(kRelaxed), 0,
                             member.charged_ns);
}

void TimeBook::Extend(Member& member, int64_t ns, Changed& changed) {
  member.granted_ns += ns;
  member.seat->limits->time_granted_ns.store(member.granted_ns, std::memory_order_release);
  changed.Add(*member.seat);
}

void TimeBook::Charge(Member& member, int64_t ns, Time now, Time ended) {
  const sched::Phase phase = arbiter_.Charge(member.tenant->id, Nanos(ns), now, ended);
  member.charged_ns += ns;
  member.charged_in[static_cast<size_t>(phase)] += ns;
}

// Use beyond what has been charged is charged now.
void TimeBook::Settle(Member& member, int64_t used, Time now, Time ended) {
  if (used == 0) return;
  const sched::TenantId tenant = member.tenant->id;
  const int64_t settled = std::min(used, member.charged_ns);
  TakeOff(member, settled, /*used=*/true, [&](sched::Phase phase, Nanos part) {
    arbiter_.Settle(tenant, phase, part, part, 0, now, ended);
  });
  if (used > settled) {
    arbiter_.Settle(tenant, member.phase, Nanos(0), Nanos(used - settled), 0, now, ended);
  }
  CountBeyond(*member.tenant, used - settled, now);
  member.ahead_ns = std::min(member.ahead_ns, member.charged_ns);
  member.used_ns += used;
  member.untrue_ns = std::max<int64_t>(0, member.untrue_ns - used);
  member.tenant->used_ns += used;
  member.tenant->used_at = now;
  member.tenant->ended = true;
  if (member.tenant->limits.band != sched::Band::kHigh) used_below_ns_ += used;
}

// Returns the charge beyond `ns` to the tenant.
void TimeBook::KeepCharged(Member& member, int64_t ns, Time now) {
  if (ns >= member.charged_ns) return;
  TakeOff(member, member.charged_ns - ns, /*used=*/false, [&](sched::Phase phase, Nanos part) {
    arbiter_.Return(member.tenant->id, phase, part, now);
  });
  member.untrue_ns += member.ahead_ns - std::min(member.ahead_ns, ns);
  member.ahead_ns = std::min(member.ahead_ns, ns);
}

// A command may be longer than the grant with which it began. The excess is charged as the command begins, not when it is
// reported: until then the device would count as free, and a cap would fill with time that cannot be used.
void TimeBook::ChargeAhead(Member& member, int64_t in_flight, Time now) {
  // A guess is believed for a shorter time: a command that never ends would keep the device from others for as long.
  const Nanos believed = IsGuess(member) ? options_.guess_charged : options_.believed;
  const int64_t more = std::min(in_flight, options_.believed.count()) - member.charged_ns;
  if (more <= 0 || now > member.until + believed) return;
  Charge(member, more, now);
  member.ahead_ns += more;
  CountBeyond(*member.tenant, more, now);
}

// What has lapsed is the tenant's again in the books, but the process still holds it. If it uses that, it has woken up: more of what
// it holds is charged once more, in proportion to what it used, since otherwise the device would be granted to another beside it.
// This ends for a tenant that has kept the device from others for a slice without using it.
void TimeBook::ChargeAgain(Member& member, int64_t used, int64_t unused, Time now) {
  if (used == 0 || Nanos(member.tenant->unused_ns) >= settings_.slice) return;
  const int64_t in_flight = ChargedInFlight(member);
  const int64_t more = std::min(unused, in_flight + kUsesHalf * used) - member.charged_ns;
  if (more <= 0) return;
  Charge(member, more, now);
  member.until = std::max(member.until, now + Nanos(member.charged_ns));
}

// A process that has the device while others wait has to use it. Otherwise a process that reports work in flight and then
// no use would stay furthest behind in its band, and get the next grant too.
void TimeBook::CountHeld(Member& member, int64_t used, Time now) {
  Tenant& tenant = *member.tenant;
  if (tenant.limits.band == sched::Band::kHigh) return;
  // The end of a command is mostly reported after the next process was granted the device, so the first use after that counts too.
  if (!member.in_the_way && !std::exchange(member.to_report, member.to_report && used == 0)) return;
  int64_t since = 0;
  if (member.in_the_way) {
    member.to_report = true;
    // While somebody waits there is a look in each slice. A longer time is one in which the broker was stopped, for which no
    // process pays.
    since = std::min(now - member.looked_at, settings_.slice).count();
  }
  // Nothing is counted against a process that uses half of the time, such as a program that waits for each of its kernels.
  tenant.unused_ns = std::max<int64_t>(0, tenant.unused_ns + since - kUsesHalf * used);
}

// The use of a long command is reported only at its end. So nothing is charged before something has ended or nothing of the tenant is
// in flight, nor for as long as what is in flight takes.
void TimeBook::ChargeHeld(Tenant& tenant, Time now) {
  const bool ended = std::exchange(tenant.ended, false);
  int64_t more = tenant.unused_ns - (kFree * settings_.slice).count();
  if (more <= 0) return;
  Nanos in_flight{0};
  for (const Member& member : members_) {
    if (member.tenant != &tenant) continue;
    const Nanos its(member.seat->usage->time_in_flight_ns.load(kRelaxed));
    in_flight = std::max(in_flight, std::min(its, options_.believed));
  }
  if (!ended && in_flight >= options_.overlap) return;
  more -= in_flight.count();
  if (more <= 0) return;
  tenant.unused_ns -= more;
  tenant.paid_ns += more;
  tenant.used_at = now;
  arbiter_.Settle(tenant.id, tenant.phase, Nanos(0), Nanos(more), 0, now);
}

void TimeBook::SetWaiting(Member& member, bool waiting, Time now) {
  if (waiting == member.waiting) return;
  member.waiting = waiting;
  if (waiting) {
    member.waits_since = now;
    member.tenant->line.push_back(&member);
  } else {
    std::erase(member.tenant->line, &member);
  }
  SetInLine(*member.seat, waiting);
}

// What is left to run of a member's grants, by the clock and by the process's prediction. nullopt: it cannot be told.
std::optional<int64_t> TimeBook::Left(const Member& member, Time now) const {
  const int64_t at = now.time_since_epoch().count();
  const int64_t in_flight = ChargedInFlight(member);
  // A closed member may not begin the rest of its grants.
  const int64_t to_begin = member.closed ? 0 : member.charged_ns - in_flight;
  if (in_flight == 0) return to_begin;
  const int64_t ends = member.seat->usage->time_ends_ns.load(kRelaxed);
  // Work that is late may take any time, and so may work whose predicted end keeps moving.
  if (now > member.until + options_.believed) return std::nullopt;
  if (Nanos(member.untrue_ns) > options_.believed) return std::nullopt;
  if (ends < at - options_.overlap.count() || ends > at + kMostStep) return std::nullopt;
  return to_begin + std::clamp<int64_t>(ends - at, 0, in_flight);
}

void TimeBook::Foresee(Time now) {
  int64_t left = 0;
  bool known = true, guess = false;
  for (const Member& member : members_) {
    if (member.tenant->limits.band == sched::Band::kHigh || member.charged_ns == 0) continue;
    // The process does not know when its work in flight ends; for some time it is believed that it will end.
    guess |=
        ChargedInFlight(member) > 0 && now <= member.until + options_.guessed && IsGuess(member);
    const std::optional<int64_t> its = Left(member, now);
    known &= its.has_value();
    left += its.value_or(0);
  }
  if (guess) {
    arbiter_.Await(now);
  } else if (known) {
    arbiter_.Foresee(now + Nanos(left), now);
  }
}

// When the high band will have used its grants; members for which that cannot be told count as done.
Time TimeBook::HighDone(Time now) const {
  int64_t left = 0;
  for (const Member& member : members_) {
    if (member.tenant->limits.band == sched::Band::kHigh) left += Left(member, now).value_or(0);
  }
  return now + Nanos(left);
}

void TimeBook::Read(Member& member, Time now, Changed& changed) {
  const ipc::UsagePage& usage = *member.seat->usage;
  // Read before the used time: a report in between may count a command twice, but cannot leave one out.
  const int64_t in_flight =
      std::clamp<int64_t>(usage.time_in_flight_ns.load(std::memory_order_acquire), 0, kMostStep);
  const int64_t used = Step(usage.time_used_ns, member.used_ns);
  Settle(member, used, now);
  CountHeld(member, used, now);
  const int64_t said = Step(usage.time_returned_ns, member.returned_ns);
  member.returned_ns += said;
  KeepCharged(member, member.charged_ns - std::min(said, member.charged_ns), now);
  // A grant that has lapsed in the books is still the process's. What it used beyond all its grants was charged to the tenant
  // as debt, so its grants are extended by that: the process need not pay it a second time.
  const int64_t unused =
      member.granted_ns + member.bypassed_ns - member.used_ns - member.returned_ns;
  if (unused < 0) Extend(member, -unused, changed);
  ChargeAhead(member, in_flight, now);
  const int64_t left = std::max<int64_t>(unused, 0) - in_flight;
  const int64_t grant = member.seat->limits->grant_ns.load(kRelaxed);
  if (left < std::min(usage.time_wanted_ns.load(kRelaxed), grant)) {
    // The rest is too little for the next command, so the device goes to another tenant when the work in flight is done.
    KeepCharged(member, in_flight, now);
  } else {
    ChargeAgain(member, used, unused, now);
  }
  const auto wants = [&] {
    const int64_t wanted = usage.time_wanted_ns.load();
    // A process that has asked stays in line, since it may not ask again. It may not hoard grants, and those that have lapsed
    // are still its.
    return wanted > 0 && unused < options_.most_charged * settings_.slice.count() &&
           (member.waiting || left <= 0 || left < std::max(std::min(wanted, grant), grant / 2));
  };
  SetWaiting(member, wants(), now);
  // A process that sees itself in line does not call. So look again after taking it out of the line: it may have begun to
  // want a grant in that instant.
  if (!member.waiting) SetWaiting(member, wants(), now);
}

// For a member that bypasses grants: it is charged for its work in flight, and then for what that took.
void TimeBook::ReadBypass(Member& member, Time now) {
  Tenant& tenant = *member.tenant;
  const ipc::UsagePage& usage = *member.seat->usage;
  int64_t in_flight = std::clamp<int64_t>(usage.time_in_flight_ns.load(std::memory_order_acquire),
                                          0, kMostBypassing);
  const int64_t used = Step(usage.time_used_ns, member.used_ns);
  member.bypassed_ns += used;
  if (member.held && !tenant.suspended && (!turn_ || turn_->over)) {
    // The work that was held is about to begin, so it counts as in flight.
    if (!turn_ && (in_flight > 0 || used > 0)) member.held = false;
    in_flight = std::max(in_flight, std::min(usage.time_wanted_ns.load(kRelaxed), kMostBypassing));
  }
  // The process reports when its work ended, so that others are let in earlier. The end cannot be before the last look. An older
  // library does not report it; then the work counts as ended now.
  const int64_t said = usage.time_ended_ns.load(kRelaxed);
  const Time ended =
      said == 0 ? now : std::clamp(Time(Nanos(said)), std::min(member.looked_at, now), now);
  if (used > 0) bypassed_until_ = std::max(bypassed_until_, ended);
  const auto charge = [&](int64_t ns, Time over) {
    if (ns > member.charged_ns) Charge(member, ns - member.charged_ns, now, over);
  };
  charge(used, ended);
  charge(used + in_flight, kNever);
  Settle(member, used, now, ended);
  KeepCharged(member, in_flight, now);
  SetWaiting(member, false, now);
}

// Learns how long the high band pauses, and thereby how long into a pause others are let in.
void TimeBook::LearnPause(Time now) {
  const bool bypassing = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return Bypasses(*member.tenant) && member.charged_ns > 0;
  });
  if (std::exchange(bypassing_, bypassing) || !bypassing || bypassed_until_ == Time{}) return;
  pauses_.Add(now - bypassed_until_);
  sched::ArbiterOptions options = arbiter_.options();
  options.high_grace = pauses_.grace();
  arbiter_.SetOptions(options);
}

void TimeBook::Lapse(Member& member, Time now) {
  const Nanos since = now - std::exchange(member.looked_at, now);
  if (member.charged_ns == 0) return;
  const int64_t in_flight = ChargedInFlight(member);
  // A closed member cannot use its grants, so that time does not count.
  if (member.closed && in_flight == 0) member.until += since;
  if (now < member.until + options_.overlap) return;
  // Work that never ends, or that is reported a nanosecond at a time, is not waited for.
  const bool waited_for = now < member.until + options_.waited_for;
  // The device is busy with its work.
  if (waited_for && Nanos(in_flight) >= options_.overlap) return;
  member.tenant->ended |= !waited_for;
  KeepCharged(member, waited_for ? in_flight : 0, now);
}

// ---- What is granted

void TimeBook::Ask(Tenant& tenant, Time now) {
  const bool wants = !tenant.line.empty() && !tenant.suspended && !tenant.held;
  if (wants == tenant.blocked) return;
  if (wants) {
    arbiter_.Block(tenant.id, settings_.slice, false, now);
  } else {
    arbiter_.Unblock(tenant.id, now);
  }
  tenant.blocked = wants;
}

void TimeBook::Give(Tenant& tenant, const sched::Grant& grant, Time now, Changed& changed) {
  tenant.blocked = false;
  Member& member = *tenant.line.front();
  member.phase = tenant.phase = grant.phase;
  tenant.waits.Add(now - member.waits_since);
  SetWaiting(member, false, now);
  member.charged_ns += grant.amount.count();
  member.charged_in[static_cast<size_t>(grant.phase)] += grant.amount.count();
  member.until = std::max(member.until, now) + grant.amount;
  member.seat->limits->grant_ns.store(grant.amount.count(), kRelaxed);
  Extend(member, grant.amount.count(), changed);
  arbiter_.Launched(tenant.id, 1, now);
  Ask(tenant, now);  // for the next process in the line
}

bool TimeBook::SetClosed(Member& member, bool closed, Changed& changed) {
  const bool begins = closed && !member.closed;
  if (begins && !member.tenant->held && (member.waiting || member.charged_ns > 0))
    ++member.tenant->preempted;
  member.closed = closed;
  SetFlags(*member.seat, ipc::LimitsPage::kClosed, closed ? uint32_t{ipc::LimitsPage::kClosed} : 0u,
           changed);
  return begins;
}

Time TimeBook::Look(Time now, Changed& changed) {
  PublishParts();
  for (Member& member : members_) {
    if (Bypasses(*member.tenant)) {
      ReadBypass(member, now);
      member.looked_at = now;
    } else {
      Read(member, now, changed);
      Lapse(member, now);
    }
  }
  LearnPause(now);
  const Time turn = TakeFloorTurn(now, changed);
  bool waits = false;
  Time passes = kNever;
  for (Tenant& tenant : tenants_) {
    ChargeHeld(tenant, now);
    Say(tenant, now);
    passes = std::min(passes, PassHeld(tenant, now, changed));
    Ask(tenant, now);
    waits |= tenant.blocked;
  }
  Foresee(now);
  const bool high = std::any_of(tenants_.begin(), tenants_.end(), [](const Tenant& tenant) {
    return tenant.limits.band == sched::Band::kHigh && tenant.members > 0 && !tenant.suspended;
  });
  bool shut_out = false, begins = false;
  Time next = kNever;
  for (;;) {
    grants_.clear();
    next = arbiter_.Run(now, grants_);
    if (grants_.empty()) break;
    for (const sched::Grant& grant : grants_) Give(*by_id_.at(grant.tenant), grant, now, changed);
  }
  const auto blocked = std::count_if(tenants_.begin(), tenants_.end(),
                                     [](const Tenant& tenant) { return tenant.blocked; });
  for (Member& member : members_) {
    const sched::TenantLimits& limits = member.tenant->limits;
    const bool closed =
        !Bypasses(*member.tenant) && (member.tenant->held || arbiter_.Closed(limits.band, now));
    member.in_the_way =
        !closed && member.charged_ns > 0 && blocked > (member.tenant->blocked ? 1 : 0);
    begins |= SetClosed(member, closed, changed);
    const bool below = high && limits.band != sched::Band::kHigh;
    SetFlags(*member.seat, ipc::LimitsPage::kBelow, below ? uint32_t{ipc::LimitsPage::kBelow} : 0u,
             changed);
    waits |= closed;
    // A closed member cannot use earlier grants either.
    shut_out |= closed && member.seat->usage->time_wanted_ns.load(kRelaxed) > 0;
  }
  // The arbiter learns only by a look that the work that shut it out is done. Until then the device would stay unused,
  // possibly for long if that tenant's cap is used up.
  if (shut_out) {
    const Time done = HighDone(now);
    next = std::min(next, done > now ? done : now + options_.look);
  }
  // A tenant that its cap has let go waits for the work in flight of others. How much that is shows only when they have read
  // that they are closed, and its end only by a look.
  if (arbiter_.Draining()) next = std::min(next, now + (begins ? options_.overlap : options_.look));
  next = std::min({next, passes, turn});
  // Bounds the number of looks whatever pages say.
  next = std::max(next, now + options_.overlap / 2);
  if (!waits) return next;
  // `next` is when a grant should be nearly used up. If that is far away, the pages are read before.
  return next - now <= settings_.slice ? next : now + options_.look;
}

const char* TimeBook::CheckInvariants() const {
  if (const char* broken = arbiter_.CheckInvariants(); *broken != '\0') return broken;
  for (const Tenant& tenant : tenants_) {
    int64_t charged = 0;
    int members = 0;
    for (const Member& member : members_) {
      if (member.tenant != &tenant) continue;
      charged += member.charged_ns;
      ++members;
      if (std::reduce(member.charged_in.begin(), member.charged_in.end()) != member.charged_ns) {
        return "what was charged by phases does not add up";
      }
      if (member.waiting != (std::count(tenant.line.begin(), tenant.line.end(), &member) == 1)) {
        return "who waits is not in its tenant's line once";
      }
    }
    if (members != tenant.members) return "a tenant's members do not add up";
    const sched::Arbiter::TenantView view = arbiter_.View(tenant.id);
    if (view.outstanding != Nanos(charged)) {
      return "the arbiter has other outstanding time than was granted";
    }
    if (view.charged != Nanos(tenant.used_ns + tenant.paid_ns + charged)) {
      return "a tenant was charged for something else than its use";
    }
    if (tenant.parent != nullptr && tenant.parent->parent != nullptr) {
      return "a parent has a parent";
    }
  }
  return nullptr;
}

}  // namespace gpushare::broker
