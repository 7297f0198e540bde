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

  // For kKernel. `parameters` holds the values that the launch was given.
  Context* context = nullptr;
  const Function* function = nullptr;
  uint64_t function_handle = 0;
  LaunchShape shape{};
  std::vector<uint8_t> parameters;
  std::vector<void*> parameter_addresses;  // into `parameters`
  KernelPlan plan{};
  int priority = 0;
  bool own_priority = false;             // else the priority of the stream of the launch
  PartitionId partition = kWholeDevice;  // of its context, whichever stream it runs in

  CopyWork copy{};
  SetWork set{};
  HostWork host{};
  uint64_t event = 0;                           // handle
  std::shared_ptr<GraphAllocation> allocation;  // for kMemAlloc and kMemFree
  std::unique_ptr<Graph> child;
};

struct Graph {
  uint64_t handle = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order of creation
  bool capturing = false;                         // belongs to a capture
  bool has_memory_nodes = false;                  // never reset: memory nodes cannot be removed
  uint64_t executable = 0;                        // the latest one, if the graph has memory nodes
  HeldObjects user_objects;
};

// An executable graph: its nodes in one list, children inlined, each after the nodes it depends on.
struct GraphExec {
  struct Node {
    GraphNode work;   // without edges
    uint64_t origin;  // handle of the node that it was made from
    std::vector<uint32_t> dependencies;
    bool enabled = true;  // if false, the node does nothing
  };
  // The nodes of the graph that it was made from, in the order of their creation, for updates.
  struct Level {
    struct Entry {
      uint64_t origin;
      NodeType type;
      std::vector<size_t> dependencies;  // indices into `entries`
      size_t node;                       // index into `nodes`; meaningless for a child graph
      std::unique_ptr<Level> child;
    };
    std::vector<Entry> entries;
    HeldObjects user_objects;  // of the graph that it was made from or last updated with
  };
  uint64_t handle = 0;
  Context* context = nullptr;
  unsigned long long flags = 0;  // passed to its instantiation
  std::vector<std::unique_ptr<Node>> nodes;
  Level top;
  std::vector<std::shared_ptr<GraphHold>> holds;  // one per device, if there are memory nodes
  Command* last = nullptr;  // the latest launch, valid while it still has this generation
  uint32_t last_generation = 0;
};

enum class CaptureMode : uint8_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// A capture in progress, from cuStreamBeginCapture on its origin to cuStreamEndCapture.
struct Capture {
  uint64_t id = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  Stream* origin = nullptr;
  const ThreadContext* thread = nullptr;
  std::unique_ptr<Graph> graph;
  bool into_existing = false;  // cuStreamBeginCaptureToGraph: the caller owns the graph
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
