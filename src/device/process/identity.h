// SPDX-License-Identifier: Apache-2.0
// The tenant for which the calling thread works.
//
//   uint64_t scope = EnterScope(tenant, handle);
//   CurrentScope()->tenant;              // the innermost
//   GPUSHARE_RETURN_IF_ERROR(LeaveScope(scope));
//
// Each thread has a stack of scopes. Scopes that a thread leaves open at its end are never entered again, and stay in memory.
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
  gpushare_tenant handle;  // the handle with which it was entered
  Scope* outer;
};

uint64_t EnterScope(std::shared_ptr<Tenant> tenant, gpushare_tenant handle);
// FailedPrecondition unless `scope` is the thread's innermost.
absl::Status LeaveScope(uint64_t scope);
const Scope* CurrentScope();  // null: none

// A number for the calling thread that is never reused.
uint64_t ThreadNumber();

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_IDENTITY_H_
