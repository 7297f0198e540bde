// SPDX-License-Identifier: Apache-2.0
// The shapes by which the replay treats graphs: from launches of their kernels by themselves, or from a study.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {
namespace {

// A study records this many launches, or those within kLongestStudy. Later studies record up to four times as many.
constexpr int kStudied = 40, kMostTimesStudied = 2;
// Of graphs of more than kStudiedParts / kStudied kernels it records fewer, but at least kLeastStudied: such a graph is so long
// that many commands of others end beside each launch.
constexpr int kStudiedParts = 1280, kLeastStudied = 6;
constexpr Nanos kLongestStudy = Seconds(1);
// Launches between two studies of a graph, doubled each time.
constexpr uint64_t kBetweenStudies = 64;
constexpr int kMostDoublings = 12;
constexpr uint64_t kNeverStudied = std::numeric_limits<uint64_t>::max();
// Calls of a study that the reconciler works through in a row, which takes some 40 us.
constexpr size_t kCallsPerRound = 200;

int LaunchesToStudy(size_t kernels) {
  return std::clamp(kStudiedParts / std::max(static_cast<int>(kernels), 1), kLeastStudied,
                    kStudied);
}

// Whether all kernels fill the device. Such a graph leaves nothing to others whatever the lengths, so it needs no study.
bool FillDevice(const KernelsInGraph& graph) {
  return !graph.kernels.empty() &&
         std::all_of(graph.kernels.begin(), graph.kernels.end(), [](const KernelInGraph& kernel) {
           return MeanWidth(kernel.footprint) >= kFillsAsGraph;
         });
}

// Which of at most kMostKinds kinds each kernel is of, by `of(kernel)`; empty if there are more.
template <typename F>
meter::ShapeSearch::Kernels KindsBy(const std::vector<KernelInGraph>& kernels, const F& of) {
  meter::ShapeSearch::Kernels known;
  std::vector<uint64_t> kinds;
  for (const KernelInGraph& kernel : kernels) {
    const uint64_t key = of(kernel);
    const auto kind = std::find(kinds.begin(), kinds.end(), key) - kinds.begin();
    if (static_cast<size_t>(kind) == kinds.size()) kinds.push_back(key);
    if (kinds.size() > meter::GraphStudy::kMostKinds) return {};
    known.push_back({static_cast<uint32_t>(kind), kernel.footprint});
  }
  return known;
}

// The kinds of kernels whose lengths are searched. Where there are too many, all of like width are one: how long the graph
// holds how many SMs matters most. Empty if there are too many kernels.
meter::ShapeSearch::Kernels KindsOf(const std::vector<KernelInGraph>& kernels) {
  if (kernels.size() > meter::GraphStudy::kMostKernels) return {};
  meter::ShapeSearch::Kernels kinds =
      KindsBy(kernels, [](const KernelInGraph& kernel) { return kernel.key; });
  for (double a_step = 8; kinds.empty() && a_step >= 1; a_step /= 2) {
    kinds = KindsBy(kernels, [a_step](const KernelInGraph& kernel) {
      constexpr double kPositive = 64;
      return static_cast<uint64_t>(
          std::lround(kPositive + a_step * std::log2(static_cast<double>(kernel.footprint))));
    });
  }
  return kinds;
}

}  // namespace

KnownShape* KnownShapes::Find(uint64_t graph) {
  const auto found = shapes_.find(graph);
  return found != shapes_.end() ? &found->second : nullptr;
}

KnownShape& KnownShapes::For(uint64_t graph) {
  if (KnownShape* const known = Find(graph)) return *known;
  while (shapes_.size() >= kMostGraphs) {
    shapes_.erase(std::min_element(
        shapes_.begin(), shapes_.end(),
        [](const auto& a, const auto& b) { return a.second.kept < b.second.kept; }));
  }
  KnownShape& shape = shapes_[graph];
  Renew(shape);
  return shape;
}

void Engine::Impl::KeepLengths(TenantState& tenant, const Work& work,
                               const std::vector<float>& lengths) {
  const uint64_t graph = meter::CostModel::IdOf(work.key);
  try {
    KnownShape& shape = tenant.graph_shapes.For(graph);
    shape.studied = false;
    shape.Clear();
    for (const float length : lengths) shape.parts.push_back({length, work.footprint});
    tenant.graph_shapes.Renew(shape);
  } catch (const std::bad_alloc&) {
    tenant.graph_shapes.Forget(graph);  // all kernels count as equally long
  }
}

void Engine::Impl::ForgetLengths(TenantState& tenant, const Work& work) {
  KnownShape* const known = tenant.graph_shapes.Find(meter::CostModel::IdOf(work.key));
  if (known != nullptr && !known->studied) known->Clear();
}

