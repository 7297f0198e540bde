// SPDX-License-Identifier: Apache-2.0
#include "harness/spans.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {
namespace {

struct Edge {
  int64_t when;
  size_t tenant;
  double sms;  // change of the SMs held from here on
};

double SmsOf(const KernelSpan& span) {
  const int64_t took = std::max<int64_t>(span.last - span.first, 1);
  return static_cast<double>(std::max<int64_t>(span.ran, 1)) / static_cast<double>(took);
}

std::vector<Edge> EdgesOf(const std::vector<KernelSpans>& tenants) {
  std::vector<Edge> edges;
  for (size_t tenant = 0; tenant < tenants.size(); ++tenant) {
    for (const KernelSpan& span : tenants[tenant]) {
      const double sms = SmsOf(span);
      edges.push_back({span.first, tenant, sms});
      edges.push_back({std::max(span.last, span.first + 1), tenant, -sms});
    }
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return a.when < b.when; });
  return edges;
}

class Sweep {
 public:
  Sweep(size_t tenants, const SpanGrid& grid)
      : grid_(grid),
        moments_(static_cast<size_t>(grid.length / grid.step) + 1),
        held_(tenants, 0),
        running_(tenants, 0),
        used_(tenants, 0),
        told_(tenants) {
    for (auto& each : told_) each.reserve(moments_);
  }

  void Take(const Edge& edge) {
    const bool starts = edge.sms > 0;
    const bool idle = resident_ == 0;
    // A longer idle time is not charged to anybody.
    const bool starting =
        starts && idle && ran_ && edge.when - now_ <= kStartingPause.count() && !grid_.sm_time;
    if (starting) running_[edge.tenant] = 1, held_[edge.tenant] = 1, resident_ = 1;
    AdvanceTo(edge.when);
    if (starting) running_[edge.tenant] = 0, held_[edge.tenant] = 0, resident_ = 0;
    held_[edge.tenant] += edge.sms;
    if (starts) {
      ++running_[edge.tenant];
      ++resident_;
    } else {
      --resident_;
      if (--running_[edge.tenant] == 0)
        held_[edge.tenant] = 0;  // avoids accumulated rounding errors
    }
    ran_ = true;
  }

  std::vector<std::vector<int64_t>> Finish() {
    AdvanceTo(INT64_MAX);
    return std::move(told_);
  }

 private:
  void AdvanceTo(int64_t when) {
    while (told_.empty() == false && told_[0].size() < moments_) {
      const int64_t moment = static_cast<int64_t>(told_[0].size()) * grid_.step.count();
      if (moment > when) break;
      Spend(moment);
      for (size_t i = 0; i < told_.size(); ++i) told_[i].push_back(std::llround(used_[i]));
    }
    if (when != INT64_MAX) Spend(when);
  }

  void Spend(int64_t until) {
    // Time before the start does not count.
    const double elapsed =
        static_cast<double>(std::max<int64_t>(until, 0) - std::max<int64_t>(now_, 0));
    now_ = std::max(now_, until);
    if (resident_ == 0 || elapsed <= 0) return;
    double all = grid_.sms;
    if (!grid_.sm_time) {
      all = 0;
      for (const double each : held_) all += each;
    }
    for (size_t i = 0; i < used_.size() && all > 0; ++i) used_[i] += elapsed * held_[i] / all;
  }

  const SpanGrid grid_;
  const size_t moments_;
  std::vector<double> held_;
  std::vector<int> running_;
  int resident_ = 0;  // running kernels of all tenants
  bool ran_ = false;
  int64_t now_ = INT64_MIN;
  std::vector<double> used_;
  std::vector<std::vector<int64_t>> told_;
};

}  // namespace

void CutAway(std::vector<Away> away, KernelSpans* kernels) {
  if (away.empty()) return;
  std::sort(away.begin(), away.end(), [](const Away& a, const Away& b) { return a.from < b.from; });
  KernelSpans parts;
  parts.reserve(kernels->size() + away.size());
  for (const KernelSpan& kernel : *kernels) {
    const size_t before = parts.size();
    int64_t at = kernel.first, length = 0;
    const auto add = [&](int64_t until) {
      if (until <= at) return;
      length += until - at;
      parts.push_back({.first = at, .last = until});
    };
    // The intervals do not overlap, except by the difference between two SMs' clocks.
    auto next = std::partition_point(away.begin(), away.end(),
                                     [&](const Away& each) { return each.until <= kernel.first; });
    for (; next != away.end() && next->from < kernel.last; ++next) {
      add(std::min(next->from, kernel.last));
      at = std::max(at, next->until);
    }
    add(kernel.last);
    if (length == 0) {
      parts.push_back(kernel);
      continue;
    }
    int64_t passed = 0, ran = 0, cycles = 0, work = 0;
    const auto up_to_here = [&](int64_t whole) {
      return static_cast<int64_t>(static_cast<double>(whole) * static_cast<double>(passed) /
                                  static_cast<double>(length));
    };
    for (size_t i = before; i < parts.size(); ++i) {
      passed += parts[i].last - parts[i].first;
      parts[i].ran = up_to_here(kernel.ran) - ran, ran += parts[i].ran;
      parts[i].cycles = up_to_here(kernel.cycles) - cycles, cycles += parts[i].cycles;
      parts[i].work = up_to_here(kernel.work) - work, work += parts[i].work;
    }
  }
  *kernels = std::move(parts);
}

