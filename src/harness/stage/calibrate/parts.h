// SPDX-License-Identifier: Apache-2.0
// The parts of a calibration. Each reports the findings that harness/calibrate/figures.def has for it.
#ifndef GPUSHARE_HARNESS_STAGE_CALIBRATE_PARTS_H_
#define GPUSHARE_HARNESS_STAGE_CALIBRATE_PARTS_H_

#include "harness/stage/calibrate/gpu.h"
#include "harness/stage/calibrate/meeting.h"

namespace gpushare::harness {

void MeasureDevice(Gpu& gpu);   // device.cc: what it says of itself
void MeasureCalls(Gpu& gpu);    // calls.cc: host time of calls
void MeasureMarkers(Gpu& gpu);  // markers.cc: what records of events take and say
void MeasureLatency(
    Gpu& gpu);                 // latency.cc: from a launch to the start, from the end to the return
void MeasureCopies(Gpu& gpu);  // copies.cc
void MeasureConcurrency(Gpu& gpu);    // concurrency.cc: kernels beside one another
void MeasureFirstLaunches(Gpu& gpu);  // first_launches.cc

// Of two processes, by their seats 0 and 1.
void MeasureSlices(Gpu& gpu, Meeting& meeting, int seat);  // slices.cc: turns of contexts
void MeasureTeardown(Gpu& gpu, Meeting& meeting,
                     int seat);  // teardown.cc: 1 dies, 0 looks when its memory is free

// How many commands a stream takes before a launch waits for the device; 0: more than could be tried.
int QueueDepth(const Gpu& gpu, CUstream stream);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_CALIBRATE_PARTS_H_
