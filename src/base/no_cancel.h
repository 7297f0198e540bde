// SPDX-License-Identifier: Apache-2.0
// While it lives the calling thread is not cancelled: pthread_cancel() is heeded at the program's next cancellation point.
//
//   const base::NoCancel whole;
//   write(...);
//
// To be cancelled in one of our own (a read, a write, a close) would unwind a program's thread through us: out of books that
// are half written, and in a destructor that is the end of the process.
//
// Threading: of one thread.
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
