// SPDX-License-Identifier: Apache-2.0
// Not part of the API: functions of the program that gpushare calls. No exception may cross the C ABI,
// so each is caught on the side that threw it.
#ifndef GPUSHARE_INTERNAL_CALLBACK_H_
#define GPUSHARE_INTERNAL_CALLBACK_H_

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace gpushare::internal {

// What a callback of the calling thread's current call threw; OK when nothing.
inline thread_local absl::Status thrown;

inline absl::Status TakeThrown() { return std::exchange(thrown, absl::OkStatus()); }

// Returns what `body` returns; `otherwise` when it throws, which TakeThrown() then tells.
template <typename Result, typename Body>
Result CallBack(const char* name, Result otherwise, const Body& body) noexcept {
#if defined(__cpp_exceptions)
  try {
    return body();
  } catch (const std::exception& e) {
    thrown = absl::InternalError(std::string(name) + " threw an exception: " + e.what());
  } catch (...) {
    thrown = absl::InternalError(std::string(name) + " threw what is no std::exception");
  }
  return otherwise;
#else
  static_cast<void>(name);
  static_cast<void>(otherwise);
  return body();
#endif
}

}  // namespace gpushare::internal

#endif  // GPUSHARE_INTERNAL_CALLBACK_H_
