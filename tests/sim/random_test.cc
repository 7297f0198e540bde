// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls, valid and invalid, from several threads: no call crashes, every result is a documented
// one, and the final state adds up. Under a sanitizer this also shows that no handle reaches freed memory.
// GPUSHARE_SIM_RANDOM_STEPS makes it longer.
#include <cstdlib>
#include <memory>
#include <random>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

// State that the threads share; one thread runs at a time.
struct Shared {
  std::vector<CUstream> streams{nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
  std::vector<CUevent> events{nullptr};
  std::vector<CUdeviceptr> pointers{0};
  std::vector<CUmodule> modules{nullptr};
  std::vector<CUfunction> functions{nullptr};
  std::vector<CUgraph> graphs{nullptr};
  std::vector<CUgraphExec> execs{nullptr};
  std::vector<CUcontext> contexts;
  int host_calls = 0;
};

class Actor {
 public:
  Actor(unsigned seed, Shared& shared) : random_(seed), shared_(shared) {}

  void Run(int steps) {
    EXPECT_CU(cuCtxSetCurrent(shared_.contexts[0]));
    std::vector<char> host(70'000);
    for (int i = 0; i < steps; ++i) Check(Step(host));
  }

 private:
  template <typename T>
  T Any(const std::vector<T>& list) {
    return list[random_() % list.size()];
  }
  template <typename T>
  void Keep(std::vector<T>& list, T value, CUresult result) {
    if (result != CUDA_SUCCESS) return;
    if (list.size() < 40) {
      list.push_back(value);
    } else {
      list[3 + random_() % 37] = value;  // the old one leaks until its context ends
    }
  }

  static void Check(CUresult result) {
    const char* name = nullptr;
    EXPECT_CU(cuGetErrorName(result, &name)) << result;
  }

  CUresult Step(std::vector<char>& host) {
    Shared& s = shared_;
    CUresult result = CUDA_SUCCESS;
    switch (random_() % 34) {
      case 0: {
        CUstream stream;
        result = cuStreamCreateWithPriority(&stream, random_() % 2 == 0 ? 0 : 1,
                                            -static_cast<int>(random_() % 7));
        Keep(s.streams, stream, result);
        return result;
      }
      case 1:
        return random_() % 4 == 0 ? cuStreamDestroy(Any(s.streams)) : CUDA_SUCCESS;
      case 2: {
        CUevent event;
        result = cuEventCreate(&event, static_cast<unsigned>(random_() % 4));
        Keep(s.events, event, result);
        return result;
      }
      case 3:
        return random_() % 4 == 0 ? cuEventDestroy(Any(s.events)) : CUDA_SUCCESS;
      case 4:
      case 5:
        return cuEventRecord(Any(s.events), Any(s.streams));
      case 6:
      case 7:
        return cuStreamWaitEvent(Any(s.streams), Any(s.events), 0);
      case 8:
        return cuEventQuery(Any(s.events));
      case 9:
        return cuEventSynchronize(Any(s.events));
      case 10: {
        float ms;
        return cuEventElapsedTime(&ms, Any(s.events), Any(s.events));
      }
      case 11:
        return cuStreamQuery(Any(s.streams));
      case 12:
        return cuStreamSynchronize(Any(s.streams));
      case 13: {
        CUdeviceptr pointer;
        result = cuMemAlloc(&pointer, random_() % (1 << (1 + random_() % 26)));
        Keep(s.pointers, pointer, result);
        return result;
      }
      case 14:
        return cuMemFree(Any(s.pointers) + (random_() % 8 == 0 ? 1 : 0));
      case 15:
        return cuMemcpyHtoDAsync(Any(s.pointers), host.data(), random_() % host.size(),
                                 Any(s.streams));
      case 16:
        return cuMemcpyDtoH(host.data(), Any(s.pointers), random_() % host.size());
      case 17:
        return cuMemcpyDtoDAsync(Any(s.pointers), Any(s.pointers), random_() % 5000,
                                 Any(s.streams));
      case 18:
        return cuMemsetD32Async(Any(s.pointers), 5, random_() % 5000, Any(s.streams));
      case 19: {
        CUmodule module;
        result = cuModuleLoadData(&module, kPtx);
        Keep(s.modules, module, result);
        if (result != CUDA_SUCCESS) return result;
        CUfunction function;
        result = cuModuleGetFunction(&function, module, random_() % 2 != 0 ? "spin" : "k_wave");
        Keep(s.functions, function, result);
        return result;
      }
      case 20:
        return random_() % 4 == 0 ? cuModuleUnload(Any(s.modules)) : CUDA_SUCCESS;
      case 21:
        return cuStreamBeginCapture(Any(s.streams),
                                    static_cast<CUstreamCaptureMode>(random_() % 3));
      case 22:
      case 23: {
        CUgraph graph;
        result = cuStreamEndCapture(Any(s.streams), &graph);
        Keep(s.graphs, graph, result);
        return result;
      }
      case 24: {
        CUgraphExec exec;
        result = cuGraphInstantiate(&exec, Any(s.graphs), 0);
        Keep(s.execs, exec, result);
        return result;
      }
      case 25:
        return cuGraphLaunch(Any(s.execs), Any(s.streams));
      case 26:
        return random_() % 2 != 0 ? cuGraphExecDestroy(Any(s.execs))
                                  : cuGraphDestroy(Any(s.graphs));
      case 27:
        return cuLaunchHostFunc(
            Any(s.streams), [](void* data) { ++*static_cast<int*>(data); }, &s.host_calls);
      case 28:
        gpushare_sim_spend(random_() % 50'000);
        return CUDA_SUCCESS;
      case 29: {
        if (random_() % 8 != 0) return CUDA_SUCCESS;
        CUcontext context;
        result = cuCtxCreate_v2(&context, 0, 0);
        if (result == CUDA_SUCCESS) s.contexts.push_back(context);
        return result;
      }
      case 30:
        if (random_() % 8 != 0 || s.contexts.size() < 2) {
          return cuCtxSetCurrent(Any(s.contexts));
        }
        return cuCtxDestroy(s.contexts[1 + random_() % (s.contexts.size() - 1)]);
      case 31:
        return cuCtxSetCurrent(s.contexts[0]);
      default: {
        uint64_t ns = random_() % 30'000;
        void* parameters[] = {&ns};
        return cuLaunchKernel(Any(s.functions), static_cast<unsigned>(random_() % 300), 1, 1, 32, 1,
                              1, 0, Any(s.streams), parameters, nullptr);
      }
    }
  }

  std::mt19937 random_;
  Shared& shared_;
};

using RandomTest = SimTest;

TEST_F(RandomTest, AnyCallsInAnyOrder) {
  const char* const steps_text = std::getenv("GPUSHARE_SIM_RANDOM_STEPS");
  const int steps = steps_text != nullptr ? std::atoi(steps_text) : 1500;
  for (unsigned seed = 0; seed < 6; ++seed) {
    Restart("sms=80,memory=1GiB,noise=0.1,queue_depth=32");
    Shared shared;
    shared.contexts.push_back(context_);
    {
      std::vector<std::unique_ptr<SimThread>> threads;
      for (unsigned i = 0; i < 4; ++i) {
        threads.push_back(std::make_unique<SimThread>(
            "actor", [&, i] { Actor(seed * 100 + i, shared).Run(steps); }));
      }
    }
    for (CUcontext context : shared.contexts) {
      if (context != context_) cuCtxDestroy(context);
    }
    ASSERT_CU(cuCtxSetCurrent(context_));
    ASSERT_CU(cuDevicePrimaryCtxReset(device_));
    EXPECT_EQ(gpushare_sim_memory_used(0), 0u);
    EXPECT_EQ(Truth(0).queued, 0u);
    double before = 0, after = 0;
    gpushare_sim_device_busy(0, &before, nullptr);
    gpushare_sim_spend(1'000'000);
    gpushare_sim_device_busy(0, &after, nullptr);
    EXPECT_EQ(before, after) << "SMs are held by nobody";
    EXPECT_NEAR(Truth(0).used_ns / std::max(before, 1.0), 1, 1e-9);
  }
}

}  // namespace
}  // namespace gpushare::sim_test
