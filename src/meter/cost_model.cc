// SPDX-License-Identifier: Apache-2.0
#include "meter/cost_model.h"

#include <algorithm>
#include <cmath>

namespace gpushare::meter {
namespace {

constexpr uint32_t kProbes = 16;
// A batch that did not run alone teaches at this part of the rate.
constexpr float kSharedRate = 0.5f;
constexpr float kRate = 0.2f;
constexpr int kSettledSamples = 2;
constexpr float kLeastCostNs = 100;
constexpr float kGreatestCostNs = 60e9f;

}  // namespace

CostModel::CostModel(Nanos unknown_cost) : mean_ns_(static_cast<float>(unknown_cost.count())) {}

float CostModel::cost_ns(uint32_t entry) const {
  const auto stored = [](const Entry& e) {
    return std::fabs(e.cost_ns.load(std::memory_order_relaxed));
  };
  const Entry& own = entries_[entry];
  if (stored(own) > 0) return stored(own);
  const float base = stored(entries_[own.base.load(std::memory_order_relaxed)]);
  return base > 0 ? base : mean_ns_.load(std::memory_order_relaxed);
}

uint32_t CostModel::FindOrInsert(uint64_t id, float footprint, uint32_t base) {
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    const uint32_t slot = (Slot(id) + probe) & (kEntries - 1);
    if (slot == kCatchAll) continue;
    Entry& entry = entries_[slot];
    uint64_t seen = entry.id.load(std::memory_order_acquire);
    if (seen == id) return slot;
    if (seen != 0) continue;
    // A full table finds no more places: later keys share the catch-all and are predicted by the mean.
    if (used() >= kEntries / 4 * 3) return kCatchAll;
    if (entry.id.compare_exchange_strong(seen, id, std::memory_order_acq_rel)) {
      entry.footprint.store(footprint, std::memory_order_relaxed);
      entry.base.store(base == kCatchAll ? slot : base, std::memory_order_relaxed);
      used_.fetch_add(1, std::memory_order_relaxed);
      return slot;
    }
    if (seen == id) return slot;
  }
  return kCatchAll;
}

CostModel::Prediction CostModel::Predict(uint64_t key, uint64_t context, float footprint) {
  const uint64_t id = Mix(key ^ context);
  const uint32_t base = FindOrInsert(Mix(~key), footprint, kCatchAll);
  const uint32_t slot = FindOrInsert(id, footprint, base);
  const bool is_known = known(slot) || known(base);
  return {slot, cost_ns(slot), is_known,
          slot == kCatchAll || entries_[slot].cost_ns.load(std::memory_order_relaxed) > 0};
}

void CostModel::LearnOne(Entry& entry, float sample, float rate, bool alone) {
  const uint16_t samples = entry.samples.load(std::memory_order_relaxed);
  const float old = std::fabs(entry.cost_ns.load(std::memory_order_relaxed));
  float fresh = sample;
  if (old > 0) {
    // The first few samples count as a plain average, so that one odd first measurement (a module
    // loaded lazily, a clock still low) is soon forgotten.
    const float r = std::max(rate, 1.0f / static_cast<float>(samples + 1));
    fresh = old + r * (sample - old);
  }
  const float cost = std::max(fresh, kLeastCostNs);
  entry.cost_ns.store(samples + 1 < kSettledSamples ? -cost : cost, std::memory_order_relaxed);
  if (samples < 1000) entry.samples.store(static_cast<uint16_t>(samples + 1));
  if (alone) {
    const uint16_t n = entry.samples_alone.load(std::memory_order_relaxed);
    if (n < 1000) entry.samples_alone.store(static_cast<uint16_t>(n + 1));
  }
}

void CostModel::Learn(uint32_t index, float predicted_ns, float ratio, float share, bool alone) {
  Entry& entry = entries_[index];
  // The first measurements of a command by itself are believed whatever they say: until then its cost is a
  // guess, and a giant guessed to be small overdraws a cap. Later ones move it by a bounded step.
  const bool guess =
      share > 0.999f && entry.samples.load(std::memory_order_relaxed) < kSettledSamples;
  if (!guess) ratio = std::clamp(ratio, 0.25f, 4.0f);
  const float sample = std::clamp(predicted_ns * ratio, kLeastCostNs, kGreatestCostNs);
  const float rate = kRate * share * (alone ? 1.0f : kSharedRate);
  if (index != kCatchAll) {
    LearnOne(entry, sample, rate, alone);
    const uint32_t base = entry.base.load(std::memory_order_relaxed);
    if (base != index && base != kCatchAll) LearnOne(entries_[base], sample, rate, alone);
  }
  const float mean = mean_ns_.load(std::memory_order_relaxed);
  mean_ns_.store(mean + 0.01f * (sample - mean), std::memory_order_relaxed);
}

}  // namespace gpushare::meter
