// SPDX-License-Identifier: Apache-2.0
// Numbers for contexts that fit into an entry of the pointer table, so that what a context held can be found when it ends.
#ifndef GPUSHARE_BOOKS_CONTEXT_TAGS_H_
#define GPUSHARE_BOOKS_CONTEXT_TAGS_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushare::books {

// Thread-safe and lock-free. Programs have one or two contexts, so the search is short.
class ContextTags {
 public:
  using Set = std::bitset<256>;

  // Returns 0 for no context, and if 255 contexts have tags already. An allocation with tag 0 does not end with any context.
  uint8_t Of(CUcontext context) {
    if (context == nullptr) return 0;
    for (;;) {
      size_t vacant = 0;
      const size_t end = end_.load(std::memory_order_acquire);
      for (size_t tag = 1; tag < end; ++tag) {
        CUcontext const found = tags_[tag].context.load(std::memory_order_acquire);
        if (found == context) return static_cast<uint8_t>(tag);
        if (found == nullptr && vacant == 0) vacant = tag;
      }
      if (vacant == 0 && end == tags_.size()) return 0;
      if (vacant == 0) vacant = end;
      // Two threads may give one context two tags. Retire() finds both.
      CUcontext nobody = nullptr;
      const bool taken = tags_[vacant].context.compare_exchange_strong(nobody, context);
      size_t before = end;
      if (vacant == end) end_.compare_exchange_strong(before, end + 1);
      if (taken) return static_cast<uint8_t>(vacant);
    }
  }

  // Makes everything that `context` holds end with `parent`. If possible it reuses the tag of an adopted context that has
  // ended, since what that held belongs to the parent too.
  void Adopt(CUcontext context, CUcontext parent) {
    const size_t end = end_.load(std::memory_order_acquire);
    bool known = Find(context).any(), first = true;
    for (size_t tag = 1; !known && parent != nullptr && tag < end; ++tag) {
      if (tags_[tag].context.load(std::memory_order_acquire) != parent) continue;
      if (std::exchange(first, false)) continue;  // the parent's own tag
      tags_[tag].parent.store(parent, std::memory_order_release);
      CUcontext was = parent;
      known = tags_[tag].context.compare_exchange_strong(was, context);
    }
    const uint8_t tag = Of(context);
    if (tag != 0) tags_[tag].parent.store(parent, std::memory_order_release);
  }

  // The tags of a context and of its adopted contexts.
  Set Find(CUcontext context) const {
    Set tags;
    for (size_t tag = 1; context != nullptr && tag < tags_.size(); ++tag) {
      CUcontext const found = tags_[tag].context.load(std::memory_order_acquire);
      if (found == nullptr || found == Ending()) continue;
      tags[tag] = found == context || tags_[tag].parent.load(std::memory_order_acquire) == context;
    }
    return tags;
  }
  // The same for a context that is about to end. From now on Of() gives the context new tags.
  Set Retire(CUcontext context) {
    Set tags = Find(context);
    for (size_t tag = 1; tag < tags_.size(); ++tag) {
      if (!tags[tag]) continue;
      CUcontext const found = tags_[tag].context.exchange(Ending());
      if (found == Ending()) {
        tags[tag] = false;  // retired by another thread
      } else {
        tags_[tag].was.store(found);
      }
    }
    return tags;
  }
  // Gives retired tags back to the contexts that had them.
  void Restore(const Set& tags) {
    for (size_t tag = 1; tag < tags_.size(); ++tag) {
      if (!tags[tag]) continue;
      CUcontext ending = Ending();
      tags_[tag].context.compare_exchange_strong(ending, tags_[tag].was.load());
    }
  }
  // Gives the tags to `context`; with null they become free.
  void Reuse(const Set& tags, CUcontext context) {
    for (size_t tag = 1; tag < tags_.size(); ++tag) {
      if (!tags[tag]) continue;
      tags_[tag].parent.store(nullptr, std::memory_order_relaxed);
      tags_[tag].context.store(context, std::memory_order_release);
    }
  }

 private:
  static CUcontext Ending() { return reinterpret_cast<CUcontext>(uintptr_t{1}); }

  struct Tag {
    std::atomic<CUcontext> context{nullptr}, parent{nullptr};
    std::atomic<CUcontext> was{nullptr};  // the context before it was retired
  };
  std::array<Tag, 256> tags_{};
  std::atomic<size_t> end_{1};  // one past the highest tag ever used
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_CONTEXT_TAGS_H_
