// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/thread.h"

#include <pthread.h>

#include <memory>

#include "sim/state.h"

namespace gpushare::sim {

constinit thread_local ThreadContext* t_thread = nullptr;

namespace {

void OnThreadExit(void* value) {
  auto* const thread = static_cast<ThreadContext*>(value);
  Clock& clock = state().clock;
  if (thread->clock->registered) {
    if (thread->clock->external) {
      if (clock.is_virtual()) {
        clock.EndExternal(thread->clock);
      }
    }
    clock.Unregister(thread->clock);
  }
  clock.DeleteThread(thread->clock);
  t_thread = nullptr;
  delete thread;
}

pthread_key_t ExitKey() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    pthread_key_create(&made, &OnThreadExit);
    return made;
  }();
  return key;
}

}  // namespace

ThreadContext* NewThreadContext() {
  auto thread = std::make_unique<ThreadContext>();
  thread->clock = state().clock.NewThread();
  pthread_setspecific(ExitKey(), thread.get());
  t_thread = thread.release();
  return t_thread;
}

}  // namespace gpushare::sim
