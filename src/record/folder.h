// SPDX-License-Identifier: Apache-2.0
// The folder of a recording, as the program that started the recording uses it.
//
//   GPUSHARE_RETURN_IF_ERROR(WriteOrders(folder, {.kernels = 1000}));
//   ...                                            // programs with GPUSHARE_RECORD=<folder>
//   for (const Recorded& one : *ReadFolder(folder)) ... one.rows ... one.kernels
//
// Its content was written by the recorded programs and is checked, not trusted.
#ifndef GPUSHARE_RECORD_FOLDER_H_
#define GPUSHARE_RECORD_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "record/page.h"

namespace gpushare::record {

inline constexpr char kPageSuffix[] = ".page", kRowsSuffix[] = ".csv";

absl::Status WriteOrders(const std::string& folder, const Orders& orders);
absl::StatusOr<Orders> ReadOrders(const std::string& folder);

// The recording of one process.
struct Recorded {
  std::string rows;  // path of the file with its kernels
  std::string program, note;
  int32_t pid = 0;
  int64_t began_ns = 0;
  State state = State::kRecording;
  How how = How::kAuto;
  int32_t error = 0;
  uint64_t kernels = 0, skipped = 0, graphs = 0, captured = 0, unmeasured = 0, late = 0,
           together = 0;
  int64_t device_ns = 0, bias_ns = 0;
};

// The recordings of all processes, in the order in which they began. Incomplete files are left out.
absl::StatusOr<std::vector<Recorded>> ReadFolder(const std::string& folder);

}  // namespace gpushare::record

#endif  // GPUSHARE_RECORD_FOLDER_H_
