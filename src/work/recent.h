// SPDX-License-Identifier: Apache-2.0
// A small table of the streams that a thread used last, by handle. Each handle can be in one of two places, which two independent
// hashes choose: the first among the even places, the second among the odd ones.
//
//   Recent<Entry> recent;                      // an Entry has a `handle`, and an `epoch` that is not 0
//   recent.Put({.epoch = epoch, .handle = handle, ...});
//   const Entry& entry = recent.Find(handle);  // may be an entry of another handle
//   const Entry* entry = recent.FindIf(handle);  // null if there is none of that handle
//
// The last entry put is always found. Where both of its places are taken, one of the two entries there moves to its own other
// place. Only if neither can, one is replaced. Entries of another epoch count as free places.
//
// Two places in the same pair for all would not do: of five streams three then share a pair once in seven times, and two of
// these three would be looked up behind a lock at every launch.
//
// Threading: for one thread.
#ifndef GPUSHARE_WORK_RECENT_H_
#define GPUSHARE_WORK_RECENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushare::work {

template <typename Entry>
class Recent {
 public:
  using Handle = decltype(Entry::handle);
  static constexpr size_t kPlaces = 32;

  Recent() { Clear(); }

  // The assembly of the fast path computes the same (shim/launch_kernel.S).
  static constexpr size_t FirstPlaceOf(uintptr_t handle) { return 2 * (Hash(handle) >> 28); }
  static constexpr size_t SecondPlaceOf(uintptr_t handle) {
    return 2 * (Hash(handle) >> 24 & 15) + 1;
  }

  [[gnu::always_inline]] const Entry& Find(Handle handle) const {
    const Entry& first = entries_[FirstPlaceOf(Word(handle))];
    return first.handle == handle ? first : entries_[SecondPlaceOf(Word(handle))];
  }

  // Reads the second place only if the first has another handle, so that a launch does not wait for it.
  [[gnu::always_inline]] const Entry* FindIf(Handle handle) const {
    const Entry& first = entries_[FirstPlaceOf(Word(handle))];
    if (first.handle == handle) [[likely]]
      return &first;
    const Entry& second = entries_[SecondPlaceOf(Word(handle))];
    return second.handle == handle ? &second : nullptr;
  }

  [[gnu::always_inline]] Entry* FindIf(Handle handle) {
    return const_cast<Entry*>(std::as_const(*this).FindIf(handle));
  }

  void Put(const Entry& entry) { PlaceFor(entry) = entry; }

  void Clear() {
    entries_ = {};
    for (Entry& entry : entries_) entry.handle = Nobody();
  }

  template <typename Change>
  void ForEach(const Change& change) {
    for (Entry& entry : entries_) change(entry);
  }

 private:
  // Marks a free place. Null would not do, since it is the handle of a stream.
  static Handle Nobody() { return reinterpret_cast<Handle>(~uintptr_t{0}); }
  static uintptr_t Word(Handle handle) { return reinterpret_cast<uintptr_t>(handle); }
  static constexpr uint32_t Hash(uintptr_t handle) {
    static_assert(kPlaces == 32);
    return static_cast<uint32_t>(handle) * 0x9e3779b1u;
  }
  static bool IsFree(const Entry& place, uint64_t epoch) {
    return place.handle == Nobody() || place.epoch != epoch;
  }
  // Where an entry goes: over the one of its handle, or where it drives out none that is of use, if there is such a place.
  Entry& PlaceFor(const Entry& entry) {
    Entry& first = entries_[FirstPlaceOf(Word(entry.handle))];
    Entry& second = entries_[SecondPlaceOf(Word(entry.handle))];
    if (second.handle == entry.handle) return second;
    if (first.handle == entry.handle || IsFree(first, entry.epoch)) return first;
    if (IsFree(second, entry.epoch)) return second;
    if (MoveAway(first, entry.epoch)) return first;
    MoveAway(second, entry.epoch);
    return second;
  }
  // Moves the entry at `place` to its other place. False: that is taken, too.
  bool MoveAway(const Entry& place, uint64_t epoch) {
    Entry& first = entries_[FirstPlaceOf(Word(place.handle))];
    Entry& other = &first == &place ? entries_[SecondPlaceOf(Word(place.handle))] : first;
    if (!IsFree(other, epoch)) return false;
    other = place;
    return true;
  }

  std::array<Entry, kPlaces> entries_{};
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_RECENT_H_
