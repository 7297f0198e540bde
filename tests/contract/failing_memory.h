// SPDX-License-Identifier: Apache-2.0
// While a FailingMemory exists, allocations of the calling thread fail: all of them, or only the n-th. The test program's operator new
// does this (failing_memory.cc), so the simulated driver's allocations succeed as usual. It also overwrites freed objects, so that a
// use of one after its end is noticed.
#ifndef GPUSHARE_TESTS_CONTRACT_FAILING_MEMORY_H_
#define GPUSHARE_TESTS_CONTRACT_FAILING_MEMORY_H_

namespace gpushare::work {

class FailingMemory {
 public:
  FailingMemory() : FailingMemory(0) {}
  explicit FailingMemory(int nth);  // counts from 1; 0: all fail
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  // The number of allocations that have failed so far in this program.
  static int failed();
};

// While it exists, all allocations of all other threads fail: of those that gpushare has started, say.
class FailingMemoryElsewhere {
 public:
  FailingMemoryElsewhere();
  ~FailingMemoryElsewhere();
  FailingMemoryElsewhere(const FailingMemoryElsewhere&) = delete;
  FailingMemoryElsewhere& operator=(const FailingMemoryElsewhere&) = delete;
};

}  // namespace gpushare::work

#endif  // GPUSHARE_TESTS_CONTRACT_FAILING_MEMORY_H_
