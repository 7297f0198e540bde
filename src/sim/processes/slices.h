// SPDX-License-Identifier: Apache-2.0
// Time slices: of the processes that share a GPU, one at a time has its SMs; of each GPU for itself.
//
// A process that has kernels, or records of events with timing, wants them. It keeps them while nobody else does, and else until the end of
// its slice, in the middle of a kernel too; then they go round, and a change costs `slice_switch`. Kernels
// of the others stand still meanwhile. Copy engines are not sliced.
#ifndef GPUSHARE_SIM_PROCESSES_SLICES_H_
#define GPUSHARE_SIM_PROCESSES_SLICES_H_

#include <cstdint>

namespace gpushare::sim {

class Device;
struct SharedGpu;
class SharedDevice;
class Timeline;

class SharedSlices {
 public:
  explicit SharedSlices(SharedDevice& device) : shared_(device) {}

  // Before this process's events of `now`: the SMs may be gone since an earlier time.
  void Notice(Device& device, Timeline& timeline, uint64_t now);
  // After them, and after it has new work: takes, keeps or gives up the SMs. When to look again.
  uint64_t Update(Device& device, Timeline& timeline, uint64_t now);
  // A process is over. With the lock held.
  void Release(uint32_t place, uint64_t now);

 private:
  void Grant(uint32_t gpu, uint64_t at);
  bool IsWantedBesides(uint32_t gpu, uint32_t place) const;
  bool IsSane(const SharedGpu& gpu, uint64_t now) const;
  uint64_t LostAt(uint32_t gpu, uint64_t now) const;

  SharedDevice& shared_;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_SLICES_H_
