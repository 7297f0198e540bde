// SPDX-License-Identifier: Apache-2.0
// Detects nested calls: the driver may implement one of its calls by another, and only the outermost is charged.
#ifndef GPUSHARE_WORK_OUTERMOST_H_
#define GPUSHARE_WORK_OUTERMOST_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace gpushare::work {

// Marks that a thread is inside of a call. The mark is kept together with what the thread knows of its streams
// (Streams::SeenByThread), so that a launch finds both in one place.
struct ThreadMark {
  uint64_t epoch = 0;  // the epoch of everything that the thread knows; 0: none
  // Kept apart from the fields that a launch reads. Each launch writes it twice; next to those fields that takes a nanosecond
  // longer.
  alignas(128) bool inside = false;
};
// The mark of all threads that know no stream yet. It is never written: a launch of such a thread takes the slow path anyway.
inline constinit ThreadMark nobodys_mark{.inside = true};

}  // namespace gpushare::work

// The calling thread's mark; never null. A C name, which the assembly uses too.
extern "C" {
extern thread_local constinit gpushare::work::ThreadMark* gpushare_work_mark;
}

namespace gpushare::work {

// During its lifetime further calls of this thread count as nested.
class Outermost {
 public:
  Outermost() : was_(std::exchange(inside(), true)) {}
  ~Outermost() { inside() = was_; }
  Outermost(const Outermost&) = delete;
  Outermost& operator=(const Outermost&) = delete;
  static bool Inside() { return inside(); }

  // The calling thread's mark; never null.
  static ThreadMark* Mark() { return mark(); }
  // Gives the calling thread another mark.
  static void Move(ThreadMark* to) {
    const bool was = inside();
    mark() = to;
    inside() = was;
  }

 private:
  static ThreadMark*& mark() { return gpushare_work_mark; }
  static bool& inside() {
    static thread_local constinit bool without_mark = false;
    return mark() == &nobodys_mark ? without_mark : mark()->inside;
  }
  const bool was_;
};

// The same for a thread with a mark of its own that is known not to be inside a call. A launch by a signal handler either sees
// the mark set, or comes before everything that this protects.
class InsideOf {
 public:
  explicit InsideOf(ThreadMark* mark) : mark_(mark) {
    mark->inside = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~InsideOf() { mark_->inside = false; }
  InsideOf(const InsideOf&) = delete;
  InsideOf& operator=(const InsideOf&) = delete;

 private:
  ThreadMark* const mark_;
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_OUTERMOST_H_
