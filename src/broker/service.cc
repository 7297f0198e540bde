// SPDX-License-Identifier: Apache-2.0
#include "broker/service.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "broker/json.h"
#include "broker/namespace.h"
#include "broker/service_connection.h"

namespace gpushare::broker {
namespace {

constexpr int kEvents = 64;          // taken from the poller at once
constexpr int kAcceptedAtOnce = 64;  // of those who wait, so that a flood of them is no queue
constexpr int kPacketsAtOnce = 16;   // read from one connection before it is others' turn
constexpr size_t kMostGpus = 64;     // opened by one process
constexpr Nanos kOfHighPriority = Micros(100);  // so often it may call
constexpr int kSleepers = 8;                    // of a process on its word: two, if it means well
constexpr size_t kMostUnread = 64 << 20;
constexpr Nanos kAskAgain = Millis(500);  // whether somebody may come yet
// The kernel closes the connection in the midst of an exec: so often it is looked whether it was one, and so long.
constexpr Nanos kLooksAtImage = Millis(50), kExecs = Seconds(2);
constexpr Nanos kNoRoom = Millis(100);  // nobody is accepted so long when no descriptor is left

absl::Status Refused(const char* what) { return absl::InvalidArgumentError(what); }

// 0 is of who has none.
void Beat(ipc::LimitsPage& page) {
  if (page.beat.fetch_add(1, std::memory_order_relaxed) == UINT32_MAX) page.beat.store(1);
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

// The configuration is read while everybody else is served: names of users may have to be asked for far away.
struct Service::Reload {
  uint64_t connection = 0;  // that is answered
  ipc::Change change;
  absl::StatusOr<Config> config;
  std::thread thread;
};

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : base::RealClock()),
      registry_(options_.gpus) {}

Service::~Service() {
  base::MutexLock lock(&mutex_);
  if (reload_ != nullptr) reload_->thread.join();
}

absl::StatusOr<std::unique_ptr<Service>> Service::Create(const Config& config,
                                                         ServiceOptions options) {
  std::unique_ptr<Service> service(new Service(std::move(options)));
  GPUSHARE_RETURN_IF_ERROR(service->Start(config));
  return service;
}

absl::Status Service::Start(const Config& config) {
  GPUSHARE_RETURN_IF_ERROR(Apply(config));
  poller_ = base::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  stop_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  reloaded_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poller_ || !stop_ || !reloaded_)
    return absl::ErrnoToStatus(errno, "broker: no descriptor is left");
  listener_ = std::move(options_.listener);
  if (listener_ == nullptr) {
    GPUSHARE_ASSIGN_OR_RETURN(ipc::Listener listener,
                              ipc::Listener::At(options_.socket, options_.mode));
    listener_ = std::make_unique<ipc::Listener>(std::move(listener));
  }
  GPUSHARE_RETURN_IF_ERROR(Watch(listener_->fd(), listener_watched_));
  if (options_.owner) GPUSHARE_RETURN_IF_ERROR(Watch(options_.owner.get(), owner_watched_));
  GPUSHARE_RETURN_IF_ERROR(Watch(reloaded_.get(), reloaded_watched_));
  GPUSHARE_RETURN_IF_ERROR(Watch(stop_.get(), stop_watched_));
  base::MutexLock lock(&mutex_);
  begun_ = config;
  Restore();
  return absl::OkStatus();
}

// `edge`: told of each change once, so that nothing has to be read.
absl::Status Service::Watch(int fd, Watched& watched, bool edge) {
  epoll_event event = {};
  event.events = EPOLLIN | (edge ? uint32_t{EPOLLET} : 0u);
  event.data.ptr = &watched;
  if (epoll_ctl(poller_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "broker: epoll_ctl");
}

void Service::Rewatch(int fd, Watched& watched, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.ptr = &watched;
  epoll_ctl(poller_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Service::Unwatch(int fd) { epoll_ctl(poller_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Service::Stop() {
  stopping_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof one);
}

absl::Status Service::Apply(const Config& config) {
  base::MutexLock lock(&mutex_);
  const absl::Status applied = registry_.Apply(config, clock_.Now(), changed_);
  Keep();
  WakeChanged();
  return applied;
}

Snapshot Service::TakeSnapshot() {
  base::MutexLock lock(&mutex_);
  return Figures();
}

Snapshot Service::Figures() {
  Snapshot snapshot = registry_.TakeSnapshot(clock_.Now());
  audit_.report().AddTo(&snapshot);
  return snapshot;
}

const char* Service::CheckInvariants() {
  base::MutexLock lock(&mutex_);
  return registry_.CheckInvariants();
}

void Service::Say(std::string_view event,
                  const std::vector<std::pair<std::string, std::string>>& fields) const {
  if (options_.log) options_.log(event, fields);
}

void Service::WakeChanged() {
  for (Seat* seat : changed_.Take()) {
    seat->limits->wake.fetch_add(1, std::memory_order_release);
    clock_.WakeShared(seat->limits->wake, kSleepers);
  }
}

// ---- The loop

absl::Status Service::Run() {
  Time next{};  // the books are looked at before anything else
  for (;;) {
    if (stopping_.load(std::memory_order_acquire)) {
      base::MutexLock lock(&mutex_);
      Keep();
      return absl::OkStatus();
    }
    const int fds[] = {poller_.get()};
    epoll_event events[kEvents];
    const bool called = ipc::AwaitReadable(fds, clock_, next);
    const int count = called ? epoll_wait(poller_.get(), events, kEvents, 0) : 0;
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "broker: epoll_wait");

    base::MutexLock lock(&mutex_);
    for (int i = 0; i < count; ++i) {
      OnEvent(*static_cast<Watched*>(events[i].data.ptr), events[i].events, clock_.Now());
    }
    const Time now = clock_.Now();
    const Time free = FreeEnded(now);
    looks_.fetch_add(1, std::memory_order_relaxed);
    next = std::min(registry_.Look(now, changed_), free);
    recorder_.Look(registry_, now);
    WakeChanged();
    next = std::min({next, ExpireSilent(now), HearAgain(now), KeepInTime(now)});
    if (accepts_again_ <= now) {
      accepts_again_ = kNever;
      GPUSHARE_RETURN_IF_ERROR(Watch(listener_->fd(), listener_watched_));
    }
    next = std::min(next, accepts_again_);
#ifndef NDEBUG
    if (const char* broken = registry_.CheckInvariants()) return absl::InternalError(broken);
#endif
    if (options_.until_unused && used_ && registry_.sessions().empty()) {
      if (now >= asks_again_) {
        if (!options_.awaited || !options_.awaited()) return absl::OkStatus();
        asks_again_ = now + kAskAgain;
      }
      next = std::min(next, asks_again_);
    }
  }
}

void Service::OnEvent(Watched& watched, uint32_t events, Time now) {
  switch (watched.kind) {
    case Watched::kListener:
      for (int i = 0; i < kAcceptedAtOnce && Accept(); ++i) {
      }
      break;
    case Watched::kStop:
      break;
    case Watched::kReloaded:
      EndReload();
      break;
    case Watched::kOwner:
      used_ = true;
      Unwatch(options_.owner.get());
      break;
    case Watched::kDoorbell:
      // The books are looked at whatever rang.
      if (watched.connection->ended) break;
      Beat(*watched.seat->seat.limits);
      CountCall(watched.seat->bell.fd(), watched, now);
      break;
    case Watched::kProcess: {
      Connection& connection = *watched.connection;
      Unwatch(connection.peer.process.get());  // its end would be told of without end
      if (std::exchange(connection.process_ended, true)) break;
      Drop(connection, "its process has ended");  // a child of it may have the connection still
      break;
    }
    case Watched::kConnection: {
      Connection& connection = *watched.connection;
      if (connection.ended) break;
      if (events & EPOLLOUT) {
        if (const absl::Status sent = Flush(connection); !sent.ok()) {
          Drop(connection, Text(sent));
          break;
        }
      }
      if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) Read(connection);
      if (!connection.ended) CountCall(connection.fd.get(), watched, now);
      break;
    }
  }
}

// Who calls without end is heard now and then; what its pages say is looked at with everybody's.
void Service::CountCall(int fd, Watched& watched, Time now) {
  // One of high priority calls whenever it begins or ends to be busy, and others stand still for it.
  const bool bypasses =
      watched.seat != nullptr &&
      (watched.seat->seat.limits->flags.load(kRelaxed) & ipc::LimitsPage::kBypass) != 0;
  const Time again = watched.limit.Take(now, bypasses ? kOfHighPriority : CallLimit::kEvery);
  if (again == kNever || watched.deaf_until != kNever) return;
  watched.deaf_until = again;
  ++deaf_;
  // Edges: an eventfd that has overflowed is an error, which cannot be left out.
  Rewatch(fd, watched,
          watched.kind == Watched::kConnection ? watched.connection->Events() : uint32_t{EPOLLET});
}

Time Service::HearAgain(Time now) {
  Time next = kNever;
  if (deaf_ == 0) return next;
  const auto is_due = [&](Watched& watched) {
    mutex_.AssertHeld();
    if (watched.deaf_until == kNever) return false;
    if (now < watched.deaf_until) {
      next = std::min(next, watched.deaf_until);
      return false;
    }
    watched.deaf_until = kNever;
    --deaf_;
    return true;
  };
  for (const auto& [id, connection] : connections_) {
    if (connection->ended) continue;
    if (is_due(connection->watched)) {
      Rewatch(connection->fd.get(), connection->watched, connection->Events());
    }
    for (SeatHolder& seat : connection->seats) {
      if (is_due(seat.watched)) {
        Rewatch(seat.bell.fd(), seat.watched, EPOLLIN | uint32_t{EPOLLET});
      }
    }
  }
  return next;
}

// Whether more may be waiting.
bool Service::Accept() {
  absl::StatusOr<base::UniqueFd> fd = listener_->Accept();
  if (absl::IsResourceExhausted(fd.status())) {
    Unwatch(listener_->fd());  // it would be told of again at once
    accepts_again_ = clock_.Now() + kNoRoom;
  }
  if (!fd.ok()) return false;
  absl::StatusOr<ipc::Peer> peer = ipc::PeerOf(fd->get());
  if (!peer.ok()) return true;
  size_t open = 0, of_user = 0;
  // Those that have ended and whose process has not: they keep what they were granted, and descriptors here.
  for (const auto& [id, other] : connections_) {
    ++open;
    if (other->peer.uid == peer->uid) ++of_user;
  }
  if (open >= options_.most_connections || of_user >= options_.most_of_user) {
    registry_.CountRefused();
    const absl::StatusOr<std::string> packet = ipc::Encode(ipc::Refusal{
        static_cast<uint32_t>(absl::StatusCode::kResourceExhausted),
        absl::StrCat("the broker has ", open, " connections, ", of_user, " of user ", peer->uid,
                     "; at most ", options_.most_connections, " and ", options_.most_of_user)});
    if (packet.ok()) ipc::Send(fd->get(), *packet).IgnoreError();
    return true;
  }
  auto made = std::make_unique<Connection>();
  Connection& connection = *made;
  connection.id = next_connection_++;
  connection.fd = *std::move(fd);
  connection.peer = *std::move(peer);
  connection.since = clock_.Now();
  connection.watched = {Watched::kConnection, &connection};
  connection.process_watched = {Watched::kProcess, &connection};
  if (!Watch(connection.fd.get(), connection.watched).ok()) return true;
  connections_[connection.id] = std::move(made);
  ++silent_;
  return true;
}

void Service::Read(Connection& connection) {
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    absl::StatusOr<ipc::Received> got = ipc::Receive(connection.fd.get());
    if (!got.ok()) return Drop(connection, Text(got.status()));
    if (got->what == ipc::Received::kNothing) return;
    if (got->what == ipc::Received::kEnd) return Drop(connection, "its connection was closed");
    got->fds.clear();  // nobody sends the broker descriptors; before it answers, these are closed
    const absl::StatusOr<ipc::Message> message = ipc::Decode(got->packet);
    if (!message.ok()) return Drop(connection, Text(message.status()));
    if (!std::exchange(connection.spoke, true)) --silent_;
    const absl::Status handled = Handle(connection, *message);
    if (!handled.ok()) return Drop(connection, Text(handled));
  }
}

// An error here ends the connection; what is refused is answered.
absl::Status Service::Handle(Connection& connection, const ipc::Message& message) {
  absl::Status refused;
  if (const auto* hello = std::get_if<ipc::Hello>(&message)) {
    refused = OnHello(connection, *hello);
  } else if (const auto* as = std::get_if<ipc::OpenGpuAs>(&message);
             as != nullptr || std::holds_alternative<ipc::OpenGpu>(message)) {
    const ipc::OpenGpu& open = as != nullptr ? as->gpu : std::get<ipc::OpenGpu>(message);
    const absl::StatusOr<std::string> spec =
        OnOpenGpu(connection, open, as != nullptr ? &as->spec : nullptr);
    if (spec.ok()) return GiveSeat(connection, {open.uuid, *spec});
    refused = spec.status();
  } else if (const auto* change = std::get_if<ipc::Change>(&message);
             change != nullptr && change->what == "reload" && options_.reload) {
    refused = BeginReload(connection, *change);
  } else {
    absl::StatusOr<std::string> text = Refused("only the broker says that");
    if (!connection.parts.empty()) return Refused("asked again before the answer was taken");
    if (const auto* query = std::get_if<ipc::Query>(&message)) text = OnQuery(connection, *query);
    if (const auto* asked = std::get_if<ipc::Change>(&message)) text = OnChange(connection, *asked);
    refused = text.status();
    if (text.ok()) {
      Answer(connection, *text);
      return Flush(connection);
    }
  }
  return refused.ok() ? refused : Refuse(connection, refused);
}

absl::Status Service::Refuse(Connection& connection, const absl::Status& why) {
  registry_.CountRefused();
  Say("refused", {{"pid", absl::StrCat(connection.peer.pid)},
                  {"uid", absl::StrCat(connection.peer.uid)},
                  {"why", Text(why)}});
  GPUSHARE_ASSIGN_OR_RETURN(const std::string packet, ipc::Encode(ipc::ToRefusal(why)));
  return ipc::Send(connection.fd.get(), packet);
}

absl::Status Service::OnHello(Connection& connection, const ipc::Hello& hello) {
  if (connection.session != nullptr) return Refused("this connection has registered before");
  GPUSHARE_ASSIGN_OR_RETURN(connection.session,
                            registry_.Register({.pid = connection.peer.pid,
                                                .uid = connection.peer.uid,
                                                .gid = connection.peer.gid,
                                                .began = BeganAt(connection.peer.pid)},
                                               hello));
  connection.image = ImageOf(connection.peer.pid);
  to_keep_ = true;
  if (!options_.owner) used_ = true;
  ReleaseFormer(*connection.session);
  if (connection.peer.process) {
    Watch(connection.peer.process.get(), connection.process_watched).IgnoreError();
  }
  const Registry::Session& session = *connection.session;
  Say("registered", {{"session", absl::StrCat(session.id)},
                     {"tenant", session.tenant->name},
                     {"pid", absl::StrCat(session.who.pid)},
                     {"program", session.program}});
  GPUSHARE_ASSIGN_OR_RETURN(const std::string packet,
                            ipc::Encode(ipc::Welcome{session.id, session.tenant->name}));
  return ipc::Send(connection.fd.get(), packet);
}

absl::StatusOr<std::string> Service::OnOpenGpu(Connection& connection, const ipc::OpenGpu& open,
                                               const std::string* own) {
  if (connection.session == nullptr) return Refused("this connection has not registered");
  if (connection.seats.size() >= kMostGpus) return Refused("64 GPUs are open at most");
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

absl::Status Service::GiveSeat(Connection& connection, const ipc::GpuOpened& opened) {
  SeatHolder& holder = connection.seats.back();
  // Never read: its other end is a stranger's, who may have it block.
  GPUSHARE_RETURN_IF_ERROR(Watch(holder.bell.fd(), holder.watched, /*edge=*/true));
  GPUSHARE_ASSIGN_OR_RETURN(const std::string packet, ipc::Encode(opened));
  const int fds[] = {holder.limits.fd.get(), holder.usage.fd.get(), holder.bell.fd()};
  const absl::Status sent = ipc::Send(connection.fd.get(), packet, fds);
  // The process has them now; the mappings are enough here.
  holder.limits.fd.Reset();
  holder.usage.fd.Reset();
  return sent;
}

// ---- Commands

absl::Status Service::MayOperate(const Connection& connection) const {
  const uid_t uid = connection.peer.uid;
  if (const auto& operators = registry_.config().operators; operators.has_value()) {
    if (std::find(operators->begin(), operators->end(), uid) != operators->end()) {
      return absl::OkStatus();
    }
    return absl::PermissionDeniedError(absl::StrCat(
        "user ", uid, " does not operate this broker: its configuration names 'operators'"));
  }
  if (uid != 0 && uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "user ", uid, " does not operate this broker: ",
        geteuid() == 0 ? "" : absl::StrCat("user ", geteuid(), " does, and "),
        geteuid() == 0 ? "root does" : "root", ", or the configuration's 'operators'"));
  }
  // Root of a container is not the machine's.
  if (IsBeside(connection.peer)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("user ", uid,
                   " of another PID namespace than the broker's does not operate it, "
                   "unless the configuration's 'operators' name it"));
}

absl::StatusOr<std::string> Service::OnQuery(const Connection& connection,
                                             const ipc::Query& query) {
  if (query.what == "own") return OnOwn(connection);
  GPUSHARE_RETURN_IF_ERROR(MayOperate(connection));
  if (unread_ > kMostUnread) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the broker's answers are not read: ", unread_, " bytes of them wait"));
  }
  if (query.what == "trace") {
    Say("trace_begins",
        {{"pid", absl::StrCat(connection.peer.pid)}, {"uid", absl::StrCat(connection.peer.uid)}});
    return OnTrace("");
  }
  if (absl::StartsWith(query.what, "trace ")) return OnTrace(query.what.substr(6));
  const Snapshot snapshot = Figures();
  if (options_.answer) return options_.answer(query.what, snapshot);
  return absl::InvalidArgumentError(absl::StrCat("nothing is known of '", query.what, "'"));
}

