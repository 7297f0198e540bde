// SPDX-License-Identifier: Apache-2.0
// The driver's error codes and absl's, both ways. One table; nothing else in gpushare maps them.
//
//   absl::Status status = ToStatus(driver.MemAlloc(&p, n), "cuMemAlloc");   // driver.h
//   Result result = FromStatus(status);   // the driver's own code again, to the bit
//
// A status that did not come from the driver has no code of its own: FromStatus() then answers by its
// canonical code, as a caller of the driver would expect it (a refused memory quota is kOutOfMemory).
#ifndef GPUSHARE_DRIVER_ERRORS_H_
#define GPUSHARE_DRIVER_ERRORS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "driver/driver.h"

namespace gpushare::driver {

struct ErrorEntry {
  int result;               // the driver's code
  const char* name;         // "CUDA_ERROR_OUT_OF_MEMORY"
  const char* text;         // "out of memory"
  absl::StatusCode status;  // what to do about it
};

// Every code of CUDA 13.0's cuda.h except success, ascending.
const ErrorEntry* ErrorTable(size_t* count);

// The entry of `result`; null for success and for codes that the table does not know.
const ErrorEntry* FindError(Result result);

// The driver's code for a status: the one that it was made from, else by canonical code.
Result FromStatus(const absl::Status& status);
Result FromCode(absl::StatusCode code);

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_ERRORS_H_
