// SPDX-License-Identifier: Apache-2.0
// The common frame of all functions of the C ABI: handles and structs are checked, errors are kept for the thread, and no
// exception leaves.
//
//   gpushare_status gpushare_vdev_suspend(gpushare_vdev vdev) {
//     return Guard([&]() -> absl::Status {
//       GPUSHARE_BORROW(device, vdev);
//       device->Suspend();
//       return absl::OkStatus();
//     });
//   }
#ifndef GPUSHARE_DEVICE_ABI_C_ABI_H_
#define GPUSHARE_DEVICE_ABI_C_ABI_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/abi/handles.h"
#include "device/abi/last_error.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

template <typename Body>
gpushare_status Guard(const Body& body) noexcept {
  try {
    const absl::Status status = body();
    return status.ok() ? GPUSHARE_OK : SetLastError(status);
  } catch (const std::bad_alloc&) {
    return SetLastError(GPUSHARE_RESOURCE_EXHAUSTED, "the host has no memory left");
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again) {
      return SetLastError(GPUSHARE_RESOURCE_EXHAUSTED, "the host gives no more threads");
    }
    return SetLastError(GPUSHARE_INTERNAL, e.what());
  } catch (const std::exception& e) {
    return SetLastError(GPUSHARE_INTERNAL, e.what());
  } catch (...) {
    return SetLastError(GPUSHARE_INTERNAL, "an unknown exception was thrown");
  }
}

template <typename H>
absl::Status BadHandle(H handle) {
  if (handle != nullptr && Handles::Table().forked()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the ", HandleTraits<H>::kName,
        " handle is not valid: this process was forked off, and the driver does not follow; use "
        "gpushare in the parent, or start the process anew"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the ", HandleTraits<H>::kName, " handle is ",
                   handle == nullptr ? "null" : "not valid: destroyed, or of another kind"));
}

// Defines `name` as a plain pointer to the object behind `handle`, or returns an error.
#define GPUSHARE_BORROW(name, handle)         \
  auto* const name = Handles::Borrow(handle); \
  if (name == nullptr) return BadHandle(handle)
// The same as a shared_ptr.
#define GPUSHARE_SHARE(name, handle)        \
  const auto name = Handles::Share(handle); \
  if (name == nullptr) return BadHandle(handle)
#define GPUSHARE_NOT_NULL(pointer) \
  if ((pointer) == nullptr) return absl::InvalidArgumentError("'" #pointer "' is null")

// Stores a new handle for `object` in `out`.
template <typename H, typename Object>
absl::Status NewHandle(H* out, std::shared_ptr<Object> object) {
  const H handle = Handles::Add<H>(std::move(object));
  if (handle == nullptr) return absl::ResourceExhaustedError("there are too many handles");
  *out = handle;
  return absl::OkStatus();
}

// Ends a handle. The object is destroyed when nothing else needs it, and its GPU may be closed with it; then TakeCloseReport()
// tells what that left behind.
absl::Status TakeCloseReport();
template <typename H>
gpushare_status Destroy(H handle) {
  return Guard([&]() -> absl::Status {
    static_cast<void>(TakeCloseReport());
    if (Handles::Take(handle) == nullptr) return BadHandle(handle);
    return TakeCloseReport();
  });
}

// Rejects sizes that no version of a struct has: the struct would end within a field, perhaps a pointer, or is garbage.
template <typename T>
absl::Status CheckSize(size_t size, const char* name) {
  constexpr size_t kMost = 1 << 16;
  if (size >= sizeof(uint32_t) && size <= kMost && size % alignof(T) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "': struct_size is ", size, "; set it to sizeof(the struct)"));
}

// Reads a caller's struct of this or another version. If `optional`, null gives zeroes.
template <typename T>
absl::StatusOr<T> ReadStruct(const T* given, const char* name, bool optional = false) {
  static_assert(std::is_trivially_copyable_v<T>);
  T known = {};
  if (given == nullptr) {
    if (optional) return known;
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is null"));
  }
  const size_t size = given->struct_size;
  GPUSHARE_RETURN_IF_ERROR(CheckSize<T>(size, name));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; })) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' sets fields that this library (",
                                                   sizeof(T), " of ", size,
                                                   " bytes) does not know"));
  }
  std::memcpy(&known, given, std::min(size, sizeof(T)));
  return known;
}

// Whether WriteStruct() will accept the struct. For calls that act before they write.
template <typename T>
absl::Status CheckStruct(const T* out, const char* name) {
  if (out == nullptr) return absl::InvalidArgumentError(absl::StrCat("'", name, "' is null"));
  return CheckSize<T>(out->struct_size, name);
}

// Fills the fields that both sides know.
template <typename T>
absl::Status WriteStruct(T* out, const T& value, const char* name) {
  GPUSHARE_RETURN_IF_ERROR(CheckStruct(out, name));
  const uint32_t size = out->struct_size;
  std::memcpy(out, &value, std::min<size_t>(size, sizeof(T)));
  out->struct_size = size;
  return absl::OkStatus();
}

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_ABI_C_ABI_H_
