// SPDX-License-Identifier: Apache-2.0
#include "shim/preload/first_call.h"

#include <pthread.h>

#include "shim/preload/preload.h"

#define GPUSHARE_TEXT_OF(name) #name
#define GPUSHARE_TEXT(name) GPUSHARE_TEXT_OF(name)

namespace gpushare::preload {
namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_once_t once = PTHREAD_ONCE_INIT;
int setting_up = 0;  // a thread is in SetUp(): `who`
pthread_t who;       // valid while `setting_up`
int did = 0;         // some thread has completed SetUp()

void AfterForkInChild() {
  // The thread that held the mutex does not exist in the child, which starts the set-up again.
  mutex = PTHREAD_MUTEX_INITIALIZER;
  __atomic_store_n(&setting_up, 0, __ATOMIC_RELAXED);
}
void WatchForks() { pthread_atfork(nullptr, nullptr, &AfterForkInChild); }

void SetUpAlone() {
  int cancels = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
                         &cancels);  // or the mutex would stay locked forever
  pthread_mutex_lock(&mutex);
  who = pthread_self();
  __atomic_store_n(&setting_up, 1, __ATOMIC_RELEASE);
  SetUp();
  __atomic_store_n(&did, 1, __ATOMIC_RELEASE);
  __atomic_store_n(&setting_up, 0, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
  pthread_setcancelstate(cancels, nullptr);
}

}  // namespace

bool IsSettingUp() {
  return __atomic_load_n(&setting_up, __ATOMIC_ACQUIRE) != 0 &&
         pthread_equal(who, pthread_self()) != 0;
}

void DoSetUp() {
  pthread_once(&once, &WatchForks);
  // If the symbol is found, its resolver has run: in this object, or in another copy of it if it is loaded twice.
  const void* const found = dlsym(RTLD_DEFAULT, GPUSHARE_TEXT(PRELOAD_FIRST_CALL));
  if (found == nullptr || __atomic_load_n(&did, __ATOMIC_ACQUIRE) == 0) SetUpAlone();
}

}  // namespace gpushare::preload

extern "C" {

static void Done() {}
// Not static, since clang then would not find the resolver by its name.
__attribute__((visibility("hidden"))) void (*gpushare_preload_set_up())();
void (*gpushare_preload_set_up())() {
  if (!gpushare::preload::IsSettingUp()) gpushare::preload::SetUpAlone();
  return &Done;
}
// Never called. Looking it up runs the resolver.
__attribute__((visibility("default"), ifunc("gpushare_preload_set_up"))) void PRELOAD_FIRST_CALL();

}  // extern "C"
