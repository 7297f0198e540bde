// SPDX-License-Identifier: Apache-2.0
// Who shares which GPU: tenants, their shares, and the processes that have registered.
//
//   Registry registry(gpus);
//   GPUSHARE_RETURN_IF_ERROR(registry.Apply(config, now, changed));
//   GPUSHARE_ASSIGN_OR_RETURN(Registry::Session* session, registry.Register(who, hello));
//   GPUSHARE_ASSIGN_OR_RETURN(std::string spec, registry.Open(*session, open_gpu, seat, now, changed));
//   Time next = registry.Look(now, changed);     // books of memory and of time
//   registry.End(*session, now, changed);        // the connection is gone: no more device time
//   registry.Reclaim(*session, changed);         // the process too: the driver takes its memory back
//   registry.Free(session, now, changed);        // it has: that is the tenant's again
//
// A tenant is listed in the configuration, or made by the first process that names it, where the configuration lets
// processes do that; then it goes with its last process, or lies dormant while it owes device time or an operator has
// ordered something of it. Limits come from the configuration and the operator; what a process asks for counts only for a
// tenant that it made.
//
// Pure but for the pages behind seats: time is an argument, nothing blocks. One caller at a time.
#ifndef GPUSHARE_BROKER_REGISTRY_H_
#define GPUSHARE_BROKER_REGISTRY_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "broker/audit.h"
#include "broker/collective.h"
#include "broker/config.h"
#include "broker/copy_book.h"
#include "broker/memory_book.h"
#include "broker/remains.h"
#include "broker/seat.h"
#include "broker/snapshot.h"
#include "broker/time_book.h"
#include "gpushare/c/gpushare.h"
#include "ipc/message.h"
#include "spec/spec.h"

namespace gpushare::broker {

struct GpuInfo {
  std::string uuid;
  uint64_t memory = 0;
  uint64_t reserve = 0;  // of it, never promised where the configuration says nothing else
  int sm_count = 0;
};

class Registry {
 public:
  struct Credentials {
    int32_t pid = 0;
    uint32_t uid = 0, gid = 0;
    uint64_t began = 0;  // when its process did; 0: that is not known
  };
  struct Share;
  struct Gpu;
  // One process at one GPU.
  struct Place {
    Share* share = nullptr;
    Seat* seat = nullptr;  // null: its process is gone
    MemoryBook::Member* memory = nullptr;
    TimeBook::Member* time = nullptr;    // null: its session has ended
    CopyBook::Member* copies = nullptr;  // the same
  };
  static constexpr uint32_t kNobody = UINT32_MAX;
  // Without a process, of one user and of all: so many that owe, and as many of which an operator has ordered something.
  static constexpr size_t kMostDormantOfOwner = 64, kMostDormant = 512;
  struct Tenant {
    std::string name;
    TenantConfig config;
    bool listed = false;
    uint32_t owner =
        0;  // of one that is not listed: the user that made it; kNobody: it is not for new processes
    bool suspended = false, draining = false;
    int sessions = 0;
    bool numbered = false;  // named by the broker: nobody comes back as it
    Collective collective;  // of its processes on several GPUs
    // Of one that is dormant: when something of it may be forgotten, and whether an operator has ordered something.
    Time look_at = kNever;
    bool ordered = false;
  };
  struct Session {
    uint64_t id = 0;
    Credentials who;
    std::string program;
    std::string asked;  // the tenant that it wanted to be
    Tenant* tenant = nullptr;
    bool ended = false, ended_by_itself = false;
    bool evicted = false;     // ended by an operator
    bool reclaiming = false;  // its process has ended, and the driver may not have its memory back
    std::list<Place> places;
    // Of one that is lost, the session in which its process has come back, and of that one the other.
    Session *successor = nullptr, *former = nullptr;

