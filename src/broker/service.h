// SPDX-License-Identifier: Apache-2.0
// The broker's service: sockets, pages and doorbells around a Registry.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Service> service, Service::Create(config, options));
//   absl::Status ended = service->Run();      // on its own thread, until Stop()
//
// One thread does everything: it waits for connections, doorbells and the times at which the books want a look, and never
// for a peer. A peer that sends nonsense, too much, or nothing loses its connection; the others do not notice.
//
// Liveness: the end of a connection ends its session, which gets no more device time; its unused time grants are the
// tenant's again at once. Its memory may still be held, and is the tenant's again when the process has ended as well and
// the driver no longer names it (reclaimer.h).
//
// Threading: Run() on one thread, everything else from any thread. Only Stop() may be called from signal handlers.
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
#include "broker/line_limit.h"
#include "broker/recorder.h"
#include "broker/registry.h"
#include "broker/remains.h"
#include "broker/snapshot.h"
#include "ipc/doorbell.h"
#include "ipc/message.h"
#include "ipc/page.h"
#include "ipc/socket.h"

namespace gpushare::broker {

// Takes an event for a log: its name, and its fields as key and value.
using Log = std::function<void(std::string_view event,
                               const std::vector<std::pair<std::string, std::string>>& fields)>;

// The default of ServiceOptions::teardown in the commands: twice what the simulated GPU takes. For real GPUs it is not known.
inline constexpr Nanos kTeardown = Millis(200);

struct ServiceOptions {
  std::string socket;            // path
  mode_t mode = 0660;            // of the socket's file
  std::vector<GpuInfo> gpus;     // empty: the first process that opens a GPU describes it
  base::Clock* clock = nullptr;  // null: the machine's clock
  // The least time from the end of a process until its memory counts as free, unless the configuration sets another.
  Nanos teardown{0};
  Nanos hello_within = Seconds(5);  // a connection that has said nothing by then is closed
  size_t most_connections = 4096, most_of_user = 1024;
  // Answers queries that the service does not know, such as "metrics". InvalidArgument: unknown. May be empty.
  std::function<absl::StatusOr<std::string>(std::string_view what, const Snapshot&)> answer;
  // Reads the configuration again, for the change "reload". Runs on its own thread, so it may take long. May be empty.
  std::function<absl::StatusOr<Config>()> reload;
  Log log;  // may be empty
  // The file of the state for the next broker at this socket, read at the start (remains.h); empty: none.
  std::string remains;
  // A socket that already listens, so that no process is refused before the service runs; null: listens at `socket`.
  std::unique_ptr<ipc::Listener> listener;
  // Run() ends when no process is left, after at least one has registered or the owner, if any, has ended.
  bool until_unused = false;
  base::UniqueFd owner;  // a pidfd, readable when the owner has ended; invalid: there is no owner
  // Whether a process may still come that has not registered yet; then Run() goes on, and asks again. May be empty.
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
  void Stop();  // makes Run() return; sessions end with the Service

  // A configuration is read without a lock, so that readings may overlap. Of two, the one that began later stays in force: ask for
  // its number before it is read.
  uint64_t BeginReading() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Apply(const Config& config, uint64_t reading) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Apply(const Config& config) { return Apply(config, BeginReading()); }
  Snapshot TakeSnapshot() ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- For the audit (auditor.h).
  struct AuditSettings {
    Nanos interval{0};  // 0: no audit
    uint64_t allowance = 0;
  };
  AuditSettings audit_settings() ABSL_LOCKS_EXCLUDED(mutex_);
  struct AuditSubjects {
    std::vector<std::string> gpus;  // UUIDs
    Claims claims;
  };
  AuditSubjects TakeAuditSubjects() ABSL_LOCKS_EXCLUDED(mutex_);
  // Puts the findings into the figures, and logs what has changed.
  void TakeAudit(Findings found) ABSL_LOCKS_EXCLUDED(mutex_);
  // Call when the audit is off or has failed: its last findings are no longer shown.
  void ForgetAudit() ABSL_LOCKS_EXCLUDED(mutex_);
  void SayAuditFailed(const absl::Status& why) const {
    Say("audit_failed", {{"why", std::string(why.message())}});
  }

  // ---- For the reclaimer, which asks the driver whether memory is free (reclaimer.h).
  // Incremented when a process has ended and its memory is not known to be free.
  std::atomic<uint32_t>& reclaims() { return reclaims_; }
  struct ReclaimSubjects {
    std::vector<std::string> gpus;  // UUIDs
    Time at{};
  };
  // nullopt: no memory is waited for.
  std::optional<ReclaimSubjects> TakeReclaimSubjects() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the processes that the driver names on the subjects taken at `at`. Processes that had ended before and are not
  // named hold nothing any more.
  void TakeNamed(const std::set<int32_t>& pids, Time at) ABSL_LOCKS_EXCLUDED(mutex_);
  // The driver does not tell: only time counts.
  void ForgetNamed() ABSL_LOCKS_EXCLUDED(mutex_);

