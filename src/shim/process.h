// SPDX-License-Identifier: Apache-2.0
// An unmodified program as a tenant.
//
// Its share of each GPU comes from the environment (environment.h), or from the broker that the environment names
// (device/broker_share.h). A program that also links the SDK uses the same engine; the virtual devices that it creates there
// are separate from the process's share.
//
// Threading: thread-safe. It is created once and lives until the process ends.
#ifndef GPUSHARE_SHIM_PROCESS_H_
#define GPUSHARE_SHIM_PROCESS_H_

#include <cuda.h>
#include <cxxabi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/no_cancel.h"
#include "base/sync.h"
#include "base/time.h"
#include "books/books.h"
#include "device/process/runtime.h"
#include "device/share/virtual_device.h"
#include "driver/current_context.h"
#include "driver/table.h"
#include "gpushare/c/gpushare.h"
#include "quota/ledger.h"
#include "shim/attach_abi.h"
#include "work/calls.h"

namespace gpushare::shim {

class Process {
 public:
  // InvalidArgument: the environment asks for more than a GPU can give. Unavailable: there is no driver.
  static absl::Status Attach(const gpushare_shim_driver& driver);
  // Call it only after Attach().
  static Process& Get() { return *process.load(std::memory_order_acquire); }
  // Null before Attach(), and in a forked child, where the driver, its threads and its locks do not work.
  static Process* Find() { return working.load(std::memory_order_acquire); }

  const driver::Table& driver() const { return *driver_; }
  books::Books& books() { return *books_; }
  work::Calls& calls() { return *calls_; }
  // The same object, without a Process. Call it only after Attach(). Works in a forked child too, where it knows no stream.
  static work::Calls& CallsAtOnce() { return *calls_at_once.load(std::memory_order_acquire); }
  // Pays for submitted work: on each device, the process's share there.
  work::Payer payer() const { return {.gates = &gates_}; }
  // The driver's own function by exported name; null if it has none.
  void* Real(const char* name) const { return runtime_->driver().Symbol(name); }

  // The share that pays for the calling thread's memory: that of its current context's GPU. A null share that is not `refused`
  // means that the thread has no context, so the driver's own answer is right. `refused` means that no share can be had, so
  // nothing may be allocated; `answer` is the error to return.
  struct Found {
    device::VirtualDevice* share = nullptr;
    bool refused = false;
    CUresult answer = CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext context = nullptr;
    CUdevice device = -1;  // -1: the context's
  };
  Found Share() {
    CUcontext context = nullptr;
    // With several GPUs, ask the driver: if code changes contexts past the hooks, a stale context would charge another GPU's
    // quota.
    const CUresult result = several_gpus_ ? driver_->CtxGetCurrent(&context)
                                          : driver::CurrentContext::Get(*driver_, &context);
    if (result != CUDA_SUCCESS || context == nullptr) return {};
    const Seen& seen = LastSeen();
    if (seen.context == context && seen.epoch == epoch_.load(std::memory_order_acquire)) [[likely]]
      return {.share = seen.share, .context = context};
    return ShareOf(context);
  }
  // The share on a stream's GPU. A call on a stream needs no current context, and the current one may be of another GPU.
  Found ShareFor(CUstream stream) {
    const CUdevice device =
        work::Streams::IsSpecial(stream) ? -1 : calls_->DeviceOf(payer(), stream);
    return device < 0 ? Share() : ShareOn(device);
  }
  // The share on a GPU that the call itself names.
  Found ShareOn(CUdevice device);
  // Whether this is a forked child of the process that attached. The driver, its threads and its locks do not work there.
  static bool Forked() { return forked.load(std::memory_order_relaxed); }
  // The share's quota on a GPU, or `total` if it has none. The GPU need not be in use yet.
  uint64_t MemoryOf(CUdevice device, uint64_t total) const;

  // A GPU that is known by its UUID. `share` is null until the process uses the GPU.
  struct OfGpu {
    std::string uuid;
    std::optional<uint64_t> quota;  // none: no quota
    device::VirtualDevice* share = nullptr;
    int ordinal = -1;
  };
  // Nothing if the driver does not show the GPU to this process.
  std::optional<OfGpu> FindGpu(const std::string& uuid);
  Time Now() const { return runtime_->clock().Now(); }
  // The payer for memory charged to `found.share`, which must not be null.
  books::Payer PayerOf(const Found& found) {
    return {.account = &found.share->account(),
            .owner = books::kNobody,
            .context = found.context,
            .device = found.device,
            .room = &rooms_[static_cast<size_t>(found.share->gpu().ordinal())]};
  }
  // When the process became a tenant.
  Time since() const { return since_; }
  // Call it when a context ends: a new context may get the same address.
  void ForgetContexts() { epoch_.fetch_add(1, std::memory_order_release); }

