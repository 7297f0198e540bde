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

// What callbacks of one call threw, for as long as it lives and on its thread. A call within a callback has its own.
class Thrown {
 public:
  Thrown() noexcept : outer_(std::exchange(innermost_, this)) {}
  ~Thrown() { innermost_ = outer_; }
  Thrown(const Thrown&) = delete;
  Thrown& operator=(const Thrown&) = delete;

  const absl::Status& status() const { return status_; }  // OK: nothing
  static void Keep(absl::Status what) noexcept {
    if (innermost_ != nullptr) innermost_->status_ = std::move(what);
  }

 private:
  static inline thread_local Thrown* innermost_ = nullptr;
  Thrown* const outer_;
  absl::Status status_;
};

// Returns what `body` returns; `otherwise` when it throws, which is the innermost Thrown's then.
template <typename Result, typename Body>
Result CallBack(const char* name, Result otherwise, const Body& body) noexcept {
#if defined(__cpp_exceptions)
  const auto keep = [name](const char* what, const char* which) {
    try {
      Thrown::Keep(absl::InternalError(std::string(name) + what + which));
    } catch (...) {  // the host has no memory for the words either
      Thrown::Keep(absl::Status(absl::StatusCode::kInternal, ""));
    }
  };
  try {
    return body();
  } catch (const std::exception& e) {
    keep(" threw an exception: ", e.what());
  } catch (...) {
    keep(" threw what is no std::exception", "");
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
