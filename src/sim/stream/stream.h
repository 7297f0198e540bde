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

// A FIFO of commands. At most one of a stream's commands is started and not complete: its head.
struct Stream {
  uint64_t handle = 0;  // 0: the context's legacy stream
  uint64_t id = 0;
  Context* context = nullptr;
  Device* device = nullptr;
  int priority = 0;
  bool non_blocking = false;
  bool legacy = false;
  bool per_thread = false;        // a thread's default stream
  bool destroyed = false;         // goes when its last command does
  GreenContext* green = nullptr;  // whose stream it is; null: an ordinary one, or that is gone
  PartitionId partition = kWholeDevice;
  Command* head = nullptr;
  Command* tail = nullptr;
  uint32_t queued = 0;  // commands
  WaitList space;       // callers that found it full
  Account* account = nullptr;

  // While a capture is going on: whose it is, and what the next node will depend on.
  Capture* capture = nullptr;
  std::vector<GraphNode*> capture_tail;
  std::vector<uint64_t> capture_handles;  // of the tail, as last given out
};

struct Event {
  uint64_t handle = 0;
  Context* context = nullptr;
  unsigned flags = 0;
  bool timing = true;
  bool recorded = false;
  Command* record = nullptr;  // the latest record while it is not complete
  uint64_t stamp = 0;

  // Of several processes: its place among those; kNotShared: this process's own. Then every record that is
  // not complete knows it, not only the latest, and a destroyed one goes with the last of them.
  static constexpr uint32_t kNotShared = UINT32_MAX;
  uint32_t shared = kNotShared;
  uint32_t shared_records = 0;

  // Recorded into a capture that goes on: its tail at that time.
  Capture* capture = nullptr;
  uint64_t capture_id = 0;
  std::vector<GraphNode*> capture_tail;
};

struct Context {
  uint64_t handle = 0;
  Device* device = nullptr;
  unsigned flags = 0;
  bool is_primary = false;
  int lost = 0;  // CUresult of the fault that took it down
  unsigned cache_config = 0;
  std::unique_ptr<Stream> legacy;
  std::vector<Stream*> streams;  // all but the legacy one
  std::vector<GreenContext*> greens;
  std::vector<uint64_t> peers;  // contexts whose memory its kernels may reach
  uint64_t charged = 0;         // of the device's memory, for itself
  size_t stack_limit = 1024, printf_limit = 1 << 20, heap_limit = 8 << 20;
};

// The default stream that orders the blocking ones among which `stream` is.
inline Stream* LegacyOf(const Stream& stream) {
  return stream.green != nullptr ? stream.green->legacy.get() : stream.context->legacy.get();
}

// A graph executable on the device: its nodes as commands.
struct GraphRun {
  Command* command;  // of the stream it was launched into
  size_t left;
  struct Node {
    Command* command;
    uint32_t generation;
  };
  std::vector<Node> nodes;
  HeldObjects user_objects;  // of the executable when it was launched
};

// Ends the command's life in the stream with the usual consequences: later commands may start, waiters
// run again. Called by Settle's callers only.
void Complete(Command* command);

// Puts a command at the end of the stream. Its earliest start must be set.
void Submit(Stream* stream, Command* command);

// Starts what can start, at the present time.
void Settle();

// The clock's callback: everything that is due now.
void RunDueEvents();

// Drops everything that the stream has queued or running, without effect. A destroyed stream is gone
// afterwards.
void CancelStream(Stream* stream);

// Every stream of the context stops, and every later call in it answers `code`.
inline constexpr int kIllegalAddress = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
void LoseContext(Context* context, int code);

// What the streams of other contexts have of graphs whose kernels are in this one, and all else that is there: it ends
// without effect.
void CancelGraphsIn(const Context* context);

// The dispatch level of a stream priority.
inline uint8_t LevelOf(int priority) {
  return static_cast<uint8_t>(kPriorityLevels - 1 + priority);
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_STREAM_H_
