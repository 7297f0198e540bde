// SPDX-License-Identifier: Apache-2.0
// A discrete-event simulation of a GPU and of the tenants' hosts, to drive an Arbiter without an engine.
//
// A host takes 3-5 us for each launch, spends its grants, records a marker where a grant ends, and learns of the
// marker's completion 5-20 us late. The meter is exact, so every error that a test sees is the arbiter's. The device
// is either serial (within a priority, the stream that became ready first runs first) or runs kernels side by side on
// the SMs that they hold. The same seed gives the same result.
//
//   Harness h({.seed = 7}, {{.limits = {.weight = 3}, .kernels = {Micros(14)}},
//                           {.limits = {.weight = 1}, .kernels = {Millis(1)}}});
//   h.RunUntil(Seconds(5));
//   EXPECT_LT(h.WorstShareError({0.75, 0.25}, Seconds(1), Seconds(5)), 1.0);
#ifndef GPUSHARE_TESTS_UNIT_SCHED_HARNESS_H_
#define GPUSHARE_TESTS_UNIT_SCHED_HARNESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "sched/arbiter.h"

namespace gpushare::sched {

// A simulated second takes up to a hundred times as long under a sanitizer and in debug builds, where the arbiter
// checks its books after every call. Tests then run fewer cases.
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSlowBuild = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif
#else
inline constexpr bool kSlowBuild = false;
#endif

struct HarnessTenant {
  enum class Mode {
    kBacklog,   // never waits for the device
    kSync,      // waits for the device after each pass over `kernels` x `repeat`, then thinks
    kRequests,  // the same passes, each started by a request; requests arrive as a Poisson process
  };
  TenantLimits limits{};
  std::vector<Nanos> kernels{};
  int repeat = 1;
  int sms = 1;  // SMs that its kernels can hold (only on a concurrent device)
  Mode mode = Mode::kBacklog;
  Nanos think_lo = Micros(300), think_hi = Micros(2000);
  double load = 0.2;  // kRequests: the device time asked for, as a fraction of the time
  double bias = 1;    // the factor by which predictions are wrong
  Nanos host_lo = Micros(3), host_hi = Micros(5);
  Nanos start{0};             // the host is active from `start` ...
  Nanos stop = Nanos::max();  // ... until `stop`; afterwards it is idle but registered
  size_t parent = SIZE_MAX;   // the index of an earlier tenant; SIZE_MAX: none
};

// A tenant that launches nothing itself, but is the parent of others.
inline HarnessTenant Parent(const TenantLimits& limits) {
  HarnessTenant parent;
  parent.limits = limits;
  parent.start = Nanos::max();
  return parent;
}

struct HarnessOptions {
  uint64_t seed = 7;
  int sms = 0;  // 0: a serial device
  ArbiterOptions arbiter{};
  Nanos ack_lo = Micros(5), ack_hi = Micros(20);
  Nanos spin = Micros(200), wake = Micros(20);
  double noise = 0.03;            // log-normal spread of durations
  bool check_invariants = false;  // check after every event, which is slow
};

class Harness {
 public:
  Harness(const HarnessOptions& options, std::vector<HarnessTenant> tenants);

  void RunUntil(Nanos t);
  // Calls `action` at `t`, before other events of that instant.
  void At(Nanos t, std::function<void()> action);

  Arbiter& arbiter() { return arbiter_; }
  Nanos now() const { return now_; }
  Time time() const { return Time(now_); }
  TenantId id(size_t tenant) const { return tenants_[tenant].id; }
  void Update(size_t tenant, const TenantLimits& limits);
  void Remove(size_t tenant);  // removes it from the arbiter's books, whatever it has in flight
  void SetActive(size_t tenant, bool active);  // makes it stop or continue launching
  size_t QueueLength(size_t tenant) const { return tenants_[tenant].queue.size(); }

