// SPDX-License-Identifier: Apache-2.0
// Memory by the driver's own calls, as most programs ask for it.
#ifndef GPUSHARE_HARNESS_STAGE_NATIVE_MEMORY_H_
#define GPUSHARE_HARNESS_STAGE_NATIVE_MEMORY_H_

#include <cuda.h>

#include "harness/stage/asking.h"

namespace gpushare::harness {

class NativeMemory final : public Memory {
 public:
  // Both must outlive this. Stream-ordered calls use `stream` and wait for it.
  NativeMemory(CUcontext context, CUstream stream) : context_(context), stream_(stream) {}

  absl::StatusOr<uint64_t> Allocate(MemoryFamily family, uint64_t bytes) override;
  absl::Status Free(MemoryFamily family, uint64_t pointer, uint64_t bytes) override;

 private:
  static absl::StatusOr<uint64_t> Map(uint64_t bytes);
  static absl::Status Unmap(uint64_t pointer, uint64_t bytes);

  const CUcontext context_;
  const CUstream stream_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_NATIVE_MEMORY_H_
