// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/sched/harness.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpushare::sched {
namespace {
constexpr Nanos kSamplePeriod = Millis(10);
constexpr size_t kQueueDepth = 1024;
double Ns(Nanos n) { return static_cast<double>(n.count()); }
Nanos ToNanos(double ns) { return Nanos(std::llround(ns)); }
double Unit(std::mt19937_64& r) { return std::generate_canonical<double, 53>(r); }
}  // namespace

Harness::Harness(const HarnessOptions& options, std::vector<HarnessTenant> tenants)
    : options_(options),
      arbiter_(options.arbiter),
      sms_(options.sms > 0 ? options.sms : 1),
      free_sms_(sms_) {
  for (size_t i = 0; i < tenants.size(); ++i) {
    Tenant t;
    t.spec = std::move(tenants[i]);
    t.random.seed(options.seed * 1000 + i);
    t.noise.seed(options.seed * 1000 + 300 + i);
    t.arrivals.seed(options.seed * 1000 + 600 + i);
    const size_t parent = t.spec.parent;
    t.id = arbiter_.Add(t.spec.limits, Time(Nanos(0)),
                        parent == SIZE_MAX ? kNoTenant : tenants_[parent].id);
    tenants_.push_back(std::move(t));
  }
  for (size_t i = 0; i < tenants_.size(); ++i) {
    const HarnessTenant& spec = tenants_[i].spec;
    tenants_[i].active = spec.start == Nanos(0);
    if (spec.mode == HarnessTenant::Mode::kRequests) {
      Push(spec.start + Micros(static_cast<int64_t>(13 * i)), What::kArrival, i);
    } else if (spec.start == Nanos(0)) {
      tenants_[i].host = Host::kBusy;
      Push(Micros(static_cast<int64_t>(7 * i)), What::kHost, i);
    } else {
      At(spec.start, [this, i] { SetActive(i, true); });
    }
    if (spec.stop != Nanos::max()) At(spec.stop, [this, i] { SetActive(i, false); });
  }
  Push(Nanos(0), What::kSample, 0);
}

void Harness::Push(Nanos at, What what, size_t who, uint64_t a) {
  events_.push({at, ++order_, what, who, a});
}
void Harness::At(Nanos t, std::function<void()> action) {
  actions_.push_back(std::move(action));
  Push(t, What::kAction, 0, actions_.size() - 1);
}
Nanos Harness::Draw(Tenant& t, Nanos lo, Nanos hi) {
  return lo + ToNanos(Ns(hi - lo) * Unit(t.random));
}
Nanos Harness::Duration(const Tenant& t) const {
  return t.spec.kernels[t.position % t.spec.kernels.size()];
}
Nanos Harness::Predicted(const Tenant& t) const { return ToNanos(Ns(Duration(t)) * t.spec.bias); }

void Harness::RunUntil(Nanos until) {
  while (!events_.empty() && events_.top().at <= until) {
    const Event e = events_.top();
    events_.pop();
    Advance(e.at);
    Tenant& t = tenants_[e.who];
    switch (e.what) {
      case What::kHost:
        Step(e.who);
        break;
      case What::kUnits:
        UnitsDone(e.who, static_cast<int>(e.a));
        break;
      case What::kAck: {
        const Batch batch = t.done.front();
        t.done.pop_front();
        if (t.registered) {
          arbiter_.Settle(t.id, batch.phase, batch.predicted, ToNanos(batch.used), batch.commands,
                          time());
        }
        Decide();
        break;
      }
      case What::kTimer:
        if (e.a == timer_) Decide();
        break;
      case What::kWake:
        if (t.host == Host::kWaking && t.wake_token == e.a) {
          t.host = Host::kBusy;
          Step(e.who);
        }
        break;
      case What::kArrival: {
        const double work =
            Ns(std::accumulate(t.spec.kernels.begin(), t.spec.kernels.end(), Nanos(0))) *
            t.spec.repeat;
        Push(now_ + ToNanos(-std::log(1 - Unit(t.arrivals)) * work / t.spec.load), What::kArrival,
             e.who);
        if (now_ < t.spec.stop) t.requests.push_back(now_);
        t.active = true;
        if (t.host == Host::kIdle) {
          t.host = Host::kBusy;
          Step(e.who);
        }
        break;
      }
      case What::kSample:
        for (Tenant& x : tenants_) x.samples.push_back(x.used);
        busy_samples_.push_back(busy_);
        Push(now_ + kSamplePeriod, What::kSample, 0);
        break;
      case What::kSynced:
        Synced(e.who);
        break;
      case What::kAction:
        actions_[e.a]();
        break;
    }
    if (options_.check_invariants && broken_.empty()) broken_ = arbiter_.CheckInvariants();
  }
  Advance(until);
}

