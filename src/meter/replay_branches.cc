// SPDX-License-Identifier: Apache-2.0
// Graphs some of whose kernels run at the same time. Each branch of a graph is a queue of kernels like a stream, the head of which
// waits for kernels of other branches.
#include <algorithm>
#include <new>
#include <utility>

#include "meter/replay.h"

namespace gpushare::meter {

void Replay::AddBranches(StreamId id, uint32_t count) {
  std::vector<StreamId>& branches = At(id).branches;
  branches.reserve(count);
  while (branches.size() < count) {
    StreamId branch = kBranch;
    if (free_branches_.empty()) {
      branch |= static_cast<StreamId>(branches_.size());
      free_branches_.reserve(branches_.size() + 1);  // so that RemoveStream() needs no memory
      branches_.emplace_back();
    } else {
      branch = free_branches_.back();
      free_branches_.pop_back();
    }
    Stream& made = At(branch);
    made = Stream{};
    made.live = true;
    made.owner = id;
    made.tenant = At(id).tenant;
    made.priority = At(id).priority;
    branches.push_back(branch);
  }
  live_.reserve(streams_.size() + branches_.size());
}

void Replay::AppendGraph(StreamId id, const Command& whole,
                         std::shared_ptr<const BranchedShape> shape, Nanos not_before) {
  const Branches& order = *shape->branches;
  AddBranches(id, order.count());
  Stream& stream = At(id);
  MakeRoomFor(stream, order.kernels());
  double lengths = 0, groups = 0;
  for (const GraphPart& kernel : shape->kernels) lengths += static_cast<double>(kernel.length);
  const uint64_t graph = stream.graphs + 1;
  Command command = whole;
  command.parts = order.kernels();
  command.alone = static_cast<float>(1 / std::max(lengths, 1e-9));
  command.beside = false;  // counted once, for the whole
  try {
    for (uint32_t i = 0; i < order.kernels(); ++i) {
      command.cost_ns = whole.cost_ns * shape->kernels[i].length;
      command.footprint = shape->kernels[i].footprint;
      groups += GroupTime(command);
      At(stream.branches[order.BranchOf(i)])
          .items.push_back({.command = command, .graph = graph, .kernel = i});
    }
    command = whole;
    command.parts = order.kernels();
    const double full = std::max(static_cast<double>(whole.cost_ns), 1.0) * sm_count_;
    command.footprint = static_cast<float>(std::min(groups / full, 1.0));
    AppendItem(id, {.command = command,
                    .not_before = static_cast<double>(not_before.count()),
                    .branches = std::shared_ptr<const Branches>(shape, shape->branches.get()),
                    .graph = graph});
  } catch (const std::bad_alloc&) {
    for (const StreamId branch : stream.branches) {
      std::deque<Item>& items = At(branch).items;
      while (!items.empty() && items.back().graph == graph) items.pop_back();
    }
    throw;
  }
  Note({.kind = Call::Kind::kAppendGraph,
        .stream = id,
        .command = whole,
        .at = not_before,
        .shape = std::move(shape)});
  stream.graphs = graph;
  for (const StreamId branch : stream.branches) {
    Stream& s = At(branch);
    if (s.items.empty() || std::find(live_.begin(), live_.end(), branch) != live_.end()) continue;
    Block(s);
    live_.push_back(branch);
  }
}

// The opaque command or the graph with branches at the head begins.
void Replay::Begin(Stream& stream) {
  stream.started = true;
  if (stream.items.front().branches == nullptr) return;
  stream.begun = std::max(stream.ready, stream.items.front().not_before);
  Unblock(stream, stream.begun);
}

// The branch has another head.
void Replay::Block(Stream& branch) {
  branch.blocked = true;
  branch.ended = 0;
}

// Looks at each kernel that the head waits for only until that has ended, since a program may have it wait for thousands.
bool Replay::MayBegin(Stream& branch) const {
  const Stream& stream = At(*branch.owner);
  const Item& kernel = branch.items.front();
  if (!stream.started || stream.items.front().graph != kernel.graph) return false;
  const Branches& order = *stream.items.front().branches;
  const auto before = order.Before(kernel.kernel);
  for (; branch.ended < before.size(); ++branch.ended) {
    const uint32_t earlier = before[branch.ended];
    const Stream& other = At(stream.branches[order.BranchOf(earlier)]);
    if (!other.items.empty() && other.items.front().graph == kernel.graph &&
        other.items.front().kernel <= earlier) {
      return false;
    }
  }
  return true;
}

void Replay::Unblock(Stream& stream, double at) {
  for (const StreamId id : stream.branches) {
    Stream& branch = At(id);
    if (!branch.blocked || branch.items.empty() || !MayBegin(branch)) continue;
    branch.blocked = false;
    branch.ready = at;
  }
}

// Whether the head of the branch, which has ended, is the last kernel of its graph.
bool Replay::EndsGraph(const Stream& branch) const {
  const uint64_t graph = branch.items.front().graph;
  if (branch.items.size() > 1 && branch.items[1].graph == graph) return false;
  const std::vector<StreamId>& branches = At(*branch.owner).branches;
  return std::all_of(branches.begin(), branches.end(), [&](StreamId id) {
    const Stream& other = At(id);
    return &other == &branch || other.items.empty() || other.items.front().graph != graph;
  });
}

void Replay::EndKernel(Stream& branch) {
  Stream& stream = At(*branch.owner);
  const bool ends_graph = EndsGraph(branch);
  if (stream.done.empty()) stream.launched = stream.begun;
  if (!branch.items.front().abandoned) {
    stream.done.push_back(branch.items.front().command);
    stream.done.back().beside = ends_graph && stream.items.front().command.beside;  // see RunOn()
  }
  branch.items.pop_front();
  branch.started = false;
  Block(branch);
  if (ends_graph) {
    besides_ -= stream.items.front().command.beside ? 1 : 0;
    stream.items.pop_front();
    stream.started = false;
    stream.ready = now_;
    return;
  }
  Unblock(stream, now_);
}

// The last kernel of the graph takes its place on its stream, with the groups that end: it is the last of its batch.
void Replay::BecomeLast(StreamId owner, size_t index) {
  Stream& stream = At(owner);
  Stream& branch = At(running_[index].stream);
  Item& head = stream.items.front();
  const bool beside = head.command.beside;
  head.command = branch.items.front().command;
  head.command.beside = beside;
  head.branches = nullptr;
  if (stream.done.empty()) stream.launched = stream.begun;
  stream.unit_ns = branch.unit_ns;
  stream.running = running_[index].groups;
  stream.held += running_[index].groups;
  running_[index].stream = owner;
  branch.held = branch.running = 0;
  branch.items.pop_front();
  branch.started = false;
  Block(branch);
}

// The graph at the head is over, whatever the model has of it.
void Replay::PopGraph(Stream& stream) {
  const uint64_t graph = stream.items.front().graph;
  if (!stream.started) stream.begun = std::max(stream.ready, stream.items.front().not_before);
  if (stream.done.empty()) stream.launched = stream.begun;
  for (const StreamId id : stream.branches) {
    Stream& branch = At(id);
    if (branch.items.empty() || branch.items.front().graph != graph) continue;
    Finish(branch, id);
    for (; !branch.items.empty() && branch.items.front().graph == graph; branch.items.pop_front()) {
      if (!branch.items.front().abandoned) stream.done.push_back(branch.items.front().command);
    }
    Block(branch);
    if (branch.items.empty()) std::erase(live_, id);
  }
  besides_ -= stream.items.front().command.beside ? 1 : 0;
  stream.items.pop_front();
  stream.started = false;
}

void Replay::ForKernels(const Stream& stream, uint64_t graph, absl::FunctionRef<void(Item&)> f) {
  for (const StreamId id : stream.branches) {
    for (Item& kernel : At(id).items) {
      if (kernel.graph == graph) f(kernel);
    }
  }
}

// How long what is left of the item takes alone.
double Replay::LeftNs(const Stream& stream, const Item& item) const {
  if (item.branches == nullptr) return item.command.alone_ns();
  double left = 0;
  for (const StreamId id : stream.branches) {
    for (const Item& kernel : At(id).items) {
      if (kernel.graph == item.graph) left += kernel.command.alone_ns();
    }
  }
  return left;
}

// How long what has not begun of the head, which has, takes alone.
double Replay::WaitingNs(const Stream& stream) const {
  const Item& head = stream.items.front();
  if (head.branches == nullptr) return 0;
  double waiting = LeftNs(stream, head);
  for (const StreamId id : stream.branches) {
    const Stream& branch = At(id);
    if (!branch.started) continue;
    waiting -= branch.items.front().command.alone_ns();
    if (branch.waiting > 0) waiting += branch.unit_ns;
  }
  return waiting;
}

void Replay::AbandonItem(Stream& stream, Item& item) {
  item.abandoned = true;
  if (item.branches == nullptr) return;
  ForKernels(stream, item.graph, [](Item& kernel) { kernel.abandoned = true; });
}

}  // namespace gpushare::meter
