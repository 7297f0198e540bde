// SPDX-License-Identifier: Apache-2.0
// A program without gpushare, linked with the driver as most are: each tenant has a stream and a thread.
#include <cuda.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/stage/driver_calls.h"
#include "harness/stage/native_memory.h"
#include "harness/stage/stage.h"
#include "workload/spin.h"

namespace gpushare::harness {
namespace {

absl::Status Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return absl::InternalError(absl::StrCat(call, ": ", name == nullptr ? "an error" : name));
}

class NativeSeat final : public Seat, player::Port {
 public:
  NativeSeat(base::Clock& clock, CUcontext context, CUmodule module, CUstream stream,
             CUstream memory_stream, player::Program program)
      : clock_(clock),
        context_(context),
        module_(module),
        stream_(stream),
        program_(std::move(program)),
        memory_stream_(memory_stream),
        memory_(context, memory_stream) {}
  ~NativeSeat() override {
    cuCtxSetCurrent(context_);
    cuStreamDestroy(stream_);
    cuStreamDestroy(memory_stream_);
    cuModuleUnload(module_);
  }

  player::Port& port() override { return *this; }
  const player::Program& program() const override { return program_; }
  CUstream stream() const override { return stream_; }
  absl::StatusOr<uint64_t> Allocate(MemoryFamily family, uint64_t bytes) override {
    return memory_.Allocate(family, bytes);
  }
  absl::Status Free(MemoryFamily family, uint64_t pointer, uint64_t bytes) override {
    return memory_.Free(family, pointer, bytes);
  }
  absl::StatusOr<std::unique_ptr<Calls>> MakeCalls() override {
    // The functions that the loader found: a preloaded library's if there is one.
    const DriverTable linked = {
        .retain = &cuDevicePrimaryCtxRetain,
        .set_current = &cuCtxSetCurrent,
        .create_stream = &cuStreamCreate,
        .synchronize = &cuStreamSynchronize,
        .launch = &cuLaunchKernel,
        .allocate = &cuMemAlloc,
        .free = &cuMemFree,
        .begin_capture = &cuStreamBeginCapture,
        .end_capture = &cuStreamEndCapture,
        .instantiate = &cuGraphInstantiateWithFlags,
        .launch_graph = &cuGraphLaunch,
    };
    return MakeDriverCalls(linked, program_.steps.front());
  }

 private:
  absl::Status Launch(const player::Step& step) override {
    GPUSHARE_RETURN_IF_ERROR(Enter());
    uint64_t duration_ns = step.duration_ns, block_ns = step.block_ns, stamps = step.stamps;
    void* params[] = {&duration_ns, &block_ns, &stamps};
    return Check(cuLaunchKernel(step.function, step.grid, 1, 1, step.block, 1, 1, step.shared_bytes,
                                stream_, params, nullptr),
                 "cuLaunchKernel");
  }
  absl::Status Synchronize() override {
    GPUSHARE_RETURN_IF_ERROR(Enter());
    return Check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }
  Time Now() override { return clock_.Now(); }
  void SleepUntil(Time when) override { clock_.SleepUntil(when); }

  // Makes the context current on first use by the playing thread.
  absl::Status Enter() {
    if (std::exchange(entered_, true)) return absl::OkStatus();
    return Check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  }

  base::Clock& clock_;
  const CUcontext context_;
  const CUmodule module_;
  const CUstream stream_;
  const player::Program program_;
  const CUstream memory_stream_;  // separate, so that allocations do not wait for kernels
  NativeMemory memory_;
  bool entered_ = false;
};

class NativeStage final : public Stage {
 public:
  explicit NativeStage(base::Clock& clock) : clock_(clock) {}

  absl::Status Open() {
    GPUSHARE_RETURN_IF_ERROR(Check(cuInit(0), "cuInit"));
    GPUSHARE_RETURN_IF_ERROR(
        Check(cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain"));
    GPUSHARE_RETURN_IF_ERROR(Check(cuCtxSetCurrent(context_), "cuCtxSetCurrent"));
    const auto attribute = [](CUdevice_attribute which) {
      int value = 0;
      return cuDeviceGetAttribute(&value, which, 0) == CUDA_SUCCESS ? value : 0;
    };
    device_.sms = std::max(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 1);
    device_.shared_per_sm =
        workload::SharedPerSm(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                              attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Seat>> Sit(const TenantPlan& plan,
                                            const workload::KernelTrace& trace) override {
    constexpr int kSharedWithoutAsking = 48 << 10;
    GPUSHARE_ASSIGN_OR_RETURN(const workload::SpinModule spin, workload::MakeSpinModule(trace));
    CUmodule module = nullptr;
    GPUSHARE_RETURN_IF_ERROR(
        Check(cuModuleLoadData(&module, spin.ptx.c_str()), "cuModuleLoadData"));
    std::vector<CUfunction> functions(spin.entries.size());
    for (size_t i = 0; i < functions.size(); ++i) {
      GPUSHARE_RETURN_IF_ERROR(
          Check(cuModuleGetFunction(&functions[i], module, spin.entries[i].c_str()),
                "cuModuleGetFunction"));
    }
    player::Program program = player::MakeProgram(trace, device_, functions);
    const auto shared = static_cast<int>(program.steps.front().shared_bytes);
    for (CUfunction function : functions) {
      if (shared <= kSharedWithoutAsking) break;
      GPUSHARE_RETURN_IF_ERROR(Check(
          cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared),
          "cuFuncSetAttribute"));
    }
    int least = 0, greatest = 0;
    GPUSHARE_RETURN_IF_ERROR(
        Check(cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange"));
    CUstream stream = nullptr;
    GPUSHARE_RETURN_IF_ERROR(
        Check(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING,
                                         plan.high_priority ? greatest : least),
              "cuStreamCreateWithPriority"));
    CUstream memory_stream = nullptr;
    GPUSHARE_RETURN_IF_ERROR(
        Check(cuStreamCreate(&memory_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
    return std::make_unique<NativeSeat>(clock_, context_, module, stream, memory_stream,
                                        std::move(program));
  }

 private:
  base::Clock& clock_;
  CUcontext context_ = nullptr;
  workload::SpinDevice device_;
};

}  // namespace
}  // namespace gpushare::harness

int main(int argc, char** argv) {
  using namespace gpushare::harness;
  return RunStage(argc, argv,
                  [](gpushare::base::Clock& clock) -> absl::StatusOr<std::unique_ptr<Stage>> {
                    auto stage = std::make_unique<NativeStage>(clock);
                    GPUSHARE_RETURN_IF_ERROR(stage->Open());
                    return stage;
                  });
}
