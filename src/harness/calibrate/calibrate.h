// SPDX-License-Identifier: Apache-2.0
// Measures the GPU at hand: each part by programs of its own (stage/calibrate), one part after the other.
//
//   const Calibration done = Calibrate({.program = ..., .environment = ..., .uuid = ...}, [](double part, auto& name) { ... });
#ifndef GPUSHARE_HARNESS_CALIBRATE_CALIBRATE_H_
#define GPUSHARE_HARNESS_CALIBRATE_CALIBRATE_H_

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/time.h"
#include "harness/calibrate/profile.h"
#include "harness/environment.h"
#include "harness/simulated.h"

namespace gpushare::harness {

struct CalibrateOptions {
  std::string program;          // that of stage/calibrate
  Variables environment;        // of its processes: with GPUSHARE_DRIVER, if there is one
  bool simulated = false;       // then GPUSHARE_SIM of `environment` is added to
  Simulated gpu;                // to forget what processes shared
  std::string uuid;             // of the GPU
  std::string temporary;        // a folder in which this has one of its own (folder.h)
  Nanos limit = Seconds(60);    // of a part, of the machine's time
  Nanos in_all = Seconds(480);  // what has not begun by then is left out
  const std::atomic<int>* interrupted = nullptr;
};

struct Calibration {
  std::vector<ProfileFigure> figures;
  std::vector<std::string>
      failed;  // what went wrong in a part, whose name it begins with; the others went on
  bool interrupted = false;
};

// `progress` is told how much is done and what comes next.
Calibration Calibrate(const CalibrateOptions& options,
                      const std::function<void(double, const std::string&)>& progress);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CALIBRATE_CALIBRATE_H_
