// SPDX-License-Identifier: Apache-2.0
#include "shim/nvml_usage.h"

#include <algorithm>
#include <map>

#include "base/sync.h"
#include "shim/process.h"

namespace gpushare::shim::nvml {
namespace {

struct Sample {
  Time at;
  Nanos charged{0};
  double used = 0;  // fraction of the device's time up to `at`
};

class Samples {
 public:
  // The fraction of the device's time that was charged since the last sample. `charged` is the total charged so far.
  double Take(int ordinal, Time now, Nanos charged) {
    base::MutexLock lock(&mutex_);
    const auto [at, first] = samples_.try_emplace(ordinal, Sample{.at = Process::Get().since()});
    Sample& last = at->second;
    const Nanos window = now - last.at;
    if (window < kPeriod && !(first && window > Nanos(0))) return last.used;
    // A predicted charge may be taken back, so the difference can be negative.
    const double part =
        static_cast<double>((charged - last.charged).count()) / static_cast<double>(window.count());
    last = {.at = now, .charged = charged, .used = std::clamp(part, 0.0, 1.0)};
    return last.used;
  }

 private:
  base::Mutex mutex_;
  std::map<int, Sample> samples_ ABSL_GUARDED_BY(mutex_);  // by ordinal
};

}  // namespace

Used LookAtUse(const Found& found) {
  if (found.share == nullptr) return {};
  static Samples& samples = *new Samples;
  const gpushare_vdev_stats stats = found.share->Stats(Process::Get().Now());
  const double used = samples.Take(found.ordinal, Process::Get().Now(), Nanos(stats.charged_ns));
  return {.of_device = used, .of_share = std::min(used / stats.cap, 1.0)};
}

}  // namespace gpushare::shim::nvml
