// SPDX-License-Identifier: Apache-2.0
// Searches the shape of a graph that predicts best. The caller evaluates each guess. From several starts, the search tries
// longer and shorter lengths in steps that become smaller.
//
//   ShapeSearch search(ShapeSearch::Starts(kernels));
//   while (const ShapeSearch::Guess* guess = search.Next()) search.Tell(ErrorOf(guess->ShapeOf(kernels), guess->pace()));
//   search.best().ShapeOf(kernels);
//
// Deterministic: the same starts and errors give the same guesses. Not thread-safe.
#ifndef GPUSHARE_METER_SHAPE_SEARCH_H_
#define GPUSHARE_METER_SHAPE_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "meter/graph_shape.h"

namespace gpushare::meter {

class ShapeSearch {
 public:
  // A kernel of a graph. All kernels of one kind have the same length.
  struct Kernel {
    uint32_t kind = 0;
    float footprint = 1;
  };
  using Kernels = std::vector<Kernel>;  // in their order; empty: nothing is known

  struct Guess {
    // Logarithms of the length of each kind and of the pace. If the kernels are not known: of the length of each part, of the
    // footprint of all parts, and of the pace.
    std::vector<float> logs;
    double error = 0;
    bool before = false;  // it started from the shape that was found before

    GraphShape ShapeOf(const Kernels& kernels) const;
    // How many times as long as predicted the other tenants' commands take.
    double pace() const;
  };
  // `now` is the shape that was found before, or empty.
  static std::vector<Guess> Starts(const Kernels& kernels, const GraphShape& now);

  ShapeSearch(const Kernels& kernels, std::vector<Guess> starts);

  // The guess to try next, valid until Tell(); null: the search is over.
  const Guess* Next() const { return over_ ? nullptr : &tried_; }
  void Tell(double error);
  // The result, once the search is over. A shape that was found before is given up only for a clearly better one.
  const Guess& best() const;

 private:
  void Descend(size_t index, double from, double to);
  void DescendNext();
  void Try();
  void Step();
  double StepOf(size_t place) const;
  void KeepBest(size_t most);

  const bool unknown_;          // the kernels are not known
  std::vector<Guess> guesses_;  // all starts, and later the best of them
  Guess tried_;
  size_t told_ = 0;  // number of starts that were evaluated
  bool over_ = false;
  // The descent of one guess: its index, its step and the last step; how often all places were tried with this step; and
  // which place is tried now, and in which direction.
  size_t at_ = 0;
  double step_ = 0, last_ = 0;
  int sweeps_ = 0;
  bool bettered_ = false;
  size_t place_ = 0;
  bool down_ = false;
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_SHAPE_SEARCH_H_
