// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/sync.h"
#include "harness/spans.h"
#include "harness/stage/own_symbol.h"
#include "harness/stage/witness.h"
#include "workload/spin.h"

namespace gpushare::harness {
namespace {

using workload::SpinAwayLog, workload::SpinStamps;

// 320 MiB of stamps: more kernels than a GPU starts in a minute.
constexpr size_t kMostStamps = size_t{8} << 20;
// Extra room for kernels that are still queued when the run ends.
constexpr size_t kQueued = 8192;
// With slices of 2 ms, more than four minutes.
constexpr size_t kMostAway = size_t{1} << 16;
// An address that is never mapped: in the first pages.
constexpr uint64_t kNobodys = 0x1000;
// Longer than any run.
constexpr Nanos kEndless = Seconds(100'000);

struct Table {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;
  decltype(&cuCtxSynchronize) synchronize_all = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemAlloc) allocate = nullptr;
  decltype(&cuMemcpyHtoD) to_device = nullptr;
  decltype(&cuMemcpyDtoH) to_host = nullptr;
  decltype(&cuMemcpyDtoHAsync) to_host_async = nullptr;
  decltype(&cuMemGetInfo) memory = nullptr;
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleGetFunction) function = nullptr;
  decltype(&cuStreamCreate) stream = nullptr;
  decltype(&cuStreamGetCtx) context_of = nullptr;
  decltype(&cuStreamSynchronize) synchronize = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
};

absl::Status Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the witness: ", call, ": error ", static_cast<int>(result)));
}

// Readings of both clocks at the same instant.
struct Instant {
  int64_t host = 0, device = 0;
};

// Converts device times to ns since a run's start.
struct RunClock {
  Instant at;
  double rate = 1;  // host nanoseconds per device nanosecond
  Time start;
  int64_t Since(uint64_t device) const {
    const auto passed = static_cast<double>(static_cast<int64_t>(device) - at.device);
    return at.host + static_cast<int64_t>(passed * rate) - start.time_since_epoch().count();
  }
};

class Stamps final : public Witness {
 public:
  explicit Stamps(const Plan& plan)
      : path_(plan.outcome + ".spans"), length_(plan.length), green_(plan.green) {}

  absl::Status Open(const std::string& path) {
    GPUSHARE_RETURN_IF_ERROR(OpenLibrary(path));
    std::string lacks;
    const auto find = [&](auto* out, const char* name) {
      *out = reinterpret_cast<std::remove_pointer_t<decltype(out)>>(OwnSymbol(library(), name));
      if (*out == nullptr) lacks = name;
    };
    find(&driver_.init, "cuInit");
    find(&driver_.retain, "cuDevicePrimaryCtxRetain");
    find(&driver_.push, "cuCtxPushCurrent_v2");
    find(&driver_.pop, "cuCtxPopCurrent_v2");
    find(&driver_.synchronize_all, "cuCtxSynchronize");
    find(&driver_.attribute, "cuDeviceGetAttribute");
    find(&driver_.allocate, "cuMemAlloc_v2");
    find(&driver_.to_device, "cuMemcpyHtoD_v2");
    find(&driver_.to_host, "cuMemcpyDtoH_v2");
    find(&driver_.to_host_async, "cuMemcpyDtoHAsync_v2");
    find(&driver_.memory, "cuMemGetInfo_v2");
    find(&driver_.load, "cuModuleLoadData");
    find(&driver_.function, "cuModuleGetFunction");
    find(&driver_.stream, "cuStreamCreate");
    find(&driver_.context_of, "cuStreamGetCtx");
    find(&driver_.synchronize, "cuStreamSynchronize");
    find(&driver_.launch, "cuLaunchKernel");
    return lacks.empty() ? absl::OkStatus()
                         : absl::InternalError(absl::StrCat("the driver lacks ", lacks));
  }

