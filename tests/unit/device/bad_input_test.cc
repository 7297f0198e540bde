// SPDX-License-Identifier: Apache-2.0
// Input that must not cause a crash: null, destroyed and wrong handles, null pointers, broken code, double frees,
// foreign pointers.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <sstream>
#include <thread>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

class BadInputTest : public StreamTest {
 protected:
  // Calls every function that takes a handle, with `word` in place of each handle.
  static std::vector<std::pair<std::string, gpushare_status>> CallAll(void* word) {
    const auto runtime = static_cast<gpushare_runtime>(word);
    const auto gpu = static_cast<gpushare_gpu>(word);
    const auto tenant = static_cast<gpushare_tenant>(word);
    const auto vdev = static_cast<gpushare_vdev>(word);
    const auto allocator = static_cast<gpushare_allocator>(word);
    const auto stream = static_cast<gpushare_stream>(word);
    const auto event = static_cast<gpushare_event>(word);
    const auto graph = static_cast<gpushare_graph>(word);
    const auto module = static_cast<gpushare_module>(word);
    const auto lease = static_cast<gpushare_lease>(word);
    const auto snapshot = static_cast<gpushare_snapshot>(word);
    const auto thread = static_cast<gpushare_thread>(word);
    const auto trace = static_cast<gpushare_trace>(word);
    static int64_t ns;
    static uint64_t u64, u64b;
    static int flag;
    static double real;
    static size_t count;
    static void* pointer;
    static const char* text;
    static char byte;
    static gpushare_device_ptr device_ptr;
    static CUfunc_st* function;
    static CUstream_st* cu_stream;
    static CUevent_st* cu_event;
    static CUgraphExec_st* cu_graph;
    static gpushare_gpu out_gpu;
    static gpushare_tenant out_tenant;
    static gpushare_vdev out_vdev;
    static gpushare_allocator out_allocator;
    static gpushare_stream out_stream;
    static gpushare_event out_event;
    static gpushare_graph out_graph;
    static gpushare_module out_module;
    static gpushare_lease out_lease;
    static gpushare_snapshot out_snapshot;
    static gpushare_thread out_thread;
    static gpushare_trace out_trace;
    static gpushare_trace_event trace_event = {};
    static gpushare_shape shape = {{1, 1, 1}, {1, 1, 1}, 0};
    static gpushare_runtime_info info = {};
    static gpushare_gpu_probe probe = {};
    static gpushare_scheduler_options scheduler = {};
    static gpushare_tenant_options tenant_options = {};
    static gpushare_spec spec = {};
    static gpushare_vdev_stats stats = {};
    static gpushare_lease_options lease_options = {};
    info.struct_size = sizeof(info);
    probe.struct_size = sizeof(probe);
    scheduler.struct_size = sizeof(scheduler);
    tenant_options.struct_size = sizeof(tenant_options);
    tenant_options.name = "t";
    spec.struct_size = sizeof(spec);
    stats.struct_size = sizeof(stats);
    lease_options.struct_size = sizeof(lease_options);
    trace_event.struct_size = sizeof(trace_event);
#define CALL(function, ...) \
  { #function, function(__VA_ARGS__) }
    return {
        CALL(gpushare_runtime_get_info, runtime, &info),
        CALL(gpushare_runtime_symbol, runtime, "cuInit", &pointer),
        CALL(gpushare_runtime_now, runtime, &ns),
        CALL(gpushare_runtime_sleep_until, runtime, 0),
        CALL(
            gpushare_thread_start, runtime, "t", [](void*) {}, nullptr, &out_thread),
        CALL(gpushare_thread_join, thread),
        CALL(gpushare_runtime_probe, runtime, "0", &probe),
        CALL(gpushare_gpu_open, runtime, "0", nullptr, &out_gpu),
        CALL(gpushare_gpu_get_probe, gpu, &probe),
        CALL(gpushare_gpu_get_scheduler, gpu, &scheduler),
        CALL(gpushare_tenant_create, runtime, &tenant_options, &out_tenant),
        CALL(gpushare_runtime_default_tenant, runtime, &out_tenant),
        CALL(gpushare_tenant_name, tenant, &text),
        CALL(gpushare_tenant_label, tenant, "k", &text),
        CALL(gpushare_scope_enter, tenant, &u64),
        CALL(gpushare_vdev_create, gpu, tenant, &spec, &out_vdev),
        CALL(gpushare_vdev_resize, vdev, &spec),
        CALL(gpushare_vdev_get_spec, vdev, &spec),
        CALL(gpushare_vdev_suspend, vdev),
        CALL(gpushare_vdev_resume, vdev),
        CALL(gpushare_vdev_memory, vdev, &u64, &u64b),
        CALL(gpushare_gpu_resolve, gpu, nullptr, nullptr, &out_vdev),
        CALL(gpushare_gpu_bind_context, gpu, nullptr, nullptr),
        CALL(gpushare_vdev_get_stats, vdev, &stats),
        CALL(gpushare_snapshot_take, runtime, &out_snapshot),
        CALL(gpushare_snapshot_size, snapshot, &count),
        CALL(gpushare_snapshot_get, snapshot, 0, &stats),
        CALL(gpushare_snapshot_destroy, snapshot),
        CALL(gpushare_allocator_create, vdev, nullptr, &out_allocator),
        CALL(gpushare_alloc, allocator, 1, &device_ptr),
        CALL(gpushare_free, allocator, 1),
        CALL(gpushare_allocator_destroy, allocator),
        CALL(gpushare_gpu_alloc, gpu, 1, &device_ptr),
        CALL(gpushare_gpu_free, gpu, 1),
        CALL(gpushare_gpu_pointer, gpu, 1, &u64, nullptr),
        CALL(gpushare_module_load, gpu, kPtx, &out_module),
        CALL(gpushare_module_function, module, "spin", &function),
        CALL(gpushare_module_unload, module),
        CALL(gpushare_function_set_max_shared, gpu, nullptr, 0),
        CALL(gpushare_function_footprint, gpu, nullptr, &shape, &real),
        CALL(gpushare_stream_create, vdev, &out_stream),
        CALL(gpushare_stream_bind, vdev, nullptr, &out_stream),
        CALL(gpushare_stream_native, stream, &cu_stream),
        CALL(gpushare_stream_launch, stream, nullptr, &shape, nullptr, GPUSHARE_FOREVER),
        CALL(gpushare_stream_launch_cooperative, stream, nullptr, &shape, nullptr,
             GPUSHARE_FOREVER),
        CALL(gpushare_stream_launch_graph, stream, nullptr, GPUSHARE_FOREVER),
        CALL(gpushare_stream_copy_h2d, stream, 1, &byte, 1),
        CALL(gpushare_stream_copy_d2h, stream, &byte, 1, 1),
        CALL(gpushare_stream_copy_d2d, stream, 1, 1, 1),
        CALL(gpushare_stream_copy_h2d_async, stream, 1, &byte, 1),
        CALL(gpushare_stream_copy_d2h_async, stream, &byte, 1, 1),
        CALL(gpushare_stream_copy_d2d_async, stream, 1, 1, 1),
        CALL(gpushare_stream_set_async, stream, 1, 0, 1),
        CALL(gpushare_stream_synchronize, stream),
        CALL(gpushare_stream_yield, stream),
        CALL(gpushare_stream_record, stream, nullptr),
        CALL(gpushare_stream_launch_host, stream, nullptr, nullptr),
        CALL(gpushare_stream_wait, stream, nullptr),
        CALL(gpushare_stream_begin_capture, stream),
        CALL(gpushare_stream_end_capture, stream, &out_graph),
        CALL(gpushare_stream_destroy, stream),
        CALL(gpushare_event_create, vdev, 0, &out_event),
        CALL(gpushare_event_native, event, &cu_event),
        CALL(gpushare_event_query, event, &flag),
        CALL(gpushare_event_synchronize, event),
        CALL(gpushare_event_elapsed, event, event, &ns),
        CALL(gpushare_event_destroy, event),
        CALL(gpushare_graph_native, graph, &cu_graph),
        CALL(gpushare_graph_destroy, graph),
        CALL(gpushare_lease_acquire, vdev, &lease_options, &out_lease),
        CALL(gpushare_lease_release, lease, nullptr),
        CALL(gpushare_trace_start, runtime, nullptr, &out_trace),
        CALL(gpushare_trace_stop, trace),
        CALL(gpushare_trace_read, trace, &trace_event, 1, &count),
        CALL(gpushare_trace_lost, trace, &u64),
        CALL(gpushare_trace_write, trace, "/dev/null"),
        CALL(gpushare_trace_destroy, trace),
        CALL(gpushare_vdev_destroy, vdev),
        CALL(gpushare_tenant_destroy, tenant),
        CALL(gpushare_gpu_close, gpu),
        CALL(gpushare_runtime_destroy, runtime),
    };
#undef CALL
  }
};

TEST_F(BadInputTest, NullAndGarbageHandlesAreRefusedByEveryFunction) {
  for (const uint64_t word : {uint64_t{0}, uint64_t{1}, UINT64_MAX, uint64_t{0x0600000100000007}}) {
    for (const auto& [name, status] : CallAll(reinterpret_cast<void*>(word))) {
      EXPECT_EQ(status, GPUSHARE_INVALID_ARGUMENT) << name << " with " << word;
    }
  }
}

TEST_F(BadInputTest, DestroyedHandlesAreRefusedByEveryFunction) {
  gpushare_runtime runtime = nullptr;
  gpushare_runtime_options options = {};
  options.struct_size = sizeof(options);
  options.driver = "sim";
  ASSERT_EQ(gpushare_runtime_create(&options, &runtime), GPUSHARE_OK);
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  gpushare_stream stream = nullptr;
  ASSERT_EQ(gpushare_stream_create(device.handle(), &stream), GPUSHARE_OK);
  gpushare_allocator allocator = nullptr;
  ASSERT_EQ(gpushare_allocator_create(device.handle(), nullptr, &allocator), GPUSHARE_OK);
  ASSERT_EQ(gpushare_runtime_destroy(runtime), GPUSHARE_OK);
  ASSERT_EQ(gpushare_stream_destroy(stream), GPUSHARE_OK);
  ASSERT_EQ(gpushare_allocator_destroy(allocator), GPUSHARE_OK);
  for (void* word :
       {static_cast<void*>(runtime), static_cast<void*>(stream), static_cast<void*>(allocator)}) {
    for (const auto& [name, status] : CallAll(word)) {
      EXPECT_EQ(status, GPUSHARE_INVALID_ARGUMENT) << name;
    }
  }
  EXPECT_EQ(gpushare_stream_destroy(stream), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), HasSubstr("the stream handle is not valid: destroyed"));
}

