// SPDX-License-Identifier: Apache-2.0
#include "device/process/identity.h"

#include <atomic>
#include <utility>

namespace gpushare::device {
namespace {

thread_local Scope* innermost = nullptr;
thread_local uint64_t thread_number = 0;
std::atomic<uint64_t> next_scope{1};
std::atomic<uint64_t> next_thread{1};

}  // namespace

uint64_t EnterScope(std::shared_ptr<Tenant> tenant, gpushare_tenant handle) {
  const uint64_t id = next_scope.fetch_add(1, std::memory_order_relaxed);
  innermost = new Scope{id, std::move(tenant), handle, innermost};
  return id;
}

absl::Status LeaveScope(uint64_t scope) {
  if (innermost == nullptr || innermost->id != scope) {
    return absl::FailedPreconditionError(
        "this is not the innermost scope of the calling thread: leave scopes on the thread that "
        "entered them, "
        "in reverse order");
  }
  const std::unique_ptr<Scope> left(innermost);
  innermost = left->outer;
  return absl::OkStatus();
}

const Scope* CurrentScope() { return innermost; }

uint64_t ThreadNumber() {
  if (thread_number == 0) thread_number = next_thread.fetch_add(1, std::memory_order_relaxed);
  return thread_number;
}

}  // namespace gpushare::device
