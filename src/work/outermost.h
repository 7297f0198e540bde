// SPDX-License-Identifier: Apache-2.0
// The driver may make one of its calls out of another: only the outermost is charged.
#ifndef GPUSHARE_WORK_OUTERMOST_H_
#define GPUSHARE_WORK_OUTERMOST_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace gpushare::work {

// Where a thread notes that it is inside of a call: with what it knows of its streams (Streams::SeenByThread), so that a
// launch looks in one place for both.
struct ThreadMark {
  uint64_t epoch = 0;  // of all that it knows; 0: of none
  // Away from what a launch reads: written twice by each, beside that it takes one a nanosecond longer.
  alignas(128) bool inside = false;
};
// Of all threads that know of no stream yet. Nobody writes here: for these a launch has more to do in any case.
inline constinit ThreadMark nobodys_mark{.inside = true};

}  // namespace gpushare::work

// The calling thread's; never null. By a name that assembly can say too.
extern "C" {
extern thread_local constinit gpushare::work::ThreadMark* gpushare_work_mark;
}

namespace gpushare::work {

// While it lives, calls of this thread are inside of another.
class Outermost {
 public:
  Outermost() : was_(std::exchange(inside(), true)) {}
  ~Outermost() { inside() = was_; }
  Outermost(const Outermost&) = delete;
  Outermost& operator=(const Outermost&) = delete;
  static bool Inside() { return inside(); }

  // The calling thread's; never null.
  static ThreadMark* Mark() { return mark(); }
  // It has another from now on.
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

// The same for a thread with a mark of its own that is known not to be inside. What a signal handler launches meanwhile
// sees it set, or comes before all that is done behind it.
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
