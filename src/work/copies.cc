// SPDX-License-Identifier: Apache-2.0
// Copies of a line of bytes, between any two kinds of memory.
#include "work/calls.h"

namespace gpushare::work {
namespace {

using Kind = gate::OnDeviceKind;

CUdeviceptr At(CUdeviceptr pointer, uint64_t offset) { return pointer + offset; }
void* At(void* pointer, uint64_t offset) { return static_cast<char*>(pointer) + offset; }
const void* At(const void* pointer, uint64_t offset) {
  return static_cast<const char*>(pointer) + offset;
}

}  // namespace

CUresult Calls::Line(const Payer& payer, CUstream stream, bool blocks, const Side& to,
                     const Side& from, size_t bytes,
                     absl::FunctionRef<CUresult(uint64_t, uint64_t)> call) {
  if (to.on_host && from.on_host) return call(0, bytes);
  if (!to.on_host && !from.on_host) {
    return Within(payer, Kind::kCopy, stream, bytes, [&] { return call(0, bytes); });
  }
  return Across(payer, stream,
                {.direction = DirectionTo(to),
                 .parts = bytes,
                 .line = to.on_host ? from.address : to.address,
                 .blocks = blocks},
                call);
}

// ---- Blocking ----

CUresult Calls::Memcpy(const Payer& payer, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       NullStream null) {
  return Line(payer, Of(null), true, SideOf(to), SideOf(from), bytes, [&](uint64_t at, uint64_t n) {
    return Pick(null, driver_.Memcpy, driver_.MemcpyPerThread)(At(to, at), At(from, at), n);
  });
}
CUresult Calls::MemcpyHtoD(const Payer& payer, CUdeviceptr to, const void* from, size_t bytes,
                           NullStream null) {
  return Line(payer, Of(null), true, DeviceSide(payer, to), Host(), bytes,
              [&](uint64_t at, uint64_t n) {
                return Pick(null, driver_.MemcpyHtoD, driver_.MemcpyHtoDPerThread)(At(to, at),
                                                                                   At(from, at), n);
              });
}
CUresult Calls::MemcpyDtoH(const Payer& payer, void* to, CUdeviceptr from, size_t bytes,
                           NullStream null) {
  return Line(payer, Of(null), true, Host(), DeviceSide(payer, from), bytes,
              [&](uint64_t at, uint64_t n) {
                return Pick(null, driver_.MemcpyDtoH, driver_.MemcpyDtoHPerThread)(At(to, at),
                                                                                   At(from, at), n);
              });
}
CUresult Calls::MemcpyDtoD(const Payer& payer, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                           NullStream null) {
  return Line(payer, Of(null), true, DeviceSide(payer, to), DeviceSide(payer, from), bytes,
              [&](uint64_t at, uint64_t n) {
                return Pick(null, driver_.MemcpyDtoD, driver_.MemcpyDtoDPerThread)(At(to, at),
                                                                                   At(from, at), n);
              });
}
CUresult Calls::MemcpyDtoA(const Payer& payer, CUarray to, size_t to_offset, CUdeviceptr from,
                           size_t bytes, NullStream null) {
  return Line(payer, Of(null), true, Array(), DeviceSide(payer, from), bytes,
              [&](uint64_t at, uint64_t n) {
                return Pick(null, driver_.MemcpyDtoA, driver_.MemcpyDtoAPerThread)(
                    to, to_offset + at, At(from, at), n);
              });
}
CUresult Calls::MemcpyAtoD(const Payer& payer, CUdeviceptr to, CUarray from, size_t from_offset,
                           size_t bytes, NullStream null) {
  return Line(payer, Of(null), true, DeviceSide(payer, to), Array(), bytes,
              [&](uint64_t at, uint64_t n) {
                return Pick(null, driver_.MemcpyAtoD, driver_.MemcpyAtoDPerThread)(
                    At(to, at), from, from_offset + at, n);
              });
}
CUresult Calls::MemcpyAtoA(const Payer& payer, CUarray to, size_t to_offset, CUarray from,
                           size_t from_offset, size_t bytes, NullStream null) {
  return Within(payer, Kind::kCopy, Of(null), bytes, [&] {
    return Pick(null, driver_.MemcpyAtoA, driver_.MemcpyAtoAPerThread)(to, to_offset, from,
                                                                       from_offset, bytes);
  });
}
CUresult Calls::MemcpyHtoA(const Payer& payer, CUarray to, size_t to_offset, const void* from,
                           size_t bytes, NullStream null) {
  return Line(payer, Of(null), true, Array(), Host(), bytes, [&](uint64_t at, uint64_t n) {
    return Pick(null, driver_.MemcpyHtoA, driver_.MemcpyHtoAPerThread)(to, to_offset + at,
                                                                       At(from, at), n);
  });
}
CUresult Calls::MemcpyAtoH(const Payer& payer, void* to, CUarray from, size_t from_offset,
                           size_t bytes, NullStream null) {
  return Line(payer, Of(null), true, Host(), Array(), bytes, [&](uint64_t at, uint64_t n) {
    return Pick(null, driver_.MemcpyAtoH, driver_.MemcpyAtoHPerThread)(At(to, at), from,
                                                                       from_offset + at, n);
  });
}
// The copy uses the memory of one device and the link to another. The stream's device is charged.
CUresult Calls::MemcpyPeer(const Payer& payer, CUdeviceptr to, CUcontext to_context,
                           CUdeviceptr from, CUcontext from_context, size_t bytes,
                           NullStream null) {
  return Within(payer, Kind::kPeerCopy, Of(null), bytes, [&] {
    return Pick(null, driver_.MemcpyPeer, driver_.MemcpyPeerPerThread)(to, to_context, from,
                                                                       from_context, bytes);
  });
}

// ---- In the order of a stream ----

CUresult Calls::MemcpyAsync(const Payer& payer, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                            CUstream stream) {
  return Line(payer, stream, false, SideOf(to), SideOf(from), bytes, [&](uint64_t at, uint64_t n) {
    return driver_.MemcpyAsync(At(to, at), At(from, at), n, stream);
  });
}
CUresult Calls::MemcpyHtoDAsync(const Payer& payer, CUdeviceptr to, const void* from, size_t bytes,
                                CUstream stream) {
  return Line(payer, stream, false, DeviceSide(payer, to), Host(), bytes,
              [&](uint64_t at, uint64_t n) {
                return driver_.MemcpyHtoDAsync(At(to, at), At(from, at), n, stream);
              });
}
CUresult Calls::MemcpyDtoHAsync(const Payer& payer, void* to, CUdeviceptr from, size_t bytes,
                                CUstream stream) {
  return Line(payer, stream, false, Host(), DeviceSide(payer, from), bytes,
              [&](uint64_t at, uint64_t n) {
                return driver_.MemcpyDtoHAsync(At(to, at), At(from, at), n, stream);
              });
}
CUresult Calls::MemcpyDtoDAsync(const Payer& payer, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                CUstream stream) {
  return Line(payer, stream, false, DeviceSide(payer, to), DeviceSide(payer, from), bytes,
              [&](uint64_t at, uint64_t n) {
                return driver_.MemcpyDtoDAsync(At(to, at), At(from, at), n, stream);
              });
}
CUresult Calls::MemcpyHtoAAsync(const Payer& payer, CUarray to, size_t to_offset, const void* from,
                                size_t bytes, CUstream stream) {
  return Line(payer, stream, false, Array(), Host(), bytes, [&](uint64_t at, uint64_t n) {
    return driver_.MemcpyHtoAAsync(to, to_offset + at, At(from, at), n, stream);
  });
}
CUresult Calls::MemcpyAtoHAsync(const Payer& payer, void* to, CUarray from, size_t from_offset,
                                size_t bytes, CUstream stream) {
  return Line(payer, stream, false, Host(), Array(), bytes, [&](uint64_t at, uint64_t n) {
    return driver_.MemcpyAtoHAsync(At(to, at), from, from_offset + at, n, stream);
  });
}
CUresult Calls::MemcpyPeerAsync(const Payer& payer, CUdeviceptr to, CUcontext to_context,
                                CUdeviceptr from, CUcontext from_context, size_t bytes,
                                CUstream stream) {
  return Within(payer, Kind::kPeerCopy, stream, bytes, [&] {
    return driver_.MemcpyPeerAsync(to, to_context, from, from_context, bytes, stream);
  });
}

}  // namespace gpushare::work