// Which limits it has anybody may know. What others hold is for the operator.
absl::StatusOr<std::string> Service::OnOwn(const Connection& connection) {
  if (connection.session == nullptr) return Refused("this connection has not registered");
  Snapshot own;
  for (Share& share : Figures().shares) {
    if (share.tenant != connection.session->tenant->name) continue;
    share.processes.clear();
    own.shares.push_back(std::move(share));
  }
  return ToJson(own);
}

// "trace": from now on; "trace 17": from the event of that number.
absl::StatusOr<std::string> Service::OnTrace(const std::string& from) {
  std::optional<uint64_t> number;
  if (!from.empty() && !absl::SimpleAtoi(from, &number.emplace())) {
    return Refused("'trace' and the number of an event are what can be asked");
  }
  return ToJson(recorder_.Take(registry_, clock_.Now(), number));
}

absl::StatusOr<std::string> Service::OnChange(const Connection& connection,
                                              const ipc::Change& change) {
  GPUSHARE_RETURN_IF_ERROR(MayOperate(connection));
  const Time now = clock_.Now();
  absl::Status done;
  std::string ended;
  if (change.what == "set") {
    absl::StatusOr<std::string> set =
        registry_.Set(change.tenant, change.gpu, change.spec, now, changed_);
    done = set.status();
    if (set.ok()) ended = *std::move(set);
  } else if (change.what == "suspend" || change.what == "resume") {
    done = registry_.Suspend(change.tenant, change.what == "suspend", now, changed_);
  } else if (change.what == "drain" || change.what == "undrain") {
    done = registry_.Drain(change.tenant, change.gpu, change.what == "drain", changed_);
  } else if (change.what == "evict") {
    bool any = false;
    for (const auto& [id, other] : connections_) {
      if (other->ended || other->session == nullptr) continue;
      if (other->session->tenant->name != change.tenant) continue;
      any = true;
      const absl::StatusOr<std::string> packet = ipc::Encode(ipc::Refusal{
          static_cast<uint32_t>(absl::StatusCode::kAborted), "evicted by the operator"});
      if (packet.ok()) ipc::Send(other->fd.get(), *packet).IgnoreError();
      Drop(*other, "evicted", /*evicted=*/true);
    }
    if (!any) done = absl::NotFoundError(absl::StrCat("no process of '", change.tenant, "'"));
  } else if (change.what == "shutdown") {
    Stop();
  } else {
    done = absl::InvalidArgumentError(
        absl::StrCat("change '", change.what,
                     "': set, suspend, resume, drain, undrain, evict, reload, shutdown"));
  }
  SayChange(connection, change, done, ended);
  GPUSHARE_RETURN_IF_ERROR(done);
  Keep();
  return ended;
}

