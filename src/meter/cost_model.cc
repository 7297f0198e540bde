// SPDX-License-Identifier: Apache-2.0
#include "meter/cost_model.h"

#include <algorithm>
#include <cmath>

namespace gpushare::meter {
namespace {

constexpr uint32_t kProbes = 16;
// A batch that did not run alone is learnt at this part of the rate.
constexpr float kSharedRate = 0.5f;
constexpr float kRate = 0.2f;
constexpr int kSettledSamples = 2;
constexpr float kLeastCostNs = 100;
constexpr float kGreatestCostNs = 60e9f;
// If the second measurement of a command is less than this part of the first, the first does not count.
constexpr float kClearlyLess = 0.8f;
// The spread of a cost of which it is only known that it was not exceeded.
constexpr float kUnsure = 1;
// A key whose mean deviation is less than this part of its cost is assumed to cost the same in every context.
constexpr float kSteady = 0.05f;
constexpr int kSteadySamples = 4;
// Limits of used entries for new contexts and for new keys, so that contexts leave room for keys never seen.
constexpr uint32_t kContextEntries = CostModel::kEntries / 4 * 3;
constexpr uint32_t kBaseEntries = CostModel::kEntries / 8 * 7;
// At least this many commands are learnt between two sweeps of a table that fills up.
constexpr uint32_t kSweepAfter = 2 * CostModel::kEntries;

}  // namespace

const CostModel::Entry CostModel::nobody;

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

uint32_t CostModel::FindOrInsert(uint64_t id, float footprint, uint32_t parts, uint32_t base,
                                 bool* inserted) {
  const uint32_t most = base == kCatchAll ? kBaseEntries : kContextEntries;
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    const uint32_t slot = (Slot(id) + probe) & (kEntries - 1);
    if (slot == kCatchAll) continue;
    Entry& entry = entries_[slot];
    uint64_t seen = entry.id.load(std::memory_order_acquire);
    if (seen == id) return slot;
    if (seen != 0) continue;
    if (used() >= most) return kCatchAll;
    if (entry.id.compare_exchange_strong(seen, id, std::memory_order_acq_rel)) {
      entry.footprint.store(footprint, std::memory_order_relaxed);
      entry.parts.store(static_cast<uint16_t>(InParts(parts) ? parts : 0),
                        std::memory_order_relaxed);
      entry.base.store(static_cast<uint16_t>(base == kCatchAll ? slot : base),
                       std::memory_order_relaxed);
      entry.age.store(age_.load(std::memory_order_relaxed), std::memory_order_relaxed);
      used_.fetch_add(1, std::memory_order_relaxed);
      *inserted = true;
      return slot;
    }
    if (seen == id) return slot;
  }
  return kCatchAll;
}

// The cost of the key anywhere; 0: not known.
float CostModel::FindBase(uint64_t key) const {
  const uint64_t id = IdOf(key);
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    const Entry& entry = entries_[(Slot(id) + probe) & (kEntries - 1)];
    // An empty entry does not end the probing: sweeps empty some, and the first entry of the table is always empty.
    if (entry.id.load(std::memory_order_acquire) != id) continue;
    return std::fabs(entry.cost_ns.load(std::memory_order_relaxed));
  }
  return 0;
}

float CostModel::Known(uint64_t key, uint64_t context) const {
  const Settled here = FindSettled(key, context);
  return here.cost_ns > 0 ? static_cast<float>(here.cost_ns) : FindBase(key);
}

CostModel::Prediction CostModel::Predict(uint64_t key, uint64_t context, float footprint,
                                         uint64_t like, uint32_t parts) {
  bool inserted = false;
  const uint32_t base = FindOrInsert(IdOf(key), footprint, parts, kCatchAll, &inserted);
  if (base == kCatchAll) return {kCatchAll, cost_ns(kCatchAll), false, true};
  if (inserted && like != 0) {
    // Negative, that is, known but not settled, so that the first measurement replaces it.
    entries_[base].SetCost(-FindBase(like));
  }
  const float base_cost = entries_[base].cost_ns.load(std::memory_order_relaxed);
  const bool base_settled = base_cost > 0;
  inserted = false;
  const uint32_t slot = FindOrInsert(Mix(key ^ context), footprint, parts, base, &inserted);
  // There is no room for this context, so the key's cost anywhere is used.
  if (slot == kCatchAll) return {base, cost_ns(base), base_cost != 0, base_settled};
  Entry& entry = entries_[slot];
  const float own = entry.cost_ns.load(std::memory_order_relaxed);
  if (own > 0) return {slot, own, true, true};
  const bool is_known = own != 0 || base_cost != 0;
  if (base_settled && own == 0) {
    const Entry& anywhere = entries_[base];
    if (anywhere.samples.load(std::memory_order_relaxed) >= kSteadySamples &&
        anywhere.spread.load(std::memory_order_relaxed) < kSteady) {
      entry.SetCost(base_cost);
      entry.samples.store(kSettledSamples, std::memory_order_relaxed);
      return {slot, base_cost, true, true};
    }
  }
  return {slot, cost_ns(slot), is_known, base_settled && inserted};
}