// Splits the device time among the tenants that hold SMs, in proportion.
void Harness::Advance(Nanos to) {
  const double elapsed = Ns(to - now_);
  const int held = sms_ - free_sms_;
  if (held > 0) {
    busy_ += elapsed;
    for (Tenant& t : tenants_) t.used += elapsed * t.held / held;
  }
  now_ = to;
}

// ------------------------------------------------------------------------------------------- hosts

void Harness::Step(size_t i) {
  Tenant& t = tenants_[i];
  if (!t.active) {
    t.host = Host::kIdle;
    Mark(i);
    ReturnCredit(t);
    if (t.registered) arbiter_.Sync(t.id, time());
    Decide();
    return;
  }
  if (t.position == PassLength(t)) {
    if (t.spec.mode == HarnessTenant::Mode::kBacklog) {
      t.position = 0;
    } else {
      t.host = Host::kSyncing;
      Mark(i);
      ReturnCredit(t);
      if (t.registered) arbiter_.Sync(t.id, time());
      if (t.queue.empty()) Push(now_ + Draw(t, Micros(2), Micros(5)), What::kSynced, i);
      Decide();
      return;
    }
  }
  if (t.spec.mode == HarnessTenant::Mode::kRequests && t.position == 0) {
    if (t.requests.empty()) {
      t.host = Host::kIdle;
      return;
    }
    t.request_at = t.requests.front();
    t.requests.pop_front();
  }
  if (t.queue.size() >= kQueueDepth) {
    t.host = Host::kFull;
    return;
  }
  const Nanos predicted = Predicted(t);
  if (!t.registered) {
    Launch(i, predicted);
    return;
  }
  if (t.spec.limits.band == Band::kHigh) {
    const Phase phase = arbiter_.Charge(t.id, predicted, time());
    if (t.open.commands > 0 && t.open.phase != phase) Mark(i);
    t.phase = phase;
    for (Tenant& o : tenants_) {
      if (o.registered && o.spec.limits.band != Band::kHigh) ReturnCredit(o);
    }
    Launch(i, predicted);
    Decide();
    return;
  }
  if (t.credit >= predicted && !arbiter_.Closed(t.spec.limits.band, time())) {
    t.credit -= predicted;
    Launch(i, predicted);
    return;
  }
  Block(i, predicted);
}

void Harness::Block(size_t i, Nanos predicted) {
  Tenant& t = tenants_[i];
  Mark(i);
  ReturnCredit(t);
  t.host = Host::kBlocked;
  t.blocked_at = now_;
  arbiter_.Block(t.id, predicted, false, time());
  const size_t outer = launching_;
  launching_ = i;
  granted_now_ = false;
  Decide();
  const bool granted = granted_now_;
  launching_ = outer;
  granted_now_ = false;
  if (granted) {
    t.host = Host::kBusy;
    t.credit -= predicted;
    Launch(i, predicted);
  }
}

void Harness::Decide() {
  grants_.clear();
  const Time again = arbiter_.Run(time(), grants_);
  if (again != kNever) Push(again.time_since_epoch(), What::kTimer, 0, ++timer_);
  if (again == kNever) ++timer_;
  for (const Grant& g : grants_) {
    const size_t i = static_cast<size_t>(
        std::find_if(tenants_.begin(), tenants_.end(),
                     [&](const Tenant& t) { return t.registered && t.id == g.tenant; }) -
        tenants_.begin());
    Tenant& t = tenants_[i];
    t.credit += g.amount;
    t.phase = g.phase;
    t.longest_wait = std::max(t.longest_wait, now_ - t.blocked_at);
    if (i == launching_) {
      granted_now_ = true;
      continue;
    }
    const Nanos waited = now_ - t.blocked_at;
    t.host = Host::kWaking;
    t.wake_token = ++order_;
    const Nanos wake =
        waited < options_.spin ? Nanos(500) : Draw(t, options_.wake / 2, options_.wake * 3 / 2);
    Push(now_ + wake, What::kWake, i, t.wake_token);
  }
}

