// SPDX-License-Identifier: Apache-2.0
// The state of a Driver.
#ifndef GPUSHARE_DRIVER_STATE_H_
#define GPUSHARE_DRIVER_STATE_H_

#include <memory>
#include <string>

#include "driver/driver.h"
#include "driver/sim_clock.h"
#include "driver/table.h"

namespace gpushare::driver {

struct Driver::State {
  Table table;
  void* handle = nullptr;  // never closed: a driver has threads and exit handlers
  std::string path;
  int version = 0;
  bool simulated = false;
  std::unique_ptr<SimClock> clock;  // null: the machine's clock
};

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_STATE_H_
