// SPDX-License-Identifier: Apache-2.0
// What a tenant's commands cost: device time by key, learnt from measurements.
//
//   CostModel::Prediction p = costs.Predict(KernelKey(...), stream_context, footprint);
//   ... the commands run, the replay measures the batch they were in ...
//   costs.Learn(p.entry, p.cost_ns, /*ratio=*/measured / predicted, /*share=*/1.0, /*alone=*/true);
//
// The key identifies a command (function, grid, block, shared memory; a graph's executable). Networks
// launch the same sequence over and over, and the same kernel does different work at different places of
// it. So an entry is kept for the key *after the four launches before it* (the context), beside one for
// the key anywhere (its base). A context is measured by itself only from its second occurrence on, and
// only while the key's cost is seen to vary: a server with dynamic shapes meets most contexts once.
// Entries that have not been measured for long make room when the table fills.
//
// The model is a fixed table of atomics without pointers, so it can live in memory shared with another process.
// Any number of threads may call Predict() at the same time, but only one Learn().
#ifndef GPUSHARE_METER_COST_MODEL_H_
#define GPUSHARE_METER_COST_MODEL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gpushare::meter {

class CostModel {
  struct Entry {
    std::atomic<uint64_t> id{0};
    std::atomic<float> cost_ns{0};  // 0: not measured; negative: measured, but not yet settled
    // The same cost for the launch path; 0 unless it is settled and fits.
    std::atomic<uint32_t> settled_ns{0};
    std::atomic<float> footprint{1};
    std::atomic<float> spread{0};  // mean deviation of its samples ÷ its cost
    // The entry of the key without context (the base); such an entry refers to itself.
    std::atomic<uint16_t> base{0};
    std::atomic<uint16_t> samples{0};
    std::atomic<uint16_t> parts{0};
    std::atomic<uint16_t> age{0};  // number of the last sweep before it was measured or made

    void SetCost(float cost) {
      constexpr float kFits = 4e9f;
      cost_ns.store(cost, std::memory_order_relaxed);
      settled_ns.store(cost > 0 && cost < kFits ? static_cast<uint32_t>(cost) : 0,
                       std::memory_order_relaxed);
    }
  };

 public:
  static constexpr uint32_t kEntries = 8192;  // power of two
  static constexpr uint32_t kCatchAll = 0;    // for keys that the table has no room for

  explicit CostModel(Nanos unknown_cost);

  struct Prediction {
    uint32_t entry;
    float cost_ns;  // > 0
    bool known;     // false: never measured anywhere; cost_ns is a guess
    bool settled;   // false: measure it in a batch of its own before mixing it with other commands
  };

  // The settled entry of (key, context), if there is one. The launch path asks for this first.
  struct Settled {
    uint32_t entry;
    // An integer, since the launch path computes with integers. 0: not settled, more than 4 s, or not in its first place in
    // the table; use Predict() then.
    uint64_t cost_ns;
  };
  [[gnu::always_inline]] Settled FindSettled(uint64_t key, uint64_t context) const {
    const uint64_t id = Mix(key ^ context);
    const Entry& entry = entries_[Slot(id)];
    if (entry.id.load(std::memory_order_acquire) != id) [[unlikely]]
      return {Slot(id), 0};
    return {Slot(id), entry.settled_ns.load(std::memory_order_relaxed)};
  }

  // The place at which FindSettled() looks, kept by callers that ask for the same key and context again.
  class Place {
   public:
    constexpr Place() = default;  // the place of no key
    // The cost that FindSettled() would find; 0 for the place of no key.
    [[gnu::always_inline]] uint64_t Cost() const {
      if (entry_->id.load(std::memory_order_acquire) != id_) [[unlikely]]
        return 0;
      return entry_->settled_ns.load(std::memory_order_relaxed);
    }
    // Offsets of the fields, for assembly code.
    static constexpr size_t kEntryAt = 0, kIdAt = 8, kEntrysIdAt = 0, kEntrysSettledAt = 12;

   private:
    friend class CostModel;
    constexpr Place(const Entry* entry, uint64_t id) : entry_(entry), id_(id) {}
    const Entry* entry_ = &nobody;
    uint64_t id_ = 1;
  };
  Place PlaceOf(uint64_t key, uint64_t context) const {
    const uint64_t id = Mix(key ^ context);
    return {&entries_[Slot(id)], id};
  }
  // Finds (key, context), or makes an entry for it. A key that was never seen is predicted at the cost of `like` (0: none)
  // until it is measured. `parts` is the number of commands that a graph is made of; 0: not known.
  Prediction Predict(uint64_t key, uint64_t context, float footprint, uint64_t like = 0,
                     uint32_t parts = 0);
  // Graphs of more commands than this are not replayed command by command.
  static constexpr uint32_t kMostParts = 4096;
  static bool InParts(uint32_t parts) { return parts > 0 && parts <= kMostParts; }

