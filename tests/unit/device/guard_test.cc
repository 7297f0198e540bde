// SPDX-License-Identifier: Apache-2.0
// No exception leaves the C ABI; each becomes a status that says what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "device/abi/c_abi.h"

namespace gpushare::device {
namespace {

using ::testing::HasSubstr;

template <typename Exception>
gpushare_status Thrown(const Exception& exception) {
  return Guard([&]() -> absl::Status { throw exception; });
}

TEST(GuardTest, WhatTheHostHasNoMoreOfIsExhausted) {
  EXPECT_EQ(Thrown(std::bad_alloc()), GPUSHARE_RESOURCE_EXHAUSTED);
  EXPECT_THAT(LastMessage(), HasSubstr("no memory"));
  // std::thread throws this when the limit of processes is reached.
  EXPECT_EQ(
      Thrown(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))),
      GPUSHARE_RESOURCE_EXHAUSTED);
  EXPECT_THAT(LastMessage(), HasSubstr("no more threads"));
}

TEST(GuardTest, AllElseIsInternal) {
  EXPECT_EQ(Thrown(std::runtime_error("it broke")), GPUSHARE_INTERNAL);
  EXPECT_THAT(LastMessage(), HasSubstr("it broke"));
  EXPECT_EQ(Thrown(std::system_error(std::make_error_code(std::errc::io_error))),
            GPUSHARE_INTERNAL);
  EXPECT_EQ(Thrown(7), GPUSHARE_INTERNAL);
}

}  // namespace
}  // namespace gpushare::device
