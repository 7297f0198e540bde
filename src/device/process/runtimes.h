// SPDX-License-Identifier: Apache-2.0
// The runtimes of this process. A program may create several over one driver, whose pointers are then those of all of them.
//
// Threading: thread-safe.
#ifndef GPUSHARE_DEVICE_PROCESS_RUNTIMES_H_
#define GPUSHARE_DEVICE_PROCESS_RUNTIMES_H_

#include <memory>
#include <vector>

#include "driver/driver.h"

namespace gpushare::device {

class Gpu;
class Runtime;

// Call it when a runtime has its driver. Runtimes that are gone are forgotten.
void ListRuntime(const std::shared_ptr<Runtime>& runtime);
// The open GPUs of all runtimes over the same driver library as `driver`.
std::vector<std::shared_ptr<Gpu>> OpenGpusOver(const driver::Driver& driver);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_RUNTIMES_H_
