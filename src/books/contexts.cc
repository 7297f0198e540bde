// SPDX-License-Identifier: Apache-2.0
// The end of a context, by its destruction or, of a device's primary context, by its last release or a reset.
#include <vector>

#include "books/books.h"

namespace gpushare::books {

// `ended` says after a successful call whether it was the end. The tags are retired before it, so that a context
// that gets the same handle next is not mistaken for this one.
template <typename Call>
CUresult Books::EndContext(CUcontext context, const Call& call,
                           const std::function<bool()>& ended) {
  const ContextTags::Set tags = tags_.Retire(context);
  const std::vector<LateFrees::Free> late = late_.Withdraw(tags);
  const CUresult result = call();
  if (result != CUDA_SUCCESS || !ended()) {
    late_.PutBack(late);
    tags_.Reuse(tags, context);
    return result;
  }
  // Pools are of no context.
  const auto held = [&](const quota::Allocation& one) {
    return one.kind != quota::Kind::kPool && tags[one.place];
  };
  for (quota::PointerTable* table : {&pointers_, &arrays_}) {
    for (const auto& [key, allocation] : table->TakeWhere(held)) Ended(allocation);
  }
  for (const LateFrees::Free& free : late) {
    if (!tags[free.place]) driver_.EventDestroy(free.event);
    Ended(free.allocation);
  }
  tags_.Reuse(tags, nullptr);
  return result;
}

CUresult Books::CtxDestroy(CUcontext context) {
  return EndContext(
      context, [&] { return driver_.CtxDestroy(context); }, [] { return true; });
}

CUcontext Books::PrimaryContext(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (driver_.DevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0 &&
      driver_.DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS) {
    driver_.DevicePrimaryCtxRelease(device);
  }
  return context;
}

CUresult Books::DevicePrimaryCtxRelease(CUdevice device) {
  return EndContext(
      PrimaryContext(device), [&] { return driver_.DevicePrimaryCtxRelease(device); },
      [&] {
        unsigned flags = 0;
        int active = 1;
        driver_.DevicePrimaryCtxGetState(device, &flags, &active);
        return active == 0;
      });
}

CUresult Books::DevicePrimaryCtxReset(CUdevice device) {
  return EndContext(
      PrimaryContext(device), [&] { return driver_.DevicePrimaryCtxReset(device); },
      [&] {
        DropPools(device);
        return true;
      });
}

}  // namespace gpushare::books