  // Device time used in [from, to), from samples taken every 10 ms.
  double Used(size_t tenant, Nanos from, Nanos to) const;
  // The worst error in percentage points over windows in [from, to) that slide by 10 ms. Shares are relative to the
  // device time used by all tenants, or with `absolute` to the length of the window.
  double WorstShareError(const std::vector<double>& shares, Nanos from, Nanos to,
                         Nanos window = Seconds(1), bool absolute = false) const;
  double MostUsed(size_t tenant, Nanos from, Nanos to, Nanos window = Seconds(1)) const;
  double LeastUsed(size_t tenant, Nanos from, Nanos to, Nanos window = Seconds(1)) const;
  double Busy(Nanos from, Nanos to) const;  // fraction of the time in which anything runs
  double LatencyUs(size_t tenant, double quantile) const;  // of the requests after the first second
  Nanos longest_wait(size_t tenant) const { return tenants_[tenant].longest_wait; }
  const std::string& broken() const { return broken_; }

 private:
  enum class Host { kIdle, kBusy, kBlocked, kWaking, kSyncing, kFull };
  enum class What { kHost, kUnits, kAck, kTimer, kWake, kArrival, kSample, kSynced, kAction };
  struct Command {
    Nanos unit{0};  // how long a group of blocks runs
    int units = 1;
    Nanos predicted{0};
    uint64_t number = 0;
  };
  struct Batch {
    uint64_t last = 0;  // the number of its last command
    int commands = 0;
    Nanos predicted{0};
    double used_before = 0;
    double used = 0;
    Phase phase = Phase::kWeight;
  };
  struct Tenant {
    HarnessTenant spec;
    TenantId id = 0;
    bool registered = true, active = true;
    std::mt19937_64 random, noise, arrivals;
    Host host = Host::kIdle;
    size_t position = 0;
    std::deque<Nanos> requests;
    Nanos request_at{0}, blocked_at{0}, longest_wait{0};
    std::vector<double> latency_us;
    uint64_t wake_token = 0;
    // credit
    Nanos credit{0};
    Phase phase = Phase::kWeight;
    uint64_t launched = 0, completed = 0;
    Batch open;
    std::deque<Batch> marked, done;
    double metered = 0;  // device time handed out to batches so far
    // device stream
    std::deque<Command> queue;
    Nanos head_ready{0};
    bool head_started = false;
    int units_left = 0, units_out = 0, held = 0;
    double used = 0;
    std::vector<double> samples;
  };
  struct Event {
    Nanos at;
    uint64_t order;
    What what;
    size_t who;
    uint64_t a;
    bool operator<(const Event& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  void Push(Nanos at, What what, size_t who, uint64_t a = 0);
  Nanos Draw(Tenant& t, Nanos lo, Nanos hi);
  void Advance(Nanos to);
  void Step(size_t i);
  void Launch(size_t i, Nanos predicted);
  void Mark(size_t i);
  void ReturnCredit(Tenant& t);
  void Block(size_t i, Nanos predicted);
  void Decide();
  void Dispatch();
  void UnitsDone(size_t i, int n);
  void BatchDone(size_t i);
  void Synced(size_t i);
  Nanos Predicted(const Tenant& t) const;
  Nanos Duration(const Tenant& t) const;
  size_t PassLength(const Tenant& t) const {
    return t.spec.kernels.size() * static_cast<size_t>(t.spec.repeat);
  }

  HarnessOptions options_;
  Arbiter arbiter_;
  std::vector<Tenant> tenants_;
  std::priority_queue<Event> events_;
  std::vector<std::function<void()>> actions_;
  std::vector<Grant> grants_;
  uint64_t order_ = 0, timer_ = 0;
  Nanos now_{0};
  int sms_, free_sms_;
  double busy_ = 0;
  std::vector<double> busy_samples_;
  size_t launching_ = SIZE_MAX;  // the host whose Block is being decided
  bool granted_now_ = false;
  std::string broken_;
};

}  // namespace gpushare::sched

#endif  // GPUSHARE_TESTS_UNIT_SCHED_HARNESS_H_
