// SPDX-License-Identifier: Apache-2.0
// Compares how long processes say that they ran on a GPU with what the driver saw.
//
//   TimeAudit audit;
//   audit.Add(claims, ran, now);              // often: the driver keeps only a process's latest sample
//   for (const auto& [process, finding] : audit.Judge(now)) ...  // at each audit
//
// The driver tells in which part of a sample's time any kernel of a process ran. Without MPS the GPU runs one process at
// a time, so an honest process claims at least this much. The driver does not tell the length of a sample; it is at least
// a sixth of a second, and is counted as that. Samples that were missed are not counted either. So the sum is a lower
// bound, and an honest process claims more.
//
// A process reports work only when the work is done. So a stretch lasts a second or more and ends only when something is
// done, and a finding needs three stretches in a row.
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
// Samples by GPU. A GPU is missing if the driver has no samples for it.
using Ran = std::map<std::string, std::vector<RanSample>>;

class TimeAudit {
 public:
  static constexpr Nanos kSample = Nanos(166'666'666);  // the least length of a sample
  static constexpr Nanos kShortest = Seconds(1);
  // A stretch with nothing done and something in flight goes on for this long: a kernel may take that long.
  static constexpr Nanos kLongest = Seconds(60);
  // Work done at the end of a stretch is reported within this time.
  static constexpr Nanos kLate = Millis(200);
  static constexpr double kFactor = 1.5, kOfDevice = 0.1;
  static constexpr int kInARow = 3;

  // The argument for the driver: by GPU, the time after which it is asked for samples.
  std::map<std::string, uint64_t> Since(const std::vector<std::string>& gpus) const;
  // `ran` must have been sampled before `claims`.
  void Add(const Claims& claims, const Ran& ran, Time now);
  // Ends the stretches that can end, and returns the findings: kUnderstatesTime or kRunsPastGpushare.
  Findings Judge(Time now);
  void Forget() { seen_.clear(); }

 private:
  struct Seen {
    uint64_t until_us = 0;  // end of the latest sample; 0: none yet
    Time begin{};           // beginning of the stretch
    Claim first, latest;
    int64_t ran_ns = 0;
    int in_a_row = 0;
    Finding finding;  // for the latest stretch that ended
  };
  static void End(Seen& seen, Nanos length);

  std::map<std::string, uint64_t> until_us_;  // end of the latest sample of any process, by GPU
  std::map<OnGpu, Seen> seen_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_TIME_AUDIT_H_
