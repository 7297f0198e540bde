// SPDX-License-Identifier: Apache-2.0
// What a service has of each connection, and of a change that one has asked for. Part of service.h, for its own sources
// alone.
#ifndef GPUSHARE_BROKER_SERVICE_CONNECTION_H_
#define GPUSHARE_BROKER_SERVICE_CONNECTION_H_

#include <sys/epoll.h>

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "broker/service.h"
#include "ipc/message.h"

namespace gpushare::broker {

struct Service::SeatHolder {
  ipc::NewPage<ipc::LimitsPage> limits;
  ipc::NewPage<const ipc::UsagePage> usage;
  ipc::Doorbell bell;
  Seat seat;
  Watched watched;
};

struct Service::Connection {
  uint64_t id = 0;
  base::UniqueFd fd;  // none: it has ended
  ipc::Peer peer;
  Time since{};
  bool spoke = false;  // something that was understood
  Registry::Session* session = nullptr;
  std::list<SeatHolder> seats;
  std::deque<std::string> parts;  // of an answer, not sent yet
  bool wants_room = false;        // the poller tells when the peer takes more
  bool ended = false, process_ended = false;
  Time held_until = kNever;  // and no longer, though nothing was heard of the process
  // What its process ran when it registered (remains.h), and when to look whether it still does, of one that has ended.
  uint64_t image = 0;
  bool another = false;     // it seems to run another program
  bool counted = false;     // the driver has counted what it holds, while it was registered
  int counted_nothing = 0;  // audits one after another since it is `another`
  Time looks_at_image = kNever, looks_until = kNever;
  Time reclaims_since = kNever;  // its process has ended, and what it had may not be free yet
  bool reclaimed = false;        // it is, the driver says
  // A GPU that it asked for, for which there is no room until the driver has memory back; and by when it is answered.
  std::optional<ipc::Message> opens;
  Time opens_until = kNever;
  Watched watched, process_watched;

  uint32_t Events() const {
    return (watched.deaf_until == kNever ? uint32_t{EPOLLIN} : 0u) |
           (wants_room ? uint32_t{EPOLLOUT} : 0u);
  }
};

// The configuration is read while everybody else is served: names of users may have to be asked for far away.
struct Service::Reload {
  uint64_t connection = 0;  // that is answered
  ipc::Change change;
  absl::StatusOr<Config> config;
  std::thread thread;
};

inline std::string Text(const absl::Status& status) { return std::string(status.message()); }

// That the broker has come to this process's call; 0 is of who has none.
inline void Beat(ipc::LimitsPage& page) {
  if (page.beat.fetch_add(1, std::memory_order_relaxed) == UINT32_MAX) page.beat.store(1);
}

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_SERVICE_CONNECTION_H_
