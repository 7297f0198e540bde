// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a program that calls all functions of the C ABI, with right and wrong arguments, on two
// simulated GPUs. Whatever it calls: each call returns a canonical code, never one for an internal error of gpushare;
// destroyed handles are refused as such; a call that failed has written nothing; and at the end the GPUs are empty.
#include "tests/fuzz/c_abi_fuzz.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpushare/c/gpushare.h"
#include "gpushare/testing/sim.h"
#include "tests/fuzz/c_abi_arguments.h"

namespace gpushare::fuzz {
namespace {

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns)
{
  ret;
}
)";

constexpr char kSimulation[] =
    "sms=16,memory=1GiB,clock=virtual,devices=2,h2d=10GB/s,d2h=10GB/s,watchdog=5s";

// The simulated GPU's own functions.
struct Sim {
  decltype(&gpushare_sim_reset) reset = nullptr;
  decltype(&gpushare_sim_thread_enter) enter = nullptr;
  decltype(&gpushare_sim_thread_leave) leave = nullptr;
  decltype(&gpushare_sim_memory_used) used = nullptr;
  decltype(&gpushare_sim_inject) inject = nullptr;

  explicit Sim(gpushare_runtime runtime) {
    Find(runtime, "gpushare_sim_reset", &reset);
    Find(runtime, "gpushare_sim_thread_enter", &enter);
    Find(runtime, "gpushare_sim_thread_leave", &leave);
    Find(runtime, "gpushare_sim_memory_used", &used);
    Find(runtime, "gpushare_sim_inject", &inject);
  }

 private:
  template <typename F>
  static void Find(gpushare_runtime runtime, const char* name, F* function) {
    void* found = nullptr;
    Require(gpushare_runtime_symbol(runtime, name, &found) == GPUSHARE_OK, name, "it is there");
    *function = reinterpret_cast<F>(found);
  }
};

class Program {
 public:
  explicit Program(Bytes bytes) : bytes_(bytes), host_(Bytes::kHostBytes) {}

  void Run() {
    Begin();
    while (bytes_.more()) {
      const std::vector<Function>& all = Functions();
      const Function& function = all[bytes_.Next() % all.size()];
      name_ = function.name;
      valid_ = true;
      static const bool trace = std::getenv("C_ABI_FUZZ_TRACE") != nullptr;
      if (trace) std::fprintf(stderr, "%s\n", name_);
      (this->*function.call)();
    }
    End();
  }

