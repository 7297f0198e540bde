// SPDX-License-Identifier: Apache-2.0
// The tenants, their shares of the GPUs, and the processes that have registered.
//
//   Registry registry(gpus);
//   GPUSHARE_RETURN_IF_ERROR(registry.Apply(config, now, changed));
//   GPUSHARE_ASSIGN_OR_RETURN(Registry::Session* session, registry.Register(who, hello));
//   GPUSHARE_ASSIGN_OR_RETURN(std::string spec, registry.Open(*session, open_gpu, seat, now, changed));
//   Time next = registry.Look(now, changed);     // serves the books of memory and of time
//   registry.End(*session, now, changed);        // the connection is gone: no more device time
//   registry.Reclaim(*session, changed);         // the process has ended: the driver takes its memory back
//   registry.Free(session, now, changed);        // the driver has it back: it is the tenant's again
//
// A tenant is listed in the configuration, or made by the first process that names it if the configuration allows that. A
// tenant that is not listed is removed with its last process, or becomes dormant while it owes device time or an operator's
// order applies to it. Limits come from the configuration and the operator; what a process asks for counts only for a
// tenant that it made.
//
// A tenant's parent is listed too. What a child is promised comes out of its parent's share, whose limits hold for all of its
// children together; a share is made after the parent's and removed before it.
//
// Pure except for the pages behind seats: time is an argument, nothing blocks. Threading: one caller at a time.
#ifndef GPUSHARE_BROKER_REGISTRY_H_
#define GPUSHARE_BROKER_REGISTRY_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "broker/audit.h"
#include "broker/collective.h"
#include "broker/config.h"
#include "broker/copy_book.h"
#include "broker/link_book.h"
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
  uint64_t reserve = 0;  // the part of it never promised, unless the configuration sets another
  int sm_count = 0;
};

class Registry {
 public:
  struct Credentials {
    int32_t pid = 0;
    uint32_t uid = 0, gid = 0;
    uint64_t began = 0;                 // when the process began; 0: not known
    std::vector<uint32_t> groups = {};  // beside `gid`; not kept, as there may be 65536
  };
  struct Share;
  struct Gpu;
  // One process on one GPU.
  struct Place {
    Share* share = nullptr;
    Seat* seat = nullptr;  // null: the process is gone
    MemoryBook::Member* memory = nullptr;
    TimeBook::Member* time = nullptr;    // null: the session has ended
    CopyBook::Member* copies = nullptr;  // null: the session has ended
    LinkBook::Member* link = nullptr;    // null: the session has ended
  };
  static constexpr uint32_t kNobody = UINT32_MAX;
  // The most dormant tenants of one user and of all users. Tenants with an operator's order are counted apart from those
  // that only owe time, with the same bounds.
  static constexpr size_t kMostDormantOfOwner = 64, kMostDormant = 512;
  struct Tenant {
    std::string name;
    TenantConfig config;
    bool listed = false;
    uint32_t owner =
        0;  // for a tenant that is not listed: the user that made it; kNobody: no new process may join
    bool suspended = false, draining = false;
    int sessions = 0;
    bool numbered = false;     // named by the broker, so no process comes back under this name
    Tenant* parent = nullptr;  // null: none
    int children = 0;
    Collective collective;  // for its processes on several GPUs
    // For a dormant tenant: when part of it may be forgotten, and whether an operator's order applies to it.
    Time look_at = kNever;
    bool ordered = false;
  };
  struct Session {
    uint64_t id = 0;
    Credentials who;
    std::string program;
    std::string asked;   // the tenant that the process asked for
    uint64_t image = 0;  // of the program, ipc::Hello::image
    Tenant* tenant = nullptr;
    bool ended = false, ended_by_itself = false;
    bool evicted = false;     // ended by an operator
    bool reclaiming = false;  // its process has ended, and the driver may not have freed its memory
    std::list<Place> places;
    // `successor`: for a lost session, the one in which its process has come back; `former`: the reverse.
    Session *successor = nullptr, *former = nullptr;

    // Neither the process nor the broker wanted the session to end, so the process will register again.
    bool lost() const { return ended && !ended_by_itself && !evicted && !reclaiming; }
  };
  // A tenant's share of a GPU.
  struct Share {
    Tenant* tenant = nullptr;
    Gpu* gpu = nullptr;
    Share* parent = nullptr;         // the share of its tenant's parent on this GPU; null: none
    double children_guaranteed = 0;  // the sum of its children's guarantees
    gpushare_spec spec = {};
    bool set = false;  // an operator has changed it since the configuration was read
    // Its tenant has no process: the limits of time and copies remain, but nothing is guaranteed, memory included.
    bool dormant = false;
    spec::Limits limits;
    // What the quotas of a tenant and of its children are within: that of the parent. Null: it has none.
    std::shared_ptr<MemoryPool> family;
    // Null: the tenant shares its parent's quota, or without a parent what quotas leave (Gpu::unpromised).
    std::unique_ptr<MemoryBook> quota;
    TimeBook::Tenant* time = nullptr;
    CopyBook copies;
    uint64_t peak = 0;
    // Sums over processes that are gone.
    uint64_t launches = 0, waits = 0, denied = 0;
    int64_t throttled_ns = 0;
  };
  struct Gpu {
    GpuInfo info;
    uint64_t capacity = 0;  // memory less the reserve
    // To tenants without a parent: what their children are promised is in that.
    uint64_t promised = 0;
    double guaranteed = 0;
    bool draining = false;
    MemoryPool pool;
    MemoryBook unpromised{0, &pool};
    TimeBook time;
    LinkBook link;
    std::map<std::string, std::unique_ptr<Share>> shares;  // by tenant

