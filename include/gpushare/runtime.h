// SPDX-License-Identifier: Apache-2.0
// The runtime: the driver, its GPUs and the clock. A process has one.
//
//   absl::StatusOr<Runtime> runtime =
//       Runtime::Create({.driver = "sim", .simulation = "memory=16GiB"});
//   if (!runtime.ok()) return Fail(runtime.status());   // says how to get the simulated GPU
//   std::cout << runtime->info()->driver_path << "\n";
//   absl::StatusOr<Gpu> gpu = Gpu::Open(*runtime, "0");
//
// Errors: Unavailable if there is no driver, or the requested broker is not there. Threading: everything is thread-safe,
// except moving and destroying. It may be destroyed while GPUs or tenants exist: they keep what they need.
#ifndef GPUSHARE_RUNTIME_H_
#define GPUSHARE_RUNTIME_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/handle.h"
#include "gpushare/internal/text.h"
#include "gpushare/units.h"

namespace gpushare {

struct RuntimeOptions {
  // Path or soname of the driver, or "sim" for the simulated GPU. Empty: GPUSHARE_DRIVER, else
  // libcuda.so.1.
  std::string driver = "";
  // Configuration of the simulated GPU, e.g. "memory=8GiB,clock=wall" (gpushare/testing/sim.h).
  std::string simulation = "";
  // Device memory of each GPU that is never promised, for contexts, modules and libraries. Default:
  // GPUSHARE_MEMORY_RESERVE if set, else the larger of 256 MiB and 1 % of the device's memory, at most half of it.
  std::optional<Bytes> memory_reserve = std::nullopt;
  // Socket of the node's broker, which divides each GPU among processes: the runtime's virtual devices together get
  // what this process's tenant is granted there. Default: GPUSHARE_BROKER if set. Empty or "none": no broker, whatever
  // the environment says.
  std::optional<std::string> broker = std::nullopt;
  // The tenant as which this process registers with the broker (default: GPUSHARE_TENANT), and the share that it asks
  // for if the broker lets its tenants ask (default: GPUSHARE_SPEC).
  std::optional<std::string> broker_tenant = std::nullopt, broker_spec = std::nullopt;
};

struct RuntimeInfo {
  int gpu_count = 0;
  int driver_version = 0;  // 13000 is CUDA 13.0
  bool simulated = false;
  std::string driver_path;
  std::string broker_tenant;  // this process's tenant at its broker; empty: no broker
};

// A thread on the runtime's clock. Joins when destroyed.
class Thread {
 public:
  Thread() = default;
  ~Thread() { Join(); }
  Thread(Thread&& other) noexcept
      : body_(std::move(other.body_)), thread_(std::exchange(other.thread_, nullptr)) {}
  Thread& operator=(Thread&& other) noexcept {
    Join();
    body_ = std::move(other.body_);
    thread_ = std::exchange(other.thread_, nullptr);
    return *this;
  }

  // Waits for the thread's end; call it from a thread on the same clock. Later calls do nothing.
  void Join() {
    if (thread_ != nullptr) static_cast<void>(gpushare_thread_join(thread_));
    thread_ = nullptr;
  }

 private:
  friend class Runtime;
  std::unique_ptr<std::function<void()>> body_;
  gpushare_thread thread_ = nullptr;
};

class Runtime {
 public:
  static absl::StatusOr<Runtime> Create(const RuntimeOptions& options = {}) {
    absl::Status text = internal::CheckText("driver", options.driver);
    text.Update(internal::CheckText("simulation", options.simulation));
    text.Update(internal::CheckText("broker", options.broker.value_or("")));
    text.Update(internal::CheckText("broker_tenant", options.broker_tenant.value_or("")));
    text.Update(internal::CheckText("broker_spec", options.broker_spec.value_or("")));
    if (!text.ok()) return text;
    gpushare_runtime_options c = {};
    c.struct_size = sizeof(c);
    c.driver = options.driver.c_str();
    c.simulation = options.simulation.empty() ? nullptr : options.simulation.c_str();
    if (options.memory_reserve) {
      c.memory_reserve = options.memory_reserve->count();
      c.no_memory_reserve = c.memory_reserve == 0;
    }
    if (options.broker) c.broker = options.broker->c_str();
    if (options.broker_tenant) c.broker_tenant = options.broker_tenant->c_str();
    if (options.broker_spec) c.broker_spec = options.broker_spec->c_str();
    gpushare_runtime runtime = nullptr;
    const gpushare_status code = gpushare_runtime_create(&c, &runtime);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Runtime(runtime);
  }

  absl::StatusOr<RuntimeInfo> info() const {
    gpushare_runtime_info c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_runtime_get_info(handle_.get(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return RuntimeInfo{c.gpu_count, c.driver_version, c.simulated != 0, c.driver_path,
                       c.broker_tenant};
  }

  // The time of the clock for deadlines and statistics, since that clock's epoch: the simulated GPU's virtual clock, or
  // CLOCK_MONOTONIC.
  absl::Duration Now() const {
    int64_t ns = 0;
    static_cast<void>(gpushare_runtime_now(handle_.get(), &ns));
    return absl::Nanoseconds(ns);
  }
  void SleepUntil(absl::Duration when) const {
    static_cast<void>(gpushare_runtime_sleep_until(handle_.get(), absl::ToInt64Nanoseconds(when)));
  }
  void SleepFor(absl::Duration how_long) const { SleepUntil(Now() + how_long); }

  // Starts a thread on that clock. An exception that leaves `body` ends the program by std::terminate(), as with
  // std::thread. On the virtual clock one such thread runs at a time, and every run is the same; shares and latencies of
  // other threads mean nothing there. With a real GPU it is an ordinary thread.
  absl::StatusOr<Thread> StartThread(const std::string& name, std::function<void()> body) const {
    const absl::Status text = internal::CheckText("thread name", name);
    if (!text.ok()) return text;
    Thread thread;
    thread.body_ = std::make_unique<std::function<void()>>(std::move(body));
    const gpushare_status code = gpushare_thread_start(
        handle_.get(), name.c_str(),
        [](void* argument) noexcept { (*static_cast<std::function<void()>*>(argument))(); },
        thread.body_.get(), &thread.thread_);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return thread;
  }

  // A function of the loaded driver, for example from gpushare/testing/sim.h; null if it has no function of that name.
  template <typename Function>
  Function* Symbol(const char* name) const {
    void* symbol = nullptr;
    if (gpushare_runtime_symbol(handle_.get(), name, &symbol) != GPUSHARE_OK) return nullptr;
    return reinterpret_cast<Function*>(symbol);
  }

  gpushare_runtime handle() const { return handle_.get(); }

 private:
  explicit Runtime(gpushare_runtime handle) : handle_(handle) {}
  internal::Handle<gpushare_runtime, gpushare_runtime_destroy> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_RUNTIME_H_
