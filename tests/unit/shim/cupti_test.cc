// SPDX-License-Identifier: Apache-2.0
// The fields that are read from CUPTI's records are where CUPTI's own header has them, in each version of the record.
#include "shim/record/cupti.h"

#include <gtest/gtest.h>

#ifdef GPUSHARE_HAVE_CUPTI_HEADER
#include <cupti.h>
#endif

namespace gpushare::shim::recording {
namespace {

TEST(CuptiKernelRecord, IsAsItsHeaderHasIt) {
#ifdef GPUSHARE_HAVE_CUPTI_HEADER
  EXPECT_EQ(CuptiKernel::kAlone, static_cast<uint32_t>(CUPTI_ACTIVITY_KIND_KERNEL));
  EXPECT_EQ(CuptiKernel::kConcurrent, static_cast<uint32_t>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
#define GPUSHARE_SAME(record)                                                              \
  EXPECT_EQ(offsetof(CuptiKernel, kind), offsetof(record, kind));                          \
  EXPECT_EQ(offsetof(CuptiKernel, start), offsetof(record, start));                        \
  EXPECT_EQ(offsetof(CuptiKernel, end), offsetof(record, end));                            \
  EXPECT_EQ(offsetof(CuptiKernel, grid), offsetof(record, gridX));                         \
  EXPECT_EQ(offsetof(CuptiKernel, block), offsetof(record, blockX));                       \
  EXPECT_EQ(offsetof(CuptiKernel, dynamic_shared), offsetof(record, dynamicSharedMemory)); \
  EXPECT_EQ(offsetof(CuptiKernel, name), offsetof(record, name));                          \
  EXPECT_LE(sizeof(CuptiKernel), sizeof(record))
  GPUSHARE_SAME(CUpti_ActivityKernel4);
  GPUSHARE_SAME(CUpti_ActivityKernel5);
  GPUSHARE_SAME(CUpti_ActivityKernel6);
  GPUSHARE_SAME(CUpti_ActivityKernel7);
  GPUSHARE_SAME(CUpti_ActivityKernel8);
#if CUPTI_API_VERSION >= 18
  GPUSHARE_SAME(CUpti_ActivityKernel9);
#endif
#if CUPTI_API_VERSION >= 130000
  GPUSHARE_SAME(CUpti_ActivityKernel10);
#endif
#undef GPUSHARE_SAME
#else
  GTEST_SKIP() << "the toolkit has no cupti.h";
#endif
}

}  // namespace
}  // namespace gpushare::shim::recording