  const char* CheckInvariants() ABSL_LOCKS_EXCLUDED(mutex_);  // null if they hold
  // Looks at the books so far.
  uint64_t looks() const { return looks_.load(std::memory_order_relaxed); }

 private:
  struct Connection;
  struct SeatHolder;
  struct Reload;
  // The subject of an event of the poller, which holds its address.
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
    Time deaf_until = kNever;  // it has called too often, and is ignored until then
  };

  explicit Service(ServiceOptions options);
  absl::Status Start(const Config& config);
  absl::Status Watch(int fd, Watched& watched, bool edge = false);
  void Unwatch(int fd);
  void Rewatch(int fd, Watched& watched, uint32_t events);
  Time LookAtBooks(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnEvent(Watched& watched, uint32_t events, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountCall(int fd, Watched& watched, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Time HearAgain(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Accept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The process of the session has come back: waits a short time for it to take over the grants of its former session.
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
  // Returns the spec of the share. The new seat is the connection's last one, and still has to be sent to the process.
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
  absl::Status ApplyReading(const Config& config, uint64_t reading)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Refuse(Connection& connection, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SayChange(uid_t by, const ipc::Change& change, const absl::Status& done,
                 const std::string& ended) const;
  Snapshot Figures() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayOperate(const ipc::Peer& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues the parts of an answer; Flush() sends as much as the peer takes.
  void Answer(Connection& connection, std::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Flush(Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `evicted`: the process will not register again by itself.
  void Drop(Connection& connection, std::string_view why, bool evicted = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Raise(const base::UniqueFd& event);  // also from a signal handler
  Time FreeEnded(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When the memory of its process is free or may be taken to be free; never kNever.
  Time ReclaimedAt(Connection& connection, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Open(Connection& connection, const ipc::Message& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Time OpenWaiting(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Looks whether its process seems to have become another program.
  void LookAtImage(Connection& connection, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndReplaced(const Connection& by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the processes that seem to have become another program and of which the driver counts nothing any more.
  void EndThoseWithNothing(const Findings& found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Time ExpireSilent(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Say(std::string_view event,
           const std::vector<std::pair<std::string, std::string>>& fields) const;
  // The same for what a process has caused, of which the log has only so much.
  void SayOf(const Connection& connection, std::string_view event,
             const std::vector<std::pair<std::string, std::string>>& fields)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

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
  LineLimit lines_ ABSL_GUARDED_BY(mutex_);
  Changed changed_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  Config begun_ ABSL_GUARDED_BY(mutex_);                    // the configuration at the start
  std::unique_ptr<Reload> reload_ ABSL_GUARDED_BY(mutex_);  // null: no reload is in progress
  uint64_t readings_ ABSL_GUARDED_BY(mutex_) = 0, in_force_ ABSL_GUARDED_BY(mutex_) = 0;
  // Counts over the connections, so that a look need not visit all of them.
  size_t unread_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of answers that the peers have not taken yet
  size_t ended_ ABSL_GUARDED_BY(mutex_) = 0, silent_ ABSL_GUARDED_BY(mutex_) = 0,
                deaf_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t reclaiming_ ABSL_GUARDED_BY(mutex_) = 0, opening_ ABSL_GUARDED_BY(mutex_) = 0;
  bool freed_ ABSL_GUARDED_BY(mutex_) = false;  // memory was freed since OpenWaiting() last ran
  // Whether the driver has ever named a registered process. Only then does it mean something if a process is not named.
  bool names_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_connection_ ABSL_GUARDED_BY(mutex_) = 1;
  // When to accept again after descriptors have run out.
  Time accepts_again_ ABSL_GUARDED_BY(mutex_) = kNever;
  std::unique_ptr<RemainsFile> remains_ ABSL_GUARDED_BY(mutex_);  // null: nothing is kept
  bool keeps_ ABSL_GUARDED_BY(mutex_) = true;                     // the latest write succeeded
  bool to_keep_ ABSL_GUARDED_BY(mutex_) = false;                  // the file is out of date
  Time keep_at_ ABSL_GUARDED_BY(mutex_) = kNever;
  Time asks_again_ ABSL_GUARDED_BY(mutex_){};  // when to ask `awaited` again
  bool used_ ABSL_GUARDED_BY(mutex_) = false;  // a process has registered, or the owner has ended
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_SERVICE_H_
