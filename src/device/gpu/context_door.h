// SPDX-License-Identifier: Apache-2.0
// Lets calls of the driver into a context of a virtual device's own until that ends: for those who do not keep the
// virtual device, as a free does, which any thread may make while the last of its handles goes.
//
//   const ContextDoor::Visit visit(door);
//   if (visit.inside()) { ...calls of the driver in the context... } else { door.AwaitEnd(); }   // and its memory is gone
//
// Threading: thread-safe. Nobody waits but for the end.
#ifndef GPUSHARE_DEVICE_GPU_CONTEXT_DOOR_H_
#define GPUSHARE_DEVICE_GPU_CONTEXT_DOOR_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace gpushare::device {

class ContextDoor {
 public:
  explicit ContextDoor(base::Clock& clock) : clock_(clock) {}
  ContextDoor(const ContextDoor&) = delete;
  ContextDoor& operator=(const ContextDoor&) = delete;

  class [[nodiscard]] Visit {
   public:
    explicit Visit(ContextDoor& door) : door_(door), inside_(door.Enter()) {}
    ~Visit() { Leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    bool inside() const { return inside_; }
    void Leave() {
      if (inside_) door_.Leave();
      inside_ = false;
    }

   private:
    ContextDoor& door_;
    bool inside_;
  };

  // It was not waited for who is inside.
  bool late() const { return late_.load(); }
  // Until Ended().
  void AwaitEnd();

  // Lets nobody in any more, and waits for those who are inside, at most until `deadline`: the driver may hold them for
  // work that never ends.
  void Close(Time deadline);
  void Ended();

 private:
  static constexpr uint32_t kClosed = 1u << 31;

  bool Enter();
  void Leave();

  base::Clock& clock_;
  std::atomic<uint32_t> inside_{0};  // how many, and kClosed
  std::atomic<uint32_t> ended_{0};
  std::atomic<bool> late_{false};
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_CONTEXT_DOOR_H_