  static std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const Function& function : Functions()) names.push_back(function.name);
    return names;
  }

 private:
  struct Function {
    const char* name;
    void (Program::*call)();
  };
  static const std::vector<Function>& Functions();

  // ---- what every call answers ----

  void Answered(gpushare_status status) {
    Require(status >= GPUSHARE_OK && status <= GPUSHARE_UNAUTHENTICATED, name_, "a canonical code");
    Require(
        status != GPUSHARE_INTERNAL && status != GPUSHARE_UNKNOWN && status != GPUSHARE_DATA_LOSS,
        name_, "no fault of gpushare's own");
    if (!valid_)
      Require(status == GPUSHARE_INVALID_ARGUMENT, name_, "a handle that is over is refused");
    if (status != GPUSHARE_OK) {
      Require(*gpushare_last_message() != '\0', name_, "a refusal says why");
    }
  }
  template <typename... Outs>
  bool Answered(gpushare_status status, const Outs&... outs) {
    Answered(status);
    if (status != GPUSHARE_OK) {
      Require((outs.Unchanged() && ...), name_, "a call that failed has written nothing");
    }
    return status == GPUSHARE_OK;
  }
  // Records a new handle.
  template <typename H>
  bool Made(gpushare_status status, const Out<H>& out, Pool<H>* pool) {
    if (!Answered(status, out)) return false;
    Require(!out.is_null(), name_, "nothing is made for nobody");
    Require(!pool->Has(out.value()), name_, "a new handle is new");
    pool->Add(out.value());
    return true;
  }
  template <typename H>
  void Ended(gpushare_status status, H handle, Pool<H>* pool) {
    Answered(status);
    // A GPU that is closed while work still runs is closed.
    if (status == GPUSHARE_OK || status == GPUSHARE_DEADLINE_EXCEEDED) pool->End(handle);
  }

  // ---- arguments ----

  template <typename H>
  H Any(const Pool<H>& pool) {
    const unsigned how = bytes_.Next();
    if (how < 240 && !pool.live.empty()) return pool.live[how % pool.live.size()];
    H wrong = nullptr;
    switch (how % 4) {
      case 0:
        break;
      case 1:
        if (!pool.over.empty()) wrong = pool.over[bytes_.Next() % pool.over.size()];
        break;
      case 2:
        wrong = reinterpret_cast<H>(uint64_t{bytes_.Next()} << 56 | uint64_t{1} << 24 |
                                    bytes_.Next() % 8);
        break;
      default:
        wrong = vdevs_.live.empty() ? nullptr : reinterpret_cast<H>(vdevs_.live[0]);
    }
    if (!pool.Has(wrong)) valid_ = false;
    return wrong;
  }
  // Likewise for arguments for which null has a meaning.
  template <typename H>
  H AnyOrNull(const Pool<H>& pool) {
    const bool whole = valid_;
    const H handle = bytes_.Rarely(4) ? nullptr : Any(pool);
    if (handle == nullptr) valid_ = whole;
    return handle;
  }
  CUfunc_st* AnyFunction() {
    return functions_.empty() || bytes_.Rarely()
               ? nullptr
               : functions_[bytes_.Next() % functions_.size()].second;
  }
  CUstream_st* AnyNative() {
    if (natives_.empty() || bytes_.Rarely(4)) return nullptr;
    return natives_[bytes_.Next() % natives_.size()];
  }
  CUevent_st* AnyEvent() {
    if (native_events_.empty() || bytes_.Rarely()) return nullptr;
    return native_events_[bytes_.Next() % native_events_.size()];
  }
  gpushare_device_ptr AnyPointer() {
    const unsigned how = bytes_.Next();
    if (how < 230 && !pointers_.empty()) return pointers_[how % pointers_.size()];
    if (how < 240 && !freed_.empty()) return freed_[how % freed_.size()];
    constexpr gpushare_device_ptr kOdd[] = {0, 1, 4096, UINT64_MAX};
    return bytes_.Any(kOdd);
  }
  const char* AnyText() {
    constexpr const char* kTexts[] = {
        "0",
        "1",
        "a",
        "b",
        "",
        "spin",
        "-1",
        "2",
        "99999999999999999999",
        "GPU-",
        "\xff\xfe",
        "a\nb",
        "a name that is longer than the sixty-three bytes which the name of a tenant may have"};
    return bytes_.Rarely() ? nullptr : bytes_.Any(kTexts);
  }
  gpushare_shape AnyShape() {
    constexpr uint32_t kSides[] = {1, 1, 1, 16, 100, 0, 1024, 65'535, UINT32_MAX};
    if (!bytes_.Rarely(4)) return {{1 + bytes_.Next() % 20, 1, 1}, {1024, 1, 1}, 0};
    return {{bytes_.Any(kSides), bytes_.Any(kSides), bytes_.Any(kSides)},
            {bytes_.Any(kSides), bytes_.Any(kSides), bytes_.Any(kSides)},
            bytes_.Any(kSides)};
  }
  // The bytes of host memory that a copy may access, at most as many as there are.
  uint64_t HostBytes() { return std::min(bytes_.Size(), Bytes::kHostBytes); }
  void* Host() { return bytes_.Rarely() ? nullptr : host_.data(); }

  // ---- pointers, names ----

  void Took(gpushare_status status, const Out<gpushare_device_ptr>& out) {
    if (!Answered(status, out)) return;
    std::erase(pointers_, out.value());  // the old pointer ended with its context
    pointers_.push_back(out.value());
  }
  void Freed(gpushare_status status, gpushare_device_ptr pointer) {
    Answered(status);
    const auto at = std::find(pointers_.begin(), pointers_.end(), pointer);
    if (at == pointers_.end()) {
      // Another allocation may be in the place of a freed segment by now, but memory that nobody has cannot be freed.
      Require(status != GPUSHARE_OK || pointer == 0, name_, "what nobody has is not freed");
      return;
    }
    if (status != GPUSHARE_OK) return;
    pointers_.erase(at);
    freed_.push_back(pointer);
  }

  // A call that a suspended virtual device holds without a timeout would wait for ever.
  void ResumeAll() {
    for (gpushare_vdev vdev : vdevs_.live) gpushare_vdev_resume(vdev);
  }

  // ---- functions, in the order of the header ----

  void StatusName() {
    Require(gpushare_status_name(static_cast<gpushare_status>(bytes_.Small())) != nullptr, name_,
            "never null");
  }
  void LastMessage() { Require(gpushare_last_message() != nullptr, name_, "never null"); }
  void LastDetail() {
    const Struct<gpushare_error_detail> detail(&bytes_, {});
    const gpushare_status status = gpushare_last_detail(detail.get());
    Require(status == GPUSHARE_OK || detail.Unchanged(), name_,
            "a call that failed has written nothing");
  }
  void AbiVersion() {
    Require(gpushare_abi_version() == GPUSHARE_ABI_VERSION, name_, "this version");
  }
  void Version() { Require(gpushare_version() != nullptr, name_, "never null"); }

  void RuntimeCreate() {
    if (runtimes_.live.size() >= 2) return;
    gpushare_runtime_options options = {};
    constexpr const char* kDrivers[] = {"sim", "sim", "sim", "/nonexistent/libcuda.so.1"};
    constexpr const char* kSimulations[] = {nullptr, nullptr, "memory=700MiB", "="};
    constexpr const char* kBrokers[] = {nullptr, "none", "", "/nonexistent/broker.sock"};
    options.driver = bytes_.Any(kDrivers);
    options.simulation = bytes_.Any(kSimulations);
    options.memory_reserve = bytes_.Rarely(4) ? bytes_.Size() : 0;
    options.no_memory_reserve = bytes_.Small();
    options.broker = bytes_.Any(kBrokers);
    options.broker_tenant = bytes_.Rarely() ? AnyText() : nullptr;
    options.broker_spec = bytes_.Rarely() ? AnyText() : nullptr;
    const Struct<gpushare_runtime_options> given(&bytes_, options);
    if (given.get() == nullptr || given.get()->struct_size < sizeof options)
      return;  // the machine's own driver
    Out<gpushare_runtime> runtime(&bytes_);
    Made(gpushare_runtime_create(given.get(), runtime.get()), runtime, &runtimes_);
  }
  void RuntimeDestroy() {
    if (!bytes_.Rarely(4)) return;
    const gpushare_runtime runtime = Any(runtimes_);
    Ended(gpushare_runtime_destroy(runtime), runtime, &runtimes_);
  }
  void RuntimeGetInfo() {
    const gpushare_runtime runtime = Any(runtimes_);
    const Struct<gpushare_runtime_info> info(&bytes_, {});
    Answered(gpushare_runtime_get_info(runtime, info.get()), info);
  }
  void RuntimeSymbol() {
    const gpushare_runtime runtime = Any(runtimes_);
    Out<void*> symbol(&bytes_);
    Answered(gpushare_runtime_symbol(runtime, AnyText(), symbol.get()), symbol);
  }
  void RuntimeNow() {
    const gpushare_runtime runtime = Any(runtimes_);
    Out<int64_t> ns(&bytes_);
    Answered(gpushare_runtime_now(runtime, ns.get()), ns);
  }
  void RuntimeSleepUntil() {
    int64_t now = 0;
    gpushare_runtime_now(runtimes_.live.empty() ? nullptr : runtimes_.live[0], &now);
    const gpushare_runtime runtime = Any(runtimes_);
    const int64_t until[] = {INT64_MIN,        -1, 0, now, now + 1'000, now + 1'000'000,
                             now + 100'000'000};
    Answered(gpushare_runtime_sleep_until(runtime, bytes_.Any(until)));
  }

  // Things that a thread leaves open when it ends.
  struct Body {
    Program* program;
    unsigned what;
    gpushare_thread own = nullptr;
    static void Run(void* argument) {
      auto& body = *static_cast<Body*>(argument);
      Program& p = *body.program;
      const gpushare_vdev vdev = p.vdevs_.live.empty() ? nullptr : p.vdevs_.live[0];
      uint64_t scope = 0;
      if (body.what & 1) {
        gpushare_scope_enter(p.tenants_.live.empty() ? nullptr : p.tenants_.live[0], &scope);
      }
      if (body.what & 2) {
        gpushare_lease_options options = {};
        options.struct_size = sizeof options;
        options.exclusive = body.what & 4;
        gpushare_lease lease = nullptr;
        if (gpushare_lease_acquire(vdev, &options, &lease) == GPUSHARE_OK) p.leases_.Add(lease);
      }
      if (body.what & 8) {
        gpushare_stream stream = nullptr;
        if (gpushare_stream_create(vdev, &stream) == GPUSHARE_OK) {
          gpushare_stream_begin_capture(stream);
          p.streams_.Add(stream);
        }
      }
      if (body.what & 16) {
        gpushare_interrupt interrupt = {};
        interrupt.struct_size = sizeof interrupt;
        interrupt.interrupted = [](void*) { return 1; };
        gpushare_thread_exchange_interrupt(&interrupt);
        gpushare_device_ptr pointer = 0;
        if (!p.gpus_.live.empty() &&
            gpushare_gpu_alloc(p.gpus_.live[0], 4096, &pointer) == GPUSHARE_OK) {
          p.pointers_.push_back(pointer);
        }
      }
      if (body.what & 32) {
        Require(gpushare_thread_join(body.own) != GPUSHARE_OK, "gpushare_thread_join",
                "nobody waits for itself");
      }
      if (scope != 0) gpushare_scope_leave(scope);
    }
  };
  void ThreadStart() {
    const gpushare_runtime runtime = Any(runtimes_);
    Body body{this, bytes_.Next()};
    const char* const name = AnyText();
    const bool without = bytes_.Rarely();
    Out<gpushare_thread> thread(&bytes_);
    // The thread gets its turn when this one waits.
    if (!Answered(gpushare_thread_start(runtime, name, without ? nullptr : &Body::Run, &body,
                                        thread.get()),
                  thread))
      return;
    body.own = thread.value();
    // Gives it a turn before the join, while its handle is still valid.
    int64_t now = 0;
    if ((body.what & 64) && gpushare_runtime_now(runtime, &now) == GPUSHARE_OK) {
      gpushare_runtime_sleep_until(runtime, now + 1'000'000);
    }
    name_ = "gpushare_thread_join";
    valid_ = true;
    Answered(gpushare_thread_join(thread.value()));
    threads_.over.push_back(thread.value());
  }
  void ThreadJoin() { Answered(gpushare_thread_join(Any(threads_))); }
  void ThreadExchangeInterrupt() {
    const Struct<gpushare_interrupt> interrupt(&bytes_, {});
    Answered(gpushare_thread_exchange_interrupt(interrupt.get()), interrupt);
    Interruptible();
  }
  void Interruptible() {
    gpushare_interrupt interrupt = {};
    interrupt.struct_size = sizeof interrupt;
    interrupt.interrupted = [](void*) { return 1; };
    gpushare_thread_exchange_interrupt(&interrupt);
  }

  void RuntimeProbe() {
    const gpushare_runtime runtime = Any(runtimes_);
    const Struct<gpushare_gpu_probe> probe(&bytes_, {});
    Answered(gpushare_runtime_probe(runtime, AnyText(), probe.get()), probe);
  }
  void GpuOpen() {
    const gpushare_runtime runtime = Any(runtimes_);
    gpushare_scheduler_options options = {};
    if (bytes_.Rarely(4)) {
      options.min_commands = bytes_.Small();
      options.window_ns = bytes_.Duration();
      options.grant_ns = bytes_.Duration();
      options.anticipation_ns = bytes_.Duration();
      options.spin_ns = bytes_.Duration();
      options.idle_budget = bytes_.Real();
      options.low_band_floor = bytes_.Real();
      options.high_grace_ns = bytes_.Duration();
      options.high_band_min_commands = bytes_.Small();
      options.zero = bytes_.Next() << 4;
      options.high_band_window_ns = bytes_.Duration();
    }
    const Struct<gpushare_scheduler_options> given(&bytes_, options);
    const bool with = bytes_.Rarely(4);
    const char* const name = bytes_.Rarely(4) ? AnyText() : "0";
    Out<gpushare_gpu> gpu(&bytes_);
    Made(gpushare_gpu_open(runtime, name, with ? given.get() : nullptr, gpu.get()), gpu, &gpus_);
  }
  void GpuClose() {
    const gpushare_gpu gpu = Any(gpus_);
    Ended(gpushare_gpu_close(gpu), gpu, &gpus_);
  }
  void GpuGetProbe() {
    const gpushare_gpu gpu = Any(gpus_);
    const Struct<gpushare_gpu_probe> probe(&bytes_, {});
    Answered(gpushare_gpu_get_probe(gpu, probe.get()), probe);
  }
  void GpuGetOverhead() {
    const gpushare_gpu gpu = Any(gpus_);
    const Struct<gpushare_overhead> overhead(&bytes_, {});
    Answered(gpushare_gpu_get_overhead(gpu, overhead.get()), overhead);
  }
  void GpuGetScheduler() {
    const gpushare_gpu gpu = Any(gpus_);
    const Struct<gpushare_scheduler_options> options(&bytes_, {});
    Answered(gpushare_gpu_get_scheduler(gpu, options.get()), options);
  }

  void TenantCreate() {
    const gpushare_runtime runtime = Any(runtimes_);
    gpushare_tenant_options options = {};
    const gpushare_label labels[] = {{"team", "search"}, {AnyText(), AnyText()}};
    options.name = AnyText();
    options.priority = bytes_.Small();
    options.label_count = bytes_.Next() % 3;
    options.labels = bytes_.Rarely() ? nullptr : labels;
    options.parent = bytes_.Rarely() ? AnyOrNull(tenants_) : nullptr;
    const Struct<gpushare_tenant_options> given(&bytes_, options);
    Out<gpushare_tenant> tenant(&bytes_);
    Made(gpushare_tenant_create(runtime, given.get(), tenant.get()), tenant, &tenants_);
  }
  void TenantDestroy() {
    const gpushare_tenant tenant = Any(tenants_);
    Ended(gpushare_tenant_destroy(tenant), tenant, &tenants_);
  }
  void RuntimeDefaultTenant() {
    const gpushare_runtime runtime = Any(runtimes_);
    Out<gpushare_tenant> tenant(&bytes_);
    Made(gpushare_runtime_default_tenant(runtime, tenant.get()), tenant, &tenants_);
  }
  void TenantName() {
    const gpushare_tenant tenant = Any(tenants_);
    Out<const char*> name(&bytes_);
    Answered(gpushare_tenant_name(tenant, name.get()), name);
  }
  void TenantLabel() {
    const gpushare_tenant tenant = Any(tenants_);
    Out<const char*> value(&bytes_);
    Answered(gpushare_tenant_label(tenant, bytes_.Rarely(4) ? "team" : AnyText(), value.get()),
             value);
  }
  void ScopeEnter() {
    const gpushare_tenant tenant = Any(tenants_);
    Out<uint64_t> scope(&bytes_);
    if (Answered(gpushare_scope_enter(tenant, scope.get()), scope))
      scopes_.push_back(scope.value());
  }
  void ScopeLeave() {
    const uint64_t scope = scopes_.empty() || bytes_.Rarely()
                               ? bytes_.Size()
                               : scopes_[bytes_.Rarely(4) ? 0 : scopes_.size() - 1];
    const gpushare_status status = gpushare_scope_leave(scope);
    Answered(status);
    if (status == GPUSHARE_OK) std::erase(scopes_, scope);
  }
  void ScopeCurrent() {
    Out<gpushare_tenant> tenant(&bytes_);
    Answered(gpushare_scope_current(tenant.get()), tenant);
  }

  void SpecParse() {
    const std::string text = SpecText(&bytes_);
    const Struct<gpushare_spec> spec(&bytes_, {});
    const bool null = bytes_.Rarely();
    Answered(gpushare_spec_parse(null ? nullptr : text.data(), text.size(), spec.get()), spec);
  }
  void SpecValidate() {
    const Struct<gpushare_spec> spec(&bytes_, AnySpec(&bytes_));
    Answered(gpushare_spec_validate(spec.get()));
  }
  void SpecFormat() {
    const Struct<gpushare_spec> spec(&bytes_, AnySpec(&bytes_));
    const size_t size = bytes_.Next();
    const auto text = std::make_unique<char[]>(size);
    size_t needed = 0;
    const gpushare_status status =
        gpushare_spec_format(spec.get(), bytes_.Rarely() ? nullptr : text.get(), size,
                             bytes_.Rarely() ? nullptr : &needed);
    Answered(status);
    if (status == GPUSHARE_OK) {
      gpushare_spec again = {};
      again.struct_size = sizeof again;
      Require(gpushare_spec_parse(text.get(), std::strlen(text.get()), &again) == GPUSHARE_OK,
              name_, "what was written is read");
    }
  }
  void PolicyName() { static_cast<void>(gpushare_policy_name(static_cast<size_t>(bytes_.Size()))); }

  void VdevCreate() {
    const gpushare_gpu gpu = Any(gpus_);
    const gpushare_tenant tenant = Any(tenants_);
    const Struct<gpushare_spec> spec(&bytes_, AnySpec(&bytes_));
    Out<gpushare_vdev> vdev(&bytes_);
    Made(gpushare_vdev_create(gpu, tenant, spec.get(), vdev.get()), vdev, &vdevs_);
  }
  void GpuGetRoom() {
    const gpushare_gpu gpu = Any(gpus_);
    const Struct<gpushare_room> room(&bytes_, {});
    Answered(gpushare_gpu_get_room(gpu, room.get()), room);
  }
  void VdevPlace() {
    const gpushare_gpu gpus[] = {Any(gpus_), Any(gpus_)};
    const gpushare_tenant tenant = Any(tenants_);
    const size_t count = bytes_.Next() % 3;
    const Struct<gpushare_spec> spec(&bytes_, AnySpec(&bytes_));
    Out<gpushare_vdev> vdev(&bytes_);
    Out<size_t> index(&bytes_);
    if (count < 2) valid_ = true;  // not all of them were checked
    const gpushare_status status =
        gpushare_vdev_place(bytes_.Rarely() ? nullptr : gpus, count, tenant, spec.get(),
                            bytes_.Small(), vdev.get(), index.get());
    Answered(status, index);
    Made(status, vdev, &vdevs_);
  }
  void VdevDestroy() {
    const gpushare_vdev vdev = Any(vdevs_);
    Ended(gpushare_vdev_destroy(vdev), vdev, &vdevs_);
  }
  void VdevResize() {
    const gpushare_vdev vdev = Any(vdevs_);
    const Struct<gpushare_spec> spec(&bytes_, AnySpec(&bytes_));
    Answered(gpushare_vdev_resize(vdev, spec.get()));
  }
  void VdevGetSpec() {
    const gpushare_vdev vdev = Any(vdevs_);
    const Struct<gpushare_spec> spec(&bytes_, {});
    Answered(gpushare_vdev_get_spec(vdev, spec.get()), spec);
  }
  void VdevContext() {
    const gpushare_vdev vdev = Any(vdevs_);
    Out<CUctx_st*> context(&bytes_);
    if (Answered(gpushare_vdev_context(vdev, context.get()), context))
      contexts_.push_back(context.value());
  }
  void VdevSuspend() { Answered(gpushare_vdev_suspend(Any(vdevs_))); }
  void VdevResume() { Answered(gpushare_vdev_resume(Any(vdevs_))); }
  void VdevSetReclaim() {
    const gpushare_vdev vdev = Any(vdevs_);
    int (*const reclaim)(void*, uint64_t) = [](void* context, uint64_t) {
      return static_cast<Program*>(context)->GiveBack() ? 1 : 0;
    };
    void (*const release)(void*) = [](void*) {};
    Answered(gpushare_vdev_set_reclaim(vdev, bytes_.Rarely(4) ? nullptr : reclaim, this,
                                       bytes_.Rarely(4) ? nullptr : release));
  }
  void VdevMemory() {
    const gpushare_vdev vdev = Any(vdevs_);
    Out<uint64_t> free(&bytes_), total(&bytes_);
    Answered(gpushare_vdev_memory(vdev, free.get(), total.get()), free, total);
  }
  void GpuResolve() {
    const gpushare_gpu gpu = Any(gpus_);
    const gpushare_vdev argument = AnyOrNull(vdevs_);
    CUstream_st* const native = AnyNative();
    Out<gpushare_vdev> vdev(&bytes_);
    Made(gpushare_gpu_resolve(gpu, argument, native, vdev.get()), vdev, &vdevs_);
  }
  void GpuBindContext() {
    const gpushare_gpu gpu = Any(gpus_);
    const gpushare_vdev vdev = AnyOrNull(vdevs_);
    CUctx_st* const context = contexts_.empty() || bytes_.Rarely()
                                  ? nullptr
                                  : contexts_[bytes_.Next() % contexts_.size()];
    Answered(gpushare_gpu_bind_context(gpu, context, vdev));
  }
  void VdevGetStats() {
    const gpushare_vdev vdev = Any(vdevs_);
    const Struct<gpushare_vdev_stats> stats(&bytes_, {});
    Answered(gpushare_vdev_get_stats(vdev, stats.get()), stats);
  }
  void SnapshotTake() {
    const gpushare_runtime runtime = Any(runtimes_);
    Out<gpushare_snapshot> snapshot(&bytes_);
    Made(gpushare_snapshot_take(runtime, snapshot.get()), snapshot, &snapshots_);
  }
  void SnapshotSize() {
    const gpushare_snapshot snapshot = Any(snapshots_);
    Out<size_t> count(&bytes_);
    Answered(gpushare_snapshot_size(snapshot, count.get()), count);
  }
  void SnapshotGet() {
    const gpushare_snapshot snapshot = Any(snapshots_);
    const Struct<gpushare_vdev_stats> stats(&bytes_, {});
    const size_t i = bytes_.Rarely(4) ? bytes_.Size() : bytes_.Next() % 4;
    Answered(gpushare_snapshot_get(snapshot, i, stats.get()), stats);
  }
  void SnapshotDestroy() {
    const gpushare_snapshot snapshot = Any(snapshots_);
    Ended(gpushare_snapshot_destroy(snapshot), snapshot, &snapshots_);
  }

  // Frees memory for a caller that wants some back, in the middle of an allocation.
  bool GiveBack() {
    if (pointers_.empty() || gpus_.live.empty()) return false;
    const gpushare_device_ptr pointer = pointers_.back();
    if (gpushare_gpu_free(gpus_.live[0], pointer) != GPUSHARE_OK) return false;
    pointers_.pop_back();
    freed_.push_back(pointer);
    return true;
  }
  void AllocatorCreate() {
    const gpushare_vdev vdev = Any(vdevs_);
    gpushare_allocator_options options = {};
    options.strategy = bytes_.Small();
    options.over_quota = bytes_.Small();
    options.timeout_ns = bytes_.Duration();
    options.reclaim_context = this;
    if (!bytes_.Rarely()) {
      options.reclaim = [](void* context, uint64_t asked, uint64_t) {
        return asked % 7 == 6                               ? GPUSHARE_RECLAIM_STOP
               : static_cast<Program*>(context)->GiveBack() ? 1
                                                            : 0;
      };
    }
    const Struct<gpushare_allocator_options> given(&bytes_, options);
    Out<gpushare_allocator> allocator(&bytes_);
    Made(gpushare_allocator_create(vdev, given.get(), allocator.get()), allocator, &allocators_);
  }
  void AllocatorDestroy() {
    const gpushare_allocator allocator = Any(allocators_);
    Ended(gpushare_allocator_destroy(allocator), allocator, &allocators_);
  }
  void Alloc() {
    const gpushare_allocator allocator = Any(allocators_);
    const uint64_t size = bytes_.Size();
    Out<gpushare_device_ptr> pointer(&bytes_);
    Took(gpushare_alloc(allocator, size, pointer.get()), pointer);
  }
  void Free() {
    const gpushare_allocator allocator = Any(allocators_);
    const gpushare_device_ptr pointer = AnyPointer();
    Freed(gpushare_free(allocator, pointer), pointer);
  }
  void AllocOn() {
    const gpushare_allocator allocator = Any(allocators_);
    const gpushare_stream stream = Any(streams_);
    const uint64_t size = bytes_.Size();
    Out<gpushare_device_ptr> pointer(&bytes_);
    Took(gpushare_alloc_on(allocator, size, stream, pointer.get()), pointer);
  }
  void FreeOn() {
    const gpushare_allocator allocator = Any(allocators_);
    const gpushare_device_ptr pointer = AnyPointer();
    Freed(gpushare_free_on(allocator, pointer, Any(streams_)), pointer);
  }
  void AllocWith() {
    const gpushare_allocator allocator = Any(allocators_);
    gpushare_alloc_options options = {};
    const bool whole = valid_;
    options.set = bytes_.Rarely() ? bytes_.Next() : bytes_.Next() % 4;
    options.stream = bytes_.Rarely(2) ? AnyOrNull(streams_) : nullptr;
    options.native = AnyNative();
    options.timeout_ns = bytes_.Duration();
    options.alignment = bytes_.Rarely(4) ? bytes_.Size() : 0;
    const Struct<gpushare_alloc_options> given(&bytes_, options);
    if (given.get() == nullptr || given.get()->struct_size < sizeof options) valid_ = whole;
    const uint64_t size = bytes_.Size();
    Out<gpushare_device_ptr> pointer(&bytes_);
    Took(gpushare_alloc_with(allocator, size, given.get(), pointer.get()), pointer);
  }
  void FreeNative() {
    const gpushare_allocator allocator = Any(allocators_);
    const gpushare_device_ptr pointer = AnyPointer();
    Freed(gpushare_free_native(allocator, pointer, AnyNative()), pointer);
  }
  void AllocatorTrim() {
    const gpushare_allocator allocator = Any(allocators_);
    Answered(gpushare_allocator_trim(allocator, bytes_.Size()));
  }
  void AllocatorCancelWaits() { Answered(gpushare_allocator_cancel_waits(Any(allocators_))); }
  void AllocatorGetStats() {
    const gpushare_allocator allocator = Any(allocators_);
    const Struct<gpushare_allocator_stats> stats(&bytes_, {});
    Answered(gpushare_allocator_get_stats(allocator, stats.get()), stats);
  }
  void GpuAlloc() {
    const gpushare_gpu gpu = Any(gpus_);
    const uint64_t size = bytes_.Size();
    Out<gpushare_device_ptr> pointer(&bytes_);
    Took(gpushare_gpu_alloc(gpu, size, pointer.get()), pointer);
  }
  void GpuFree() {
    const gpushare_gpu gpu = Any(gpus_);
    const gpushare_device_ptr pointer = AnyPointer();
    Freed(gpushare_gpu_free(gpu, pointer), pointer);
  }
  void GpuPointer() {
    const gpushare_gpu gpu = Any(gpus_);
    const gpushare_device_ptr pointer = AnyPointer();
    Out<uint64_t> size(&bytes_);
    Out<gpushare_vdev> vdev(&bytes_);
    const gpushare_status status = gpushare_gpu_pointer(gpu, pointer, size.get(), vdev.get());
    Answered(status, size, vdev);
    if (status == GPUSHARE_OK && !vdev.is_null()) vdevs_.Add(vdev.value());
  }

  void ModuleLoad() { ModuleLoadAs(false); }
  void ModuleLoadOn() { ModuleLoadAs(true); }
  void ModuleLoadAs(bool on_vdev) {
    constexpr const char* kImages[] = {kPtx,
                                       kPtx,
                                       kPtx,
                                       "",
                                       "not PTX",
                                       ".version",
                                       "\x7f"
                                       "ELF"};
    const char* const image = bytes_.Rarely() ? nullptr : bytes_.Any(kImages);
    Out<gpushare_module> module(&bytes_);
    if (on_vdev) {
      const gpushare_vdev vdev = Any(vdevs_);
      Made(gpushare_module_load_on(vdev, image, module.get()), module, &modules_);
    } else {
      const gpushare_gpu gpu = Any(gpus_);
      Made(gpushare_module_load(gpu, image, module.get()), module, &modules_);
    }
  }
  void ModuleUnload() {
    // The module's functions must not be running.
    for (gpushare_stream stream : streams_.live) gpushare_stream_synchronize(stream);
    const gpushare_module module = Any(modules_);
    Ended(gpushare_module_unload(module), module, &modules_);
    std::erase_if(functions_, [&](const auto& one) { return !modules_.Has(one.first); });
  }
  void ModuleFunction() {
    const gpushare_module module = Any(modules_);
    Out<CUfunc_st*> function(&bytes_);
    const char* const name = bytes_.Rarely(4) ? AnyText() : "spin";
    if (Answered(gpushare_module_function(module, name, function.get()), function)) {
      functions_.emplace_back(module, function.value());
    }
  }
  void FunctionSetMaxShared() {
    const gpushare_gpu gpu = Any(gpus_);
    CUfunc_st* const function = AnyFunction();
    Answered(gpushare_function_set_max_shared(gpu, function, static_cast<uint32_t>(bytes_.Size())));
  }
  void FunctionFootprint() {
    const gpushare_gpu gpu = Any(gpus_);
    CUfunc_st* const function = AnyFunction();
    const gpushare_shape shape = AnyShape();
    Out<double> footprint(&bytes_);
    Answered(gpushare_function_footprint(gpu, function, bytes_.Rarely() ? nullptr : &shape,
                                         footprint.get()),
             footprint);
  }

  void StreamCreate() {
    const gpushare_vdev vdev = Any(vdevs_);
    Out<gpushare_stream> stream(&bytes_);
    Made(gpushare_stream_create(vdev, stream.get()), stream, &streams_);
  }
  void StreamBind() {
    const gpushare_vdev vdev = Any(vdevs_);
    CUstream_st* const native = AnyNative();
    Out<gpushare_stream> stream(&bytes_);
    Made(gpushare_stream_bind(vdev, native, stream.get()), stream, &streams_);
  }
  void StreamDestroy() {
    const gpushare_stream stream = Any(streams_);
    Ended(gpushare_stream_destroy(stream), stream, &streams_);
  }
  // The stream may be destroyed by the time that the handle is used, which the simulated driver detects.
  void StreamNative() {
    const gpushare_stream stream = Any(streams_);
    Out<CUstream_st*> native(&bytes_);
    if (Answered(gpushare_stream_native(stream, native.get()), native))
      natives_.push_back(native.value());
  }
  void StreamLaunch() { Launch(&gpushare_stream_launch); }
  void StreamLaunchCooperative() { Launch(&gpushare_stream_launch_cooperative); }
  void Launch(decltype(&gpushare_stream_launch) call) {
    const gpushare_stream stream = Any(streams_);
    CUfunc_st* const function = AnyFunction();
    const gpushare_shape shape = AnyShape();
    uint64_t ns = uint64_t{bytes_.Next()} * 10'000;
    void* params[] = {&ns};
    void** const given = bytes_.Rarely() ? nullptr : params;
    const bool without = bytes_.Rarely();
    Answered(call(stream, function, without ? nullptr : &shape, given, bytes_.Duration()));
  }
  void StreamLaunchGraph() {
    const gpushare_stream stream = Any(streams_);
    CUgraphExec_st* const graph =
        native_graphs_.empty() || bytes_.Rarely()
            ? nullptr
            : native_graphs_[bytes_.Next() % native_graphs_.size()].second;
    Answered(gpushare_stream_launch_graph(stream, graph, bytes_.Duration()));
  }
  void CopyH2d() { ToDevice(&gpushare_stream_copy_h2d); }
  void CopyH2dAsync() { ToDevice(&gpushare_stream_copy_h2d_async); }
  void ToDevice(decltype(&gpushare_stream_copy_h2d) call) {
    ResumeAll();
    const gpushare_stream stream = Any(streams_);
    const gpushare_device_ptr to = AnyPointer();
    const void* const from = Host();
    Answered(call(stream, to, from, HostBytes()));
  }
  void CopyD2h() { ToHost(&gpushare_stream_copy_d2h); }
  void CopyD2hAsync() { ToHost(&gpushare_stream_copy_d2h_async); }
  void ToHost(decltype(&gpushare_stream_copy_d2h) call) {
    ResumeAll();
    const gpushare_stream stream = Any(streams_);
    const gpushare_device_ptr from = AnyPointer();
    void* const to = Host();
    Answered(call(stream, to, from, HostBytes()));
  }
  void CopyD2d() { Within(&gpushare_stream_copy_d2d); }
  void CopyD2dAsync() { Within(&gpushare_stream_copy_d2d_async); }
  void Within(decltype(&gpushare_stream_copy_d2d) call) {
    const gpushare_stream stream = Any(streams_);
    const gpushare_device_ptr to = AnyPointer(), from = AnyPointer();
    Answered(call(stream, to, from, bytes_.Size()));
  }
  void StreamSetAsync() {
    const gpushare_stream stream = Any(streams_);
    const gpushare_device_ptr to = AnyPointer();
    Answered(gpushare_stream_set_async(stream, to, 7, bytes_.Size()));
  }
  void StreamLaunchHost() {
    const gpushare_stream stream = Any(streams_);
    // It must not call the driver; if it does, the calls are refused.
    void (*const function)(void*) = [](void* argument) {
      const auto& program = *static_cast<Program*>(argument);
      gpushare_device_ptr pointer = 0;
      if (program.gpus_.live.empty()) return;
      if (gpushare_gpu_alloc(program.gpus_.live[0], 512, &pointer) == GPUSHARE_OK) {
        gpushare_gpu_free(program.gpus_.live[0], pointer);
      }
    };
    Answered(gpushare_stream_launch_host(stream, bytes_.Rarely() ? nullptr : function, this));
  }
  void StreamSynchronize() { Answered(gpushare_stream_synchronize(Any(streams_))); }
  void StreamYield() { Answered(gpushare_stream_yield(Any(streams_))); }

  void EventCreate() {
    const gpushare_vdev vdev = Any(vdevs_);
    const int timing = bytes_.Small();
    Out<gpushare_event> event(&bytes_);
    Made(gpushare_event_create(vdev, timing, event.get()), event, &events_);
  }
  void EventDestroy() {
    const gpushare_event event = Any(events_);
    Ended(gpushare_event_destroy(event), event, &events_);
  }
  void EventNative() {
    const gpushare_event event = Any(events_);
    Out<CUevent_st*> native(&bytes_);
    if (Answered(gpushare_event_native(event, native.get()), native))
      native_events_.push_back(native.value());
  }
  void EventQuery() {
    const gpushare_event event = Any(events_);
    Out<int> done(&bytes_);
    Answered(gpushare_event_query(event, done.get()), done);
  }
  void EventSynchronize() { Answered(gpushare_event_synchronize(Any(events_))); }
  void EventElapsed() {
    const gpushare_event start = Any(events_), end = Any(events_);
    Out<int64_t> ns(&bytes_);
    Answered(gpushare_event_elapsed(start, end, ns.get()), ns);
  }
  void StreamRecord() {
    const gpushare_stream stream = Any(streams_);
    Answered(gpushare_stream_record(stream, AnyEvent()));
  }
  void StreamWait() {
    const gpushare_stream stream = Any(streams_);
    Answered(gpushare_stream_wait(stream, AnyEvent()));
  }
  void StreamBeginCapture() { Answered(gpushare_stream_begin_capture(Any(streams_))); }
  void StreamEndCapture() {
    const gpushare_stream stream = Any(streams_);
    Out<gpushare_graph> graph(&bytes_);
    Made(gpushare_stream_end_capture(stream, graph.get()), graph, &graphs_);
  }
  void GraphDestroy() {
    const gpushare_graph graph = Any(graphs_);
    Ended(gpushare_graph_destroy(graph), graph, &graphs_);
    std::erase_if(native_graphs_, [&](const auto& one) { return !graphs_.Has(one.first); });
  }
  void GraphNative() {
    const gpushare_graph graph = Any(graphs_);
    Out<CUgraphExec_st*> native(&bytes_);
    if (Answered(gpushare_graph_native(graph, native.get()), native))
      native_graphs_.emplace_back(graph, native.value());
  }

  gpushare_lease_options AnyLease(const std::vector<gpushare_stream>& streams) {
    gpushare_lease_options options = {};
    options.exclusive = bytes_.Small();
    options.hint_ns = bytes_.Duration();
    options.maximum_ns = bytes_.Rarely(2) ? bytes_.Duration() : 0;
    options.timeout_ns = bytes_.Duration();
    options.any_thread = bytes_.Small();
    options.streams = bytes_.Rarely() ? nullptr : streams.data();
    options.stream_count = streams.size();
    return options;
  }
  std::vector<gpushare_stream> SomeStreams() {
    std::vector<gpushare_stream> streams(bytes_.Next() % 3);
    for (gpushare_stream& stream : streams) stream = Any(streams_);
    return streams;
  }
  void LeaseAcquire() {
    const gpushare_vdev vdev = Any(vdevs_);
    const bool whole = valid_;
    const std::vector<gpushare_stream> streams = SomeStreams();
    const Struct<gpushare_lease_options> given(&bytes_, AnyLease(streams));
    if (given.get() == nullptr || given.get()->struct_size < sizeof(gpushare_lease_options))
      valid_ = whole;
    Out<gpushare_lease> lease(&bytes_);
    Made(gpushare_lease_acquire(vdev, given.get(), lease.get()), lease, &leases_);
  }
  void LeaseRelease() {
    const gpushare_lease lease = Any(leases_);
    const Struct<gpushare_lease_result> result(&bytes_, {});
    const gpushare_status status = gpushare_lease_release(lease, result.get());
    Answered(status, result);
    Ended(status, lease, &leases_);
  }
  void LeaseRequestCreate() {
    const gpushare_vdev vdev = Any(vdevs_);
    const bool whole = valid_;
    const std::vector<gpushare_stream> streams = SomeStreams();
    const Struct<gpushare_lease_options> given(&bytes_, AnyLease(streams));
    if (given.get() == nullptr || given.get()->struct_size < sizeof(gpushare_lease_options))
      valid_ = whole;
    Out<gpushare_lease_request> request(&bytes_);
    void (*const done)(void*) = bytes_.Rarely(3) ? nullptr : +[](void*) {};
    Made(gpushare_lease_request_create(vdev, given.get(), done, this, request.get()), request,
         &requests_);
  }
  void LeaseRequestDescriptor() {
    const gpushare_lease_request request = Any(requests_);
    Out<int> descriptor(&bytes_);
    Answered(gpushare_lease_request_descriptor(request, descriptor.get()), descriptor);
  }
  void LeaseRequestTake() {
    const gpushare_lease_request request = Any(requests_);
    Out<gpushare_lease> lease(&bytes_);
    Made(gpushare_lease_request_take(request, lease.get()), lease, &leases_);
  }
  void LeaseRequestCancel() { Answered(gpushare_lease_request_cancel(Any(requests_))); }
  void LeaseRequestDestroy() {
    const gpushare_lease_request request = Any(requests_);
    Ended(gpushare_lease_request_destroy(request), request, &requests_);
  }
  void GangAcquire() {
    const size_t count = bytes_.Next() % 3;
    const std::vector<gpushare_stream> streams = SomeStreams();
    gpushare_gang_member members[2] = {};
    for (gpushare_gang_member& member : members) {
      member.struct_size = bytes_.Rarely(32) ? bytes_.Next() % 4 : sizeof member;
      member.vdev = Any(vdevs_);
    }
    members[0].streams = streams.data();
    members[0].stream_count = streams.size();
    if (count < 2 || members[0].struct_size != sizeof members[0])
      valid_ = true;  // not all of them are checked
    const Struct<gpushare_lease_options> given(&bytes_, AnyLease({}));
    Out<gpushare_gang> gang(&bytes_);
    Made(gpushare_gang_acquire(bytes_.Rarely() ? nullptr : members, count, given.get(), gang.get()),
         gang, &gangs_);
  }
  void GangRelease() {
    const gpushare_gang gang = Any(gangs_);
    const Struct<gpushare_lease_result> result(&bytes_, {});
    const gpushare_status status = gpushare_gang_release(gang, result.get());
    Answered(status, result);
    Ended(status, gang, &gangs_);
  }

  void WatchdogStart() {
    const gpushare_gpu gpu = Any(gpus_);
    gpushare_watchdog_options options = {};
    options.limit_ns = bytes_.Duration();
    options.context = this;
    if (!bytes_.Rarely()) options.callback = [](void*, const gpushare_incident*) {};
    const Struct<gpushare_watchdog_options> given(&bytes_, options);
    Out<gpushare_watchdog> watchdog(&bytes_);
    Made(gpushare_watchdog_start(gpu, given.get(), watchdog.get()), watchdog, &watchdogs_);
  }
  void WatchdogStop() {
    const gpushare_watchdog watchdog = Any(watchdogs_);
    Ended(gpushare_watchdog_stop(watchdog), watchdog, &watchdogs_);
  }

  void TraceStart() {
    const gpushare_runtime runtime = Any(runtimes_);
    gpushare_trace_options options = {};
    constexpr uint32_t kCapacities[] = {0, 1, 2, 100, 4'194'305, UINT32_MAX};
    options.capacity = bytes_.Any(kCapacities);
    const Struct<gpushare_trace_options> given(&bytes_, options);
    Out<gpushare_trace> trace(&bytes_);
    Made(gpushare_trace_start(runtime, given.get(), trace.get()), trace, &traces_);
  }
  void TraceStop() { Answered(gpushare_trace_stop(Any(traces_))); }
  void TraceRead() {
    const gpushare_trace trace = Any(traces_);
    const size_t count = bytes_.Next() % 8;
    // Structs of another version, in exactly as much memory as they need.
    const uint32_t size = bytes_.Rarely(8) ? bytes_.Next() : sizeof(gpushare_trace_event);
    const auto memory =
        std::make_unique<unsigned char[]>(std::max<size_t>(count * size, sizeof size));
    std::memcpy(memory.get(), &size, sizeof size);
    auto* const events =
        bytes_.Rarely() ? nullptr : reinterpret_cast<gpushare_trace_event*>(memory.get());
    Out<size_t> got(&bytes_);
    Answered(gpushare_trace_read(trace, events, count, got.get()), got);
  }
  void TraceLost() {
    const gpushare_trace trace = Any(traces_);
    Out<uint64_t> lost(&bytes_);
    Answered(gpushare_trace_lost(trace, lost.get()), lost);
  }
  void TraceWrite() {
    const gpushare_trace trace = Any(traces_);
    constexpr const char* kPaths[] = {"/dev/null", "/dev/null", "/dev/full",
                                      "/nonexistent/trace.json", ""};
    Answered(gpushare_trace_write(trace, bytes_.Rarely() ? nullptr : bytes_.Any(kPaths)));
  }
  void TraceDestroy() {
    const gpushare_trace trace = Any(traces_);
    Ended(gpushare_trace_destroy(trace), trace, &traces_);
  }

  // ---- begin and end ----

  void Begin() {
    name_ = "begin";
    gpushare_runtime_options options = {};
    options.struct_size = sizeof options;
    options.driver = "sim";
    options.simulation = kSimulation;
    gpushare_runtime runtime = nullptr;
    Require(gpushare_runtime_create(&options, &runtime) == GPUSHARE_OK, name_, "a runtime");
    runtimes_.Add(runtime);
    sim_ = std::make_unique<Sim>(runtime);
    Require(sim_->enter("fuzz") == 0, name_, "a clock");
    Interruptible();
    // Creates one object of each kind, so that most calls are meaningful.
    for (const char* ordinal : {"0", "1"}) {
      gpushare_gpu gpu = nullptr;
      Require(gpushare_gpu_open(runtime, ordinal, nullptr, &gpu) == GPUSHARE_OK, name_, "a GPU");
      gpus_.Add(gpu);
    }
    gpushare_tenant_options tenant_options = {};
    tenant_options.struct_size = sizeof tenant_options;
    tenant_options.name = "first";
    gpushare_tenant tenant = nullptr;
    Require(gpushare_tenant_create(runtime, &tenant_options, &tenant) == GPUSHARE_OK, name_,
            "a tenant");
    tenants_.Add(tenant);
    gpushare_spec spec = {};
    spec.struct_size = sizeof spec;
    gpushare_vdev vdev = nullptr;
    Require(gpushare_vdev_create(gpus_.live[0], tenant, &spec, &vdev) == GPUSHARE_OK, name_,
            "a virtual device");
    vdevs_.Add(vdev);
    gpushare_allocator allocator = nullptr;
    Require(gpushare_allocator_create(vdev, nullptr, &allocator) == GPUSHARE_OK, name_,
            "an allocator");
    allocators_.Add(allocator);
    gpushare_stream stream = nullptr;
    Require(gpushare_stream_create(vdev, &stream) == GPUSHARE_OK, name_, "a stream");
    streams_.Add(stream);
    gpushare_module module = nullptr;
    Require(gpushare_module_load(gpus_.live[0], kPtx, &module) == GPUSHARE_OK, name_, "a module");
    modules_.Add(module);
    CUfunc_st* function = nullptr;
    Require(gpushare_module_function(module, "spin", &function) == GPUSHARE_OK, name_, "a kernel");
    functions_.emplace_back(module, function);
  }

  template <typename H>
  void EndAll(const char* name, Pool<H>* pool, gpushare_status (*destroy)(H)) {
    name_ = name;
    while (!pool->live.empty()) {
      const H handle = pool->live[bytes_.Next() % pool->live.size()];
      Require(destroy(handle) == GPUSHARE_OK, name_, "what is there can be ended");
      Require(destroy(handle) == GPUSHARE_INVALID_ARGUMENT, name_, "it ends once");
      pool->End(handle);
    }
  }
  // A parent cannot end before its children.
  void EndTenants() {
    name_ = "gpushare_tenant_destroy";
    while (!tenants_.live.empty()) {
      const std::vector<gpushare_tenant> live = tenants_.live;
      for (const gpushare_tenant tenant : live) {
        const gpushare_status status = gpushare_tenant_destroy(tenant);
        if (status == GPUSHARE_FAILED_PRECONDITION) continue;
        Require(status == GPUSHARE_OK, name_, "what is there can be ended");
        Require(gpushare_tenant_destroy(tenant) == GPUSHARE_INVALID_ARGUMENT, name_,
                "it ends once");
        tenants_.End(tenant);
      }
      Require(tenants_.live.size() < live.size(), name_, "some tenant has no children");
    }
  }
  void End() {
    ResumeAll();
    while (!scopes_.empty()) {
      Require(gpushare_scope_leave(scopes_.back()) == GPUSHARE_OK, "gpushare_scope_leave",
              "in reverse order");
      scopes_.pop_back();
    }
    EndAll("gpushare_lease_request_destroy", &requests_, &gpushare_lease_request_destroy);
    EndAll<gpushare_gang>("gpushare_gang_release", &gangs_,
                          [](gpushare_gang g) { return gpushare_gang_release(g, nullptr); });
    EndAll<gpushare_lease>("gpushare_lease_release", &leases_,
                           [](gpushare_lease l) { return gpushare_lease_release(l, nullptr); });
    EndAll("gpushare_stream_destroy", &streams_, &gpushare_stream_destroy);
    EndAll("gpushare_graph_destroy", &graphs_, &gpushare_graph_destroy);
    FreeAll();
    EndAll("gpushare_allocator_destroy", &allocators_, &gpushare_allocator_destroy);
    EndAll("gpushare_event_destroy", &events_, &gpushare_event_destroy);
    EndAll("gpushare_trace_destroy", &traces_, &gpushare_trace_destroy);
    EndAll("gpushare_watchdog_stop", &watchdogs_, &gpushare_watchdog_stop);
    EndAll("gpushare_snapshot_destroy", &snapshots_, &gpushare_snapshot_destroy);
    EndAll("gpushare_module_unload", &modules_, &gpushare_module_unload);
    EndAll("gpushare_vdev_destroy", &vdevs_, &gpushare_vdev_destroy);
    EndTenants();
    EndAll("gpushare_gpu_close", &gpus_, &gpushare_gpu_close);
    EndAll("gpushare_runtime_destroy", &runtimes_, &gpushare_runtime_destroy);
    for (int device : {0, 1}) Require(sim_->used(device) == 0, "end", "the GPUs are empty");
    Require(sim_->leave() == 0, "end", "the clock's thread leaves");
    Require(sim_->reset() == 0, "end", "nobody else is in the driver");
    gpushare_interrupt none = {};
    none.struct_size = sizeof none;
    gpushare_thread_exchange_interrupt(&none);
  }
  // Frees through any GPU: a pointer is credited where it was charged.
  void FreeAll() {
    if (gpus_.live.empty()) return;  // the memory ended with it
    for (gpushare_device_ptr pointer : pointers_) {
      const gpushare_status status = gpushare_gpu_free(gpus_.live[0], pointer);
      // It may have ended with the context of its virtual device. Swappable memory belongs to no context: the driver unmaps
      // none while the primary context is lost.
      Require(status == GPUSHARE_OK || status == GPUSHARE_INVALID_ARGUMENT ||
                  status == GPUSHARE_ABORTED,
              "gpushare_gpu_free", "what is held is freed");
    }
  }

  Bytes bytes_;
  const char* name_ = "";
  bool valid_ = true;  // all handles of this call are valid
  std::unique_ptr<Sim> sim_;
  std::vector<unsigned char> host_;

  Pool<gpushare_runtime> runtimes_;
  Pool<gpushare_gpu> gpus_;
  Pool<gpushare_tenant> tenants_;
  Pool<gpushare_vdev> vdevs_;
  Pool<gpushare_allocator> allocators_;
  Pool<gpushare_stream> streams_;
  Pool<gpushare_event> events_;
  Pool<gpushare_graph> graphs_;
  Pool<gpushare_module> modules_;
  Pool<gpushare_lease> leases_;
  Pool<gpushare_lease_request> requests_;
  Pool<gpushare_gang> gangs_;
  Pool<gpushare_watchdog> watchdogs_;
  Pool<gpushare_snapshot> snapshots_;
  Pool<gpushare_thread> threads_;
  Pool<gpushare_trace> traces_;
  std::vector<uint64_t> scopes_;
  std::vector<gpushare_device_ptr> pointers_, freed_;
  std::vector<CUstream_st*> natives_;
  std::vector<CUevent_st*> native_events_;
  std::vector<CUctx_st*> contexts_;
  std::vector<std::pair<gpushare_module, CUfunc_st*>> functions_;
  std::vector<std::pair<gpushare_graph, CUgraphExec_st*>> native_graphs_;
};

