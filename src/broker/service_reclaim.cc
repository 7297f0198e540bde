// SPDX-License-Identifier: Apache-2.0
// What the driver says of processes that have ended: whether it has their memory back.
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
  // Of a driver that counts by other numbers, or does not show these processes, that it names none says nothing.
  for (const auto& [id, connection] : connections_) {
    names_ |= connection->session != nullptr && pids.count(connection->peer.pid) > 0;
  }
  if (!names_) return;
  bool any = false;
  for (const auto& [id, connection] : connections_) {
    // It was seen to have ended before the driver was asked.
    if (connection->reclaims_since > at || connection->reclaimed || connection->peer.pid == 0) {
      continue;
    }
    const int32_t pid = connection->peer.pid;
    const uint64_t began = connection->session->who.began, begins = BeganAt(pid);
    const bool another = began != 0 && begins != 0 && begins != began;  // has its number now
    if (pids.count(pid) > 0 && !another) continue;
    connection->reclaimed = any = true;
  }
  if (any) Raise(reclaimed_);
}

void Service::ForgetNamed() {
  base::MutexLock lock(&mutex_);
  names_ = false;
  Raise(reclaimed_);  // those that wait are to be looked at by the clock
}

}  // namespace gpushare::broker
