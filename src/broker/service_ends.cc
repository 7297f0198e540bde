// SPDX-License-Identifier: Apache-2.0
// How sessions end: the connection, then the process and what it had.
#include <algorithm>
#include <string_view>
#include <utility>

#include "broker/service.h"
#include "broker/service_connection.h"

namespace gpushare::broker {
namespace {

// The kernel closes the connection in the midst of an exec: so often it is looked whether it was one, and so long.
constexpr Nanos kLooksAtImage = Millis(50), kExecs = Seconds(2);

}  // namespace

void Service::Drop(Connection& connection, std::string_view why, bool evicted) {
  if (std::exchange(connection.ended, true)) return;
  const Time now = clock_.Now();
  if (connection.session != nullptr) {
    connection.session->evicted = evicted;
    registry_.End(*connection.session, now, changed_);
    to_keep_ = true;
    if (Registry::HoldsNothing(*connection.session)) connection.process_ended = true;
    if (connection.image != 0) {
      connection.looks_at_image = now + kLooksAtImage;
      connection.looks_until = now + kExecs;
    }
    Say("ended", {{"session", absl::StrCat(connection.session->id)},
                  {"tenant", connection.session->tenant->name},
                  {"pid", absl::StrCat(connection.peer.pid)},
                  {"why", std::string(why)}});
  }
  ++ended_;
  if (!connection.spoke) --silent_;
  const auto forget = [&](Watched& watched) {
    mutex_.AssertHeld();
    if (std::exchange(watched.deaf_until, kNever) != kNever) --deaf_;
  };
  forget(connection.watched);
  for (SeatHolder& holder : connection.seats) {
    forget(holder.watched);
    Unwatch(holder.bell.fd());
  }
  Unwatch(connection.fd.get());
  connection.fd.Reset();
  for (const std::string& part : connection.parts) unread_ -= part.size();
  connection.parts.clear();
  if (!connection.peer.process) connection.process_ended = true;  // nothing will be heard of it
}

void Service::LookAtImage(Connection& connection, Time now) {
  if (now < connection.looks_at_image || connection.process_ended) return;
  // What it runs a process can pretend: its memory comes back when the driver, too, counts nothing of it (TakeAudit).
  const uint64_t image = ImageOf(connection.peer.pid);
  connection.another = connection.another || (image != 0 && image != connection.image);
  if (connection.another) {
    connection.looks_at_image = now + kExecs;
  } else {
    connection.looks_at_image = now < connection.looks_until ? now + kLooksAtImage : kNever;
  }
}

// Those that have ended let go of what they had, their pages last: events of this round may still point there.
Time Service::FreeEnded(Time now) {
  Time next = kNever;
  if (ended_ == 0) return next;
  for (auto at = connections_.begin(); at != connections_.end();) {
    Connection& connection = *at->second;
    const bool registered = connection.session != nullptr;
    if (connection.ended) LookAtImage(connection, now);
    if (!connection.ended ||
        (registered && !connection.process_ended && now < connection.held_until)) {
      if (connection.ended) {
        next = std::min({next, connection.held_until, connection.looks_at_image});
      }
      ++at;
      continue;
    }
    if (registered && connection.free_at == kNever) connection.free_at = now + options_.teardown;
    if (registered && now < connection.free_at) {
      next = std::min(next, connection.free_at);
      ++at;
      continue;
    }
    if (registered) registry_.Free(connection.session, now, changed_);
    to_keep_ |= registered;
    at = connections_.erase(at);
    --ended_;
  }
  return next;
}

Time Service::ExpireSilent(Time now) {
  Time next = kNever;
  if (silent_ == 0) return next;
  for (const auto& [id, connection] : connections_) {
    if (connection->ended || connection->spoke) continue;
    const Time until = connection->since + options_.hello_within;
    if (now >= until) {
      Drop(*connection, "it said nothing");
      next = now;  // and come to free it
    } else {
      next = std::min(next, until);
    }
  }
  return next;
}

}  // namespace gpushare::broker