std::vector<std::vector<int64_t>> UsedOf(const std::vector<KernelSpans>& tenants,
                                         const SpanGrid& grid) {
  Sweep sweep(tenants.size(), grid);
  for (const Edge& edge : EdgesOf(tenants)) sweep.Take(edge);
  return sweep.Finish();
}

std::vector<std::vector<int64_t>> WorkDone(const std::vector<KernelSpans>& tenants,
                                           const SpanGrid& grid) {
  const auto moments = static_cast<size_t>(grid.length / grid.step) + 1;
  const int64_t step = grid.step.count(), end = static_cast<int64_t>(moments - 1) * step;
  std::vector<std::vector<int64_t>> told;
  for (const KernelSpans& spans : tenants) {
    std::vector<double> within(moments, 0);  // work in the step that ends at each moment
    for (const KernelSpan& each : spans) {
      const int64_t last = std::max(each.last, each.first + 1);
      const double per_ns = static_cast<double>(each.work) / static_cast<double>(last - each.first);
      for (int64_t at = std::max<int64_t>(each.first, 0); at < std::min(last, end);) {
        const int64_t until = std::min({last, end, (at / step + 1) * step});
        within[static_cast<size_t>(at / step) + 1] += per_ns * static_cast<double>(until - at);
        at = until;
      }
    }
    double done = 0;
    std::vector<int64_t>& its = told.emplace_back();
    for (const double each : within) its.push_back(std::llround(done += each));
  }
  return told;
}

double SmMhz(const std::vector<KernelSpans>& tenants) {
  double cycles = 0, ran = 0;
  for (const KernelSpans& spans : tenants) {
    for (const KernelSpan& each : spans) {
      cycles += static_cast<double>(each.cycles);
      ran += static_cast<double>(each.ran);
    }
  }
  return ran > 0 ? 1e3 * cycles / ran : 0;
}

absl::Status WriteSpans(const std::string& path, const std::vector<KernelSpans>& tenants) {
  std::ofstream file(path, std::ios::binary);
  const auto put = [&](const void* from, size_t bytes) {
    file.write(static_cast<const char*>(from), static_cast<std::streamsize>(bytes));
  };
  const uint64_t count = tenants.size();
  put(&count, sizeof(count));
  for (const KernelSpans& spans : tenants) {
    const uint64_t kernels = spans.size();
    put(&kernels, sizeof(kernels));
    put(spans.data(), kernels * sizeof(KernelSpan));
  }
  file.close();
  return file.good() ? absl::OkStatus()
                     : absl::UnavailableError(
                           absl::StrCat(path, ": the disk is full, or it cannot be written"));
}

absl::StatusOr<std::vector<KernelSpans>> ReadSpans(const std::string& path) {
  const auto cut = [&] { return absl::InternalError(absl::StrCat(path, ": it is not whole")); };
  // To open a pipe would wait for a writer.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return cut();
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file.good()) return cut();
  auto left = static_cast<uint64_t>(file.tellg());
  file.seekg(0);
  const auto take = [&](void* to, uint64_t bytes) {
    if (bytes > left) return false;
    left -= bytes;
    return static_cast<bool>(
        file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)));
  };
  uint64_t count = 0;
  if (!take(&count, sizeof(count)) || count > left / sizeof(uint64_t)) return cut();
  std::vector<KernelSpans> tenants(count);
  for (KernelSpans& spans : tenants) {
    uint64_t kernels = 0;
    if (!take(&kernels, sizeof(kernels)) || kernels > left / sizeof(KernelSpan)) return cut();
    spans.resize(kernels);
    if (!take(spans.data(), kernels * sizeof(KernelSpan))) return cut();
  }
  return tenants;
}

}  // namespace gpushare::harness