void Harness::Launch(size_t i, Nanos predicted) {
  Tenant& t = tenants_[i];
  const double normal =
      std::sqrt(-2 * std::log(1 - Unit(t.noise))) * std::cos(6.283185307 * Unit(t.noise));
  const double duration =
      Ns(Duration(t)) * std::exp(options_.noise * normal - options_.noise * options_.noise / 2);
  ++t.position;
  Command c;
  c.units = options_.sms > 0 ? t.spec.sms : 1;
  c.unit = std::max(Nanos(1), ToNanos(duration / std::ceil(double(c.units) / sms_)));
  c.predicted = predicted;
  c.number = ++t.launched;
  if (t.queue.empty()) {
    t.head_ready = now_;
    t.head_started = false;
  }
  t.queue.push_back(c);
  if (t.open.commands == 0) t.open.phase = t.phase;
  ++t.open.commands;
  t.open.predicted += predicted;
  t.open.last = c.number;
  t.host = Host::kBusy;
  // Records a marker where the host stops anyway (Mark in Step and Block), or every 100 us or 64 launches.
  if (t.open.predicted >= Micros(100) || t.open.commands >= 64) Mark(i);
  Push(now_ + Draw(t, t.spec.host_lo, t.spec.host_hi), What::kHost, i);
  Dispatch();
}

void Harness::Mark(size_t i) {
  Tenant& t = tenants_[i];
  if (t.open.commands == 0) return;
  if (t.registered && t.spec.limits.band != Band::kHigh) {
    arbiter_.Launched(t.id, t.open.commands, time());
  }
  t.marked.push_back(t.open);
  t.open = Batch();
  while (!t.marked.empty() && t.marked.front().last <= t.completed) BatchDone(i);
}

void Harness::BatchDone(size_t i) {
  Tenant& t = tenants_[i];
  Batch b = t.marked.front();
  t.marked.pop_front();
  b.used = t.used - t.metered;
  t.metered = t.used;
  t.done.push_back(b);
  // Acknowledgements of one stream come in order.
  Push(now_ + Draw(t, options_.ack_lo, options_.ack_hi), What::kAck, i);
}

void Harness::ReturnCredit(Tenant& t) {
  if (t.credit == Nanos(0)) return;
  if (t.registered) arbiter_.Return(t.id, t.phase, t.credit, time());
  t.credit = Nanos(0);
}

void Harness::Synced(size_t i) {
  Tenant& t = tenants_[i];
  t.position = 0;
  t.host = Host::kBusy;
  if (t.registered) arbiter_.Touch(t.id, time());
  if (t.spec.mode == HarnessTenant::Mode::kRequests) {
    if (t.request_at > Seconds(1)) t.latency_us.push_back(Ns(now_ - t.request_at) / 1e3);
    Step(i);
  } else {
    Push(now_ + Draw(t, t.spec.think_lo, t.spec.think_hi), What::kHost, i);
  }
}

void Harness::SetActive(size_t i, bool active) {
  Tenant& t = tenants_[i];
  if (t.active == active) return;
  t.active = active;
  if (active && t.host == Host::kIdle) {
    t.host = Host::kBusy;
    Push(now_, What::kHost, i);
  }
  if (!active && t.host == Host::kBlocked) {
    if (t.registered) arbiter_.Unblock(t.id, time());
    Step(i);
  }
}

void Harness::Update(size_t i, const TenantLimits& limits) {
  tenants_[i].spec.limits = limits;
  arbiter_.Update(tenants_[i].id, limits, time());
  Decide();
}

