// SPDX-License-Identifier: Apache-2.0
// Snapshots with a known figure in every field.
#ifndef GPUSHARE_TESTS_UNIT_BROKER_SNAPSHOTS_H_
#define GPUSHARE_TESTS_UNIT_BROKER_SNAPSHOTS_H_

#include "broker/snapshot.h"

namespace gpushare::broker {

inline constexpr char kGpuOfTwo[] = "GPU-6f1c4f0e-1f7c-4c3a-9d53-0b6d8a2f1e11";

inline Snapshot TwoTenants() {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  Snapshot snapshot;
  snapshot.at = Time(Seconds(100));
  snapshot.sessions = 2;
  snapshot.sessions_ever = 5;
  snapshot.refused = 1;
  snapshot.gpus = {
      {.uuid = kGpuOfTwo, .memory = 140 * kGiB, .memory_promised = 8 * kGiB, .guaranteed = 0.5}};
  Share online;
  online.gpu = kGpuOfTwo;
  online.tenant = "online";
  online.spec = "memory=8GiB,compute=50%,priority=high";
  online.labels = {{"team", "search \"engine\"\\\n"}};
  online.memory_limit = 8 * kGiB;
  online.memory_used = 3 * kGiB;
  online.memory_granted = 4 * kGiB;
  online.memory_peak = 5 * kGiB;
  online.allocations_denied = 2;
  online.priority = "high";
  online.guarantee = 0.5;
  online.time_used = Seconds(90);
  online.throttled = Millis(1500);
  online.launches = 123456;
  online.waits = 17;
  online.processes = {{.session = 1,
                       .pid = 4242,
                       .uid = 1000,
                       .gid = 100,
                       .program = "serve",
                       .memory_used = 2 * kGiB,
                       .memory_granted = 3 * kGiB,
                       .time_used = Seconds(60)},
                      {.session = 2,
                       .pid = 4243,
                       .uid = 1000,
                       .gid = 100,
                       .program = "serve",
                       .memory_used = kGiB,
                       .memory_granted = kGiB,
                       .time_used = Seconds(30),
                       .gone = true}};
  Share batch;
  batch.gpu = kGpuOfTwo;
  batch.tenant = "batch";
  batch.suspended = true;
  snapshot.shares = {online, batch};
  return snapshot;
}

}  // namespace gpushare::broker

#endif  // GPUSHARE_TESTS_UNIT_BROKER_SNAPSHOTS_H_
