// SPDX-License-Identifier: Apache-2.0
// Runs one part of a calibration in a process of its own, so that a lost context, a crash or a hang affects only that part.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "harness/stage/calibrate/parts.h"
#include "harness/stage/parent.h"

namespace gpushare::harness {
namespace {

struct Part {
  const char* name;
  void (*of_one)(Gpu&);
  void (*of_two)(Gpu&, Meeting&, int seat);
  bool own_context;  // the part creates the context itself
};

constexpr Part kParts[] = {{"device", &MeasureDevice, nullptr, false},
                           {"calls", &MeasureCalls, nullptr, false},
                           {"markers", &MeasureMarkers, nullptr, false},
                           {"latency", &MeasureLatency, nullptr, false},
                           {"copies", &MeasureCopies, nullptr, false},
                           {"concurrency", &MeasureConcurrency, nullptr, false},
                           {"first_launches", &MeasureFirstLaunches, nullptr, false},
                           {"slices", nullptr, &MeasureSlices, false},
                           {"teardown", nullptr, &MeasureTeardown, true}};

// The ordinal, in the driver that this process has opened, of the GPU with this UUID.
int OrdinalOf(const driver::Driver& driver, const std::string& uuid) {
  const absl::StatusOr<int> count = driver.DeviceCount();
  if (!count.ok()) Gpu::Stop(std::string(count.status().message()));
  for (int i = 0; i < *count; ++i) {
    const absl::StatusOr<driver::Driver::DeviceInfo> info = driver.Describe(i);
    if (info.ok() && info->uuid == uuid) return i;
  }
  Gpu::Stop("there is no GPU " + uuid + " any more");
}

void Play(const Part& part, driver::Driver& driver, const std::string& uuid, std::FILE* findings,
          Meeting* meeting, int seat) {
  Gpu gpu(driver, OrdinalOf(driver, uuid), findings);
  if (!part.own_context) gpu.MakeContext();
  if (part.of_two != nullptr) {
    part.of_two(gpu, *meeting, seat);
  } else {
    part.of_one(gpu);
  }
}

int Run(int argc, char** argv) {
  if (argc != 7 || !EndWithParent(argv[1])) {
    std::fprintf(stderr,
                 "usage: %s PARENT PART SEAT UUID FINDINGS MEETING (this is part of `gpushare "
                 "bench calibrate`)\n",
                 argv[0]);
    return 2;
  }
  const Part* part = nullptr;
  for (const Part& each : kParts) {
    if (std::strcmp(each.name, argv[2]) == 0) part = &each;
  }
  if (part == nullptr) Gpu::Stop(std::string("no part ") + argv[2]);
  const int seat = std::atoi(argv[3]);
  std::FILE* const findings = std::fopen(argv[5], "ab");
  if (findings == nullptr) Gpu::Stop(std::string(argv[5]) + " cannot be written");
  absl::StatusOr<Meeting> meeting = Meeting::Open(argv[6]);
  if (!meeting.ok()) Gpu::Stop(std::string(meeting.status().message()));
  const absl::StatusOr<std::unique_ptr<driver::Driver>> driver = driver::Driver::Open({});
  if (!driver.ok()) Gpu::Stop(std::string(driver.status().message()));
  // Runs on a thread of the clock, so that virtual time passes with its calls.
  (*driver)
      ->clock()
      .StartThread("calibrate", [&] { Play(*part, **driver, argv[4], findings, &*meeting, seat); })
      ->Join();
  if (std::fclose(findings) != 0) Gpu::Stop(std::string(argv[5]) + ": the disk is full");
  return 0;
}

}  // namespace
}  // namespace gpushare::harness

int main(int argc, char** argv) { return gpushare::harness::Run(argc, argv); }
