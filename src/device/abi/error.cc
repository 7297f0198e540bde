// SPDX-License-Identifier: Apache-2.0
// The C ABI: errors, versions.
#include <cstring>
#include <iterator>
#include <type_traits>

#include "device/abi/c_abi.h"
#include "gpushare/version.h"

using namespace gpushare::device;

const char* gpushare_status_name(gpushare_status status) {
  constexpr const char* kNames[] = {"OK",
                                    "CANCELLED",
                                    "UNKNOWN",
                                    "INVALID_ARGUMENT",
                                    "DEADLINE_EXCEEDED",
                                    "NOT_FOUND",
                                    "ALREADY_EXISTS",
                                    "PERMISSION_DENIED",
                                    "RESOURCE_EXHAUSTED",
                                    "FAILED_PRECONDITION",
                                    "ABORTED",
                                    "OUT_OF_RANGE",
                                    "UNIMPLEMENTED",
                                    "INTERNAL",
                                    "UNAVAILABLE",
                                    "DATA_LOSS",
                                    "UNAUTHENTICATED"};
  // A C program may pass any value. Reading one that is none of the enumeration's as such is undefined, in std::bit_cast() too.
  std::underlying_type_t<gpushare_status> i;
  std::memcpy(&i, &status, sizeof(i));
  return i < std::size(kNames) ? kNames[i] : "NO_SUCH_STATUS";
}

const char* gpushare_last_message() { return LastMessage(); }

gpushare_status gpushare_last_detail(gpushare_error_detail* detail) {
  // Errors here do not go through SetLastError(), since asking for the last error must not change it.
  gpushare_error_detail last = LastDetail();
  last.struct_size = sizeof(last);
  return WriteStruct(detail, last, "detail").ok() ? GPUSHARE_OK : GPUSHARE_INVALID_ARGUMENT;
}

uint32_t gpushare_abi_version() { return GPUSHARE_ABI_VERSION; }
const char* gpushare_version() { return GPUSHARE_VERSION_STRING; }
