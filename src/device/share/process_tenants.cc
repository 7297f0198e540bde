// SPDX-License-Identifier: Apache-2.0
#include "device/share/process_tenants.h"

#include <algorithm>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/sync.h"
#include "base/text.h"
#include "device/process/tenant.h"

namespace gpushare::device {
namespace {

struct Tenants {
  base::Mutex mutex;
  std::map<const Tenant*, int> devices ABSL_GUARDED_BY(mutex);  // how many each has
  int alone ABSL_GUARDED_BY(mutex) = 0;  // of isolation `process`: of one tenant
};

// Never destroyed: virtual devices may end with the process.
Tenants& All() {
  static Tenants* const all = new Tenants;
  return *all;
}

}  // namespace

absl::Status EnterProcess(const Tenant& tenant, bool alone) {
  Tenants& all = All();
  base::MutexLock lock(&all.mutex);
  const auto other = std::find_if(all.devices.begin(), all.devices.end(),
                                  [&](const auto& each) { return each.first != &tenant; });
  if (other != all.devices.end() && (alone || all.alone > 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat("tenant ", Quoted(tenant.name()), ": ",
                     alone ? "isolation=process asks for a process without other tenants, and "
                           : "this process is kept for one tenant by isolation=process, and ",
                     Quoted(other->first->name()),
                     " has a virtual device in it; start another process, or close that one"));
  }
  ++all.devices[&tenant];
  all.alone += alone ? 1 : 0;
  return absl::OkStatus();
}

void LeaveProcess(const Tenant& tenant, bool alone) {
  Tenants& all = All();
  base::MutexLock lock(&all.mutex);
  const auto at = all.devices.find(&tenant);
  if (at == all.devices.end()) return;
  if (--at->second == 0) all.devices.erase(at);
  all.alone -= alone ? 1 : 0;
}

}  // namespace gpushare::device
