// SPDX-License-Identifier: Apache-2.0
// Keeping the state for the next broker, and taking over the state of the last one.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/service.h"
#include "broker/service_connection.h"

namespace gpushare::broker {
namespace {

// Processes look for the next broker at least once a second, so by then all that can come back have done so.
constexpr Nanos kReturn = Seconds(10);
constexpr Nanos kKeepEvery = Seconds(1);  // for changes that the next broker may miss for a while

base::UniqueFd OpenProcess(int32_t pid) {
  return base::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

void Service::Restore() {
  if (options_.remains.empty()) return;
  remains_ = std::make_unique<RemainsFile>(options_.remains);
  registry_.SetKeeper([this] {
    mutex_.AssertHeld();
    KeepGrowth();
  });
  absl::StatusOr<std::optional<Remains>> left = remains_->Read();
  if (!left.ok()) {
    Say("remains_refused",
        {{"file", remains_->path()}, {"why", std::string(left.status().message())}});
  }
  if (!left.ok() || !left->has_value()) return;
  Remains& remains = **left;
  // Keeps only the processes that still exist; a pid may have been reused.
  std::vector<base::UniqueFd> processes;
  std::erase_if(remains.processes, [&](Remains::Process& process) {
    if (process.pid == 0 || process.began == 0) {
      process.pid = 0;
      processes.emplace_back();
      return false;
    }
    base::UniqueFd fd = OpenProcess(process.pid);
    if (!fd || BeganAt(process.pid) != process.began) return true;
    processes.push_back(std::move(fd));
    return false;
  });
  const Time now = clock_.Now();
  const std::vector<Registry::Session*> sessions = registry_.Restore(
      remains, now, changed_, [this](const std::string& what, const absl::Status& why) {
        Say("remains_refused", {{"what", what}, {"why", std::string(why.message())}});
      });
  uint64_t held = 0;
  size_t restored = 0;
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (sessions[i] == nullptr) continue;
    const Registry::Session& session = *sessions[i];
    auto made = std::make_unique<Connection>();
    Connection& connection = *made;
    connection.id = next_connection_++;
    connection.peer.pid = session.who.pid;
    connection.peer.uid = session.who.uid;
    connection.peer.gid = session.who.gid;
    connection.peer.process = std::move(processes[i]);
    connection.since = now;
    connection.session = sessions[i];
    connection.spoke = connection.ended = true;
    connection.process_watched = {Watched::kProcess, &connection};
    if (!connection.peer.process ||
        !Watch(connection.peer.process.get(), connection.process_watched).ok()) {
      connection.held_until = now + kReturn;
    }
    connections_[connection.id] = std::move(made);
    ++ended_;
    ++restored;
    for (const Registry::Place& place : session.places) held += place.memory->granted;
  }
  Say("restored", {{"processes", absl::StrCat(restored)}, {"granted", absl::StrCat(held)}});
  Keep();
}

void Service::ReleaseFormer(const Registry::Session& session) {
  if (session.former == nullptr) return;
  for (const auto& [id, other] : connections_) {
    if (other->session != session.former) continue;
    if (Registry::HoldsNothing(*session.former)) other->process_ended = true;
    other->held_until = std::min(other->held_until, clock_.Now() + kReturn);
  }
}

void Service::Keep() {
  to_keep_ = false;
  keep_at_ = kNever;
  if (remains_ == nullptr) return;
  const absl::Status kept = remains_->Write(registry_.TakeRemains());
  if (!kept.ok() && keeps_) {
    Say("remains_not_kept", {{"file", remains_->path()}, {"why", std::string(kept.message())}});
  }
  keeps_ = kept.ok();
}

// Called before processes learn of larger grants.
void Service::KeepGrowth() {
  if (!remains_->Add(registry_.TakeGrowth())) Keep();
}

// KeepGrowth() records what a process must not learn before. Everything else can wait: a stale record only holds too much for a
// process that has gone.
Time Service::KeepInTime(Time now) {
  if (remains_ == nullptr) return kNever;
  to_keep_ |= registry_.TakeLowered();
  if (to_keep_ && keep_at_ == kNever) keep_at_ = now + kKeepEvery;
  if (now >= keep_at_) Keep();
  return keep_at_;
}

}  // namespace gpushare::broker
