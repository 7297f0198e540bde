// SPDX-License-Identifier: Apache-2.0
// Frees that a preloaded program makes by the driver's calls, of memory that virtual devices keep beside the books: in pools,
// and swappable. The driver does not know the pools' allocations, and would free the memory under them.
#ifndef GPUSHARE_DEVICE_MEMORY_PROGRAM_FREE_H_
#define GPUSHARE_DEVICE_MEMORY_PROGRAM_FREE_H_

#include <optional>

#include "driver/driver.h"

namespace gpushare::device {

// cuMemFree(), which waits for who uses the memory, or cuMemFreeAsync() into `*stream`. Nothing: the pointer is not in such
// memory of any runtime over the driver, and the driver's to free.
std::optional<driver::Result> FreeForProgram(const driver::Driver& driver,
                                             driver::DevicePtr pointer,
                                             const driver::Stream* stream);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_PROGRAM_FREE_H_
