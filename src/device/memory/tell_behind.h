// SPDX-License-Identifier: Apache-2.0
// Word of how far a stream has come, for those who wait for what was freed there.
//
//   TellBehind(driver, native, [waiters = account.AwaitedBy()] { waiters.LookAgain(); });
//
// It takes a function on the host behind what the stream was given, which holds up the stream: to be put there only while
// somebody waits.
#ifndef GPUSHARE_DEVICE_MEMORY_TELL_BEHIND_H_
#define GPUSHARE_DEVICE_MEMORY_TELL_BEHIND_H_

#include <memory>
#include <new>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "driver/driver.h"

namespace gpushare::device {

// What a function on the host holds until it is called. Behind a fault it never is, and no driver says so: then it is kept
// here, for the life of the process.
class Untold {
 public:
  Untold() {
    List& all = All();
    base::MutexLock lock(&all.mutex);
    next_ = all.first;
    if (next_ != nullptr) next_->previous_ = this;
    all.first = this;
  }
  ~Untold() {
    List& all = All();
    base::MutexLock lock(&all.mutex);
    (previous_ != nullptr ? previous_->next_ : all.first) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
  }
  Untold(const Untold&) = delete;
  Untold& operator=(const Untold&) = delete;

 private:
  struct List {
    base::Mutex mutex;
    Untold* first ABSL_GUARDED_BY(mutex) = nullptr;
  };
  static List& All() {
    static List* const all = new List;
    return *all;
  }
  Untold *previous_ = nullptr, *next_ = nullptr;
};

// `tell` runs on a thread of the driver's, which may not call it, and does not throw. Not at all (false) on a stream that
// captures, and where the host or the driver has no room for it: who waits looks from time to time. The stream's context
// is current, and the thread in the relaxed mode.
template <typename Tell>
bool TellBehind(const driver::Driver& driver, driver::Stream native, Tell tell) {
  driver::Driver::Capture capture = driver::Driver::Capture::kNone;
  if (driver.StreamCapture(native, &capture) != driver::Result::kSuccess ||
      capture != driver::Driver::Capture::kNone) {
    return false;
  }
  struct Token : Untold {
    explicit Token(Tell&& what) : tell(std::move(what)) {}
    Tell tell;
  };
  std::unique_ptr<Token> token(new (std::nothrow) Token(std::move(tell)));
  if (token == nullptr) return false;
  const auto call = [](void* argument) {
    const std::unique_ptr<Token> now(static_cast<Token*>(argument));
    now->tell();
  };
  if (driver.LaunchHost(native, call, token.get()) != driver::Result::kSuccess) return false;
  static_cast<void>(token.release());
  return true;
}

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_TELL_BEHIND_H_
