// SPDX-License-Identifier: Apache-2.0
// Limits on a GPU that MPS and the cgroup (device memory) set for this process.
//
//   Surroundings found = LookAround(/*ordinal=*/0, "00000000:65:00.0");
//
// Read anew at each call. A limit that cannot be read counts as absent.
#ifndef GPUSHARE_DEVICE_GPU_SURROUNDINGS_H_
#define GPUSHARE_DEVICE_GPU_SURROUNDINGS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace gpushare::device {

struct Surroundings {
  bool mps = false;
  int mps_percentage = 0;         // 0: no limit
  uint64_t mps_memory_limit = 0;  // 0: no limit
  uint64_t dmem_limit = 0;        // 0: no limit
  std::string wrong;              // a limit that cannot be parsed, and what is allowed; "": none

  bool limit_memory() const { return mps_memory_limit != 0 || dmem_limit != 0; }
};

Surroundings LookAround(int ordinal, const std::string& pci_id);

// The limit for GPU `ordinal` in CUDA_MPS_PINNED_DEVICE_MEM_LIMIT ("0=2G,1=512M"); 0: no limit.
uint64_t ParseMpsMemoryLimit(std::string_view text, int ordinal);
// The smallest limit of the cgroup named by `self`, the text of /proc/self/cgroup, and of its ancestors up to the one at
// `root`, which in a cgroup namespace is the container's. 0: no limit.
uint64_t DmemLimit(const std::string& self, const std::string& root, const std::string& pci_id);
// The limit of the region of GPU `pci_id` in a cgroup's dmem.max ("drm/0000:65:00.0/vram0
// 1073741824"); 0: no limit.
uint64_t ParseDmemMax(std::string_view text, std::string_view pci_id);
// The form "0000:65:00.0", whatever the case and the width of the domain.
std::string NormalPciId(std::string_view pci_id);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_SURROUNDINGS_H_
