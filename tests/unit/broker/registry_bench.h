// SPDX-License-Identifier: Apache-2.0
// A registry of one GPU, and processes that it serves.
#ifndef GPUSHARE_TESTS_UNIT_BROKER_REGISTRY_BENCH_H_
#define GPUSHARE_TESTS_UNIT_BROKER_REGISTRY_BENCH_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <string>

#include "broker/registry.h"
#include "tests/unit/broker/pages.h"

namespace gpushare::broker {

inline constexpr char kGpuOfRegistry[] = "GPU-0";
inline constexpr uint64_t kGibibyte = 1ull << 30;

// Processes whose pages the test writes, on a device that runs them one slice at a time, as far as they may run.
class RegistryBench : public testing::Test {
 protected:
  struct Process {
    Pages pages;
    Registry::Session* session = nullptr;
    int64_t ran_ns = 0;
  };
  static constexpr Nanos kSlice = Micros(100);

  RegistryBench() : registry_(Gpus()) { EXPECT_TRUE(Apply(Unlisted()).ok()); }
  static std::vector<GpuInfo> Gpus() {
    return {{.uuid = kGpuOfRegistry, .memory = 16 * kGibibyte, .reserve = 0, .sm_count = 132}};
  }
  static Config Unlisted() {
    Config config;
    config.unlisted = true;
    return config;
  }
  absl::Status Apply(const Config& config) { return registry_.Apply(config, now_, changed_); }

  absl::StatusOr<Process*> Try(const std::string& tenant, const std::string& spec,
                               uint32_t uid = 1000) {
    ipc::Hello hello;
    hello.tenant = tenant;
    hello.spec = spec;
    const auto session = registry_.Register({.pid = ++pid_, .uid = uid, .began = 1}, hello);
    if (!session.ok()) return session.status();
    Process& process = processes_.emplace_back();
    process.session = *session;
    ipc::OpenGpu open;
    open.uuid = kGpuOfRegistry;
    const auto given = registry_.Open(**session, open, process.pages.seat, now_, changed_);
    if (!given.ok()) {
      End(process);
      return given.status();
    }
    return &process;
  }
  Process& Start(const std::string& tenant, const std::string& spec, uint32_t uid = 1000) {
    const absl::StatusOr<Process*> process = Try(tenant, spec, uid);
    EXPECT_TRUE(process.ok()) << process.status();
    return **process;
  }
  void End(Process& process) {
    registry_.Free(process.session, now_, changed_);
    process.session = nullptr;
    Look(Nanos(0));
  }
  void Look(Nanos later) {
    now_ += later;
    registry_.Look(now_, changed_);
    EXPECT_STREQ(registry_.CheckInvariants(), nullptr);
  }
  // Runs the process, which has work all the time.
  void Run(Process& process, Nanos span) {
    for (const Time end = now_ + span; now_ < end;) {
      process.pages.usage.time_wanted_ns = kSlice.count();
      const bool suspended = process.pages.limits.flags & ipc::LimitsPage::kSuspended;
      if (process.pages.time_left() > 0 && !suspended) {
        process.pages.usage.time_used_ns += kSlice.count();
        process.ran_ns += kSlice.count();
      }
      Look(kSlice);
    }
  }
  // Runs processes of length `each` one after the other. Returns the fraction of the time that they used.
  double Loop(const std::string& tenant, const std::string& spec, Nanos each, Nanos span,
              Nanos pause = Nanos(0)) {
    int64_t ran = 0;
    const Time begin = now_;
    while (now_ - begin < span) {
      Process& process = Start(tenant, spec);
      Run(process, each);
      ran += process.ran_ns;
      End(process);
      Look(pause);
    }
    return static_cast<double>(ran) / static_cast<double>((now_ - begin).count());
  }
  const Share* Shown(const std::string& tenant) {
    snapshot_ = registry_.TakeSnapshot(now_);
    for (const Share& share : snapshot_.shares) {
      if (share.tenant == tenant) return &share;
    }
    return nullptr;
  }

  Time now_{Seconds(1)};
  Changed changed_;
  Registry registry_;
  std::deque<Process> processes_;
  Snapshot snapshot_;
  int32_t pid_ = 0;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_TESTS_UNIT_BROKER_REGISTRY_BENCH_H_
