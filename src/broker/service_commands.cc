// SPDX-License-Identifier: Apache-2.0
// Operators' queries and changes.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "broker/json.h"
#include "broker/namespace.h"
#include "broker/service.h"
#include "broker/service_connection.h"

namespace gpushare::broker {
namespace {

constexpr size_t kMostUnread = 64 << 20;

}  // namespace

absl::Status Service::MayOperate(const ipc::Peer& peer) const {
  const uid_t uid = peer.uid;
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
  // Root in a container is not root of the machine.
  if (IsBeside(peer)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("user ", uid,
                   " of another PID namespace than the broker's does not operate it, "
                   "unless the configuration's 'operators' name it"));
}

absl::StatusOr<std::string> Service::OnQuery(const Connection& connection,
                                             const ipc::Query& query) {
  if (query.what == "own") return OnOwn(connection);
  GPUSHARE_RETURN_IF_ERROR(MayOperate(connection.peer));
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

// Every process may ask for its own limits; what others hold is for operators only.
absl::StatusOr<std::string> Service::OnOwn(const Connection& connection) {
  if (connection.session == nullptr)
    return absl::InvalidArgumentError("this connection has not registered");
  Snapshot own;
  for (Share& share : Figures().shares) {
    if (share.tenant != connection.session->tenant->name) continue;
    share.processes.clear();
    own.shares.push_back(std::move(share));
  }
  return ToJson(own);
}

// "trace" records from now on; "trace 17" continues from event 17.
absl::StatusOr<std::string> Service::OnTrace(const std::string& from) {
  std::optional<uint64_t> number;
  if (!from.empty() && !absl::SimpleAtoi(from, &number.emplace())) {
    return absl::InvalidArgumentError("'trace' and the number of an event are what can be asked");
  }
  return ToJson(recorder_.Take(registry_, clock_.Now(), number));
}

absl::StatusOr<std::string> Service::OnChange(const Connection& connection,
                                              const ipc::Change& change) {
  GPUSHARE_RETURN_IF_ERROR(MayOperate(connection.peer));
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
  SayChange(connection.peer.uid, change, done, ended);
  GPUSHARE_RETURN_IF_ERROR(done);
  Keep();
  return ended;
}

void Service::SayChange(uid_t by, const ipc::Change& change, const absl::Status& done,
                        const std::string& ended) const {
  Say("change", {{"what", change.what},
                 {"tenant", change.tenant},
                 {"gpu", change.gpu},
                 {"uid", absl::StrCat(by)},
                 {"result", !done.ok()      ? Text(done)
                            : ended.empty() ? "ok"
                                            : absl::StrCat("ok, its policy has ended ", ended)}});
}

// The change is answered when the configuration has been read.
absl::Status Service::BeginReload(const Connection& connection, const ipc::Change& change) {
  if (!connection.parts.empty())
    return absl::InvalidArgumentError("asked again before the answer was taken");
  GPUSHARE_RETURN_IF_ERROR(MayOperate(connection.peer));
  if (reload_ != nullptr) {
    return absl::UnavailableError("the configuration is being read already: ask again");
  }
  auto begun = std::make_unique<Reload>();
  begun->connection = connection.id;
  begun->by = connection.peer.uid;
  begun->change = change;
  begun->reading = ++readings_;
  try {
    begun->thread = std::thread([this, reload = begun.get()] {
      reload->config = options_.reload();
      Raise(reloaded_);
    });
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError(
        "the host gives the broker no more threads, the configuration was not read; what was in "
        "force is");
  }
  reload_ = std::move(begun);
  return absl::OkStatus();
}

void Service::EndReload() {
  uint64_t times;
  if (read(reloaded_.get(), &times, sizeof times) != sizeof times || reload_ == nullptr) return;
  const std::unique_ptr<Reload> reload = std::move(reload_);
  reload->thread.join();
  const absl::Status done = reload->config.ok() ? ApplyReading(*reload->config, reload->reading)
                                                : reload->config.status();
  if (done.ok()) Keep();
  SayChange(reload->by, reload->change, done, "");
  const auto at = connections_.find(reload->connection);
  if (at == connections_.end()) return;
  Connection& connection = *at->second;
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

}  // namespace gpushare::broker
