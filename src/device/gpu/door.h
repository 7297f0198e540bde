// SPDX-License-Identifier: Apache-2.0
// Counts who is at something that others want to take away, and keeps further ones out meanwhile.
//
//   if (door.Enter()) { ...calls of the driver...; door.Leave(); }
//
//   door.Close();
//   if (door.AwaitEmpty(deadline)) ...   // nobody is inside, nor comes in before Open()
//
// Threading: thread-safe; who enters never waits. Who is inside keeps what the door is a part of, until Leave() has returned:
// AwaitEmpty() may return before that.
#ifndef GPUSHARE_DEVICE_GPU_DOOR_H_
#define GPUSHARE_DEVICE_GPU_DOOR_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace gpushare::device {

class Door {
 public:
  explicit Door(base::Clock& clock) : clock_(clock) {}
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // False: it is closed.
  [[nodiscard]] bool Enter() { return Enter(/*within=*/false); }
  // Also while it is closed, as long as somebody is inside, on whose behalf the caller comes.
  [[nodiscard]] bool EnterWithin() { return Enter(/*within=*/true); }
  void Leave();

  void Close() { inside_.fetch_or(kClosed); }
  void Open() { inside_.fetch_and(~kClosed); }
  bool closed() const { return (inside_.load() & kClosed) != 0; }
  // Of a closed one. False: somebody was inside until the deadline.
  bool AwaitEmpty(Time deadline);

 private:
  static constexpr uint32_t kClosed = 1u << 31;

  bool Enter(bool within);

  base::Clock& clock_;
  std::atomic<uint32_t> inside_{0};  // how many, and kClosed
};

// Enters, and leaves at the end of its scope. `door` null: there is nothing to be kept out of.
class [[nodiscard]] Inside {
 public:
  enum class As { kOneMore, kWithin };  // Enter() or EnterWithin()

  explicit Inside(Door* door, As as = As::kOneMore)
      : door_(door),
        inside_(door == nullptr || (as == As::kWithin ? door->EnterWithin() : door->Enter())) {}
  ~Inside() {
    if (door_ != nullptr && inside_) door_->Leave();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  bool inside() const { return inside_; }

 private:
  Door* const door_;
  const bool inside_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_DOOR_H_
