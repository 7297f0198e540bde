// SPDX-License-Identifier: Apache-2.0
// The turn among processes that have one virtual clock.
//
// One process has it: that with the earliest time at which a thread of it is to run or its part of the
// device does something, of those of one time that in the lowest place. It goes on until another is due,
// says when it is due again itself, and hands the turn over. So a run repeats as one in a process does,
// when all that matter are there at the start (`processes`) and have their places (`place`).
//
// Who waits sleeps on a word of its own and looks, every few milliseconds, whether the process that has
// the turn is still there.
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

  // When this process is due: a thread that brings time on; whatever time brings about, the device's next
  // event or a service; and whether a thread waits for that.
  struct Due {
    uint64_t now, thread, event;
    bool waits;
  };

  // Blocks until all are there that have to be and the turn is this process's. What time it is then, and
  // which processor registered threads share.
  uint64_t Join(uint64_t now, int* cpu);
  // Blocks until the turn is this process's. False: it has left.
  bool Await(uint64_t* now);
  // By the process that has the turn. False: it is still its own.
  bool Pass(const Due& due);
  // By the same, at `now`: up to when it may go on, exclusive; and whether threads of others wait for the
  // time to pass. Should it die, then it was at `now`.
  uint64_t Limit(uint64_t now, bool* others_drive);

  // Any thread of a process without the turn: wants it as soon as can be.
  void Request();
  uint64_t now() const;
  // Who has the turn while this process has not, for reports.
  std::string Describe() const;

 private:
  friend class SharedDevice;
  bool IsReady() const;
  bool AnyDead() const;
  uint32_t Pick();
  void Give(uint32_t place);
  void Patrol();

  SharedDevice& device_;
  std::atomic<bool> taken_{false};          // the turn is here and in use
  mutable std::atomic<bool> ready_{false};  // for good: all were there once
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_TURN_H_
