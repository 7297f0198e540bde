// SPDX-License-Identifier: Apache-2.0
#include "shim/launch_kernel.h"

#include <atomic>
#include <cstdint>

#include "gate/engine.h"
#include "gate/pocket.h"
#include "shim/gated.h"
#include "shim/process.h"

// Sanitizers have to see each memory access, so they get the C++ version.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define GPUSHARE_LAUNCHES_IN_ASSEMBLY 1
#else
#define GPUSHARE_LAUNCHES_IN_ASSEMBLY 0
#endif

// The functions that launch_kernel.S defines, and those that it needs.
extern "C" {

gpushare::shim::LaunchKernelFunction gpushare_shim_launch_kernel, gpushare_shim_launch_kernel_ptsz;

gpushare::shim::LaunchKernelFunction gpushare_shim_launch_kernel_uncommon,
    gpushare_shim_launch_kernel_ptsz_uncommon;
bool gpushare_shim_launch_claim(gpushare::gate::Pocket* pocket, uint64_t before) noexcept;
CUresult gpushare_shim_launch_refused(gpushare::gate::StreamGate* stream, uint32_t launch,
                                      CUresult result);
extern struct gpushare_shim_launch_state {
  const std::atomic<uint64_t>* known_epoch;
  decltype(gpushare::driver::Table::LaunchKernel) driver;
} gpushare_shim_launch;

}  // extern "C"

namespace gpushare::shim {
namespace {

template <bool kPerThread>
[[gnu::noinline]] CUresult LaunchKernelUncommon(CUfunction function, unsigned grid_x,
                                                unsigned grid_y, unsigned grid_z, unsigned block_x,
                                                unsigned block_y, unsigned block_z,
                                                unsigned shared_bytes, CUstream stream,
                                                void** params, void** extra) {
  using Uncommon = Gated<&work::Calls::LaunchKernel>;
  constexpr auto kCall = kPerThread ? &Uncommon::PerThread : &Uncommon::Legacy;
  return kCall(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
               params, extra);
}

template <bool kPerThread>
CUresult LaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      CUstream stream, void** params, void** extra) {
  CUresult result;
  if (Process::CallsAtOnce().LaunchKernelAgain(
          /*gates=*/nullptr, function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
          shared_bytes, kPerThread ? PerThread(stream) : stream, params, extra, &result))
      [[likely]] {
    return result;
  }
  return LaunchKernelUncommon<kPerThread>(function, grid_x, grid_y, grid_z, block_x, block_y,
                                          block_z, shared_bytes, stream, params, extra);
}

}  // namespace

LaunchKernelFunction* LaunchKernelHook(bool per_thread) {
#if GPUSHARE_LAUNCHES_IN_ASSEMBLY
  return per_thread ? &gpushare_shim_launch_kernel_ptsz : &gpushare_shim_launch_kernel;
#else
  return per_thread ? &LaunchKernel<true> : &LaunchKernel<false>;
#endif
}

void LaunchKernelsBy(const work::Calls& calls, const driver::Table& driver) {
  gpushare_shim_launch = {&calls.known_epoch(), driver.LaunchKernel};
}

}  // namespace gpushare::shim

gpushare_shim_launch_state gpushare_shim_launch;

// For a default stream the current context may first have to be read from the driver. The launch may then still repeat an
// earlier one, so the fast path is tried once more.
CUresult gpushare_shim_launch_kernel_uncommon(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                              unsigned bx, unsigned by, unsigned bz, unsigned bytes,
                                              CUstream stream, void** params, void** extra) {
  using namespace gpushare;  // NOLINT(google-build-using-namespace): a C name
  return work::Streams::IsSpecial(stream)
             ? shim::LaunchKernel<false>(f, gx, gy, gz, bx, by, bz, bytes, stream, params, extra)
             : shim::LaunchKernelUncommon<false>(f, gx, gy, gz, bx, by, bz, bytes, stream, params,
                                                 extra);
}
CUresult gpushare_shim_launch_kernel_ptsz_uncommon(CUfunction f, unsigned gx, unsigned gy,
                                                   unsigned gz, unsigned bx, unsigned by,
                                                   unsigned bz, unsigned bytes, CUstream stream,
                                                   void** params, void** extra) {
  using namespace gpushare;  // NOLINT(google-build-using-namespace): a C name
  return stream == nullptr || work::Streams::IsSpecial(stream)
             ? shim::LaunchKernel<true>(f, gx, gy, gz, bx, by, bz, bytes, stream, params, extra)
             : shim::LaunchKernelUncommon<true>(f, gx, gy, gz, bx, by, bz, bytes, stream, params,
                                                extra);
}
bool gpushare_shim_launch_claim(gpushare::gate::Pocket* pocket, uint64_t before) noexcept {
  return gpushare::gate::Pocket::Claim(*pocket, before);
}
CUresult gpushare_shim_launch_refused(gpushare::gate::StreamGate* stream, uint32_t launch,
                                      CUresult result) {
  gpushare::gate::Gate::Refused(*stream, launch);
  return result;
}
