// SPDX-License-Identifier: Apache-2.0
// Time slices: of the processes that share a GPU, one at a time has its SMs. Each GPU has its own slices.
//
// A process wants the SMs while it has kernels or records of events with timing. It keeps them as long as no other process
// wants them, and otherwise until the end of its slice, even in the middle of a kernel. Then the next process gets them,
// round-robin, and a change costs `slice_switch`. The kernels of the other processes stand still meanwhile. Copy engines are
// not sliced.
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

  // Call before running this process's events at `now`: another process may have got the SMs at an earlier time.
  void Notice(Device& device, Timeline& timeline, uint64_t now);
  // Call after these events and after new work: takes, keeps or gives up the SMs. Returns when to call again.
  uint64_t Update(Device& device, Timeline& timeline, uint64_t now);
  // Takes the SMs from a process that has ended. Call with the lock held.
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
