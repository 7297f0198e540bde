// SPDX-License-Identifier: Apache-2.0
// Plays a program against a port the way a tenant of some kind would: a training loop, a batch job, a
// service.
//
//   PlayResult result;
//   PlayOptions options = {.mode = PlayMode::kOpenLoop, .end = start + Seconds(20), .arrivals = arrivals};
//   GPUSHARE_RETURN_IF_ERROR(Play(program, options, port, &result));
//
// Runs on the calling thread. Times are the port's, so that on the simulated GPU's virtual clock the same
// program and options give the same result.
#ifndef GPUSHARE_PLAYER_PLAYER_H_
#define GPUSHARE_PLAYER_PLAYER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/time.h"
#include "player/port.h"
#include "player/program.h"

namespace gpushare::player {

enum class PlayMode : uint8_t {
  kBacklog,           // launches as fast as it can; only the driver's queue bounds it
  kSyncPerIteration,  // synchronises after each pass, like a training loop that reads its loss
  kOpenLoop,          // a pass for each arrival, in order; latency counts from the arrival
  kBatches,           // a pass for several arrivals, like a server that batches requests
};

// An interval in which the tenant begins no pass; one that is under way at its start is finished.
struct Absence {
  Nanos from, to;  // since start
};

// The pass that serves up to `most` arrivals: a part of the program's steps.
struct BatchPass {
  size_t most = 1;
  size_t first_step = 0, steps = 0;
};

struct PlayOptions {
  PlayMode mode = PlayMode::kBacklog;
  Time start{};                      // Play() sleeps until then
  Time end = kNever;                 // no pass begins after this; kBacklog stops within a pass too
  std::vector<Nanos> arrivals = {};  // kOpenLoop, kBatches: since start, ascending
  std::vector<Absence> absences = {};   // kBacklog, kSyncPerIteration; ascending, disjoint
  std::vector<BatchPass> batches = {};  // kBatches: by ascending `most`
  Nanos batch_wait{
      0};  // kBatches: how long the oldest arrival waits for more to fill the largest batch
  // Called after each pass on the playing thread: stands for what the program does besides launching.
  std::function<absl::Status()> after_pass = nullptr;
  const std::atomic<bool>* stop =
      nullptr;  // set to end early, for instance if another tenant failed
};

struct Request {
  Nanos arrival;   // since start
  Nanos latency;   // from the arrival to the return of the synchronising call
  Nanos begun{0};  // since start: when its first kernel was about to be launched
};

struct PlayResult {
  uint64_t passes = 0;  // completed
  uint64_t launches = 0;
  Nanos work{0};  // sum of the launched kernels' durations when run alone
  std::vector<Request> requests;
  // The absences as they took place: each begins once the work before it has ended, and is left out if that was after its end.
  std::vector<Absence> absences;
};

// Errors are the port's; `result` then holds what was done before.
absl::Status Play(const Program& program, const PlayOptions& options, Port& port,
                  PlayResult* result);

// Quantile q in [0, 1] of the latencies: the least value that a fraction q of them does not exceed. 0 without requests.
Nanos LatencyQuantile(const std::vector<Request>& requests, double q);

}  // namespace gpushare::player

#endif  // GPUSHARE_PLAYER_PLAYER_H_
