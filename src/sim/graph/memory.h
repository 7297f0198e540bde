// SPDX-License-Identifier: Apache-2.0
// Memory of graphs. An allocation node has its addresses from its creation on; what is behind them are
// granules of the device, taken by the first launch and kept. Graphs that do not run at the same time
// lie in the same granules.
#ifndef GPUSHARE_SIM_GRAPH_MEMORY_H_
#define GPUSHARE_SIM_GRAPH_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

// As in api.h: both the old and the new names.
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

// What an allocation node allocates. Lives as long as a node, an executable or a program has it.
struct GraphAllocation : std::enable_shared_from_this<GraphAllocation> {
  Device* device;  // null: reset meanwhile
  uint64_t address, bytes;
  uint64_t owner;                  // handle of the graph of its node
  std::vector<uint64_t> freed_by;  // handles of the graphs with a free node for it
  GraphHold* hold = nullptr;       // while it is allocated beyond its graph's launch: where it lies

  GraphAllocation() = default;
  ~GraphAllocation();
  GraphAllocation(const GraphAllocation&) = delete;
  GraphAllocation& operator=(const GraphAllocation&) = delete;
  bool freed_by_owner() const;
};

// What an executable holds of a device.
struct GraphHold {
  struct Use {
    Command* command;
    uint32_t generation;
  };
  Device* device;
  uint64_t bytes;  // of all its allocations
  std::vector<std::shared_ptr<GraphAllocation>> allocations;
  std::vector<uint32_t> granules;
  std::vector<Use> uses;   // launches and frees that may not have completed
  size_t outstanding = 0;  // allocated by a launch and not freed
  bool owned = true;       // by an executable that still is
};

class GraphMemory {
 public:
  explicit GraphMemory(Device* device) : device_(device) {}
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  // Null when there are no addresses left.
  std::shared_ptr<GraphAllocation> NewAllocation(uint64_t bytes);
  std::shared_ptr<GraphHold> NewHold();
  // Gives the hold granules that nobody uses when the stream comes to what it takes next.
  bool Map(GraphHold* hold, const Stream* stream);
  // Gives back the granules of graphs that neither run, are going to, nor have something allocated.
  void Trim();
  // Nothing is allocated or mapped any more.
  void Reset();

  uint64_t reserved() const;
  uint64_t used();  // by at least one graph
  uint64_t reserved_high = 0, used_high = 0;

  std::map<uint64_t, std::shared_ptr<GraphAllocation>> outstanding;

 private:
  friend struct GraphAllocation;
  // Whether work that comes next in the stream (null: anybody) has to keep off.
  static bool IsBusy(GraphHold* hold, const Stream* stream);
  void Prune();

  Device* const device_;
  std::set<GraphAllocation*> allocations_;
  std::vector<std::shared_ptr<GraphHold>> holds_;
  std::set<uint32_t> granules_;
  uint32_t next_ = 0;
};

// Notes what a new executable will need.
void HoldGraphMemory(GraphExec* exec);
// Makes sure of the executable's memory ahead of a launch into the stream.
CUresult MapGraphMemory(GraphExec* exec, const Stream* stream);
// A launch: takes what it needs, checks and notes what it allocates and frees beyond itself.
CUresult TakeGraphMemory(GraphExec* exec, const Stream* stream);
// The launch's command, before it is submitted.
void UseGraphMemory(GraphExec* exec, Command* launch);

// Frees what a launch has allocated and not freed; without a stream at once.
CUresult FreeGraphMemory(GraphAllocation* allocation, Stream* stream);

// Makes the node one that allocates or frees. Refuses what may not be freed there.
CUresult FillAllocation(GraphNode* node, Device* device, uint64_t bytes);
CUresult CheckFree(const Graph* graph, uint64_t address,
                   std::shared_ptr<GraphAllocation>* allocation);
void FillFree(GraphNode* node, const std::shared_ptr<GraphAllocation>& allocation);
// The same as nodes of a capture.
CUresult CaptureAllocation(Stream* stream, Device* device, uint64_t bytes, CUdeviceptr* pointer);
CUresult CaptureFree(Stream* stream, CUdeviceptr pointer);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_MEMORY_H_
