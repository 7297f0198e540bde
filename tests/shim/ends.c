/* SPDX-License-Identifier: Apache-2.0
 * A program that ends, or lets go of the driver, in one of the ways that are hard on a library: ends WAY. It launches and
 * allocates before, on several threads, and ends with status 7; says on standard error what went wrong. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS 7
#define THREADS 3
#define SMALL_STACK (20 << 10) /* the least that there is, and room for the program's own frames */

static const char kPtx[] =
    ".version 7.5\n.target sm_90\n.address_size 64\n//gpushare.sim cost=param:0 blocks_per_sm=1\n"
    ".visible .entry spin(.param .u64 ns) { ret; }\n";

static void* driver;
static CUcontext context;
static CUfunction kernel;
static CUdeviceptr held;
static const char* way = "";

static void* Find(const char* name) {
  void* const found = dlsym(driver, name);
  if (found == NULL) {
    fprintf(stderr, "%s: %s\n", name, dlerror());
    _exit(1);
  }
  return found;
}

static void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, (int)result);
  _exit(1);
}
#define CALL(name, type, ...) Check(((CUresult(*) type)Find(#name))(__VA_ARGS__), #name)

static void Use(void) {
  CALL(cuCtxSetCurrent, (CUcontext), context);
  CUstream stream;
  CALL(cuStreamCreate, (CUstream*, unsigned), &stream, CU_STREAM_NON_BLOCKING);
  for (int i = 0; i < 20; ++i) {
    CUdeviceptr memory;
    unsigned long long ns = 20000;
    void* parameters[] = {&ns};
    CALL(cuMemAlloc_v2, (CUdeviceptr*, size_t), &memory, 1 << 20);
    CALL(cuLaunchKernel,
         (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
          CUstream, void**, void**),
         kernel, 132, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL);
    CALL(cuMemFree_v2, (CUdeviceptr), memory);
  }
  CALL(cuStreamSynchronize, (CUstream), stream);
}

static void Begin(void) {
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    _exit(1);
  }
  CUmodule module;
  CALL(cuInit, (unsigned), 0);
  CALL(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice), &context, 0);
  CALL(cuCtxSetCurrent, (CUcontext), context);
  CALL(cuModuleLoadData, (CUmodule*, const void*), &module, kPtx);
  CALL(cuModuleGetFunction, (CUfunction*, CUmodule, const char*), &kernel, module, "spin");
  CALL(cuMemAlloc_v2, (CUdeviceptr*, size_t), &held, 300 << 20);
}

static void SayLast(void) {
  Use();
  fputs("last\n", stdout);
}

static void* UseInThread(void* unused) {
  Use();
  return unused;
}
/* Until what the kernels take is known, and launches take the short path. */
static void* UseLong(void* unused) {
  for (int i = 0; i < 50; ++i) Use();
  return unused;
}

/* Keeps a thread inside calls while another thread ends the process. */
static void* UseForEver(void* unused) {
  for (;;) Use();
  return unused;
}
/* The thread is cancelled at some moment: in the first call of all, inside a later one, or while a cap holds it. */
static void* UseUntilCancelled(void* unused) {
  if (driver == NULL) Begin();
  for (;;) {
    Use();
    pthread_testcancel();
  }
  return unused;
}
static void CancelThem(void) {
  for (int round = 0; round < 20; ++round) {
    pthread_t threads[THREADS];
    for (int i = 0; i < (round == 0 ? 1 : THREADS); ++i)
      pthread_create(&threads[i], NULL, UseUntilCancelled, NULL);
    usleep(1000 + 700 * (unsigned)round);
    for (int i = 0; i < (round == 0 ? 1 : THREADS); ++i) {
      pthread_cancel(threads[i]);
      pthread_join(threads[i], NULL);
    }
    if (round == 0) Begin();
  }
}
static void* EndTheProcess(void* unused) {
  Use();
  exit(STATUS);
  return unused;
}

/* The main thread has left: this is the program's last thread, so its return calls exit(). */
static void* UseAfterMain(void* unused) {
  usleep(50000);
  if (driver == NULL) Begin(); /* this thread makes the first call */
  Use();
  atexit(SayLast);
  return unused;
}

static void StartTheLast(void* unused) {
  pthread_t thread;
  pthread_create(&thread, NULL, UseAfterMain, unused);
  pthread_detach(thread);
}

static void AtTheEnd(void) {
  Use();
  CALL(cuMemFree_v2, (CUdeviceptr), held);
}

__attribute__((destructor)) static void Destructor(void) {
  if (strcmp(way, "destructor") == 0) AtTheEnd();
}

int main(int argc, char** argv) {
  way = argc > 1 ? argv[1] : "";
  pthread_t threads[THREADS];
  if (strcmp(way, "last_thread_first") == 0) {
    pthread_create(&threads[0], NULL, UseAfterMain, NULL);
    pthread_exit(NULL);
  }
  if (strcmp(way, "cancel") == 0) {
    CancelThem();
    Use();
    return STATUS;
  }
  Begin();
  if (strcmp(way, "thread") == 0) {
    for (int i = 0; i < THREADS; ++i)
      pthread_create(&threads[i], NULL, i == 0 ? EndTheProcess : UseForEver, NULL);
    pthread_join(threads[0], NULL);
    return 1;
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  const int small = strcmp(way, "small_stacks") == 0;
  if (small) pthread_attr_setstacksize(&attributes, SMALL_STACK);
  for (int i = 0; i < THREADS; ++i)
    pthread_create(&threads[i], &attributes, small ? UseLong : UseInThread, NULL);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  if (strcmp(way, "atexit") == 0) atexit(AtTheEnd);
  if (strcmp(way, "dlclose") == 0) {
    /* Allocated memory stays charged, and the limit is unchanged. */
    if (dlclose(driver) != 0 || (driver = dlopen("libcuda.so.1", RTLD_NOW)) == NULL) return 1;
    Use();
    CUdeviceptr more;
    if (((CUresult(*)(CUdeviceptr*, size_t))Find("cuMemAlloc_v2"))(&more, 800 << 20) !=
        CUDA_ERROR_OUT_OF_MEMORY) {
      fprintf(stderr, "after dlclose there was more than the limit\n");
      return 1;
    }
    dlclose(driver);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
  }
  if (strcmp(way, "quick_exit") == 0) quick_exit(STATUS);
  if (strcmp(way, "last_thread") == 0) {
    /* The process outlives its main thread. */
    pthread_create(&threads[0], NULL, UseAfterMain, NULL);
    pthread_exit(NULL);
  }
  if (strcmp(way, "last_thread_of_a_callback") == 0) {
    /* The new thread inherits the name of the driver's thread that creates it. */
    CALL(cuLaunchHostFunc, (CUstream, void (*)(void*), void*), NULL, StartTheLast, NULL);
    CALL(cuStreamSynchronize, (CUstream), NULL);
    pthread_exit(NULL);
  }
  return STATUS;
}
