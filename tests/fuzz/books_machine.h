// SPDX-License-Identifier: Apache-2.0
// The simulated machine of books_fuzz.cc: two GPUs, each with its primary context, two streams, and addresses for
// mappings.
#ifndef GPUSHARE_TESTS_FUZZ_BOOKS_MACHINE_H_
#define GPUSHARE_TESTS_FUZZ_BOOKS_MACHINE_H_

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "driver/driver.h"
#include "driver/table.h"
#include "tests/support/sim_control.h"

namespace gpushare::books {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGranule = 2 * kMiB;
constexpr unsigned kPlaces = 6;  // addresses for mappings, of two granules each
constexpr int kGpus = 2;

inline void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

struct Machine {
  struct Gpu {
    CUcontext context = nullptr;
    CUstream streams[2] = {};
    CUdeviceptr addresses = 0;
    uint64_t before = 0;
  };

  const driver::Driver* driver = nullptr;
  const driver::Table* cu = nullptr;
  std::unique_ptr<testing::SimControl> sim;
  uint64_t page = 0;  // in which the GPUs hand out memory, if GPUSHARE_SIM says so
  Gpu gpus[kGpus];

  template <typename F>
  F* Symbol(const char* name) const {
    return reinterpret_cast<F*>(driver->Symbol(name));
  }
  // Calls with `context` current. The first GPU's context is always below it.
  template <typename Call>
  auto In(CUcontext context, const Call& call) const {
    CUcontext popped = nullptr;
    Require(cu->CtxPushCurrent(context) == CUDA_SUCCESS, "a context becomes current");
    auto result = call();
    cu->CtxPopCurrent(&popped);
    return result;
  }
  uint64_t Used(int gpu) const {
    return In(gpus[gpu].context, [&] {
      size_t free = 0, total = 0;
      Require(cu->MemGetInfo(&free, &total) == CUDA_SUCCESS, "the driver tells what is free");
      return total - free - gpus[gpu].before;
    });
  }
  // What no allocation has of the pages that small allocations share.
  uint64_t UnusedOfPages(int gpu) const {
    uint64_t unused = 0;
    Require(sim->pages(gpu, nullptr, &unused) == 0, "the simulated GPU tells of its pages");
    return unused;
  }
  // What an allocation of so many bytes takes.
  uint64_t Taken(uint64_t bytes) const {
    if (page == 0) return bytes;
    const uint64_t unit = bytes > page / 2 ? page : 512;
    return (bytes + unit - 1) / unit * unit;
  }
  void Faults(const std::string& what) const {
    char error[128];
    Require(sim->inject(what.c_str(), error, sizeof error) == 0, "the fault is known");
  }
  // Makes the GPU's context again if it has none or a reset has ended it.
  void Enter(int gpu) {
    Gpu& one = gpus[gpu];
    Require(cu->DevicePrimaryCtxRetain(&one.context, gpu) == CUDA_SUCCESS, "there is a context");
    Require(In(one.context,
               [&] {
                 for (CUstream& stream : one.streams) {
                   if (cu->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) !=
                       CUDA_SUCCESS) {
                     return false;
                   }
                 }
                 return true;
               }),
            "there are streams");
  }
};

inline Machine& TheMachine() {
  static Machine machine = [] {
    Machine made;
    auto opened = driver::Driver::Open({.path = "sim"});
    Require(opened.ok(), "there is a simulated GPU");
    made.driver = opened->release();
    made.cu = &made.driver->table();
    made.sim = std::make_unique<testing::SimControl>(*made.driver);
    Require(made.sim
                ->Restart(*made.driver,
                          "clock=virtual,devices=2,memory=256MiB,pool_granule=2MiB,call_host=0,"
                          "query_host=0,record_host=0,record_device=0,launch_host=0,launch_latency="
                          "0,d2d=1GB/s")
                .ok(),
            "it begins anew");
    Require(made.sim->pages(0, &made.page, nullptr) == 0, "it tells of its pages");
    auto* const reserve =
        made.Symbol<CUresult(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(
            "cuMemAddressReserve");
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      Machine::Gpu& one = made.gpus[gpu];
      made.Enter(gpu);
      Require(reserve(&one.addresses, kPlaces * 2 * kGranule, 0, 0, 0) == CUDA_SUCCESS,
              "there are addresses");
      one.before = made.Used(gpu);
    }
    Require(made.cu->CtxPushCurrent(made.gpus[0].context) == CUDA_SUCCESS, "the GPU is ready");
    return made;
  }();
  return machine;
}

}  // namespace gpushare::books

#endif  // GPUSHARE_TESTS_FUZZ_BOOKS_MACHINE_H_
