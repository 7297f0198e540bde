// SPDX-License-Identifier: Apache-2.0
// A program linked with gpushare: each tenant has a virtual device, a stream and a thread.
#include <cuda.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/demo/api_port.h"
#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"
#include "harness/partitions.h"
#include "harness/stage/driver_calls.h"
#include "harness/stage/stage.h"

namespace gpushare::harness {
namespace {

constexpr Bytes kPiece = MiB(1);

absl::Status WithoutWords(const absl::Status& status) {
  // A refusal by the device itself counts as refused, too.
  return absl::IsResourceExhausted(status) ? absl::ResourceExhaustedError("") : status;
}

// The calls of a program linked with gpushare.
class VirtualDeviceCalls final : public Calls {
 public:
  static absl::StatusOr<std::unique_ptr<Calls>> Create(const VirtualDevice& device,
                                                       const Allocator& allocator,
                                                       const player::Step& step) {
    GPUSHARE_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device));
    auto calls = std::unique_ptr<VirtualDeviceCalls>(
        new VirtualDeviceCalls(std::move(stream), allocator, ShortOf(step)));
    GPUSHARE_RETURN_IF_ERROR(calls->stream_.BeginCapture());
    GPUSHARE_RETURN_IF_ERROR(calls->Launch(kKernelsInGraph));
    GPUSHARE_ASSIGN_OR_RETURN(Graph graph, calls->stream_.EndCapture());
    calls->graph_.emplace(std::move(graph));
    return calls;
  }

  absl::Status Launch(int times) override {
    uint64_t duration_ns = step_.duration_ns, block_ns = step_.block_ns, stamps = step_.stamps;
    void* params[] = {&duration_ns, &block_ns, &stamps};
    const LaunchShape shape = {
        .grid = {step_.grid}, .block = {step_.block}, .shared = Bytes(step_.shared_bytes)};
    absl::Status status;
    for (int i = 0; i < times && status.ok(); ++i) {
      status = stream_.LaunchRaw(step_.function, shape, params);
    }
    return status;
  }
  absl::Status LaunchGraph(int times) override {
    absl::Status status;
    for (int i = 0; i < times && status.ok(); ++i) status = stream_.LaunchGraph(*graph_);
    return status;
  }
  absl::Status AllocateAndFree(int times) override {
    for (int i = 0; i < times; ++i) {
      const absl::StatusOr<DevicePtr> piece = allocator_.AllocateRaw(kPiece);
      if (!piece.ok()) return piece.status();
      GPUSHARE_RETURN_IF_ERROR(allocator_.Free(*piece));
    }
    return absl::OkStatus();
  }
  absl::Status Drain() override { return stream_.Synchronize(); }

 private:
  VirtualDeviceCalls(Stream stream, const Allocator& allocator, const player::Step& step)
      : stream_(std::move(stream)), allocator_(allocator), step_(step) {}

  const Stream stream_;
  const Allocator& allocator_;
  const player::Step step_;
  std::optional<Graph> graph_;
};

class VirtualDeviceSeat final : public Seat {
 public:
  static absl::StatusOr<std::unique_ptr<Seat>> Create(const Runtime& runtime, const Gpu& gpu,
                                                      const TenantPlan& plan,
                                                      const workload::KernelTrace& trace) {
    GPUSHARE_ASSIGN_OR_RETURN(Tenant tenant, Tenant::Create(runtime, {.name = plan.name}));
    GPUSHARE_ASSIGN_OR_RETURN(const VirtualDeviceSpec spec, VirtualDeviceSpec::Parse(plan.spec));
    GPUSHARE_ASSIGN_OR_RETURN(VirtualDevice device, VirtualDevice::Create(gpu, tenant, spec));
    GPUSHARE_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device));
    GPUSHARE_ASSIGN_OR_RETURN(CUstream_st* const native, stream.native());
    // A tenant with its own context loads the modules into that.
    const bool own_context = spec.isolation == Isolation::kContext;
    GPUSHARE_ASSIGN_OR_RETURN(cli::LoadedProgram loaded, own_context
                                                             ? cli::LoadProgram(gpu, trace, &device)
                                                             : cli::LoadProgram(gpu, trace));
    GPUSHARE_ASSIGN_OR_RETURN(Allocator direct, Allocator::Create(device));
    return std::unique_ptr<Seat>(
        new VirtualDeviceSeat(runtime, std::move(tenant), std::move(device), std::move(loaded),
                              std::move(stream), native, std::move(direct)));
  }

  player::Port& port() override { return port_; }
  const player::Program& program() const override { return loaded_.program; }
  CUstream_st* stream() const override { return native_; }
  absl::StatusOr<uint64_t> Allocate(MemoryFamily family, uint64_t bytes) override {
    if (family == MemoryFamily::kMalloc) return Raw(direct_.AllocateRaw(Bytes(bytes)));
    if (family != MemoryFamily::kAsync) return absl::UnimplementedError("not in the SDK");
    GPUSHARE_ASSIGN_OR_RETURN(const Allocator* const pool, Pool());
    return Raw(pool->AllocateRaw(Bytes(bytes), *memory_stream_));
  }
  absl::Status Free(MemoryFamily family, uint64_t pointer, uint64_t) override {
    if (family == MemoryFamily::kMalloc) return direct_.Free(DevicePtr(pointer));
    GPUSHARE_ASSIGN_OR_RETURN(const Allocator* const pool, Pool());
    GPUSHARE_RETURN_IF_ERROR(pool->Free(DevicePtr(pointer), *memory_stream_));
    return memory_stream_->Synchronize();
  }
  absl::StatusOr<std::unique_ptr<Calls>> MakeCalls() override {
    return VirtualDeviceCalls::Create(device_, direct_, program().steps.front());
  }

 private:
  VirtualDeviceSeat(const Runtime& runtime, Tenant tenant, VirtualDevice device,
                    cli::LoadedProgram loaded, Stream stream, CUstream_st* native, Allocator direct)
      : tenant_(std::move(tenant)),
        device_(std::move(device)),
        loaded_(std::move(loaded)),
        stream_(std::move(stream)),
        native_(native),
        direct_(std::move(direct)),
        port_(runtime, stream_) {}

  static absl::StatusOr<uint64_t> Raw(const absl::StatusOr<DevicePtr>& pointer) {
    if (pointer.ok()) return pointer->value();
    return WithoutWords(pointer.status());
  }

  // The stream-ordered allocator, created on first use with a stream of its own.
  absl::StatusOr<const Allocator*> Pool() {
    if (!pool_.has_value()) {
      GPUSHARE_ASSIGN_OR_RETURN(
          Allocator pool, Allocator::Create(device_, {.strategy = AllocationStrategy::kPool}));
      GPUSHARE_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device_));
      memory_stream_.emplace(std::move(stream));
      pool_.emplace(std::move(pool));
    }
    return &*pool_;
  }

  Tenant tenant_;
  VirtualDevice device_;
  cli::LoadedProgram loaded_;
  Stream stream_;
  CUstream_st* const native_;
  Allocator direct_;
  std::optional<Stream> memory_stream_;
  std::optional<Allocator> pool_;
  cli::ApiPort port_;
};

