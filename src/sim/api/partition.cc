// SPDX-License-Identifier: Apache-2.0
// SMs as a resource: the SMs of a device or a context, splitting them, and descriptors.
#include <algorithm>
#include <cstring>

#include "sim/api/api.h"

namespace gpushare::sim {
namespace {

// Stored in the private part of a resource: which SMs the resource stands for.
struct Origin {
  enum class Kind : uint32_t { kNone, kDevice, kGreenContext, kSplit };
  static constexpr uint32_t kMark = 0x6770736d;
  uint32_t mark = 0;
  Kind kind = Kind::kNone;
  uint64_t of = 0;  // ordinal of a device, handle of a green context, index of a split
  uint32_t group = 0;
};
static_assert(sizeof(Origin) <= sizeof(CUdevResource{}._internal_padding));

// The public part of a resource, with the newest members, those of CUDA 13.
struct SmFields {
  unsigned count, least, alignment;
};
static_assert(sizeof(SmFields) <= sizeof(CUdevResource{}._oversize));

// According to the driver's documentation.
void Granularity(const Config& config, bool coscheduled, unsigned* least, unsigned* alignment) {
  *least = config.compute_major >= 9 ? 8 : config.compute_major == 8 ? 4 : 2;
  *alignment = config.compute_major >= 9 ? 8 : 2;
  if (!coscheduled) *least = *alignment = 2;
}

void Fill(const Config& config, const Origin& origin, uint32_t count, CUdevResource* resource) {
  *resource = {};
  resource->type = CU_DEV_RESOURCE_TYPE_SM;
  SmFields fields{.count = count, .least = 0, .alignment = 0};
  Granularity(config, true, &fields.least, &fields.alignment);
  std::memcpy(resource->_oversize, &fields, sizeof(fields));
  std::memcpy(resource->_internal_padding, &origin, sizeof(origin));
}

// False when the resource is not one of ours, or when its origin is gone.
bool Read(const CUdevResource& resource, Origin* origin, int* device, SmSet* sms) {
  std::memcpy(origin, resource._internal_padding, sizeof(*origin));
  if (origin->mark != Origin::kMark) return false;
  const State& s = state();
  switch (origin->kind) {
    case Origin::Kind::kDevice: {
      const Device* const found = FindDevice(static_cast<CUdevice>(origin->of));
      if (found == nullptr) return false;
      *device = found->ordinal;
      *sms = SmSet::Range(0, static_cast<uint32_t>(found->config.sms));
      return true;
    }
    case Origin::Kind::kGreenContext: {
      const GreenContext* const green = s.green_contexts.Find(origin->of);
      if (green == nullptr) return false;
      *device = green->primary->device->ordinal;
      *sms = PartitionOf(green->partition).sms;
      return true;
    }
    case Origin::Kind::kSplit: {
      if (origin->of >= s.sm_splits.size()) return false;
      const SmSplit& split = s.sm_splits[origin->of];
      if (origin->group > split.groups) return false;
      *device = split.device;
      *sms = GroupOf(split, origin->group);
      return true;
    }
    case Origin::Kind::kNone:
      break;
  }
  return false;
}

CUresult OfDevice(const Device& device, CUdevResource* resource, CUdevResourceType type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const Origin origin{.mark = Origin::kMark,
                      .kind = Origin::Kind::kDevice,
                      .of = static_cast<uint64_t>(device.ordinal)};
  Fill(device.config, origin, static_cast<uint32_t>(device.config.sms), resource);
  return CUDA_SUCCESS;
}

CUresult OfGreen(const GreenContext& green, CUdevResource* resource, CUdevResourceType type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const Origin origin{
      .mark = Origin::kMark, .kind = Origin::Kind::kGreenContext, .of = green.handle};
  Fill(green.primary->device->config, origin, PartitionOf(green.partition).sms.count(), resource);
  return CUDA_SUCCESS;
}

// The index of the split. Equal splits have the same index.
uint64_t Remember(const SmSplit& split) {
  std::vector<SmSplit>& known = state().sm_splits;
  for (size_t i = 0; i < known.size(); ++i) {
    const SmSplit& one = known[i];
    if (one.device == split.device && one.size == split.size && one.groups == split.groups &&
        one.from == split.from) {
      return i;
    }
  }
  known.push_back(split);
  return known.size() - 1;
}

CUresult Split(CUdevResource* result, unsigned* groups, const CUdevResource* input,
               CUdevResource* remaining, unsigned flags, unsigned least) {
  constexpr unsigned kIgnoreCoscheduling = 1, kLargeClusters = 2;
  constexpr unsigned kLargestCluster = 16;
  if (groups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Origin origin;
  SmSplit split{};
  if (!Read(*input, &origin, &split.device, &split.from)) return CUDA_ERROR_INVALID_VALUE;
  // A split can only be split again after it was used in a context.
  if (origin.kind == Origin::Kind::kSplit) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const Config& config = state().config;
  const bool large = (flags & kLargeClusters) != 0;
  if ((flags & ~(kIgnoreCoscheduling | kLargeClusters)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (large && config.compute_major < 9) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t count = split.from.count();
  if (least > count) return CUDA_ERROR_INVALID_VALUE;
  unsigned smallest = 0, alignment = 0;
  Granularity(config, (flags & kIgnoreCoscheduling) == 0, &smallest, &alignment);
  if (large) smallest = alignment = kLargestCluster;
  split.size = (std::max(least, smallest) + alignment - 1) / alignment * alignment;
  const unsigned possible = count / split.size;
  if (possible == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (result == nullptr) {
    *groups = possible;
    return CUDA_SUCCESS;
  }
  if (*groups == 0) return CUDA_ERROR_INVALID_VALUE;
  split.groups = *groups = std::min(*groups, possible);
  Origin part{.mark = Origin::kMark, .kind = Origin::Kind::kSplit, .of = Remember(split)};
  for (; part.group < split.groups; ++part.group) {
    Fill(config, part, split.size, &result[part.group]);
  }
  if (remaining == nullptr) return CUDA_SUCCESS;
  const uint32_t rest = count - split.groups * split.size;
  if (rest == 0) {
    *remaining = {};  // without a type: nothing remains
  } else {
    Fill(config, part, rest, remaining);
  }
  return CUDA_SUCCESS;
}

CUresult Describe(CUdevResourceDesc* handle, const CUdevResource* resources, unsigned count) {
  if (handle == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  ResourceDescriptor descriptor{};
  Origin first;
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    Origin origin;
    int device = 0;
    SmSet sms;
    if (!Read(resources[i], &origin, &device, &sms)) return CUDA_ERROR_INVALID_VALUE;
    if (i == 0) {
      first = origin;
      descriptor.device = device;
    } else if (origin.kind != Origin::Kind::kSplit || first.kind != Origin::Kind::kSplit ||
               origin.of != first.of || descriptor.sms.Meets(sms)) {
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    descriptor.sms.Add(sms);
  }
  *handle = reinterpret_cast<CUdevResourceDesc>(
      state().resource_descriptors.Add(new ResourceDescriptor(descriptor)));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuDeviceGetDevResource)
(CUdevice dev, CUdevResource* resource, CUdevResourceType type) {
  SIM_ENTER(cuDeviceGetDevResource, kNone);
  const Device* const device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return OfDevice(*device, resource, type);
}

SIM_API(cuCtxGetDevResource)
(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
  SIM_ENTER(cuCtxGetDevResource, kNone);
  const Context* const context = FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const GreenContext* const green = state().green_as_contexts.Find(handle);
  return green == nullptr ? OfDevice(*context->device, resource, type)
                          : OfGreen(*green, resource, type);
}

SIM_API(cuGreenCtxGetDevResource)
(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType type) {
  SIM_ENTER(cuGreenCtxGetDevResource, kNone);
  const GreenContext* const green = state().green_contexts.Find(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return OfGreen(*green, resource, type);
}

SIM_API(cuDevSmResourceSplitByCount)
(CUdevResource* result, unsigned* groups, const CUdevResource* input, CUdevResource* remaining,
 unsigned flags, unsigned least) {
  SIM_ENTER(cuDevSmResourceSplitByCount, kNone);
  return Split(result, groups, input, remaining, flags, least);
}

SIM_API(cuDevResourceGenerateDesc)
(CUdevResourceDesc* descriptor, CUdevResource* resources, unsigned count) {
  SIM_ENTER(cuDevResourceGenerateDesc, kNone);
  return Describe(descriptor, resources, count);
}
