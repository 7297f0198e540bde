// SPDX-License-Identifier: Apache-2.0
// The details of a failed call, for programs.
//
//   absl::StatusOr<Allocation> buffer = allocator->Allocate(GiB(4));
//   if (absl::IsResourceExhausted(buffer.status())) {
//     if (std::optional<ErrorDetail> detail = ErrorDetail::Of(buffer.status())) {
//       Shed(Bytes(detail->asked - detail->left));
//     }
//   }
//
// Every call returns absl::Status or absl::StatusOr with a canonical code that says what to do
// (docs/errors.md) and a message for people: what was asked, what was left, which setting changes
// it. Programs take the numbers from the detail, never from the message.
#ifndef GPUSHARE_ERROR_H_
#define GPUSHARE_ERROR_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "gpushare/c/gpushare.h"

namespace gpushare {

struct ErrorDetail {
  int driver_result = 0;  // the driver's code (CUresult) if the driver refused; else 0
  std::string tenant;     // the tenant whose limit was hit; empty if none was
  std::string limit;      // the limit: a key of the spec ("memory", "guarantee"), or "device"
  uint64_t asked = 0;     // in the limit's unit; shares in parts per million
  uint64_t left = 0;
  uint64_t total = 0;

  // The detail of a status; nullopt if neither a limit nor the driver refused.
  static std::optional<ErrorDetail> Of(const absl::Status& status);
};

namespace internal {

inline constexpr char kDetailPayload[] = "gpushare/error-detail";

// The error of the call that has just returned `code` on this thread.
[[gnu::cold]] inline absl::Status ToError(gpushare_status code) {
  absl::Status status(static_cast<absl::StatusCode>(code), gpushare_last_message());
  gpushare_error_detail detail = {};
  detail.struct_size = sizeof(detail);
  if (gpushare_last_detail(&detail) == GPUSHARE_OK &&
      (detail.driver_result != 0 || detail.limit[0] != '\0')) {
    // Text, since `<<` on a status shows the payload. The tenant's name comes last, since it may contain anything.
    std::string text;
    if (detail.driver_result != 0) text = "driver_result=" + std::to_string(detail.driver_result);
    if (detail.limit[0] != '\0') {
      text += (text.empty() ? "limit=" : " limit=") + std::string(detail.limit) +
              " asked=" + std::to_string(detail.asked) + " left=" + std::to_string(detail.left) +
              " total=" + std::to_string(detail.total) + " tenant=" + detail.tenant;
    }
    status.SetPayload(kDetailPayload, absl::Cord(text));
  }
  return status;
}

// The status of the call that has just returned `code` on this thread.
inline absl::Status ToStatus(gpushare_status code) {
  return code == GPUSHARE_OK ? absl::OkStatus() : ToError(code);
}

}  // namespace internal

inline std::optional<ErrorDetail> ErrorDetail::Of(const absl::Status& status) {
  const auto payload = status.GetPayload(internal::kDetailPayload);
  if (!payload.has_value()) return std::nullopt;
  const std::string text(*payload);
  ErrorDetail detail;
  for (size_t at = 0; at < text.size();) {
    const size_t equals = text.find('=', at);
    if (equals == std::string::npos) break;
    const std::string key = text.substr(at, equals - at);
    const size_t end =
        key == "tenant" ? text.size() : std::min(text.find(' ', equals), text.size());
    const std::string value = text.substr(equals + 1, end - equals - 1);
    const auto number = [&] { return std::strtoull(value.c_str(), nullptr, 10); };
    if (key == "driver_result") detail.driver_result = static_cast<int>(number());
    if (key == "limit") detail.limit = value;
    if (key == "asked") detail.asked = number();
    if (key == "left") detail.left = number();
    if (key == "total") detail.total = number();
    if (key == "tenant") detail.tenant = value;
    at = end + 1;
  }
  return detail;
}

}  // namespace gpushare

#endif  // GPUSHARE_ERROR_H_