// The partitions that gpushare itself would get from the driver.
absl::StatusOr<PartitionedDevice> PartitionsOf(const Runtime& runtime, const Gpu& gpu) {
  GPUSHARE_ASSIGN_OR_RETURN(const GpuProbe probe, gpu.Probe());
  auto* const resource = runtime.Symbol<decltype(cuDeviceGetDevResource)>("cuDeviceGetDevResource");
  auto* const split =
      runtime.Symbol<decltype(cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
  constexpr char kNone[] =
      "the driver has no partitions of SMs; it takes one of CUDA 12.5 or newer";
  if (resource == nullptr || split == nullptr) return absl::UnimplementedError(kNone);
  CUdevResource all = {}, group = {};
  unsigned groups = 0, one = 1;
  CUresult result = resource(probe.ordinal, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) result = split(nullptr, &groups, &all, nullptr, 0, 0);
  if (result == CUDA_SUCCESS) result = split(&group, &one, &all, nullptr, 0, 0);
  if (result == CUDA_ERROR_NOT_SUPPORTED) return absl::UnimplementedError(kNone);
  if (result != CUDA_SUCCESS || groups == 0 || group.sm.smCount == 0) {
    return absl::InternalError(
        absl::StrCat("cuDevSmResourceSplitByCount: error ", static_cast<int>(result)));
  }
  return PartitionedDevice{.sms = std::max(probe.sm_count, 1),
                           .step = static_cast<int>(group.sm.smCount),
                           .steps = groups};
}

class VirtualDeviceStage final : public Stage {
 public:
  VirtualDeviceStage(Runtime runtime, Gpu gpu)
      : runtime_(std::move(runtime)), gpu_(std::move(gpu)) {}

  absl::StatusOr<std::vector<TenantPlan>> Prepare(const Plan& plan) override {
    std::vector<TenantPlan> tenants = plan.tenants;
    if (!plan.green) return tenants;
    GPUSHARE_ASSIGN_OR_RETURN(const PartitionedDevice device, PartitionsOf(runtime_, gpu_));
    std::vector<PartitionAsk> asks;
    for (const TenantPlan& each : tenants) asks.push_back({each.name, each.share, each.cap});
    GPUSHARE_ASSIGN_OR_RETURN(const std::vector<size_t> steps, StepsOf(asks, device));
    for (size_t i = 0; i < tenants.size(); ++i) {
      std::string& spec = tenants[i].spec;
      absl::StrAppend(&spec, spec.empty() ? "" : ",", GreenSpec(asks[i], steps[i], device));
    }
    return tenants;
  }

  absl::StatusOr<std::unique_ptr<Seat>> Sit(const TenantPlan& plan,
                                            const workload::KernelTrace& trace) override {
    return VirtualDeviceSeat::Create(runtime_, gpu_, plan, trace);
  }

 private:
  Runtime runtime_;
  Gpu gpu_;
};

absl::StatusOr<std::unique_ptr<Stage>> Open(base::Clock&) {
  GPUSHARE_ASSIGN_OR_RETURN(Runtime runtime, Runtime::Create());
  GPUSHARE_ASSIGN_OR_RETURN(Gpu gpu, Gpu::Open(runtime, "0"));
  return std::make_unique<VirtualDeviceStage>(std::move(runtime), std::move(gpu));
}

}  // namespace
}  // namespace gpushare::harness

int main(int argc, char** argv) {
  return gpushare::harness::RunStage(argc, argv, gpushare::harness::Open);
}