void Service::SayChange(const Connection& connection, const ipc::Change& change,
                        const absl::Status& done, const std::string& ended) const {
  Say("change", {{"what", change.what},
                 {"tenant", change.tenant},
                 {"gpu", change.gpu},
                 {"uid", absl::StrCat(connection.peer.uid)},
                 {"result", !done.ok()      ? Text(done)
                            : ended.empty() ? "ok"
                                            : absl::StrCat("ok, its policy has ended ", ended)}});
}

// The answer comes when it has been read.
absl::Status Service::BeginReload(const Connection& connection, const ipc::Change& change) {
  if (!connection.parts.empty()) return Refused("asked again before the answer was taken");
  GPUSHARE_RETURN_IF_ERROR(MayOperate(connection));
  if (reload_ != nullptr) {
    return absl::UnavailableError("the configuration is being read already: ask again");
  }
  reload_ = std::make_unique<Reload>();
  reload_->connection = connection.id;
  reload_->change = change;
  reload_->thread = std::thread([this, reload = reload_.get()] {
    reload->config = options_.reload();
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(reloaded_.get(), &one, sizeof one);
  });
  return absl::OkStatus();
}

void Service::EndReload() {
  uint64_t times;
  if (read(reloaded_.get(), &times, sizeof times) != sizeof times || reload_ == nullptr) return;
  const std::unique_ptr<Reload> reload = std::move(reload_);
  reload->thread.join();
  const absl::Status done = reload->config.ok()
                                ? registry_.Apply(*reload->config, clock_.Now(), changed_)
                                : reload->config.status();
  if (done.ok()) Keep();
  const auto at = connections_.find(reload->connection);
  if (at == connections_.end()) return;
  Connection& connection = *at->second;
  SayChange(connection, reload->change, done, "");
  if (connection.ended) return;
  absl::Status sent;
  if (done.ok()) {
    Answer(connection, WaitForRestart(begun_, *reload->config));
    sent = Flush(connection);
  } else {
    sent = Refuse(connection, done);
  }
  if (!sent.ok()) Drop(connection, Text(sent));
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

// ---- Ends

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
