// SPDX-License-Identifier: Apache-2.0
// A device that two streams share. Kernels are groups of blocks with one SM each. Free SMs go to the ready kernel with the
// greater priority, or else to the older one. Groups are not preempted (docs/simulator.md has the same rule). There is no host,
// no noise and no driver: the model shows what a schedule can achieve at all.
//
//   Model model(132, {&service, &job}, /*service_first=*/true);
//   model.Give(kService, kernels, now);        // adds so many of its kernels
//   while (model.NextEnd() < until) model.Step(model.NextEnd());
//
// A value: a copy runs independently, which is how to look ahead. Times are in microseconds.
#ifndef GPUSHARE_BENCH_BESIDE_MODEL_H_
#define GPUSHARE_BENCH_BESIDE_MODEL_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

namespace gpushare::bench {

struct Kernel {
  double us;  // duration when alone
  int sms;    // groups, one SM each
};
using Network = std::vector<Kernel>;

enum Who { kService, kJob };
inline constexpr double kNeverUs = std::numeric_limits<double>::infinity();

class Model {
 public:
  Model(int sms, std::array<const Network*, 2> networks, bool service_first)
      : sms_(sms), free_(sms), service_first_(service_first) {
    for (size_t i = 0; i < 2; ++i) streams_[i].network = networks[i];
  }

  void Give(Who who, size_t kernels, double now) {
    Stream& stream = streams_[who];
    if (stream.left == 0) stream.ready = now;
    stream.left += kernels;
    Place(now);
  }

  size_t left(Who who) const { return streams_[who].left; }  // given and not done
  size_t done(Who who) const { return streams_[who].done; }
  const Kernel& next(Who who) const {  // the first that is not done, or not given
    const Network& network = *streams_[who].network;
    return network[streams_[who].done % network.size()];
  }
  double work_us(Who who) const { return streams_[who].work_us; }
  double used_us(Who who) const { return streams_[who].used_us; }  // summed over the SMs held
  double NextEnd() const {
    double next = kNeverUs;
    for (const Group& group : groups_) next = std::min(next, group.end);
    return next;
  }

  // Advances time to `to`, which must not be later than NextEnd().
  void Step(double to) {
    const int held = sms_ - free_;
    for (Stream& stream : streams_) {
      if (stream.held > 0) stream.used_us += (to - now_) * stream.held / held;
    }
    now_ = to;
    for (size_t i = 0; i < groups_.size();) {
      if (groups_[i].end > to) {
        ++i;
        continue;
      }
      const Group group = groups_[i];
      groups_[i] = groups_.back();
      groups_.pop_back();
      End(group);
    }
    Place(to);
  }

 private:
  struct Stream {
    const Network* network = nullptr;
    size_t left = 0, done = 0;
    double ready = 0, work_us = 0, used_us = 0;
    bool started = false;
    int waiting = 0, held = 0;  // groups of the kernel whose turn it is
  };
  struct Group {
    double end;
    Who who;
    int count;
  };

  void End(const Group& group) {
    Stream& stream = streams_[group.who];
    stream.held -= group.count;
    free_ += group.count;
    if (stream.waiting > 0 || stream.held > 0) return;
    stream.work_us += (*stream.network)[stream.done % stream.network->size()].us;
    ++stream.done;
    --stream.left;
    stream.started = false;
    stream.ready = now_;
  }

  void Place(double now) {
    const bool service = service_first_ || streams_[kService].ready <= streams_[kJob].ready;
    for (const Who who : {service ? kService : kJob, service ? kJob : kService}) {
      Stream& stream = streams_[who];
      if (stream.left == 0 || (stream.started && stream.waiting == 0) || free_ == 0) continue;
      const Kernel& kernel = next(who);
      if (!stream.started) stream.waiting = kernel.sms;
      stream.started = true;
      const int count = std::min(free_, stream.waiting);
      stream.waiting -= count;
      stream.held += count;
      free_ -= count;
      const int waves = (kernel.sms + sms_ - 1) / sms_;
      groups_.push_back({now + kernel.us / waves, who, count});
    }
  }

  int sms_, free_;
  bool service_first_;
  double now_ = 0;
  std::array<Stream, 2> streams_;
  std::vector<Group> groups_;
};

}  // namespace gpushare::bench

#endif  // GPUSHARE_BENCH_BESIDE_MODEL_H_