const std::vector<Program::Function>& Program::Functions() {
  static const std::vector<Function> all = {
      {"gpushare_status_name", &Program::StatusName},
      {"gpushare_last_message", &Program::LastMessage},
      {"gpushare_last_detail", &Program::LastDetail},
      {"gpushare_abi_version", &Program::AbiVersion},
      {"gpushare_version", &Program::Version},
      {"gpushare_runtime_create", &Program::RuntimeCreate},
      {"gpushare_runtime_destroy", &Program::RuntimeDestroy},
      {"gpushare_runtime_get_info", &Program::RuntimeGetInfo},
      {"gpushare_runtime_symbol", &Program::RuntimeSymbol},
      {"gpushare_runtime_now", &Program::RuntimeNow},
      {"gpushare_runtime_sleep_until", &Program::RuntimeSleepUntil},
      {"gpushare_thread_start", &Program::ThreadStart},
      {"gpushare_thread_join", &Program::ThreadJoin},
      {"gpushare_thread_exchange_interrupt", &Program::ThreadExchangeInterrupt},
      {"gpushare_runtime_probe", &Program::RuntimeProbe},
      {"gpushare_gpu_open", &Program::GpuOpen},
      {"gpushare_gpu_close", &Program::GpuClose},
      {"gpushare_gpu_get_probe", &Program::GpuGetProbe},
      {"gpushare_gpu_get_overhead", &Program::GpuGetOverhead},
      {"gpushare_gpu_get_scheduler", &Program::GpuGetScheduler},
      {"gpushare_tenant_create", &Program::TenantCreate},
      {"gpushare_tenant_destroy", &Program::TenantDestroy},
      {"gpushare_runtime_default_tenant", &Program::RuntimeDefaultTenant},
      {"gpushare_tenant_name", &Program::TenantName},
      {"gpushare_tenant_label", &Program::TenantLabel},
      {"gpushare_scope_enter", &Program::ScopeEnter},
      {"gpushare_scope_leave", &Program::ScopeLeave},
      {"gpushare_scope_current", &Program::ScopeCurrent},
      {"gpushare_spec_parse", &Program::SpecParse},
      {"gpushare_spec_validate", &Program::SpecValidate},
      {"gpushare_spec_format", &Program::SpecFormat},
      {"gpushare_policy_name", &Program::PolicyName},
      {"gpushare_vdev_create", &Program::VdevCreate},
      {"gpushare_gpu_get_room", &Program::GpuGetRoom},
      {"gpushare_vdev_place", &Program::VdevPlace},
      {"gpushare_vdev_destroy", &Program::VdevDestroy},
      {"gpushare_vdev_resize", &Program::VdevResize},
      {"gpushare_vdev_get_spec", &Program::VdevGetSpec},
      {"gpushare_vdev_context", &Program::VdevContext},
      {"gpushare_vdev_suspend", &Program::VdevSuspend},
      {"gpushare_vdev_resume", &Program::VdevResume},
      {"gpushare_vdev_set_reclaim", &Program::VdevSetReclaim},
      {"gpushare_vdev_memory", &Program::VdevMemory},
      {"gpushare_gpu_resolve", &Program::GpuResolve},
      {"gpushare_gpu_bind_context", &Program::GpuBindContext},
      {"gpushare_vdev_get_stats", &Program::VdevGetStats},
      {"gpushare_snapshot_take", &Program::SnapshotTake},
      {"gpushare_snapshot_size", &Program::SnapshotSize},
      {"gpushare_snapshot_get", &Program::SnapshotGet},
      {"gpushare_snapshot_destroy", &Program::SnapshotDestroy},
      {"gpushare_allocator_create", &Program::AllocatorCreate},
      {"gpushare_allocator_destroy", &Program::AllocatorDestroy},
      {"gpushare_alloc", &Program::Alloc},
      {"gpushare_free", &Program::Free},
      {"gpushare_alloc_on", &Program::AllocOn},
      {"gpushare_free_on", &Program::FreeOn},
      {"gpushare_alloc_with", &Program::AllocWith},
      {"gpushare_free_native", &Program::FreeNative},
      {"gpushare_allocator_trim", &Program::AllocatorTrim},
      {"gpushare_allocator_cancel_waits", &Program::AllocatorCancelWaits},
      {"gpushare_allocator_get_stats", &Program::AllocatorGetStats},
      {"gpushare_gpu_alloc", &Program::GpuAlloc},
      {"gpushare_gpu_free", &Program::GpuFree},
      {"gpushare_gpu_pointer", &Program::GpuPointer},
      {"gpushare_module_load", &Program::ModuleLoad},
      {"gpushare_module_load_on", &Program::ModuleLoadOn},
      {"gpushare_module_unload", &Program::ModuleUnload},
      {"gpushare_module_function", &Program::ModuleFunction},
      {"gpushare_function_set_max_shared", &Program::FunctionSetMaxShared},
      {"gpushare_function_footprint", &Program::FunctionFootprint},
      {"gpushare_stream_create", &Program::StreamCreate},
      {"gpushare_stream_bind", &Program::StreamBind},
      {"gpushare_stream_destroy", &Program::StreamDestroy},
      {"gpushare_stream_native", &Program::StreamNative},
      {"gpushare_stream_launch", &Program::StreamLaunch},
      {"gpushare_stream_launch_cooperative", &Program::StreamLaunchCooperative},
      {"gpushare_stream_launch_graph", &Program::StreamLaunchGraph},
      {"gpushare_stream_copy_h2d", &Program::CopyH2d},
      {"gpushare_stream_copy_d2h", &Program::CopyD2h},
      {"gpushare_stream_copy_d2d", &Program::CopyD2d},
      {"gpushare_stream_copy_h2d_async", &Program::CopyH2dAsync},
      {"gpushare_stream_copy_d2h_async", &Program::CopyD2hAsync},
      {"gpushare_stream_copy_d2d_async", &Program::CopyD2dAsync},
      {"gpushare_stream_set_async", &Program::StreamSetAsync},
      {"gpushare_stream_launch_host", &Program::StreamLaunchHost},
      {"gpushare_stream_synchronize", &Program::StreamSynchronize},
      {"gpushare_stream_yield", &Program::StreamYield},
      {"gpushare_event_create", &Program::EventCreate},
      {"gpushare_event_destroy", &Program::EventDestroy},
      {"gpushare_event_native", &Program::EventNative},
      {"gpushare_event_query", &Program::EventQuery},
      {"gpushare_event_synchronize", &Program::EventSynchronize},
      {"gpushare_event_elapsed", &Program::EventElapsed},
      {"gpushare_stream_record", &Program::StreamRecord},
      {"gpushare_stream_wait", &Program::StreamWait},
      {"gpushare_stream_begin_capture", &Program::StreamBeginCapture},
      {"gpushare_stream_end_capture", &Program::StreamEndCapture},
      {"gpushare_graph_destroy", &Program::GraphDestroy},
      {"gpushare_graph_native", &Program::GraphNative},
      {"gpushare_lease_acquire", &Program::LeaseAcquire},
      {"gpushare_lease_release", &Program::LeaseRelease},
      {"gpushare_gang_acquire", &Program::GangAcquire},
      {"gpushare_gang_release", &Program::GangRelease},
      {"gpushare_watchdog_start", &Program::WatchdogStart},
      {"gpushare_watchdog_stop", &Program::WatchdogStop},
      {"gpushare_trace_start", &Program::TraceStart},
      {"gpushare_trace_stop", &Program::TraceStop},
      {"gpushare_trace_read", &Program::TraceRead},
      {"gpushare_trace_lost", &Program::TraceLost},
      {"gpushare_trace_write", &Program::TraceWrite},
      {"gpushare_trace_destroy", &Program::TraceDestroy},
      {"gpushare_lease_request_create", &Program::LeaseRequestCreate},
      {"gpushare_lease_request_descriptor", &Program::LeaseRequestDescriptor},
      {"gpushare_lease_request_take", &Program::LeaseRequestTake},
      {"gpushare_lease_request_cancel", &Program::LeaseRequestCancel},
      {"gpushare_lease_request_destroy", &Program::LeaseRequestDestroy},
  };
  return all;
}

}  // namespace

std::vector<std::string> FunctionsOfTheCAbi() { return Program::Names(); }

}  // namespace gpushare::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gpushare::fuzz::Program({data, size}).Run();
  return 0;
}
