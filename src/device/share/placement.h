// SPDX-License-Identifier: Apache-2.0
// On which of several GPUs a virtual device goes.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Placed placed, Place(gpus, tenant, spec, Placement::kSpread));
//
// The order of trial is a pure function of what each GPU has left (OrderOfTrial); admission, which is exact
// and atomic, has the last word: a GPU that was filled meanwhile is passed over for the next.
#ifndef GPUSHARE_DEVICE_SHARE_PLACEMENT_H_
#define GPUSHARE_DEVICE_SHARE_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/share/admission.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Gpu;
class Tenant;
class VirtualDevice;

enum class Placement {
  kBestFit = GPUSHARE_PLACE_BEST_FIT,  // where least is left over of what is asked
  kBinpack = GPUSHARE_PLACE_BINPACK,   // on the fullest, so that others stay empty
  kSpread = GPUSHARE_PLACE_SPREAD,     // on the emptiest
};

// What one GPU could still promise.
struct Room {
  uint64_t memory_total = 0;  // less the reserve
  uint64_t memory_left = 0;
  double guarantee_left = 1;
  uint64_t devices = 0;  // virtual devices on it
};

// A GPU, and what the spec comes to there: memory as a share depends on the GPU.
struct Candidate {
  Room room;
  Admission::Promise wanted;
};

bool Fits(const Candidate& candidate);
// Indices of all candidates: first those that fit, the best first, ties by index; then the others.
std::vector<size_t> OrderOfTrial(Placement placement, absl::Span<const Candidate> candidates);

struct Placed {
  std::shared_ptr<VirtualDevice> device;
  size_t index = 0;  // of its GPU
};

// ResourceExhausted says of each GPU why not, and what would fit; its detail names the limit that none
// can give, and the most there is of it. AlreadyExists: the tenant is on all of them.
absl::StatusOr<Placed> Place(const std::vector<std::shared_ptr<Gpu>>& gpus,
                             const std::shared_ptr<Tenant>& tenant, const gpushare_spec& spec,
                             Placement placement);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_SHARE_PLACEMENT_H_
