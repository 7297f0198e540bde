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

struct Payer {
  quota::Account* account;
  uint32_t owner = 0;           // the caller's own number, told with every credit
  CUcontext context = nullptr;  // the current one; null: the driver is asked
  CUdevice device = -1;         // of the stream, where the call has one; -1: the current one
  // Asked when the quota refuses and nothing idle is left to give up; may wait. Null: refused at once.
  const absl::FunctionRef<quota::Grant(quota::Account&, uint64_t bytes)>* wait = nullptr;
};

// Who pays on which device, of a call that takes memory of several. Nothing: nobody may, it is out of memory; an account
// that is null: nobody has to.
using PayerOn = absl::FunctionRef<std::optional<Payer>(CUdevice)>;

// The driver's result; at the quota CUDA_ERROR_OUT_OF_MEMORY without a call to it.
struct [[nodiscard]] Answer {
  CUresult result = CUDA_SUCCESS;
  bool at_quota = false;
  uint64_t left = 0;  // at the quota: what was

  bool ok() const { return result == CUDA_SUCCESS; }
  static Answer AtQuota(uint64_t left) { return {CUDA_ERROR_OUT_OF_MEMORY, true, left}; }
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_PAYER_H_
