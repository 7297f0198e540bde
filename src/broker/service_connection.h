// SPDX-License-Identifier: Apache-2.0
// The service's state for each connection and for a reload. Part of service.h, only for the service's own sources.
#ifndef GPUSHARE_BROKER_SERVICE_CONNECTION_H_
#define GPUSHARE_BROKER_SERVICE_CONNECTION_H_

#include <sys/epoll.h>

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "broker/peer_socket.h"
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
  PeerSocket fd;  // invalid: the connection has ended
  ipc::Peer peer;
  Time since{};
  bool spoke = false;             // it has sent a message that was understood
  std::optional<uint64_t> began;  // when its process began; not asked for yet
  Registry::Session* session = nullptr;
  std::list<SeatHolder> seats;
  std::deque<std::string> parts;  // parts of answers that have not been sent yet
  bool wants_room = false;        // the poller reports when the peer can take more
  bool ended = false, process_ended = false;
  Time held_until = kNever;  // ended: when to stop waiting for news of the process
  // The program image of its process when it registered (ImageOf() in remains.h). Once the connection has ended, the
  // process is checked for another image at `looks_at_image`, repeatedly until `looks_until`.
  uint64_t image = 0;
  bool another = false;     // the process seems to run another program
  bool counted = false;     // the driver has counted the process's memory while it was registered
  int counted_nothing = 0;  // consecutive audits that counted nothing since it is `another`
  Time looks_at_image = kNever, looks_until = kNever;
  // When its process was seen to have ended with memory that may not be free yet.
  Time reclaims_since = kNever;
  bool reclaimed = false;  // the driver says that the memory is free
  // A request for a GPU that waits for the driver to free memory, and when it is answered at the latest.
  std::optional<ipc::Message> opens;
  Time opens_until = kNever;
  Watched watched, process_watched;

  uint32_t Events() const {
    return (watched.deaf_until == kNever ? uint32_t{EPOLLIN} : 0u) |
           (wants_room ? uint32_t{EPOLLOUT} : 0u);
  }
};

// A reload in progress. The configuration is read while the service goes on, since resolving names of users may take long.
struct Service::Reload {
  uint64_t connection = 0;  // the connection to answer
  uid_t by = 0;             // who has asked
  ipc::Change change;
  absl::StatusOr<Config> config;
  uint64_t reading = 0;  // BeginReading()
  std::thread thread;
};

inline std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Tells the process that the broker has seen its call. Skips 0, which means that there is no beat.
inline void Beat(ipc::LimitsPage& page) {
  if (page.beat.fetch_add(1, std::memory_order_relaxed) == UINT32_MAX) page.beat.store(1);
}

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_SERVICE_CONNECTION_H_
