// SPDX-License-Identifier: Apache-2.0
// Checks and submits copies and sets.
#ifndef GPUSHARE_SIM_STREAM_TRANSFER_H_
#define GPUSHARE_SIM_STREAM_TRANSFER_H_

#include "sim/api/api.h"
#include "sim/memory/address.h"

namespace gpushare::sim {

// Fills in the direction. Device ranges must be live and long enough; host pointers must not be null.
CUresult CheckCopy(CopyWork* copy);
CUresult CheckSet(const SetWork& set);

enum class Blocking : uint8_t { kNo, kYes };

// Submits the copy to the stream, or to its capture. Whatever `blocking` says, the caller waits when the host memory is
// pageable and too large for the driver to keep a copy.
CUresult SubmitCopy(const ThreadContext& thread, CopyWork copy, CUstream stream, NullStream null,
                    Blocking blocking);
CUresult SubmitSet(const SetWork& set, CUstream stream, NullStream null);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_TRANSFER_H_
