// SPDX-License-Identifier: Apache-2.0
// Numbers for contexts that fit into an entry of the pointer table, so that the end of a context finds
// what it held.
#ifndef GPUSHARE_BOOKS_CONTEXT_TAGS_H_
#define GPUSHARE_BOOKS_CONTEXT_TAGS_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>

namespace gpushare::books {

// Thread-safe and lock-free; programs have one or two contexts, which are found at once.
class ContextTags {
 public:
  using Set = std::bitset<256>;

  // 0 for no context, and when 255 contexts have tags: what has tag 0 ends with no context.
  uint8_t Of(CUcontext context) {
    if (context == nullptr) return 0;
    for (size_t tag = 1; tag < contexts_.size(); ++tag) {
      CUcontext found = contexts_[tag].load(std::memory_order_acquire);
      if (found == context) return static_cast<uint8_t>(tag);
      if (found != nullptr) continue;
      // Tags are freed rarely: a context behind a freed one may get a second tag, and Retire() finds both.
      if (contexts_[tag].compare_exchange_strong(found, context) || found == context) {
        return static_cast<uint8_t>(tag);
      }
    }
    return 0;
  }

  // The tags of a context that is about to end. Of() gives it others from now on.
  Set Retire(CUcontext context) {
    Set tags;
    for (size_t tag = 1; context != nullptr && tag < contexts_.size(); ++tag) {
      CUcontext expected = context;
      tags[tag] = contexts_[tag].compare_exchange_strong(expected, Ending());
    }
    return tags;
  }
  // They are `context`'s again; null: anybody's.
  void Reuse(const Set& tags, CUcontext context) {
    for (size_t tag = 1; tag < contexts_.size(); ++tag) {
      if (tags[tag]) contexts_[tag].store(context, std::memory_order_release);
    }
  }

 private:
  static CUcontext Ending() { return reinterpret_cast<CUcontext>(uintptr_t{1}); }

  std::array<std::atomic<CUcontext>, 256> contexts_{};
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_CONTEXT_TAGS_H_
