// SPDX-License-Identifier: Apache-2.0
// Batches of copies, and prefetches of managed memory. A batch is held and submitted as a whole.
#include "work/batches.h"

#include "work/calls.h"

namespace gpushare::work {
namespace {

// The longest list that is read before the driver has accepted it. A larger count may be an invalid argument.
constexpr size_t kMostRead = 4096;

// The direction of a prefetch: to a device, or to the host.
gate::CopyDirection WayTo(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? gate::CopyDirection::kHostToDevice
                                                      : gate::CopyDirection::kDeviceToHost;
}

}  // namespace

void Calls::Count(const Side& to, const Side& from, uint64_t bytes, Traffic* traffic) {
  if (to.on_host && from.on_host) return;
  (to.on_host ? traffic->to_host : from.on_host ? traffic->to_device : traffic->on_device) += bytes;
}

Calls::Traffic Calls::TrafficOf(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes,
                                size_t count) const {
  Traffic traffic;
  if (to == nullptr || from == nullptr || bytes == nullptr) return traffic;
  for (size_t i = 0; i < count; ++i) Count(SideOf(to[i]), SideOf(from[i]), bytes[i], &traffic);
  return traffic;
}

Calls::Traffic Calls::TrafficOf(const void* operations, size_t count) const {
  Traffic traffic;
  if (operations == nullptr) return traffic;
  const auto* const boxes = static_cast<const BatchBox*>(operations);
  const auto side = [this](const BatchOperand& operand) {
    return operand.type == BatchOperand::kPointer ? SideOf(operand.pointer.pointer) : Array();
  };
  for (size_t i = 0; i < count; ++i) {
    const BatchBox& box = boxes[i];
    Count(side(box.to), side(box.from), uint64_t{box.width} * box.height * box.depth, &traffic);
  }
  return traffic;
}

// A long batch is held like a copy within the device. Its bytes to and from the host are accounted after the driver has
// accepted it.
CUresult Calls::Batch(const Payer& payer, CUstream stream, size_t count,
                      absl::FunctionRef<Traffic()> traffic, absl::FunctionRef<CUresult()> call) {
  if (Outermost::Inside()) return call();
  if (count <= kMostRead) return Mixed(payer, stream, traffic(), call);
  const bool captured = streams_.Capturing(stream);
  const CUresult result = Within(payer, gate::OnDeviceKind::kCopy, stream, count, call);
  if (result != CUDA_SUCCESS || captured) return result;
  const Traffic late = traffic();
  Mixed(payer, stream, {.to_device = late.to_device, .to_host = late.to_host},
        [] { return CUDA_SUCCESS; });
  return result;
}

CUresult Calls::MemcpyBatchAsync(const Payer& payer, CUdeviceptr* to, CUdeviceptr* from,
                                 size_t* bytes, size_t count, void* attributes,
                                 size_t* attribute_of, size_t attribute_count, CUstream stream) {
  const auto traffic = [&] { return TrafficOf(to, from, bytes, count); };
  return Batch(payer, stream, count, traffic, [&] {
    return driver_.MemcpyBatchAsync(to, from, bytes, count, attributes, attribute_of,
                                    attribute_count, stream);
  });
}
CUresult Calls::MemcpyBatchAsyncV1(const Payer& payer, CUdeviceptr* to, CUdeviceptr* from,
                                   size_t* bytes, size_t count, void* attributes,
                                   size_t* attribute_of, size_t attribute_count, size_t* failed,
                                   CUstream stream) {
  const auto traffic = [&] { return TrafficOf(to, from, bytes, count); };
  return Batch(payer, stream, count, traffic, [&] {
    return driver_.MemcpyBatchAsyncV1(to, from, bytes, count, attributes, attribute_of,
                                      attribute_count, failed, stream);
  });
}
CUresult Calls::Memcpy3DBatchAsync(const Payer& payer, size_t count, void* operations,
                                   unsigned long long flags, CUstream stream) {
  const auto traffic = [&] { return TrafficOf(operations, count); };
  return Batch(payer, stream, count, traffic,
               [&] { return driver_.Memcpy3DBatchAsync(count, operations, flags, stream); });
}
CUresult Calls::Memcpy3DBatchAsyncV1(const Payer& payer, size_t count, void* operations,
                                     size_t* failed, unsigned long long flags, CUstream stream) {
  const auto traffic = [&] { return TrafficOf(operations, count); };
  return Batch(payer, stream, count, traffic, [&] {
    return driver_.Memcpy3DBatchAsyncV1(count, operations, failed, flags, stream);
  });
}

// ---- Managed memory: all bytes are accounted, even if they are at the destination already ----

CUresult Calls::MemPrefetchAsync(const Payer& payer, CUdeviceptr pointer, size_t bytes,
                                 CUmemLocation location, unsigned flags, CUstream stream) {
  return Across(payer, stream, {.direction = WayTo(location), .parts = bytes, .line = pointer},
                [&](uint64_t at, uint64_t n) {
                  return driver_.MemPrefetchAsync(pointer + at, n, location, flags, stream);
                });
}
CUresult Calls::MemPrefetchAsyncV1(const Payer& payer, CUdeviceptr pointer, size_t bytes,
                                   CUdevice device, CUstream stream) {
  const auto way = device == CU_DEVICE_CPU ? gate::CopyDirection::kDeviceToHost
                                           : gate::CopyDirection::kHostToDevice;
  return Across(payer, stream, {.direction = way, .parts = bytes, .line = pointer},
                [&](uint64_t at, uint64_t n) {
                  return driver_.MemPrefetchAsyncV1(pointer + at, n, device, stream);
                });
}
CUresult Calls::MemPrefetchBatchAsync(const Payer& payer, CUdeviceptr* pointers, size_t* bytes,
                                      size_t count, CUmemLocation* locations, size_t* location_of,
                                      size_t location_count, unsigned long long flags,
                                      CUstream stream) {
  const bool readable = bytes != nullptr && locations != nullptr && location_of != nullptr;
  const auto traffic = [&] {
    Traffic sum;
    for (size_t i = 0, at = 0; readable && location_count > 0 && i < count; ++i) {
      // A location applies from the range with its index up to that of the next location.
      while (at + 1 < location_count && location_of[at + 1] <= i) ++at;
      (WayTo(locations[at]) == gate::CopyDirection::kHostToDevice ? sum.to_device : sum.to_host) +=
          bytes[i];
    }
    return sum;
  };
  return Batch(payer, stream, count, traffic, [&] {
    return driver_.MemPrefetchBatchAsync(pointers, bytes, count, locations, location_of,
                                         location_count, flags, stream);
  });
}

CUresult Calls::MemBatchDecompressAsync(const Payer& payer, void* operations, size_t count,
                                        unsigned flags, size_t* failed, CUstream stream) {
  uint64_t bytes = count > kMostRead ? count : 0;  // the cost is learnt by size
  const auto* const one = static_cast<const Decompression*>(operations);
  const bool readable = operations != nullptr && count <= kMostRead;
  for (size_t i = 0; readable && i < count; ++i) bytes += one[i].to_bytes;
  return Within(payer, gate::OnDeviceKind::kDecompress, stream, bytes, [&] {
    return driver_.MemBatchDecompressAsync(operations, count, flags, failed, stream);
  });
}

}  // namespace gpushare::work
