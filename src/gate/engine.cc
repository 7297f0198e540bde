// SPDX-License-Identifier: Apache-2.0
#include "gate/engine.h"

#include <algorithm>
#include <utility>

#include "base/process_barrier.h"
#include "base/status_macros.h"
#include "gate/state.h"

namespace gpushare::gate {
namespace {

void Add(const GateStats& stats, Engine::Totals& totals) {
  totals.launches += stats.launches;
  totals.waits += stats.waits;
  totals.throttled += stats.throttled;
}

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(driver::Driver& driver,
                                                       driver::Context context,
                                                       const EngineOptions& options) {
  auto impl = std::make_unique<Impl>(driver, context, options);
  base::
      HasProcessBarrier();  // the first call takes milliseconds; later ones hold the lock (purse.h)
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.PushContext(context), "cuCtxPushCurrent"));
  {
    const struct Pop {
      ~Pop() { driver.PopContext(); }
      driver::Driver& driver;
    } pop{driver};
    GPUSHARE_ASSIGN_OR_RETURN(impl->time_line, meter::TimeLine::Create(driver, impl->events));
  }
  impl->marker_cost = impl->time_line->marker_cost();
  {
    const Section section(*impl);
    impl->submit_offset = impl->time_line->submit_offset();
    impl->offset_seen = impl->clock.Now();
  }
  // The thread comes last: once it runs, only ~Engine() ends it.
  std::unique_ptr<Engine> engine(new Engine(std::move(impl)));
  Impl* const raw = engine->impl_.get();
  raw->reconciler = raw->clock.StartService("gpushare-meter", [raw] { raw->Reconcile(); });
  return engine;
}

Engine::~Engine() {
  impl_->stopping.store(true, std::memory_order_release);
  impl_->Poke();
  if (impl_->reconciler != nullptr) impl_->reconciler->Join();
  impl_->driver.PushContext(impl_->context);
  impl_->time_line.reset();
  impl_->events.Clear();
  impl_->driver.PopContext();
}

absl::StatusOr<Gate*> Engine::AddTenant(std::string name, const TenantOptions& options,
                                        driver::Context context, const Gate* parent) {
  const Time now = impl_->clock.Now();
  TenantState* const budget = parent == nullptr ? nullptr : parent->state_;
  auto tenant = std::make_unique<TenantState>(*impl_, std::move(name), budget);
  tenant->options = options;
  if (context != impl_->context) tenant->own_context = context;
  tenant->copies[0] = {options.h2d_bytes_per_s, 0, now};
  tenant->copies[1] = {options.d2h_bytes_per_s, 0, now};
  tenant->limits_copies[0] = options.h2d_bytes_per_s > 0;
  tenant->limits_copies[1] = options.d2h_bytes_per_s > 0;
  tenant->gate.reset(new Gate(tenant.get()));
  Gate* const gate = tenant->gate.get();
  const Section section(*impl_);
  // Reserves room, so that launching threads need no memory to add to these lists.
  const size_t most = impl_->registered.load(std::memory_order_relaxed) + 1;
  if (most > impl_->grants.capacity()) {
    impl_->open_tenants.reserve(2 * most);
    impl_->taken_from.reserve(2 * most);
    impl_->grants.reserve(2 * most);
  }
  tenant->id =
      impl_->arbiter.Add(options.limits, now, budget == nullptr ? sched::kNoTenant : budget->id);
  if (tenant->id >= impl_->tenants.size()) {
    try {
      impl_->tenants.resize(tenant->id + 1);
    } catch (...) {
      impl_->arbiter.Remove(tenant->id, now);
      throw;
    }
  }
  // From here on nothing fails.
  if (budget != nullptr) ++budget->children;
  // What the only tenant was granted is more than it may have beside another.
  if (impl_->arbiter.tenants() == 2) impl_->TakeAllCredit(now);
  impl_->SetDelay(*tenant);
  impl_->tenants[tenant->id] = std::move(tenant);
  impl_->registered.fetch_add(1, std::memory_order_relaxed);
  return gate;
}

