// SPDX-License-Identifier: Apache-2.0
// The state of a tenant that a launch touches: two structs of atomics without pointers, so that they can
// live in memory shared with another process. The page exists from the start. The ring of launches is larger and
// exists from the first stream on.
#ifndef GPUSHARE_GATE_TENANT_PAGE_H_
#define GPUSHARE_GATE_TENANT_PAGE_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace gpushare::gate {

// What a launch leaves for the meter: its cost entry and its stream.
struct LaunchRecord {
  static constexpr uint32_t kEntryMask = 0xfffff;
  static constexpr uint32_t kNoEntry = kEntryMask;  // not a launch: a lease was charged
  static constexpr int kLaunchAt = 40;
  uint32_t launch;       // number of the launch, modulo 2^24
  uint32_t stream;       // index among the tenant's streams
  uint32_t entry;        // entry of the cost model
  bool unknown = false;  // its cost was a guess
  bool graph = false;
  bool refused = false;    // the driver refused it, so its charge goes back
  bool exclusive = false;  // it has the device to itself

  [[gnu::always_inline]] uint64_t Pack() const {
    return (uint64_t{launch} << kLaunchAt) | (uint64_t{stream & 0xffffu} << 24) |
           (uint64_t{unknown ? 1u : 0u} << 23) | (uint64_t{graph ? 1u : 0u} << 22) |
           (uint64_t{refused ? 1u : 0u} << 21) | (uint64_t{exclusive ? 1u : 0u} << 20) |
           (entry & kEntryMask);
  }
  static LaunchRecord Unpack(uint64_t packed) {
    return {static_cast<uint32_t>(packed >> kLaunchAt),
            static_cast<uint32_t>(packed >> 24) & 0xffffu,
            static_cast<uint32_t>(packed) & kEntryMask,
            ((packed >> 23) & 1) != 0,
            ((packed >> 22) & 1) != 0,
            ((packed >> 21) & 1) != 0,
            ((packed >> 20) & 1) != 0};
  }
};

struct TenantPage {
  static constexpr int kLaunchBits = 24;
  static constexpr uint32_t kLaunchMask = (1u << kLaunchBits) - 1;
  static constexpr uint64_t kOneNano = uint64_t{1} << kLaunchBits;

  // [credit in ns:40 | launches:24]: up to 18 minutes of device time. One compare-and-swap spends credit and numbers the
  // launch. The credit is in the upper bits, so the subtraction itself shows whether there is enough. When the launches wrap
  // around to 0, every 16 million, they carry one nanosecond into the credit.
  alignas(64) std::atomic<uint64_t> credit{0};
  // What a command is charged ÷ what it takes alone, in units of 2^-24; below 1 for tenants whose kernels share the
  // device. In this unit a product with it is already in the position of the credit bits.
  std::atomic<uint64_t> charge_units{kOneNano};

  // The last launch by the slow path, and when the driver had taken it. The launches of a grant after that are assumed to
  // follow at an even pace.
  std::atomic<uint32_t> timed_launch{~0u};
  std::atomic<int64_t> timed_ns{0};
  void Timed(uint32_t launch, Time at) {
    timed_ns.store(at.time_since_epoch().count(), std::memory_order_relaxed);
    timed_launch.store(launch, std::memory_order_release);
  }

  // The number of CUDA priorities by which its kernels go before those of streams of the least priority; see LevelOf() in
  // reconciler.cc.
  std::atomic<int32_t> level{0};

  // Bumped with every grant, suspension and removal; waiters sleep on it.
  alignas(64) std::atomic<uint32_t> wake{0};

  static uint64_t CreditOf(uint64_t word) { return word >> kLaunchBits; }
  static uint32_t LaunchOf(uint64_t word) { return static_cast<uint32_t>(word) & kLaunchMask; }

  double charge_factor() const {
    return static_cast<double>(charge_units.load(std::memory_order_relaxed)) / kOneNano;
  }
  // `factor` is in (0, 1]. Returns whether charges have changed.
  bool set_charge_factor(double factor) {
    const auto units = static_cast<uint64_t>(factor * kOneNano);
    const bool changed = units != charge_units.load(std::memory_order_relaxed);
    charge_units.store(units, std::memory_order_relaxed);
    return changed;
  }
  // The charge of a command of this cost in the position of the credit bits, rounded up to whole nanoseconds. It is never 0,
  // since a tenant without credit could launch then.
  static uint64_t ChargeOf(uint64_t cost_ns, uint64_t units) {
    return (cost_ns * units + kLaunchMask) & ~uint64_t{kLaunchMask};
  }
  uint64_t ChargeOf(uint64_t cost_ns) const {
    return ChargeOf(cost_ns, charge_units.load(std::memory_order_relaxed));
  }
  // The charge in ns.
  uint64_t ChargeNs(uint64_t cost_ns) const { return CreditOf(ChargeOf(cost_ns)); }

  // Spends a charge of ChargeOf() if there is enough credit. `word` gets the old value, with the launch's number.
  [[gnu::always_inline]] bool SpendCharge(uint64_t charge, uint64_t* word) {
    uint64_t now = credit.load(std::memory_order_relaxed);
    uint64_t less;
    while (!__builtin_sub_overflow(now, charge, &less)) {
      if (credit.compare_exchange_weak(now, less + 1, std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
        *word = now;
        return true;
      }
    }
    return false;
  }
  // The same with a charge in ns.
  bool Spend(uint64_t ns, uint32_t* launch) {
    uint64_t word;
    if (ns > kMostCredit || !SpendCharge(ns << kLaunchBits, &word)) return false;
    *launch = LaunchOf(word);
    return true;
  }
  // Add() may bring the credit to at most this.
  static constexpr uint64_t kMostCredit = (~uint64_t{0} >> kLaunchBits) / 2;
  void Add(uint64_t ns) { credit.fetch_add(ns << kLaunchBits, std::memory_order_acq_rel); }
  // Takes all credit and returns how much there was.
  uint64_t TakeAll() { return CreditOf(credit.fetch_and(kLaunchMask, std::memory_order_acq_rel)); }
};

// The latest launches of a tenant, for the meter.
struct LaunchRing {
  static constexpr uint32_t kRecords = 4096;  // power of two

  alignas(64) std::array<std::atomic<uint64_t>, kRecords> records;

  // So that an unwritten record does not look like launch 0.
  LaunchRing() {
    for (auto& record : records) record.store(~uint64_t{0}, std::memory_order_relaxed);
  }

  std::atomic<uint64_t>& At(uint32_t launch) { return records[launch & (kRecords - 1)]; }
  const std::atomic<uint64_t>& At(uint32_t launch) const {
    return records[launch & (kRecords - 1)];
  }
  void Put(const LaunchRecord& record) { Put(record.launch, record.Pack()); }
  void Put(uint32_t launch, uint64_t record) {
    At(launch).store(record, std::memory_order_release);
  }
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_TENANT_PAGE_H_
