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
#include <utility>

namespace gpushare::books {

// Thread-safe and lock-free; programs have one or two contexts, which are found at once.
class ContextTags {
 public:
  using Set = std::bitset<256>;

  // 0 for no context, and when 255 contexts have tags: what has tag 0 ends with no context.
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
      // Two threads at once may give one context two tags: Retire() finds both.
      CUcontext nobody = nullptr;
      const bool taken = tags_[vacant].context.compare_exchange_strong(nobody, context);
      size_t before = end;
      if (vacant == end) end_.compare_exchange_strong(before, end + 1);
      if (taken) return static_cast<uint8_t>(vacant);
    }
  }

  // What `context` holds is `parent`'s, and ends with that. It has the tag of one that was adopted before and is no
  // more, if there is one: what that held is the parent's too.
  void Adopt(CUcontext context, CUcontext parent) {
    const size_t end = end_.load(std::memory_order_acquire);
    bool known = Find(context).any(), first = true;
    for (size_t tag = 1; !known && parent != nullptr && tag < end; ++tag) {
      if (tags_[tag].context.load(std::memory_order_acquire) != parent) continue;
      if (std::exchange(first, false)) continue;  // the parent's own
      tags_[tag].parent.store(parent, std::memory_order_release);
      CUcontext was = parent;
      known = tags_[tag].context.compare_exchange_strong(was, context);
    }
    const uint8_t tag = Of(context);
    if (tag != 0) tags_[tag].parent.store(parent, std::memory_order_release);
  }

  // The tags of a context, and of those that it is the parent of.
  Set Find(CUcontext context) const {
    Set tags;
    for (size_t tag = 1; context != nullptr && tag < tags_.size(); ++tag) {
      CUcontext const found = tags_[tag].context.load(std::memory_order_acquire);
      if (found == nullptr || found == Ending()) continue;
      tags[tag] = found == context || tags_[tag].parent.load(std::memory_order_acquire) == context;
    }
    return tags;
  }
  // The same of one that is about to end: Of() gives it others from now on.
  Set Retire(CUcontext context) {
    Set tags = Find(context);
    for (size_t tag = 1; tag < tags_.size(); ++tag) {
      if (!tags[tag]) continue;
      CUcontext const found = tags_[tag].context.exchange(Ending());
      if (found == Ending()) {
        tags[tag] = false;  // another thread retired it
      } else {
        tags_[tag].was.store(found);
      }
    }
    return tags;
  }
  // The retired are whose they were.
  void Restore(const Set& tags) {
    for (size_t tag = 1; tag < tags_.size(); ++tag) {
      if (!tags[tag]) continue;
      CUcontext ending = Ending();
      tags_[tag].context.compare_exchange_strong(ending, tags_[tag].was.load());
    }
  }
  // They are `context`'s from now on; null: anybody's.
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
    std::atomic<CUcontext> was{nullptr};  // before it was retired
  };
  std::array<Tag, 256> tags_{};
  std::atomic<size_t> end_{1};  // behind the highest that was ever in use
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_CONTEXT_TAGS_H_
