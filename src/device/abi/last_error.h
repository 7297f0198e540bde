// SPDX-License-Identifier: Apache-2.0
// The details of an error, and the last error of each thread for the C ABI.
//
//   return WithDetail(absl::ResourceExhaustedError("..."), {.tenant = "a", .limit = "memory", .asked = n});
//   ...
//   return SetLastError(status);   // in the C ABI: kept for gpushare_last_message() of this thread
//
// A thread's last error lasts until the very end of the thread, since calls made while thread-local objects are destroyed may
// fail too.
#ifndef GPUSHARE_DEVICE_ABI_LAST_ERROR_H_
#define GPUSHARE_DEVICE_ABI_LAST_ERROR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

struct Detail {
  std::string tenant;
  std::string limit;
  uint64_t asked = 0, left = 0, total = 0;
};

absl::Status WithDetail(absl::Status status, const Detail& detail);

// OK changes nothing. Returns the status' code.
gpushare_status SetLastError(const absl::Status& status);
// The same without an absl::Status, for use when no memory is left.
gpushare_status SetLastError(gpushare_status code, const char* message);

const char* LastMessage();
gpushare_error_detail LastDetail();

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_ABI_LAST_ERROR_H_
