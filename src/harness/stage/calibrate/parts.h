// SPDX-License-Identifier: Apache-2.0
// The parts of a calibration. Each reports the findings that harness/calibrate/figures.def has for it.
#ifndef GPUSHARE_HARNESS_STAGE_CALIBRATE_PARTS_H_
#define GPUSHARE_HARNESS_STAGE_CALIBRATE_PARTS_H_

#include "harness/stage/calibrate/gpu.h"
#include "harness/stage/calibrate/meeting.h"

namespace gpushare::harness {

void MeasureDevice(Gpu& gpu);   // device.cc: properties that the driver reports
void MeasureCalls(Gpu& gpu);    // calls.cc: host time of calls
void MeasureMarkers(Gpu& gpu);  // markers.cc: cost and accuracy of event records
void MeasureLatency(
    Gpu& gpu);                 // latency.cc: from a launch to the start, from the end to the return
void MeasureCopies(Gpu& gpu);  // copies.cc
void MeasureConcurrency(Gpu& gpu);    // concurrency.cc: kernels beside one another
void MeasureFirstLaunches(Gpu& gpu);  // first_launches.cc

// These run in two processes, with seats 0 and 1.
void MeasureSlices(Gpu& gpu, Meeting& meeting, int seat);  // slices.cc: turns of contexts
void MeasureTeardown(
    Gpu& gpu, Meeting& meeting,
    int seat);  // teardown.cc: seat 1 dies, seat 0 measures when its memory is free

// The number of commands that a stream accepts before a launch blocks; 0 if it is more than was tried.
int QueueDepth(const Gpu& gpu, CUstream stream);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_CALIBRATE_PARTS_H_