// Sets the cost. Returns whether the launch path found a settled cost before and finds another one now.
bool CostModel::Replace(Entry& entry, float cost) {
  const uint32_t before = entry.settled_ns.load(std::memory_order_relaxed);
  entry.SetCost(cost);
  return before != 0 && entry.settled_ns.load(std::memory_order_relaxed) != before;
}

bool CostModel::LearnOne(Entry& entry, float sample, float rate) {
  const uint16_t samples = entry.samples.load(std::memory_order_relaxed);
  const float old = std::fabs(entry.cost_ns.load(std::memory_order_relaxed));
  float fresh = sample;
  if (old > 0) {
    // The first few samples count as a plain average, so that one odd first measurement (a module
    // loaded lazily, a clock still low) is soon forgotten.
    const float r = std::max(rate, 1.0f / static_cast<float>(samples + 1));
    fresh = old + r * (sample - old);
    // A first launch may have loaded a module, or found the device asleep.
    if (samples == 1 && sample < kClearlyLess * old) fresh = sample;
    const float spread = entry.spread.load(std::memory_order_relaxed);
    entry.spread.store(spread + r * (std::fabs(sample - old) / old - spread),
                       std::memory_order_relaxed);
  }
  const float cost = std::max(fresh, kLeastCostNs);
  const bool replaced = Replace(entry, samples + 1 < kSettledSamples ? -cost : cost);
  if (samples < 1000) entry.samples.store(static_cast<uint16_t>(samples + 1));
  entry.age.store(age_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return replaced;
}

void CostModel::ConfirmOne(Entry& entry, float predicted_ns) {
  const uint16_t samples = entry.samples.load(std::memory_order_relaxed);
  if (samples >= kSettledSamples) return;
  const float known = std::fabs(entry.cost_ns.load(std::memory_order_relaxed));
  const float cost = known > 0 ? known : std::clamp(predicted_ns, kLeastCostNs, kGreatestCostNs);
  entry.SetCost(samples + 1 < kSettledSamples ? -cost : cost);
  entry.spread.store(std::max(entry.spread.load(std::memory_order_relaxed), kUnsure),
                     std::memory_order_relaxed);
  entry.samples.store(static_cast<uint16_t>(samples + 1));
  entry.age.store(age_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void CostModel::Confirm(uint32_t index, float predicted_ns) {
  if (index == kCatchAll) return;
  const uint32_t base = entries_[index].base.load(std::memory_order_relaxed);
  if (base != index && base != kCatchAll) ConfirmOne(entries_[base], predicted_ns);
  ConfirmOne(entries_[index], predicted_ns);
}

// Forgets entries that were not measured since the last sweep. A thread that has just found such an entry may
// still use its index and is then charged once by what is there.
void CostModel::Sweep() {
  const uint16_t age = age_.load(std::memory_order_relaxed);
  for (uint32_t slot = 1; slot < kEntries; ++slot) {
    Entry& entry = entries_[slot];
    if (entry.id.load(std::memory_order_relaxed) == 0) continue;
    if (entry.age.load(std::memory_order_relaxed) == age) continue;
    entry.SetCost(0);
    entry.spread.store(0, std::memory_order_relaxed);
    entry.samples.store(0, std::memory_order_relaxed);
    entry.id.store(0, std::memory_order_release);
    used_.fetch_sub(1, std::memory_order_relaxed);
  }
  age_.store(static_cast<uint16_t>(age + 1), std::memory_order_relaxed);
}

bool CostModel::Learn(uint32_t index, float predicted_ns, float ratio, float share, bool alone) {
  Entry& entry = entries_[index];
  const bool by_itself = share > 0.999f;
  const bool settled = entry.samples.load(std::memory_order_relaxed) >= kSettledSamples;
  // The first measurements of a command by itself are believed whatever they are. Until then its cost is a
  // guess, and a very long command that is guessed to be short overdraws a cap. Later measurements move the cost
  // by a bounded step.
  if (!by_itself || settled) ratio = std::clamp(ratio, 0.25f, 4.0f);
  const float sample = std::clamp(predicted_ns * ratio, kLeastCostNs, kGreatestCostNs);
  const float rate = kRate * share * (alone ? 1.0f : kSharedRate);
  bool replaced = false;
  if (index != kCatchAll) {
    const uint32_t base = entry.base.load(std::memory_order_relaxed);
    // A context met for the first time ran in a batch with other commands, whose time says little about it.
    if (by_itself || settled || base == index) replaced |= LearnOne(entry, sample, rate);
    if (base != index && base != kCatchAll) replaced |= LearnOne(entries_[base], sample, rate);
  }
  const float mean = mean_ns_.load(std::memory_order_relaxed);
  mean_ns_.store(mean + 0.01f * (sample - mean), std::memory_order_relaxed);
  if (++learnt_ >= kSweepAfter && used() >= kContextEntries / 2) {
    learnt_ = 0;
    Sweep();
    replaced = true;
  }
  return replaced;
}

}  // namespace gpushare::meter
