// SPDX-License-Identifier: Apache-2.0
// For whom the calling thread works.
//
//   uint64_t scope = EnterScope(tenant, handle);
//   CurrentScope()->tenant;              // the innermost
//   GPUSHARE_RETURN_IF_ERROR(LeaveScope(scope));
//
// Scopes are a stack of the thread's. What a thread leaves open at its end is never entered again
// and stays in memory.
#ifndef GPUSHARE_DEVICE_PROCESS_IDENTITY_H_
#define GPUSHARE_DEVICE_PROCESS_IDENTITY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Tenant;

struct Scope {
  uint64_t id;
  std::shared_ptr<Tenant> tenant;
  gpushare_tenant handle;  // as it was entered
  Scope* outer;
};

uint64_t EnterScope(std::shared_ptr<Tenant> tenant, gpushare_tenant handle);
// FailedPrecondition unless `scope` is the thread's innermost.
absl::Status LeaveScope(uint64_t scope);
const Scope* CurrentScope();  // null: none

// A number for the calling thread that no other thread ever has.
uint64_t ThreadNumber();

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_IDENTITY_H_
