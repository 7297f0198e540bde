// SPDX-License-Identifier: Apache-2.0
// Contexts, streams and events, and how commands move through them.
#ifndef GPUSHARE_SIM_STREAM_STREAM_H_
#define GPUSHARE_SIM_STREAM_STREAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/clock/clock.h"
#include "sim/device/device.h"
#include "sim/device/partition.h"
#include "sim/graph/user_object.h"
#include "sim/stream/command.h"

namespace gpushare::sim {

struct Capture;
struct GraphNode;

// A FIFO of commands. At most one of them, the head, is started and not complete.
struct Stream {
  uint64_t handle = 0;  // 0: the context's legacy stream
  uint64_t id = 0;
  Context* context = nullptr;
  Device* device = nullptr;
  int priority = 0;
  bool non_blocking = false;
  bool legacy = false;
  bool per_thread = false;        // a thread's default stream
  bool destroyed = false;         // freed with its last command
  GreenContext* green = nullptr;  // null: an ordinary stream, or its green context is gone
  PartitionId partition = kWholeDevice;
  Command* head = nullptr;
  Command* tail = nullptr;
  uint32_t queued = 0;  // number of commands
  WaitList space;       // callers that found the queue full
  Account* account = nullptr;

  // While the stream captures: its capture, and what the next node will depend on.
  Capture* capture = nullptr;
  std::vector<GraphNode*> capture_tail;
  std::vector<uint64_t> capture_handles;  // the handles of the tail that were last returned
};

struct Event {
  uint64_t handle = 0;
  Context* context = nullptr;
  unsigned flags = 0;
  bool timing = true;
  bool recorded = false;
  Command* record = nullptr;  // the latest record, until it is complete
  uint64_t stamp = 0;

  // For an event that processes share: its slot among those. kNotShared: only this process uses it. Every incomplete record
  // refers to a shared event, not only the latest, and a destroyed one is freed with the last of them.
  static constexpr uint32_t kNotShared = UINT32_MAX;
  uint32_t shared = kNotShared;
  uint32_t shared_records = 0;

  // For an event recorded into a capture in progress: the capture's tail at that time.
  Capture* capture = nullptr;
  uint64_t capture_id = 0;
  std::vector<GraphNode*> capture_tail;
};

struct Context {
  uint64_t handle = 0;
  Device* device = nullptr;
  unsigned flags = 0;
  bool is_primary = false;
  int lost = 0;  // the CUresult of the fault that took it down; 0: none
  unsigned cache_config = 0;
  std::unique_ptr<Stream> legacy;
  std::vector<Stream*> streams;  // all but the legacy one
  std::vector<GreenContext*> greens;
  std::vector<uint64_t> peers;  // contexts whose memory its kernels may access
  uint64_t charged = 0;         // bytes of device memory for the context itself
  size_t stack_limit = 1024, printf_limit = 1 << 20, heap_limit = 8 << 20;
};

// The default stream that orders the blocking streams to which `stream` belongs.
inline Stream* LegacyOf(const Stream& stream) {
  return stream.green != nullptr ? stream.green->legacy.get() : stream.context->legacy.get();
}

// A running graph executable: its nodes as commands.
struct GraphRun {
  Command* command;  // in the stream of the launch
  size_t left;
  struct Node {
    Command* command;
    uint32_t generation;
  };
  std::vector<Node> nodes;
  HeldObjects user_objects;  // of the executable when it was launched
};

// Ends the command, with the usual consequences: later commands may start, and waiters run again. Only Settle's callers call
// it.
void Complete(Command* command);

// Appends a command to the stream. Its earliest start must be set.
void Submit(Stream* stream, Command* command);

// Starts, at the present time, every command that can start.
void Settle();

// The clock's callback: runs every event that is due now.
void RunDueEvents();

// Drops everything that the stream has queued or running, without effect. Afterwards a destroyed stream no longer exists.
void CancelStream(Stream* stream);

// Stops every stream of the context. Every later call in the context returns `code`.
inline constexpr int kIllegalAddress = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
void LoseContext(Context* context, int code);

// Ends, without effect, the graphs in streams of other contexts that have kernels in this context, with everything else in
// those graphs.
void CancelGraphsIn(const Context* context);

// The dispatch level of a stream priority.
inline uint8_t LevelOf(int priority) {
  return static_cast<uint8_t>(kPriorityLevels - 1 + priority);
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_STREAM_H_