  // Learns from a command of a measured batch. `predicted_ns` is the cost with which the command was predicted; the entry's
  // cost may have changed since, so the ratio does not refer to that. `ratio` is measured ÷ predicted of the batch. `share` is
  // the command's part of the batch's prediction, in (0, 1]. Batches that ran alone are learnt at a higher rate.
  // Returns whether FindSettled() may now return another cost for an entry that was settled before.
  bool Learn(uint32_t entry, float predicted_ns, float ratio, float share, bool alone);

  // Learns from a command in a batch of its own of which it is only known that it took no longer than predicted. That is how
  // commands are seen that end before the host has asked for their marker. It counts as a measurement of what was predicted,
  // for otherwise such a command would never settle, and each of its launches be measured by itself.
  void Confirm(uint32_t entry, float predicted_ns);

  // The cost of the key in this context, else anywhere; 0: never measured.
  float Known(uint64_t key, uint64_t context) const;

  float cost_ns(uint32_t entry) const;
  // The entry of the same key without context.
  uint32_t base(uint32_t entry) const {
    return entries_[entry].base.load(std::memory_order_relaxed);
  }
  // What stands for a key everywhere, unlike its entries, which go to other keys when it was not measured for long. Never 0.
  static uint64_t IdOf(uint64_t key) { return Mix(~key); }
  // The same, of the key of an entry. 0: the entry has none, or its key has just made room.
  uint64_t id(uint32_t entry) const {
    return entries_[base(entry)].id.load(std::memory_order_acquire);
  }
  float footprint(uint32_t entry) const {
    return entries_[entry].footprint.load(std::memory_order_relaxed);
  }
  // The mean deviation of the key's measurements, as a part of its cost.
  float spread(uint32_t entry) const {
    return entries_[base(entry)].spread.load(std::memory_order_relaxed);
  }
  // Whether the cost was measured in this context often enough, and its mean deviation is at most the part `most` of it.
  bool IsSure(uint32_t entry, double most) const {
    const Entry& own = entries_[entry];
    return entry != kCatchAll && own.cost_ns.load(std::memory_order_relaxed) > 0 &&
           static_cast<double>(own.spread.load(std::memory_order_relaxed)) <= most;
  }
  // The number of commands of a graph; 0: not known or too many.
  uint32_t parts(uint32_t entry) const {
    return entries_[entry].parts.load(std::memory_order_relaxed);
  }
  bool known(uint32_t entry) const {
    return entries_[entry].cost_ns.load(std::memory_order_relaxed) != 0;
  }
  uint32_t used() const { return used_.load(std::memory_order_relaxed); }

  static uint64_t Mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x | 1;  // 0 marks an empty entry
  }
  // The context after a launch of `key` in `context`: the upper bits of each of the last four keys. Multiplication has spread
  // these best.
  static uint64_t Next(uint64_t context, uint64_t key) { return (context << 16) ^ (key >> 48); }

 private:
  static const Entry nobody;  // the entry of no key
  static_assert(offsetof(Place, entry_) == Place::kEntryAt && offsetof(Place, id_) == Place::kIdAt);
  static_assert(offsetof(Entry, id) == Place::kEntrysIdAt &&
                offsetof(Entry, settled_ns) == Place::kEntrysSettledAt);
  static_assert(sizeof(Entry) == 32 && kEntries <= 1 << 16);  // the launch path indexes by a shift
  static uint32_t Slot(uint64_t id) { return static_cast<uint32_t>(id >> 40) & (kEntries - 1); }

  uint32_t FindOrInsert(uint64_t id, float footprint, uint32_t parts, uint32_t base,
                        bool* inserted);
  static bool Replace(Entry& entry, float cost);
  bool LearnOne(Entry& entry, float sample, float rate);
  void ConfirmOne(Entry& entry, float predicted_ns);
  float FindBase(uint64_t key) const;
  void Sweep();

  std::array<Entry, kEntries> entries_;
  std::atomic<float> mean_ns_;
  std::atomic<uint32_t> used_{0};
  std::atomic<uint16_t> age_{0};
  uint32_t learnt_ = 0;  // commands learnt since the last sweep
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_COST_MODEL_H_
