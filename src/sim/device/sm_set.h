// SPDX-License-Identifier: Apache-2.0
// A set of SMs of one device, by number.
#ifndef GPUSHARE_SIM_DEVICE_SM_SET_H_
#define GPUSHARE_SIM_DEVICE_SM_SET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpushare::sim {

class SmSet {
 public:
  SmSet() = default;
  // `count` SMs from `first` on.
  static SmSet Range(uint32_t first, uint32_t count) {
    SmSet set;
    set.words_.resize((first + count + 63) / 64);
    for (uint32_t sm = first; sm < first + count; ++sm) set.words_[sm / 64] |= Bit(sm);
    return set;
  }

  uint32_t count() const {
    uint32_t count = 0;
    for (const uint64_t word : words_) count += static_cast<uint32_t>(__builtin_popcountll(word));
    return count;
  }
  bool Meets(const SmSet& other) const {
    for (size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }
  void Add(const SmSet& other) {
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
    for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }
  // Moves up to `most` of the SMs that are also in `of` from this set to the result: the first of them, or the last.
  SmSet Take(const SmSet& of, uint32_t most, bool last = false) {
    SmSet taken;
    const size_t words = std::min(words_.size(), of.words_.size());
    taken.words_.resize(words);
    for (size_t n = 0; n < words && most > 0; ++n) {
      const size_t i = last ? words - 1 - n : n;
      uint64_t left = words_[i] & of.words_[i];
      for (; left != 0 && most > 0; --most) {
        const uint64_t bit = last ? uint64_t{1} << (63 - __builtin_clzll(left)) : left & -left;
        taken.words_[i] |= bit;
        left &= ~bit;
      }
      words_[i] &= ~taken.words_[i];
    }
    return taken;
  }
  SmSet TakeAny(uint32_t most) { return Take(SmSet(*this), most); }

  friend bool operator==(const SmSet& a, const SmSet& b) {
    for (size_t i = 0; i < std::max(a.words_.size(), b.words_.size()); ++i) {
      if (a.Word(i) != b.Word(i)) return false;
    }
    return true;
  }

 private:
  static uint64_t Bit(uint32_t sm) { return uint64_t{1} << (sm % 64); }
  uint64_t Word(size_t i) const { return i < words_.size() ? words_[i] : 0; }

  std::vector<uint64_t> words_;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_SM_SET_H_
