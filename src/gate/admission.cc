// SPDX-License-Identifier: Apache-2.0
// The path of a launch through the gate: by credit in hand, else by asking for a grant.
#include <algorithm>
#include <new>
#include <utility>

#include "gate/graph_kernels.h"
#include "gate/state.h"

namespace gpushare::gate {
namespace {

// A long graph is measured with the device to itself until its cost is settled, and once in a while after that: each time the
// stream has launched graphs of a total cost of kCalibrateAfterNs, and at most every 37th graph. 37 is a prime, so among
// several graphs that are launched in turns, each gets measured.
constexpr uint64_t kMostPerGraphNs = kCalibrateAfterNs / 37;

constexpr uint32_t kFewKernels = 16;

bool Calibrates(std::atomic<uint64_t>& launched_ns, float cost_ns) {
  const uint64_t cost = std::min(static_cast<uint64_t>(cost_ns), kMostPerGraphNs);
  const uint64_t before = launched_ns.fetch_add(cost, std::memory_order_relaxed);
  return before / kCalibrateAfterNs != (before + cost) / kCalibrateAfterNs;
}

bool IsLongGraph(const Work& work, const meter::CostModel::Prediction& cost) {
  return work.kind == Work::Kind::kGraph && work.parts != 1 &&
         (!cost.known || cost.cost_ns >= kLongGraphNs);
}

// How many such commands one grant should hold. A graph of more than half of a grant would otherwise have a grant of its own,
// with a marker and a wait for the next one. For graphs that fill the device two per grant would make their turns twice as long,
// and the replay tells longer turns apart less well.
int AtOnce(const Work& work) {
  const bool leaves =
      meter::CostModel::InParts(work.parts) && work.footprint > 0 && work.footprint < kFillsAsGraph;
  return work.kind == Work::Kind::kGraph && leaves ? 2 : 1;
}

}  // namespace

const Lane& Gate::LaneOf(const StreamGate& stream) { return stream.lane; }

Admission Gate::Admit(StreamGate& stream, const Work& work, Time deadline) {
  uint32_t launch;
  if (work.kind != Work::Kind::kKernel || !stream.lane.Take(work.key, &launch)) [[unlikely]] {
    return AdmitUncommon(stream, work, deadline);
  }
  return {&stream, launch, Verdict::kAdmitted, false, false};
}

// For graphs, and for kernels whose cost is not in its first place in the table, is not settled, or exceeds the credit.
Admission Gate::AdmitUncommon(StreamGate& stream, const Work& work, Time deadline) {
  const uint64_t context = stream.context.load(std::memory_order_relaxed);
  const meter::CostModel::Prediction cost =
      state_->costs->Predict(work.key, context, work.footprint, work.like, work.parts);
  const bool graph = work.kind == Work::Kind::kGraph;
  const bool calibrates =
      IsLongGraph(work, cost) && (!cost.settled || Calibrates(stream.long_graphs_ns, cost.cost_ns));
  if (cost.known && cost.settled && !calibrates && work.kind != Work::Kind::kCooperative) {
    uint32_t launch;
    const meter::CostModel::Settled settled = {
        cost.entry, std::max(uint64_t{1}, static_cast<uint64_t>(cost.cost_ns))};
    Pocket* pocket = state_->purse.holder();
    if (pocket != nullptr && !pocket->IsOf(ThisThread())) {
      // Another thread has been the only one to launch until now.
      const Section section(state_->engine);
      state_->purse.Share();
      pocket = nullptr;
    }
    if (stream.lane.Pay(work.key, context, settled, graph, pocket != nullptr ? *pocket : no_pocket,
                        &launch)) {
      return {&stream, launch, Verdict::kAdmitted, false, false};
    }
  }
  return AdmitSlow(stream, work, calibrates, deadline);
}

Admission Gate::AdmitSlow(StreamGate& stream, const Work& work, bool calibrates, Time deadline) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const uint64_t context = stream.context.load(std::memory_order_relaxed);
  // One prediction serves the whole wait, so the grant is asked for and spent by the same figure.
  const meter::CostModel::Prediction cost =
      tenant.costs->Predict(work.key, context, work.footprint, work.like, work.parts);
  const bool exclusive = engine.WantsDevice(stream, work, cost, calibrates);
  const bool sure = work.kind == Work::Kind::kKernel && cost.known && cost.settled && !exclusive &&
                    work.footprint > 0 && tenant.costs->IsSure(cost.entry, meter::Replay::kVaries);
  const GrantRequest request = {.charge = tenant.page.ChargeNs(static_cast<uint64_t>(cost.cost_ns)),
                                .own_grant = !cost.known || exclusive,
                                .exclusive = exclusive,
                                .cost_known = cost.known,
                                .at_once = AtOnce(work),
                                .deadline = deadline,
                                .longest_hold = work.longest_hold,
                                .stream = sure ? &stream : nullptr,
                                .length_ns = cost.cost_ns,
                                .footprint = work.footprint,
                                .began = engine.clock.Now()};

