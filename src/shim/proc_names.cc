// SPDX-License-Identifier: Apache-2.0
#include "shim/proc_names.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gpushare::shim {

// Hashes eight bytes at a time. The last word is the name's last eight bytes, which may overlap the word before it.
uint64_t ProcNames::Hash(std::string_view name) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
  uint64_t hash = name.size() * kFactor, word = 0;
  const auto add = [&](const char* from, size_t bytes) {
    std::memcpy(&word, from, bytes);
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 29;
  };
  size_t at = 0;
  for (; at + 8 < name.size(); at += 8) add(name.data() + at, 8);
  if (name.size() >= 8) {
    add(name.data() + name.size() - 8, 8);
  } else {
    add(name.data(), name.size());
  }
  return hash * kFactor;
}

ProcNames::ProcNames(std::span<const driver::Symbol> symbols,
                     absl::FunctionRef<const void*(size_t index)> exported,
                     absl::FunctionRef<void*(const driver::Symbol& symbol)> hook)
    : names_(std::make_unique<Name[]>(symbols.size())) {
  const int bits = static_cast<int>(std::bit_width(4 * symbols.size() + 4));
  places_.assign(size_t{1} << bits, kNobody);
  shift_ = 64 - bits;
  // The symbols of one name are not all adjacent: "cuMemAllocAsync" lies between "cuMemAlloc" and "cuMemAlloc_v2".
  std::vector<uint16_t> name_of(symbols.size());
  uint16_t count = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    Name* name = Find(symbols[i].base);
    if (name == nullptr) {
      size_t at = Hash(symbols[i].base) >> shift_;
      while (places_[at] != kNobody) at = (at + 1) & (places_.size() - 1);
      places_[at] = count;
      name = &names_[count++];
      name->name_ = symbols[i].base;
    }
    ++name->count_;
    name_of[i] = static_cast<uint16_t>(name - names_.get());
  }
  meanings_.resize(symbols.size());
  Meaning* next = meanings_.data();
  for (size_t i = 0; i < count; ++i) {
    names_[i].meanings_ = next;
    next += names_[i].count_;
    names_[i].count_ = 0;
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    Name& name = names_[name_of[i]];
    Meaning& meaning =
        meanings_[static_cast<size_t>(name.meanings_ - meanings_.data()) + name.count_++];
    meaning = {symbols[i].version, symbols[i].per_thread_stream, exported(i), hook(symbols[i])};
    name.any_hook_ = name.any_hook_ || meaning.hook != nullptr;
  }
}

const ProcNames::Meaning* ProcNames::Name::Meant(int version, bool per_thread) const {
  const Meaning *plain = nullptr, *variant = nullptr;
  for (uint32_t i = 0; i < count_; ++i) {
    const Meaning& meaning = meanings_[i];
    if (meaning.version > version) continue;
    const Meaning*& best = meaning.per_thread ? variant : plain;
    if (best == nullptr || best->version < meaning.version) best = &meaning;
  }
  return per_thread && variant != nullptr ? variant : plain;
}

void ProcNames::Name::Remember(int version, uint64_t flags, void* function) {
  if (flags > kMostFlags) return;
  for (Answer& answer : answers_) {
    uint64_t free = kFree;
    // Two threads with the same question may each take a place. Both store the same answer.
    if (!answer.question.compare_exchange_strong(free, kTaken, std::memory_order_relaxed)) continue;
    answer.function = function;
    answer.question.store(QuestionOf(version, flags), std::memory_order_release);
    return;
  }
}

}  // namespace gpushare::shim
