// SPDX-License-Identifier: Apache-2.0
#include "work/spread.h"

#include <algorithm>
#include <cstring>

namespace gpushare::work {
namespace {

// Makes the context current, and makes the calls legal while a thread of the program captures.
class Within {
 public:
  Within(const driver::Table& driver, CUcontext context) : driver_(driver) {
    driver_.ThreadExchangeStreamCaptureMode(&mode_);
    pushed_ = context != nullptr && driver_.CtxPushCurrent(context) == CUDA_SUCCESS;
  }
  ~Within() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.CtxPopCurrent(&popped);
    driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  bool pushed() const { return pushed_; }

 private:
  const driver::Table& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool pushed_ = false;
};

bool IsDefault(CUstream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

}  // namespace

Spread::Places Spread::PlacesOf(const driver::GraphContents& graph) const {
  Places places;
  CUdevice here = -1;
  if (driver_.CtxGetDevice(&here) != CUDA_SUCCESS) return places;
  std::vector<driver::Context> seen;
  for (const driver::GraphKernel& kernel : graph.kernels) {
    const driver::Context context = kernel.context;
    if (context == nullptr || std::find(seen.begin(), seen.end(), context) != seen.end()) continue;
    seen.push_back(context);
    const Within within(driver_, context);
    CUdevice device = -1;
    if (!within.pushed() || driver_.CtxGetDevice(&device) != CUDA_SUCCESS) continue;
    const bool known = std::any_of(places.begin(), places.end(),
                                   [&](const Place& place) { return place.device == device; });
    if (!known) places.push_back({device, context});
  }
  const bool elsewhere = std::any_of(places.begin(), places.end(),
                                     [&](const Place& place) { return place.device != here; });
  if (!elsewhere) places.clear();
  return places;
}

void Spread::Put(CUgraphExec exec, Places places) {
  if (places.empty() && graphs_.load(std::memory_order_relaxed) == 0) return;
  const base::MutexLock lock(&mutex_);
  if (places.empty()) {
    places_.erase(exec);
  } else {
    places_.insert_or_assign(exec, std::move(places));
  }
  graphs_.store(places_.size(), std::memory_order_relaxed);
}

Spread::Places Spread::Find(CUgraphExec exec) const {
  if (graphs_.load(std::memory_order_relaxed) == 0) return {};
  const base::MutexLock lock(&mutex_);
  const auto at = places_.find(exec);
  return at != places_.end() ? at->second : Places();
}

CUstream Spread::StandIn(const Gates* gates, CUcontext context, bool* made) {
  *made = false;
  const std::pair key(context, gates);
  {
    const base::MutexLock lock(&mutex_);
    const auto at = stand_ins_.find(key);
    if (at != stand_ins_.end()) return at->second;
  }
  CUstream stream = nullptr;
  {
    const Within within(driver_, context);
    if (!within.pushed() ||
        driver_.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) {
      return nullptr;
    }
  }
  CUstream kept = nullptr;
  try {
    const base::MutexLock lock(&mutex_);
    kept = stand_ins_.emplace(key, stream).first->second;
  } catch (...) {
    driver_.StreamDestroy(stream);
    throw;
  }
  *made = kept == stream;
  if (!*made) driver_.StreamDestroy(stream);  // another thread was faster
  return kept;
}

void Spread::ContextEnds(CUcontext context) {
  for (;;) {
    CUstream stream = nullptr;
    {
      const base::MutexLock lock(&mutex_);
      const auto at = stand_ins_.lower_bound({context, nullptr});
      if (at == stand_ins_.end() || at->first.first != context) return;
      stream = at->second;
      stand_ins_.erase(at);
    }
    driver_.StreamDestroy(stream);
  }
}

bool Spread::Order(CUstream earlier, CUstream later) const {
  CUcontext context = nullptr;
  if (IsDefault(earlier) ? driver_.CtxGetCurrent(&context) != CUDA_SUCCESS
                         : driver_.StreamGetCtx(earlier, &context) != CUDA_SUCCESS) {
    return false;
  }
  const Within within(driver_, context);
  CUevent event = nullptr;
  if (!within.pushed() || driver_.EventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    return false;
  }
  const bool ordered = driver_.EventRecord(event, earlier) == CUDA_SUCCESS &&
                       driver_.StreamWaitEvent(later, event, 0) == CUDA_SUCCESS;
  driver_.EventDestroy(event);
  return ordered;
}

bool Spread::Before(CUdevice a, CUdevice b) const {
  CUuuid of_a{}, of_b{};  // all zeroes if unknown, which is the lowest
  driver_.DeviceGetUuid(&of_a, a);
  driver_.DeviceGetUuid(&of_b, b);
  const int order = std::memcmp(of_a.bytes, of_b.bytes, sizeof(of_a.bytes));
  return order != 0 ? order < 0 : a < b;
}

}  // namespace gpushare::work
