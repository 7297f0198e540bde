// SPDX-License-Identifier: Apache-2.0
// Peer access between devices: which pairs allow it, and the queries about it.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class PeerTest : public SimTest {
 protected:
  void SetUp() override {
    Start(std::string(kPlain) + ",devices=2");
    ASSERT_CU(cuDevicePrimaryCtxRetain(&other_, 1));
  }
  CUcontext other_ = nullptr;
};

TEST_F(PeerTest, DevicesReachEachOtherAndNotThemselves) {
  int value = -1;
  EXPECT_CU(cuDeviceCanAccessPeer(&value, 0, 1));
  EXPECT_EQ(value, 1);
  EXPECT_CU(cuDeviceCanAccessPeer(&value, 1, 1));
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cuDeviceCanAccessPeer(&value, 0, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_CU(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 0));
  EXPECT_EQ(value, 1);
  EXPECT_CU(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 1, 0));
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(7), 0, 1),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PeerTest, AccessIsEnabledOnceInOneDirection) {
  EXPECT_EQ(cuCtxDisablePeerAccess(other_), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(cuCtxEnablePeerAccess(other_, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuCtxEnablePeerAccess(other_, 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(other_, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  ASSERT_CU(cuCtxSetCurrent(other_));
  EXPECT_EQ(cuCtxDisablePeerAccess(context_), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  ASSERT_CU(cuCtxSetCurrent(context_));
  ASSERT_CU(cuCtxDisablePeerAccess(other_));
  ASSERT_CU(cuCtxEnablePeerAccess(other_, 0));
}

TEST_F(PeerTest, AContextsEndEndsTheAccessToIt) {
  ASSERT_CU(cuCtxEnablePeerAccess(other_, 0));
  ASSERT_CU(cuDevicePrimaryCtxReset(1));
  CUcontext again = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&again, 1));
  ASSERT_EQ(again, other_);  // a primary context keeps its handle
  EXPECT_CU(cuCtxEnablePeerAccess(again, 0));
}

TEST_F(PeerTest, ContextsThatAreNoPeersAreRefused) {
  CUcontext same_device = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&same_device, 0, 1));
  ASSERT_CU(cuCtxSetCurrent(other_));
  EXPECT_EQ(cuCtxEnablePeerAccess(same_device, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  EXPECT_EQ(cuCtxEnablePeerAccess(other_, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxEnablePeerAccess(nullptr, 0), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CU(cuCtxDestroy(same_device));
  EXPECT_EQ(cuCtxEnablePeerAccess(same_device, 0), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  EXPECT_EQ(cuCtxEnablePeerAccess(context_, 0), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace gpushare::sim_test
