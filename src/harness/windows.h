// SPDX-License-Identifier: Apache-2.0
// The windows of a run over which shares are measured, and the tenants for which each one counts. A window begins at each sample
// after the warm-up.
//
//   const Windows windows(scenario, one_case, outcome);
//   windows.Each([&](Span window) { if (windows.HadWork(i, window)) ... Used(outcome.tenants[i], window) ... });
#ifndef GPUSHARE_HARNESS_WINDOWS_H_
#define GPUSHARE_HARNESS_WINDOWS_H_

#include <cstddef>
#include <vector>

#include "harness/plan.h"
#include "harness/scenario.h"

namespace gpushare::harness {

// A range of samples; sample 0 is at time 0.
struct Span {
  size_t first, last;
  double ns() const { return static_cast<double>((last - first) * kSample.count()); }
};

// Device time within the span.
double Used(const TenantOutcome& tenant, Span span);
double UsedByAll(const Outcome& outcome, Span span);

class Windows {
 public:
  Windows(const Scenario& scenario, const Case& one, const Outcome& outcome);

  // Everything after the warm-up; empty if the run ended before.
  Span measured() const { return measured_; }

  template <typename Body>
  void Each(const Body& body) const {
    for (size_t first = measured_.first; first + length_ <= measured_.last; ++first) {
      body(Span{first, first + length_});
    }
  }
  size_t count() const;

  // Whether a tenant had work throughout the span. A tenant that serves requests has work while some wait or are being served.
  bool HadWork(size_t tenant, Span span) const;
  bool AllHadWork(Span span) const;

 private:
  size_t length_;
  Span measured_{};
  std::vector<std::vector<size_t>>
      without_;  // by tenant: the number of samples without work among the first i
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_WINDOWS_H_
