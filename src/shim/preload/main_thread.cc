// SPDX-License-Identifier: Apache-2.0
#include "shim/preload/main_thread.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpushare::preload {
namespace {

using Tell = void (*)();

int has_left = 0;
Tell to_be_told = nullptr;

void Leaves(void*) {
  __atomic_store_n(&has_left, 1, __ATOMIC_SEQ_CST);
  if (const Tell tell = __atomic_load_n(&to_be_told, __ATOMIC_SEQ_CST)) tell();
}

// Runs on the thread that loads this object. That is the main thread unless a program opens the object later on another one.
__attribute__((constructor)) void Expect() {
  static pthread_key_t key;
  if (getpid() == syscall(SYS_gettid) && pthread_key_create(&key, &Leaves) == 0) {
    pthread_setspecific(key, &key);
  }
}

}  // namespace

void TellOfMainThread(Tell tell) {
  __atomic_store_n(&to_be_told, tell, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&has_left, __ATOMIC_SEQ_CST) != 0) tell();
}

}  // namespace gpushare::preload
