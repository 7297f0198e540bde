// SPDX-License-Identifier: Apache-2.0
// Memory of graphs. The addresses of an allocation node are reserved when the node is created. The first launch takes granules
// of the device to back them, and keeps these. Graphs that do not run at the same time share granules.
#ifndef GPUSHARE_SIM_GRAPH_MEMORY_H_
#define GPUSHARE_SIM_GRAPH_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

// As in api.h: this file uses both the old and the new names.
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

namespace gpushare::sim {

class Device;
struct Command;
struct Graph;
struct GraphExec;
struct GraphHold;
struct GraphNode;
struct Stream;

// The memory of one allocation node. Lives as long as a node, an executable or a program refers to it.
struct GraphAllocation : std::enable_shared_from_this<GraphAllocation> {
  Device* device;  // null after a reset
  uint64_t address, bytes;
  uint64_t owner;                  // handle of the graph that has the node
  std::vector<uint64_t> freed_by;  // handles of the graphs that have a free node for it
  GraphHold* hold = nullptr;       // what backs it, while it is allocated beyond its graph's launch

  GraphAllocation() = default;
  ~GraphAllocation();
  GraphAllocation(const GraphAllocation&) = delete;
  GraphAllocation& operator=(const GraphAllocation&) = delete;
  bool freed_by_owner() const;
};

// The memory that an executable holds on one device.
struct GraphHold {
  struct Use {
    Command* command;
    uint32_t generation;
  };
  Device* device;
  uint64_t bytes;  // the sum over its allocations
  std::vector<std::shared_ptr<GraphAllocation>> allocations;
  std::vector<uint32_t> granules;
  std::vector<Use> uses;   // launches and frees that may not have completed
  size_t outstanding = 0;  // allocations that a launch made and nothing has freed
  bool owned = true;       // the executable still exists
};

class GraphMemory {
 public:
  explicit GraphMemory(Device* device) : device_(device) {}
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  // Null when no addresses are left.
  std::shared_ptr<GraphAllocation> NewAllocation(uint64_t bytes);
  std::shared_ptr<GraphHold> NewHold();
  // Backs the hold with granules that nobody will be using when the stream reaches its next command.
  bool Map(GraphHold* hold, const Stream* stream);
  // Returns the granules of graphs that are neither running nor queued and have nothing allocated.
  void Trim();
  // Forgets all allocations and mappings.
  void Reset();

  uint64_t reserved() const;
  uint64_t used();  // granules that back at least one graph
  uint64_t reserved_high = 0, used_high = 0;

  std::map<uint64_t, std::shared_ptr<GraphAllocation>> outstanding;

 private:
  friend struct GraphAllocation;
  // Whether the next work in `stream` (null: in any stream) must not use the hold's granules.
  static bool IsBusy(GraphHold* hold, const Stream* stream);
  void Prune();

  Device* const device_;
  std::set<GraphAllocation*> allocations_;
  std::vector<std::shared_ptr<GraphHold>> holds_;
  std::set<uint32_t> granules_;
  uint32_t next_ = 0;
};

// Creates the holds that a new executable needs.
void HoldGraphMemory(GraphExec* exec);
// Makes sure that the executable's memory is backed before a launch into the stream.
CUresult MapGraphMemory(GraphExec* exec, const Stream* stream);
// Takes the memory that a launch needs; checks and records what the launch allocates and frees beyond itself.
CUresult TakeGraphMemory(GraphExec* exec, const Stream* stream);
// Adds the launch's command to the uses of the memory. Called before the command is submitted.
void UseGraphMemory(GraphExec* exec, Command* launch);

// Frees what a launch allocated and did not free; at once if there is no stream.
CUresult FreeGraphMemory(GraphAllocation* allocation, Stream* stream);

// Turns the node into one that allocates or frees. Refuses memory that may not be freed there.
CUresult FillAllocation(GraphNode* node, Device* device, uint64_t bytes);
CUresult CheckFree(const Graph* graph, uint64_t address,
                   std::shared_ptr<GraphAllocation>* allocation);
void FillFree(GraphNode* node, const std::shared_ptr<GraphAllocation>& allocation);
// The same for nodes of a capture.
CUresult CaptureAllocation(Stream* stream, Device* device, uint64_t bytes, CUdeviceptr* pointer);
CUresult CaptureFree(Stream* stream, CUdeviceptr pointer);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_MEMORY_H_
