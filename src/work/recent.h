// SPDX-License-Identifier: Apache-2.0
// The few streams that a thread used last, by handle: each stands in one of two neighbouring places.
//
//   Recent<Entry> recent;                      // an Entry has a `handle`, and an `epoch` that is not 0
//   recent.Put({.epoch = epoch, .handle = handle, ...});
//   const Entry& entry = recent.Find(handle);  // of that handle, or any other
//   const Entry* entry = recent.FindIf(handle);  // null: there is none of that handle
//
// What was put last is found until more is put; what stands under another epoch makes room first. One thread's.
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

  // The first of its two; the other is the one of the number with the last bit changed.
  static constexpr size_t PlaceOf(uintptr_t handle) {
    static_assert(kPlaces == 16);
    return (static_cast<uint32_t>(handle) * 0x9e3779b1u) >> 28;
  }

  [[gnu::always_inline]] const Entry& Find(Handle handle) const {
    const size_t place = PlaceOf(handle);
    const Entry& first = entries_[place];
    return first.handle == handle ? first : entries_[place ^ 1];
  }

  // The second is asked for only where the first is another's: what is launched there need not wait for that.
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
  // The null handle is somebody's.
  static Handle Nobody() { return reinterpret_cast<Handle>(~uintptr_t{0}); }
  static size_t PlaceOf(Handle handle) { return PlaceOf(reinterpret_cast<uintptr_t>(handle)); }

  std::array<Entry, kPlaces> entries_{};
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_RECENT_H_