// In the child the library's threads are missing, so its calls would wait for ever.
TEST_F(BadInputTest, AChildOfForkIsRefusedAndTheParentGoesOn) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    const auto refused = [](gpushare_status status) {
      return status == GPUSHARE_FAILED_PRECONDITION &&
             std::string(gpushare_last_message()).find("forked") != std::string::npos;
    };
    if (!refused(gpushare_stream_synchronize(stream.handle()))) _exit(1);
    if (!refused(gpushare_stream_destroy(stream.handle()))) _exit(2);
    if (!refused(gpushare_gpu_close(gpu_->handle()))) _exit(3);
    const auto runtime = Runtime::Create({.driver = "sim"});
    if (runtime.status().code() != absl::StatusCode::kFailedPrecondition) _exit(4);
    _exit(0);
  }
  int ended = -1;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  EXPECT_OK(Spin(stream, absl::Microseconds(10)));
  EXPECT_OK(stream.Synchronize());
}

TEST_F(BadInputTest, ATenantOfAnotherRuntimeIsNotTakenForOneOfThis) {
  const Runtime other = Must(Runtime::Create({.driver = "sim"}));
  const Tenant mine = MakeTenant("a"), others = Must(Tenant::Create(other, {.name = "a"}));
  const auto device = VirtualDevice::Create(*gpu_, others, "memory=1GiB");
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("of another runtime"));
  EXPECT_OK(VirtualDevice::Create(*gpu_, mine, "memory=1GiB").status());
}