const KnownShape* Engine::Impl::GraphLaunched(TenantState& tenant, uint32_t entry,
                                              bool* is_studied) {
  const meter::CostModel& costs = *tenant.costs;
  const uint64_t graph = costs.id(entry);
  *is_studied = studied.recording && studied.tenant == &tenant && studied.graph == graph;
  if (*is_studied) ++studied.launches;
  KnownShape* const known = tenant.graph_shapes.Find(graph);
  if (known == nullptr) return nullptr;
  ++known->launches;
  if (known->empty()) return nullptr;
  // A tenant with a cap is charged what its graph takes alone, so that it cannot exceed the cap with a graph that behaves
  // differently beside others.
  if (known->studied) return tenant.capped() ? nullptr : known;
  const uint32_t parts = costs.parts(entry);
  const bool fits = known->parts.size() == parts &&
                    !IsOpaqueGraph(parts, costs.footprint(entry), costs.cost_ns(entry));
  return fits ? known : nullptr;
}

void Engine::Impl::AskForStudy(TenantState& tenant, const meter::CostModel::Prediction& cost,
                               const Work& work, const KernelsInGraph& kernels,
                               const std::vector<float>& lengths) {
  if (studying.load() || !cost.known || !cost.settled || work.parts == 1 ||
      arbiter.tenants() <= 1 || tenant.capped() || FillDevice(kernels)) {
    return;
  }
  if (cost.entry == meter::CostModel::kCatchAll) return;
  const uint64_t graph = meter::CostModel::IdOf(work.key);
  try {
    KnownShape& shape = tenant.graph_shapes.For(graph);
    if (shape.launches < shape.study_at) return;
    const int nth = shape.studies++;
    shape.study_at = shape.launches + (kBetweenStudies << std::min(nth, kMostDoublings));
    meter::GraphStudy::Graph about = {.kernels = KindsOf(kernels.kernels),
                                      .count = static_cast<uint32_t>(kernels.kernels.size()),
                                      .edges = kernels.edges,
                                      .taken = {{1, 1}},
                                      .sm_count = options.sm_count};
    if (shape.studied) {
      about.now = shape.branched != nullptr ? shape.branched->kernels : shape.parts;
    }
    if (about.kernels.empty() && !kernels.kernels.empty() && lengths.empty()) return;
    for (size_t i = 0; i < lengths.size(); ++i) {
      about.measured.push_back({lengths[i], kernels.kernels[i].footprint});
    }
    const uint32_t parts = tenant.costs->parts(cost.entry);
    if (parts > 0 && !IsOpaqueGraph(parts, work.footprint, cost.cost_ns)) {
      about.taken.assign(parts, {1.0f / static_cast<float>(parts), work.footprint});
    }
    studied = {.tenant = &tenant,
               .graph = graph,
               .about = std::move(about),
               .most = LaunchesToStudy(kernels.kernels.size())
                       << std::min((nth + 1) / 2, kMostTimesStudied)};
    studying = true;
  } catch (const std::bad_alloc&) {
    // It is studied another time.
  }
}

void Engine::Impl::RecordStudy(Time now) {
  if (studied.tenant == nullptr || study == nullptr || studied.recorded) return;
  if (!studied.recording) {
    try {
      study->Begin(replay);
      studied.recording = true;
      studied.since = now;
    } catch (const std::bad_alloc&) {
      studied = {};
    }
    return;
  }
  if (studied.launches < studied.most && now - studied.since < kLongestStudy && !study->full()) {
    return;
  }
  study->End(replay);
  studied.recording = false;
  studied.recorded = true;
}

void Engine::Impl::DropStudyOf(const TenantState& tenant) {
  if (studied.tenant != &tenant) return;
  if (studied.recording) study->End(replay);
  studied = {};
}

// Works on the study in small pieces and without the lock, since nobody waits for it. True: there is more to do.
bool Engine::Impl::GoOnStudying() {
  if (!studying.load()) return false;
  bool dropped = false, recorded = false;
  StudiedGraph begun;
  KnownShape made_of;
  try {
    {
      const Section section(*this);
      dropped = studied.tenant == nullptr;
      recorded = studied.recorded;
      if (!dropped && study == nullptr) begun = studied;
    }
    if (begun.tenant != nullptr) {
      auto made = std::make_unique<meter::GraphStudy>(std::move(begun.about));
      const Section section(*this);
      study = std::move(made);  // a study that was dropped meanwhile is noticed the next time
      return true;
    }
    if (!dropped && !recorded) return false;
    if (!dropped && study->Step(kCallsPerRound)) return true;
    if (!dropped && study->found().has_value()) {
      if (study->branches() != nullptr) {
        made_of.branched = std::make_shared<meter::BranchedShape>(
            meter::BranchedShape{*study->found(), study->branches()});
      } else {
        made_of.parts = *study->found();
      }
    }
  } catch (const std::bad_alloc&) {
    dropped = true;
  }
  std::unique_ptr<meter::GraphStudy> over;
  const Section section(*this);
  over = std::move(study);
  if (!dropped && studied.tenant != nullptr) {
    KnownShape* const shape = studied.tenant->graph_shapes.Find(studied.graph);
    const bool found = !made_of.empty();
    if (shape != nullptr && (found || shape->studied)) {
      shape->studied = found;
      std::swap(shape->parts, made_of.parts);
      std::swap(shape->branched, made_of.branched);
    }
    if (shape != nullptr && !over->possible()) shape->study_at = kNeverStudied;
  }
  if (studied.recording) over->End(replay);
  studied = {};
  studying = false;
  return false;
}

}  // namespace gpushare::gate
