// SPDX-License-Identifier: Apache-2.0
// Two threads that make the first call at once, one of them in the constructor of a library that it loads:
//
//   first_call PLUGIN driver|nvml
//
// The thread of the constructor holds the lock of the loader. The other thread has begun its call before the
// constructor makes its own, and has come to where it waits.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// Exported for the plugin.
__attribute__((visibility("default"))) void first_call_in_constructor(void);

static int (*call)(unsigned);
static atomic_int in_constructor, caller, answer_of_other = -1, answer_of_constructor = -1;

static void* CallFromOutside(void* unused) {
  while (atomic_load(&in_constructor) == 0) {
  }
  atomic_store(&caller, (int)syscall(SYS_gettid));
  atomic_store(&answer_of_other, call(0));
  return unused;
}

// Whether the thread sleeps.
static int Sleeps(int thread) {
  char path[64], text[512] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  FILE* const file = fopen(path, "r");
  if (file == NULL) return 0;
  const size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  const char* const end = length == 0 ? NULL : strrchr(text, ')');
  return end != NULL && end[2] == 'S';
}

void first_call_in_constructor(void) {
  atomic_store(&in_constructor, 1);
  // A thread that was seen asleep ten times is blocked.
  for (int seen = 0; seen < 10 && atomic_load(&answer_of_other) < 0;) {
    seen = atomic_load(&caller) != 0 && Sleeps(atomic_load(&caller)) ? seen + 1 : 0;
    sched_yield();
  }
  atomic_store(&answer_of_constructor, call(0));
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int nvml = strcmp(argv[2], "nvml") == 0;
  void* const library = dlopen(nvml ? "libnvidia-ml.so.1" : "libcuda.so.1", RTLD_NOW);
  call = library == NULL ? NULL
                         : (int (*)(unsigned))dlsym(library, nvml ? "nvmlInitWithFlags" : "cuInit");
  if (call == NULL) return 3;
  pthread_t thread;
  if (pthread_create(&thread, NULL, &CallFromOutside, NULL) != 0) return 4;
  if (dlopen(argv[1], RTLD_NOW) == NULL) return 5;
  pthread_join(thread, NULL);
  printf("answers %d %d\n", atomic_load(&answer_of_other), atomic_load(&answer_of_constructor));
  return 0;
}
