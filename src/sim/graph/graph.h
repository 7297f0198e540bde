// SPDX-License-Identifier: Apache-2.0
// Graphs, their executables, and the captures that make graphs out of streams.
#ifndef GPUSHARE_SIM_GRAPH_GRAPH_H_
#define GPUSHARE_SIM_GRAPH_GRAPH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/device/partition.h"
#include "sim/graph/user_object.h"
#include "sim/module/module.h"
#include "sim/stream/command.h"

namespace gpushare::sim {

struct Context;
struct Event;
struct Graph;
struct GraphAllocation;
struct GraphHold;
struct Stream;
struct ThreadContext;

enum class NodeType : uint8_t {
  kKernel,
  kCopy,
  kSet,
  kHost,
  kEmpty,
  kEventRecord,
  kEventWait,
  kChild,
  kMemAlloc,
  kMemFree,
};

struct GraphNode {
  uint64_t handle = 0;
  Graph* graph = nullptr;
  NodeType type = NodeType::kEmpty;
  std::vector<GraphNode*> dependencies, dependents;

  // kKernel. The parameters' values as the launch gave them.
  Context* context = nullptr;
  const Function* function = nullptr;
  uint64_t function_handle = 0;
  LaunchShape shape{};
  std::vector<uint8_t> parameters;
  std::vector<void*> parameter_addresses;  // into `parameters`
  KernelPlan plan{};
  int priority = 0;
  bool own_priority = false;             // else that of the stream it is launched into
  PartitionId partition = kWholeDevice;  // of the context that it was made in, whatever the stream

  CopyWork copy{};
  SetWork set{};
  HostWork host{};
  uint64_t event = 0;                           // handle
  std::shared_ptr<GraphAllocation> allocation;  // of kMemAlloc and kMemFree
  std::unique_ptr<Graph> child;
};

struct Graph {
  uint64_t handle = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order of their creation
  bool capturing = false;                         // belongs to a capture
  bool has_memory_nodes = false;                  // they cannot be removed, so for good
  uint64_t executable = 0;                        // the latest, when it has memory nodes
  HeldObjects user_objects;
};

// A graph made ready: its nodes flattened, children inlined, every one after those it depends on.
struct GraphExec {
  struct Node {
    GraphNode work;   // without edges
    uint64_t origin;  // handle of the node it was made from
    std::vector<uint32_t> dependencies;
    bool enabled = true;  // else it does nothing
  };
  // What it was made from, for updates: a graph's nodes in the order of their creation.
  struct Level {
    struct Entry {
      uint64_t origin;
      NodeType type;
      std::vector<size_t> dependencies;  // places in `entries`
      size_t node;                       // place in `nodes`; of no meaning with a child
      std::unique_ptr<Level> child;
    };
    std::vector<Entry> entries;
    HeldObjects user_objects;  // of the graph it was made from or last updated by
  };
  uint64_t handle = 0;
  Context* context = nullptr;
  unsigned long long flags = 0;  // of its instantiation
  std::vector<std::unique_ptr<Node>> nodes;
  Level top;
  std::vector<std::shared_ptr<GraphHold>> holds;  // with memory nodes: one per device
  Command* last = nullptr;  // its latest launch, when it still has this generation
  uint32_t last_generation = 0;
};

enum class CaptureMode : uint8_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// A capture going on, from cuStreamBeginCapture on its origin to cuStreamEndCapture.
struct Capture {
  uint64_t id = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  Stream* origin = nullptr;
  const ThreadContext* thread = nullptr;
  std::unique_ptr<Graph> graph;
  bool into_existing = false;  // cuStreamBeginCaptureToGraph: the graph is the caller's
  Graph* target = nullptr;
  bool invalidated = false;
  std::vector<Stream*> streams;
};

struct Captures {
  std::vector<std::unique_ptr<Capture>> active;
  uint64_t ids = 0;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_GRAPH_H_
