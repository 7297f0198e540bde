// SPDX-License-Identifier: Apache-2.0
// Launches of kernels, in every form.
#include "work/calls.h"
#include "work/submit.h"

namespace gpushare::work {

Calls::Calls(const driver::Driver& driver, gate::Graphs* graphs)
    : opened_(driver),
      driver_(driver.table()),
      streams_(driver),
      own_graphs_(graphs == nullptr ? std::make_unique<gate::Graphs>() : nullptr),
      graphs_(graphs == nullptr ? *own_graphs_ : *graphs),
      spread_(driver) {}

int Calls::SharedSms() {
  CUdevice device = 0;
  if (driver_.CtxGetDevice(&device) != CUDA_SUCCESS || device < 0 || device >= Gates::kDevices) {
    return 0;
  }
  std::atomic<int>& kept = shared_sms_[static_cast<size_t>(device)];
  if (const int known = kept.load(std::memory_order_relaxed); known != 0) return known - 1;
  int sms = 0, concurrent = 1;
  driver_.DeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  driver_.DeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, device);
  const int shared = concurrent != 0 ? sms : 0;
  kept.store(shared + 1, std::memory_order_relaxed);
  return shared;
}

// False if the driver does not tell. Then it will most likely refuse the launch.
bool Calls::FindFootprint(CUfunction function, const driver::LaunchShape& shape, float* footprint) {
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  int blocks = 0;
  if (threads == 0 || threads > 1u << 16 ||
      driver_.OccupancyMaxActiveBlocksPerMultiprocessor(
          &blocks, function, static_cast<int>(threads), shape.shared_bytes) != CUDA_SUCCESS) {
    return false;
  }
  *footprint = gate::Footprint(shape, blocks, SharedSms());
  return true;
}

float Calls::KernelFootprint(uint64_t key, CUfunction function, const driver::LaunchShape& shape) {
  float footprint = 1;
  if (!footprints_.Find(key, &footprint) && FindFootprint(function, shape, &footprint))
      [[unlikely]] {
    footprints_.Put(key, footprint);
  }
  return footprint;
}

gate::Work Calls::KernelWork(CUfunction function, const driver::LaunchShape& shape,
                             bool cooperative) {
  gate::Work work;
  work.key = gate::KernelKey(function, shape);
  if (cooperative) work.kind = gate::Work::Kind::kCooperative;
  work.footprint = KernelFootprint(work.key, function, shape);
  return work;
}

bool Calls::TakeAnew(Streams::Known& known, CUfunction function, const driver::LaunchShape& shape,
                     uint32_t* launch) {
  const gate::Lane& lane = known.lane;
  const uint64_t key = gate::KernelKey(function, shape);
  const uint64_t before = lane.context->load(std::memory_order_relaxed);
  const meter::CostModel::Settled cost = lane.costs->FindSettled(key, before);
  if (cost.cost_ns == 0 || !lane.Pay(key, before, cost, /*graph=*/false, *known.pocket, launch)) {
    return false;
  }
  if (known.habits != nullptr) {
    known.last =
        known.habits->Learn(*lane.costs, function, shape, before, key, cost.entry, known.last);
  }
  return true;
}

bool Calls::LaunchKernelAtOnce(const Gates* gates, CUfunction function, unsigned grid_x,
                               unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, CUstream stream,
                               void** params, void** extra, CUresult* result) {
  const driver::LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return AtOnce(
      gates, stream,
      [&](Streams::Known& known, uint32_t* launch) {
        return TakeAnew(known, function, shape, launch);
      },
      [&] {
        return driver_.LaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                    shared_bytes, stream, params, extra);
      },
      result);
}

CUresult Calls::LaunchKernel(const Payer& payer, CUfunction function, unsigned grid_x,
                             unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                             unsigned block_z, unsigned shared_bytes, CUstream stream,
                             void** params, void** extra) {
  CUresult result;
  if (LaunchKernelAtOnce(payer.gates, function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                         shared_bytes, stream, params, extra, &result)) {
    return result;
  }
  return LaunchKernelHeld(payer, function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                          shared_bytes, stream, params, extra);
}

[[gnu::noinline]] CUresult Calls::LaunchKernelHeld(const Payer& payer, CUfunction function,
                                                   unsigned grid_x, unsigned grid_y,
                                                   unsigned grid_z, unsigned block_x,
                                                   unsigned block_y, unsigned block_z,
                                                   unsigned shared_bytes, CUstream stream,
                                                   void** params, void** extra) {
  const driver::LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return Submit(payer, stream, KernelWork(function, shape, /*cooperative=*/false), [&] {
    return driver_.LaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                shared_bytes, stream, params, extra);
  });
}

CUresult Calls::LaunchKernelEx(const Payer& payer, const CUlaunchConfig* config,
                               CUfunction function, void** params, void** extra) {
  const auto call = [&] { return driver_.LaunchKernelEx(config, function, params, extra); };
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) return call();
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      cooperative = attribute.value.cooperative != 0;
    }
  }
  const driver::LaunchShape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                                     {config->blockDimX, config->blockDimY, config->blockDimZ},
                                     config->sharedMemBytes};
  CUresult result;
  if (!cooperative && AtOnce(
                          payer.gates, config->hStream,
                          [&](Streams::Known& known, uint32_t* launch) {
                            return TakeAnew(known, function, shape, launch);
                          },
                          call, &result)) {
    return result;
  }
  return Submit(payer, config->hStream, KernelWork(function, shape, cooperative), call);
}

CUresult Calls::LaunchCooperativeKernel(const Payer& payer, CUfunction function, unsigned grid_x,
                                        unsigned grid_y, unsigned grid_z, unsigned block_x,
                                        unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                        CUstream stream, void** params) {
  const driver::LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return Submit(payer, stream, KernelWork(function, shape, /*cooperative=*/true), [&] {
    return driver_.LaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                                           block_z, shared_bytes, stream, params);
  });
}

// ---- Launches of before CUDA 4 ----

CUresult Calls::LaunchOfOld(const Payer& payer, CUfunction function, int width, int height,
                            CUstream stream, absl::FunctionRef<CUresult()> call) {
  if (width <= 0 || height <= 0) return call();
  const driver::LaunchShape shape = {
      {static_cast<unsigned>(width), static_cast<unsigned>(height), 1}, {0, 0, 0}, 0};
  gate::Work work;
  work.key = gate::KernelKey(function, shape);
  work.footprint = gate::Footprint(shape, 1, SharedSms());
  return Submit(payer, stream, work, call);
}

CUresult Calls::Launch(const Payer& payer, CUfunction function) {
  return LaunchOfOld(payer, function, 1, 1, nullptr, [&] { return driver_.LaunchOld(function); });
}
CUresult Calls::LaunchGrid(const Payer& payer, CUfunction function, int width, int height) {
  return LaunchOfOld(payer, function, width, height, nullptr,
                     [&] { return driver_.LaunchGrid(function, width, height); });
}
CUresult Calls::LaunchGridAsync(const Payer& payer, CUfunction function, int width, int height,
                                CUstream stream) {
  return LaunchOfOld(payer, function, width, height, stream,
                     [&] { return driver_.LaunchGridAsync(function, width, height, stream); });
}

}  // namespace gpushare::work
