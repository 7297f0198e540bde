// SPDX-License-Identifier: Apache-2.0
// Measures a GPU. Each part runs in programs of its own (stage/calibrate), one part after the other.
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
  std::string program;          // path of the program of stage/calibrate
  Variables environment;        // of its processes, with GPUSHARE_DRIVER if it is set
  bool simulated = false;       // whether to extend GPUSHARE_SIM in `environment`
  Simulated gpu;                // removes state that processes shared
  std::string uuid;             // of the GPU
  std::string temporary;        // where to make a temporary folder (folder.h)
  Nanos limit = Seconds(60);    // time limit of a part, on the machine's clock
  Nanos in_all = Seconds(480);  // parts that have not begun by then are left out
  const std::atomic<int>* interrupted = nullptr;
};

struct Calibration {
  std::vector<ProfileFigure> figures;
  std::vector<std::string>
      failed;  // errors, each beginning with the name of the part; the other parts went on
  bool interrupted = false;
};

// `progress` is called with the fraction that is done and the name of the next part.
Calibration Calibrate(const CalibrateOptions& options,
                      const std::function<void(double, const std::string&)>& progress);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CALIBRATE_CALIBRATE_H_
