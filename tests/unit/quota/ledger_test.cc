// SPDX-License-Identifier: Apache-2.0
#include "quota/ledger.h"

#include <gtest/gtest.h>

namespace gpushare::quota {
namespace {

std::unique_ptr<Account> MakeAccount(uint64_t limit, Account* parent = nullptr) {
  return *Account::Create(limit, parent);
}

TEST(Account, ReservesCommitsAndReleases) {
  auto account = MakeAccount(1000);
  const Grant grant = account->Reserve(600);
  EXPECT_TRUE(grant);
  EXPECT_EQ(grant.left, 400u);
  EXPECT_EQ(account->Usage().reserved, 600u);
  EXPECT_EQ(account->Usage().committed, 0u);
  EXPECT_EQ(account->Usage().peak, 0u);
  account->Commit(600);
  EXPECT_EQ(account->Usage().reserved, 0u);
  EXPECT_EQ(account->Usage().committed, 600u);
  account->Release(600);
  EXPECT_EQ(account->charged(), 0u);
  EXPECT_EQ(account->Usage().peak, 600u);
  EXPECT_TRUE(account->CheckInvariants().ok());
}

TEST(Account, RefusesOneByteTooMany) {
  auto account = MakeAccount(1000);
  ASSERT_TRUE(account->Reserve(400));
  const Grant refused = account->Reserve(601);
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.left, 600u);
  EXPECT_EQ(account->charged(), 400u);
  EXPECT_EQ(account->Usage().denied, 1u);
  EXPECT_TRUE(account->Reserve(600));
  EXPECT_FALSE(account->Reserve(1));
  EXPECT_TRUE(account->Reserve(0));
}

TEST(Account, SizesNearTheTopOfTheRangeDoNotWrapAround) {
  auto account = MakeAccount(1000);
  ASSERT_TRUE(account->Reserve(1));
  EXPECT_FALSE(account->Reserve(UINT64_MAX));
  EXPECT_FALSE(account->Reserve(UINT64_MAX - 1));
  auto unlimited = MakeAccount(kUnlimited);
  ASSERT_TRUE(unlimited->Reserve(UINT64_MAX - 5));
  EXPECT_FALSE(unlimited->Reserve(6));
  EXPECT_TRUE(unlimited->Reserve(5));
}

TEST(Account, CancelledBytesAreFreeAndNotInThePeak) {
  auto account = MakeAccount(1000);
  ASSERT_TRUE(account->Reserve(1000));
  account->Cancel(1000);
  EXPECT_EQ(account->Usage().peak, 0u);
  EXPECT_TRUE(account->Reserve(1000));
}

TEST(Account, ShrinkingBelowUseTakesNothingAndRefusesUntilUseFalls) {
  auto account = MakeAccount(1000);
  ASSERT_TRUE(account->Reserve(800));
  account->Commit(800);
  account->SetLimit(500);
  EXPECT_EQ(account->Usage().committed, 800u);
  EXPECT_EQ(account->Usage().limit, 500u);
  const Grant refused = account->Reserve(1);
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.left, 0u);
  account->Release(300);
  EXPECT_FALSE(account->Reserve(1));  // the limit is reached exactly
  account->Release(100);
  EXPECT_FALSE(account->Reserve(101));
  EXPECT_TRUE(account->Reserve(100));
}

TEST(Account, WhatIsHeldPastTheLimitIsChargedAndLeavesNothing) {
  auto parent = MakeAccount(1000);
  auto account = MakeAccount(500, parent.get());
  ASSERT_TRUE(account->Reserve(400));
  account->Commit(400);
  EXPECT_FALSE(account->IsOverdrawn());
  account->Overdraw(300);
  EXPECT_TRUE(account->IsOverdrawn());
  EXPECT_FALSE(parent->IsOverdrawn());
  EXPECT_EQ(account->Usage().committed, 700u);
  EXPECT_EQ(parent->charged(), 700u);
  EXPECT_FALSE(account->Reserve(1));
  account->Release(300);
  EXPECT_FALSE(account->IsOverdrawn());
  EXPECT_TRUE(account->Reserve(100));
  account->Commit(100);
  account->Release(500);
  EXPECT_EQ(parent->charged(), 0u);
  EXPECT_TRUE(account->CheckInvariants().ok());
  EXPECT_TRUE(parent->CheckInvariants().ok());
}

TEST(Account, GrowingTheLimitTakesEffectAtOnce) {
  auto account = MakeAccount(100);
  ASSERT_FALSE(account->Reserve(200));
  account->SetLimit(200);
  EXPECT_TRUE(account->Reserve(200));
}

TEST(NestedAccount, BothLimitsHold) {
  auto parent = MakeAccount(1000);
  auto a = MakeAccount(700, parent.get());
  auto b = MakeAccount(700, parent.get());
  ASSERT_TRUE(a->Reserve(700));
  const Grant own_limit = a->Reserve(1);
  EXPECT_FALSE(own_limit);
  EXPECT_EQ(own_limit.left, 0u);
  const Grant parents_limit = b->Reserve(301);
  EXPECT_FALSE(parents_limit);
  EXPECT_EQ(parents_limit.left, 300u);
  EXPECT_EQ(b->charged(), 0u);
  EXPECT_TRUE(b->Reserve(300));
  EXPECT_EQ(parent->charged(), 1000u);
  a->Commit(700);
  b->Commit(300);
  EXPECT_EQ(parent->Usage().committed, 1000u);
  a->Release(700);
  EXPECT_EQ(parent->Usage().committed, 300u);
  EXPECT_EQ(parent->Usage().peak, 1000u);
  b->Release(300);
  EXPECT_EQ(parent->charged(), 0u);
  for (const auto* account : {parent.get(), a.get(), b.get()}) {
    EXPECT_TRUE(account->CheckInvariants().ok());
  }
}

TEST(NestedAccount, TheParentCanReserveForItself) {
  auto parent = MakeAccount(1000);
  auto child = MakeAccount(kUnlimited, parent.get());
  ASSERT_TRUE(parent->Reserve(900));
  EXPECT_FALSE(child->Reserve(101));
  EXPECT_TRUE(child->Reserve(100));
}

TEST(NestedAccount, DeeperThanOneLevelIsUnimplemented) {
  auto parent = MakeAccount(1000);
  auto child = MakeAccount(1000, parent.get());
  EXPECT_EQ(Account::Create(1000, child.get()).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(AccountInvariants, FindABytesReleasedTwice) {
  auto account = MakeAccount(1000);
  ASSERT_TRUE(account->Reserve(100));
  account->Commit(100);
  account->Release(100);
  ASSERT_TRUE(account->CheckInvariants().ok());
  account->Release(100);
  EXPECT_EQ(account->CheckInvariants().code(), absl::StatusCode::kInternal);
}

TEST(AccountInvariants, FindACommitWithoutAReservation) {
  auto account = MakeAccount(1000);
  account->Commit(1);
  EXPECT_EQ(account->CheckInvariants().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace gpushare::quota