  // The launches of the spent grant get their marker here, where the host stops anyway.
  engine.CloseOpen(tenant, nullptr);

  // By now the kernels of the graph may have been measured by themselves. With many kernels this look-up takes as long as a
  // launch, and such graphs come by here at each grant, so it is not always done.
  const bool graph = work.kind == Work::Kind::kGraph;
  const bool looks = graph && work.kernels != nullptr && cost.known &&
                     (!cost.settled || calibrates || work.parts <= kFewKernels);
  std::vector<float> lengths;
  KernelsInGraph kernels;
  try {
    if (looks) kernels = work.kernels->Find(work.executable);
    if (looks) lengths = PartsOf(*tenant.costs, kernels, cost.cost_ns);
  } catch (const std::bad_alloc&) {
    // Without lengths, all kernels count as equally long.
  }

  Marker start;
  uint32_t launch = 0;
  bool passed = false, marked = false;
  const Verdict verdict = engine.WaitForGrant(tenant, request, [&](uint32_t number, Time now) {
    engine.mu.AssertHeld();
    launch = number;
    // If the lengths do not add up this time, those from before stay in place. An opaque graph is charged its cost alone. Its
    // kernels' own lengths are used only if a study finds that others' commands end beside it accordingly. So are those of
    // kernels that run side by side, since these do not add up to the graph's.
    const bool opaque = IsOpaqueGraph(work.parts, work.footprint, cost.cost_ns);
    if (!lengths.empty() && !opaque && !kernels.edges.has_value()) {
      engine.KeepLengths(tenant, work, lengths);
    } else if (graph) {
      if (looks && kernels.kernels.empty()) engine.ForgetLengths(tenant, work);
      if (looks || work.parts == 0) engine.AskForStudy(tenant, cost, work, kernels, lengths);
    }
    passed = tenant.passing && tenant.passed_launch == number;
    if (stream.markers_pending == 0 && stream.unmarked == 0 && !stream.marking) {
      start = engine.NewMarker(stream);
    }
    // A command that was hardly measured yet gets a batch of its own. So does one that makes up for commands that were settled
    // as predicted without a marker. Taking back the credit makes the next command come this way too.
    marked = stream.to_mark > 0;
    if (marked) --stream.to_mark;
    if (!cost.settled || marked) engine.TakeCredit(tenant, now);
    if (!cost.known || !cost.settled) engine.SetUnsure(stream, now);
    ++stream.entering;  // last: without memory for the marker, the launch does not enter
  });
  if (verdict != Verdict::kAdmitted) return {nullptr, 0, verdict, false, false};
  if (start.stream != nullptr) engine.MarkStart(start);
  // The record is written last: until it is there, the replay reads neither this launch nor those behind it.
  if (engine.options.blocking_launches) tenant.page.Timed(launch, engine.clock.Now());
  tenant.ring->Put(
      {launch, stream.index, cost.entry, !cost.known, graph, /*refused=*/false, exclusive});
  stream.context.store(meter::CostModel::Next(context, work.key), std::memory_order_relaxed);
  // A command that was let through at the bound of holds is measured by itself.
  return {&stream, launch, Verdict::kAdmitted, true,
          exclusive || !cost.settled || passed || marked};
}

std::shared_ptr<Pocket> Gate::Asked() {
  const Section section(state_->engine);
  Purse& purse = state_->purse;
  return purse.Asked() != nullptr ? purse.held() : nullptr;
}

Pocket* Gate::PocketHere() const {
  Pocket* const pocket = state_->purse.holder();
  return pocket != nullptr && pocket->IsOf(ThisThread()) ? pocket : nullptr;
}

void Gate::Refused(StreamGate& stream, uint32_t launch) {
  stream.tenant->gate->CompleteSlow({&stream, launch}, /*submitted=*/false);
}

// The driver has taken or refused the launch.
void Gate::Entered(const Admission& admission) {
  if (!admission.timed) return;
  const Section section(state_->engine);
  if (int& entering = admission.stream->entering; entering > 0) --entering;
}

