// SPDX-License-Identifier: Apache-2.0
// The C ABI: runtime, GPUs, clock, threads.
#include "device/process/runtime.h"

#include "base/interrupt.h"
#include "device/abi/c_abi.h"
#include "device/gpu/gpu.h"
#include "device/gpu/overhead.h"
#include "device/gpu/probe.h"
#include "device/process/scheduler.h"
#include "spec/text.h"

using namespace gpushare;
using namespace gpushare::device;

gpushare_status gpushare_runtime_create(const gpushare_runtime_options* options,
                                        gpushare_runtime* runtime) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_NOT_NULL(runtime);
    if (Handles::Table().forked()) {
      return absl::FailedPreconditionError(
          "this process was forked off from one that had a runtime, and no driver works on both "
          "sides of fork(): create the runtime after the fork only, or start the process anew (in "
          "Python, multiprocessing's start method 'spawn')");
    }
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_runtime_options known,
                              ReadStruct(options, "options", /*optional=*/true));
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> made, Runtime::Create(known));
    return NewHandle(runtime, std::move(made));
  });
}

gpushare_status gpushare_runtime_destroy(gpushare_runtime runtime) {
  return Guard([&]() -> absl::Status {
    const std::shared_ptr<Runtime> last = Handles::Take(runtime);
    if (last == nullptr) return BadHandle(runtime);
    static_cast<void>(TakeCloseReport());
    last->Close();
    return TakeCloseReport();
  });
}

gpushare_status gpushare_runtime_get_info(gpushare_runtime runtime, gpushare_runtime_info* info) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(owner, runtime);
    gpushare_runtime_info out = {};
    out.gpu_count = owner->gpu_count();
    out.driver_version = owner->driver().version();
    out.simulated = owner->driver().simulated() ? 1 : 0;
    std::strncpy(out.driver_path, owner->driver().path().c_str(), sizeof(out.driver_path) - 1);
    std::strncpy(out.broker_tenant, owner->broker_tenant().c_str(), sizeof(out.broker_tenant) - 1);
    return WriteStruct(info, out, "info");
  });
}

gpushare_status gpushare_runtime_symbol(gpushare_runtime runtime, const char* name, void** symbol) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(owner, runtime);
    GPUSHARE_NOT_NULL(name);
    GPUSHARE_NOT_NULL(symbol);
    void* found = owner->driver().Symbol(name);
    if (found == nullptr)
      return absl::NotFoundError(absl::StrCat("the driver does not export ", Quoted(name)));
    *symbol = found;
    return absl::OkStatus();
  });
}

gpushare_status gpushare_runtime_now(gpushare_runtime runtime, int64_t* ns) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(owner, runtime);
    GPUSHARE_NOT_NULL(ns);
    *ns = owner->clock().Now().time_since_epoch().count();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_runtime_sleep_until(gpushare_runtime runtime, int64_t ns) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(owner, runtime);
    owner->clock().SleepUntil(Time(Nanos(ns)));
    return absl::OkStatus();
  });
}

gpushare_status gpushare_thread_start(gpushare_runtime runtime, const char* name,
                                      void (*body)(void* argument), void* argument,
                                      gpushare_thread* thread) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(owner, runtime);
    GPUSHARE_NOT_NULL(body);
    GPUSHARE_NOT_NULL(thread);
    // The thread keeps the runtime and thereby its clock alive.
    return NewHandle(thread, std::make_shared<Thread>(owner->clock(), name == nullptr ? "" : name,
                                                      [owner, body, argument] { body(argument); }));
  });
}

gpushare_status gpushare_thread_join(gpushare_thread thread) {
  return Guard([&]() -> absl::Status {
    // Borrowed, not shared: on itself the thread cannot be destroyed meanwhile, and must not hold the last reference.
    const Thread* const own = Handles::Borrow(thread);
    if (own != nullptr && own->OnItself()) {
      return absl::FailedPreconditionError(
          "thread: joined from itself, for whose end it would wait");
    }
    const std::shared_ptr<Thread> last = Handles::Take(thread);
    if (last == nullptr) return BadHandle(thread);
    last->Join();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_thread_exchange_interrupt(gpushare_interrupt* interrupt) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_interrupt given, ReadStruct(interrupt, "interrupt"));
    GPUSHARE_RETURN_IF_ERROR(CheckStruct(interrupt, "interrupt"));
    const base::Interrupt before = base::ExchangeInterrupt({given.interrupted, given.context});
    gpushare_interrupt out = {};
    out.interrupted = before.asked;
    out.context = before.context;
    return WriteStruct(interrupt, out, "interrupt");
  });
}

gpushare_status gpushare_runtime_probe(gpushare_runtime runtime, const char* name,
                                       gpushare_gpu_probe* probe) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(owner, runtime);
    GPUSHARE_RETURN_IF_ERROR(CheckStruct(probe, "probe"));  // before a context is made
    return WriteStruct(probe, Probe(*owner, name == nullptr ? "0" : name), "probe");
  });
}

gpushare_status gpushare_gpu_open(gpushare_runtime runtime, const char* name,
                                  const gpushare_scheduler_options* options, gpushare_gpu* gpu) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(owner, runtime);
    GPUSHARE_NOT_NULL(gpu);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_scheduler_options known,
                              ReadStruct(options, "options", /*optional=*/true));
    GPUSHARE_ASSIGN_OR_RETURN(
        std::shared_ptr<Gpu> opened,
        owner->OpenGpu(name == nullptr ? "0" : name, options == nullptr ? nullptr : &known));
    return NewHandle(gpu, std::move(opened));
  });
}

absl::Status gpushare::device::TakeCloseReport() { return Gpu::TakeCloseReport(); }

gpushare_status gpushare_gpu_close(gpushare_gpu gpu) { return Destroy(gpu); }

gpushare_status gpushare_gpu_get_probe(gpushare_gpu gpu, gpushare_gpu_probe* probe) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_RETURN_IF_ERROR(CheckStruct(probe, "probe"));
    return WriteStruct(probe, Probe(*opened->runtime(), absl::StrCat(opened->ordinal())), "probe");
  });
}

gpushare_status gpushare_gpu_get_overhead(gpushare_gpu gpu, gpushare_overhead* overhead) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_RETURN_IF_ERROR(CheckStruct(overhead, "overhead"));
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_overhead found, Overhead(*opened));
    return WriteStruct(overhead, found, "overhead");
  });
}

gpushare_status gpushare_gpu_get_scheduler(gpushare_gpu gpu, gpushare_scheduler_options* options) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(opened, gpu);
    return WriteStruct(options, opened->scheduler(), "options");
  });
}
