// SPDX-License-Identifier: Apache-2.0
// Preloaded: the clock of the day is a day ahead and a day behind in turns, as if somebody set it between any two looks at it. Other
// clocks go on.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t Jump(void) {
  static atomic_uint looks;
  return atomic_fetch_add(&looks, 1) % 2 != 0 ? 86400 : -86400;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += Jump();
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval* now, void* zone) {
  const int result = (int)syscall(SYS_gettimeofday, now, zone);
  now->tv_sec += Jump();
  return result;
}

__attribute__((visibility("default"))) time_t time(time_t* at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at != NULL) *at = now.tv_sec;
  return now.tv_sec;
}
