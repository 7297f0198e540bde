// SPDX-License-Identifier: Apache-2.0
// Who has virtual devices in this process, on whichever GPU and of whichever runtime: a tenant of isolation `process` is
// alone in it. Threads: any.
#ifndef GPUSHARE_DEVICE_SHARE_PROCESS_TENANTS_H_
#define GPUSHARE_DEVICE_SHARE_PROCESS_TENANTS_H_

#include "absl/status/status.h"

namespace gpushare::device {

class Tenant;

// For each virtual device, before it is made; `alone`: of isolation `process`. FailedPrecondition: another tenant is in
// the way, and who.
absl::Status EnterProcess(const Tenant& tenant, bool alone);
// Once for each that entered.
void LeaveProcess(const Tenant& tenant, bool alone);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_SHARE_PROCESS_TENANTS_H_
