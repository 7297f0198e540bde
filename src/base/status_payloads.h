// SPDX-License-Identifier: Apache-2.0
// Rewords a status and keeps its payloads, such as the driver's result code, which programs read.
#ifndef GPUSHARE_BASE_STATUS_PAYLOADS_H_
#define GPUSHARE_BASE_STATUS_PAYLOADS_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace gpushare::base {

inline absl::Status WithPayloadsOf(absl::Status told, const absl::Status& of) {
  of.ForEachPayload(
      [&told](absl::string_view url, const absl::Cord& payload) { told.SetPayload(url, payload); });
  return told;
}

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_STATUS_PAYLOADS_H_