  absl::Status Follow(CUstream_st* stream, uint32_t account, size_t kernels) override {
    const Current primary(*this);
    GPUSHARE_RETURN_IF_ERROR(primary.status());
    if (accounts_.empty()) GPUSHARE_RETURN_IF_ERROR(Begin());
    while (accounts_.size() < account) accounts_.emplace_back();
    Account& one = accounts_[account - 1];
    // Kernels write to memory of their own context. Green contexts share the primary context's memory.
    one.context = context_;
    if (!green_) {
      GPUSHARE_RETURN_IF_ERROR(Check(driver_.context_of(stream, &one.context), "cuStreamGetCtx"));
    }
    const Current current(*this, one.context);
    GPUSHARE_RETURN_IF_ERROR(current.status());
    one.room = std::min(kernels + kernels / 4 + kQueued, kMostStamps);
    one.alone_ns.reset(new int64_t[one.room]);  // untouched pages take no memory
    GPUSHARE_RETURN_IF_ERROR(
        Check(driver_.stream(&one.copies, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
    GPUSHARE_ASSIGN_OR_RETURN(one.away, MakeLog());
    return MakeFresh(&one.stamps, one.room, one.away);
  }
  uint64_t NextStamps(uint32_t account, Nanos alone) override {
    Account& one = accounts_[account - 1];
    const size_t which = one.launched.load(std::memory_order_relaxed);
    if (which < one.room) one.alone_ns[which] = alone.count();
    one.launched.store(which + 1, std::memory_order_release);
    return which < one.room ? one.stamps + which * sizeof(SpinStamps) : 0;
  }

  bool knows_now() const override { return false; }
  absl::Status Tell(Time start, Outcome* outcome) override {
    const Current current(*this);
    GPUSHARE_RETURN_IF_ERROR(current.status());
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.synchronize_all(), "cuCtxSynchronize"));
    GPUSHARE_ASSIGN_OR_RETURN(const Instant end, Correlate());
    // The clocks drift apart by some ten microseconds per second.
    const double rate = end.device > begin_.device
                            ? static_cast<double>(end.host - begin_.host) /
                                  static_cast<double>(end.device - begin_.device)
                            : 1;
    std::vector<KernelSpans> spans;
    for (const Account& one : accounts_) {
      GPUSHARE_ASSIGN_OR_RETURN(KernelSpans its, SpansOf(one, {begin_, rate, start}));
      spans.push_back(std::move(its));
    }
    outcome->sms = sms_;
    return WriteSpans(path_, spans);
  }
  absl::Status TellSoFar(Time start, Outcome* outcome) override {
    std::vector<KernelSpans> spans;
    for (Account& one : accounts_) {
      // The clocks are not compared again: a kernel that never ends may leave no SM for that.
      absl::StatusOr<KernelSpans> its = SpansOf(one, {begin_, 1, start});
      if (absl::IsResourceExhausted(its.status())) return its.status();
      // Not held across calls of the driver. If the context was lost, what was known before remains.
      const base::MutexLock lock(&mutex_);
      if (its.ok()) one.known = *std::move(its);
      spans.push_back(one.known);
    }
    outcome->sms = sms_;
    return WriteSpans(path_, spans);
  }

  uint64_t MemoryUsed() const override {
    const Current current(*this);
    size_t free = 0, total = 0;
    if (!current.status().ok() || driver_.memory(&free, &total) != CUDA_SUCCESS) return 0;
    return total - free;
  }
  absl::Status MakeIllegal(const std::string&, player::Step* step) override {
    step->stamps = kNobodys;  // the kernel writes there when it ends
    return absl::OkStatus();
  }
  absl::Status MakeEndless(const std::string&, uint32_t account, Time at,
                           player::Step* step) override {
    step->duration_ns = step->block_ns = static_cast<uint64_t>(kEndless.count());
    // Such a kernel never writes its stamps.
    Account& one = accounts_[account - 1];
    one.endless_sms.store(static_cast<int>(step->grid), std::memory_order_relaxed);
    one.endless_from.store(at.time_since_epoch().count(), std::memory_order_release);
    return absl::OkStatus();
  }

 private:
  struct Account {
    CUcontext context = nullptr;
    CUstream copies = nullptr;
    CUdeviceptr stamps = 0, away = 0;
    size_t room = 0;
    std::atomic<size_t> launched{0};           // releases the entries of `alone_ns`
    std::unique_ptr<int64_t[]> alone_ns = {};  // by kernel
    std::atomic<int64_t> endless_from{
        0};  // start of an endless kernel, by the host's clock; 0: none
    std::atomic<int> endless_sms{0};
    KernelSpans known = {};  // under the mutex
  };

  // The spans of all kernels that have ended, and of an endless one until now.
  absl::StatusOr<KernelSpans> SpansOf(const Account& one, const RunClock& clock) const {
    const size_t launched = one.launched.load(std::memory_order_acquire);
    if (launched > one.room) {
      return absl::ResourceExhaustedError(absl::StrCat("the witness had room for ", one.room,
                                                       " kernels of a tenant, which launched ",
                                                       launched, "; make the run shorter"));
    }
    const Current current(*this, one.context);
    GPUSHARE_RETURN_IF_ERROR(current.status());
    std::vector<SpinStamps> stamps(launched);
    GPUSHARE_RETURN_IF_ERROR(
        ToHost(one, stamps.data(), one.stamps, stamps.size() * sizeof(SpinStamps)));
    KernelSpans spans;
    for (size_t k = 0; k < stamps.size(); ++k) {
      const SpinStamps& each = stamps[k];
      if (each.last == 0) continue;  // the launch was refused, or has not ended
      spans.push_back({clock.Since(each.first), clock.Since(each.last),
                       static_cast<int64_t>(each.ran), static_cast<int64_t>(each.cycles),
                       one.alone_ns[k]});
    }
    if (const int64_t from = one.endless_from.load(std::memory_order_acquire); from != 0) {
      const int64_t first = from - clock.start.time_since_epoch().count();
      const int64_t on_each = std::max<int64_t>(length_.count() - first, 0);
      const int sms = std::min(one.endless_sms.load(std::memory_order_relaxed), sms_);
      spans.push_back({first, first + on_each, on_each * sms, 0, 0});
    }
    GPUSHARE_ASSIGN_OR_RETURN(const std::vector<SpinAwayLog::Entry> log, ReadLog(one));
    std::vector<Away> away;
    for (const SpinAwayLog::Entry& each : log) {
      away.push_back({clock.Since(each.from), clock.Since(each.until)});
    }
    CutAway(std::move(away), &spans);
    return spans;
  }

  // Copies on a stream of its own, so that it does not wait for other work on the device.
  absl::Status ToHost(const Account& one, void* to, CUdeviceptr from, size_t bytes) const {
    if (bytes == 0) return absl::OkStatus();
    GPUSHARE_RETURN_IF_ERROR(
        Check(driver_.to_host_async(to, from, bytes, one.copies), "cuMemcpyDtoHAsync"));
    return Check(driver_.synchronize(one.copies), "cuStreamSynchronize");
  }

  // A scope in which a context is current; without one, the primary context of the first device, which tenants use.
  class Current {
   public:
    explicit Current(const Stamps& of, CUcontext context = nullptr) : of_(of) {
      if (of.context_ == nullptr) {
        status_ = Check(of.driver_.init(0), "cuInit");
        if (status_.ok()) {
          status_ = Check(of.driver_.retain(&of.context_, 0), "cuDevicePrimaryCtxRetain");
        }
      }
      if (status_.ok()) {
        status_ =
            Check(of.driver_.push(context == nullptr ? of.context_ : context), "cuCtxPushCurrent");
      }
    }
    ~Current() {
      CUcontext popped = nullptr;
      if (status_.ok()) of_.driver_.pop(&popped);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    const absl::Status& status() const { return status_; }

   private:
    const Stamps& of_;
    absl::Status status_;
  };

  absl::Status Begin() {
    workload::KernelTrace trace("witness");
    trace.Add("instant", workload::Bound::kUnknown, 1, Micros(1));
    GPUSHARE_ASSIGN_OR_RETURN(const workload::SpinModule spin, workload::MakeSpinModule(trace));
    CUmodule module = nullptr;
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.load(&module, spin.ptx.c_str()), "cuModuleLoadData"));
    GPUSHARE_RETURN_IF_ERROR(Check(
        driver_.function(&instant_, module, spin.entries.front().c_str()), "cuModuleGetFunction"));
    GPUSHARE_RETURN_IF_ERROR(
        Check(driver_.stream(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
    GPUSHARE_RETURN_IF_ERROR(
        Check(driver_.attribute(&sms_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
              "cuDeviceGetAttribute"));
    GPUSHARE_RETURN_IF_ERROR(MakeFresh(&word_, 1, /*away=*/0));
    GPUSHARE_ASSIGN_OR_RETURN(begin_, Correlate());
    return absl::OkStatus();
  }

  absl::Status MakeFresh(CUdeviceptr* stamps, size_t count, CUdeviceptr away) const {
    const std::vector<SpinStamps> fresh(count, SpinStamps{.away = away});
    GPUSHARE_RETURN_IF_ERROR(
        Check(driver_.allocate(stamps, count * sizeof(SpinStamps)), "cuMemAlloc"));
    return Put(*stamps, fresh.data(), count * sizeof(SpinStamps));
  }

  absl::StatusOr<CUdeviceptr> MakeLog() const {
    const SpinAwayLog fresh{.room = kMostAway};
    CUdeviceptr log = 0;
    GPUSHARE_RETURN_IF_ERROR(
        Check(driver_.allocate(&log, sizeof(fresh) + kMostAway * sizeof(SpinAwayLog::Entry)),
              "cuMemAlloc"));
    GPUSHARE_RETURN_IF_ERROR(Put(log, &fresh, sizeof(fresh)));
    return log;
  }

  absl::StatusOr<std::vector<SpinAwayLog::Entry>> ReadLog(const Account& one) const {
    SpinAwayLog head;
    GPUSHARE_RETURN_IF_ERROR(ToHost(one, &head, one.away, sizeof(head)));
    if (head.count > kMostAway) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the witness had room for ", kMostAway,
                       " times that the device was another process's, of which "
                       "there were ",
                       head.count, "; make the run shorter"));
    }
    std::vector<SpinAwayLog::Entry> entries(head.count);
    GPUSHARE_RETURN_IF_ERROR(
        ToHost(one, entries.data(), one.away + sizeof(head), entries.size() * sizeof(entries[0])));
    return entries;
  }

  // The call may return before the copy is done, and non-blocking streams do not wait for it: synchronise.
  absl::Status Put(CUdeviceptr to, const void* from, size_t bytes) const {
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.to_device(to, from, bytes), "cuMemcpyHtoD"));
    return Check(driver_.synchronize_all(), "cuCtxSynchronize");
  }

  // Reads both clocks in the middle of the shortest of several round trips. The error is at most half of the trip's time outside
  // the kernel, a few microseconds.
  absl::StatusOr<Instant> Correlate() {
    constexpr int kTrips = 25;
    Instant best;
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < kTrips; ++i) {
      SpinStamps stamps;
      GPUSHARE_RETURN_IF_ERROR(Put(word_, &stamps, sizeof(stamps)));
      uint64_t duration_ns = 1000, block_ns = 1000, to = word_;
      void* params[] = {&duration_ns, &block_ns, &to};
      const int64_t before = clock().Now().time_since_epoch().count();
      GPUSHARE_RETURN_IF_ERROR(
          Check(driver_.launch(instant_, 1, 1, 1, 32, 1, 1, 0, stream_, params, nullptr),
                "cuLaunchKernel"));
      GPUSHARE_RETURN_IF_ERROR(Check(driver_.synchronize(stream_), "cuStreamSynchronize"));
      const int64_t took = clock().Now().time_since_epoch().count() - before;
      GPUSHARE_RETURN_IF_ERROR(
          Check(driver_.to_host(&stamps, word_, sizeof(stamps)), "cuMemcpyDtoH"));
      if (stamps.last == 0) return absl::InternalError("the witness: a kernel wrote no stamps");
      if (took >= shortest) continue;
      shortest = took;
      best = {before + took / 2,
              static_cast<int64_t>(stamps.first + (stamps.last - stamps.first) / 2)};
    }
    return best;
  }

  const std::string path_;
  const Nanos length_;  // of the run
  const bool green_;
  Table driver_;
  mutable CUcontext context_ = nullptr;  // first set by the conductor's thread
  int sms_ = 1;
  CUfunction instant_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr word_ = 0;
  Instant begin_;
  base::Mutex mutex_;
  std::deque<Account> accounts_;  // complete before any tenant plays
};

}  // namespace

absl::StatusOr<std::unique_ptr<Witness>> OpenStamps(const Plan& plan) {
  auto stamps = std::make_unique<Stamps>(plan);
  GPUSHARE_RETURN_IF_ERROR(stamps->Open(plan.driver));
  return stamps;
}

}  // namespace gpushare::harness