 private:
  Process() = default;
  device::VirtualDevice* ShareOf(int ordinal);
  Found ShareOf(CUcontext current);
  std::vector<OfGpu> Gpus();  // by ordinal, without shares
  // Reserves room in the share on a GPU, and waits for it as long as GPUSHARE_OVER_QUOTA allows.
  struct RoomOn final : books::Room {
    quota::Grant Reserve(quota::Account& account, uint64_t bytes) override;
    bool waits() const override { return process->over_quota_wait_ > Nanos(0); }
    Process* process = nullptr;
    int ordinal = -1;
  };
  // The context that a thread last used, with its share.
  struct Seen {
    CUcontext context = nullptr;
    uint64_t epoch = 0;
    device::VirtualDevice* share = nullptr;
  };
  static Seen& LastSeen() {
    static thread_local constinit Seen seen;
    return seen;
  }

  static std::atomic<Process*> process, working;
  static std::atomic<work::Calls*> calls_at_once;
  static std::atomic<bool> forked;

  std::shared_ptr<device::Runtime> runtime_;
  const driver::Table* driver_ = nullptr;
  books::Books* books_ = nullptr;  // the runtime's
  std::unique_ptr<work::Calls> calls_;
  work::Gates gates_;
  std::atomic<uint64_t> epoch_{1};
  bool several_gpus_ = false;
  Time since_{};
  Nanos over_quota_wait_{0};
  base::Mutex gpus_mutex_;
  std::vector<OfGpu> gpus_ ABSL_GUARDED_BY(gpus_mutex_);  // empty until first asked for

  static constexpr int kMostGpus = work::Gates::kDevices;
  std::array<std::atomic<device::VirtualDevice*>, kMostGpus> shares_{};
  std::array<std::atomic<bool>, kMostGpus> refusal_logged_{};
  std::array<RoomOn, kMostGpus> rooms_;
};

// Runs `call` for a C caller: an exception becomes an out-of-memory error. In a forked child it returns the driver's own error.
// The unwinding of a thread that is cancelled in a wait of the driver passes through.
template <typename Call>
CUresult Guarded(const Call& call) {
  if (Process::Forked()) return CUDA_ERROR_NOT_INITIALIZED;
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

// Whether a thread may be cancelled within a call of the books (base/no_cancel.h). If it may not, the call has nothing to undo.
// Deferring cancellation takes two atomic operations, 10 ns. That is too much for frequent calls whose cancellation the books
// can undo.
enum class Cancelled { kLater, kInTheDriver };
struct MayBeCancelled {};
template <Cancelled kCancelled>
using WholeUnless =
    std::conditional_t<kCancelled == Cancelled::kLater, base::NoCancel, MayBeCancelled>;

// Runs a call of the books that charges no account: frees, and calls that count references.
template <Cancelled kCancelled = Cancelled::kLater, typename Call>
CUresult Booked(const Call& call) {
  return Guarded([&] {
    [[maybe_unused]] const WholeUnless<kCancelled> whole;
    return call(Process::Get().books());
  });
}

// In the _ptsz variants a null stream means the per-thread default stream.
inline CUstream PerThread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

// The payer for calls that may take memory of several GPUs, or that name one: the share on GPU `device`. Nothing if there is no
// share.
inline std::optional<books::Payer> PayerOn(CUdevice device) {
  Process& process = Process::Get();
  const Process::Found found = process.ShareOn(device);
  if (found.refused) return std::nullopt;
  return process.PayerOf(found);
}

// Runs `charged(books, payer)` with the share that `find` finds, or `plain(table)` if the thread has no context.
template <Cancelled kCancelled = Cancelled::kLater, typename Find, typename Charged, typename Plain>
CUresult ChargeTo(const Find& find, const Charged& charged, const Plain& plain) {
  return Guarded([&]() -> CUresult {
    [[maybe_unused]] const WholeUnless<kCancelled> whole;
    Process& process = Process::Get();
    const Process::Found found = find(process);
    if (found.refused) return found.answer;
    if (found.share == nullptr) return plain(process.driver());
    return charged(process.books(), process.PayerOf(found)).result;
  });
}

template <typename Charged, typename Plain>
CUresult ChargeOn(CUstream stream, const Charged& charged, const Plain& plain) {
  return ChargeTo([stream](Process& process) { return process.ShareFor(stream); }, charged, plain);
}

template <Cancelled kCancelled = Cancelled::kLater, typename Charged, typename Plain>
CUresult Charge(const Charged& charged, const Plain& plain) {
  return ChargeTo<kCancelled>([](Process& process) { return process.Share(); }, charged, plain);
}

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_PROCESS_H_
