// SPDX-License-Identifier: Apache-2.0
// Not part of the API: how the wrappers own handles of the C ABI.
#ifndef GPUSHARE_INTERNAL_HANDLE_H_
#define GPUSHARE_INTERNAL_HANDLE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::internal {

// Owns one handle; `Destroy` is its destroying function. Move-only; a moved-from one is null, and
// every call on a null handle answers InvalidArgument.
template <typename T, gpushare_status (*Destroy)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) noexcept : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      Reset();
      value_ = std::exchange(other.value_, nullptr);
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { Reset(); }

  T get() const { return value_; }
  T release() { return std::exchange(value_, nullptr); }

 private:
  void Reset() {
    if (value_ != nullptr) static_cast<void>(Destroy(value_));
    value_ = nullptr;
  }

  T value_ = nullptr;
};

// Of an object that was moved from and given where the C interface takes null for "none": the words of a call on one.
inline absl::Status NullHandle(const char* kind) {
  return absl::InvalidArgumentError(std::string("the ") + kind + " handle is null");
}

}  // namespace gpushare::internal

#endif  // GPUSHARE_INTERNAL_HANDLE_H_
