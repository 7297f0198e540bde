// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/spans.h"
#include "harness/stage/own_symbol.h"
#include "harness/stage/witness.h"
#include "workload/spin.h"

namespace gpushare::harness {
namespace {

using workload::SpinAwayLog, workload::SpinStamps;

// 320 MiB of them: more than a GPU starts in a minute.
constexpr size_t kMostStamps = size_t{8} << 20;
// Beside as many as the device's time has room for: those that are queued when the run ends.
constexpr size_t kQueued = 8192;
// Of slices of 2 ms more than four minutes.
constexpr size_t kMostAway = size_t{1} << 16;

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
  decltype(&cuMemGetInfo) memory = nullptr;
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleGetFunction) function = nullptr;
  decltype(&cuStreamCreate) stream = nullptr;
  decltype(&cuStreamSynchronize) synchronize = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
};

absl::Status Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the witness: ", call, ": error ", static_cast<int>(result)));
}

// Both clocks at one time.
struct Instant {
  int64_t host = 0, device = 0;
};

class Stamps final : public Witness {
 public:
  explicit Stamps(const Plan& plan) : path_(plan.outcome + ".spans") {}

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
    find(&driver_.memory, "cuMemGetInfo_v2");
    find(&driver_.load, "cuModuleLoadData");
    find(&driver_.function, "cuModuleGetFunction");
    find(&driver_.stream, "cuStreamCreate");
    find(&driver_.synchronize, "cuStreamSynchronize");
    find(&driver_.launch, "cuLaunchKernel");
    return lacks.empty() ? absl::OkStatus()
                         : absl::InternalError(absl::StrCat("the driver lacks ", lacks));
  }

  absl::Status Follow(CUstream_st*, uint32_t account, size_t kernels) override {
    const Current current(*this);
    GPUSHARE_RETURN_IF_ERROR(current.status());
    if (accounts_.empty()) GPUSHARE_RETURN_IF_ERROR(Begin());
    accounts_.resize(std::max<size_t>(accounts_.size(), account));
    Account& one = accounts_[account - 1];
    one.room = std::min(kernels + kernels / 4 + kQueued, kMostStamps);
    one.alone_ns.reserve(one.room);
    GPUSHARE_ASSIGN_OR_RETURN(one.away, MakeLog());
    return MakeFresh(&one.stamps, one.room, one.away);
  }
  uint64_t NextStamps(uint32_t account, Nanos alone) override {
    Account& one = accounts_[account - 1];
    const size_t which = one.launched++;
    if (which >= one.room) return 0;
    one.alone_ns.push_back(alone.count());
    return one.stamps + which * sizeof(SpinStamps);
  }

  bool knows_now() const override { return false; }
  absl::Status Tell(Time start, Outcome* outcome) override {
    const Current current(*this);
    GPUSHARE_RETURN_IF_ERROR(current.status());
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.synchronize_all(), "cuCtxSynchronize"));
    GPUSHARE_ASSIGN_OR_RETURN(const Instant end, Correlate());
    // How fast the device's clock is by the host's: they drift apart by some ten microseconds a second.
    const double rate = end.device > begin_.device
                            ? static_cast<double>(end.host - begin_.host) /
                                  static_cast<double>(end.device - begin_.device)
                            : 1;
    const auto since_start = [&](uint64_t device) {
      const auto passed = static_cast<double>(static_cast<int64_t>(device) - begin_.device);
      return begin_.host + static_cast<int64_t>(passed * rate) - start.time_since_epoch().count();
    };
    std::vector<KernelSpans> spans(accounts_.size());
    for (size_t i = 0; i < accounts_.size(); ++i) {
      const Account& one = accounts_[i];
      if (one.launched > one.room) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "the witness had room for ", one.room, " kernels of tenant ", outcome->tenants[i].name,
            ", which launched ", one.launched, "; make the run shorter"));
      }
      std::vector<SpinStamps> stamps(one.launched);
      if (!stamps.empty()) {
        GPUSHARE_RETURN_IF_ERROR(
            Check(driver_.to_host(stamps.data(), one.stamps, stamps.size() * sizeof(SpinStamps)),
                  "cuMemcpyDtoH"));
      }
      for (size_t k = 0; k < stamps.size(); ++k) {
        const SpinStamps& each = stamps[k];
        if (each.last == 0) continue;  // it was refused
        spans[i].push_back({since_start(each.first), since_start(each.last),
                            static_cast<int64_t>(each.ran), static_cast<int64_t>(each.cycles),
                            one.alone_ns[k]});
      }
      GPUSHARE_ASSIGN_OR_RETURN(const std::vector<SpinAwayLog::Entry> log, ReadLog(one.away));
      std::vector<Away> away;
      for (const SpinAwayLog::Entry& each : log) {
        away.push_back({since_start(each.from), since_start(each.until)});
      }
      CutAway(std::move(away), &spans[i]);
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
  absl::Status MakeFaulty(const std::string&, bool) const override {
    return absl::UnimplementedError("faults are the simulated GPU's");
  }

 private:
  struct Account {
    CUdeviceptr stamps = 0, away = 0;
    size_t room = 0, launched = 0;
    std::vector<int64_t> alone_ns = {};  // by kernel
  };

  // The primary context of the first device, as the tenants have it, current while this is there.
  class Current {
   public:
    explicit Current(const Stamps& of) : of_(of) {
      if (of.context_ == nullptr) {
        status_ = Check(of.driver_.init(0), "cuInit");
        if (status_.ok()) {
          status_ = Check(of.driver_.retain(&of.context_, 0), "cuDevicePrimaryCtxRetain");
        }
      }
      if (status_.ok()) status_ = Check(of.driver_.push(of.context_), "cuCtxPushCurrent");
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

  absl::StatusOr<std::vector<SpinAwayLog::Entry>> ReadLog(CUdeviceptr log) const {
    SpinAwayLog head;
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.to_host(&head, log, sizeof(head)), "cuMemcpyDtoH"));
    if (head.count > kMostAway) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the witness had room for ", kMostAway,
                       " times that the device was another process's, of which "
                       "there were ",
                       head.count, "; make the run shorter"));
    }
    std::vector<SpinAwayLog::Entry> entries(head.count);
    if (entries.empty()) return entries;
    GPUSHARE_RETURN_IF_ERROR(Check(
        driver_.to_host(entries.data(), log + sizeof(head), entries.size() * sizeof(entries[0])),
        "cuMemcpyDtoH"));
    return entries;
  }

  // The call may be back before the device has it, and streams of ours do not wait for that.
  absl::Status Put(CUdeviceptr to, const void* from, size_t bytes) const {
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.to_device(to, from, bytes), "cuMemcpyHtoD"));
    return Check(driver_.synchronize_all(), "cuCtxSynchronize");
  }

  // The clocks in the middle of the shortest of some round trips: as exact as half of what such a trip takes beyond the
  // kernel, some microseconds.
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
  Table driver_;
  mutable CUcontext context_ = nullptr;  // by the conductor's thread first
  int sms_ = 1;
  CUfunction instant_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr word_ = 0;
  Instant begin_;
  std::vector<Account> accounts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Witness>> OpenStamps(const Plan& plan) {
  auto stamps = std::make_unique<Stamps>(plan);
  GPUSHARE_RETURN_IF_ERROR(stamps->Open(plan.driver));
  return stamps;
}

}  // namespace gpushare::harness