    void SetCapacity(uint64_t bytes, Changed& changed) {
      capacity = bytes;
      pool.SetCapacity(bytes);
      unpromised.SetLimit(bytes - std::min(promised, bytes), changed);
    }
  };

  // `gpus` empty: the first process that opens a GPU describes it.
  explicit Registry(const std::vector<GpuInfo>& gpus);

  // Applies all of the configuration or nothing. InvalidArgument, ResourceExhausted, FailedPrecondition: the message says why
  // not.
  absl::Status Apply(const Config& config, Time now, Changed& changed);

  // `keep` is called when grants of memory have grown, before their processes learn of it, so that they can be recorded.
  void SetKeeper(std::function<void()> keep) { keep_ = std::move(keep); }
  // Whether any grant was lowered since the last call.
  bool TakeLowered();
  // TakeRemains() returns what the next broker has to know. Restore(), called right after Apply(), takes over what a former
  // broker has left and returns the sessions of its processes, whose grants stay taken until the processes come back or
  // Free(). `dropped` is told what cannot be restored, and why.
  Remains TakeRemains();
  // The changes of grants since the last call of this or of TakeRemains().
  Remains::Growth TakeGrowth();
  using Dropped = std::function<void(const std::string& what, const absl::Status& why)>;
  std::vector<Session*> Restore(const Remains& remains, Time now, Changed& changed,
                                const Dropped& dropped);

  // A process that has lost a session and asks for the same tenant again comes back: it gets the former grants with its
  // GPUs, even during a drain. One that runs another program since (exec) is a new one. NotFound, PermissionDenied: it may not register as that tenant.
  absl::StatusOr<Session*> Register(const Credentials& who, const ipc::Hello& hello);
  // Returns the spec that the process has to apply. ResourceExhausted: the share does not fit; the message says what would.
  // `own`: what the process asks for on this GPU, if it differs from its Hello.
  absl::StatusOr<std::string> Open(Session& session, const ipc::OpenGpu& open, Seat& seat, Time now,
                                   Changed& changed, const std::string* own = nullptr);
  void End(Session& session, Time now, Changed& changed);
  // Whether the process of `session` ran another program in `before`, with which all of that is over.
  static bool Replaces(const Session& session, const Session& before);
  // For an ended session: whether it holds no memory.
  static bool HoldsNothing(const Session& session);
  // For an ended session: its memory is about to be free, so requests wait for it from now on.
  void Reclaim(Session& session, Changed& changed);
  void Free(Session* session, Time now, Changed& changed);

  Time Look(Time now, Changed& changed);

  // Changes the keys in `change` of a running tenant; `gpu` empty: on all GPUs. Returns the keys that a new policy has
  // removed, such as "cap=80%", or "". Errors: NotFound, InvalidArgument, ResourceExhausted.
  absl::StatusOr<std::string> Set(const std::string& tenant, const std::string& gpu,
                                  const std::string& change, Time now, Changed& changed);
  absl::Status Suspend(const std::string& tenant, bool suspended, Time now, Changed& changed);
  // From now on no process registers (or opens the GPU) and no memory is granted: for one tenant, on one GPU, or for
  // everything if neither is named.
  absl::Status Drain(const std::string& tenant, const std::string& gpu, bool draining,
                     Changed& changed);

  Snapshot TakeSnapshot(Time now) const;
  // What processes with a session say they hold, and what they were granted.
  Claims TakeClaims() const;
  std::vector<std::string> gpus() const;  // UUIDs
  const Config& config() const { return config_; }
  void CountRefused() { ++refused_; }
  const std::list<Session>& sessions() const { return sessions_; }
  const char* CheckInvariants() const;  // null if they hold

 private:
  void TellOfDraining(Session& session, Changed& changed);
  // The process's own figure, limited to a month so that sums cannot overflow.
  static Nanos ThrottledOf(const ipc::UsagePage& usage) {
    constexpr int64_t kMost = int64_t{30} * 86'400 * 1'000'000'000;
    return Nanos(std::clamp<int64_t>(usage.throttled_ns.load(kRelaxed), 0, kMost));
  }

