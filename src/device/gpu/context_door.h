// SPDX-License-Identifier: Apache-2.0
// Admits driver calls into a virtual device's own context until that context ends. For callers without a handle of it, such
// as a free, which any thread may make while the last handle is being destroyed. They hold it (HeldDevice) until they are done
// with the door.
//
//   const ContextDoor::Visit visit(door);
//   if (visit.inside()) { ...calls of the driver in the context... } else { door.AwaitEnd(); }   // the memory is gone
//
// Threading: thread-safe. Only AwaitEnd() and Close() wait.
#ifndef GPUSHARE_DEVICE_GPU_CONTEXT_DOOR_H_
#define GPUSHARE_DEVICE_GPU_CONTEXT_DOOR_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "device/gpu/door.h"

namespace gpushare::device {

class ContextDoor {
 public:
  explicit ContextDoor(base::Clock& clock) : clock_(clock), door_(clock) {}
  ContextDoor(const ContextDoor&) = delete;
  ContextDoor& operator=(const ContextDoor&) = delete;

  class [[nodiscard]] Visit {
   public:
    explicit Visit(ContextDoor& door) : door_(door), inside_(door.door_.Enter()) {}
    ~Visit() { Leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    bool inside() const { return inside_; }
    void Leave() {
      if (inside_) door_.door_.Leave();
      inside_ = false;
    }

   private:
    ContextDoor& door_;
    bool inside_;
  };

  // Whether Close() gave up waiting while a visitor was inside.
  bool late() const { return late_.load(); }
  // Waits for Ended().
  void AwaitEnd();

  // Admits no more visitors, and waits at most until `deadline` for those inside: the driver may hold them for work that never
  // ends.
  void Close(Time deadline);
  void Ended();

 private:
  base::Clock& clock_;
  Door door_;
  std::atomic<uint32_t> ended_{0};
  std::atomic<bool> late_{false};
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_CONTEXT_DOOR_H_
