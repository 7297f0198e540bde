/* SPDX-License-Identifier: Apache-2.0
 * Cancels a thread in a call of the driver that waits for a kernel, as often as TIMES, of ROUNDS at most (the machine may let
 * the kernel end before the thread is there): cancelled CALL TIMES ROUNDS. On the simulated GPU such waits are
 * cancellation points with cancellable=1 on the machine's clock. Afterwards the program goes on: it takes what it had,
 * and has all of it again. Prints what the share had in use before and afterwards, and ends with status 0; says on standard
 * error what went wrong. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES (8u << 20)

static const char kPtx[] =
    ".version 7.5\n.target sm_90\n.address_size 64\n//gpushare.sim cost=param:0 blocks_per_sm=1\n"
    ".visible .entry spin(.param .u64 ns) { ret; }\n";

static CUcontext context;
static CUfunction kernel;
static CUmodule module;
static const char* call;
static int returned; /* the call returned before it was cancelled, so it was made */
static pthread_barrier_t ready;

static void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, (int)result);
  _exit(1);
}

static void Launch(CUstream stream, unsigned long long ns) {
  void* parameters[] = {&ns};
  Check(cuLaunchKernel(kernel, 132, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL),
        "cuLaunchKernel");
}

static size_t Used(void) {
  size_t available = 0, total = 0;
  Check(cuMemGetInfo(&available, &total), "cuMemGetInfo");
  return total - available;
}

struct Things {
  CUstream stream;
  CUevent event;
  CUdeviceptr memory;
  CUarray array;
  void* pinned;
};

static CUresult Call(struct Things* t) {
  static char host[BYTES];
  if (strcmp(call, "cuMemFree") == 0) return cuMemFree(t->memory);
  if (strcmp(call, "cuArrayDestroy") == 0) return cuArrayDestroy(t->array);
  if (strcmp(call, "cuMemFreeHost") == 0) return cuMemFreeHost(t->pinned);
  if (strcmp(call, "cuMemcpyDtoH") == 0) return cuMemcpyDtoH(host, t->memory, BYTES);
  if (strcmp(call, "cuMemcpyHtoD") == 0) return cuMemcpyHtoD(t->memory, host, BYTES);
  if (strcmp(call, "cuStreamSynchronize") == 0) return cuStreamSynchronize(t->stream);
  if (strcmp(call, "cuEventSynchronize") == 0) return cuEventSynchronize(t->event);
  if (strcmp(call, "cuCtxSynchronize") == 0) return cuCtxSynchronize();
  if (strcmp(call, "cuLaunchKernel") == 0) {
    for (;;) { /* until the stream is full */
      Launch(t->stream, 1000000);
      pthread_testcancel();
    }
  }
  fprintf(stderr, "%s?\n", call);
  _exit(2);
}

static void* Wait(void* argument) {
  struct Things* const t = argument;
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  pthread_barrier_wait(&ready);
  Check(Call(t), call);
  returned = 1;
  for (;;) pause();
}

static void Make(struct Things* t) {
  Check(cuStreamCreate(&t->stream, CU_STREAM_DEFAULT), "cuStreamCreate");
  Check(cuEventCreate(&t->event, CU_EVENT_DEFAULT), "cuEventCreate");
  Check(cuMemAlloc(&t->memory, BYTES), "cuMemAlloc");
  Check(cuMemAllocHost(&t->pinned, BYTES), "cuMemAllocHost");
  const CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  Check(cuArrayCreate(&t->array, &shape), "cuArrayCreate");
  Launch(t->stream, 30000000);
  Check(cuEventRecord(t->event, t->stream), "cuEventRecord");
}

/* The object that the cancelled call was to end still exists, and is ended now. */
static void End(struct Things* t) {
  const int made = returned;
#define END(name, result) \
  if (!made || strcmp(call, #name) != 0) Check(result, "afterwards " #name)
  END(cuMemFree, cuMemFree(t->memory));
  END(cuArrayDestroy, cuArrayDestroy(t->array));
  END(cuMemFreeHost, cuMemFreeHost(t->pinned));
  Check(cuStreamDestroy(t->stream), "cuStreamDestroy");
  Check(cuEventDestroy(t->event), "cuEventDestroy");
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  call = argv[1];
  const int times = atoi(argv[2]), rounds = atoi(argv[3]);
  Check(cuInit(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Check(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
  Check(cuModuleGetFunction(&kernel, module, "spin"), "cuModuleGetFunction");
  pthread_barrier_init(&ready, NULL, 2);
  const size_t before = Used();
  int cancelled = 0;
  for (int round = 0; round < rounds && cancelled < times; ++round) {
    struct Things things;
    memset(&things, 0, sizeof(things));
    Make(&things);
    returned = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, &Wait, &things);
    pthread_barrier_wait(&ready);
    usleep(500 + 1000 * (unsigned)(round % 5));
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    cancelled += !returned;
    Check(cuCtxSynchronize(), "cuCtxSynchronize");
    End(&things);
  }
  printf("%d cancelled, used %zu before, %zu after\n", cancelled, before, Used());
  return 0;
}
