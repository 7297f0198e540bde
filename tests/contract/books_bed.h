// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of the books: the simulated driver with one context, an account, the driver's own count of used memory,
// and the families of allocations as values.
#ifndef GPUSHARE_TESTS_CONTRACT_BOOKS_BED_H_
#define GPUSHARE_TESTS_CONTRACT_BOOKS_BED_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "books/books.h"
#include "driver/driver.h"
#include "tests/contract/sparse_driver.h"
#include "tests/support/sim_control.h"

namespace gpushare::books {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGranule =
    2 * kMiB;  // of virtual memory; of pools and graph memory unless a test says
constexpr uint64_t kLimit = 64 * kMiB;

#define ASSERT_CU(call) ASSERT_EQ(CUDA_SUCCESS, (call))
#define EXPECT_CU(call) EXPECT_EQ(CUDA_SUCCESS, (call))
#define EXPECT_OK(expression)                    \
  do {                                           \
    const ::absl::Status status_ = (expression); \
    EXPECT_TRUE(status_.ok()) << status_;        \
  } while (false)

// A Room that calls `how(account, bytes)` to make room or to wait for it.
template <typename How>
class RoomBy final : public Room {
 public:
  explicit RoomBy(const How& how) : how_(how) {}
  quota::Grant Reserve(quota::Account& account, uint64_t bytes) override {
    return how_(account, bytes);
  }
  bool waits() const override { return true; }

 private:
  const How& how_;
};

class BooksTest : public ::testing::Test {
 protected:
  explicit BooksTest(const char* clock = "virtual", int devices = 1, uint64_t granule = kGranule,
                     uint64_t page = 0)
      : clock_(clock), devices_(devices), granule_(granule), page_(page) {}

  void SetUp() override {
    driver_ = SimulatedDriver();
    ASSERT_NE(driver_, nullptr);
    sim_ = std::make_unique<gpushare::testing::SimControl>(*driver_);
    const absl::Status fresh = sim_->Restart(
        *driver_, "clock=" + std::string(clock_) +
                      ",memory=1GiB,pool_granule=" + std::to_string(granule_ / kMiB) +
                      "MiB,page=" + std::to_string(page_) + ",devices=" + std::to_string(devices_) +
                      ",call_host=0,query_host=0,record_host=0,record_device=0");
    ASSERT_TRUE(fresh.ok()) << fresh;
    ForgetSparseArrays();
    cu_ = &SparseTable();
    ASSERT_CU(cu_->DevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CU(cu_->CtxPushCurrent(context_));
    ASSERT_CU(cu_->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0));
    books_ = std::make_unique<Books>(
        *cu_, [this](uint32_t owner, uint64_t bytes) { credited_[owner % 4] += bytes; },
        Books::Options{.page = PageOf(*driver_)});
    account_ = NewAccount(kLimit);
    before_ = Used();
  }

  std::unique_ptr<quota::Account> NewAccount(uint64_t limit) {
    return *quota::Account::Create(limit);
  }
  Payer payer() { return {.account = account_.get(), .owner = 1}; }

  // The used memory by the driver's own count.
  uint64_t Used() const {
    size_t free = 0, total = 0;
    EXPECT_CU(cu_->MemGetInfo(&free, &total));
    return total - free - before_;
  }
  // What no allocation has of the pages that small allocations share. The driver counts it, and nobody is charged for it.
  uint64_t UnusedOfPages() const {
    uint64_t unused = 0;
    EXPECT_EQ(sim_->pages(0, nullptr, &unused), 0);
    return unused;
  }
  void Inject(const std::string& fault) {
    char error[256] = "";
    ASSERT_EQ(sim_->inject(fault.c_str(), error, sizeof error), 0) << error;
  }
  // Expects exact books. Call it only when no other call is running. At most `slack` more than the driver counts may be charged,
  // and never less than it counts.
  void ExpectExact(uint64_t slack = 0) {
    books_->Settle();
    EXPECT_OK(books_->CheckInvariants());
    EXPECT_OK(account_->CheckInvariants());
    const uint64_t charged = account_->charged(), used = Used() - UnusedOfPages();
    EXPECT_EQ(charged, account_->Usage().committed);  // nothing stays reserved
    EXPECT_EQ(charged, books_->BytesOf(account_.get()));
    EXPECT_GE(charged, used);
    EXPECT_LE(charged, used + slack);
  }

  const char* const clock_;
  const int devices_;
  const uint64_t granule_;  // of pools and graph memory
  const uint64_t page_;     // in which the device hands out memory; 0: to the byte
  std::unique_ptr<gpushare::testing::SimControl> sim_;
  const driver::Driver* driver_ = nullptr;
  const driver::Table* cu_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::unique_ptr<quota::Account> account_;
  std::unique_ptr<Books> books_;
  std::atomic<uint64_t> credited_[4] = {};  // by owner
  uint64_t before_ = 0;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_TESTS_CONTRACT_BOOKS_BED_H_
