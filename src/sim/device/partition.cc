// SPDX-License-Identifier: Apache-2.0
#include "sim/device/partition.h"

#include <algorithm>
#include <utility>

#include "sim/clock/thread.h"
#include "sim/graph/capture.h"
#include "sim/state.h"

namespace gpushare::sim {

PartitionId FindPartition(int device, const SmSet& sms) {
  std::vector<std::unique_ptr<Partition>>& known = state().partitions;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i]->device == device && known[i]->sms == sms) return static_cast<PartitionId>(i + 1);
  }
  if (known.size() >= UINT16_MAX) return kWholeDevice;
  known.push_back(std::make_unique<Partition>(Partition{device, sms}));
  return static_cast<PartitionId>(known.size());
}

const Partition& PartitionOf(PartitionId id) { return *state().partitions[id - 1u]; }

SmSet GroupOf(const SmSplit& split, uint32_t group) {
  SmSet left = split.from;
  for (uint32_t i = 0; i < group; ++i) static_cast<void>(left.TakeAny(split.size));
  return group == split.groups ? left : left.TakeAny(split.size);
}

GreenContext* CurrentGreen(const ThreadContext& thread) {
  const State& s = state();
  if (thread.contexts.empty() || s.green_handles == 0) return nullptr;
  return s.green_as_contexts.Find(thread.contexts.back());
}

Stream* NewStream(Context* context, GreenContext* green) {
  State& s = state();
  auto* const stream = new Stream;
  stream->handle = s.streams.Add(stream);
  stream->id = ++s.stream_ids;
  stream->context = context;
  stream->device = context->device;
  stream->account = context->device->FindAccount(0);
  context->streams.push_back(stream);
  if (green == nullptr) return stream;
  stream->green = green;
  stream->partition = green->partition;
  for (const GreenContext::Wait& wait : green->waits) {
    if (wait.command->generation != wait.generation) continue;
    Command* const behind = NewCommand(stream, CommandType::kEmpty);
    behind->earliest = 0;
    s.pool.AddEdge(wait.command, behind);
    Submit(stream, behind);
  }
  return stream;
}

void DestroyGreenContext(GreenContext* green) {
  State& s = state();
  for (Stream* stream : std::vector<Stream*>(green->primary->streams)) {
    if (stream->green != green) continue;
    AbandonCapture(stream);
    // Work already submitted runs on, but nobody can reach the stream any more.
    stream->green = nullptr;
    if (stream->destroyed) continue;
    s.orphans.insert(stream->handle);
    s.streams.Remove(stream->handle);
    stream->destroyed = true;
    if (stream->head == nullptr) CancelStream(stream);
  }
  CancelStream(green->legacy.get());
  CancelStream(green->order.get());
  Settle();
  std::vector<GreenContext*>& greens = green->primary->greens;
  greens.erase(std::find(greens.begin(), greens.end(), green));
  s.green_contexts.Remove(green->handle);
  s.green_as_contexts.Remove(green->as_context);
  --s.green_handles;
  delete green;
}

}  // namespace gpushare::sim
