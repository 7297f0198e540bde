// SPDX-License-Identifier: Apache-2.0
// The shape by which the replay treats a graph: commands one after the other, each with a part of the graph's time.
//
//   meter::GraphShape shape = {{.length = 0.25f, .footprint = 1}, {.length = 0.75f, .footprint = 0.5f}};
//
// Where kernels of the graph run at the same time, Branches says which wait for which.
#ifndef GPUSHARE_METER_GRAPH_SHAPE_H_
#define GPUSHARE_METER_GRAPH_SHAPE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "driver/driver.h"

namespace gpushare::meter {

struct GraphPart {
  float length =
      1;  // part of the graph's time; the lengths of all parts add up to 1, with branches to 1 or more
  float footprint = 1;  // as in Replay::Command
  friend bool operator==(const GraphPart&, const GraphPart&) = default;
};

using GraphShape = std::vector<GraphPart>;

// The kernels of a graph, divided among branches so that those of one branch follow one another.
class Branches {
 public:
  // Graphs of more branches, or of more kernels times branches, are not replayed by them: that takes up to 0.4 ms a launch.
  static constexpr uint32_t kMost = 32, kMostTimesKernels = 8192;

  // Each edge goes from an earlier kernel to a later one. Null if there would be too many.
  static std::shared_ptr<const Branches> Of(uint32_t kernels,
                                            std::span<const driver::GraphEdge> edges);

  uint32_t count() const { return count_; }
  uint32_t BranchOf(uint32_t kernel) const { return branch_of_[kernel]; }
  // Kernels of any branch that have to end first.
  std::span<const uint32_t> Before(uint32_t kernel) const {
    return std::span(before_).subspan(first_[kernel], first_[kernel + 1] - first_[kernel]);
  }
  uint32_t kernels() const { return static_cast<uint32_t>(branch_of_.size()); }

 private:
  uint32_t count_ = 0;
  std::vector<uint32_t> branch_of_;
  std::vector<uint32_t> first_, before_;
};

// The lengths of the kernels are parts of the graph's time.
struct BranchedShape {
  GraphShape kernels;
  std::shared_ptr<const Branches> branches;
};

// How long kernels take together when they have the device to themselves, in the unit of their lengths. As in the replay's model
// of the device, the kernel that could begin first takes the SMs that are free, in groups of blocks, and later ones take what it
// leaves.
double LengthTogether(const GraphShape& kernels, const Branches& branches, int sm_count);

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_GRAPH_SHAPE_H_
