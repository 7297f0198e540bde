// SPDX-License-Identifier: Apache-2.0
// Texture objects, as far as programs notice them: creation and destruction.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class TextureTest : public SimTest {
 protected:
  static CUDA_RESOURCE_DESC Rows(CUdeviceptr memory, size_t width, size_t height, size_t pitch) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D = {memory, CU_AD_FORMAT_UNSIGNED_INT8, 1, width, height, pitch};
    return resource;
  }
  CUresult Try(const CUDA_RESOURCE_DESC& resource) {
    CUtexObject texture = 7;
    const CUresult result = cuTexObjectCreate(&texture, &resource, &sampling_, nullptr);
    if (result == CUDA_SUCCESS) {
      EXPECT_CU(cuTexObjectDestroy(texture));
    } else {
      EXPECT_EQ(texture, 7u);
    }
    return result;
  }
  CUDA_TEXTURE_DESC sampling_ = {};
};

TEST_F(TextureTest, OfWhatIsThere) {
  CUdeviceptr memory;
  ASSERT_CU(cuMemAlloc(&memory, 1 << 20));
  EXPECT_CU(Try(Rows(memory, 1000, 1024, 1024)));
  EXPECT_CU(Try(Rows(memory + 24, 1000, 1024, 1024)));  // up to the last byte
  EXPECT_EQ(Try(Rows(memory + 25, 1000, 1024, 1024)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Rows(memory, 1000, 1025, 1024)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Rows(memory, 1000, SIZE_MAX, SIZE_MAX)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Rows(memory, 1025, 8, 1024)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Rows(memory, 1000, 0, 1024)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Rows(0, 1000, 8, 1024)), CUDA_ERROR_INVALID_VALUE);

  CUDA_RESOURCE_DESC linear = {};
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  linear.res.linear = {memory, CU_AD_FORMAT_FLOAT, 4, 1 << 20};
  EXPECT_CU(Try(linear));
  linear.res.linear.sizeInBytes += 1;
  EXPECT_EQ(Try(linear), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemFree(memory));
  EXPECT_EQ(Try(Rows(memory, 1000, 1024, 1024)), CUDA_ERROR_INVALID_VALUE);

  const CUDA_ARRAY_DESCRIPTOR shape = {64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUDA_RESOURCE_DESC array = {};
  ASSERT_CU(cuArrayCreate(&array.res.array.hArray, &shape));
  EXPECT_CU(Try(array));
  array.flags = 1;
  EXPECT_EQ(Try(array), CUDA_ERROR_INVALID_VALUE);
  array.flags = 0;
  ASSERT_CU(cuArrayDestroy(array.res.array.hArray));
  EXPECT_EQ(Try(array), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TextureTest, LivesUntilItIsDestroyedOrItsContextEnds) {
  CUcontext context;
  ASSERT_CU(cuCtxCreate(&context, nullptr, 0, 0));
  CUdeviceptr memory;
  ASSERT_CU(cuMemAlloc(&memory, 1 << 20));
  const CUDA_RESOURCE_DESC resource = Rows(memory, 1000, 8, 1024);
  sampling_.maxAnisotropy = 3;
  CUtexObject one, two;
  ASSERT_CU(cuTexObjectCreate(&one, &resource, &sampling_, nullptr));
  ASSERT_CU(cuTexObjectCreate(&two, &resource, &sampling_, nullptr));
  EXPECT_NE(one, two);
  CUDA_TEXTURE_DESC sampling = {};
  CUDA_RESOURCE_DESC of = {};
  EXPECT_CU(cuTexObjectGetTextureDesc(&sampling, one));
  EXPECT_EQ(sampling.maxAnisotropy, 3u);
  EXPECT_CU(cuTexObjectGetResourceDesc(&of, one));
  EXPECT_EQ(of.res.pitch2D.devPtr, memory);
  EXPECT_CU(cuTexObjectDestroy(one));
  EXPECT_EQ(cuTexObjectDestroy(one), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuTexObjectGetTextureDesc(&sampling, one), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuTexObjectDestroy(0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuCtxDestroy(context));
  EXPECT_EQ(cuTexObjectDestroy(two), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TextureTest, ItsViewsAreNotModelled) {
  CUdeviceptr memory;
  ASSERT_CU(cuMemAlloc(&memory, 1 << 20));
  const CUDA_RESOURCE_DESC resource = Rows(memory, 1000, 8, 1024);
  const CUDA_RESOURCE_VIEW_DESC view = {};
  CUtexObject texture;
  EXPECT_EQ(cuTexObjectCreate(&texture, &resource, &sampling_, &view), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuTexObjectCreate(nullptr, &resource, &sampling_, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuTexObjectCreate(&texture, nullptr, &sampling_, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuTexObjectCreate(&texture, &resource, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpushare::sim_test
