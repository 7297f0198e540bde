// SPDX-License-Identifier: Apache-2.0
// What the books must charge, by a model that knows nothing of how they do it: a list of what was allocated, with who
// holds it. Pools are the exception: their sum is the driver's own figure.
#ifndef GPUSHARE_TESTS_FUZZ_BOOKS_MODEL_H_
#define GPUSHARE_TESTS_FUZZ_BOOKS_MODEL_H_

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace gpushare::books {

enum class Held : uint8_t { kPointer, kPool, kArray, kPhysical, kExternal };

struct Thing {
  Held held;
  int tenant;
  uint64_t handle;  // a pointer's address
  uint64_t bytes;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  CUevent freed = nullptr;  // a pointer's, in the order of a stream that has not come to it
  // Of what handles stand for.
  unsigned references = 1;
  std::vector<CUdeviceptr> mappings = {};  // and buffers
  std::vector<int> descriptors = {};

  bool gone() const { return references == 0 && mappings.empty() && descriptors.empty(); }
  bool live() const { return references > 0 && freed == nullptr; }
};

// A byte at a time; zeros when there are no more.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}
  bool more() const { return data_ != end_; }
  unsigned Next() { return more() ? *data_++ : 0; }
  // One of a few live things that `wanted` says, chosen by the next byte; null: there is none.
  template <typename Wanted>
  Thing* Choose(std::vector<Thing>* things, const Wanted& wanted) {
    std::vector<Thing*> found;
    for (Thing& thing : *things) {
      if (wanted(thing)) found.push_back(&thing);
    }
    const unsigned which = Next();
    return found.empty() ? nullptr : found[which % found.size()];
  }

 private:
  const uint8_t* data_;
  const uint8_t* const end_;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_TESTS_FUZZ_BOOKS_MODEL_H_
