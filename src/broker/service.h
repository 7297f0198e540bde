// SPDX-License-Identifier: Apache-2.0
// The broker's service: sockets, pages and doorbells around a Registry.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Service> service, Service::Create(config, options));
//   absl::Status ended = service->Run();      // on its own thread, until Stop()
//
// One thread does everything: it waits until a connection, a doorbell or the books want something, and never for a
// peer. A peer that says nonsense, too much, or nothing loses its connection, and nobody else notices.
//
// Liveness: the end of a connection ends a session, which gets no more device time and whose unused grants are the
// tenant's again at once. Its memory is, when the process has ended as well and the driver does not name it any more
// (reclaimer.h); before, it may still be held.
//
// Threading: Run() on one thread; everything else from any, and from signal handlers Stop() alone.
#ifndef GPUSHARE_BROKER_SERVICE_H_
#define GPUSHARE_BROKER_SERVICE_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "broker/audit.h"
#include "broker/call_limit.h"
#include "broker/config.h"
#include "broker/recorder.h"
#include "broker/registry.h"
#include "broker/remains.h"
#include "broker/snapshot.h"
#include "ipc/doorbell.h"
#include "ipc/message.h"
#include "ipc/page.h"
#include "ipc/socket.h"

namespace gpushare::broker {

// What happens, for a log: the event's name, and what belongs to it as key and value.
using Log = std::function<void(std::string_view event,
                               const std::vector<std::pair<std::string, std::string>>& fields)>;

// What a command gives the driver for it, where nobody says: twice what the simulated GPU takes. Of a card it is not known.
inline constexpr Nanos kTeardown = Millis(200);

struct ServiceOptions {
  std::string socket;            // path
  mode_t mode = 0660;            // of its file
  std::vector<GpuInfo> gpus;     // empty: the first process that opens one says what it has
  base::Clock* clock = nullptr;  // null: the machine's
  // After the end of a process, until its memory is taken to be free at the earliest, where the configuration does not
  // say.
  Nanos teardown{0};
  Nanos hello_within = Seconds(5);  // a connection that says nothing so long is ended
  size_t most_connections = 4096, most_of_user = 1024;
  // Answers what the service does not know itself ("metrics"); InvalidArgument: nor does this. May be empty.
  std::function<absl::StatusOr<std::string>(std::string_view what, const Snapshot&)> answer;
  // Reads the configuration again, for Change "reload", on a thread of its own: it may take its time. May be empty.
  std::function<absl::StatusOr<Config>()> reload;
  Log log;  // may be empty
  // A file for the next broker at this socket (remains.h), and where this one finds what the last has left; empty: none.
  std::string remains;
  // Listens already, so that nobody is refused until the service is there; none: it is made, at `socket`.
  std::unique_ptr<ipc::Listener> listener;
  // Run() ends when the last process has left, once one had come or, with an owner, that has ended.
  bool until_unused = false;
  base::UniqueFd owner;  // readable when it has ended (a pidfd); none: nobody's
  // Whether somebody who has not registered yet may come; then Run() goes on, and asks again now and then. May be empty.
  std::function<bool()> awaited;
};

class Service {
 public:
  static absl::StatusOr<std::unique_ptr<Service>> Create(const Config& config,
                                                         ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  absl::Status Run();
  void Stop();  // Run() comes back; sessions end with the Service

  absl::Status Apply(const Config& config) ABSL_LOCKS_EXCLUDED(mutex_);
  Snapshot TakeSnapshot() ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- For an audit (auditor.h).
  struct AuditSettings {
    Nanos interval{0};  // 0: there is none
    uint64_t allowance = 0;
  };
  AuditSettings audit_settings() ABSL_LOCKS_EXCLUDED(mutex_);
  struct AuditSubjects {
    std::vector<std::string> gpus;  // UUIDs
    Claims claims;
  };
  AuditSubjects TakeAuditSubjects() ABSL_LOCKS_EXCLUDED(mutex_);
  // What it came to: into the figures, and what has changed into the log.
  void TakeAudit(Findings found) ABSL_LOCKS_EXCLUDED(mutex_);
  // There is none any more, or it failed: what the last one found is not shown.
  void ForgetAudit() ABSL_LOCKS_EXCLUDED(mutex_);
  void SayAuditFailed(const absl::Status& why) const {
    Say("audit_failed", {{"why", std::string(why.message())}});
  }

  // ---- For who asks the driver whether it has memory back (reclaimer.h).
  // Bumped when a process has ended whose memory is not known to be free.
  std::atomic<uint32_t>& reclaims() { return reclaims_; }
  struct ReclaimSubjects {
    std::vector<std::string> gpus;  // UUIDs
    Time at{};
  };
  // Nothing: nobody's memory is waited for.
  std::optional<ReclaimSubjects> TakeReclaimSubjects() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whom it names, of what was taken then. Those who had ended before and are not among them hold nothing any more.
  void TakeNamed(const std::set<int32_t>& pids, Time at) ABSL_LOCKS_EXCLUDED(mutex_);
  // It does not say: time alone counts.
  void ForgetNamed() ABSL_LOCKS_EXCLUDED(mutex_);

  const char* CheckInvariants() ABSL_LOCKS_EXCLUDED(mutex_);                 // null: they hold
  uint64_t looks() const { return looks_.load(std::memory_order_relaxed); }  // at the books so far

 private:
  struct Connection;
  struct SeatHolder;
  struct Reload;
  // What an event of the poller is about; the poller has its address.
  struct Watched {
    enum Kind {
      kListener,
      kStop,
      kOwner,
      kReloaded,
      kReclaimed,
      kConnection,
      kProcess,
      kDoorbell
    } kind;
    Connection* connection = nullptr;
    SeatHolder* seat = nullptr;
    CallLimit limit{};
    Time deaf_until = kNever;  // it has called too often: it is not heard until then
  };

  explicit Service(ServiceOptions options);
  absl::Status Start(const Config& config);
  absl::Status Watch(int fd, Watched& watched, bool edge = false);
  void Unwatch(int fd);
  void Rewatch(int fd, Watched& watched, uint32_t events);
  void OnEvent(Watched& watched, uint32_t events, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountCall(int fd, Watched& watched, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Time HearAgain(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Accept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a session whose process has come back: what it has not taken over yet is waited for, and not for long.
  void ReleaseFormer(const Registry::Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Restore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepGrowth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Time KeepInTime(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Read(Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Handle(Connection& connection, const ipc::Message& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnHello(Connection& connection, const ipc::Hello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its share; the place is the connection's latest, and has to reach the process.
  absl::StatusOr<std::string> OnOpenGpu(Connection& connection, const ipc::OpenGpu& open,
                                        const std::string* own)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status GiveSeat(Connection& connection, const ipc::GpuOpened& opened)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> OnQuery(const Connection& connection, const ipc::Query& query)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> OnOwn(const Connection& connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> OnTrace(const std::string& from)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> OnChange(const Connection& connection, const ipc::Change& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginReload(const Connection& connection, const ipc::Change& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndReload() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Refuse(Connection& connection, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SayChange(const Connection& connection, const ipc::Change& change, const absl::Status& done,
                 const std::string& ended) const;
  Snapshot Figures() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayOperate(const Connection& connection) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues the parts of an answer; Flush() sends as much as the peer takes.
  void Answer(Connection& connection, std::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Flush(Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `evicted`: its process does not come back by itself.
  void Drop(Connection& connection, std::string_view why, bool evicted = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Raise(const base::UniqueFd& event);  // also from a signal handler
  Time FreeEnded(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When what its process had is free, or to be taken for that; kNever is not an answer.
  Time ReclaimedAt(Connection& connection, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Open(Connection& connection, const ipc::Message& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Time OpenWaiting(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether its process seems to have become another program.
  void LookAtImage(Connection& connection, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those that seem to have become another program and of which the driver counts nothing any more have ended.
  void EndThoseWithNothing(const Findings& found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Time ExpireSilent(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Say(std::string_view event,
           const std::vector<std::pair<std::string, std::string>>& fields) const;

  ServiceOptions options_;
  base::Clock& clock_;
  base::UniqueFd poller_, stop_, reloaded_, reclaimed_;
  std::unique_ptr<ipc::Listener> listener_;
  Watched listener_watched_{Watched::kListener}, stop_watched_{Watched::kStop},
      owner_watched_{Watched::kOwner}, reloaded_watched_{Watched::kReloaded},
      reclaimed_watched_{Watched::kReclaimed};
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> looks_{0};
  std::atomic<uint32_t> reclaims_{0};

  base::Mutex mutex_;
  Registry registry_ ABSL_GUARDED_BY(mutex_);
  Recorder recorder_ ABSL_GUARDED_BY(mutex_);
  AuditLog audit_ ABSL_GUARDED_BY(mutex_);
  Changed changed_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  Config begun_ ABSL_GUARDED_BY(mutex_);                    // with this configuration
  std::unique_ptr<Reload> reload_ ABSL_GUARDED_BY(mutex_);  // null: nobody has asked
  // Of these, so that a look need not go over all.
  size_t unread_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of answers that nobody has taken yet
  size_t ended_ ABSL_GUARDED_BY(mutex_) = 0, silent_ ABSL_GUARDED_BY(mutex_) = 0,
                deaf_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t reclaiming_ ABSL_GUARDED_BY(mutex_) = 0, opening_ ABSL_GUARDED_BY(mutex_) = 0;
  bool freed_ ABSL_GUARDED_BY(mutex_) = false;  // something was, since those who wait for it looked
  // Whether the driver has named a process of those here, so that its not naming one says something.
  bool names_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_connection_ ABSL_GUARDED_BY(mutex_) = 1;
  Time accepts_again_ ABSL_GUARDED_BY(mutex_) = kNever;           // no descriptor was left
  std::unique_ptr<RemainsFile> remains_ ABSL_GUARDED_BY(mutex_);  // none: nothing is kept
  bool keeps_ ABSL_GUARDED_BY(mutex_) = true;                     // the latest time it could
  bool to_keep_ ABSL_GUARDED_BY(mutex_) = false;                  // something has changed
  Time keep_at_ ABSL_GUARDED_BY(mutex_) = kNever;
  Time asks_again_ ABSL_GUARDED_BY(mutex_){};  // whether somebody is awaited
  bool used_ ABSL_GUARDED_BY(mutex_) = false;  // some process has registered, or the owner ended
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_SERVICE_H_
