// SPDX-License-Identifier: Apache-2.0
// Looks for the shape of a graph that foretells best, whoever says how well one does: lengths are tried longer and shorter, in
// steps that become smaller, from several starts.
//
//   ShapeSearch search(ShapeSearch::Starts(kernels));
//   while (const ShapeSearch::Guess* guess = search.Next()) search.Tell(ErrorOf(guess->ShapeOf(kernels), guess->pace()));
//   search.best().ShapeOf(kernels);
//
// The same starts and errors give the same guesses. Not thread-safe.
#ifndef GPUSHARE_METER_SHAPE_SEARCH_H_
#define GPUSHARE_METER_SHAPE_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "meter/graph_shape.h"

namespace gpushare::meter {

class ShapeSearch {
 public:
  // What is known of a graph's kernels, in their order: all of one kind are of one length.
  struct Kernel {
    uint32_t kind = 0;
    float footprint = 1;
  };
  using Kernels = std::vector<Kernel>;  // none: nothing is known

  struct Guess {
    // Logarithms: of the length of each kind, or where nothing is known of each part; then, where nothing is known, of the
    // footprint of all of them; then of the pace.
    std::vector<float> logs;
    double error = 0;
    bool before = false;  // it is what was found before, bettered since

    GraphShape ShapeOf(const Kernels& kernels) const;
    // By so much others' commands take longer than they are predicted to.
    double pace() const;
  };
  // `now`: what was found before, or nothing.
  static std::vector<Guess> Starts(const Kernels& kernels, const GraphShape& now);

  ShapeSearch(const Kernels& kernels, std::vector<Guess> starts);

  // What is to be tried next, until Tell(); null: that was all.
  const Guess* Next() const { return over_ ? nullptr : &tried_; }
  void Tell(double error);
  // Once that was all. What was found before is left for what is clearly better.
  const Guess& best() const;

 private:
  void Descend(size_t index, double from, double to);
  void DescendNext();
  void Try();
  void Step();
  double StepOf(size_t place) const;
  void KeepBest(size_t most);

  const bool unknown_;          // nothing is known of the kernels
  std::vector<Guess> guesses_;  // starts; from then on the best of them
  Guess tried_;
  size_t told_ = 0;  // so many starts were
  bool over_ = false;
  // Of the guess that is bettered: the step, its last; how often all places were tried with it; which place, which way.
  size_t at_ = 0;
  double step_ = 0, last_ = 0;
  int sweeps_ = 0;
  bool bettered_ = false;
  size_t place_ = 0;
  bool down_ = false;
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_SHAPE_SEARCH_H_