// Runtimes over one driver have the same pointers.
TEST_F(BadInputTest, AFreeThroughAnotherRuntimeCreditsWhoAllocated) {
  const Runtime other = Must(Runtime::Create({.driver = "sim"}));
  const Gpu others = Must(Gpu::Open(other, "0"));
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const auto used = [&] { return Must(device.stats()).memory.used; };
  const Allocator direct = Must(Allocator::Create(device));
  EXPECT_OK(others.Free(Must(direct.AllocateRaw(MiB(8)))));
  EXPECT_EQ(used(), MiB(0));
  const Allocator pool =
      Must(Allocator::Create(device, {.strategy = AllocationStrategy::kSuballocating}));
  const DevicePtr pointer = Must(pool.AllocateRaw(MiB(8)));
  const Bytes segment = used();
  EXPECT_OK(others.Free(pointer));
  // It is free in the pool, which keeps its segment: nobody frees that a second time.
  EXPECT_EQ(others.Free(pointer).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(used(), segment);
  EXPECT_EQ(UsedOnDevice(), segment.count());
  EXPECT_EQ(Must(pool.AllocateRaw(MiB(8))), pointer);
  EXPECT_OK(others.Free(pointer));
}

TEST_F(BadInputTest, AnotherGpusDeviceAndMemoryAreTold) {
  const Gpu second = Must(Gpu::Open(*runtime_, "1"));
  const Tenant tenant = MakeTenant("a");
  const VirtualDevice here = Must(VirtualDevice::Create(*gpu_, tenant, "memory=1GiB"));
  const VirtualDevice there = Must(VirtualDevice::Create(second, tenant, "memory=1GiB"));
  gpushare_vdev found = nullptr;
  EXPECT_EQ(gpushare_gpu_resolve(gpu_->handle(), there.handle(), nullptr, &found),
            GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), HasSubstr("another GPU"));

  // Memory freed through the wrong GPU is credited where it was charged.
  const Allocator allocator = Must(Allocator::Create(here));
  Allocation memory = Must(allocator.Allocate(MiB(100)));
  const DevicePtr pointer = memory.release();
  EXPECT_EQ(Must(here.stats()).memory.used, MiB(100));
  EXPECT_EQ(gpushare_gpu_free(second.handle(), pointer.value()), GPUSHARE_OK);
  EXPECT_EQ(Must(here.stats()).memory.used, MiB(0));
  EXPECT_EQ(Must(there.stats()).memory.used, MiB(0));
  EXPECT_EQ(gpushare_gpu_free(second.handle(), pointer.value()), GPUSHARE_INVALID_ARGUMENT);
}

