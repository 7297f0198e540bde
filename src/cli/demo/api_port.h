// SPDX-License-Identifier: Apache-2.0
// A player's port on gpushare's public API.
#ifndef GPUSHARE_CLI_DEMO_API_PORT_H_
#define GPUSHARE_CLI_DEMO_API_PORT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/gpu.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "player/port.h"
#include "player/program.h"
#include "workload/trace.h"

namespace gpushare::cli {

inline Time ToTime(absl::Duration since_epoch) {
  return Time(Nanos(absl::ToInt64Nanoseconds(since_epoch)));
}
inline absl::Duration FromTime(Time time) {
  return absl::Nanoseconds(time.time_since_epoch().count());
}

// A trace loaded on a GPU. Keep the module for as long as the program is launched.
struct LoadedProgram {
  Module module;
  player::Program program;
};
// Loads the trace into the context of `of`, if that has its own, else into the GPU's.
absl::StatusOr<LoadedProgram> LoadProgram(const Gpu& gpu, const workload::KernelTrace& trace,
                                          const VirtualDevice* of = nullptr);

class ApiPort final : public player::Port {
 public:
  // Both must outlive the port.
  ApiPort(const Runtime& runtime, const Stream& stream) : runtime_(runtime), stream_(stream) {}

  absl::Status Launch(const player::Step& step) override;
  absl::Status Synchronize() override { return stream_.Synchronize(); }
  Time Now() override { return ToTime(runtime_.Now()); }
  void SleepUntil(Time when) override { runtime_.SleepUntil(FromTime(when)); }

 private:
  const Runtime& runtime_;
  const Stream& stream_;
};

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_API_PORT_H_
