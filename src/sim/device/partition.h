// SPDX-License-Identifier: Apache-2.0
// Partitions of a device's SMs, and the green contexts that have one each.
//
// A green context is the device's primary context (memory, modules, events, faults) with streams of its own
// whose kernels run on its SMs only. Everybody else's kernels may run there too.
#ifndef GPUSHARE_SIM_DEVICE_PARTITION_H_
#define GPUSHARE_SIM_DEVICE_PARTITION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/device/sm_set.h"

namespace gpushare::sim {

struct Command;
struct Context;
struct Stream;
struct ThreadContext;

// Known by its number, which fits a command; 0: the whole device. There is one for each set, and it stays.
using PartitionId = uint16_t;
inline constexpr PartitionId kWholeDevice = 0;

struct Partition {
  int device;
  SmSet sms;
};

PartitionId FindPartition(int device, const SmSet& sms);  // kWholeDevice: there are too many
const Partition& PartitionOf(PartitionId id);             // not of kWholeDevice

// One call of cuDevSmResourceSplitByCount: `groups` of `size` SMs each, in order, and the rest.
struct SmSplit {
  int device;
  SmSet from;
  uint32_t size, groups;
};
SmSet GroupOf(const SmSplit& split, uint32_t group);  // group `groups`: the rest

// Resources made ready for a context.
struct ResourceDescriptor {
  int device;
  SmSet sms;
};

struct GreenContext {
  uint64_t handle = 0;
  uint64_t as_context = 0;  // its CUcontext
  uint64_t id = 0;
  Context* primary = nullptr;
  PartitionId partition = kWholeDevice;
  std::unique_ptr<Stream> legacy;  // its default stream
  std::unique_ptr<Stream> order;   // records of all that it does
  struct Wait {
    Command* command;
    uint32_t generation;
  };
  std::vector<Wait> waits;  // for streams that are made later
};

// The green context that is current, as a CUcontext; null: none is, or an ordinary one.
GreenContext* CurrentGreen(const ThreadContext& thread);
// Its streams stay, and answer that it is gone. Does not release the primary context.
void DestroyGreenContext(GreenContext* green);
// A stream of the context, and of its green context if that is not null.
Stream* NewStream(Context* context, GreenContext* green);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_PARTITION_H_
