// SPDX-License-Identifier: Apache-2.0
#include "workload/iteration.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gpushare::workload {
namespace {

// The Z algorithm on the reversed `kernels`: [i] is the length of the longest common prefix of the reversed sequence from i on
// with the whole. [0] is the number of kernels.
std::vector<size_t> Backwards(const std::vector<TraceKernel>& kernels) {
  const size_t count = kernels.size();
  const auto same = [&](size_t a, size_t b) {
    const TraceKernel &one = kernels[count - 1 - a], &other = kernels[count - 1 - b];
    return one.name == other.name && one.sms == other.sms;
  };
  std::vector<size_t> lengths(count, 0);
  if (count > 0) lengths[0] = count;
  size_t begin = 0, end = 0;  // the match found so far that reaches furthest
  for (size_t i = 1; i < count; ++i) {
    size_t length = i < end ? std::min(end - i, lengths[i - begin]) : 0;
    while (i + length < count && same(length, i + length)) ++length;
    lengths[i] = length;
    if (i + length > end) begin = i, end = i + length;
  }
  return lengths;
}

}  // namespace

absl::StatusOr<Iteration> LastIteration(const KernelTrace& trace) {
  const std::vector<TraceKernel>& kernels = trace.kernels();
  const std::vector<size_t> lengths = Backwards(kernels);
  const auto least = static_cast<size_t>(kLeastRepeats);
  // The optimizer at the end of each iteration may be many identical kernels. The sequence that reaches back furthest is the
  // iteration.
  size_t period = 0, furthest = 0;
  for (size_t each = 1; each * least <= kernels.size(); ++each) {
    if (lengths[each] < each * (least - 1) || each + lengths[each] <= furthest) continue;
    period = each;
    furthest = each + lengths[each];
  }
  if (period == 0) {
    return absl::NotFoundError(absl::StrCat("no sequence of kernels stands ", kLeastRepeats,
                                            " times at the end of the ", kernels.size(),
                                            " that were recorded"));
  }
  const size_t repeats = furthest / period;
  Iteration found{.trace = KernelTrace(trace.label()), .repeats = static_cast<int64_t>(repeats)};
  std::vector<Nanos> took(repeats);
  for (size_t i = kernels.size() - period; i < kernels.size(); ++i) {
    for (size_t repeat = 0; repeat < repeats; ++repeat) {
      took[repeat] = kernels[i - repeat * period].duration;
    }
    const auto median = took.begin() + static_cast<std::ptrdiff_t>((repeats - 1) / 2);
    std::nth_element(took.begin(), median, took.end());
    found.trace.Add(trace.name_of(kernels[i]), kernels[i].bound, kernels[i].sms, *median);
  }
  return found;
}

}  // namespace gpushare::workload