void Engine::RemoveTenant(Gate* gate) {
  TenantState& tenant = *gate->state_;
  Impl& engine = *impl_;
  {
    const Section section(engine);
    tenant.removed = true;
    engine.DropStudyOf(tenant);
    tenant.purse.TakeAll();
    engine.Wake(tenant);
  }
  // Waits until all waiters have left, and until the reconciler records on none of the tenant's streams, since the caller
  // destroys these afterwards.
  for (;;) {
    {
      const Section section(engine);
      const bool marking = std::any_of(tenant.streams.begin(), tenant.streams.end(),
                                       [](const auto& stream) { return stream->marking; });
      if (tenant.waiting.empty() && tenant.copies_waiting == 0 && !marking) break;
    }
    engine.clock.SleepUntil(engine.clock.Now() + Micros(20));
  }
  const Time now = engine.clock.Now();
  {
    const Section section(engine);
    engine.registered.fetch_sub(1, std::memory_order_relaxed);
    engine.ForgetCopies(tenant, nullptr);
    std::erase(engine.open_tenants, &tenant);
    std::erase_if(engine.leases, [&](const LeaseState& l) { return l.tenant == &tenant; });
    for (const auto& stream : tenant.streams) {
      for (const Marker& marker : stream->markers) stream->events->Give(marker.event);
      stream->markers.clear();
      std::erase(engine.marked_streams, stream.get());
      if (stream->live) engine.replay.RemoveStream(stream->replay);
      stream->live = stream->leaving = stream->ended = false;
      engine.SetUnsure(*stream, kNever);
    }
    engine.arbiter.Remove(tenant.id, now);
    if (tenant.parent != nullptr) --tenant.parent->children;
    engine.commands_a_batch = 0;  // it may have been measured on this tenant
    Add(tenant.stats, engine.of_removed);
    // The reconciler may hold copies of this tenant's markers until its next round.
    tenant.next_removed = std::move(engine.removed_tenants);
    engine.removed_tenants = std::move(engine.tenants[tenant.id]);
    engine.RunArbiter(now, nullptr);
  }
  engine.Poke();
}

Engine::Totals Engine::totals() const {
  const Time now = impl_->clock.Now();
  const Section section(*impl_);
  Totals totals = impl_->of_removed;
  for (const auto& tenant : impl_->tenants) {
    if (tenant == nullptr) continue;
    impl_->SyncLaunches(*tenant, now);
    Add(tenant->stats, totals);
  }
  return totals;
}

void Engine::Supplied() {
  const Time now = impl_->clock.Now();
  const Section section(*impl_);
  impl_->RunArbiter(now, nullptr);
  impl_->LookBy(impl_->NextPoll(now));
  for (const auto& tenant : impl_->tenants) {
    if (tenant != nullptr && tenant->copies_waiting > 0) impl_->Wake(*tenant);
  }
}

absl::Status Engine::health() const {
  const Section section(*impl_);
  return impl_->health;
}

absl::Status Gate::health() const {
  const Section section(state_->engine);
  return state_->own_context != nullptr ? state_->health : state_->engine.health;
}

bool Engine::Watch(std::shared_ptr<Watchdog> watchdog) {
  {
    const Section section(*impl_);
    if (watchdog != nullptr && impl_->watchdog != nullptr) return false;
    impl_->watchdog.swap(watchdog);
    // Incidents that concerned an earlier watchdog are not reported to this one; work that is still stuck is.
    impl_->incidents.clear();
    for (StreamGate* stream : impl_->marked_streams) {
      for (Marker& marker : stream->markers) marker.told = false;
    }
    for (LeaseState& lease : impl_->leases) lease.told = false;
  }
  impl_->Poke();
  return true;
}

// ---- Streams, limits, statistics ----

void Engine::Impl::OpenBooks(TenantState& tenant) {
  {
    const Section section(*this);
    if (tenant.ring != nullptr) return;
  }
  auto ring = std::make_unique<LaunchRing>();
  auto costs = std::make_unique<meter::CostModel>(options.default_cost);
  const Section section(*this);
  if (tenant.ring != nullptr) return;  // another thread has opened them
  scratch.reserve(LaunchRing::kRecords);
  tenant.ring = std::move(ring);
  tenant.costs = std::move(costs);
}

