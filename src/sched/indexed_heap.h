// SPDX-License-Identifier: Apache-2.0
// A heap of (key, tenant), least key first, in which any tenant can be removed or re-keyed in O(log n).
// Ties go to the smaller id, so that the same calls give the same decisions.
//
// The position of a tenant is kept in a table. Several heaps may share the table if a tenant is in at most
// one of them at a time. After Reserve() no call allocates.
#ifndef GPUSHARE_SCHED_INDEXED_HEAP_H_
#define GPUSHARE_SCHED_INDEXED_HEAP_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpushare::sched {

class IndexedHeap {
 public:
  struct Entry {
    double key;
    uint32_t id;
  };
  using Positions = std::vector<uint32_t>;  // by tenant id
  static constexpr uint32_t kAbsent = UINT32_MAX;

  explicit IndexedHeap(Positions* positions) : positions_(positions) {}

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  const Entry& top() const { return entries_.front(); }
  const std::vector<Entry>& entries() const { return entries_; }
  void Reserve(size_t n) { entries_.reserve(n); }

  void Push(uint32_t id, double key) {
    entries_.push_back({key, id});
    Up(entries_.size() - 1);
  }
  void Erase(uint32_t id) {
    const size_t at = (*positions_)[id];
    (*positions_)[id] = kAbsent;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (at == entries_.size()) return;
    entries_[at] = last;
    Restore(at);
  }
  void Update(uint32_t id, double key) {
    const size_t at = (*positions_)[id];
    if (entries_[at].key == key) return;
    entries_[at].key = key;
    Restore(at);
  }

  // The least key of any tenant but `id`; false if there is no other tenant.
  bool LeastExcept(uint32_t id, double* key) const {
    if (entries_.empty()) return false;
    if (entries_[0].id != id) {
      *key = entries_[0].key;
      return true;
    }
    if (entries_.size() == 1) return false;
    const size_t end = std::min(entries_.size(), 1 + kFanOut);
    double least = entries_[1].key;
    for (size_t i = 2; i < end; ++i) least = std::min(least, entries_[i].key);
    *key = least;
    return true;
  }

  // Calls visit(id) for entries with a key below `limit`, roughly least first and at most kLook of them,
  // until it returns true. Returns whether it did.
  static constexpr size_t kLook = 16;
  template <typename Visit>
  bool Look(double limit, Visit&& visit) const {
    std::array<size_t, kLook> pending;
    size_t head = 0, tail = 0;
    if (!entries_.empty() && entries_[0].key < limit) pending[tail++] = 0;
    while (head < tail) {
      const size_t at = pending[head++];
      if (visit(entries_[at].id)) return true;
      const size_t end = std::min(entries_.size(), at * kFanOut + kFanOut + 1);
      for (size_t i = at * kFanOut + 1; i < end && tail < kLook; ++i) {
        if (entries_[i].key < limit) pending[tail++] = i;
      }
    }
    return false;
  }

  // For CheckInvariants: whether the heap order holds and the table points back.
  bool Sound() const {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if ((*positions_)[entries_[i].id] != i) return false;
      if (i > 0 && Less(entries_[i], entries_[(i - 1) / kFanOut])) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kFanOut = 4;

  static bool Less(const Entry& a, const Entry& b) {
    return a.key < b.key || (a.key == b.key && a.id < b.id);
  }
  void Put(size_t at, const Entry& entry) {
    entries_[at] = entry;
    (*positions_)[entry.id] = static_cast<uint32_t>(at);
  }
  void Restore(size_t at) {
    if (at > 0 && Less(entries_[at], entries_[(at - 1) / kFanOut])) {
      Up(at);
    } else {
      Down(at);
    }
  }
  void Up(size_t at) {
    const Entry entry = entries_[at];
    while (at > 0) {
      const size_t parent = (at - 1) / kFanOut;
      if (!Less(entry, entries_[parent])) break;
      Put(at, entries_[parent]);
      at = parent;
    }
    Put(at, entry);
  }
  void Down(size_t at) {
    const Entry entry = entries_[at];
    for (;;) {
      const size_t first = at * kFanOut + 1;
      if (first >= entries_.size()) break;
      const size_t end = std::min(entries_.size(), first + kFanOut);
      size_t least = first;
      for (size_t i = first + 1; i < end; ++i) {
        if (Less(entries_[i], entries_[least])) least = i;
      }
      if (!Less(entries_[least], entry)) break;
      Put(at, entries_[least]);
      at = least;
    }
    Put(at, entry);
  }

  std::vector<Entry> entries_;
  Positions* positions_;
};

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_INDEXED_HEAP_H_
