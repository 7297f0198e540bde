// SPDX-License-Identifier: Apache-2.0
// Host functions in streams (cuLaunchHostFunc, cuStreamAddCallback). They run on one thread of the simulator's own, in the
// order in which their streams reach them. On the virtual clock this is a registered thread: a function runs at the virtual
// time at which its stream reached it. On the wall clock the thread also runs the device's events when no other thread is in
// the driver.
#ifndef GPUSHARE_SIM_STREAM_HOST_FUNCTION_H_
#define GPUSHARE_SIM_STREAM_HOST_FUNCTION_H_

#include <cstdint>
#include <deque>

#include "sim/stream/command.h"

namespace gpushare::sim {

class HostFunctions {
 public:
  // Starts the thread if there is none yet. False if the machine gave none.
  bool Prepare();
  // Ends the thread after it has called everything posted.
  void Stop();
  // Calls a function of the program's that no stream waits for. Call Prepare() first.
  void Post(void (*function)(void*), void* data);
  // Calls the function of a command that its stream has reached.
  void Run(Command* command);

 private:
  struct Job {
    Command* command;  // null for a posted function
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
