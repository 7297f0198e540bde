// SPDX-License-Identifier: Apache-2.0
// How long processes say that they ran on a GPU, against what the driver saw run.
//
//   TimeAudit audit;
//   audit.Add(claims, ran, now);              // often: the driver keeps a process's latest sample alone
//   for (const auto& [process, finding] : audit.Judge(now)) ...  // at each audit
//
// The driver tells in which part of a sample's time any kernel of a process ran. Without MPS the GPU runs one process at
// a time, so that this is no more than what the process has to say of it. How long a sample is the driver does not tell;
// it is a sixth of a second at least, and as that it is counted here. What ran in samples that nobody saw is not counted
// either: the sum is a least, and who says the truth says more.
//
// What is done late is said late. So a stretch is a second or more, ends when something is done, and three have to bear
// it out, one after another.
//
// Pure: figures and time are arguments.
#ifndef GPUSHARE_BROKER_TIME_AUDIT_H_
#define GPUSHARE_BROKER_TIME_AUDIT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "broker/audit.h"

namespace gpushare::broker {

struct RanSample {
  int32_t pid = 0;
  uint64_t until_us = 0;  // by the driver's clock
  uint32_t percent = 0;
};
// By GPU; one that is missing the driver cannot tell of.
using Ran = std::map<std::string, std::vector<RanSample>>;

class TimeAudit {
 public:
  static constexpr Nanos kSample = Nanos(166'666'666);  // what a sample is at least
  static constexpr Nanos kShortest = Seconds(1);
  // So long one with nothing done and something in flight goes on: a kernel may take as long.
  static constexpr Nanos kLongest = Seconds(60);
  // What is done at the end of a stretch is said within this.
  static constexpr Nanos kLate = Millis(200);
  static constexpr double kFactor = 1.5, kOfDevice = 0.1;
  static constexpr int kInARow = 3;

  // What to ask the driver for: what it saw of each after that.
  std::map<std::string, uint64_t> Since(const std::vector<std::string>& gpus) const;
  // `ran` is of before `claims`.
  void Add(const Claims& claims, const Ran& ran, Time now);
  // Ends what stretches can end. Those that are found, kUnderstatesTime or kRunsPastGpushare.
  Findings Judge(Time now);
  void Forget() { seen_.clear(); }

 private:
  struct Seen {
    uint64_t until_us = 0;  // of the latest sample; 0: none yet
    Time begin{};           // of the stretch
    Claim first, latest;
    int64_t ran_ns = 0;
    int in_a_row = 0;
    Finding finding;  // of the latest stretch that ended
  };
  static void End(Seen& seen, Nanos length);

  std::map<std::string, uint64_t> until_us_;  // of the latest sample of anybody
  std::map<OnGpu, Seen> seen_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_TIME_AUDIT_H_
