// SPDX-License-Identifier: Apache-2.0
// Who pays for an allocation, and what the books answer.
#ifndef GPUSHARE_BOOKS_PAYER_H_
#define GPUSHARE_BOOKS_PAYER_H_

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "quota/ledger.h"

namespace gpushare::books {

// Makes room in an account for a request that finds none, or waits for it.
class Room {
 public:
  // Reserves `bytes`, or says what was left; counts what it refuses.
  virtual quota::Grant Reserve(quota::Account& account, uint64_t bytes) = 0;
  // Who waits does not overtake those who wait already.
  virtual bool waits() const = 0;

 protected:
  ~Room() = default;
};

// Who is told of no credit.
inline constexpr uint32_t kNobody = UINT32_MAX;

struct Payer {
  quota::Account* account;
  uint32_t owner = 0;           // the caller's own number, told with every credit; kNobody: none is
  CUcontext context = nullptr;  // the current one; null: the driver is asked
  CUdevice device = -1;         // of the stream, where the call has one; -1: the current one
  // Asked when the account has no room and nothing of it is idle. Null: then it is refused.
  Room* room = nullptr;
};

// Who pays on which device, of a call that takes memory of several. Nothing: nobody may, it is out of memory; an account
// that is null: nobody has to.
using PayerOn = absl::FunctionRef<std::optional<Payer>(CUdevice)>;

// The driver's result; at the quota CUDA_ERROR_OUT_OF_MEMORY without a call to it.
struct [[nodiscard]] Answer {
  CUresult result = CUDA_SUCCESS;
  bool at_quota = false;
  bool no_host_memory = false;  // for the books themselves: CUDA_ERROR_OUT_OF_MEMORY too
  uint64_t left = 0;            // at the quota: what was

  bool ok() const { return result == CUDA_SUCCESS; }
  static Answer AtQuota(uint64_t left) {
    return {.result = CUDA_ERROR_OUT_OF_MEMORY, .at_quota = true, .left = left};
  }
  static Answer NoHostMemory() {
    return {.result = CUDA_ERROR_OUT_OF_MEMORY, .no_host_memory = true};
  }
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_PAYER_H_
