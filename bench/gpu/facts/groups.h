// SPDX-License-Identifier: Apache-2.0
// The measurements, in groups that share a process, and the description of each fact.
#ifndef GPUSHARE_GPU_FACTS_GROUPS_H_
#define GPUSHARE_GPU_FACTS_GROUPS_H_

#include <span>
#include <string>

namespace gpushare::facts {

struct FactInfo {
  const char* name;
  const char* unit;
  const char* how;
};

struct Group {
  const char* name;
  int timeout_s;  // the process is killed after this time
  void (*run)();
  std::span<const FactInfo> facts;
};

// In the order in which they run.
std::span<const Group> Groups();

// One function per group; each reports its facts and returns, or ends the process.
void MeasureMachine();        // machine.cc
void MeasureClocks();         // machine.cc
void MeasureCalls();          // calls.cc
void MeasureLaunches();       // launches.cc
void MeasureLatency();        // launches.cc
void MeasureRecordBubble();   // markers.cc
void MeasureMarkerBias();     // markers.cc
void MeasurePriority();       // sharing.cc
void MeasureConcurrency();    // sharing.cc
void MeasureGreenContexts();  // sharing.cc
void MeasureContextSlice();   // processes.cc
void MeasureTeardown();       // processes.cc
void MeasureCopies();         // copies.cc
void MeasureWake();           // waiting.cc
void MeasureElapsedError();   // waiting.cc

// Plays a role in a process that processes.cc started from this same program: `gpu-facts --role NAME ARGUMENT`. -1 when there
// is no such role.
int PlayRole(const std::string& role, const std::string& argument);

}  // namespace gpushare::facts

#endif  // GPUSHARE_GPU_FACTS_GROUPS_H_
