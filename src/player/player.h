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
  kBacklog,           // launches as fast as it is let; the driver's queue is the only bound
  kSyncPerIteration,  // waits for the device after each pass, as a training loop that reads its loss
  kOpenLoop,          // a pass for each arrival, in order; latency counts from the arrival
  kBatches,           // the same, with a pass for several arrivals: a server that batches requests
};

// A time in which the tenant has nothing to do; it finishes the pass it is in.
struct Absence {
  Nanos from, to;  // since start
};

// The pass for up to so many arrivals: a part of the program's steps.
struct BatchPass {
  size_t most = 1;
  size_t first_step = 0, steps = 0;
};

struct PlayOptions {
  PlayMode mode = PlayMode::kBacklog;
  Time start{};       // sleeps until then
  Time end = kNever;  // begins no pass from here on; kernels of a backlog stop here too
  std::vector<Nanos> arrivals = {};     // kOpenLoop, kBatches: since start, ascending
  std::vector<Absence> absences = {};   // kBacklog, kSyncPerIteration; ascending, disjoint
  std::vector<BatchPass> batches = {};  // kBatches: by ascending `most`
  Nanos batch_wait{
      0};  // kBatches: how long the oldest that waits does so for more, up to the greatest batch
  // Called after each pass, on the playing thread: what the program does beside launching.
  std::function<absl::Status()> after_pass = nullptr;
  const std::atomic<bool>* stop = nullptr;  // ends early when set (another tenant failed)
};

struct Request {
  Nanos arrival;   // since start
  Nanos latency;   // from the arrival to the return of the synchronising call
  Nanos begun{0};  // since start: when its first kernel was about to be launched
};

struct PlayResult {
  uint64_t passes = 0;  // completed
  uint64_t launches = 0;
  Nanos work{0};  // alone durations of what was launched
  std::vector<Request> requests;
  // As they were: each begins when the work before it has ended, and is not there where that was after its end.
  std::vector<Absence> absences;
};

// An error is the port's; what had been done until then is in `result`.
absl::Status Play(const Program& program, const PlayOptions& options, Port& port,
                  PlayResult* result);

// Quantile q in [0, 1] of the latencies: the least that at least a part q of them do not exceed. 0 of none.
Nanos LatencyQuantile(const std::vector<Request>& requests, double q);

}  // namespace gpushare::player

#endif  // GPUSHARE_PLAYER_PLAYER_H_
