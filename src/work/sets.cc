// SPDX-License-Identifier: Apache-2.0
// Memory sets. None of them waits for the device, not even those without a stream.
#include "work/calls.h"

namespace gpushare::work {
namespace {

constexpr auto kSet = gate::OnDeviceKind::kSet;

}  // namespace

CUresult Calls::MemsetD8(const Payer& payer, CUdeviceptr to, unsigned char value, size_t count,
                         NullStream null) {
  return Within(payer, kSet, Of(null), count, [&] {
    return Pick(null, driver_.MemsetD8, driver_.MemsetD8PerThread)(to, value, count);
  });
}
CUresult Calls::MemsetD16(const Payer& payer, CUdeviceptr to, unsigned short value, size_t count,
                          NullStream null) {
  return Within(payer, kSet, Of(null), 2 * count, [&] {
    return Pick(null, driver_.MemsetD16, driver_.MemsetD16PerThread)(to, value, count);
  });
}
CUresult Calls::MemsetD32(const Payer& payer, CUdeviceptr to, unsigned value, size_t count,
                          NullStream null) {
  return Within(payer, kSet, Of(null), 4 * count, [&] {
    return Pick(null, driver_.MemsetD32, driver_.MemsetD32PerThread)(to, value, count);
  });
}
CUresult Calls::MemsetD2D8(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned char value,
                           size_t width, size_t height, NullStream null) {
  return Within(payer, kSet, Of(null), width * height, [&] {
    return Pick(null, driver_.MemsetD2D8, driver_.MemsetD2D8PerThread)(to, pitch, value, width,
                                                                       height);
  });
}
CUresult Calls::MemsetD2D16(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned short value,
                            size_t width, size_t height, NullStream null) {
  return Within(payer, kSet, Of(null), 2 * width * height, [&] {
    return Pick(null, driver_.MemsetD2D16, driver_.MemsetD2D16PerThread)(to, pitch, value, width,
                                                                         height);
  });
}
CUresult Calls::MemsetD2D32(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned value,
                            size_t width, size_t height, NullStream null) {
  return Within(payer, kSet, Of(null), 4 * width * height, [&] {
    return Pick(null, driver_.MemsetD2D32, driver_.MemsetD2D32PerThread)(to, pitch, value, width,
                                                                         height);
  });
}

CUresult Calls::MemsetD8Async(const Payer& payer, CUdeviceptr to, unsigned char value, size_t count,
                              CUstream stream) {
  return Within(payer, kSet, stream, count,
                [&] { return driver_.MemsetD8Async(to, value, count, stream); });
}
CUresult Calls::MemsetD16Async(const Payer& payer, CUdeviceptr to, unsigned short value,
                               size_t count, CUstream stream) {
  return Within(payer, kSet, stream, 2 * count,
                [&] { return driver_.MemsetD16Async(to, value, count, stream); });
}
CUresult Calls::MemsetD32Async(const Payer& payer, CUdeviceptr to, unsigned value, size_t count,
                               CUstream stream) {
  return Within(payer, kSet, stream, 4 * count,
                [&] { return driver_.MemsetD32Async(to, value, count, stream); });
}
CUresult Calls::MemsetD2D8Async(const Payer& payer, CUdeviceptr to, size_t pitch,
                                unsigned char value, size_t width, size_t height, CUstream stream) {
  return Within(payer, kSet, stream, width * height,
                [&] { return driver_.MemsetD2D8Async(to, pitch, value, width, height, stream); });
}
CUresult Calls::MemsetD2D16Async(const Payer& payer, CUdeviceptr to, size_t pitch,
                                 unsigned short value, size_t width, size_t height,
                                 CUstream stream) {
  return Within(payer, kSet, stream, 2 * width * height,
                [&] { return driver_.MemsetD2D16Async(to, pitch, value, width, height, stream); });
}
CUresult Calls::MemsetD2D32Async(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned value,
                                 size_t width, size_t height, CUstream stream) {
  return Within(payer, kSet, stream, 4 * width * height,
                [&] { return driver_.MemsetD2D32Async(to, pitch, value, width, height, stream); });
}

}  // namespace gpushare::work