TEST_F(BadInputTest, ReclaimMayDestroyItsOwnAllocator) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  static gpushare_allocator allocator = nullptr;
  static gpushare_device_ptr first = 0;
  gpushare_allocator_options options = {};
  options.struct_size = sizeof(options);
  options.over_quota = GPUSHARE_OVER_QUOTA_RECLAIM;
  options.reclaim = [](void*, uint64_t, uint64_t) -> int {
    EXPECT_EQ(gpushare_free(allocator, first), GPUSHARE_OK);
    EXPECT_EQ(gpushare_allocator_destroy(allocator), GPUSHARE_OK);
    return 1;
  };
  ASSERT_EQ(gpushare_allocator_create(device.handle(), &options, &allocator), GPUSHARE_OK);
  ASSERT_EQ(gpushare_alloc(allocator, GiB(1).count(), &first), GPUSHARE_OK);
  gpushare_device_ptr second = 0;
  EXPECT_EQ(gpushare_alloc(allocator, MiB(1).count(), &second), GPUSHARE_OK);
  EXPECT_EQ(Must(device.stats()).memory.used, MiB(1));
  EXPECT_EQ(gpushare_gpu_free(gpu_->handle(), second), GPUSHARE_OK);
}

// Whoever reclaims may allocate, also from the allocator that asks, and directly or through another one's callback.
TEST_F(BadInputTest, ReclaimIsNotAskedInsideItself) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  std::vector<Allocator> both;
  int asked[2] = {0, 0};
  for (const size_t i : {size_t{0}, size_t{1}}) {
    both.push_back(Must(Allocator::Create(
        device, {.over_quota = OverQuota::kReclaim, .reclaim = [&, i](Bytes, Bytes) {
                   ++asked[i];
                   EXPECT_EQ(both[1 - i].Allocate(GiB(1)).status().code(),
                             absl::StatusCode::kResourceExhausted);
                   EXPECT_EQ(both[i].Allocate(GiB(1)).status().code(),
                             absl::StatusCode::kResourceExhausted);
                   EXPECT_OK(both[i].Allocate(MiB(1)).status());
                   return false;
                 }})));
  }
  const Allocation most = Must(both[0].Allocate(MiB(1000)));
  EXPECT_EQ(both[0].Allocate(MiB(100)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(asked[0], 1);
  EXPECT_EQ(asked[1], 1);
}

TEST_F(BadInputTest, ABorrowerThatAllocatesForTheOwnerIsNotAskedAgain) {
  const VirtualDevice owner = MakeDevice("owner", "memory=6GiB");
  const VirtualDevice borrower = MakeDevice("borrower", "memory=512MiB,memory_cap=100%");
  const Allocator of_owner = Must(Allocator::Create(owner));
  const Allocator of_borrower = Must(Allocator::Create(borrower));
  std::vector<Allocation> held;
  for (;;) {
    absl::StatusOr<Allocation> more = of_borrower.Allocate(MiB(512));
    if (!more.ok()) break;
    held.push_back(*std::move(more));
  }
  int asked = 0;
  ASSERT_OK(borrower.OnReclaim([&](Bytes) {
    ++asked;
    EXPECT_EQ(of_owner.Allocate(GiB(5)).status().code(), absl::StatusCode::kResourceExhausted);
    return false;
  }));
  EXPECT_EQ(of_owner.Allocate(GiB(5)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(asked, 1);
  EXPECT_OK(borrower.OnReclaim(nullptr));
}

TEST_F(BadInputTest, ALeaseWhoseResultCannotBeWrittenIsStillHeld) {
  const VirtualDevice device = MakeDevice("a", "");
  gpushare_lease_options options = {};
  options.struct_size = sizeof(options);
  gpushare_lease lease = nullptr;
  ASSERT_EQ(gpushare_lease_acquire(device.handle(), &options, &lease), GPUSHARE_OK);
  gpushare_lease_result result = {};  // without a struct_size
  EXPECT_EQ(gpushare_lease_release(lease, &result), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), HasSubstr("struct_size"));
  result.struct_size = sizeof(result);
  EXPECT_EQ(gpushare_lease_release(lease, &result), GPUSHARE_OK);
}

TEST_F(BadInputTest, ARefusalShowsEvenOneByteTooMuch) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Allocator allocator = Must(Allocator::Create(device));
  const auto refused = allocator.Allocate(Bytes(GiB(1).count() + 1));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("1.0 GiB (1 B more) asked, 1 GiB left"));
}

