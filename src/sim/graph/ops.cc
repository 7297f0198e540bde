// SPDX-License-Identifier: Apache-2.0
#include "sim/graph/ops.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "sim/graph/memory.h"
#include "sim/stream/launch.h"

namespace gpushare::sim {

GraphNode* AddNode(Graph* graph, NodeType type, const std::vector<GraphNode*>& dependencies) {
  auto node = std::make_unique<GraphNode>();
  GraphNode* const result = node.get();
  node->handle = state().nodes.Add(result);
  node->graph = graph;
  node->type = type;
  node->dependencies = dependencies;
  for (GraphNode* dependency : dependencies) dependency->dependents.push_back(result);
  graph->nodes.push_back(std::move(node));
  return result;
}

namespace {

void Erase(std::vector<GraphNode*>& list, const GraphNode* node) {
  list.erase(std::remove(list.begin(), list.end(), node), list.end());
}

}  // namespace

void RemoveNode(GraphNode* node) {
  for (GraphNode* dependency : node->dependencies) Erase(dependency->dependents, node);
  for (GraphNode* dependent : node->dependents) Erase(dependent->dependencies, node);
  if (node->child != nullptr) DropGraph(node->child.get());
  state().nodes.Remove(node->handle);
  auto& nodes = node->graph->nodes;
  nodes.erase(
      std::find_if(nodes.begin(), nodes.end(), [&](const auto& one) { return one.get() == node; }));
}

void DropGraph(Graph* graph) {
  for (const auto& node : graph->nodes) {
    state().nodes.Remove(node->handle);
    if (node->child != nullptr) DropGraph(node->child.get());
  }
  if (graph->handle != 0) state().graphs.Remove(graph->handle);
  graph->handle = 0;
}

void CopyWorkOf(const GraphNode& from, GraphNode* to) {
  to->type = from.type;
  to->context = from.context;
  to->function = from.function;
  to->function_handle = from.function_handle;
  to->shape = from.shape;
  to->parameters = from.parameters;
  to->parameter_addresses.clear();
  // The sizes cannot come from the function's own list: its module may have been unloaded.
  for (const void* address : from.parameter_addresses) {
    to->parameter_addresses.push_back(
        to->parameters.data() + (static_cast<const uint8_t*>(address) - from.parameters.data()));
  }
  to->plan = from.plan;
  to->priority = from.priority;
  to->own_priority = from.own_priority;
  to->partition = from.partition;
  to->copy = from.copy;
  to->set = from.set;
  to->host = from.host;
  to->event = from.event;
  to->allocation = from.allocation;
}

std::unique_ptr<Graph> CloneGraph(const Graph& graph) {
  auto clone = std::make_unique<Graph>();
  clone->handle = state().graphs.Add(clone.get());
  clone->user_objects = graph.user_objects;
  std::unordered_map<const GraphNode*, GraphNode*> copies;
  for (const auto& node : graph.nodes) {
    GraphNode* const copy = AddNode(clone.get(), node->type, {});
    CopyWorkOf(*node, copy);
    if (node->child != nullptr) copy->child = CloneGraph(*node->child);
    copies[node.get()] = copy;
  }
  for (const auto& node : graph.nodes) {
    for (const GraphNode* dependency : node->dependencies) {
      copies[node.get()]->dependencies.push_back(copies[dependency]);
      copies[dependency]->dependents.push_back(copies[node.get()]);
    }
  }
  return clone;
}

CUresult SetKernel(GraphNode* node, Context* context, const Function* function,
                   const LaunchShape& shape, void* const* parameters, const uint8_t* packed,
                   uint64_t packed_bytes) {
  KernelPlan plan;
  const int result =
      PlanKernel(*function, state().config, shape, parameters, packed, packed_bytes, &plan);
  if (result != 0) return static_cast<CUresult>(result);
  const PtxEntry& entry = function->entry;
  std::vector<uint8_t> values(entry.parameter_bytes);
  for (size_t i = 0; i < entry.parameters.size(); ++i) {
    const KernelParameter& parameter = entry.parameters[i];
    if (parameters != nullptr) {
      if (parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(values.data() + parameter.offset, parameters[i], parameter.size);
    } else if (parameter.offset + parameter.size <= packed_bytes) {
      std::memcpy(values.data() + parameter.offset, packed + parameter.offset, parameter.size);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  node->type = NodeType::kKernel;
  node->context = context;
  node->function = function;
  node->function_handle = function->handle;
  node->shape = shape;
  node->plan = plan;
  node->parameters = std::move(values);
  node->parameter_addresses.clear();
  for (const KernelParameter& parameter : entry.parameters) {
    node->parameter_addresses.push_back(node->parameters.data() + parameter.offset);
  }
  return CUDA_SUCCESS;
}

namespace {

// Appends the graph's nodes to the executable, after `before`. False when the graph has a cycle. `last` gets the nodes without
// dependents.
bool Flatten(const Graph& graph, const std::vector<uint32_t>& before, GraphExec* exec,
             std::vector<uint32_t>* last, GraphExec::Level* level) {
  std::unordered_map<const GraphNode*, size_t> place;
  for (const auto& node : graph.nodes) place.emplace(node.get(), place.size());
  for (const auto& node : graph.nodes) {
    GraphExec::Level::Entry entry{node->handle, node->type, {}, 0, nullptr};
    for (const GraphNode* dependency : node->dependencies) {
      entry.dependencies.push_back(place[dependency]);
    }
    level->entries.push_back(std::move(entry));
  }
  // Next come nodes whose dependencies are all placed, in the order of their creation.
  std::unordered_map<const GraphNode*, std::vector<uint32_t>> ends;
  std::unordered_map<const GraphNode*, size_t> left;
  std::vector<const GraphNode*> order;
  for (const auto& node : graph.nodes) {
    left[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) order.push_back(node.get());
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const GraphNode* const node = order[i];
    std::vector<uint32_t> dependencies;
    if (node->dependencies.empty()) dependencies = before;
    for (const GraphNode* dependency : node->dependencies) {
      dependencies.insert(dependencies.end(), ends[dependency].begin(), ends[dependency].end());
    }
    GraphExec::Level::Entry& entry = level->entries[place[node]];
    if (node->type == NodeType::kChild) entry.child = std::make_unique<GraphExec::Level>();
    if (node->child != nullptr) entry.child->user_objects = node->child->user_objects;
    if (node->type == NodeType::kChild && node->child != nullptr && !node->child->nodes.empty()) {
      if (!Flatten(*node->child, dependencies, exec, &ends[node], entry.child.get())) return false;
    } else {
      entry.node = exec->nodes.size();
      auto placed = std::make_unique<GraphExec::Node>();
      CopyWorkOf(*node, &placed->work);
      if (node->type == NodeType::kChild) placed->work.type = NodeType::kEmpty;
      placed->origin = node->handle;
      placed->dependencies = std::move(dependencies);
      ends[node].push_back(static_cast<uint32_t>(exec->nodes.size()));
      exec->nodes.push_back(std::move(placed));
    }
    for (const GraphNode* dependent : node->dependents) {
      if (--left[dependent] == 0) order.push_back(dependent);
    }
    if (node->dependents.empty()) {
      last->insert(last->end(), ends[node].begin(), ends[node].end());
    }
  }
  return order.size() == graph.nodes.size();
}

void Collect(const GraphExec::Level& level, HeldObjects* all) {
  all->insert(all->end(), level.user_objects.begin(), level.user_objects.end());
  for (const GraphExec::Level::Entry& entry : level.entries) {
    if (entry.child != nullptr) Collect(*entry.child, all);
  }
}

}  // namespace

CUresult Instantiate(const Graph& graph, Context* context, GraphExec** result) {
  auto exec = std::make_unique<GraphExec>();
  exec->context = context;
  std::vector<uint32_t> last;
  if (!Flatten(graph, {}, exec.get(), &last, &exec->top)) return CUDA_ERROR_INVALID_VALUE;
  exec->top.user_objects = graph.user_objects;
  HoldGraphMemory(exec.get());
  exec->handle = state().graph_execs.Add(exec.get());
  *result = exec.release();
  return CUDA_SUCCESS;
}

void DestroyExec(GraphExec* exec) {
  state().graph_execs.Remove(exec->handle);
  for (const auto& hold : exec->holds) hold->owned = false;
  delete exec;
}

GraphExec::Node* FindInExec(GraphExec* exec, uint64_t node) {
  if (state().nodes.Find(node) == nullptr) return nullptr;
  for (const auto& one : exec->nodes) {
    if (one->origin == node) return one.get();
  }
  return nullptr;
}

namespace {

// A kernel runs on its function's GPU, and on the same account there, whichever stream the graph is launched into.
Command* NewKernel(const GraphNode& work, Stream* stream) {
  const Context& context = *work.function->module->context;
  if (context.device == stream->device) return NewCommand(stream, CommandType::kKernel);
  Command* const command = NewCommand(context.legacy.get(), CommandType::kKernel);
  --command->account->queued;
  command->account = context.device->FindAccount(stream->account->number);
  ++command->account->queued;
  command->level = LevelOf(stream->priority);
  return command;
}

}  // namespace

CUresult LaunchExec(GraphExec* exec, Stream* stream) {
  State& s = state();
  for (const auto& node : exec->nodes) {
    const GraphNode& work = node->work;
    if (work.type == NodeType::kKernel && s.functions.Find(work.function_handle) == nullptr) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (work.type == NodeType::kKernel && work.function->module->context->lost != 0) {
      return static_cast<CUresult>(work.function->module->context->lost);
    }
    if (work.type == NodeType::kHost && !s.host_functions.Prepare()) {
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
  }
  if (!exec->holds.empty()) {
    const CUresult result = TakeGraphMemory(exec, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  Command* const launch = NewCommand(stream, CommandType::kGraph);
  auto* const run = new GraphRun{launch, exec->nodes.size(), {}, {}};
  Collect(exec->top, &run->user_objects);
  launch->graph = run;
  run->nodes.reserve(exec->nodes.size());
  for (const auto& node : exec->nodes) {
    const GraphNode& work = node->work;
    Command* command = nullptr;
    switch (node->enabled ? work.type : NodeType::kEmpty) {
      case NodeType::kKernel:
        command = NewKernel(work, stream);
        FillKernel(command, *work.function, work.plan);
        if (work.own_priority) command->level = LevelOf(work.priority);
        command->partition = work.partition;
        break;
      case NodeType::kCopy:
        command = NewCommand(stream, CommandType::kCopy);
        command->copy = work.copy;
        command->copy.staged = nullptr;
        break;
      case NodeType::kSet:
        command = NewCommand(stream, CommandType::kSet);
        command->set = work.set;
        break;
      case NodeType::kHost:
        command = NewCommand(stream, CommandType::kHost);
        command->host = work.host;
        break;
      case NodeType::kEventRecord: {
        command = NewCommand(stream, CommandType::kRecord);
        Event* const event = s.events.Find(work.event);
        command->event = event;
        if (event != nullptr) {
          command->timed = event->timing;
          if (event->record != nullptr) event->record->event = nullptr;
          event->record = command;
          event->recorded = true;
        }
        break;
      }
      case NodeType::kEventWait: {
        command = NewCommand(stream, CommandType::kEmpty);
        const Event* const event = s.events.Find(work.event);
        if (event != nullptr && event->record != nullptr) s.pool.AddEdge(event->record, command);
        break;
      }
      case NodeType::kEmpty:
      case NodeType::kChild:
      case NodeType::kMemAlloc:
      case NodeType::kMemFree:
        command = NewCommand(stream, CommandType::kEmpty);
        break;
    }
    command->run = run;
    command->earliest = 0;
    run->nodes.push_back({command, command->generation});
  }
  // The edge that is added last is followed first. Nodes that wait for the same one become ready in their order.
  for (size_t i = exec->nodes.size(); i-- > 0;) {
    for (uint32_t dependency : exec->nodes[i]->dependencies) {
      s.pool.AddEdge(run->nodes[dependency].command, run->nodes[i].command);
    }
  }
  // Launches of one executable run one after the other, even in different streams.
  if (exec->last != nullptr && exec->last->generation == exec->last_generation) {
    s.pool.AddEdge(exec->last, launch);
  }
  exec->last = launch;
  exec->last_generation = launch->generation;
  if (!exec->holds.empty()) UseGraphMemory(exec, launch);
  Submit(stream, launch);
  return CUDA_SUCCESS;
}

}  // namespace gpushare::sim
