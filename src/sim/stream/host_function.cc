// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/host_function.h"

#include "sim/clock/thread.h"
#include "sim/state.h"

namespace gpushare::sim {

bool HostFunctions::Prepare() {
  if (started_) return true;
  Clock& clock = state().clock;
  // Announced, so that its place among the threads does not depend on how long the machine takes to start it.
  Thread* const announced = clock.Announce("simulated GPU host functions", Clock::Kind::kInternal);
  announced_ = announced->announced;
  started_ = StartThread(&HostFunctions::Main, this);
  if (!started_) clock.Withdraw(announced);
  return started_;
}

void* HostFunctions::Main(void* self) {
  static_cast<HostFunctions*>(self)->Loop();
  return nullptr;
}

void HostFunctions::Loop() {
  State& s = state();
  ThreadContext* const self = CurrentThread();
  s.clock.DeleteThread(self->clock);
  self->clock = s.clock.EnterAnnounced(announced_);
  self->has_turn = s.clock.is_virtual();
  if (!self->has_turn) s.clock.Enter(self->clock);
  for (;;) {
    while (jobs_.empty() && !stop_) {
      self->clock->idle = true;
      s.clock.Wait(wake_, "work");
      self->clock->idle = false;
    }
    if (jobs_.empty()) break;
    const Job job = jobs_.front();
    jobs_.pop_front();
    const bool posted = job.command == nullptr;
    if (!posted && job.command->generation != job.generation) continue;
    const HostWork work = posted ? job.posted : job.command->host;
    self->in_host_function = true;
    // On the virtual clock the function runs with the turn, and may spend time. On the wall clock it
    // must not hold up the driver.
    const bool unlocked = !s.clock.is_virtual();
    if (unlocked) s.clock.Leave(self->clock);
    if (work.function != nullptr) {
      work.function(work.data);
    } else {
      work.callback(reinterpret_cast<void*>(work.stream_handle), 0, work.data);
    }
    if (unlocked) s.clock.Enter(self->clock);
    self->in_host_function = false;
    if (!posted && job.command->generation == job.generation) {
      Complete(job.command);
      Settle();
    }
  }
  started_ = stop_ = false;
  s.clock.WakeAll(stopped_, 0);
  const bool locked = !self->has_turn;
  self->has_turn = false;
  if (locked) s.clock.Leave(self->clock);
  s.clock.Unregister(self->clock);
}

void HostFunctions::Stop() {
  if (!started_) return;
  stop_ = true;
  Clock& clock = state().clock;
  clock.WakeAll(wake_, 0);
  while (started_) clock.Wait(stopped_, "the end of the host function thread");
}

void HostFunctions::Run(Command* command) {
  jobs_.push_back({command, command->generation, {}});
  state().clock.WakeAll(wake_, 0);
}

void HostFunctions::Post(void (*function)(void*), void* data) {
  jobs_.push_back(
      {nullptr, 0, {.function = function, .data = data, .callback = nullptr, .stream_handle = 0}});
  state().clock.WakeAll(wake_, 0);
}

}  // namespace gpushare::sim
