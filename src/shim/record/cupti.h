// SPDX-License-Identifier: Apache-2.0
// NVIDIA's profiling interface, if installed: how long the device says that each kernel took, including kernels of graphs.
//
//   std::string why;
//   std::unique_ptr<Cupti> cupti = Cupti::Open(driver, &why);     // on failure null; `why` explains
//   if (cupti->Start(&why)) ... launches ...
//   for (const Cupti::Kernel& kernel : cupti->Take()) ...         // the kernels that have ended, in the order they began
//   cupti->Stop();
//
// The build does not need CUPTI: only the first part of a kernel's record is read, which has not changed since CUDA 9.
//
// Threading: one thread at a time. CUPTI's own threads deliver the records.
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

// The common first part of CUpti_ActivityKernel4 to CUpti_ActivityKernel10 (tests/unit/shim/cupti_test.cc).
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
    Nanos start{0}, took{0};                   // `took` is negative if unknown
  };

  // Opens the file that GPUSHARE_CUPTI names, else searches as the loader does and in the folders of toolkits. At most one for
  // each process.
  static std::unique_ptr<Cupti> Open(const driver::Driver& driver, std::string* why);
  ~Cupti();
  Cupti(const Cupti&) = delete;
  Cupti& operator=(const Cupti&) = delete;

  // False if another user, for instance a profiler, holds CUPTI, or if using it is not permitted.
  bool Start(std::string* why);
  void Stop();
  std::vector<Kernel> Take();
  // The number of kernels that CUPTI dropped for lack of room since the last call.
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
