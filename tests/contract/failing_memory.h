// SPDX-License-Identifier: Apache-2.0
// Allocations of the calling thread that fail, for as long as it lives: all, or the n-th alone. The test program's own operator new does it
// (failing_memory.cc), so that the simulated driver's are as ever.
#ifndef GPUSHARE_TESTS_CONTRACT_FAILING_MEMORY_H_
#define GPUSHARE_TESTS_CONTRACT_FAILING_MEMORY_H_

namespace gpushare::work {

class FailingMemory {
 public:
  FailingMemory() : FailingMemory(0) {}
  explicit FailingMemory(int nth);  // from 1 on; 0: all
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  // How many have failed so far, in this program.
  static int failed();
};

}  // namespace gpushare::work

#endif  // GPUSHARE_TESTS_CONTRACT_FAILING_MEMORY_H_
