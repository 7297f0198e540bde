// SPDX-License-Identifier: Apache-2.0
// Copies of rows and of boxes. A copy to or from the host is split into rows if it has one slice, else into slices.
#include "work/calls.h"

namespace gpushare::work {

// `set` restricts a duplicate of `copy` to some of its rows or slices.
template <typename Copy, typename Set>
CUresult Calls::Box(const Payer& payer, const Copy* copy, CUstream stream, bool blocks,
                    uint64_t count, uint64_t part_bytes, gate::OnDeviceKind kind, const Set& set,
                    absl::FunctionRef<CUresult(const Copy*)> call) {
  if (copy == nullptr) return call(copy);
  const auto side = [&](CUmemorytype type, CUdeviceptr device) {
    return SideOf(payer, type, device);
  };
  const Side to = side(copy->dstMemoryType, copy->dstDevice);
  const Side from = side(copy->srcMemoryType, copy->srcDevice);
  if (to.on_host && from.on_host) return call(copy);
  if (!to.on_host && !from.on_host) {
    return Within(payer, kind, stream, count * part_bytes, [&] { return call(copy); });
  }
  return Across(
      payer, stream,
      {.direction = DirectionTo(to), .parts = count, .part_bytes = part_bytes, .blocks = blocks},
      [&](uint64_t first, uint64_t n) {
        if (n == count) return call(copy);
        Copy part = *copy;
        set(part, first, n);
        return call(&part);
      });
}

CUresult Calls::Rows(const Payer& payer, const CUDA_MEMCPY2D* copy, CUstream stream, bool blocks,
                     absl::FunctionRef<CUresult(const CUDA_MEMCPY2D*)> call) {
  const auto rows = [](CUDA_MEMCPY2D& part, uint64_t first, uint64_t n) {
    part.srcY += first;
    part.dstY += first;
    part.Height = n;
  };
  return Box(payer, copy, stream, blocks, copy == nullptr ? 0 : copy->Height,
             copy == nullptr ? 0 : copy->WidthInBytes, gate::OnDeviceKind::kCopy, rows, call);
}

template <typename Copy>
CUresult Calls::Slices(const Payer& payer, const Copy* copy, CUstream stream, bool blocks,
                       gate::OnDeviceKind kind, absl::FunctionRef<CUresult(const Copy*)> call) {
  const bool flat = copy != nullptr && copy->Depth == 1;
  const auto parts = [flat](Copy& part, uint64_t first, uint64_t n) {
    (flat ? part.srcY : part.srcZ) += first;
    (flat ? part.dstY : part.dstZ) += first;
    (flat ? part.Height : part.Depth) = n;
  };
  const uint64_t count = copy == nullptr ? 0 : flat ? copy->Height : copy->Depth;
  const uint64_t bytes = copy == nullptr ? 0 : copy->WidthInBytes * (flat ? 1 : copy->Height);
  return Box(payer, copy, stream, blocks, count, bytes, kind, parts, call);
}

CUresult Calls::Memcpy2D(const Payer& payer, const CUDA_MEMCPY2D* copy, NullStream null) {
  return Rows(payer, copy, Of(null), true, Pick(null, driver_.Memcpy2D, driver_.Memcpy2DPerThread));
}
CUresult Calls::Memcpy2DUnaligned(const Payer& payer, const CUDA_MEMCPY2D* copy, NullStream null) {
  return Rows(payer, copy, Of(null), true,
              Pick(null, driver_.Memcpy2DUnaligned, driver_.Memcpy2DUnalignedPerThread));
}
CUresult Calls::Memcpy2DAsync(const Payer& payer, const CUDA_MEMCPY2D* copy, CUstream stream) {
  return Rows(payer, copy, stream, false,
              [&](const CUDA_MEMCPY2D* part) { return driver_.Memcpy2DAsync(part, stream); });
}
CUresult Calls::Memcpy3D(const Payer& payer, const CUDA_MEMCPY3D* copy, NullStream null) {
  return Slices<CUDA_MEMCPY3D>(payer, copy, Of(null), true, gate::OnDeviceKind::kCopy,
                               Pick(null, driver_.Memcpy3D, driver_.Memcpy3DPerThread));
}
CUresult Calls::Memcpy3DAsync(const Payer& payer, const CUDA_MEMCPY3D* copy, CUstream stream) {
  return Slices<CUDA_MEMCPY3D>(
      payer, copy, stream, false, gate::OnDeviceKind::kCopy,
      [&](const CUDA_MEMCPY3D* part) { return driver_.Memcpy3DAsync(part, stream); });
}
CUresult Calls::Memcpy3DPeer(const Payer& payer, const CUDA_MEMCPY3D_PEER* copy, NullStream null) {
  return Slices<CUDA_MEMCPY3D_PEER>(
      payer, copy, Of(null), true, gate::OnDeviceKind::kPeerCopy,
      Pick(null, driver_.Memcpy3DPeer, driver_.Memcpy3DPeerPerThread));
}
CUresult Calls::Memcpy3DPeerAsync(const Payer& payer, const CUDA_MEMCPY3D_PEER* copy,
                                  CUstream stream) {
  return Slices<CUDA_MEMCPY3D_PEER>(
      payer, copy, stream, false, gate::OnDeviceKind::kPeerCopy,
      [&](const CUDA_MEMCPY3D_PEER* part) { return driver_.Memcpy3DPeerAsync(part, stream); });
}

}  // namespace gpushare::work
