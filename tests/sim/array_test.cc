// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays: shapes, bytes, lifetimes, and copies of boxes in every combination.
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class ArrayTest : public SimTest {
 protected:
  void SetUp() override { Start(std::string(kPlain) + ",h2d=10GB/s,d2h=20GB/s,d2d=100GB/s"); }
  static CUDA_ARRAY3D_DESCRIPTOR Shape(size_t width, size_t height, size_t depth,
                                       unsigned flags = 0) {
    return {width, height, depth, CU_AD_FORMAT_UNSIGNED_INT8, 1, flags};
  }
  static CUarray Create(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
    CUarray array = nullptr;
    EXPECT_CU(cuArray3DCreate(&array, &descriptor));
    return array;
  }
  static CUresult Try(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
    CUarray array = nullptr;
    const CUresult result = cuArray3DCreate(&array, &descriptor);
    if (result == CUDA_SUCCESS) {
      EXPECT_CU(cuArrayDestroy(array));
    }
    return result;
  }
  static std::vector<unsigned char> Pattern(size_t size) {
    std::vector<unsigned char> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
    return bytes;
  }
};

TEST_F(ArrayTest, BytesFollowFromFormatAndExtents) {
  struct Case {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    uint64_t bytes;
  };
  const Case cases[] = {
      {{1000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 1024},
      {{1000, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0}, 16384},
      {{100, 50, 0, CU_AD_FORMAT_HALF, 2, 0}, 20480},
      {{64, 32, 16, CU_AD_FORMAT_SIGNED_INT32, 1, 0}, 64 * 32 * 16 * 4},
      {{100, 0, 7, CU_AD_FORMAT_UNSIGNED_INT16, 1, CUDA_ARRAY3D_LAYERED}, 1536},
      {{10, 10, 7, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_LAYERED}, 3072},
      {{8, 8, 6, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_CUBEMAP}, 1536},
      {{8, 8, 12, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED},
       3072},
      {{128, 1, 0, CU_AD_FORMAT_SNORM_INT16X4, 4, 0}, 1024},
      {{1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 512},
  };
  for (const Case& one : cases) {
    const CUarray array = Create(one.descriptor);
    EXPECT_EQ(Charged(), one.bytes);
    CUDA_ARRAY3D_DESCRIPTOR read{};
    ASSERT_CU(cuArray3DGetDescriptor(&read, array));
    EXPECT_EQ(read.Width, one.descriptor.Width);
    EXPECT_EQ(read.Height, one.descriptor.Height);
    EXPECT_EQ(read.Depth, one.descriptor.Depth);
    EXPECT_EQ(read.Format, one.descriptor.Format);
    EXPECT_EQ(read.NumChannels, one.descriptor.NumChannels);
    EXPECT_EQ(read.Flags, one.descriptor.Flags);
    ASSERT_CU(cuArrayDestroy(array));
    EXPECT_EQ(Charged(), 0u);
  }
}

TEST_F(ArrayTest, ShapesThatNoDeviceHasAreRefused) {
  int width = 0;
  ASSERT_CU(cuDeviceGetAttribute(&width, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, device_));
  const auto limit = static_cast<size_t>(width);
  EXPECT_CU(Try(Shape(limit, 0, 0)));
  EXPECT_EQ(Try(Shape(limit + 1, 0, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(0, 0, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(0, 5, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(5, 0, 5)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(size_t{1} << 63, 2, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(16385, 1, 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(5, 5, 0, CUDA_ARRAY3D_LAYERED)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(5, 5, 2049, CUDA_ARRAY3D_LAYERED)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(5, 6, 6, CUDA_ARRAY3D_CUBEMAP)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(5, 5, 12, CUDA_ARRAY3D_CUBEMAP)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(5, 5, 7, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(5, 5, 2, CUDA_ARRAY3D_TEXTURE_GATHER)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(Try(Shape(5, 5, 0, CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_SURFACE_LDST)));
  EXPECT_EQ(Try(Shape(5, 5, 0, 0x8000)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(Shape(5, 5, 0, CUDA_ARRAY3D_SPARSE)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Try(Shape(5, 5, 0, CUDA_ARRAY3D_DEFERRED_MAPPING)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Try({5, 5, 0, CU_AD_FORMAT_FLOAT, 3, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try({5, 5, 0, CU_AD_FORMAT_FLOAT, 0, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try({5, 5, 0, CU_AD_FORMAT_UNORM_INT8X2, 1, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try({5, 5, 0, static_cast<CUarray_format>(4), 1, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try({6, 6, 0, CU_AD_FORMAT_NV12, 1, 0}), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuArray3DCreate(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(ArrayTest, CapacityAndInjectedFaultsReachArrays) {
  // 2 GiB on a device with 1 GiB.
  EXPECT_EQ(Try({32768, 16384, 0, CU_AD_FORMAT_FLOAT, 1, 0}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Charged(), 0u);
  char error[64];
  ASSERT_EQ(0, gpushare_sim_inject("oom", error, sizeof(error)));
  EXPECT_EQ(Try(Shape(5, 5, 0)), CUDA_ERROR_OUT_OF_MEMORY);
  CUmipmappedArray mipmapped;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = Shape(5, 5, 0);
  EXPECT_EQ(cuMipmappedArrayCreate(&mipmapped, &descriptor, 1), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(0, gpushare_sim_inject("error call=cuArrayCreate_v2 code=999", error, sizeof(error)));
  CUarray array;
  const CUDA_ARRAY_DESCRIPTOR flat{5, 5, CU_AD_FORMAT_FLOAT, 1};
  EXPECT_EQ(cuArrayCreate(&array, &flat), CUDA_ERROR_UNKNOWN);
}

TEST_F(ArrayTest, HandlesAreCheckedAndOwned) {
  const CUarray array = Create(Shape(5, 5, 0));
  ASSERT_CU(cuArrayDestroy(array));
  EXPECT_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuArrayDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
  CUDA_ARRAY_DESCRIPTOR flat;
  EXPECT_EQ(cuArrayGetDescriptor(&flat, array), CUDA_ERROR_INVALID_HANDLE);
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements;
  const CUarray plain = Create(Shape(5, 5, 0));
  EXPECT_EQ(cuArrayGetMemoryRequirements(&requirements, plain, device_), CUDA_ERROR_INVALID_VALUE);
  CUDA_ARRAY_SPARSE_PROPERTIES sparse;
  EXPECT_EQ(cuArrayGetSparseProperties(&sparse, plain), CUDA_ERROR_INVALID_VALUE);
  CUarray plane;
  EXPECT_EQ(cuArrayGetPlane(&plane, plain, 0), CUDA_ERROR_INVALID_VALUE);
  // The end of its context ends the array too.
  CUcontext other;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  const CUarray inner = Create(Shape(1000, 0, 0));
  ASSERT_CU(cuCtxDestroy(other));
  ASSERT_CU(cuCtxSetCurrent(context_));
  EXPECT_EQ(cuArrayDestroy(inner), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuArrayDestroy(plain));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(ArrayTest, ItsMemoryHasNoAddress) {
  CUdeviceptr before;
  ASSERT_CU(cuMemAlloc(&before, 512));
  const CUarray array = Create(Shape(512, 0, 0));
  // The array is behind this allocation: memory beyond an allocation must stay inaccessible.
  unsigned type;
  EXPECT_EQ(cuMemFree(before + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(before + 512, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, before + 512),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuArrayDestroy(array));
}

TEST_F(ArrayTest, MipmapsHaveLevelsOfHalfTheExtents) {
  CUmipmappedArray mipmapped;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor{100, 30, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  ASSERT_CU(cuMipmappedArrayCreate(&mipmapped, &descriptor, 99));  // clamped to 7
  uint64_t bytes = 0;
  CUarray level = nullptr, again = nullptr;
  for (unsigned i = 0; i < 7; ++i) {
    ASSERT_CU(cuMipmappedArrayGetLevel(&level, mipmapped, i));
    CUDA_ARRAY_DESCRIPTOR flat{};
    ASSERT_CU(cuArrayGetDescriptor(&flat, level));
    EXPECT_EQ(flat.Width, std::max<size_t>(100 >> i, 1));
    EXPECT_EQ(flat.Height, std::max<size_t>(30 >> i, 1));
    bytes += (flat.Width * flat.Height * 4 + 511) / 512 * 512;
  }
  EXPECT_EQ(Charged(), bytes);
  EXPECT_EQ(cuMipmappedArrayGetLevel(&level, mipmapped, 7), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMipmappedArrayGetLevel(&level, mipmapped, 1));
  ASSERT_CU(cuMipmappedArrayGetLevel(&again, mipmapped, 1));
  EXPECT_EQ(level, again);
  EXPECT_EQ(cuArrayDestroy(level),
            CUDA_ERROR_INVALID_HANDLE);  // the level is not an array of its own
  // Copies treat levels as arrays.
  const auto out = Pattern(50 * 4 * 15);
  std::vector<unsigned char> in(out.size());
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = out.data();
  copy.srcPitch = 200;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = level;
  copy.WidthInBytes = 200;
  copy.Height = 15;
  ASSERT_CU(cuMemcpy2D(&copy));
  std::swap(copy.srcMemoryType, copy.dstMemoryType);
  copy.srcArray = level;
  copy.dstHost = in.data();
  copy.dstPitch = 200;
  ASSERT_CU(cuMemcpy2D(&copy));
  EXPECT_EQ(in, out);
  ASSERT_CU(cuMipmappedArrayDestroy(mipmapped));
  EXPECT_EQ(cuMipmappedArrayDestroy(mipmapped), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Charged(), 0u);
  // The number of layers is not halved.
  CUDA_ARRAY3D_DESCRIPTOR read{};
  const CUDA_ARRAY3D_DESCRIPTOR layered = Shape(8, 8, 5, CUDA_ARRAY3D_LAYERED);
  ASSERT_CU(cuMipmappedArrayCreate(&mipmapped, &layered, 3));
  ASSERT_CU(cuMipmappedArrayGetLevel(&level, mipmapped, 2));
  ASSERT_CU(cuArray3DGetDescriptor(&read, level));
  EXPECT_EQ(read.Width, 2u);
  EXPECT_EQ(read.Depth, 5u);
}

TEST_F(ArrayTest, LinesAreCopiedBothWays) {
  const CUarray array = Create({256, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2, 0});  // 1024 bytes
  const CUarray other = Create({256, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2, 0});
  const auto out = Pattern(1024);
  std::vector<unsigned char> in(1024);
  CUdeviceptr device;
  ASSERT_CU(cuMemAlloc(&device, 1024));
  const CUstream stream = NewStream();
  ASSERT_CU(cuMemcpyHtoA(array, 0, out.data(), 1024));
  ASSERT_CU(cuMemcpyAtoH(in.data(), array, 4, 1020));
  EXPECT_TRUE(std::equal(in.begin(), in.begin() + 1020, out.begin() + 4));
  ASSERT_CU(cuMemcpyAtoA(other, 512, array, 0, 512));
  ASSERT_CU(cuMemcpyAtoD(device, other, 512, 512));
  ASSERT_CU(cuMemcpyDtoA(other, 0, device, 512));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuMemcpyAtoHAsync(in.data(), other, 0, 1024, stream));
  ASSERT_CU(cuStreamSynchronize(stream));
  EXPECT_TRUE(std::equal(in.begin(), in.begin() + 512, out.begin()));
  EXPECT_TRUE(std::equal(in.begin() + 512, in.end(), out.begin()));
  ASSERT_CU(cuMemcpyHtoAAsync(array, 0, in.data(), 1024, stream));
  ASSERT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(cuMemcpyHtoA(array, 0, out.data(), 1028), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoA(array, 1020, out.data(), 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoA(array, SIZE_MAX - 3, out.data(), 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoA(array, 2, out.data(), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoA(array, 0, out.data(), 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoA(nullptr, 0, out.data(), 4), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemcpyAtoD(device + 4, array, 0, 1024), CUDA_ERROR_INVALID_VALUE);
  const CUarray flat = Create(Shape(16, 16, 0));
  EXPECT_EQ(cuMemcpyHtoA(flat, 0, out.data(), 16), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ArrayTest, ACopyTakesTheTimeOfItsBytes) {
  const CUarray array = Create({1000, 1000, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0});
  void* host;
  ASSERT_CU(cuMemAllocHost(&host, kMiB));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = 1000;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = 1000;
  copy.Height = 1000;
  copy.Depth = 1;
  uint64_t start = Now();
  ASSERT_CU(cuMemcpy3D(&copy));
  EXPECT_EQ(Now() - start, 100'000u);
  EXPECT_EQ(Truth(0).h2d_bytes, 1'000'000u);
  const CUstream stream = NewStream();
  start = Now();
  ASSERT_CU(cuMemcpy3DAsync(&copy, stream));
  EXPECT_EQ(Now(), start);
  EXPECT_EQ(DoneAt(stream, start), 100'000u);
}

// Compares every combination of sources and destinations with a plain model.
TEST_F(ArrayTest, RandomBoxesLandWhereTheyShould) {
  constexpr size_t kWidth = 37, kHeight = 11, kDepth = 5, kBytes = kWidth * kHeight * kDepth;
  std::mt19937 random(11);
  struct Space {
    CUmemorytype type;
    std::vector<unsigned char> host;
    CUdeviceptr device = 0;
    CUarray array = nullptr;
    std::vector<unsigned char> model = std::vector<unsigned char>(kBytes);
  };
  std::vector<Space> spaces(4);
  for (size_t i = 0; i < spaces.size(); ++i) {
    Space& space = spaces[i];
    space.type = i == 0 ? CU_MEMORYTYPE_HOST : i == 1 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_ARRAY;
    space.host.resize(kBytes);
    if (i == 1) {
      ASSERT_CU(cuMemAlloc(&space.device, kBytes));
      ASSERT_CU(cuMemsetD8(space.device, 0, kBytes));
    }
    if (i == 2) space.array = Create(Shape(kWidth, kHeight, kDepth));
    if (i == 3) space.array = Create(Shape(kWidth, kHeight, kDepth, CUDA_ARRAY3D_LAYERED));
  }
  std::iota(spaces[0].host.begin(), spaces[0].host.end(), static_cast<unsigned char>(1));
  spaces[0].model = spaces[0].host;
  for (int step = 0; step < 3000; ++step) {
    Space& to = spaces[random() % spaces.size()];
    const Space& from = spaces[random() % spaces.size()];
    if (&to == &from) continue;
    const size_t w = 1 + random() % kWidth, h = 1 + random() % kHeight, d = 1 + random() % kDepth;
    CUDA_MEMCPY3D copy{};
    copy.srcXInBytes = random() % (kWidth - w + 1);
    copy.srcY = random() % (kHeight - h + 1);
    copy.srcZ = random() % (kDepth - d + 1);
    copy.dstXInBytes = random() % (kWidth - w + 1);
    copy.dstY = random() % (kHeight - h + 1);
    copy.dstZ = random() % (kDepth - d + 1);
    copy.srcMemoryType = from.type;
    copy.srcHost = from.host.data();
    copy.srcDevice = from.device;
    copy.srcArray = from.array;
    copy.dstMemoryType = to.type;
    copy.dstHost = to.host.data();
    copy.dstDevice = to.device;
    copy.dstArray = to.array;
    copy.srcPitch = copy.dstPitch = kWidth;
    copy.srcHeight = copy.dstHeight = kHeight;
    copy.WidthInBytes = w;
    copy.Height = h;
    copy.Depth = d;
    ASSERT_CU(random() % 2 == 0 ? cuMemcpy3D(&copy) : cuMemcpy3DAsync(&copy, nullptr));
    ASSERT_CU(cuCtxSynchronize());
    const auto at = [](size_t x, size_t y, size_t z) { return (z * kHeight + y) * kWidth + x; };
    for (size_t z = 0; z < d; ++z) {
      for (size_t y = 0; y < h; ++y) {
        for (size_t x = 0; x < w; ++x) {
          to.model[at(copy.dstXInBytes + x, copy.dstY + y, copy.dstZ + z)] =
              from.model[at(copy.srcXInBytes + x, copy.srcY + y, copy.srcZ + z)];
        }
      }
    }
    if (step % 50 != 0) continue;
    for (const Space& space : spaces) {
      std::vector<unsigned char> read(kBytes);
      CUDA_MEMCPY3D all{};
      all.srcMemoryType = space.type;
      all.srcHost = space.host.data();
      all.srcDevice = space.device;
      all.srcArray = space.array;
      all.srcPitch = all.dstPitch = kWidth;
      all.srcHeight = all.dstHeight = kHeight;
      all.dstMemoryType = CU_MEMORYTYPE_HOST;
      all.dstHost = read.data();
      all.WidthInBytes = kWidth;
      all.Height = kHeight;
      all.Depth = kDepth;
      ASSERT_CU(cuMemcpy3D(&all));
      ASSERT_EQ(read, space.model) << step;
    }
  }
}

TEST_F(ArrayTest, BoxesAreChecked) {
  const CUarray array = Create(Shape(16, 16, 16));
  std::vector<unsigned char> host(16 * 16 * 16);
  CUDA_MEMCPY3D good{};
  good.srcMemoryType = CU_MEMORYTYPE_HOST;
  good.srcHost = host.data();
  good.srcPitch = good.srcHeight = 16;
  good.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  good.dstArray = array;
  good.WidthInBytes = good.Height = good.Depth = 16;
  EXPECT_CU(cuMemcpy3D(&good));
  const auto expect = [&](auto change, CUresult expected) {
    CUDA_MEMCPY3D copy = good;
    change(copy);
    EXPECT_EQ(cuMemcpy3D(&copy), expected);
  };
  constexpr CUresult kInvalid = CUDA_ERROR_INVALID_VALUE;
  expect([](auto& c) { c.Depth = 17; }, kInvalid);
  expect([](auto& c) { c.dstZ = 1; }, kInvalid);
  expect([](auto& c) { c.dstY = SIZE_MAX; }, kInvalid);
  expect([](auto& c) { c.dstXInBytes = 1; }, kInvalid);
  expect([](auto& c) { c.dstLOD = 1; }, kInvalid);
  expect([](auto& c) { c.srcPitch = 15; }, kInvalid);
  expect([](auto& c) { c.srcPitch = size_t{1} << 31; }, kInvalid);
  expect([](auto& c) { c.srcHeight = 15; }, kInvalid);
  expect([](auto& c) { c.srcHost = nullptr; }, kInvalid);
  expect([](auto& c) { c.srcY = SIZE_MAX; }, kInvalid);
  expect([](auto& c) { c.srcMemoryType = static_cast<CUmemorytype>(7); }, kInvalid);
  expect([](auto& c) { c.srcMemoryType = CU_MEMORYTYPE_DEVICE; }, kInvalid);
  expect([](auto& c) { c.dstArray = nullptr; }, CUDA_ERROR_INVALID_HANDLE);
  expect([](auto& c) { c.Depth = 0; }, CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpy3D(nullptr), kInvalid);
}

TEST_F(ArrayTest, PeersOfOneDeviceAreCopiedBetween) {
  CUcontext other;
  CUdeviceptr a, b;
  ASSERT_CU(cuMemAlloc(&a, 1000));
  ASSERT_CU(cuMemsetD8(a, 5, 1000));
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  ASSERT_CU(cuMemAlloc(&b, 1000));
  ASSERT_CU(cuMemcpyPeer(b, other, a, context_, 1000));
  unsigned char byte = 0;
  ASSERT_CU(cuMemcpyDtoH(&byte, b + 999, 1));
  EXPECT_EQ(byte, 5);
  CUDA_MEMCPY3D_PEER box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = a;
  box.srcContext = context_;
  box.srcPitch = box.dstPitch = 10;
  box.dstDevice = b;
  box.dstContext = other;
  box.WidthInBytes = box.Height = 10;
  box.Depth = 1;
  EXPECT_CU(cuMemcpy3DPeerAsync(&box, nullptr));
  box.dstContext = nullptr;
  EXPECT_EQ(cuMemcpy3DPeer(&box), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemcpyPeerAsync(b, nullptr, a, context_, 10, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CU(cuCtxDestroy(other));
  ASSERT_CU(cuCtxSetCurrent(context_));
}

TEST_F(ArrayTest, GraphsCopyBoxes) {
  const CUarray array = Create(Shape(8, 4, 2));
  const auto out = Pattern(64);
  std::vector<unsigned char> in(64);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = out.data();
  copy.srcPitch = 8;
  copy.srcHeight = 4;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = 8;
  copy.Height = 4;
  copy.Depth = 2;
  CUgraph graph;
  CUgraphNode up, down;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  ASSERT_CU(cuGraphAddMemcpyNode(&up, graph, nullptr, 0, &copy, context_));
  std::swap(copy.srcMemoryType, copy.dstMemoryType);
  copy.srcArray = array;
  copy.dstHost = in.data();
  copy.dstPitch = 8;
  copy.dstHeight = 4;
  ASSERT_CU(cuGraphAddMemcpyNode(&down, graph, &up, 1, &copy, context_));
  CUgraphExec exec;
  ASSERT_CU(cuGraphInstantiate(&exec, graph, 0));
  ASSERT_CU(cuGraphLaunch(exec, nullptr));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace gpushare::sim_test