    // Neither it nor the broker wanted its end: its process will register again.
    bool lost() const { return ended && !ended_by_itself && !evicted && !reclaiming; }
  };
  // A tenant's share of a GPU.
  struct Share {
    Tenant* tenant = nullptr;
    Gpu* gpu = nullptr;
    gpushare_spec spec = {};
    bool set = false;  // by an operator, since the configuration was read
    // Its tenant has no process: it has its limits of time and copies, and no promise of either or of memory.
    bool dormant = false;
    spec::Limits limits;
    std::unique_ptr<MemoryBook> quota;  // null: it has a part in what quotas leave
    TimeBook::Tenant* time = nullptr;
    CopyBook copies;
    uint64_t peak = 0;
    // Of processes that are gone.
    uint64_t launches = 0, waits = 0, denied = 0;
    int64_t throttled_ns = 0;
  };
  struct Gpu {
    GpuInfo info;
    uint64_t capacity = 0;  // memory less the reserve
    uint64_t promised = 0;
    double guaranteed = 0;
    bool draining = false;
    MemoryPool pool;
    MemoryBook unpromised{0, &pool};
    TimeBook time;
    std::map<std::string, std::unique_ptr<Share>> shares;  // by tenant

    void SetCapacity(uint64_t bytes, Changed& changed) {
      capacity = bytes;
      pool.SetCapacity(bytes);
      unpromised.SetLimit(bytes - std::min(promised, bytes), changed);
    }
  };

  // `gpus` empty: the first process that opens one says what it has.
  explicit Registry(const std::vector<GpuInfo>& gpus);

  // All of it or nothing. InvalidArgument, ResourceExhausted: why not.
  absl::Status Apply(const Config& config, Time now, Changed& changed);

  // Called when grants of memory have grown and before their processes know: whoever is to remember them does it then.
  void SetKeeper(std::function<void()> keep) { keep_ = std::move(keep); }
  // Whether grants have become less since the last time that this was asked.
  bool TakeLowered();
  // What the next broker is to know, and what a former one has left, right after Apply(). `dropped` is told what of it
  // cannot be, and why. What processes were granted stays taken until they come back or Free(); answers their sessions.
  Remains TakeRemains();
  // Of that what processes have been granted, or given back, since it or this was taken the last time.
  Remains::Growth TakeGrowth();
  using Dropped = std::function<void(const std::string& what, const absl::Status& why)>;
  std::vector<Session*> Restore(const Remains& remains, Time now, Changed& changed,
                                const Dropped& dropped);

  // One whose process has lost a session, and asks for the same tenant again, comes back: it gets what that was
  // granted with its GPUs, whether or not there is a drain. NotFound, PermissionDenied: not as that tenant.
  absl::StatusOr<Session*> Register(const Credentials& who, const ipc::Hello& hello);
  // The spec that the process is to go by. ResourceExhausted: the share does not fit; says what would.
  // `own`: what the process asks for there, unless it is what its Hello says.
  absl::StatusOr<std::string> Open(Session& session, const ipc::OpenGpu& open, Seat& seat, Time now,
                                   Changed& changed, const std::string* own = nullptr);
  void End(Session& session, Time now, Changed& changed);
  // Of one that has ended: no memory of it is waited for.
  static bool HoldsNothing(const Session& session);
  // Of one that has ended: who wants its memory waits for it from now on.
  void Reclaim(Session& session, Changed& changed);
  void Free(Session* session, Time now, Changed& changed);

  Time Look(Time now, Changed& changed);

  // Of a running tenant; `gpu` empty: on all. `change`: the keys to change. NotFound, InvalidArgument, ResourceExhausted.
  // Answers with the keys that a new policy has ended, "" for none: "cap=80%".
  absl::StatusOr<std::string> Set(const std::string& tenant, const std::string& gpu,
                                  const std::string& change, Time now, Changed& changed);
  absl::Status Suspend(const std::string& tenant, bool suspended, Time now, Changed& changed);
  // No process registers (or opens the GPU), and no memory is granted, from now on: of one tenant, on one GPU, or of
  // all where neither is named.
  absl::Status Drain(const std::string& tenant, const std::string& gpu, bool draining,
                     Changed& changed);

  Snapshot TakeSnapshot(Time now) const;
  // What processes that have not ended say they hold, and were granted.
  Claims TakeClaims() const;
  std::vector<std::string> gpus() const;  // UUIDs
  const Config& config() const { return config_; }
  void CountRefused() { ++refused_; }
  const std::list<Session>& sessions() const { return sessions_; }
  const char* CheckInvariants() const;  // null: they hold