Nanos GateStats::WaitQuantile(double q) const {
  uint64_t total = 0;
  for (uint64_t n : wait_histogram) total += n;
  if (total == 0) return Nanos(0);
  const double want = std::clamp(q, 0.0, 1.0) * static_cast<double>(total);
  uint64_t seen = 0;
  for (int i = 0; i < kWaitBuckets; ++i) {
    seen += wait_histogram[static_cast<size_t>(i)];
    if (static_cast<double>(seen) >= want) return Micros(int64_t{1} << (i + 1));
  }
  return Micros(int64_t{1} << kWaitBuckets);
}

const std::string& Gate::name() const { return state_->name; }

// An event can be recorded only on streams of its own context, so each context has its own pool.
meter::EventPool* Engine::Impl::EventsOf(driver::Context stream_context) {
  if (stream_context == nullptr || stream_context == context) return &events;
  for (const ForeignPool& pool : foreign_pools) {
    if (pool.context == stream_context) return pool.events.get();
  }
  foreign_pools.push_back(
      {stream_context, std::make_unique<meter::EventPool>(driver, stream_context)});
  return foreign_pools.back().events.get();
}

void Gate::ContextEnds(driver::Context context) {
  if (context != nullptr) state_->engine.ContextEnds(context);
}

void Gate::ContextEnded(driver::Context context) {
  if (context != nullptr) state_->engine.ContextEnded(context);
}

absl::StatusOr<StreamGate*> Gate::AddStream(driver::Stream handle, const StreamPlace& place) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  engine.OpenBooks(tenant);
  if (!engine.measures.load()) engine.AwaitRenewal();
  // The device follows the stream's own priority, whoever set it, and so does the model of the device. If the driver does not
  // tell the priority, it is the default one.
  int priority = 0;
  if (engine.driver.StreamPriority(handle, &priority) != driver::Result::kSuccess) priority = 0;
  const Section section(engine);
  if (tenant.ended_streams.empty()) {
    if (tenant.streams.size() >= 0xffff) {
      return absl::ResourceExhaustedError("tenant '" + tenant.name +
                                          "': 65535 streams are bound, no more can be; destroy "
                                          "or unbind some that are not used");
    }
    // Reserves room, so that ending a stream needs no memory.
    if (tenant.streams.size() == tenant.streams.capacity()) {
      tenant.streams.reserve(std::max<size_t>(8, 2 * tenant.streams.size()));
    }
    tenant.ended_streams.reserve(tenant.streams.capacity());
    tenant.streams.push_back(std::make_unique<StreamGate>());
    tenant.streams.back()->index = static_cast<uint32_t>(tenant.streams.size() - 1);
    tenant.ended_streams.push_back(tenant.streams.back().get());
  }
  StreamGate* const stream = tenant.ended_streams.back();  // stays in the list if memory runs out
  stream->handle = handle;
  stream->tenant = &tenant;
  stream->place = place;
  if (place.context == nullptr) stream->place.context = tenant.own_context;
  stream->events = engine.EventsOf(stream->place.context);
  stream->thread = place.by_thread ? ThisThread() : nullptr;
  stream->held_up_since = kNever;
  stream->ended = false;
  stream->context.store(0, std::memory_order_relaxed);
  stream->lane = {.page = &tenant.page,
                  .ring = tenant.ring.get(),
                  .costs = tenant.costs.get(),
                  .context = &stream->context,
                  .record = LaunchRecord{.launch = 0, .stream = stream->index, .entry = 0}.Pack(),
                  .levels = place.levels};
  stream->unmarked = stream->to_mark = stream->told_nothing = stream->entering = 0;
  stream->unmarked_ns = 0;
  stream->unmarked_lease = stream->unmarked_passed = false;
  stream->replay = engine.replay.AddStream(tenant.id, priority);
  stream->live = true;
  tenant.ended_streams.pop_back();
  return stream;
}

