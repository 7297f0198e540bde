// SPDX-License-Identifier: Apache-2.0
// The payer for an allocation, and the books' answer.
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
  // Reserves `bytes`, or says what was left. Counts refusals.
  virtual quota::Grant Reserve(quota::Account& account, uint64_t bytes) = 0;
  // Whether requests wait. A request that waits does not overtake those already waiting.
  virtual bool waits() const = 0;

 protected:
  ~Room() = default;
};

// An owner for whom OnCredit is not called.
inline constexpr uint32_t kNobody = UINT32_MAX;

struct Payer {
  quota::Account* account;
  uint32_t owner = 0;           // the caller's own number, passed to OnCredit; kNobody: no calls
  CUcontext context = nullptr;  // the current context; null: ask the driver
  CUdevice device = -1;         // the device of the call's stream; -1: the current device
  // Used when the account has no room and no idle memory. Null: the request is refused then.
  Room* room = nullptr;
};

// Returns the payer on a device, for a call that takes memory on several devices. Nothing means that the call must fail with
// out of memory. A payer with a null account means that nothing is charged there.
using PayerOn = absl::FunctionRef<std::optional<Payer>(CUdevice)>;

// The driver's result, or CUDA_ERROR_OUT_OF_MEMORY without a call of the driver if the quota is used up.
struct [[nodiscard]] Answer {
  CUresult result = CUDA_SUCCESS;
  bool at_quota = false;
  bool no_host_memory = false;  // the books ran out of host memory: also CUDA_ERROR_OUT_OF_MEMORY
  uint64_t left = 0;            // if at_quota: the bytes that were left

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
