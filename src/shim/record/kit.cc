// SPDX-License-Identifier: Apache-2.0
#include "shim/record/kit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace gpushare::shim::recording {
namespace {

using driver::Result;

// One thread reads the device's clock until the time has passed. The line before the entry is for the simulated GPU.
constexpr char kWaitModule[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry gpushare_wait(.param .u64 gpushare_wait_param_0)
{
  .reg .pred %p<1>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [gpushare_wait_param_0];
  mov.u64 %rd1, %globaltimer;
SPIN:
  mov.u64 %rd2, %globaltimer;
  sub.u64 %rd3, %rd2, %rd1;
  setp.lt.u64 %p0, %rd3, %rd0;
  @%p0 bra SPIN;
  ret;
}
)";

// Long compared to a step of the device's clock, short compared to the noise of a busy device.
constexpr Nanos kKnown = Micros(10);
constexpr size_t kTries = 31;
// The number of tries for which the host may be too slow.
constexpr size_t kMostInVain = 100;

}  // namespace

std::unique_ptr<Kit> Kit::Make(const driver::Driver& driver, driver::Context context,
                               HostPace& pace, bool waits) {
  std::unique_ptr<Kit> kit(new Kit(driver, context, pace));
  return !waits || kit->Prepare() ? std::move(kit) : nullptr;
}

Kit::~Kit() {
  const Within within(driver_, context_);
  if (!within) return;
  for (driver::Event event : free_) driver_.DestroyEvent(event);
  if (module_ != nullptr) driver_.UnloadModule(module_);
}

bool Kit::Prepare() {
  const Within within(driver_, context_);
  if (!within) return false;
  // If the device does not accept the module, kernels are measured without the waiting kernel.
  if (driver_.LoadModule(&module_, kWaitModule) != Result::kSuccess) {
    module_ = nullptr;
  } else if (driver_.GetFunction(&wait_, module_, "gpushare_wait") != Result::kSuccess) {
    wait_ = nullptr;
  }
  if (wait_ == nullptr) return true;
  driver::Stream stream = nullptr;
  if (driver_.CreateStream(&stream, 0) != Result::kSuccess) return true;
  std::vector<Nanos> biases;
  Nanos measured{0};
  bool late = false;
  // The first try is slow if the driver loads code lazily, so it does not count.
  bool well = Try(stream, &measured, &late);
  for (size_t in_vain = 0; well && biases.size() < kTries && in_vain < kMostInVain;) {
    well = Try(stream, &measured, &late);
    if (late) {
      ++in_vain;
    } else if (well) {
      biases.push_back(measured - kKnown);
    }
  }
  driver_.DestroyStream(stream);
  if (biases.empty()) return true;
  const auto median = biases.begin() + static_cast<std::ptrdiff_t>(biases.size() / 2);
  std::nth_element(biases.begin(), median, biases.end());
  bias_ = std::max(*median, Nanos(0));
  return true;
}

bool Kit::Try(driver::Stream stream, Nanos* measured, bool* late) {
  base::Clock& clock = driver_.clock();
  const Time before = clock.Now();
  if (!Delay(stream, pace_.delay())) return false;
  const driver::Event begin = Stamp(stream);
  const bool launched = Delay(stream, kKnown);
  const driver::Event end = Stamp(stream);
  *late = pace_.Took(clock.Now() - before);
  bool known = false;
  if (begin != nullptr && end != nullptr && launched &&
      driver_.SynchronizeEvent(end) == Result::kSuccess) {
    *measured = Between(begin, end, &known);
  }
  if (begin != nullptr) GiveBack(begin);
  if (end != nullptr) GiveBack(end);
  return known;
}

bool Kit::Delay(driver::Stream stream, Nanos time) {
  if (wait_ == nullptr) return false;
  auto nanoseconds = static_cast<uint64_t>(time.count());
  void* params[] = {&nanoseconds};
  return driver_.Launch(wait_, {{1, 1, 1}, {1, 1, 1}, 0}, stream, params) == Result::kSuccess;
}

driver::Event Kit::Take() {
  driver::Event event = nullptr;
  if (!free_.empty()) {
    event = free_.back();
    free_.pop_back();
    return event;
  }
  const Within within(driver_, context_);
  if (!within || driver_.CreateEvent(&event, /*timing=*/true) != Result::kSuccess) return nullptr;
  return event;
}

driver::Event Kit::Stamp(driver::Stream stream) {
  const driver::Event event = Take();
  if (event == nullptr) return nullptr;
  if (driver_.RecordEvent(event, stream) == Result::kSuccess) return event;
  GiveBack(event);
  return nullptr;
}

Nanos Kit::Between(driver::Event begin, driver::Event end, bool* known) {
  float ms = 0;
  *known = driver_.ElapsedMs(&ms, begin, end) == Result::kSuccess;
  if (!*known) return Nanos(0);
  return Nanos(std::llround(double{ms} * 1e6)) - bias_;
}

}  // namespace gpushare::shim::recording
