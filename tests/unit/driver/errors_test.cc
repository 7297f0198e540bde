// SPDX-License-Identifier: Apache-2.0
// scripts/check-symbols checks that the table has every code of cuda.h.
#include "driver/errors.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gpushare::driver {
namespace {

TEST(Errors, TheTableIsAscendingAndComplete) {
  size_t count = 0;
  const ErrorEntry* table = ErrorTable(&count);
  ASSERT_GT(count, 90u);
  std::set<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) {
      EXPECT_LT(table[i - 1].result, table[i].result);
    }
    EXPECT_TRUE(names.insert(table[i].name).second) << table[i].name;
    EXPECT_EQ(std::string(table[i].name).rfind("CUDA_ERROR_", 0), 0u) << table[i].name;
    EXPECT_STRNE(table[i].text, "");
    EXPECT_NE(table[i].status, absl::StatusCode::kOk);
    EXPECT_EQ(FindError(Result{table[i].result}), &table[i]);
  }
}

TEST(Errors, TheNamedResultsAreCudas) {
  EXPECT_EQ(static_cast<int>(Result::kInvalidValue), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(static_cast<int>(Result::kOutOfMemory), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(static_cast<int>(Result::kNotInitialized), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(static_cast<int>(Result::kDeinitialized), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(static_cast<int>(Result::kInvalidContext), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(static_cast<int>(Result::kInvalidHandle), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(static_cast<int>(Result::kNotReady), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(static_cast<int>(Result::kIllegalAddress), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(static_cast<int>(Result::kNotPermitted), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(static_cast<int>(Result::kNotSupported), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(static_cast<int>(Result::kUnknown), CUDA_ERROR_UNKNOWN);
}

TEST(Errors, EveryDriverCodeComesBackAsItWas) {
  size_t count = 0;
  const ErrorEntry* table = ErrorTable(&count);
  for (size_t i = 0; i < count; ++i) {
    const absl::Status status = ToStatus(Result{table[i].result}, "cuCall");
    EXPECT_EQ(status.code(), table[i].status) << table[i].name;
    EXPECT_EQ(FromStatus(status), Result{table[i].result}) << table[i].name;
  }
}

TEST(Errors, SuccessIsOk) {
  EXPECT_TRUE(ToStatus(Result::kSuccess, "cuInit").ok());
  EXPECT_EQ(FromStatus(absl::OkStatus()), Result::kSuccess);
  EXPECT_EQ(FindError(Result::kSuccess), nullptr);
}

TEST(Errors, TheMessageNamesCallCodeAndText) {
  const absl::Status status = ToStatus(Result::kOutOfMemory, "cuMemAlloc");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory");
}

TEST(Errors, AnUnknownCodeKeepsItsNumber) {
  const absl::Status status = ToStatus(Result{123456}, "cuInit");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_NE(std::string(status.message()).find("123456"), std::string::npos);
  EXPECT_EQ(FromStatus(status), Result{123456});
}

// Refusals by gpushare have no driver code of their own: the codes that a caller of the driver gets for them.
TEST(Errors, OurOwnRefusalsHaveTheCodesThatCallersExpect) {
  const struct {
    absl::Status status;
    int expected;
  } cases[] = {
      {absl::ResourceExhaustedError("quota"), CUDA_ERROR_OUT_OF_MEMORY},
      {absl::InvalidArgumentError("x"), CUDA_ERROR_INVALID_VALUE},
      {absl::OutOfRangeError("x"), CUDA_ERROR_INVALID_VALUE},
      {absl::NotFoundError("x"), CUDA_ERROR_INVALID_HANDLE},
      {absl::FailedPreconditionError("x"), CUDA_ERROR_ILLEGAL_STATE},
      {absl::AlreadyExistsError("x"), CUDA_ERROR_ILLEGAL_STATE},
      {absl::PermissionDeniedError("x"), CUDA_ERROR_NOT_PERMITTED},
      {absl::UnauthenticatedError("x"), CUDA_ERROR_NOT_PERMITTED},
      {absl::UnimplementedError("x"), CUDA_ERROR_NOT_SUPPORTED},
      {absl::UnavailableError("x"), CUDA_ERROR_SYSTEM_NOT_READY},
      {absl::DeadlineExceededError("x"), CUDA_ERROR_TIMEOUT},
      {absl::InternalError("x"), CUDA_ERROR_UNKNOWN},
      {absl::UnknownError("x"), CUDA_ERROR_UNKNOWN},
      {absl::CancelledError("x"), CUDA_ERROR_UNKNOWN},
      {absl::AbortedError("x"), CUDA_ERROR_UNKNOWN},
      {absl::DataLossError("x"), CUDA_ERROR_UNKNOWN},
  };
  for (const auto& [status, expected] : cases) {
    EXPECT_EQ(static_cast<int>(FromStatus(status)), expected) << status;
    EXPECT_EQ(FromCode(status.code()), FromStatus(status)) << status;
  }
}

}  // namespace
}  // namespace gpushare::driver
