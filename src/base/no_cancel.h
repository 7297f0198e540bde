// SPDX-License-Identifier: Apache-2.0
// Defers pthread_cancel() of the calling thread: it takes effect at the program's next cancellation point after this scope.
//
//   const base::NoCancel whole;
//   write(...);
//
// A cancellation inside one of gpushare's own calls (read, write, close) would unwind the thread through half-written books,
// and inside a destructor it would terminate the process.
//
// Threading: belongs to the thread that made it.
#ifndef GPUSHARE_BASE_NO_CANCEL_H_
#define GPUSHARE_BASE_NO_CANCEL_H_

#include <pthread.h>

namespace gpushare::base {

class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was_); }
  ~NoCancel() { pthread_setcancelstate(was_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int was_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_NO_CANCEL_H_
