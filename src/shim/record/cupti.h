// SPDX-License-Identifier: Apache-2.0
// NVIDIA's profiling interface, where it is installed: what each kernel took, by the device itself, those of graphs as well.
//
//   std::string why;
//   std::unique_ptr<Cupti> cupti = Cupti::Open(driver, &why);     // null: `why`
//   if (cupti->Start(&why)) ... launches ...
//   for (const Cupti::Kernel& kernel : cupti->Take()) ...         // those that have ended, in the order of their begins
//   cupti->Stop();
//
// Nothing of it is needed to build: of a kernel's record the begin is read, which has been the same since CUDA 9.
//
// Threading: one thread at a time; CUPTI's own threads bring what it has.
#ifndef GPUSHARE_SHIM_RECORD_CUPTI_H_
#define GPUSHARE_SHIM_RECORD_CUPTI_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "driver/driver.h"

namespace gpushare::shim::recording {

// CUpti_ActivityKernel4 to CUpti_ActivityKernel10, as far as they are the same (tests/unit/shim/cupti_test.cc).
struct __attribute__((packed, aligned(8))) CuptiKernel {
  static constexpr uint32_t kAlone = 3, kConcurrent = 10;  // kinds of records
  uint32_t kind;
  uint8_t cache, shared_memory;
  uint16_t registers;
  uint32_t cache_requested, cache_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_per_thread, local_total;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
};

class Cupti {
 public:
  struct Kernel {
    std::string name;
    uint64_t blocks = 0;
    uint32_t threads = 0, dynamic_shared = 0;  // of a block
    Nanos start{0}, took{0};                   // none: `took` below 0
  };

  // Of GPUSHARE_CUPTI, else as the loader finds it and where toolkits are. One for each process.
  static std::unique_ptr<Cupti> Open(const driver::Driver& driver, std::string* why);
  ~Cupti();
  Cupti(const Cupti&) = delete;
  Cupti& operator=(const Cupti&) = delete;

  // False: somebody else has it, a profiler for instance, or it may not be used here.
  bool Start(std::string* why);
  void Stop();
  std::vector<Kernel> Take();
  // Kernels that it had no room for, since it was asked last.
  uint64_t TakeDropped();

 private:
  struct Calls;
  explicit Cupti(std::unique_ptr<Calls> calls);
  std::string TextOf(int result) const;

  const std::unique_ptr<Calls> calls_;
  bool started_ = false;
};

}  // namespace gpushare::shim::recording

#endif  // GPUSHARE_SHIM_RECORD_CUPTI_H_
