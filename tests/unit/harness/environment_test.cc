// SPDX-License-Identifier: Apache-2.0
#include "harness/environment.h"

#include <gtest/gtest.h>

namespace gpushare::harness {
namespace {

TEST(Environment, WhatHasASayInSharingIsLeftOut) {
  const char* const callers[] = {"PATH=/bin",
                                 "GPUSHARE_SPEC=compute=30%",
                                 "LD_PRELOAD=/opt/libother.so",
                                 "LD_AUDIT=/opt/audit.so",
                                 "LD_LIBRARY_PATH=/opt",
                                 "CUDA_VISIBLE_DEVICES=",
                                 "CUDA_DEVICE_SM_LIMIT=10",
                                 "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10",
                                 "NVIDIA_GPU_MEMORY_LIMIT=1",
                                 "GPU_CORE_UTILIZATION_POLICY=force",
                                 "ALIYUN_COM_GPU_MEM_CONTAINER=1",
                                 "MY_CUDA_HOME=a=b",
                                 "EMPTY=",
                                 "nonsense",
                                 nullptr};
  const Variables expected = {{"PATH", "/bin"}, {"MY_CUDA_HOME", "a=b"}, {"EMPTY", ""}};
  EXPECT_EQ(WithoutThoseOfSharing(callers), expected);
}

}  // namespace
}  // namespace gpushare::harness
