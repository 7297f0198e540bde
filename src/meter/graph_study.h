// SPDX-License-Identifier: Apache-2.0
// Finds out what a graph is made of that cannot be inspected. The graph's markers tell how long it takes. How late other
// tenants' commands end beside it tells when its kernels held SMs, and how many. A study records the calls of a replay during
// some launches of the graph, repeats them on copies of the replay with different guesses, and finds the guess that predicts
// the stamps best.
//
//   GraphStudy study({.kernels = kernels, .taken = taken, .sm_count = 132});
//   study.Begin(replay);        // the replay's calls are recorded from here on
//   ...                         // the graph's commands are appended with `studied`
//   study.End(replay);
//   while (study.Step(200)) {}  // in pieces of about 200 calls of the replay, 0.2 us each
//   study.found();
//
// A study keeps up to kMostCalls calls (1 MB). It is not thread-safe: between Begin() and End() the user of the replay uses it
// too. Begin() and Step() throw bad_alloc if there is no memory; the study can then only be destroyed.
#ifndef GPUSHARE_METER_GRAPH_STUDY_H_
#define GPUSHARE_METER_GRAPH_STUDY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "driver/driver.h"
#include "meter/graph_shape.h"
#include "meter/replay.h"
#include "meter/shape_search.h"

namespace gpushare::meter {

class GraphStudy {
 public:
  // The lengths of more kernels, or of more kinds of them, are not searched.
  static constexpr size_t kMostKernels = 512, kMostKinds = 16;
  // Graphs with branches and more kernels of several waves than this are not studied: waves that run side by side come apart, so
  // each such kernel takes the replay up to 75 us.
  static constexpr int kMostWithWaves = 16;

  // What is known of the graph.
  struct Graph {
    ShapeSearch::Kernels kernels = {};  // as far as known
    uint32_t count = 0;                 // of kernels
    // Of a graph with branches: which kernels follow which.
    std::optional<std::vector<driver::GraphEdge>> edges = std::nullopt;
    // Its kernels with their lengths when they were launched by themselves, as parts of the graph's time; empty if these are not
    // known. They are tried first, and only if they do not predict well, or there are none, lengths are searched: not if
    // `kernels` is empty and there are any, or branches.
    GraphShape measured = {};
    GraphShape taken = {};  // its shape without any study
    GraphShape now = {};    // what the last study found, or empty
    int sm_count = 0;
  };
  explicit GraphStudy(Graph graph);

  // False: it is too much for the replay. Step() finds nothing then.
  bool possible() const { return branches_ != nullptr || !graph_.edges.has_value(); }

  // Whether a graph that should take `part` of the time that it takes is the same within what clocks change.
  static bool IsAlike(float part) { return part >= 1 - kAlike && part <= 1 + kAlike; }

  void Begin(Replay& replay);
  void End(Replay& replay);
  bool full() const { return calls_.size() >= kMostCalls; }

  // Returns false when the study has ended.
  bool Step(size_t calls);
  // Empty if no guess predicts clearly better than `taken`. If there were too few stamps to predict, it is the shape that was
  // found before.
  const std::optional<GraphShape>& found() const { return found_; }
  // Of a graph with branches, if they are known: the shape is that of its kernels.
  const std::shared_ptr<const Branches>& branches() const { return branches_; }

 private:
  static constexpr size_t kMostCalls = 8192;
  static constexpr float kAlike = 0.3f;
  // With more kernels than this, only timestamps of others' kernels that leave SMs count in a search: the others say too little
  // of so many lengths.
  static constexpr size_t kFewKernels = 32;
  // The paces at which `taken` is tried: costs that were learnt beside a graph of that shape are mostly too long.
  static constexpr std::array<double, 2> kPaces = {1, 0.83};

  // The guess that is being tried, and how far the trial has got.
  struct Trial {
    BranchedShape shape;  // without branches if its parts follow one another
    double pace = 1;
    Replay replay;
    size_t at = 0;  // index of the next call
    int launches = 0;
    double error = 0, predicted = 0;  // us^2, us
    int stamps = 0;
  };

  GraphShape ShapeOf(const ShapeSearch::Guess& guess) const;
  bool Prepare();
  void Try(BranchedShape shape, double pace);
  bool Go(size_t& calls);
  void Launch(const Replay::Call& first);
  void Score(const Replay::Batch& batch);
  bool Told();
  void Conclude();
  double TakenError() const;
  bool IsClose() const;
  bool IsBelieved(double error) const;

  Graph graph_;
  std::shared_ptr<const Branches> branches_;
  std::optional<ShapeSearch> search_;

  std::optional<Replay> begin_;
  std::vector<Replay::Call> calls_;
  double clip_ns_ = 0;
  std::optional<Trial> trial_;
  std::vector<double> taken_errors_;  // errors of `taken` by kPaces
  std::optional<double> measured_error_;
  double predicted_ = 0;
  int stamps_ = 0;
  std::optional<GraphShape> found_;
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_GRAPH_STUDY_H_
