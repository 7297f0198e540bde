// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/failing_memory.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {
thread_local bool fails_all = false;
thread_local int fails_in = 0;
std::atomic<int> failures{0};
std::atomic<bool> fails_elsewhere{false};
thread_local bool spared = false;  // the thread that has a FailingMemoryElsewhere
}  // namespace

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored \
    "-Wmismatched-new-delete"  // both are replaced here, gcc sees only one
#endif
// Symbols of the linker that say where the program's own code lies.
extern "C" const char __executable_start, etext;  // NOLINT: its names
namespace {
// Whether this allocation is to fail. The simulated driver allocates by the same functions, and its allocations must
// succeed.
bool Fails(const void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  if (at < reinterpret_cast<uintptr_t>(&__executable_start) ||
      at >= reinterpret_cast<uintptr_t>(&etext)) {
    return false;
  }
  if (fails_elsewhere.load(std::memory_order_relaxed)) return !spared;
  return fails_all || (fails_in > 0 && --fails_in == 0);
}
}  // namespace

void* operator new(size_t size) {
  if (Fails(__builtin_return_address(0))) {
    failures.fetch_add(1);
    throw std::bad_alloc();
  }
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
// The nothrow variant is replaced as well: a sanitizer has its own variant, whose memory free() does not accept.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (!Fails(__builtin_return_address(0))) return std::malloc(size);
  failures.fetch_add(1);
  return nullptr;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept;  // clang does not declare it
#if defined(__SANITIZE_ADDRESS__)                // which finds uses of freed memory itself
void operator delete(void* p, size_t) noexcept { std::free(p); }
#else
namespace {
// Pointers and counts that are read from freed memory are then ones that nobody can take for right.
void Spoil(void* p, size_t size) {
  if (p != nullptr) std::memset(p, 0xdd, size);
  asm volatile("" : : "r"(p) : "memory");  // or the compiler leaves the store out
}
}  // namespace
void operator delete(void* p, size_t size) noexcept {
  Spoil(p, size);
  std::free(p);
}
void* operator new(size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t size, std::align_val_t) noexcept;
void operator delete(void* p, size_t size, std::align_val_t) noexcept {
  Spoil(p, size);
  std::free(p);
}
#endif

namespace gpushare::work {

FailingMemory::FailingMemory(int nth) {
  fails_all = nth == 0;
  fails_in = nth;
}
FailingMemory::~FailingMemory() {
  fails_all = false;
  fails_in = 0;
}
FailingMemoryElsewhere::FailingMemoryElsewhere() {
  spared = true;
  fails_elsewhere = true;
}
FailingMemoryElsewhere::~FailingMemoryElsewhere() {
  fails_elsewhere = false;
  spared = false;
}

int FailingMemory::failed() { return failures.load(); }

}  // namespace gpushare::work