void Gate::RemoveStream(StreamGate* stream) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  engine.CloseOpen(tenant, stream);
  for (;;) {
    const Time now = engine.clock.Now();
    {
      const Section section(engine);
      if (!stream->marking) {
        engine.SettleUnmarked(tenant, *stream, now);
        stream->leaving = true;
        if (stream->markers_pending == 0) engine.EndStream(*stream);
        engine.RunArbiter(now, nullptr);
        return;
      }
    }
    // Another thread of the tenant is recording a marker on the stream.
    engine.clock.SleepUntil(now + Micros(5));
  }
}

void Engine::Impl::SetUnsure(StreamGate& stream, Time since) {
  const bool was = std::exchange(stream.unsure_since, since) != kNever;
  if (since != kNever && !was) stream.next_unsure = std::exchange(unsure, &stream);
  if (since != kNever || !was) return;
  StreamGate** link = &unsure;
  while (*link != &stream) link = &(*link)->next_unsure;
  *link = std::exchange(stream.next_unsure, nullptr);
}

// A stream may have nothing in flight any more without a settled marker, since the driver may refuse a launch or a marker.
bool Engine::Impl::IsUnsure() {
  while (unsure != nullptr && unsure->markers_pending == 0 && unsure->unmarked == 0 &&
         !unsure->marking && unsure->entering == 0) {
    SetUnsure(*unsure, kNever);
  }
  return unsure != nullptr;
}

void Engine::Impl::EndStream(StreamGate& stream) {
  SetUnsure(stream, kNever);
  replay.RemoveStream(stream.replay);
  stream.live = stream.leaving = false;
  stream.tenant->ended_streams.push_back(&stream);
}

void Gate::Suspend() {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const Time now = engine.clock.Now();
  const Section section(engine);
  tenant.suspended = true;
  if (engine.recorder->on()) [[unlikely]]
    engine.RecordSuspend(tenant, now);
  engine.TakeCredit(tenant, now);
  engine.arbiter.Unblock(tenant.id, now);
  engine.RunArbiter(now, nullptr);
  if (tenant.copies_waiting > 0) engine.Wake(tenant);  // suspended copies leave the lines
}

void Gate::Resume() {
  TenantState& tenant = *state_;
  const Time now = tenant.engine.clock.Now();
  const Section section(tenant.engine);
  tenant.suspended = false;
  if (tenant.engine.recorder->on()) [[unlikely]]
    tenant.engine.RecordSuspend(tenant, now);
  tenant.engine.Wake(tenant);
}

void Gate::Update(const TenantOptions& options) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const Time now = engine.clock.Now();
  const Section section(engine);
  engine.TakeCredit(tenant, now);
  tenant.options = options;
  const double rates[] = {options.h2d_bytes_per_s, options.d2h_bytes_per_s};
  for (size_t d = 0; d < tenant.copies.size(); ++d) {
    // Bytes that were copied without a limit are no debt.
    if (tenant.copies[d].bytes_per_s <= 0) tenant.copies[d] = {rates[d], 0, now};
    tenant.copies[d].bytes_per_s = rates[d];
    tenant.limits_copies[d].store(rates[d] > 0, std::memory_order_relaxed);
  }
  engine.SetDelay(tenant);
  engine.arbiter.Update(tenant.id, options.limits, now);
  engine.RunArbiter(now, nullptr);
  // All waiters look again, since they may be waiting by a rate that no longer holds.
  engine.Wake(tenant);
  for (const auto& other : engine.tenants) {
    if (other != nullptr && other->parent == &tenant) engine.Wake(*other);
  }
}

GateStats Gate::stats() const {
  TenantState& tenant = *state_;
  const Time now = tenant.engine.clock.Now();
  const Section section(tenant.engine);
  tenant.engine.SyncLaunches(tenant, now);
  return tenant.stats;
}

sched::Arbiter::TenantView Gate::view() const {
  const Section section(state_->engine);
  return state_->engine.arbiter.View(state_->id);
}

}  // namespace gpushare::gate
