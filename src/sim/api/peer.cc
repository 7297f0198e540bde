// SPDX-License-Identifier: Apache-2.0
// Peer access between devices. Kernels touch no memory, so access is never denied; the driver only records and reports what a
// program enabled.
#include <algorithm>

#include "sim/api/api.h"

namespace gpushare::sim {
namespace {

// Any two devices can; a device is not its own peer.
bool CanAccess(const Device* device, const Device* peer) { return device != peer; }

// The current context, and its entry for `peer` if it has one.
CUresult FindPeer(CUcontext peer, Context** own, std::vector<uint64_t>::iterator* entry) {
  const CUresult result = CurrentContext(own);
  if (result != CUDA_SUCCESS) return result;
  const Context* const other = FindContext(peer);
  if (other == nullptr || other == *own) return CUDA_ERROR_INVALID_CONTEXT;
  *entry = std::find((*own)->peers.begin(), (*own)->peers.end(), other->handle);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuDeviceCanAccessPeer)(int* can, CUdevice dev, CUdevice peer_dev) {
  SIM_ENTER(cuDeviceCanAccessPeer, kNone);
  const Device *const device = FindDevice(dev), *const peer = FindDevice(peer_dev);
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr || peer == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *can = CanAccess(device, peer) ? 1 : 0;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetP2PAttribute)
(int* value, CUdevice_P2PAttribute attribute, CUdevice dev, CUdevice peer_dev) {
  SIM_ENTER(cuDeviceGetP2PAttribute, kNone);
  const Device *const device = FindDevice(dev), *const peer = FindDevice(peer_dev);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr || peer == nullptr || device == peer) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = CanAccess(device, peer) ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:  // all links are equal
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_API(cuCtxEnablePeerAccess)(CUcontext peer, unsigned flags) {
  SIM_ENTER(cuCtxEnablePeerAccess, kCall);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* own;
  std::vector<uint64_t>::iterator entry;
  const CUresult result = FindPeer(peer, &own, &entry);
  if (result != CUDA_SUCCESS) return result;
  const Context* const other = FindContext(peer);
  if (!CanAccess(own->device, other->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (entry != own->peers.end()) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  own->peers.push_back(other->handle);
  return CUDA_SUCCESS;
}

SIM_API(cuCtxDisablePeerAccess)(CUcontext peer) {
  SIM_ENTER(cuCtxDisablePeerAccess, kCall);
  Context* own;
  std::vector<uint64_t>::iterator entry;
  const CUresult result = FindPeer(peer, &own, &entry);
  if (result != CUDA_SUCCESS) return result;
  if (entry == own->peers.end()) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  own->peers.erase(entry);
  return CUDA_SUCCESS;
}
