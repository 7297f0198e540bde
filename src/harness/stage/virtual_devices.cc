// SPDX-License-Identifier: Apache-2.0
// A program that is linked with gpushare: each tenant a virtual device, a stream and a thread.
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "cli/demo/api_port.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"
#include "harness/stage/stage.h"

namespace gpushare::harness {
namespace {

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
    GPUSHARE_ASSIGN_OR_RETURN(cli::LoadedProgram loaded, cli::LoadProgram(gpu, trace));
    return std::unique_ptr<Seat>(new VirtualDeviceSeat(runtime, std::move(tenant),
                                                       std::move(device), std::move(loaded),
                                                       std::move(stream), native));
  }

  player::Port& port() override { return port_; }
  const player::Program& program() const override { return loaded_.program; }
  CUstream_st* stream() const override { return native_; }

 private:
  VirtualDeviceSeat(const Runtime& runtime, Tenant tenant, VirtualDevice device,
                    cli::LoadedProgram loaded, Stream stream, CUstream_st* native)
      : tenant_(std::move(tenant)),
        device_(std::move(device)),
        loaded_(std::move(loaded)),
        stream_(std::move(stream)),
        native_(native),
        port_(runtime, stream_) {}

  Tenant tenant_;
  VirtualDevice device_;
  cli::LoadedProgram loaded_;
  Stream stream_;
  CUstream_st* const native_;
  cli::ApiPort port_;
};

class VirtualDeviceStage final : public Stage {
 public:
  VirtualDeviceStage(Runtime runtime, Gpu gpu)
      : runtime_(std::move(runtime)), gpu_(std::move(gpu)) {}

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
