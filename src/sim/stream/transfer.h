// SPDX-License-Identifier: Apache-2.0
// Checking and submitting copies and sets.
#ifndef GPUSHARE_SIM_STREAM_TRANSFER_H_
#define GPUSHARE_SIM_STREAM_TRANSFER_H_

#include "sim/api/api.h"
#include "sim/memory/address.h"

namespace gpushare::sim {

// Fills in the direction. Device ranges must be live and long enough; host pointers not null.
CUresult CheckCopy(CopyWork* copy);
CUresult CheckSet(const SetWork& set);

enum class Blocking : uint8_t { kNo, kYes };

// Puts the copy into the stream, or into its capture. Whatever `blocking`, the caller waits when the
// host memory is pageable and the driver could not have kept a copy of it.
CUresult SubmitCopy(const ThreadContext& thread, CopyWork copy, CUstream stream, NullStream null,
                    Blocking blocking);
CUresult SubmitSet(const SetWork& set, CUstream stream, NullStream null);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_TRANSFER_H_
