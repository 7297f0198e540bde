// SPDX-License-Identifier: Apache-2.0
// A command: what a stream executes in order, or one node of a running graph.
#ifndef GPUSHARE_SIM_STREAM_COMMAND_H_
#define GPUSHARE_SIM_STREAM_COMMAND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/clock/clock.h"
#include "sim/device/partition.h"

namespace gpushare::sim {

struct Account;
struct Command;
struct Event;
struct GraphRun;
struct Stream;

enum class CommandType : uint8_t {
  kKernel,
  kCopy,
  kSet,
  kRecord,  // an event
  kEmpty,   // waits for other commands, does nothing
  kHost,    // a host function
  kGraph,
  kPrefetch,  // of managed memory
  kMemory,    // an allocation or a free in stream order
  kWaitValue,
  kWriteValue,
};

enum class CopyDirection : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kHostToHost };

// `to` may not start before the command that owns the edge has completed.
struct Edge {
  Command* to;
  Edge* next;
  uint32_t generation;  // of `to`: edges to a dropped command are left behind
};

// The groups of a kernel and how they run on the device.
struct KernelWork {
  uint32_t groups;    // block groups in total, one SM each
  uint32_t left;      // not started yet
  uint32_t resident;  // on SMs now
  uint64_t group_ns;
  double work_rate;  // time alone on the device that one resident group does per ns
  uint32_t hangs;    // the hang era in which it began to hang; 0: it does not hang
  bool faults, stamped;
  bool tells_away;  // also stamps the times when another process had the device
};

struct CopyWork {
  CopyDirection direction;
  uint64_t to, from;  // addresses as the caller gave them
  uint64_t bytes;
  uint64_t pitch_to, pitch_from, rows;  // rows of `bytes`; rows 1: linear
  uint8_t* staged;                      // copy of a pageable source, made at submission; owned
  uint64_t slices = 1, slice_to = 0, slice_from = 0;  // of `rows` rows each
  bool to_array = false, from_array = false;          // the address is that of an array's bytes

  bool empty() const { return bytes == 0 || rows == 0 || slices == 0; }
  uint64_t total() const { return bytes * rows * slices; }
};

struct SetWork {
  uint64_t to, width, rows, pitch;  // width in elements
  uint32_t value;
  uint8_t element;  // bytes
};

struct PrefetchWork {
  CopyDirection direction;
  int device;  // -1: to the host
  uint64_t address, bytes;
  uint64_t missing;  // bytes not yet there at submission; moving them takes the time
};

enum class ValueCompare : uint8_t { kAtLeast, kEqual, kAnyBit, kAnyBitClear };

struct ValueWork {
  uint64_t address, value;
  uint32_t bytes;  // 4 or 8
  ValueCompare compare;
};

struct HostWork {
  void (*function)(void*);
  void* data;
  // The form of cuStreamAddCallback; then `function` is null.
  void (*callback)(void* stream, int status, void* data);
  uint64_t stream_handle;
};

struct MemoryWork {
  enum class Kind : uint8_t {
    kPoolFree,  // `object`: a MemoryPool::Pending
    kFree,      // memory from cuMemAlloc: address and id of the block; `object`: its Device
  };
  Kind kind;
  void* object;  // null: the object is gone, and there is nothing to do
  uint64_t address, id;
};

// Aligned to whole cache lines: a launch touches two of them.
struct alignas(64) Command {
  Command* next = nullptr;  // in its stream, or in the pool's free list
  Command* link = nullptr;  // in the queue of ready kernels or of an engine
  Stream* stream = nullptr;
  GraphRun* run = nullptr;  // for a node of a running graph, which is not in the stream's queue
  Edge* dependents = nullptr;
  WaitList waiters;
  Account* account = nullptr;  // for kernels, copies, sets and prefetches
  uint64_t earliest = 0;
  uint32_t pending = 0;     // commands that must complete first
  uint32_t generation = 0;  // of the pool's slot: a timeline event may outlive its command
  CommandType type = CommandType::kEmpty;
  uint8_t level = 0;  // of dispatch; 0 is the highest priority
  bool started = false;
  bool due_set = false;                  // the timeline has an event at `earliest`
  bool timed = false;                    // kRecord: takes time and writes a timestamp
  PartitionId partition = kWholeDevice;  // of a kernel: where it may run
  union {
    KernelWork kernel;
    CopyWork copy;
    SetWork set;
    PrefetchWork prefetch;
    ValueWork value;  // kWaitValue, kWriteValue
    HostWork host;
    MemoryWork memory;
    Event* event;     // kRecord; null if the event was destroyed
    GraphRun* graph;  // kGraph
  };
  // For a kernel with stamps (stamps.h): their address, and when its first group began.
  uint64_t stamps = 0, began = 0;
  Command() : kernel{} {}
};
static_assert(offsetof(Command, kernel) + sizeof(KernelWork) <= 128);

// Commands and edges are recycled: in steady state a launch allocates nothing.
class CommandPool {
 public:
  Command* New() {
    if (free_ == nullptr) Grow();
    Command* const command = free_;  // as New or Delete left it: without edges and waiters
    free_ = command->next;
    command->next = nullptr;
    return command;
  }
  void Delete(Command* command) {
    ++command->generation;
    command->link = nullptr;
    command->stream = nullptr;
    command->run = nullptr;
    command->pending = 0;
    command->started = command->due_set = command->timed = false;
    command->next = free_;
    free_ = command;
  }
  // Makes `after` wait for `before`.
  void AddEdge(Command* before, Command* after) {
    if (free_edges_ == nullptr) GrowEdges();
    Edge* const edge = free_edges_;
    free_edges_ = edge->next;
    edge->to = after;
    edge->generation = after->generation;
    edge->next = before->dependents;
    before->dependents = edge;
    ++after->pending;
  }
  void Delete(Edge* edge) {
    edge->next = free_edges_;
    free_edges_ = edge;
  }

 private:
  static constexpr size_t kChunk = 256;
  void Grow() {
    chunks_.push_back(std::make_unique<Command[]>(kChunk));
    for (size_t i = kChunk; i-- > 0;) {
      chunks_.back()[i].next = free_;
      free_ = &chunks_.back()[i];
    }
  }
  void GrowEdges() {
    edge_chunks_.push_back(std::make_unique<Edge[]>(kChunk));
    for (size_t i = kChunk; i-- > 0;) {
      edge_chunks_.back()[i].next = free_edges_;
      free_edges_ = &edge_chunks_.back()[i];
    }
  }
  Command* free_ = nullptr;
  Edge* free_edges_ = nullptr;
  std::vector<std::unique_ptr<Command[]>> chunks_;
  std::vector<std::unique_ptr<Edge[]>> edge_chunks_;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_COMMAND_H_
