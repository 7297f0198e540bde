// SPDX-License-Identifier: Apache-2.0
// Random legal sequences of every family from several threads and for two tenants. Any thread may free an allocation,
// by any kind of free. Between the rounds no call is running, and the books agree with the driver's count.
// GPUSHARE_PROPERTY_CASES=N sets the number of rounds; GPUSHARE_PROPERTY_SEED=S selects other ones.
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/contract/books_bed.h"
#include "tests/contract/books_families.h"

namespace gpushare::books {
namespace {

constexpr int kThreads = 3, kSteps = 120;

unsigned FromEnvironment(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : otherwise;
}

struct Thing {
  const Family* family;
  uint64_t handle;
};

const Family* PoolFamily() {
  for (const Family& family : Families()) {
    if (std::string_view(family.name) == "pool") return &family;
  }
  return nullptr;
}

struct Units {
  const char* name;
  uint64_t granule, page;
};

class BooksRandom : public BooksTest, public ::testing::WithParamInterface<Units> {
 protected:
  BooksRandom() : BooksTest("wall", 1, GetParam().granule, GetParam().page) {}

  // One pool releases idle memory when the program synchronizes; the other keeps it.
  void MakePools() {
    for (const uint64_t keep : {uint64_t{0}, UINT64_MAX}) {
      CUmemPoolProps properties{};
      properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      uint64_t threshold = keep;
      pools_.emplace_back();
      ASSERT_CU(books_->MemPoolCreate(&pools_.back(), &properties));
      ASSERT_CU(
          cu_->MemPoolSetAttribute(pools_.back(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    }
  }

  void Put(Thing thing) {
    const std::lock_guard lock(mutex_);
    things_.push_back(thing);
  }
  bool Any(std::mt19937& random, Thing* thing) {
    const std::lock_guard lock(mutex_);
    if (things_.empty()) return false;
    std::swap(things_[random() % things_.size()], things_.back());
    *thing = things_.back();
    things_.pop_back();
    return true;
  }

  void Act(unsigned seed) {
    std::mt19937 random(seed);
    EXPECT_CU(cu_->CtxPushCurrent(context_));
    quota::Account* const accounts[] = {account_.get(), second_.get()};
    for (int i = 0; i < kSteps; ++i) {
      CUstream const stream = streams_[random() % 2];
      Thing thing;
      if (random() % 2 == 0) {
        thing.family = &Families()[random() % Families().size()];
        const unsigned who = random() % 2;
        const uint64_t bytes = 1 + random() % (random() % 4 == 0 ? 9 * kMiB : 90'000);
        const Payer payer{.account = accounts[who], .owner = who};
        Answer answer;
        if (random() % 4 == 0) {
          thing.family = PoolFamily();
          answer = books_->MemAllocFromPoolAsync(payer, Pointer(&thing.handle), bytes,
                                                 pools_[random() % pools_.size()], stream);
        } else {
          answer = thing.family->take(*books_, payer, bytes, stream, &thing.handle);
        }
        // The excess over the limit is growth of a pool of which another thread has taken a part.
        EXPECT_LE(accounts[who]->charged(), kLimit + kThreads * granule_);
        if (answer.ok()) {
          Put(thing);
        } else {
          EXPECT_EQ(answer.result, CUDA_ERROR_OUT_OF_MEMORY);
          EXPECT_TRUE(answer.at_quota);
        }
      } else if (Any(random, &thing)) {
        Give(thing, random() % 3 == 0, stream);
      } else {
        books_->Settle();
      }
    }
    CUcontext popped;
    EXPECT_CU(cu_->CtxPopCurrent(&popped));
  }

  void Give(Thing thing, bool other_way, CUstream stream) {
    if (other_way && thing.family->other_give != nullptr) {
      EXPECT_CU(thing.family->other_give(*books_, thing.handle, stream)) << thing.family->name;
    } else {
      EXPECT_CU(thing.family->give(*books_, thing.handle, stream)) << thing.family->name;
    }
  }

  void ExpectRight() {
    for (CUstream stream : streams_) EXPECT_CU(cu_->StreamSynchronize(stream));
    books_->Settle();
    EXPECT_OK(books_->CheckInvariants());
    uint64_t charged = 0;
    for (const auto* account : {account_.get(), second_.get()}) {
      EXPECT_OK(account->CheckInvariants());
      EXPECT_EQ(account->charged(), account->Usage().committed);
      EXPECT_EQ(account->charged(), books_->BytesOf(account));
      charged += account->charged();
    }
    uint64_t slack = 0;
    for (const Family& family : Families()) slack = std::max(slack, family.slack);
    const uint64_t used = Used() - UnusedOfPages();
    EXPECT_GE(charged, used);
    EXPECT_LE(charged, used + slack);
  }

  std::unique_ptr<quota::Account> second_;
  CUstream streams_[2] = {};
  std::vector<CUmemoryPool> pools_;
  std::mutex mutex_;
  std::vector<Thing> things_;
};

TEST_P(BooksRandom, TheBooksAreTheDriversCountWheneverNothingIsUnderWay) {
  second_ = NewAccount(kLimit);
  streams_[0] = stream_;
  ASSERT_CU(cu_->StreamCreateWithPriority(&streams_[1], CU_STREAM_NON_BLOCKING, 0));
  MakePools();
  const unsigned rounds = FromEnvironment("GPUSHARE_PROPERTY_CASES", 6);
  const unsigned first = FromEnvironment("GPUSHARE_PROPERTY_SEED", 0) * rounds;
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, seed = (first + round) * kThreads + i] { Act(seed); });
    }
    for (std::thread& thread : threads) thread.join();
    ExpectRight();
  }
  std::mt19937 random(0);
  for (Thing thing; Any(random, &thing);) Give(thing, false, stream_);
  EXPECT_CU(books_->DeviceGraphMemTrim(0));  // releases what another trim left since the graph ran
  ExpectRight();
  for (CUmemoryPool pool : pools_) EXPECT_CU(books_->MemPoolDestroy(pool));
  ExpectRight();
  EXPECT_EQ(account_->charged() + second_->charged(), 0u);
  EXPECT_EQ(Used(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Granules, BooksRandom,
                         ::testing::Values(Units{"2MiB", 2 * kMiB, 0}, Units{"32MiB", 32 * kMiB, 0},
                                           Units{"2MiBInPages", 2 * kMiB, kCardPage},
                                           Units{"32MiBInPages", 32 * kMiB, kCardPage}),
                         [](const auto& units) { return std::string(units.param.name); });

}  // namespace
}  // namespace gpushare::books