  // For messages, such as "'a', 'b' and 3 more": the tenants for which `may` holds.
  template <typename May>
  std::string NamesOf(const May& may) const;
  absl::Status NoTenant(const std::string& name) const;  // names the existing tenants
  absl::Status NoGpu(const std::string& uuid) const;     // names the existing GPUs
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
  // Makes a share that has been found to fit; `parent`: that of its tenant's parent.
  Share* MakeShare(Tenant& tenant, Gpu& gpu, Share* parent, const gpushare_spec& spec,
                   const spec::Limits& limits, Time now, Changed& changed);
  // The share of a tenant whose processes hold memory there. If it does not fit any more, with what of it does.
  Share* RestoredShareOf(Tenant& tenant, Gpu& gpu, Time now, Changed& changed,
                         const Dropped& dropped);
  bool HasQuota(const Tenant& tenant) const;
  Share* FittingShareOf(Tenant& tenant, Gpu& gpu, Share* parent, Time now, Changed& changed);
  // The existing share, or a new dormant one, of a tenant without a process.
  Share* DormantShareOf(Tenant& tenant, Gpu& gpu, Time now, Changed& changed);
  absl::Status MayBeOwn(const std::string& spec) const;
  // Whether the limits fit beside all shares except `but`: on the GPU, or within `parent`.
  absl::Status Admit(const Gpu& gpu, const std::string& tenant, const spec::Limits& limits,
                     const Share* but, const Share* parent) const;
  absl::Status AdmitOnGpu(const Gpu& gpu, const std::string& tenant, const spec::Limits& limits,
                          const Share* but) const;
  // Whether an unlisted tenant may have high priority: it must not take what is guaranteed to listed tenants.
  absl::Status AdmitHigh(const Gpu& gpu, const std::string& tenant,
                         const spec::Limits& limits) const;
  // A change of a share that has been found to fit.
  struct Checked {
    Share* share;
    gpushare_spec spec;
    spec::Limits limits;
    bool dormant = false;
  };
  absl::Status CheckQuota(const Share& share, const spec::Limits& limits) const;
  absl::Status CheckMoves(const Config& config, std::set<std::string>* moved) const;
  absl::Status CheckOn(const Gpu& gpu, const Config& config, const std::set<std::string>& listed,
                       const std::set<std::string>& moved, std::vector<Checked>* changes) const;
  void Unlist(const std::set<std::string>& listed, Time now, Changed& changed);
  void Move(const std::set<std::string>& moved, Time now, Changed& changed);
  // Checks a change of a share, with what follows for its tenant's children, and adds them to `changes`.
  absl::Status CheckChange(Share& share, const gpushare_spec& spec,
                           std::vector<Checked>* changes) const;
  // The parent's limits; null: no parent.
  static const spec::Limits* LimitsOfParent(const Share& share) {
    return share.parent == nullptr ? nullptr : &share.parent->limits;
  }
  // Takes the limits' promises, or gives them back.
  static void Promise(Share& share, const spec::Limits& limits, bool gives_back = false);
  static const char* CheckFamily(const Share& share);
  void MakeQuota(Share& share);
  static void SetQuota(Share& share, Changed& changed);
  void Assign(const Checked& change, Time now, Changed& changed);
  void Remove(Share& share, Time now, Changed& changed);
  static void SetParent(Tenant& tenant, Tenant* parent);
  static bool InUse(const Tenant& tenant) { return tenant.sessions > 0 || tenant.children > 0; }
  // Removes an unlisted tenant without a process, or makes it dormant if debt or orders outlast its processes.
  void Sweep(Tenant& tenant, Time now, Changed& changed);
  void SweepIfThere(const std::string& tenant, Time now, Changed& changed);
  void Forget(Tenant& tenant, Time now, Changed& changed);
  bool HasShare(const Tenant& tenant) const;  // of any GPU
  bool HeldBack(const Tenant& tenant) const;
  bool Ordered(const Tenant& tenant) const;
  void Bound(uint32_t owner, Time now, Changed& changed);
  Time LookAtDormant(Time now, Changed& changed);
  void ForgetUnusedGpus(Time now, Changed& changed);
  static uint64_t CapacityOf(const GpuInfo& gpu, const Config& config);
  MemoryBook& BookOf(Share& share) {
    if (share.quota != nullptr) return *share.quota;
    return share.parent != nullptr ? BookOf(*share.parent) : share.gpu->unpromised;
  }

  Config config_;
  const bool knows_gpus_;
  std::map<std::string, std::unique_ptr<Gpu>> gpus_;
  std::map<std::string, std::unique_ptr<Tenant>> tenants_;
  std::list<Tenant*> dormant_;   // not listed and without a process, oldest first
  Time dormant_until_ = kNever;  // when the first of them may be removed
  std::list<Session> sessions_;
  uint64_t next_session_ = 1, sessions_ever_ = 0, refused_ = 0;
  bool draining_ = false;
  std::function<void()> keep_;  // may be empty
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_REGISTRY_H_