 private:
  void TellOfDraining(Session& session, Changed& changed);
  static constexpr double kRounding = 1e-9;  // of sums of guarantees
  // As a process says, a month at most, so that sums stay within their type.
  static Nanos ThrottledOf(const ipc::UsagePage& usage) {
    constexpr int64_t kMost = int64_t{30} * 86'400 * 1'000'000'000;
    return Nanos(std::clamp<int64_t>(usage.throttled_ns.load(kRelaxed), 0, kMost));
  }

  // For messages: 'a', 'b' and 3 more; of those that `may` says.
  template <typename May>
  std::string NamesOf(const May& may) const;
  absl::Status NoTenant(const std::string& name) const;  // says which there are
  absl::Status NoGpu(const std::string& uuid) const;     // the same
  absl::StatusOr<Tenant*> TenantFor(const Credentials& who, const ipc::Hello& hello,
                                    const Session* former);
  Session* FormerOf(const Credentials& who, const ipc::Hello& hello);
  Gpu& AddGpu(const GpuInfo& info);
  static Remains::Gpu RemainsOf(const Gpu& gpu);
  static Remains::Tenant RemainsOf(const Tenant& tenant);
  static Remains::Process TakeRemainsOf(const Session& session);
  void RestoreChanges(const Remains& remains, Time now, Changed& changed, const Dropped& dropped);
  absl::StatusOr<Gpu*> FindGpu(const ipc::OpenGpu& open, Time now, Changed& changed);
  absl::StatusOr<Share*> ShareOf(Tenant& tenant, Gpu& gpu, Time now, Changed& changed,
                                 const std::string* own = nullptr);
  // One that is there, of a tenant that has no process.
  Share* DormantShareOf(Tenant& tenant, Gpu& gpu, Time now, Changed& changed);
  absl::Status MayBeOwn(const std::string& spec) const;
  // Whether limits fit, beside everything but `but`.
  absl::Status Admit(const Gpu& gpu, const std::string& tenant, const spec::Limits& limits,
                     const Share* but) const;
  // The same of one that is not listed and would be of high priority: no guarantee of one that is listed is to be its.
  absl::Status AdmitHigh(const Gpu& gpu, const std::string& tenant,
                         const spec::Limits& limits) const;
  absl::Status CheckQuota(const Share& share, const spec::Limits& limits) const;
  // A change of a share that fits.
  struct Checked {
    Share* share;
    gpushare_spec spec;
    spec::Limits limits;
    bool dormant = false;
  };
  void Assign(const Checked& change, Time now, Changed& changed);
  void Remove(Share& share, Time now, Changed& changed);
  // A tenant that is not listed and has no process goes, or what outlasts its processes is left of it.
  void Sweep(Tenant& tenant, Time now, Changed& changed);
  void SweepIfThere(const std::string& tenant, Time now, Changed& changed);
  void Forget(Tenant& tenant, Time now, Changed& changed);
  bool HeldBack(const Tenant& tenant) const;
  bool Ordered(const Tenant& tenant) const;
  void Bound(uint32_t owner, Time now, Changed& changed);
  Time LookAtDormant(Time now, Changed& changed);
  void ForgetUnusedGpus(Time now, Changed& changed);
  static uint64_t CapacityOf(const GpuInfo& gpu, const Config& config);
  MemoryBook& BookOf(Share& share) {
    return share.quota != nullptr ? *share.quota : share.gpu->unpromised;
  }

  Config config_;
  const bool knows_gpus_;
  std::map<std::string, std::unique_ptr<Gpu>> gpus_;
  std::map<std::string, std::unique_ptr<Tenant>> tenants_;
  std::list<Tenant*> dormant_;   // not listed and without a process, the longest first
  Time dormant_until_ = kNever;  // the first of them may go
  std::list<Session> sessions_;
  uint64_t next_session_ = 1, sessions_ever_ = 0, refused_ = 0;
  bool draining_ = false;
  std::function<void()> keep_;  // may be empty
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_REGISTRY_H_
