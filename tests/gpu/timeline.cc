// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/timeline.h"

#include <algorithm>
#include <cmath>

namespace gpushare::gpu_test {
namespace {

double Ns(absl::Duration d) { return absl::ToDoubleNanoseconds(d); }

// Device time used until `at_steps`, by linear interpolation between the samples.
double At(const std::vector<double>& used_ns, double at_steps) {
  const double last = static_cast<double>(used_ns.size()) - 1;
  const double clamped = std::clamp(at_steps, 0.0, last);
  const auto below = static_cast<size_t>(clamped);
  const size_t above = std::min(below + 1, used_ns.size() - 1);
  return used_ns[below] +
         (clamped - static_cast<double>(below)) * (used_ns[above] - used_ns[below]);
}

// The time at which a tenant's run starts or stops.
struct Edge {
  double when;
  size_t tenant;
  int change;
};

std::vector<Edge> EdgesOf(std::vector<KernelRun> runs, double overhead_ns) {
  std::sort(runs.begin(), runs.end(),
            [](const KernelRun& a, const KernelRun& b) { return a.start < b.start; });
  std::vector<Edge> edges;
  double busy_until = runs.front().start;
  for (const KernelRun& run : runs) {
    const double pause = run.start - busy_until;
    const double start = pause > 0 && pause <= overhead_ns ? busy_until : run.start;
    edges.push_back({start, run.tenant, +1});
    edges.push_back({std::max(run.end, start), run.tenant, -1});
    busy_until = std::max(busy_until, run.end);
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return a.when < b.when; });
  return edges;
}

}  // namespace

absl::Duration Timeline::length() const {
  return used_ns.empty() || used_ns[0].empty() ? absl::ZeroDuration()
                                               : step * static_cast<double>(used_ns[0].size() - 1);
}

absl::Duration Timeline::Used(size_t tenant, absl::Duration from, absl::Duration length) const {
  const std::vector<double>& of = used_ns[tenant];
  return absl::Nanoseconds(At(of, Ns(from + length) / Ns(step)) - At(of, Ns(from) / Ns(step)));
}

double Timeline::Share(size_t tenant, absl::Duration from, absl::Duration length) const {
  double all = 0;
  for (size_t t = 0; t < used_ns.size(); ++t) all += Ns(Used(t, from, length));
  return all > 0 ? Ns(Used(tenant, from, length)) / all : 0;
}

double Timeline::WorstShareError(size_t tenant, double want, absl::Duration skip) const {
  double worst = 0;
  for (absl::Duration at = skip; at + kWindow <= length(); at += step) {
    worst = std::max(worst, std::abs(Share(tenant, at, kWindow) - want));
  }
  return worst;
}

double Timeline::MostOfDevice(size_t tenant, absl::Duration skip) const {
  double most = 0;
  for (absl::Duration at = skip; at + kWindow <= length(); at += step) {
    most = std::max(most, OfDevice(tenant, at, kWindow));
  }
  return most;
}

double Timeline::LeastOfDevice(size_t tenant, absl::Duration skip) const {
  double least = 1;
  for (absl::Duration at = skip; at + kWindow <= length(); at += step) {
    least = std::min(least, OfDevice(tenant, at, kWindow));
  }
  return least;
}

int Timeline::Windows(absl::Duration skip) const {
  int windows = 0;
  for (absl::Duration at = skip; at + kWindow <= length(); at += step) ++windows;
  return windows;
}

double Timeline::OfDevice(size_t tenant, absl::Duration from, absl::Duration length) const {
  return Ns(Used(tenant, from, length)) / Ns(length);
}

Timeline TimelineOf(std::vector<KernelRun> runs, size_t tenants, absl::Duration step,
                    absl::Duration overhead) {
  Timeline timeline{step, std::vector<std::vector<double>>(tenants, std::vector<double>(1, 0.0))};
  if (runs.empty()) return timeline;
  std::vector<double> last_end(tenants, 0);
  for (const KernelRun& run : runs) {
    last_end[run.tenant] = std::max(last_end[run.tenant], run.end);
  }
  double end = 0;
  for (const double of_tenant : last_end) {
    if (of_tenant > 0 && (end == 0 || of_tenant < end)) end = of_tenant;
  }

  const std::vector<Edge> edges = EdgesOf(std::move(runs), Ns(overhead));
  const double origin = edges.front().when, step_ns = Ns(step);
  std::vector<int> running(tenants, 0);
  std::vector<double> used(tenants, 0);
  int all = 0;
  double now = origin, next_moment = origin + step_ns;
  const auto advance = [&](double to) {
    for (size_t t = 0; all > 0 && t < tenants; ++t) used[t] += (to - now) * running[t] / all;
    now = to;
  };
  for (const Edge& edge : edges) {
    while (edge.when >= next_moment && next_moment <= end) {
      advance(next_moment);
      for (size_t t = 0; t < tenants; ++t) timeline.used_ns[t].push_back(used[t]);
      next_moment += step_ns;
    }
    advance(edge.when);
    running[edge.tenant] += edge.change;
    all += edge.change;
  }
  return timeline;
}

}  // namespace gpushare::gpu_test
