// SPDX-License-Identifier: Apache-2.0
// Where a player sends its commands: gpushare's public API, or the bare driver for the figures without it.
#ifndef GPUSHARE_PLAYER_PORT_H_
#define GPUSHARE_PLAYER_PORT_H_

#include "absl/status/status.h"
#include "driver/driver.h"
#include "player/program.h"

namespace gpushare::player {

// One stream of one tenant. Called from the one thread that plays; the context is current there.
class Port {
 public:
  virtual ~Port() = default;
  virtual absl::Status Launch(const Program::Step& step) = 0;
  virtual absl::Status Synchronize() = 0;
};

// The bare driver.
class DriverPort final : public Port {
 public:
  DriverPort(const driver::Driver& driver, driver::Stream stream)
      : driver_(driver), stream_(stream) {}

  absl::Status Launch(const Program::Step& step) override {
    Program::Step::Params params = step.params();
    return driver::ToStatus(driver_.Launch(step.function, step.shape, stream_, params.pointers),
                            "launch");
  }
  absl::Status Synchronize() override {
    return driver::ToStatus(driver_.SynchronizeStream(stream_), "synchronize");
  }

 private:
  const driver::Driver& driver_;
  const driver::Stream stream_;
};

}  // namespace gpushare::player

#endif  // GPUSHARE_PLAYER_PORT_H_