void Harness::Remove(size_t i) {
  Tenant& t = tenants_[i];
  arbiter_.Remove(t.id, time());
  t.registered = false;
  t.active = false;
  t.credit = Nanos(0);
  if (t.host == Host::kBlocked || t.host == Host::kWaking) t.host = Host::kIdle;
  Decide();
}

// ------------------------------------------------------------------------------------------ device

void Harness::Dispatch() {
  while (free_sms_ > 0) {
    Tenant* best = nullptr;
    size_t who = 0;
    for (size_t i = 0; i < tenants_.size(); ++i) {
      Tenant& t = tenants_[i];
      if (t.queue.empty() || (t.head_started && t.units_left == 0)) continue;
      if (best != nullptr) {
        const bool high = t.spec.limits.band == Band::kHigh;
        const bool best_high = best->spec.limits.band == Band::kHigh;
        if (high != best_high ? best_high : t.head_ready >= best->head_ready) continue;
      }
      best = &t;
      who = i;
    }
    if (best == nullptr) return;
    if (!best->head_started) {
      best->head_started = true;
      best->units_left = best->queue.front().units;
      best->units_out = 0;
    }
    const int n = std::min(free_sms_, best->units_left);
    best->units_left -= n;
    best->units_out += n;
    best->held += n;
    free_sms_ -= n;
    Push(now_ + best->queue.front().unit, What::kUnits, who, static_cast<uint64_t>(n));
  }
}

void Harness::UnitsDone(size_t i, int n) {
  Tenant& t = tenants_[i];
  t.units_out -= n;
  t.held -= n;
  free_sms_ += n;
  if (t.units_left == 0 && t.units_out == 0) {
    t.completed = t.queue.front().number;
    t.queue.pop_front();
    t.head_started = false;
    t.head_ready = now_;
    while (!t.marked.empty() && t.marked.front().last <= t.completed) BatchDone(i);
    if (t.host == Host::kSyncing && t.queue.empty()) {
      Push(now_ + Draw(t, Micros(2), Micros(5)), What::kSynced, i);
    }
    if (t.host == Host::kFull) {
      t.host = Host::kBusy;
      Push(now_ + Micros(1), What::kHost, i);
    }
  }
  Dispatch();
}

// ----------------------------------------------------------------------------------------- metrics

double Harness::Used(size_t i, Nanos from, Nanos to) const {
  const auto& s = tenants_[i].samples;
  return s[static_cast<size_t>(to / kSamplePeriod)] - s[static_cast<size_t>(from / kSamplePeriod)];
}

double Harness::WorstShareError(const std::vector<double>& shares, Nanos from, Nanos to,
                                Nanos window, bool absolute) const {
  double worst = 0;
  for (Nanos at = from; at + window <= to; at += kSamplePeriod) {
    double total = 0;
    for (size_t i = 0; i < tenants_.size(); ++i) total += Used(i, at, at + window);
    if (absolute) total = Ns(window);
    for (size_t i = 0; i < shares.size(); ++i) {
      worst = std::max(worst, std::abs(Used(i, at, at + window) / total - shares[i]) * 100);
    }
  }
  return worst;
}

double Harness::MostUsed(size_t i, Nanos from, Nanos to, Nanos window) const {
  double most = 0;
  for (Nanos at = from; at + window <= to; at += kSamplePeriod) {
    most = std::max(most, Used(i, at, at + window) / Ns(window));
  }
  return most;
}

double Harness::LeastUsed(size_t i, Nanos from, Nanos to, Nanos window) const {
  double least = 1;
  for (Nanos at = from; at + window <= to; at += kSamplePeriod) {
    least = std::min(least, Used(i, at, at + window) / Ns(window));
  }
  return least;
}

double Harness::Busy(Nanos from, Nanos to) const {
  return (busy_samples_[static_cast<size_t>(to / kSamplePeriod)] -
          busy_samples_[static_cast<size_t>(from / kSamplePeriod)]) /
         Ns(to - from);
}

double Harness::LatencyUs(size_t i, double quantile) const {
  std::vector<double> v = tenants_[i].latency_us;
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(quantile * static_cast<double>(v.size())))];
}

}  // namespace gpushare::sched
