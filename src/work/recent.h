// SPDX-License-Identifier: Apache-2.0
// A small table of the streams that a thread used last, by handle. Each handle can be in one of two neighbouring places.
//
//   Recent<Entry> recent;                      // an Entry has a `handle`, and an `epoch` that is not 0
//   recent.Put({.epoch = epoch, .handle = handle, ...});
//   const Entry& entry = recent.Find(handle);  // may be an entry of another handle
//   const Entry* entry = recent.FindIf(handle);  // null if there is none of that handle
//
// The last entry put is always found. Later ones may replace it; entries of another epoch are replaced first.
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
  static constexpr size_t kPlaces = 16;

  Recent() { Clear(); }

  // The first of a handle's two places. The other has the same number with the last bit flipped.
  static constexpr size_t PlaceOf(uintptr_t handle) {
    static_assert(kPlaces == 16);
    return (static_cast<uint32_t>(handle) * 0x9e3779b1u) >> 28;
  }

  [[gnu::always_inline]] const Entry& Find(Handle handle) const {
    const size_t place = PlaceOf(handle);
    const Entry& first = entries_[place];
    return first.handle == handle ? first : entries_[place ^ 1];
  }

  // Reads the second place only if the first has another handle, so that a launch does not wait for it.
  [[gnu::always_inline]] const Entry* FindIf(Handle handle) const {
    const size_t place = PlaceOf(handle);
    if (entries_[place].handle == handle) [[likely]]
      return &entries_[place];
    const Entry& second = entries_[place ^ 1];
    return second.handle == handle ? &second : nullptr;
  }

  [[gnu::always_inline]] Entry* FindIf(Handle handle) {
    return const_cast<Entry*>(std::as_const(*this).FindIf(handle));
  }

  void Put(const Entry& entry) {
    const size_t place = PlaceOf(entry.handle);
    Entry &first = entries_[place], &second = entries_[place ^ 1];
    const bool first_is_others = first.handle != entry.handle && first.epoch == entry.epoch;
    (second.handle == entry.handle || first_is_others ? second : first) = entry;
  }

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
  static size_t PlaceOf(Handle handle) { return PlaceOf(reinterpret_cast<uintptr_t>(handle)); }

  std::array<Entry, kPlaces> entries_{};
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_RECENT_H_