TEST_F(BadInputTest, NullOutParametersAreNamed) {
  const VirtualDevice device = MakeDevice("a", "");
  EXPECT_EQ(gpushare_stream_create(device.handle(), nullptr), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_STREQ(gpushare_last_message(), "'stream' is null");
  EXPECT_EQ(gpushare_vdev_get_stats(device.handle(), nullptr), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_EQ(gpushare_runtime_create(nullptr, nullptr), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_EQ(gpushare_vdev_memory(device.handle(), nullptr, nullptr), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_EQ(gpushare_last_detail(nullptr), GPUSHARE_INVALID_ARGUMENT);
  gpushare_vdev_stats stats = {};
  EXPECT_EQ(gpushare_vdev_get_stats(device.handle(), &stats), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), HasSubstr("struct_size is 0"));
}

TEST_F(BadInputTest, OutStructsOfOtherVersions) {
  const VirtualDevice device = MakeDevice("a", "");
  // An older program knows only the first fields.
  gpushare_vdev_stats stats = {};
  stats.struct_size = offsetof(gpushare_vdev_stats, weight);
  stats.weight = 1234;
  EXPECT_EQ(gpushare_vdev_get_stats(device.handle(), &stats), GPUSHARE_OK);
  EXPECT_STREQ(stats.tenant, "a");
  EXPECT_EQ(stats.weight, 1234);
  EXPECT_EQ(stats.struct_size, offsetof(gpushare_vdev_stats, weight));
}

// Half a pointer does not count as a pointer.
TEST_F(BadInputTest, StructsThatEndWithinAFieldAreRefused) {
  gpushare_tenant_options options = {};
  options.name = "half";
  for (uint32_t size = 1; size <= sizeof(options); ++size) {
    options.struct_size = size;
    gpushare_tenant tenant = nullptr;
    const gpushare_status status = gpushare_tenant_create(runtime_->handle(), &options, &tenant);
    // The name is the second word; a shorter struct has no name.
    EXPECT_EQ(status, size < 16 || size % 8 != 0 ? GPUSHARE_INVALID_ARGUMENT : GPUSHARE_OK) << size;
    if (status == GPUSHARE_OK) {
      EXPECT_EQ(gpushare_tenant_destroy(tenant), GPUSHARE_OK);
    } else if (size % 8 != 0) {
      EXPECT_THAT(gpushare_last_message(), HasSubstr("struct_size"));
    }
  }
  const VirtualDevice device = MakeDevice("a", "");
  gpushare_vdev_stats stats = {};
  stats.struct_size = sizeof(stats) - 1;
  EXPECT_EQ(gpushare_vdev_get_stats(device.handle(), &stats), GPUSHARE_INVALID_ARGUMENT);
}

TEST_F(BadInputTest, BrokenCode) {
  for (const char* image : {"", "not PTX", ".version",
                            "\x7f"
                            "ELF",
                            ".version 7.0\n.target sm_70\n.entry {"}) {
    const auto module = Module::Load(*gpu_, image);
    EXPECT_EQ(module.status().code(), absl::StatusCode::kInvalidArgument) << image;
  }
  // The message has the driver compiler's error and its position.
  const absl::Status cut = Module::Load(*gpu_, ".version 7.0\n.target sm_70\n.entry {").status();
  EXPECT_THAT(std::string(cut.message()),
              ::testing::AllOf(HasSubstr("CUDA_ERROR_INVALID_PTX"), HasSubstr("line 3")));
  EXPECT_EQ(ErrorDetail::Of(cut)->driver_result, 218);
  gpushare_module module = nullptr;
  EXPECT_EQ(gpushare_module_load(gpu_->handle(), nullptr, &module), GPUSHARE_INVALID_ARGUMENT);
  const auto missing = module_->GetFunction("no_such_kernel");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("'no_such_kernel'"));
}

TEST_F(BadInputTest, ImpossibleLaunches) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  uint64_t ns = 1000;
  void* params[] = {&ns};
  EXPECT_EQ(stream.LaunchRaw(nullptr, Whole(), params).code(), absl::StatusCode::kInvalidArgument);
  for (const LaunchShape& shape :
       {LaunchShape{.grid = {0}}, LaunchShape{.block = {0}}, LaunchShape{.block = {4096}},
        LaunchShape{.block = {65536, 65536, 65536}}, LaunchShape{.shared = GiB(1)}}) {
    EXPECT_EQ(stream.LaunchRaw(spin_.native(), shape, params).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(stream.LaunchRaw(spin_.native(), Whole(), params, absl::Seconds(-1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream.LaunchGraph(nullptr).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream.Record(nullptr).code(), absl::StatusCode::kInvalidArgument);
  // Nothing stays charged, and the stream still works.
  EXPECT_OK(Spin(stream, absl::Microseconds(10)));
  EXPECT_OK(stream.Synchronize());
  EXPECT_EQ(Must(device.stats()).compute.launches, 1u);
}

TEST_F(BadInputTest, MovedFromObjectsAnswer) {
  VirtualDevice device = MakeDevice("a", "memory=1GiB");
  Stream stream = Must(Stream::Create(device));
  Allocator allocator = Must(Allocator::Create(device));
  Allocation memory = Must(allocator.Allocate(MiB(1)));
  const Stream stream2 = std::move(stream);
  const Allocator allocator2 = std::move(allocator);
  const Allocation memory2 = std::move(memory);
  const VirtualDevice device2 = std::move(device);
  EXPECT_EQ(stream.Synchronize().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(allocator.Allocate(MiB(1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device.stats().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(static_cast<bool>(memory.pointer()));
  EXPECT_OK(memory.Free());
  EXPECT_EQ(Must(device2.stats()).memory.used, MiB(1));
}

// Where null means "none" in the C interface.
TEST_F(BadInputTest, MovedFromObjectsAreNotTakenForNone) {
  Tenant tenant = MakeTenant("a");
  VirtualDevice device = Must(VirtualDevice::Create(*gpu_, tenant, "memory=1GiB"));
  const Allocator allocator = Must(Allocator::Create(device));
  Stream stream = Must(Stream::Create(device));
  const Stream stream2 = std::move(stream);
  const absl::Status unordered = allocator.Allocate(MiB(1), {.stream = &stream}).status();
  EXPECT_EQ(unordered, absl::InvalidArgumentError("the stream handle is null"));

  CUctx_st* const context = device.native_context();
  ASSERT_OK(device.BindContext(*gpu_, context));
  const VirtualDevice device2 = std::move(device);
  EXPECT_EQ(device.BindContext(*gpu_, context).code(), absl::StatusCode::kInvalidArgument);
  const auto token = std::make_shared<int>(0);
  EXPECT_EQ(device.OnReclaim([token](Bytes) { return false; }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(token.use_count(), 1);
  // The thread is still bound.
  const DevicePtr pointer = Must(gpu_->Allocate(MiB(1)));
  EXPECT_EQ(Must(device2.stats()).memory.used, MiB(1));
  EXPECT_OK(gpu_->Free(pointer));

  const Tenant tenant2 = std::move(tenant);
  EXPECT_EQ(Tenant::Create(*runtime_, {.name = "b", .parent = &tenant}).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const TenantToken given : {TenantToken(tenant), TenantScope::Current()}) {
    const TenantScope scope(given);
    EXPECT_EQ(scope.status().ok(), !static_cast<bool>(given));
  }
  EXPECT_EQ(TenantScope(tenant).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_OK(TenantScope(tenant2).status());
}

TEST_F(BadInputTest, NothingLeaksThroughFailures) {
  const uint64_t used = UsedOnDevice();
  const size_t before = Must(Snapshot::Take(*runtime_)).devices.size();
  for (int i = 0; i < 100; ++i) {
    const Tenant tenant = MakeTenant("t");
    EXPECT_FALSE(VirtualDevice::Create(*gpu_, tenant, "memory=100GiB").ok());
    EXPECT_FALSE(VirtualDevice::Create(*gpu_, tenant, "compute=200%").ok());
    EXPECT_FALSE(Tenant::Create(*runtime_, {.name = "t"}).ok());
  }
  EXPECT_EQ(Must(Snapshot::Take(*runtime_)).devices.size(), before);
  EXPECT_EQ(UsedOnDevice(), used);
}

TEST_F(BadInputTest, AnIllegalAddressIsReportedToWhoWaits) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  std::optional<Stream> stream = Must(Stream::Create(device));
  ASSERT_OK(Inject("illegal_address kernel=spin"));
  ASSERT_OK(Spin(*stream, absl::Microseconds(10)));
  const absl::Status status = stream->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(ErrorDetail::Of(status)->driver_result, 700);
  EXPECT_FALSE(Spin(*stream, absl::Microseconds(10)).ok());
  stream.reset();  // destructors cope with a lost context
}

TEST_F(BadInputTest, MemoryThatWentWithItsContextIsCredited) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Stream stream = Must(Stream::Create(device));
  const Allocator allocator = Must(Allocator::Create(device));
  const DevicePtr pointer = Must(allocator.AllocateRaw(MiB(100)));
  ASSERT_OK(Inject("illegal_address kernel=spin"));
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  EXPECT_EQ(stream.Synchronize().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(allocator.Free(pointer).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Must(device.stats()).memory.used, Bytes(0));
  EXPECT_EQ(Must(device.stats()).memory.allocations, 0u);
}

TEST_F(BadInputTest, ADetailIsReadableAndReadsBack) {
  const VirtualDevice device = MakeDevice("a b=c", "memory=1GiB");
  const Allocator allocator = Must(Allocator::Create(device));
  const absl::Status refused = allocator.Allocate(GiB(2)).status();
  std::ostringstream shown;
  shown << refused;
  EXPECT_THAT(shown.str(), HasSubstr("[gpushare/error-detail='limit=memory asked=2147483648 "
                                     "left=1073741824 total=1073741824 tenant=a b=c']"));
  const ErrorDetail detail = ErrorDetail::Of(refused).value();
  EXPECT_EQ(detail.limit, "memory");
  EXPECT_EQ(detail.asked, GiB(2).count());
  EXPECT_EQ(detail.left, GiB(1).count());
  EXPECT_EQ(detail.total, GiB(1).count());
  EXPECT_EQ(detail.tenant, "a b=c");
  EXPECT_EQ(detail.driver_result, 0);
}

TEST_F(BadInputTest, ErrorsAreTheThreadsOwn) {
  EXPECT_EQ(gpushare_runtime_destroy(nullptr), GPUSHARE_INVALID_ARGUMENT);
  const std::string mine = gpushare_last_message();
  std::string other = "?";
  std::thread([&other] { other = gpushare_last_message(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_EQ(gpushare_last_message(), mine);
}

}  // namespace
}  // namespace gpushare
