// SPDX-License-Identifier: Apache-2.0
// Declarations that the examples in the pages assume: objects that the reader has created before, and the program
// around them. They are only declared; see page_examples.py.
#ifndef GPUSHARE_TESTS_LINT_PAGE_CONTEXT_H_
#define GPUSHARE_TESTS_LINT_PAGE_CONTEXT_H_

#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "gpushare/allocator.h"
#include "gpushare/error.h"
#include "gpushare/gpu.h"
#include "gpushare/lease.h"
#include "gpushare/runtime.h"
#include "gpushare/scheduler.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/units.h"
#include "gpushare/virtual_device.h"

namespace page {

using namespace gpushare;  // NOLINT(google-build-using-namespace)

// What an example returns.
struct Anything {
  Anything() = default;
  template <typename T>
  Anything(const T&) {}  // NOLINT(google-explicit-constructor)
};

extern std::optional<Runtime> runtime;
extern std::optional<Gpu> gpu;
extern VirtualDevice device;
extern Allocator allocator;
extern Stream stream;

struct Engine {
  void Run(CUstream_st* stream);
};
extern Engine engine;
void Shed(Bytes size);
struct EventLoop {
  void Post(void (*task)());
};
extern EventLoop loop;
void Serve();

}  // namespace page

#endif  // GPUSHARE_TESTS_LINT_PAGE_CONTEXT_H_
