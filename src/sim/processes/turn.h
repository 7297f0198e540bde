// SPDX-License-Identifier: Apache-2.0
// The turn among processes that share one virtual clock.
//
// One process has the turn: the one with the earliest time at which one of its threads has to run or its part of the device has
// an event; at equal times, the one in the lowest place. It runs until another process is due, publishes when it is due again
// itself, and hands the turn over. So a run repeats exactly, as in a single process, if all processes that matter are there at
// the start (`processes`) and have fixed places (`place`).
//
// A process that waits sleeps on a word of its own, and checks every few milliseconds whether the process that has the turn is
// still alive.
#ifndef GPUSHARE_SIM_PROCESSES_TURN_H_
#define GPUSHARE_SIM_PROCESSES_TURN_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace gpushare::sim {

class SharedDevice;

class SharedTurn {
 public:
  explicit SharedTurn(SharedDevice& device) : device_(device) {}

  // When this process is due: for a thread that makes time pass; for an event of the device or a service, which happen when
  // time passes; and whether a thread is waiting for such an event.
  struct Due {
    uint64_t now, thread, event;
    bool waits;
  };

  // Blocks until all required processes have joined and this process has the turn. Returns the time then; `cpu` gets the
  // processor that registered threads share.
  uint64_t Join(uint64_t now, int* cpu);
  // Blocks until this process has the turn. False if it has left.
  bool Await(uint64_t* now);
  // Called by the process with the turn. False if it keeps the turn.
  bool Pass(const Due& due);
  // Called by the process with the turn, at `now`. Returns the time, exclusive, up to which it may run, and whether threads of
  // other processes wait for time to pass. Also publishes `now`, in case this process dies.
  uint64_t Limit(uint64_t now, bool* others_drive);

  // Called by any thread of a process without the turn: asks for it as soon as possible.
  void Request();
  uint64_t now() const;
  // Which process has the turn instead of this one, for reports.
  std::string Describe() const;

 private:
  friend class SharedDevice;
  bool IsReady() const;
  bool AnyDead() const;
  uint32_t Pick();
  void Give(uint32_t place);
  void Patrol();

  SharedDevice& device_;
  std::atomic<bool> taken_{false};          // this process has the turn and is using it
  mutable std::atomic<bool> ready_{false};  // never reset: all required processes were there once
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_TURN_H_
