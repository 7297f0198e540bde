// SPDX-License-Identifier: Apache-2.0
// Messages of processes: they connect, register and open GPUs, and are answered.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "broker/service.h"
#include "broker/service_connection.h"

namespace gpushare::broker {
namespace {

constexpr size_t kMostGpus = 64;               // opened by one process
constexpr Nanos kLongestOpening = Seconds(4);  // a process waits for 5 s
constexpr Nanos kNoRoom = Millis(100);         // how long not to accept when no descriptor is left
// Connections of operators beyond the bounds: whoever fills the broker must not keep out who would evict him.
constexpr size_t kMoreForOperators = 16;

}  // namespace

// Accepts one connection. Whether more may be waiting.
bool Service::Accept() {
  absl::StatusOr<base::UniqueFd> accepted = listener_->Accept();
  if (absl::IsResourceExhausted(accepted.status())) {
    Unwatch(listener_->fd());  // the event would be reported again at once
    accepts_again_ = clock_.Now() + kNoRoom;
  }
  if (!accepted.ok()) return false;
  PeerSocket fd(*std::move(accepted));
  absl::StatusOr<ipc::Peer> peer = ipc::PeerOf(fd.get());
  if (!peer.ok()) return true;
  size_t open = 0, of_user = 0;
  // Ended connections whose process has not ended count, too: they still hold grants, and descriptors here.
  for (const auto& [id, other] : connections_) {
    ++open;
    if (other->peer.uid == peer->uid) ++of_user;
  }
  const auto is_full = [&](size_t more) {
    return open >= options_.most_connections + more || of_user >= options_.most_of_user + more;
  };
  if (is_full(0) && (is_full(kMoreForOperators) || !MayOperate(*peer).ok())) {
    registry_.CountRefused();
    const absl::StatusOr<std::string> packet = ipc::Encode(ipc::Refusal{
        static_cast<uint32_t>(absl::StatusCode::kResourceExhausted),
        absl::StrCat("the broker has ", open, " connections, ", of_user, " of user ", peer->uid,
                     "; at most ", options_.most_connections, " and ", options_.most_of_user)});
    if (packet.ok()) ipc::Send(fd.get(), *packet).IgnoreError();
    return true;
  }
  auto made = std::make_unique<Connection>();
  Connection& connection = *made;
  connection.id = next_connection_++;
  connection.fd = std::move(fd);
  connection.peer = *std::move(peer);
  connection.since = clock_.Now();
  connection.watched = {Watched::kConnection, &connection};
  connection.process_watched = {Watched::kProcess, &connection};
  if (!Watch(connection.fd.get(), connection.watched).ok()) return true;
  connections_[connection.id] = std::move(made);
  ++silent_;
  return true;
}

// Reads one packet; the poller reports the connection again while it has more.
void Service::Read(Connection& connection) {
  const absl::StatusOr<ipc::Received> got = connection.fd.Receive();
  if (!got.ok()) return Drop(connection, Text(got.status()));
  if (got->what == ipc::Received::kNothing) return;
  if (got->what == ipc::Received::kEnd) return Drop(connection, "its connection was closed");
  const absl::StatusOr<ipc::Message> message = ipc::Decode(got->packet);
  if (!message.ok()) {
    // A peer of another version is told so.
    if (absl::IsFailedPrecondition(message.status())) {
      registry_.CountRefused();
      static_cast<void>(Refuse(connection, message.status()));
    }
    return Drop(connection, Text(message.status()));
  }
  if (!std::exchange(connection.spoke, true)) --silent_;
  const absl::Status handled = Handle(connection, *message);
  if (!handled.ok()) return Drop(connection, Text(handled));
}

// An error ends the connection. A refusal is sent as an answer, and is no error.
absl::Status Service::Handle(Connection& connection, const ipc::Message& message) {
  absl::Status refused;
  if (connection.opens.has_value()) {
    return absl::InvalidArgumentError("asked again before the answer was there");
  }
  if (const auto* hello = std::get_if<ipc::Hello>(&message)) {
    refused = OnHello(connection, *hello);
  } else if (std::holds_alternative<ipc::OpenGpuAs>(message) ||
             std::holds_alternative<ipc::OpenGpu>(message)) {
    return Open(connection, message);
  } else if (const auto* change = std::get_if<ipc::Change>(&message);
             change != nullptr && change->what == "reload" && options_.reload) {
    refused = BeginReload(connection, *change);
  } else {
    absl::StatusOr<std::string> text = absl::InvalidArgumentError("only the broker says that");
    if (!connection.parts.empty())
      return absl::InvalidArgumentError("asked again before the answer was taken");
    if (const auto* query = std::get_if<ipc::Query>(&message)) text = OnQuery(connection, *query);
    if (const auto* asked = std::get_if<ipc::Change>(&message)) text = OnChange(connection, *asked);
    refused = text.status();
    if (text.ok()) {
      Answer(connection, *text);
      return Flush(connection);
    }
  }
  if (refused.ok()) return refused;
  if (std::holds_alternative<ipc::Hello>(message)) registry_.CountRefused();
  return Refuse(connection, refused);
}

absl::Status Service::Refuse(Connection& connection, const absl::Status& why) {
  SayOf(connection, "refused",
        {{"pid", absl::StrCat(connection.peer.pid)},
         {"uid", absl::StrCat(connection.peer.uid)},
         {"why", Text(why)}});
  GPUSHARE_ASSIGN_OR_RETURN(const std::string packet, ipc::Encode(ipc::ToRefusal(why)));
  return ipc::Send(connection.fd.get(), packet);
}

absl::Status Service::OnHello(Connection& connection, const ipc::Hello& hello) {
  if (connection.session != nullptr)
    return absl::InvalidArgumentError("this connection has registered before");
  // /proc is slow, and who is refused may ask again and again.
  if (!connection.began.has_value()) connection.began = BeganAt(connection.peer.pid);
  GPUSHARE_ASSIGN_OR_RETURN(connection.session,
                            registry_.Register({.pid = connection.peer.pid,
                                                .uid = connection.peer.uid,
                                                .gid = connection.peer.gid,
                                                .began = *connection.began,
                                                .groups = ipc::GroupsOfPeer(connection.fd.get())},
                                               hello));
  connection.image = ImageOf(connection.peer.pid);
  to_keep_ = true;
  if (!options_.owner) used_ = true;
  ReleaseFormer(*connection.session);
  EndReplaced(connection);
  if (connection.peer.process) {
    Watch(connection.peer.process.get(), connection.process_watched).IgnoreError();
  }
  const Registry::Session& session = *connection.session;
  SayOf(connection, "registered",
        {{"session", absl::StrCat(session.id)},
         {"tenant", session.tenant->name},
         {"pid", absl::StrCat(session.who.pid)},
         {"program", session.program}});
  GPUSHARE_ASSIGN_OR_RETURN(const std::string packet,
                            ipc::Encode(ipc::Welcome{session.id, session.tenant->name}));
  return ipc::Send(connection.fd.get(), packet);
}

absl::StatusOr<std::string> Service::OnOpenGpu(Connection& connection, const ipc::OpenGpu& open,
                                               const std::string* own) {
  if (connection.session == nullptr)
    return absl::InvalidArgumentError("this connection has not registered");
  if (connection.seats.size() >= kMostGpus)
    return absl::InvalidArgumentError("64 GPUs are open at most");
  GPUSHARE_ASSIGN_OR_RETURN(ipc::NewPage<ipc::LimitsPage> limits, ipc::NewLimitsPage());
  GPUSHARE_ASSIGN_OR_RETURN(ipc::NewPage<const ipc::UsagePage> usage, ipc::NewUsagePage());
  GPUSHARE_ASSIGN_OR_RETURN(ipc::Doorbell bell, ipc::Doorbell::Create());
  SeatHolder& holder = connection.seats.emplace_back(
      SeatHolder{std::move(limits), std::move(usage), std::move(bell), {}, {}});
  holder.seat = {.limits = holder.limits.page.get(), .usage = holder.usage.page.get()};
  Beat(*holder.seat.limits);
  holder.watched = {Watched::kDoorbell, &connection, &holder};
  const Time now = clock_.Now();
  absl::StatusOr<std::string> spec =
      registry_.Open(*connection.session, open, holder.seat, now, changed_, own);
  if (!spec.ok()) connection.seats.pop_back();
  ReleaseFormer(*connection.session);
  return spec;
}

absl::Status Service::Open(Connection& connection, const ipc::Message& message) {
  const auto* const as = std::get_if<ipc::OpenGpuAs>(&message);
  const ipc::OpenGpu& open = as != nullptr ? as->gpu : std::get<ipc::OpenGpu>(message);
  const Time now = clock_.Now();
  const absl::StatusOr<std::string> spec =
      OnOpenGpu(connection, open, as != nullptr ? &as->spec : nullptr);
  // The shares of ended processes stay taken until the driver has freed their memory.
  const bool waits = absl::IsResourceExhausted(spec.status()) && reclaiming_ > 0;
  if (waits && !connection.opens.has_value()) {
    connection.opens = message;
    connection.opens_until = now + kLongestOpening;
    ++opening_;
  }
  if (waits && now < connection.opens_until) return absl::OkStatus();
  const std::string uuid = open.uuid;  // copied, since `opens` is reset below
  if (connection.opens.has_value()) {
    connection.opens.reset();
    --opening_;
  }
  if (spec.ok()) return GiveSeat(connection, {uuid, *spec});
  registry_.CountRefused();
  return Refuse(connection, spec.status());
}

// Answers waiting requests for GPUs. Returns when to call again at the latest.
Time Service::OpenWaiting(Time now) {
  const bool freed = std::exchange(freed_, false);
  Time next = kNever;
  if (opening_ == 0) return next;
  for (const auto& [id, connection] : connections_) {
    if (!connection->opens.has_value() || connection->ended) continue;
    if (freed || now >= connection->opens_until) {
      const ipc::Message message = *connection->opens;
      if (const absl::Status handled = Open(*connection, message); !handled.ok()) {
        Drop(*connection, Text(handled));
      }
      // The process that was let in, and those whose pages changed, are woken at the next look.
      if (!connection->opens.has_value() || connection->ended) next = now;
    }
    if (connection->opens.has_value()) next = std::min(next, connection->opens_until);
  }
  return next;
}

absl::Status Service::GiveSeat(Connection& connection, const ipc::GpuOpened& opened) {
  SeatHolder& holder = connection.seats.back();
  // The doorbell is never read: the process holds its other end and could make the read block.
  GPUSHARE_RETURN_IF_ERROR(Watch(holder.bell.fd(), holder.watched, /*edge=*/true));
  GPUSHARE_ASSIGN_OR_RETURN(const std::string packet, ipc::Encode(opened));
  const int fds[] = {holder.limits.fd.get(), holder.usage.fd.get(), holder.bell.fd()};
  const absl::Status sent = ipc::Send(connection.fd.get(), packet, fds);
  // The process has the descriptors now; the mappings are enough here.
  holder.limits.fd.Reset();
  holder.usage.fd.Reset();
  return sent;
}

void Service::Answer(Connection& connection, std::string_view text) {
  do {
    const std::string_view piece = ipc::NextPart(text);
    text.remove_prefix(piece.size());
    const absl::StatusOr<std::string> packet =
        ipc::Encode(ipc::Part{text.empty() ? 0u : 1u, std::string(piece)});
    if (packet.ok()) {
      unread_ += packet->size();
      connection.parts.push_back(*packet);
    }
  } while (!text.empty());
}

absl::Status Service::Flush(Connection& connection) {
  while (!connection.parts.empty()) {
    const absl::Status sent = ipc::Send(connection.fd.get(), connection.parts.front());
    if (absl::IsResourceExhausted(sent)) break;
    GPUSHARE_RETURN_IF_ERROR(sent);
    unread_ -= connection.parts.front().size();
    connection.parts.pop_front();
  }
  const bool wants_room = !connection.parts.empty();
  if (wants_room == connection.wants_room) return absl::OkStatus();
  connection.wants_room = wants_room;
  Rewatch(connection.fd.get(), connection.watched, connection.Events());
  return absl::OkStatus();
}

}  // namespace gpushare::broker
