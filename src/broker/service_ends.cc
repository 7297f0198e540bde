// SPDX-License-Identifier: Apache-2.0
// How sessions end: first the connection, then the process, then its memory.
#include <algorithm>
#include <string_view>
#include <utility>

#include "broker/service.h"
#include "broker/service_connection.h"

namespace gpushare::broker {
namespace {

// The kernel closes the connection in the middle of an exec. How often and how long to look whether it was an exec.
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
    SayOf(connection, "ended",
          {{"session", absl::StrCat(connection.session->id)},
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
  if (connection.opens.has_value()) {
    connection.opens.reset();
    --opening_;
  }
  for (const std::string& part : connection.parts) unread_ -= part.size();
  connection.parts.clear();
  // Without a pidfd its end will not be reported.
  if (!connection.peer.process) connection.process_ended = true;
}

void Service::LookAtImage(Connection& connection, Time now) {
  if (now < connection.looks_at_image || connection.process_ended) return;
  // A process can fake another image, so its memory counts as free only when the driver counts nothing either (TakeAudit).
  const uint64_t image = ImageOf(connection.peer.pid);
  connection.another = connection.another || (image != 0 && image != connection.image);
  if (connection.another) {
    connection.looks_at_image = now + kExecs;
  } else {
    connection.looks_at_image = now < connection.looks_until ? now + kLooksAtImage : kNever;
  }
}

// An exec has ended the program that ran in this process before, and its contexts with it.
void Service::EndReplaced(const Connection& by) {
  for (const auto& [id, other] : connections_) {
    if (other->session == nullptr || !Registry::Replaces(*by.session, *other->session)) continue;
    Drop(*other, "its process runs another program");
    other->another = other->process_ended = true;
  }
}

// Frees ended connections. Their pages are freed here and not earlier, since events of this round may still point to them.
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
    if (const Time reclaimed = registered ? ReclaimedAt(connection, now) : now; now < reclaimed) {
      next = std::min(next, reclaimed);
      ++at;
      continue;
    }
    if (connection.reclaims_since != kNever) --reclaiming_;
    if (registered) registry_.Free(connection.session, now, changed_);
    to_keep_ |= registered;
    freed_ |= registered;
    at = connections_.erase(at);
    --ended_;
  }
  return next;
}

// The end of a process is reported before the driver has freed its memory. If that were granted at once, allocations would fail.
Time Service::ReclaimedAt(Connection& connection, Time now) {
  Registry::Session& session = *connection.session;
  if (Registry::HoldsNothing(session)) return now;
  if (connection.reclaims_since == kNever) {
    if (connection.reclaimed) return now;
    connection.reclaims_since = now;
    ++reclaiming_;
    registry_.Reclaim(session, changed_);
    reclaims_.fetch_add(1, std::memory_order_release);
    clock_.Wake(reclaims_, 1);
  }
  const Config& config = registry_.config();
  // A driver may stop naming a process before it has freed all of its memory, so this time passes in any case.
  const Nanos least = config.reclaim_after.value_or(options_.teardown);
  // After an exec the process is named for what it runs now.
  const bool named =
      names_ && connection.peer.pid != 0 && !connection.reclaimed && !connection.another;
  const Time until =
      connection.reclaims_since + (named ? std::max(least, config.reclaim_most) : least);
  if (named && now >= until && config.reclaim_most > least) {
    Say("reclaim_overdue", {{"session", absl::StrCat(session.id)},
                            {"tenant", session.tenant->name},
                            {"pid", absl::StrCat(connection.peer.pid)}});
  }
  return until;
}

Time Service::ExpireSilent(Time now) {
  Time next = kNever;
  if (silent_ == 0) return next;
  for (const auto& [id, connection] : connections_) {
    if (connection->ended || connection->spoke) continue;
    const Time until = connection->since + options_.hello_within;
    if (now >= until) {
      Drop(*connection, "it said nothing");
      next = now;  // FreeEnded() then frees it
    } else {
      next = std::min(next, until);
    }
  }
  return next;
}

}  // namespace gpushare::broker
