// SPDX-License-Identifier: Apache-2.0
#include "harness/partitions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spec/text.h"

namespace gpushare::harness {
namespace {

constexpr double kRounding = 1e-6;

std::string Sms(const PartitionedDevice& device, size_t steps) {
  return absl::StrCat(steps * static_cast<size_t>(device.step));
}

// Apportions `total` steps as near to `ideal` as possible, by largest remainders, with at least one each.
void Apportion(const std::vector<double>& ideal, const std::vector<size_t>& whose, size_t total,
               std::vector<size_t>* steps) {
  size_t given = 0;
  for (const size_t i : whose) {
    (*steps)[i] = std::max<size_t>(1, static_cast<size_t>(ideal[i] + kRounding));
    given += (*steps)[i];
  }
  const auto lacks = [&](size_t i) { return ideal[i] - static_cast<double>((*steps)[i]); };
  const auto by_lack = [&](size_t a, size_t b) { return lacks(a) < lacks(b); };
  for (; given < total; ++given) ++(*steps)[*std::max_element(whose.begin(), whose.end(), by_lack)];
  for (; given > total; --given) {
    // Only a tenant with more than one step can lose one; there is one, since there are no more tenants than steps.
    size_t most = whose.front();
    for (const size_t i : whose) {
      if ((*steps)[i] > 1 && ((*steps)[most] == 1 || lacks(i) < lacks(most))) most = i;
    }
    if ((*steps)[most] == 1) return;
    --(*steps)[most];
  }
}

}  // namespace

absl::StatusOr<std::vector<size_t>> StepsOf(const std::vector<PartitionAsk>& asks,
                                            const PartitionedDevice& device) {
  if (asks.size() > device.steps) {
    return absl::UnimplementedError(absl::StrCat(asks.size(), " partitions; the device has ",
                                                 device.steps, " of ", device.step, " SMs"));
  }
  std::vector<size_t> steps(asks.size(), 0), shares, others;
  std::vector<double> ideal(asks.size(), 0);
  double promised = 0;
  for (size_t i = 0; i < asks.size(); ++i) {
    if (asks[i].share.has_value()) {
      ideal[i] = *asks[i].share * static_cast<double>(device.steps);
      promised += ideal[i];
      shares.push_back(i);
    } else if (asks[i].cap.has_value()) {
      const double wanted = *asks[i].cap * device.sms / device.step;
      // A cap is rounded up, and bounded by the device.
      steps[i] =
          std::clamp<size_t>(static_cast<size_t>(std::ceil(wanted - kRounding)), 1, device.steps);
    } else {
      others.push_back(i);
    }
  }
  if (!shares.empty()) {
    const auto all = static_cast<size_t>(std::llround(promised));
    Apportion(ideal, shares, std::max(all, shares.size()), &steps);
  }
  const size_t taken = std::accumulate(steps.begin(), steps.end(), size_t{0});
  if (taken + others.size() > device.steps) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < asks.size(); ++i) {
      parts.push_back(absl::StrCat(asks[i].name, " ", Sms(device, std::max<size_t>(steps[i], 1))));
    }
    return absl::UnimplementedError(absl::StrCat("what is promised does not fit into ",
                                                 Sms(device, device.steps),
                                                 " SMs: ", absl::StrJoin(parts, ", ")));
  }
  if (!others.empty()) {
    const size_t left = device.steps - taken;
    for (const size_t i : others) {
      ideal[i] = static_cast<double>(left) / static_cast<double>(others.size());
    }
    Apportion(ideal, others, left, &steps);
  }
  return steps;
}

std::string GreenSpec(const PartitionAsk& ask, size_t steps, const PartitionedDevice& device) {
  // Half a step less than the target, since gpushare rounds up to whole steps.
  const double compute = (static_cast<double>(steps) - 0.5) * device.step / device.sms;
  std::string spec =
      absl::StrCat("isolation=green,compute=", spec::FormatShare(std::round(compute * 1e6) / 1e6));
  if (ask.cap.has_value()) absl::StrAppend(&spec, ",cap=", spec::FormatShare(*ask.cap));
  return spec;
}

}  // namespace gpushare::harness
