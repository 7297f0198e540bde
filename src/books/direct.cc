// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged.
#include "books/books.h"

namespace gpushare::books {

Answer Books::List(const Payer& payer, CUdeviceptr pointer, uint64_t bytes, quota::Kind kind) {
  const quota::Allocation entry{bytes, payer.account, kind, payer.owner, TagOf(payer)};
  return Insert(pointers_, pointer, entry, [&] { driver_.MemFree(pointer); });
}

template <typename Call>
Answer Books::Take(const Payer& payer, CUdeviceptr* pointer, uint64_t bytes, quota::Kind kind,
                   const Call& call) {
  if (pointer == nullptr || bytes == 0)
    return {call()};  // the driver refuses it with its own error
  const uint64_t charge = ChargeOf(bytes);
  const Answer answer = Charged(payer, charge, [&] {
    const CUresult result = call();
    if (result == CUDA_SUCCESS) pointers_.Prefetch(*pointer);
    return result;
  });
  return answer.ok() ? List(payer, *pointer, charge, kind) : answer;
}

Answer Books::MemAlloc(const Payer& payer, CUdeviceptr* pointer, size_t bytes) {
  return Take(payer, pointer, bytes, quota::Kind::kDirect,
              [&] { return driver_.MemAlloc(pointer, bytes); });
}

Answer Books::MemAllocManaged(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                              unsigned flags) {
  return Take(payer, pointer, bytes, quota::Kind::kManaged,
              [&] { return driver_.MemAllocManaged(pointer, bytes, flags); });
}

// The driver chooses the pitch. The reservation is for the largest pitch that is expected from earlier calls; the difference is
// given back at once. If the driver pads by more, the rest has to be reserved after the allocation, or the memory is freed
// again. That happens only once, since then the larger padding is known.
Answer Books::MemAllocPitch(const Payer& payer, CUdeviceptr* pointer, size_t* pitch, size_t width,
                            size_t height, unsigned element) {
  const auto call = [&] { return driver_.MemAllocPitch(pointer, pitch, width, height, element); };
  if (pointer == nullptr || pitch == nullptr || width == 0 || height == 0) return {call()};
  const uint64_t unit = pitch_unit_.load(std::memory_order_relaxed);
  uint64_t row = 0, most = 0;
  if (__builtin_add_overflow(width, unit - 1, &row) ||
      __builtin_mul_overflow(row / unit * unit, height, &most)) {
    return Refused(payer);
  }
  most = ChargeOf(most);
  Answer answer = Reserve(payer, most);
  if (!answer.ok()) return answer;
  answer.result = call();
  if (!answer.ok()) {
    payer.account->Cancel(most);
    return answer;
  }
  const uint64_t bytes = ChargeOf(uint64_t{*pitch} * height);
  if (bytes > most) {
    uint64_t larger = unit;
    while ((width + larger - 1) / larger * larger < *pitch) larger *= 2;
    pitch_unit_.store(larger, std::memory_order_relaxed);
    if (const quota::Grant rest = payer.account->Reserve(bytes - most); !rest) {
      driver_.MemFree(*pointer);
      *pointer = 0;
      payer.account->Cancel(most);
      return Answer::AtQuota(rest.left);
    }
  } else if (bytes < most) {
    payer.account->Cancel(most - bytes);
  }
  payer.account->Commit(bytes);
  return List(payer, *pointer, bytes, quota::Kind::kPitched);
}

}  // namespace gpushare::books
