// SPDX-License-Identifier: Apache-2.0
#include "broker/service.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "broker/service_connection.h"

namespace gpushare::broker {
namespace {

constexpr int kEvents = 64;  // events taken from the poller at once
// How long messages and connections may keep the broker from its books: a flood of them must not delay grants.
constexpr Nanos kWithoutLook = Micros(250);
constexpr int kAcceptedAtOnce = 4;              // takes less than that
constexpr Nanos kOfHighPriority = Micros(100);  // how often a process of high priority may call
constexpr int kSleepers = 8;  // waiters to wake on a process's word; an honest process has two
constexpr Nanos kAskAgain = Millis(500);  // how often to ask `awaited`

}  // namespace

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
  reclaimed_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poller_ || !stop_ || !reloaded_ || !reclaimed_)
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
  GPUSHARE_RETURN_IF_ERROR(Watch(reclaimed_.get(), reclaimed_watched_, /*edge=*/true));
  GPUSHARE_RETURN_IF_ERROR(Watch(stop_.get(), stop_watched_));
  base::MutexLock lock(&mutex_);
  begun_ = config;
  Restore();
  return absl::OkStatus();
}

// `edge`: edge-triggered, so that nothing has to be read to clear the event.
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
  Raise(stop_);
}

void Service::Raise(const base::UniqueFd& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event.get(), &one, sizeof one);
}

uint64_t Service::BeginReading() {
  base::MutexLock lock(&mutex_);
  return ++readings_;
}

absl::Status Service::ApplyReading(const Config& config, uint64_t reading) {
  if (reading < in_force_) return absl::OkStatus();
  const absl::Status applied = registry_.Apply(config, clock_.Now(), changed_);
  if (applied.ok()) in_force_ = reading;
  return applied;
}

absl::Status Service::Apply(const Config& config, uint64_t reading) {
  base::MutexLock lock(&mutex_);
  const absl::Status applied = ApplyReading(config, reading);
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

void Service::SayOf(const Connection& connection, std::string_view event,
                    const std::vector<std::pair<std::string, std::string>>& fields) {
  const uid_t uid = connection.peer.uid;
  const std::optional<uint64_t> left_out = lines_.Take(uid, clock_.Now());
  if (!left_out.has_value()) return;
  if (*left_out > 0) {
    Say("lines_left_out", {{"uid", absl::StrCat(uid)}, {"lines", absl::StrCat(*left_out)}});
  }
  Say(event, fields);
}

void Service::WakeChanged() {
  for (Seat* seat : changed_.Take()) {
    seat->limits->wake.fetch_add(1, std::memory_order_release);
    clock_.WakeShared(seat->limits->wake, kSleepers);
  }
}

// ---- The loop

absl::Status Service::Run() {
  Time next{};  // look at the books before anything else
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
    Time looked = clock_.Now();
    for (int i = 0; i < count; ++i) {
      OnEvent(*static_cast<Watched*>(events[i].data.ptr), events[i].events, clock_.Now());
      if (const Time now = clock_.Now(); now - looked >= kWithoutLook) {
        LookAtBooks(now);
        looked = now;
      }
    }
    const Time now = clock_.Now();
    const Time free = FreeEnded(now);
    next = std::min(LookAtBooks(now), free);
    next = std::min({next, ExpireSilent(now), HearAgain(now), KeepInTime(now), OpenWaiting(now)});
    if (accepts_again_ <= now) {
      accepts_again_ = kNever;
      GPUSHARE_RETURN_IF_ERROR(Watch(listener_->fd(), listener_watched_));
    }
    next = std::min(next, accepts_again_);
#ifndef NDEBUG
    if (const char* broken = registry_.CheckInvariants()) return absl::InternalError(broken);
#endif
    // If only sessions of ended processes are left, no process needs their memory.
    if (options_.until_unused && used_ && registry_.sessions().size() == reclaiming_) {
      if (now >= asks_again_) {
        if (!options_.awaited || !options_.awaited()) return absl::OkStatus();
        asks_again_ = now + kAskAgain;
      }
      next = std::min(next, asks_again_);
    }
  }
}

// Gives and takes back what is due. Returns when to look again.
Time Service::LookAtBooks(Time now) {
  looks_.fetch_add(1, std::memory_order_relaxed);
  const Time next = registry_.Look(now, changed_);
  recorder_.Look(registry_, now);
  WakeChanged();
  return next;
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
    case Watched::kReclaimed:  // FreeEnded() follows
      break;
    case Watched::kOwner:
      used_ = true;
      Unwatch(options_.owner.get());
      break;
    case Watched::kDoorbell:
      // The loop looks at the books after any event, so only the call has to be counted.
      if (watched.connection->ended) break;
      Beat(*watched.seat->seat.limits);
      CountCall(watched.seat->bell.fd(), watched, now);
      break;
    case Watched::kProcess: {
      Connection& connection = *watched.connection;
      Unwatch(connection.peer.process.get());  // the event would be reported again and again
      if (std::exchange(connection.process_ended, true)) break;
      Drop(connection, "its process has ended");  // a child of it may still hold the connection
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

// A peer that calls too often is only heard now and then; its pages are read with all others at each look.
void Service::CountCall(int fd, Watched& watched, Time now) {
  // A process of high priority calls whenever it begins or ends to be busy, and other processes stand still for it.
  const bool bypasses =
      watched.seat != nullptr &&
      (watched.seat->seat.limits->flags.load(kRelaxed) & ipc::LimitsPage::kBypass) != 0;
  const Time again = watched.limit.Take(now, bypasses ? kOfHighPriority : CallLimit::kEvery);
  if (again == kNever || watched.deaf_until != kNever) return;
  watched.deaf_until = again;
  ++deaf_;
  // Edge-triggered, since an overflowed eventfd is reported as an error, which cannot be masked.
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

}  // namespace gpushare::broker