void Gate::CompleteSlow(const Admission& admission, bool submitted) {
  Engine::Impl& engine = state_->engine;
  if (submitted) {
    const bool blocking = engine.options.blocking_launches;
    if (!blocking) state_->page.Timed(admission.launch, engine.clock.Now());
    Entered(admission);
    // Others wait for the end of this command, or it may never end, so its marker is not left to the next call.
    if (admission.close) {
      engine.CloseOpen(*state_, nullptr, blocking ? admission.stream : nullptr);
    }
    return;
  }
  Entered(admission);
  // The driver refused, so nothing runs, and the charge goes back: through the launch's record if the books have not read it yet.
  // Else a marker shows that it took no time.
  bool seen = false;
  {
    const Time now = engine.clock.Now();
    const Section section(engine);
    seen = ((state_->synced_launch - admission.launch - 1) & TenantPage::kLaunchMask) <
           LaunchRing::kRecords;
    std::atomic<uint64_t>& place = state_->ring->At(admission.launch);
    LaunchRecord record = LaunchRecord::Unpack(place.load(std::memory_order_acquire));
    record.refused = true;
    const bool there = record.launch == admission.launch;
    if (!seen && there) {
      place.store(record.Pack(), std::memory_order_release);
      // Others may be waiting for its end.
      engine.SyncLaunches(*state_, now);
      engine.LookBy(now);
    }
    if (seen && there) {
      --state_->stats.launches;
      if (record.graph) --state_->stats.graph_launches;
      if (admission.stream->live) engine.replay.Refuse(admission.stream->replay, record.entry);
    }
  }
  if (seen) engine.CloseOpen(*state_, admission.stream);
}

// Whether the work needs the device to itself. Cooperative launches need it drained. The kernels of a long graph alternate
// with those of others in an order that no marker shows, so its cost is learnt while it is alone, and assumed otherwise.
bool Engine::Impl::WantsDevice(StreamGate& stream, const Work& work,
                               const meter::CostModel::Prediction& cost, bool calibrates) {
  if (work.kind == Work::Kind::kCooperative) return true;
  if (cost.settled && !calibrates) return false;
  const Section section(*this);
  if (arbiter.tenants() <= 1) return false;
  if (calibrates) return true;
  // Nothing can be measured beside a lease or a graph.
  const meter::Replay::OpaqueWork opaque = replay.FindOpaque(stream.tenant->id);
  return opaque.others && !opaque.own;  // beside its own lease, the tenant would wait for itself
}

// ---- Waiting for the device ----

void Gate::Synchronizing(StreamGate* stream) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  engine.CloseOpen(tenant, stream);
  const Time now = engine.clock.Now();
  const Section section(engine);
  if (!tenant.waiting.empty()) return;  // another thread of the tenant goes on launching
  engine.TakeCredit(tenant, now);
  engine.arbiter.Sync(tenant.id, now);
  engine.RunArbiter(now, &tenant);
  engine.LookBy(engine.NextPoll(now));
}

void Gate::StallBegins(StreamGate* stream) { state_->engine.CloseOpen(*state_, stream); }

bool Gate::WaitBegins(StreamGate* stream) {
  {
    const Section section(state_->engine);
    if (state_->engine.arbiter.tenants() <= 1) return false;
  }
  StallBegins(stream);
  return true;
}

void Gate::MarkBehindStall(StreamGate* stream, bool waits_for_host) {
  Engine::Impl& engine = state_->engine;
  Marker end;
  {
    const Time now = engine.clock.Now();
    const Section section(engine);
    engine.SyncLaunches(*state_, now);
    // If another thread launches on the stream at the same time, the order of the two is unknown.
    if (!stream->live || stream->leaving || stream->unmarked > 0 || stream->marking) return;
    try {
      end = engine.NewMarker(*stream);
    } catch (const std::bad_alloc&) {
      return;  // the wait is submitted already; work behind it may be charged for it
    }
    end.behind_stall = true;
    end.waits_for_host = waits_for_host;
  }
  engine.MarkStart(end);
  const Time now = engine.clock.Now();
  const Section section(engine);
  engine.HoldUp(*stream, now);
  engine.RunArbiter(now, nullptr);
  engine.LookBy(engine.NextPoll(now));
}

void Gate::Synchronized() {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const Time now = engine.clock.Now();
  const Section section(engine);
  engine.arbiter.Touch(tenant.id, now);
}

}  // namespace gpushare::gate
