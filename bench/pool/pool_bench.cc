// SPDX-License-Identifier: Apache-2.0
// Measures an allocation and its free in the suballocating pool when the pool need not call the driver.
//
//   Repeated  one size, over and over; arguments: bytes, number of allocations that are live meanwhile
//   Mixed     sizes that do not repeat, freeing the oldest of 64 each time: merges and splits
//   Training  the requests of a training loop in their order. The driver's memory is part of the bookkeeping, but
//             its time is not measured. One iteration of the benchmark is one allocation and one free
//
// Bar: at most 60 ns for a pair.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "pool/suballocator.h"
#include "workload/allocations.h"

namespace gpushare::pool {
namespace {

class World {
 public:
  uint64_t Allocate(uint64_t bytes, StreamId stream) {
    const uint64_t pointer = pool.Allocate(bytes, stream);
    return pointer != 0 ? pointer : Grow(bytes, stream);
  }
  Suballocator pool;

 private:
  [[gnu::noinline]] uint64_t Grow(uint64_t bytes, StreamId stream) {
    const Suballocator::Want want = pool.SegmentFor(bytes);
    pool.TakeSurplus(want);
    pool.AddSegment(next_, want);
    next_ += want.bytes;
    return pool.Allocate(bytes, stream);
  }
  uint64_t next_ = uint64_t{0x7f} << 40;
};

void Check(const World& world) {
  if (!world.pool.CheckInvariants().ok()) std::abort();
}

void Repeated(benchmark::State& state) {
  World world;
  std::mt19937 random(1);
  for (int64_t i = 0; i < state.range(1); ++i) world.Allocate(1 + random() % 100'000, 1);
  const auto bytes = static_cast<uint64_t>(state.range(0));
  for (auto _ : state) {
    const uint64_t pointer = world.Allocate(bytes, 1);
    benchmark::DoNotOptimize(pointer);
    if (!world.pool.Free(pointer, 1)) std::abort();
  }
  Check(world);
}
BENCHMARK(Repeated)->Args({4096, 0})->Args({4096, 1000})->Args({4096, 100'000});
BENCHMARK(Repeated)->Args({4 << 20, 0})->Args({4 << 20, 1000});

void Mixed(benchmark::State& state) {
  World world;
  std::mt19937 random(1);
  std::vector<uint64_t> sizes(4096);
  const auto most = static_cast<uint64_t>(state.range(0));
  for (uint64_t& size : sizes) size = 1 + random() % most;
  std::vector<uint64_t> live(64);
  size_t next = 0;
  for (auto _ : state) {
    uint64_t& oldest = live[next % live.size()];
    if (oldest != 0 && !world.pool.Free(oldest, 1)) std::abort();
    oldest = world.Allocate(sizes[next % sizes.size()], 1);
    ++next;
  }
  Check(world);
}
BENCHMARK(Mixed)->Arg(100'000)->Arg(64 << 20);

void Training(benchmark::State& state) {
  const workload::AllocationPattern pattern =
      state.range(0) == 0 ? *workload::TransformerTraining({}) : *workload::ConvolutionTraining({});
  std::vector<uint64_t> pointers(pattern.buffers);
  World world;
  size_t at = 0;
  const auto step = [&] {
    const auto& s = pattern.steps[at];
    if (s.bytes == 0) {
      if (!world.pool.Free(pointers[s.buffer], 1)) std::abort();
    } else {
      pointers[s.buffer] = world.Allocate(s.bytes, 1);
    }
    if (++at == pattern.steps.size()) at = pattern.steady;
  };
  while (at < pattern.steady) step();
  // There are as many allocations as frees in between.
  for (auto _ : state) {
    step();
    step();
  }
  Check(world);
}
BENCHMARK(Training)->ArgName("convolutions")->Arg(0)->Arg(1);

}  // namespace
}  // namespace gpushare::pool

BENCHMARK_MAIN();
