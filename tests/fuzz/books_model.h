// SPDX-License-Identifier: Apache-2.0
// What the books must charge, by an independent model: a list of the allocations and their owners. Pools are an
// exception: their sum is the driver's own figure.
#ifndef GPUSHARE_TESTS_FUZZ_BOOKS_MODEL_H_
#define GPUSHARE_TESTS_FUZZ_BOOKS_MODEL_H_

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace gpushare::books {

// The model charges nothing for multicast objects and for memory that a graph's launch left to the program. The
// former have no bytes; the latter is part of what the device keeps for graphs, which is treated like pools.
enum class Held : uint8_t {
  kPointer,
  kPool,
  kArray,
  kMipmapped,
  kPhysical,
  kExternal,
  kMulticast,
  kGraph
};

constexpr CUdeviceptr kMappedArray = CUdeviceptr{1} << 63;

struct Thing {
  Held held;
  int tenant;
  uint64_t handle;     // the address of a pointer
  uint64_t bytes;      // that are charged
  uint64_t asked = 0;  // of kPointer and kArray: what the program asked for
  int gpu = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  CUevent freed =
      nullptr;  // recorded behind a pointer's free on a stream that has not reached it yet
  // For memory behind handles.
  unsigned references = 1;
  std::vector<CUdeviceptr> mappings =
      {};  // and buffers; with kMappedArray: arrays of external memory
  std::vector<int> descriptors = {};
  unsigned bindings = 0;  // to multicast objects
  uint64_t number = 0;
  std::vector<uint64_t> bound =
      {};  // for a multicast object: the number of what is bound at each place; 0: nothing

  bool gone() const {
    return references == 0 && mappings.empty() && descriptors.empty() && bindings == 0;
  }
  bool live() const { return references > 0 && freed == nullptr; }
};

// The size of all levels with elements of `element` bytes, each level rounded up to 512.
inline uint64_t BytesOfArray(const CUDA_ARRAY3D_DESCRIPTOR& shape, uint64_t element,
                             unsigned levels) {
  uint64_t sum = 0, extents[] = {shape.Width, shape.Height, shape.Depth};
  for (unsigned level = 0; level < levels; ++level) {
    uint64_t elements = 1, longest = 0;
    for (uint64_t& extent : extents) {
      if (extent > 1) elements *= extent;
      if (extent > longest) longest = extent;
    }
    if (longest == 0) break;
    sum += (elements * element + 511) / 512 * 512;
    for (uint64_t& extent : extents) extent /= 2;
  }
  return sum;
}

// Returns one byte at a time, and zeros when there are no more.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}
  bool more() const { return data_ != end_; }
  unsigned Next() { return more() ? *data_++ : 0; }
  // One of the live things that `wanted` accepts, chosen by the next byte; null if there is none.
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
