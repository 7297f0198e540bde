// SPDX-License-Identifier: Apache-2.0
// Everything that the simulated driver knows. One per process, never destroyed; touched only by the
// holder of the clock's turn.
#ifndef GPUSHARE_SIM_STATE_H_
#define GPUSHARE_SIM_STATE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <unordered_set>
#include <vector>

#include "sim/checkpoint.h"
#include "sim/clock/clock.h"
#include "sim/config/config.h"
#include "sim/device/device.h"
#include "sim/device/fault.h"
#include "sim/device/partition.h"
#include "sim/device/timeline.h"
#include "sim/graph/graph.h"
#include "sim/graph/user_object.h"
#include "sim/handles.h"
#include "sim/memory/array.h"
#include "sim/memory/managed.h"
#include "sim/memory/memory.h"
#include "sim/memory/texture.h"
#include "sim/memory/virtual_memory.h"
#include "sim/module/module.h"
#include "sim/stream/command.h"
#include "sim/stream/host_function.h"
#include "sim/stream/stream.h"

namespace gpushare::sim {

// The exported entry points, in the order of the one list of them. (It is data and no part of that layer. What
// the build generates is for two sources only: its folder is of this build, and so would a compiler cache's results be.)
enum class Api : uint16_t {
#define X(symbol, ...) symbol,
#include "../driver/symbols.def"
#undef X
  kCount
};
inline constexpr size_t kApiCount = static_cast<size_t>(Api::kCount);
const char* ApiName(size_t api);
// kApiCount when there is no such.
size_t FindApi(const char* name);

class SharedDevice;

struct Eligible {
  Command* command;
  uint32_t generation;
};

struct State {
  State();

  Config config;
  std::string config_text;              // by gpushare_sim_configure
  std::atomic<bool> configured{false};  // config holds environment and config_text
  bool initialized = false;             // by cuInit
  Clock clock;
  Timeline timeline;
  CommandPool pool;
  std::vector<std::unique_ptr<Device>> devices;
  SharedDevice* shared = nullptr;  // with other processes; null: the device is this process's own
  HostMemory host;
  ManagedMemory managed;
  VirtualMemory virtual_memory;
  Faults faults;
  Checkpoint checkpoint;
  HostFunctions host_functions;
  Captures captures;

  HandleTable<Context, HandleTag::kContext> contexts;
  HandleTable<Stream, HandleTag::kStream> streams;
  HandleTable<Event, HandleTag::kEvent> events;
  HandleTable<Module, HandleTag::kModule> modules;
  HandleTable<Function, HandleTag::kFunction> functions;
  HandleTable<Library, HandleTag::kLibrary> libraries;
  HandleTable<Kernel, HandleTag::kKernel> kernels;
  HandleTable<Graph, HandleTag::kGraph> graphs;
  HandleTable<GraphNode, HandleTag::kGraphNode> nodes;
  HandleTable<GraphExec, HandleTag::kGraphExec> graph_execs;
  HandleTable<MemoryPool, HandleTag::kMemoryPool> memory_pools;

  HandleTable<UserObject, HandleTag::kUserObject> user_objects;
  HandleTable<Array, HandleTag::kArray> arrays;
  HandleTable<Texture, HandleTag::kTexture> textures;
  HandleTable<MipmappedArray, HandleTag::kMipmappedArray> mipmapped_arrays;
  HandleTable<GreenContext, HandleTag::kGreenContext> green_contexts;
  HandleTable<GreenContext, HandleTag::kGreenAsContext> green_as_contexts;
  HandleTable<ResourceDescriptor, HandleTag::kResourceDescriptor> resource_descriptors;
  uint32_t green_handles = 0;            // green contexts that there are
  std::unordered_set<uint64_t> orphans;  // streams of green contexts that are gone
  std::vector<std::unique_ptr<Partition>> partitions;
  std::vector<SmSplit> sm_splits;  // a resource names the call it came from

  // A GPU's primary context has the same handle in all its lives, also after gpushare_sim_reset().
  std::map<int, uint64_t> primary_contexts;

  uint64_t stream_ids = 0, context_ids = 0;
  // Commands that may be able to start; empty outside of Settle() and its callers.
  std::vector<Eligible> eligible;
  std::vector<Eligible> value_waits;  // streams that wait until a word has a value
  uint64_t calls[kApiCount] = {};
};

// Where the State lies: in storage of its own, so that it is not destroyed and its address is known.
extern unsigned char g_state[];
inline State& state() { return *std::launder(reinterpret_cast<State*>(g_state)); }
inline VirtualMemory& virtual_memory() { return state().virtual_memory; }

// Whether an account counts the commands of this type as queued.
inline bool Counts(CommandType type) {
  return type == CommandType::kKernel || type == CommandType::kCopy || type == CommandType::kSet ||
         type == CommandType::kPrefetch;
}

// A command of the stream on the account and priority of the stream.
inline Command* NewCommand(Stream* stream, CommandType type) {
  State& s = state();
  Command* const command = s.pool.New();
  command->type = type;
  command->stream = stream;
  command->account = stream->account;
  command->level = LevelOf(stream->priority);
  command->partition = stream->partition;
  command->earliest = s.clock.now() + s.config.launch_latency;
  if (Counts(type)) ++command->account->queued;
  return command;
}

// Reads environment and configuration once; empty, or what is wrong with them.
std::string EnsureConfigured();

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STATE_H_
