// SPDX-License-Identifier: Apache-2.0
#include "shim/record/recorder.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock_lock.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "books/relaxed.h"
#include "shim/gated.h"
#include "work/outermost.h"
#include "work/streams.h"

namespace gpushare::shim::recording {
namespace {

using driver::Result;

constexpr Nanos kPatience = Seconds(2);
constexpr int kGiveUp = 3;
// If more launches are pending, the oldest is no longer waited for.
constexpr size_t kMostPending = 4096;
// How often CUPTI's records are written to the journal. At most this many launches are lost if the process is killed.
constexpr uint32_t kTakeEvery = 64;
// How long a waiting thread spins before it yields the processor.
constexpr Nanos kSpin = Millis(1);

void Count(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

std::atomic<Recorder*> Recorder::made{nullptr}, Recorder::working{nullptr};

absl::Status Recorder::Attach(const gpushare_shim_driver& driver) {
  const std::string folder = base::GetEnv(gpushare::record::kFolderVariable).value_or("");
  GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<driver::Driver> opened,
                            driver::Driver::Open({.path = driver.path, .handle = driver.handle}));
  GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<gpushare::record::Journal> journal,
                            gpushare::record::Journal::Begin(folder));
  auto* const recorder = new Recorder(std::move(opened), std::move(journal));
  made.store(recorder, std::memory_order_release);
  working.store(recorder, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, [] { working.store(nullptr, std::memory_order_relaxed); });
  // Exit handlers run in reverse order, so this one runs before the driver's, which was registered first.
  std::atexit([] {
    if (Recorder* const last = Find()) last->Stop();
  });
  return absl::OkStatus();
}

// ---- Launches ----

CUresult Recorder::Kernel(CUfunction function, const driver::LaunchShape& shape, CUstream stream,
                          Launch launch) {
  return Record(
      stream, [&] { return Command{.name = names_.Find(function), .sms = SmsOf(function, shape)}; },
      launch);
}

CUresult Recorder::Graph(CUgraphExec exec, CUstream stream, Launch launch) {
  return Record(
      stream,
      [&] {
        const base::MutexLock lock(&execs_mutex_);
        const Exec& known = execs_[exec];
        return Command{.name = absl::StrCat("graph ", known.number, " of ", known.kernels,
                                            known.kernels == 1 ? " kernel" : " kernels"),
                       .sms = known.sms,
                       .graph = true};
      },
      launch);
}

CUresult Recorder::Unmeasured(Launch launch) {
  if (work::Outermost::Inside()) return launch();
  const work::Outermost outermost;
  const CUresult result = launch();
  if (result == CUDA_SUCCESS) Count(journal_->page().unmeasured);
  return result;
}

CUresult Recorder::Record(CUstream stream, absl::FunctionRef<Command()> describe, Launch launch) {
  if (work::Outermost::Inside()) return launch();
  const work::Outermost outermost;
  if (Captures(stream)) {
    const CUresult result = launch();
    if (result == CUDA_SUCCESS) Count(journal_->page().captured);
    return result;
  }
  if (Skips()) return launch();
  // Describe the launch before anything is queued on the stream: this may load the function's code, and for that the driver may
  // wait for the device.
  const Command command = describe();
  return Measure(stream, command, launch);
}

bool Recorder::Skips() {
  const uint64_t skip = journal_->orders().skip;
  if (seen_.load(std::memory_order_relaxed) >= skip ||
      seen_.fetch_add(1, std::memory_order_relaxed) >= skip) {
    return false;
  }
  Count(journal_->page().skipped);
  return true;
}

bool Recorder::Captures(CUstream stream) {
  driver::Driver::Capture capture = driver::Driver::Capture::kNone;
  // The driver does not tell for the legacy stream while another stream captures. A launch there is refused then.
  return driver_->StreamCapture(stream, &capture) != Result::kSuccess ||
         capture != driver::Driver::Capture::kNone;
}

CUresult Recorder::Measure(CUstream stream, const Command& command, Launch launch) {
  base::Clock& clock = driver_->clock();
  const base::ClockLock turn(clock, turn_);
  gpushare::record::Page& page = journal_->page();
  StopIfOver();
  if (!journal_->recording()) return launch();
  Begin();
  if (!journal_->recording()) return launch();
  if (cupti_ != nullptr) return MeasureByCupti(stream, launch);
  Pending measured{.command = command,
                   .kit = nullptr,
                   .begin = nullptr,
                   .end = nullptr,
                   .late = false,
                   .together = false};
  Time before;
  bool keeps = false;
  {
    const books::Relaxed relaxed(driver_->table());
    measured.together = !Drain();
    measured.kit = KitOf(stream);
    if (measured.kit == nullptr) {
      Count(page.unmeasured);
      return launch();
    }
    before = clock.Now();
    keeps = measured.kit->Delay(stream, pace_.delay());
    measured.begin = measured.kit->Stamp(stream);
  }
  const CUresult result = launch();
  const books::Relaxed relaxed(driver_->table());
  if (result == CUDA_SUCCESS && measured.begin != nullptr) {
    measured.end = measured.kit->Stamp(stream);
  }
  if (measured.end == nullptr) {
    if (result == CUDA_SUCCESS) Count(page.unmeasured);
    if (measured.begin != nullptr) measured.kit->GiveBack(measured.begin);
    return result;
  }
  const bool late = pace_.Took(clock.Now() - before);
  measured.late = late || !keeps;
  if (first_ == kNever) first_ = before;
  pending_.push_back(std::move(measured));
  if (waited_in_vain_ < kGiveUp && !Await(clock.Now() + kPatience)) ++waited_in_vain_;
  return result;
}

// ---- By CUPTI ----

void Recorder::Begin() {
  if (std::exchange(begun_, true)) return;
  gpushare::record::Page& page = journal_->page();
  const gpushare::record::How how = journal_->orders().how;
  std::string why;
  if (how != gpushare::record::How::kEvents) {
    const books::Relaxed relaxed(driver_->table());
    cupti_ = Cupti::Open(*driver_, &why);
    if (cupti_ != nullptr && !cupti_->Start(&why)) cupti_ = nullptr;
  }
  why.copy(page.note, sizeof(page.note) - 1);
  page.how.store(cupti_ != nullptr ? gpushare::record::How::kCupti : gpushare::record::How::kEvents,
                 std::memory_order_relaxed);
  // The user asked for CUPTI only, so there is nothing to fall back to.
  if (cupti_ == nullptr && how == gpushare::record::How::kCupti) journal_->End();
}

// As with events, waits for an idle device before and after. The kernel's time comes from CUPTI.
CUresult Recorder::MeasureByCupti(CUstream stream, Launch launch) {
  const Time before = driver_->clock().Now();
  Kit* kit = nullptr;
  bool together = false;
  {
    const books::Relaxed relaxed(driver_->table());
    together = !Drain();
    kit = KitOf(stream);
  }
  const CUresult result = launch();
  if (result != CUDA_SUCCESS) return result;
  if (first_ == kNever) first_ = before;
  const books::Relaxed relaxed(driver_->table());
  const driver::Event end = kit != nullptr ? kit->Stamp(stream) : nullptr;
  if (end != nullptr) {
    pending_.push_back({.command = {},
                        .kit = kit,
                        .begin = nullptr,
                        .end = end,
                        .late = false,
                        .together = together});
    if (waited_in_vain_ < kGiveUp && !Await(driver_->clock().Now() + kPatience)) ++waited_in_vain_;
  }
  const uint64_t kept = journal_->page().kernels.load(std::memory_order_relaxed);
  if (++since_taken_ >= kTakeEvery || kept + since_taken_ >= journal_->orders().kernels) {
    TakeFromCupti();
  }
  return result;
}

void Recorder::TakeFromCupti() {
  since_taken_ = 0;
  gpushare::record::Page& page = journal_->page();
  for (const Cupti::Kernel& kernel : cupti_->Take()) {
    if (kernel.took < Nanos(0)) {
      Count(page.unmeasured);
      continue;
    }
    uint64_t per_sm = 0;
    {
      const base::MutexLock lock(&shapes_mutex_);
      const auto at = per_sm_.find({kernel.name, kernel.threads, kernel.dynamic_shared});
      if (at != per_sm_.end()) per_sm = at->second;
    }
    per_sm = std::max<uint64_t>(per_sm, 1);
    journal_->Append(kernel.name, (kernel.blocks + per_sm - 1) / per_sm, kernel.took);
  }
  page.unmeasured.fetch_add(cupti_->TakeDropped(), std::memory_order_relaxed);
}

// ---- Launches that have ended ----

bool Recorder::Drain() {
  gpushare::record::Page& page = journal_->page();
  while (!pending_.empty()) {
    Pending& oldest = pending_.front();
    const Result ended = driver_->QueryEvent(oldest.end);
    if (ended == Result::kNotReady && pending_.size() < kMostPending) return false;
    if (oldest.begin == nullptr) {
      if (oldest.together) Count(page.together);
      oldest.kit->GiveBack(oldest.end);
      pending_.pop_front();
      continue;
    }
    bool known = false;
    const Nanos took = ended == Result::kSuccess
                           ? oldest.kit->Between(oldest.begin, oldest.end, &known)
                           : Nanos(0);
    if (!known) {
      Count(page.unmeasured);
    } else if (journal_->Append(oldest.command.name, oldest.command.sms, took)) {
      if (oldest.command.graph) Count(page.graphs);
      if (oldest.late) Count(page.late);
      if (oldest.together) Count(page.together);
    }
    oldest.kit->GiveBack(oldest.begin);
    oldest.kit->GiveBack(oldest.end);
    pending_.pop_front();
  }
  return true;
}

bool Recorder::Await(Time deadline) {
  base::Clock& clock = driver_->clock();
  const Time begin = clock.Now();
  while (!Drain()) {
    const Time now = clock.Now();
    if (now >= deadline) return false;
    const Nanos waited = now - begin;
    if (!driver_->simulated() && waited < kSpin) continue;
    clock.SleepUntil(now + std::clamp(waited / 16, Micros(2), Millis(1)));
  }
  return true;
}

void Recorder::StopIfOver() {
  const int64_t most = journal_->orders().nanoseconds;
  if (most > 0 && first_ != kNever && driver_->clock().Now() - first_ >= Nanos(most)) {
    if (cupti_ != nullptr) TakeFromCupti();
    journal_->End();
  }
  if (journal_->recording()) return;
  if (cupti_ != nullptr) cupti_->Stop();
  working.store(nullptr, std::memory_order_release);
}

void Recorder::Stop() {
  const base::ClockLock turn(driver_->clock(), turn_, driver_->clock().Now() + kPatience);
  if (!turn) return;
  if (!pending_.empty()) Await(driver_->clock().Now() + kPatience);
  if (cupti_ != nullptr && journal_->recording()) TakeFromCupti();
}

// ---- The context and the width of a launch ----

Kit* Recorder::KitOf(CUstream stream) {
  CUcontext context = nullptr;
  const Result found = work::Streams::IsSpecial(stream) ? driver_->CurrentContext(&context)
                                                        : driver_->StreamContext(stream, &context);
  if (found != Result::kSuccess || context == nullptr) return nullptr;
  std::unique_ptr<Kit>& kit = kits_[context];
  if (kit == nullptr) {
    kit = Kit::Make(*driver_, context, pace_, /*waits=*/cupti_ == nullptr);
    if (kit == nullptr) return nullptr;
    journal_->page().bias_ns.store(kit->bias().count(), std::memory_order_relaxed);
  }
  return kit.get();
}

uint64_t Recorder::PerSm(CUfunction function, uint64_t threads, uint32_t shared_bytes) {
  int per_sm = 0;
  if (threads == 0 || threads > 1u << 16 ||
      driver_->BlocksPerSm(&per_sm, function, static_cast<int>(threads), shared_bytes) !=
          Result::kSuccess) {
    return 0;
  }
  const auto known = static_cast<uint64_t>(std::max(per_sm, 0));
  std::string name = names_.Find(function);
  const base::MutexLock lock(&shapes_mutex_);
  per_sm_[{std::move(name), threads, shared_bytes}] = known;
  return known;
}

uint64_t Recorder::SmsOf(CUfunction function, const driver::LaunchShape& shape) {
  const uint64_t blocks = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  const uint64_t per_sm =
      PerSm(function, uint64_t{shape.block.x} * shape.block.y * shape.block.z, shape.shared_bytes);
  return per_sm == 0 ? blocks : (blocks + per_sm - 1) / per_sm;
}

// ---- Graphs ----

void Recorder::AddKernelsOf(CUgraph graph, Exec* exec) {
  const driver::Table& table = driver_->table();
  size_t count = 0;
  if (table.GraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return;
  std::vector<CUgraphNode> nodes(count);
  if (table.GraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
  nodes.resize(count);
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUgraph child = nullptr;
    if (table.GraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        table.GraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
      AddKernelsOf(child, exec);
    }
    CUDA_KERNEL_NODE_PARAMS kernel{};
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    ++exec->kernels;
    if (Driver<"cuGraphKernelNodeGetParams_v2",
               CUresult(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*)>::Call(node, &kernel) !=
        CUDA_SUCCESS) {
      continue;
    }
    // A node has a function or a library's kernel. The occupancy call accepts either.
    const auto function =
        kernel.func != nullptr ? kernel.func : reinterpret_cast<CUfunction>(kernel.kern);
    exec->sms =
        std::max(exec->sms, SmsOf(function, {{kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ},
                                             {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ},
                                             kernel.sharedMemBytes}));
  }
}

void Recorder::Instantiated(CUgraphExec exec, CUgraph graph) {
  Exec known;
  AddKernelsOf(graph, &known);
  const base::MutexLock lock(&execs_mutex_);
  known.number = ++graphs_;
  execs_[exec] = known;
}

// ---- Contexts ----

void Recorder::ContextsEnd() {
  const work::Outermost outermost;
  const base::ClockLock turn(driver_->clock(), turn_);
  const books::Relaxed relaxed(driver_->table());
  Await(driver_->clock().Now() + kPatience);
  // Launches that have not ended by now are never measured.
  journal_->page().unmeasured.fetch_add(pending_.size(), std::memory_order_relaxed);
  pending_.clear();
  kits_.clear();
}

}  // namespace gpushare::shim::recording
