// SPDX-License-Identifier: Apache-2.0
// Host functions in streams (cuLaunchHostFunc, cuStreamAddCallback), run in the order in which their
// streams reach them, on one thread of the simulator's own. On the virtual clock it is a registered
// thread: a function runs at the virtual time at which its stream reached it. On the wall clock it also
// lets the device's events happen when nobody else is in the driver.
#ifndef GPUSHARE_SIM_STREAM_HOST_FUNCTION_H_
#define GPUSHARE_SIM_STREAM_HOST_FUNCTION_H_

#include <cstdint>
#include <deque>

#include "sim/stream/command.h"

namespace gpushare::sim {

class HostFunctions {
 public:
  // Starts the thread when there is none yet. False: the machine gave none.
  bool Prepare();
  // Ends the thread when it has called what was posted.
  void Stop();
  // Calls a function of the program's that no stream waits for; after Prepare().
  void Post(void (*function)(void*), void* data);
  // The command's stream has reached it.
  void Run(Command* command);

 private:
  struct Job {
    Command* command;  // null: posted
    uint32_t generation;
    HostWork posted;
  };
  static void* Main(void* self);
  void Loop();

  bool started_ = false;
  bool stop_ = false;
  uint64_t announced_ = 0;
  WaitList wake_, stopped_;
  std::deque<Job> jobs_;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_HOST_FUNCTION_H_
