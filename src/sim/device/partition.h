// SPDX-License-Identifier: Apache-2.0
// Partitions of a device's SMs, and the green contexts, which have one each.
//
// A green context is the device's primary context (memory, modules, events, faults) with streams of its own, whose kernels run
// only on its SMs. Other kernels may run on these SMs too.
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

// Identifies a partition in a small number that fits into a command; 0: the whole device. Equal sets have one partition, which
// is never removed.
using PartitionId = uint16_t;
inline constexpr PartitionId kWholeDevice = 0;

struct Partition {
  int device;
  SmSet sms;
};

PartitionId FindPartition(int device, const SmSet& sms);  // kWholeDevice if there are too many
const Partition& PartitionOf(PartitionId id);             // not for kWholeDevice

// One call of cuDevSmResourceSplitByCount: `groups` of `size` SMs each, in order, and the remaining SMs.
struct SmSplit {
  int device;
  SmSet from;
  uint32_t size, groups;
};
SmSet GroupOf(const SmSplit& split, uint32_t group);  // group number `groups` is the remaining SMs

// Resources prepared for a context.
struct ResourceDescriptor {
  int device;
  SmSet sms;
};

struct GreenContext {
  uint64_t handle = 0;
  uint64_t as_context = 0;  // the CUcontext that stands for it
  uint64_t id = 0;
  Context* primary = nullptr;
  PartitionId partition = kWholeDevice;
  std::unique_ptr<Stream> legacy;  // its default stream
  std::unique_ptr<Stream> order;   // records of all its work
  struct Wait {
    Command* command;
    uint32_t generation;
  };
  std::vector<Wait> waits;  // for streams that are created later
};

// The current green context; null if none or an ordinary context is current.
GreenContext* CurrentGreen(const ThreadContext& thread);
// Its streams stay, and calls on them fail. Does not release the primary context.
void DestroyGreenContext(GreenContext* green);
// Creates a stream in the context and, unless `green` is null, in the green context.
Stream* NewStream(Context* context, GreenContext* green);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_PARTITION_H_
