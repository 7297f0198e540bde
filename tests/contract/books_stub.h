// SPDX-License-Identifier: Apache-2.0
// A stub driver for which the test chooses every answer: the next address or handle, the memory that a pool has reserved, and what
// happens in the middle of a call. Setting `next` lets handles come back, which a real driver may do and the simulated one never
// does.
#ifndef GPUSHARE_TESTS_CONTRACT_BOOKS_STUB_H_
#define GPUSHARE_TESTS_CONTRACT_BOOKS_STUB_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "books/books.h"

namespace gpushare::books {

// Only one may exist at a time, since the driver's functions are not bound to an object.
class StubDriver {
 public:
  StubDriver();
  ~StubDriver() { current_ = nullptr; }
  StubDriver(const StubDriver&) = delete;
  StubDriver& operator=(const StubDriver&) = delete;

  driver::Table table;  // functions that are not controlled below succeed and do nothing

  uint64_t next =
      0x1000;  // the next address or handle that any call returns; grows by 0x1000 each time, unless
  bool same = false;  // is set, which returns the same one again
  size_t pitch_unit = 512;
  uint64_t array_needs = 0;                    // what it says that arrays need; 0: it cannot tell
  uint64_t pool_reserved = 0, pool_grows = 0;  // growth beyond the bytes asked for
  CUresult pool_result = CUDA_SUCCESS;         // the result of pool allocations
  uint64_t graph_reserved = 0,
           graph_takes = 0;  // memory that a launch reserves, if less is reserved
  uint64_t graph_needs = 0;  // the size of each of a graph's allocation nodes
  size_t graph_steps = 0;    // that many, each freed before the next one; 0: one that is not freed
  bool busy = false;         // queries of streams and events return not ready
  int primary_count = 1;
  int attached = 2;                    // the reference count of the context that CtxDetach() gets
  CUcontext context = Context(8);      // the current context
  CUcontext stream_context = nullptr;  // the context of every stream; null: the current one
  CUcontext green = Context(0x88);     // the context of every green context
  int descriptor = -1;                 // the descriptor that an export returns

  // Runs `what` once, in the middle of the next call named `call`, on the calling thread.
  void Inside(const std::string& call, std::function<void()> what) {
    const std::lock_guard lock(mutex_);
    inside_[call] = std::move(what);
  }
  int calls(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return calls_[name];
  }

  static CUcontext Context(uintptr_t value) { return reinterpret_cast<CUcontext>(value); }
  static CUcontext Primary() { return Context(8); }

 private:
  static StubDriver* Enter(const char* call);
  uint64_t Next() { return same ? next : std::exchange(next, next + 0x1000); }
  void FillMemory();
  void FillPools();
  void FillContexts();

  static StubDriver* current_;
  std::mutex mutex_;
  std::map<std::string, std::function<void()>> inside_;
  std::map<std::string, int> calls_;
  std::vector<CUcontext> below_;  // the stack of contexts below the current one
};

// The machine's clock, which also counts waits.
class WatchedClock final : public base::Clock {
 public:
  Time Now() override { return base::RealClock().Now(); }
  base::WaitResult Wait(const std::atomic<uint32_t>& word, uint32_t expected, Time deadline,
                        Nanos spin) override {
    waits.fetch_add(1);
    return base::RealClock().Wait(word, expected, deadline, spin);
  }
  void Wake(const std::atomic<uint32_t>& word, int count) override {
    base::RealClock().Wake(word, count);
  }
  std::unique_ptr<base::ClockThread> StartThread(std::string name,
                                                 std::function<void()> body) override {
    return base::RealClock().StartThread(std::move(name), std::move(body));
  }

  std::atomic<int> waits{0};
};

class BooksStub : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  Payer payer() { return {.account = account_.get(), .owner = 1}; }
  Payer second() { return {.account = second_account_.get(), .owner = 2}; }
  uint64_t charged() const { return account_->charged(); }
  CUstream stream() const { return reinterpret_cast<CUstream>(uintptr_t{0x51}); }
  CUmemoryPool pool() const { return reinterpret_cast<CUmemoryPool>(uintptr_t{0x901}); }
  // Runs `what` on a new thread in the middle of a call. The call continues when that thread has ended or waits.
  void Meanwhile(std::function<void()> what) {
    const int before = clock_.waits.load();
    other_ = std::thread([this, what = std::move(what)] {
      what();
      ended_.store(true);
    });
    while (!ended_.load() && clock_.waits.load() == before) std::this_thread::yield();
  }
  void ExpectRight() {
    const absl::Status right = books_.CheckInvariants();
    EXPECT_TRUE(right.ok()) << right;
    EXPECT_EQ(charged(), account_->Usage().committed);
    EXPECT_EQ(charged(), books_.BytesOf(account_.get()));
  }
  void TearDown() override {
    if (other_.joinable()) other_.join();
    ExpectRight();
  }

  StubDriver driver_;
  WatchedClock clock_;
  std::unique_ptr<quota::Account> account_ = *quota::Account::Create(64 * kMiB),
                                  second_account_ = *quota::Account::Create(64 * kMiB);
  Books books_{driver_.table, nullptr, {.clock = &clock_}};
  std::thread other_;
  std::atomic<bool> ended_{false};
};

}  // namespace gpushare::books

#endif  // GPUSHARE_TESTS_CONTRACT_BOOKS_STUB_H_
