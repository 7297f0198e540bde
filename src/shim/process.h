// SPDX-License-Identifier: Apache-2.0
// A program that knows nothing of gpushare, as a tenant.
//
// Its share of each GPU is what the environment says (environment.h), or the broker that it names (device/broker_share.h). A program that is linked with the SDK as well has
// the same engine, and what it creates there is beside the share of the process.
//
// Threading: thread-safe. It is made once and stays until the process ends.
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
  // InvalidArgument: the environment asks for what no GPU here can give. Unavailable: no driver.
  static absl::Status Attach(const gpushare_shim_driver& driver);
  // After Attach().
  static Process& Get() { return *process.load(std::memory_order_acquire); }
  // Null before Attach(), and in a forked child: no driver works there, nor do its threads and locks.
  static Process* Find() { return working.load(std::memory_order_acquire); }

  const driver::Table& driver() const { return *driver_; }
  books::Books& books() { return *books_; }
  work::Calls& calls() { return *calls_; }
  // The same after Attach(), in a forked child too, where they know no stream.
  static work::Calls& CallsAtOnce() { return *calls_at_once.load(std::memory_order_acquire); }
  // Who pays for what is put on a device: on each its share there.
  work::Payer payer() const { return {.gates = &gates_}; }
  // The driver's own function by exported name; null: it has none.
  void* Real(const char* name) const { return runtime_->driver().Symbol(name); }

  // The share that the calling thread's memory is charged to: that of its current context's GPU. Null and not
  // `refused`: it has no context, and the driver's own answer is the right one. Refused: there is no share to be had,
  // and nothing may be taken; `answer` says why.
  struct Found {
    device::VirtualDevice* share = nullptr;
    bool refused = false;
    CUresult answer = CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext context = nullptr;
    CUdevice device = -1;  // -1: that of the context
  };
  Found Share() {
    CUcontext context = nullptr;
    // What changes contexts past the hooks must not have another GPU's quota pay.
    const CUresult result = several_gpus_ ? driver_->CtxGetCurrent(&context)
                                          : driver::CurrentContext::Get(*driver_, &context);
    if (result != CUDA_SUCCESS || context == nullptr) return {};
    const Seen& seen = LastSeen();
    if (seen.context == context && seen.epoch == epoch_.load(std::memory_order_acquire)) [[likely]]
      return {.share = seen.share, .context = context};
    return ShareOf(context);
  }
  // That of a stream's GPU: calls on a stream need no current context, nor one of that GPU.
  Found ShareFor(CUstream stream) {
    const CUdevice device =
        work::Streams::IsSpecial(stream) ? -1 : calls_->DeviceOf(payer(), stream);
    return device < 0 ? Share() : ShareOn(device);
  }
  // The share on a GPU that the call names itself.
  Found ShareOn(CUdevice device);
  // Whether this is a child of the process that attached: no driver works there, nor do its threads and locks.
  static bool Forked() { return forked.load(std::memory_order_relaxed); }
  // The share's memory on a GPU, which need not be in use yet; `total` where there is no quota.
  uint64_t MemoryOf(CUdevice device, uint64_t total) const;

  // For who has a device's name only. What it has of its own is there once something of the GPU was used.
  struct OfGpu {
    std::string uuid;
    std::optional<uint64_t> quota;  // nothing: none
    device::VirtualDevice* share = nullptr;
    int ordinal = -1;
  };
  // Nothing: the driver does not show it to this process.
  std::optional<OfGpu> FindGpu(const std::string& uuid);
  Time Now() const { return runtime_->clock().Now(); }
  // Who pays for memory: a share that was found.
  books::Payer PayerOf(const Found& found) {
    return {.account = &found.share->account(),
            .owner = books::kNobody,
            .context = found.context,
            .device = found.device,
            .room = &rooms_[static_cast<size_t>(found.share->gpu().ordinal())]};
  }
  // When it became a tenant.
  Time since() const { return since_; }
  // A context has ended, and its address may be another's soon.
  void ForgetContexts() { epoch_.fetch_add(1, std::memory_order_release); }

 private:
  Process() = default;
  device::VirtualDevice* ShareOf(int ordinal);
  Found ShareOf(CUcontext current);
  std::vector<OfGpu> Gpus();  // by ordinal, without shares
  // Room in the share on a GPU, waited for as long as the environment says.
  struct RoomOn final : books::Room {
    quota::Grant Reserve(quota::Account& account, uint64_t bytes) override;
    bool waits() const override { return process->over_quota_wait_ > Nanos(0); }
    Process* process = nullptr;
    int ordinal = -1;
  };
  // Where a thread was last.
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
  std::vector<OfGpu> gpus_ ABSL_GUARDED_BY(gpus_mutex_);  // empty: not asked for yet

  static constexpr int kMostGpus = work::Gates::kDevices;
  std::array<std::atomic<device::VirtualDevice*>, kMostGpus> shares_{};
  std::array<RoomOn, kMostGpus> rooms_;
};

// Runs `call` as C code may be run: what it throws is out of memory. In a forked child the answer is the driver's own.
// A thread that is cancelled in a wait of the driver unwinds through here.
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

// Whether a thread may be cancelled in a call of the books (base/no_cancel.h). Where it is not, nothing has to be undone.
// To see to that takes two atomic operations, 10 ns: too much for what programs do often, and that the books undo.
enum class Cancelled { kLater, kInTheDriver };
struct MayBeCancelled {};
template <Cancelled kCancelled>
using WholeUnless =
    std::conditional_t<kCancelled == Cancelled::kLater, base::NoCancel, MayBeCancelled>;

// A call of the books that nobody pays for: frees, and what keeps count of references.
template <Cancelled kCancelled = Cancelled::kLater, typename Call>
CUresult Booked(const Call& call) {
  return Guarded([&] {
    [[maybe_unused]] const WholeUnless<kCancelled> whole;
    return call(Process::Get().books());
  });
}

// The _ptsz variants mean the per-thread stream by a null one.
inline CUstream PerThread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

// Of calls that may take memory of several GPUs, or name one: on each the share there pays.
inline std::optional<books::Payer> PayerOn(CUdevice device) {
  Process& process = Process::Get();
  const Process::Found found = process.ShareOn(device);
  if (found.refused) return std::nullopt;
  return process.PayerOf(found);
}

// `charged(books, payer)` with the share that `find` finds, else `plain(table)`.
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
