// SPDX-License-Identifier: Apache-2.0
// Declarations that the examples in the headers assume: names that another header's example creates, and the program
// around them. They are only declared; see header_examples.py.
#ifndef GPUSHARE_TESTS_LINT_HEADER_CONTEXT_H_
#define GPUSHARE_TESTS_LINT_HEADER_CONTEXT_H_

#include <atomic>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "gpushare/allocator.h"
#include "gpushare/error.h"
#include "gpushare/gang.h"
#include "gpushare/gpu.h"
#include "gpushare/interrupt.h"
#include "gpushare/lease.h"
#include "gpushare/module.h"
#include "gpushare/placement.h"
#include "gpushare/runtime.h"
#include "gpushare/scheduler.h"
#include "gpushare/snapshot.h"
#include "gpushare/spec.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/trace.h"
#include "gpushare/units.h"
#include "gpushare/virtual_device.h"
#include "gpushare/watchdog.h"

namespace example {

using namespace gpushare;  // NOLINT(google-build-using-namespace)

// What an example returns.
struct Anything {
  Anything() = default;
  template <typename T>
  Anything(const T&) {}  // NOLINT(google-explicit-constructor)
};

extern absl::StatusOr<Runtime> runtime;
extern absl::StatusOr<Gpu> gpu, first, second;
extern std::vector<Gpu*> gpus;
extern absl::StatusOr<Tenant> tenant;
extern absl::StatusOr<VirtualDevice> device, device_on_0, device_on_1;
extern absl::StatusOr<Allocator> allocator;
extern absl::StatusOr<Stream> stream, stream_on_0, stream_on_1;
extern CUstream_st* framework_stream;
extern Function kernel;
extern Allocation x, y;
extern std::vector<float> host;
extern uint32_t n;
extern const char* ptx;

struct Model {
  void Execute(CUstream_st* stream);
};
extern Model* model;
struct Pool {
  template <typename Task>
  void Run(Task) {}
};
extern Pool pool;
void Work();
void Warn(const std::string& tenant, absl::Duration late);
void AllReduce(CUstream_st*, CUstream_st*);
int Fail(const absl::Status& status);
int Explain(const std::string& reason);
void Shed(Bytes size);
struct EventLoop {
  void Post(void (*task)());
};
extern EventLoop loop;
void serve();

}  // namespace example

#endif  // GPUSHARE_TESTS_LINT_HEADER_CONTEXT_H_
