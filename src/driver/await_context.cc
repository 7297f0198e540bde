// SPDX-License-Identifier: Apache-2.0
#include "driver/await_context.h"

#include "driver/table.h"

namespace gpushare::driver {

Result AwaitContext(const Driver& driver, bool captures) {
  if (!captures) return driver.SynchronizeContext();
  CUdeviceptr byte = 0;
  CUresult result = driver.table().MemAlloc(&byte, 1);
  if (result == CUDA_SUCCESS) result = driver.table().MemFree(byte);
  return static_cast<Result>(result);
}

}  // namespace gpushare::driver
