// SPDX-License-Identifier: Apache-2.0
// Whether the driver has freed the memory of ended processes.
#include <sys/types.h>

#include <optional>
#include <set>

#include "broker/service.h"
#include "broker/service_connection.h"

namespace gpushare::broker {

std::optional<Service::ReclaimSubjects> Service::TakeReclaimSubjects() {
  base::MutexLock lock(&mutex_);
  if (reclaiming_ == 0) return std::nullopt;
  return ReclaimSubjects{registry_.gpus(), clock_.Now()};
}

void Service::TakeNamed(const std::set<int32_t>& pids, Time at) {
  base::MutexLock lock(&mutex_);
  // A driver may use other pids or not show these processes at all. Then it means nothing that it names none of them.
  for (const auto& [id, connection] : connections_) {
    names_ |= connection->session != nullptr && pids.count(connection->peer.pid) > 0;
  }
  if (!names_) return;
  bool any = false;
  for (const auto& [id, connection] : connections_) {
    // Only processes that had ended before the driver was asked count.
    if (connection->reclaims_since > at || connection->reclaimed || connection->peer.pid == 0) {
      continue;
    }
    const int32_t pid = connection->peer.pid;
    const uint64_t began = connection->session->who.began, begins = BeganAt(pid);
    // Another process has its pid now.
    const bool another = began != 0 && begins != 0 && begins != began;
    if (pids.count(pid) > 0 && !another) continue;
    connection->reclaimed = any = true;
  }
  if (any) Raise(reclaimed_);
}

void Service::ForgetNamed() {
  base::MutexLock lock(&mutex_);
  names_ = false;
  Raise(reclaimed_);  // wakes the loop, which looks at the waiting sessions
}

}  // namespace gpushare::broker
