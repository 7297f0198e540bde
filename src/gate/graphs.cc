// SPDX-License-Identifier: Apache-2.0
#include "gate/graphs.h"

#include <new>

#include "gate/footprint.h"

namespace gpushare::gate {
namespace {

// Each version of an executable has a key of its own.
uint64_t KeyOf(const void* executable, uint32_t version) {
  return GraphKey(executable) ^ uint64_t { version } * 0xc2b2ae3d27d4eb4fu;
}

}  // namespace

std::atomic<uint32_t>& Graphs::VersionOf(const void* executable) {
  return versions_[GraphKey(executable) >> 54];
}

void Graphs::NewVersion(const void* executable) {
  VersionOf(executable).fetch_or(1, std::memory_order_relaxed);
}

void Graphs::Is(const void* executable, const driver::GraphContents& contents, FootprintOf of,
                bool updated) {
  NewVersion(executable);
  try {
    parts_.Put(executable, {contents.commands, GraphFootprint(contents, of)});
    kernels_.Put(executable, KernelsOf(contents, of));
    if (updated) {
      copies_.Updated(executable, contents.copies);
    } else {
      copies_.Put(executable, contents.copies);
    }
  } catch (const std::bad_alloc&) {
    // The driver's call has succeeded and must not fail here, so the graph counts as an unknown one.
    Unseen(executable);
  }
}

void Graphs::Unseen(const void* executable) {
  NewVersion(executable);
  parts_.Put(executable, {});
  kernels_.Put(executable, {});
  copies_.Put(executable, {});
}

void Graphs::Changed(const void* executable, float footprint) {
  NewVersion(executable);
  kernels_.Put(executable, {});  // the kernels' lengths are not known any more
  GraphParts::Parts parts = parts_.Find(executable);
  if (parts.commands == 0) return;
  parts.footprint = FootprintAfterChange(parts.footprint, footprint);
  parts_.Put(executable, parts);
}

void Graphs::Ended(const void* executable) {
  NewVersion(executable);
  kernels_.Put(executable, {});
  copies_.Put(executable, {});
}

Work Graphs::NextLaunch(const void* executable) {
  std::atomic<uint32_t>& word = VersionOf(executable);
  uint32_t version = word.load(std::memory_order_relaxed);
  while ((version & 1) != 0 &&
         !word.compare_exchange_weak(version, version + 1, std::memory_order_relaxed)) {
  }
  version = (version + 1) / 2;
  const GraphParts::Parts parts = parts_.Find(executable);
  Work work;
  work.key = KeyOf(executable, version);
  work.like = version > 0 ? KeyOf(executable, version - 1) : 0;
  work.kind = Work::Kind::kGraph;
  work.parts = parts.commands;
  work.footprint = parts.footprint;
  work.kernels = &kernels_;
  work.executable = executable;
  return work;
}

}  // namespace gpushare::gate
