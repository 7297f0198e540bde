// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/driver_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/stage/own_symbol.h"

namespace gpushare::harness {
namespace {

constexpr size_t kPiece = 1 << 20;

absl::Status Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": error ", static_cast<int>(result)));
}

class DriverCalls final : public Calls {
 public:
  DriverCalls(const DriverTable& driver, const player::Step& step)
      : driver_(driver), step_(ShortOf(step)) {}

  absl::Status Open() {
    CUcontext context = nullptr;
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.retain(&context, 0), "cuDevicePrimaryCtxRetain"));
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.set_current(context), "cuCtxSetCurrent"));
    GPUSHARE_RETURN_IF_ERROR(
        Check(driver_.create_stream(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
    GPUSHARE_RETURN_IF_ERROR(
        Check(driver_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "capture"));
    GPUSHARE_RETURN_IF_ERROR(Launch(kKernelsInGraph));
    CUgraph graph = nullptr;
    GPUSHARE_RETURN_IF_ERROR(Check(driver_.end_capture(stream_, &graph), "capture"));
    return Check(driver_.instantiate(&graph_, graph, 0), "cuGraphInstantiate");
  }

  absl::Status Launch(int times) override {
    uint64_t duration_ns = step_.duration_ns, block_ns = step_.block_ns, stamps = step_.stamps;
    void* params[] = {&duration_ns, &block_ns, &stamps};
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < times && result == CUDA_SUCCESS; ++i) {
      result = driver_.launch(step_.function, step_.grid, 1, 1, step_.block, 1, 1,
                              step_.shared_bytes, stream_, params, nullptr);
    }
    return Check(result, "cuLaunchKernel");
  }
  absl::Status LaunchGraph(int times) override {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < times && result == CUDA_SUCCESS; ++i) {
      result = driver_.launch_graph(graph_, stream_);
    }
    return Check(result, "cuGraphLaunch");
  }
  absl::Status AllocateAndFree(int times) override {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < times && result == CUDA_SUCCESS; ++i) {
      CUdeviceptr piece = 0;
      result = driver_.allocate(&piece, kPiece);
      if (result == CUDA_SUCCESS) result = driver_.free(piece);
    }
    return Check(result, "cuMemAlloc and cuMemFree");
  }
  absl::Status Drain() override {
    return Check(driver_.synchronize(stream_), "cuStreamSynchronize");
  }

 private:
  const DriverTable driver_;
  const player::Step step_;
  CUstream stream_ = nullptr;
  CUgraphExec graph_ = nullptr;
};

}  // namespace

player::Step ShortOf(player::Step step) {
  step.grid = 1;
  step.duration_ns = step.block_ns = 1000;
  return step;
}

absl::StatusOr<DriverTable> DriverTableOf(void* library) {
  DriverTable table;
  std::string lacks;
  const auto find = [&](auto* out, const char* name) {
    *out = reinterpret_cast<std::remove_pointer_t<decltype(out)>>(OwnSymbol(library, name));
    if (*out == nullptr) lacks = name;
  };
  find(&table.retain, "cuDevicePrimaryCtxRetain");
  find(&table.set_current, "cuCtxSetCurrent");
  find(&table.create_stream, "cuStreamCreate");
  find(&table.synchronize, "cuStreamSynchronize");
  find(&table.launch, "cuLaunchKernel");
  find(&table.allocate, "cuMemAlloc_v2");
  find(&table.free, "cuMemFree_v2");
  find(&table.begin_capture, "cuStreamBeginCapture_v2");
  find(&table.end_capture, "cuStreamEndCapture");
  find(&table.instantiate, "cuGraphInstantiateWithFlags");
  find(&table.launch_graph, "cuGraphLaunch");
  if (lacks.empty()) return table;
  return absl::InternalError(absl::StrCat("the driver lacks ", lacks));
}

absl::StatusOr<std::unique_ptr<Calls>> MakeDriverCalls(const DriverTable& driver,
                                                       const player::Step& step) {
  auto calls = std::make_unique<DriverCalls>(driver, step);
  GPUSHARE_RETURN_IF_ERROR(calls->Open());
  return calls;
}

}  // namespace gpushare::harness
