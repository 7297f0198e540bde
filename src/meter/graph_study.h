// SPDX-License-Identifier: Apache-2.0
// What is a graph made of that nobody can see into? Its markers say how long it takes. How late others' commands end beside it
// says when its kernels held SMs, and how many. A study keeps what a replay is told during some launches of the graph, lets
// copies of the replay go through that again with other guesses, and finds the guess that foretells the stamps best.
//
//   GraphStudy study(kernels, taken, now);
//   study.Begin(replay);        // from here on it is recorded
//   ...                         // the graph's commands are appended with `studied`
//   study.End(replay);
//   while (study.Step(200)) {}  // in pieces of about so many calls of the replay, 0.2 us each
//   study.found();
//
// It keeps up to kMostCalls calls (1 MB). Between Begin() and End() it is used by whoever uses the replay, then by anybody: not
// thread-safe. Where there is no memory Begin() and Step() throw bad_alloc, and it may be thrown away.
#ifndef GPUSHARE_METER_GRAPH_STUDY_H_
#define GPUSHARE_METER_GRAPH_STUDY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "meter/graph_shape.h"
#include "meter/replay.h"
#include "meter/shape_search.h"

namespace gpushare::meter {

class GraphStudy {
 public:
  // More kernels, or of more kinds, are not told apart.
  static constexpr size_t kMostKernels = 64, kMostKinds = 16;

  // `kernels`: as far as they are known. `taken`: for what the graph is taken without any study. `now`: what the last one has
  // found; or none.
  GraphStudy(ShapeSearch::Kernels kernels, GraphShape taken, const GraphShape& now);

  void Begin(Replay& replay);
  void End(Replay& replay);
  bool full() const { return calls_.size() >= kMostCalls; }

  // False: it has ended.
  bool Step(size_t calls);
  // None: no guess foretells so much better than what it is taken for. Where there was too little to be foretold it is what was
  // found before.
  const std::optional<GraphShape>& found() const { return found_; }

 private:
  static constexpr size_t kMostCalls = 8192;
  // The paces with which what it is taken for is tried: costs that were learnt beside that are mostly too long.
  static constexpr std::array<double, 2> kPaces = {1, 0.83};

  // One guess, and how far it has got.
  struct Trial {
    GraphShape shape;
    double pace = 1;
    Replay replay;
    size_t at = 0;         // calls
    uint32_t skipped = 0;  // parts of a launch for which those of the guess stand
    int launches = 0;
    double error = 0, predicted = 0;  // us^2, us
    int stamps = 0;
  };

  bool Prepare();
  void Try(GraphShape shape, double pace);
  bool Go(size_t& calls);
  void Launch(const Replay::Call& first);
  void Score(const Replay::Batch& batch);
  bool Told();
  void Conclude();

  const ShapeSearch::Kernels kernels_;
  const GraphShape taken_;
  ShapeSearch search_;

  std::optional<Replay> begin_;
  std::vector<Replay::Call> calls_;
  double clip_ns_ = 0;
  std::optional<Trial> trial_;
  std::vector<double> taken_errors_;  // by kPaces
  double predicted_ = 0;
  int stamps_ = 0;
  std::optional<GraphShape> found_;
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_GRAPH_STUDY_H_
