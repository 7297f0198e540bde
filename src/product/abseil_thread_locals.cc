// SPDX-License-Identifier: Apache-2.0
// Debian's Abseil archives are compiled for executables. That is good enough for a shared library, but
// for thread-local variables: two members of the archives (sysinfo.cc, cordz_functions.cc) address theirs
// in a way that the linker refuses there. This file defines the functions of those two members, so that
// the linker never takes them. Compiled only for an Abseil that needs it (cmake/GpushareProduct.cmake).
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/base/config.h"
#include "absl/base/internal/sysinfo.h"
#include "absl/strings/internal/cordz_functions.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

namespace base_internal {

int NumCPUs() {
  static const int count = static_cast<int>(std::thread::hardware_concurrency());
  return count > 0 ? count : 1;
}

// Only scales Abseil's own cycle clock, of which nothing here makes use.
double NominalCPUFrequency() { return 1.0; }

pid_t GetTID() { return gettid(); }

pid_t GetCachedTID() {
  static thread_local const pid_t id = GetTID();
  return id;
}

}  // namespace base_internal

namespace cord_internal {

// Sampling of cords for profiles, which is off unless a program asks for it; nobody can, in here.
namespace {
constexpr int64_t kNextLook = int64_t{1} << 40;
std::atomic<int32_t> mean_interval{0};
}  // namespace

ABSL_CONST_INIT thread_local int64_t cordz_next_sample = kNextLook;

int32_t get_cordz_mean_interval() { return mean_interval.load(std::memory_order_relaxed); }

void set_cordz_mean_interval(int32_t interval) {
  mean_interval.store(interval, std::memory_order_relaxed);
}

bool cordz_should_profile_slow() {
  cordz_next_sample = kNextLook;
  return false;
}

void cordz_set_next_sample_for_testing(int64_t next_sample) { cordz_next_sample = next_sample; }

}  // namespace cord_internal

ABSL_NAMESPACE_END
}  // namespace absl
