// SPDX-License-Identifier: Apache-2.0
// The Driver class on the simulated GPU: every call once, with its data and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "driver/symbols.h"
#include "gpushare/testing/sim.h"

namespace gpushare::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModule[] = R"(
.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=50us
.visible .entry work(.param .u64 p) { ret; }
)";

constexpr char kConfiguration[] =
    "clock=virtual,name=Test GPU,devices=2,sms=16,memory=1GiB,compute_capability=8.6";

void Reset(const Driver& driver) {
  const auto reset =
      reinterpret_cast<decltype(&gpushare_sim_reset)>(driver.Symbol("gpushare_sim_reset"));
  ASSERT_NE(reset, nullptr);
  EXPECT_EQ(reset(), 0);
}

class SimDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    auto driver = Driver::Open({.path = "sim", .simulation = kConfiguration});
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    const auto context = driver_->RetainPrimaryContext(0);
    ASSERT_TRUE(context.ok()) << context.status();
    ASSERT_EQ(driver_->PushContext(*context), Result::kSuccess);
    context_ = *context;
  }

  void TearDown() override { Reset(*driver_); }

  // The kernel of kModule, which stays loaded.
  Function Work() const {
    Module module = nullptr;
    Function work = nullptr;
    EXPECT_EQ(driver_->LoadModule(&module, kModule), Result::kSuccess);
    EXPECT_EQ(driver_->GetFunction(&work, module, "work"), Result::kSuccess);
    return work;
  }

  std::unique_ptr<Driver> driver_;
  Context context_ = nullptr;
};

TEST_F(SimDriver, SaysWhatItIs) {
  EXPECT_TRUE(driver_->simulated());
  EXPECT_THAT(driver_->path(), HasSubstr("gpushare/sim/libcuda.so.1"));
  EXPECT_GE(driver_->version(), 12040);
  EXPECT_NE(&driver_->clock(), &base::RealClock());
  EXPECT_NE(driver_->Symbol("gpushare_sim_now"), nullptr);
}

// The loader would return the simulated GPU for the driver, since both have the same soname.
TEST_F(SimDriver, IsNotTakenForTheMachinesDriver) {
  const auto driver = Driver::Open({.path = "libcuda.so.1"});
  ASSERT_EQ(driver.status().code(), absl::StatusCode::kFailedPrecondition) << driver.status();
  EXPECT_THAT(std::string(driver.status().message()),
              AllOf(HasSubstr("'libcuda.so.1'"), HasSubstr("GPUSHARE_DRIVER=sim")));
  // It is accepted when it is requested by its own name or path.
  EXPECT_TRUE(Driver::Open({.path = "sim"}).ok());
  EXPECT_TRUE((*Driver::Open({.path = driver_->path()}))->simulated());
}

TEST_F(SimDriver, DescribesItsDevices) {
  ASSERT_EQ(*driver_->DeviceCount(), 2);
  const auto first = driver_->Describe(0);
  const auto second = driver_->Describe(1);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->name, "Test GPU");
  EXPECT_EQ(first->sm_count, 16);
  EXPECT_EQ(first->max_threads_per_sm, 2048);
  EXPECT_EQ(first->total_memory, size_t{1} << 30);
  EXPECT_EQ(first->compute_major, 8);
  EXPECT_EQ(first->compute_minor, 6);
  EXPECT_FALSE(first->mig);
  EXPECT_EQ(first->uuid.size(), std::string("GPU-00000000-0000-0000-0000-000000000000").size());
  EXPECT_NE(first->uuid, second->uuid);
  EXPECT_NE(first->pci_bus_id, second->pci_bus_id);
  EXPECT_EQ(driver_->Describe(2).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(driver_->Describe(-1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SimDriver, ContextsAreAStack) {
  Context current = nullptr;
  ASSERT_EQ(driver_->CurrentContext(&current), Result::kSuccess);
  EXPECT_EQ(current, context_);
  ASSERT_EQ(driver_->PopContext(), Result::kSuccess);
  ASSERT_EQ(driver_->CurrentContext(&current), Result::kSuccess);
  EXPECT_EQ(current, nullptr);
  DevicePtr pointer = 0;
  EXPECT_EQ(driver_->MemAlloc(&pointer, 16), Result::kInvalidContext);
  EXPECT_EQ(driver_->ReleasePrimaryContext(0), Result::kSuccess);
  EXPECT_NE(driver_->ReleasePrimaryContext(7), Result::kSuccess);
}

TEST_F(SimDriver, MemoryHoldsBytesAndRunsOut) {
  size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(driver_->MemInfo(&free_before, &total), Result::kSuccess);
  DevicePtr a = 0, b = 0;
  ASSERT_EQ(driver_->MemAlloc(&a, 4096), Result::kSuccess);
  ASSERT_EQ(driver_->MemAlloc(&b, 4096), Result::kSuccess);
  ASSERT_EQ(driver_->MemInfo(&free_after, &total), Result::kSuccess);
  EXPECT_LE(free_after, free_before - 8192);

  std::array<unsigned char, 4096> in, out = {};
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7);
  Stream stream = nullptr;
  ASSERT_EQ(driver_->CreateStream(&stream, 0), Result::kSuccess);
  ASSERT_EQ(driver_->CopyHtoDAsync(a, in.data(), in.size(), stream), Result::kSuccess);
  ASSERT_EQ(driver_->CopyDtoDAsync(b, a, in.size(), stream), Result::kSuccess);
  ASSERT_EQ(driver_->SetD8Async(b + 100, 0xab, 10, stream), Result::kSuccess);
  ASSERT_EQ(driver_->CopyDtoHAsync(out.data(), b, out.size(), stream), Result::kSuccess);
  ASSERT_EQ(driver_->SynchronizeStream(stream), Result::kSuccess);
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i], i >= 100 && i < 110 ? 0xab : in[i]) << i;
  }
  ASSERT_EQ(driver_->CopyHtoD(a, out.data(), 16), Result::kSuccess);
  ASSERT_EQ(driver_->CopyDtoH(in.data(), a, 16), Result::kSuccess);
  EXPECT_EQ(in[15], out[15]);

  DevicePtr huge = 0;
  const Result refused = driver_->MemAlloc(&huge, size_t{2} << 30);
  EXPECT_EQ(refused, Result::kOutOfMemory);
  EXPECT_EQ(ToStatus(refused, "cuMemAlloc").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(driver_->MemFree(a), Result::kSuccess);
  EXPECT_EQ(driver_->MemFree(b), Result::kSuccess);
  EXPECT_EQ(driver_->MemFree(b), Result::kInvalidValue);  // a double free
  EXPECT_EQ(driver_->MemFree(0x1234), Result::kInvalidValue);
  EXPECT_EQ(driver_->DestroyStream(stream), Result::kSuccess);
}

TEST_F(SimDriver, KernelsAreTimedByEvents) {
  int least = 0, greatest = 0;
  ASSERT_EQ(driver_->StreamPriorityRange(&least, &greatest), Result::kSuccess);
  EXPECT_LT(greatest, least);
  Stream stream = nullptr, other = nullptr;
  ASSERT_EQ(driver_->CreateStream(&stream, greatest), Result::kSuccess);
  ASSERT_EQ(driver_->CreateStream(&other, least), Result::kSuccess);
  Module module = nullptr;
  Function work = nullptr;
  ASSERT_EQ(driver_->LoadModule(&module, kModule), Result::kSuccess);
  ASSERT_EQ(driver_->GetFunction(&work, module, "work"), Result::kSuccess);
  EXPECT_NE(driver_->GetFunction(&work, module, "absent"), Result::kSuccess);
  int blocks = 0;
  ASSERT_EQ(driver_->BlocksPerSm(&blocks, work, 256, 0), Result::kSuccess);
  EXPECT_GT(blocks, 0);
  EXPECT_EQ(driver_->SetMaxDynamicShared(work, 64 << 10), Result::kSuccess);

  Event start = nullptr, end = nullptr, untimed = nullptr;
  ASSERT_EQ(driver_->CreateEvent(&start, /*timing=*/true), Result::kSuccess);
  ASSERT_EQ(driver_->CreateEvent(&end, /*timing=*/true), Result::kSuccess);
  ASSERT_EQ(driver_->CreateEvent(&untimed, /*timing=*/false), Result::kSuccess);
  uint64_t argument = 0;
  void* params[] = {&argument};
  const LaunchShape shape = {.grid = {16, 1, 1}, .block = {256, 1, 1}};
  ASSERT_EQ(driver_->RecordEvent(start, stream), Result::kSuccess);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(driver_->Launch(work, shape, stream, params), Result::kSuccess);
  }
  ASSERT_EQ(driver_->RecordEvent(end, stream), Result::kSuccess);
  EXPECT_EQ(driver_->QueryEvent(end), Result::kNotReady);
  ASSERT_EQ(driver_->StreamWaitEvent(other, end), Result::kSuccess);
  ASSERT_EQ(driver_->RecordEvent(untimed, other), Result::kSuccess);
  ASSERT_EQ(driver_->SynchronizeEvent(untimed), Result::kSuccess);
  EXPECT_EQ(driver_->QueryEvent(end), Result::kSuccess);
  float ms = 0;
  ASSERT_EQ(driver_->ElapsedMs(&ms, start, end), Result::kSuccess);
  EXPECT_NEAR(ms, 0.5, 0.01);
  EXPECT_EQ(driver_->ElapsedMs(&ms, start, untimed), Result::kInvalidHandle);

  for (const Event event : {start, end, untimed}) {
    EXPECT_EQ(driver_->DestroyEvent(event), Result::kSuccess);
  }
  EXPECT_EQ(driver_->UnloadModule(module), Result::kSuccess);
  EXPECT_NE(driver_->LoadModule(&module, "this is not PTX"), Result::kSuccess);
}

TEST_F(SimDriver, CapturesAndReplaysAGraph) {
  Stream stream = nullptr;
  ASSERT_EQ(driver_->CreateStream(&stream, 0), Result::kSuccess);
  const Function work = Work();
  uint64_t argument = 0;
  void* params[] = {&argument};

  Driver::Capture capture = Driver::Capture::kInvalidated;
  ASSERT_EQ(driver_->StreamCapture(stream, &capture), Result::kSuccess);
  EXPECT_EQ(capture, Driver::Capture::kNone);
  EXPECT_EQ(driver_->RelaxThreadCaptureMode(), Result::kSuccess);
  ASSERT_EQ(driver_->BeginCapture(stream), Result::kSuccess);
  ASSERT_EQ(driver_->StreamCapture(stream, &capture), Result::kSuccess);
  EXPECT_EQ(capture, Driver::Capture::kActive);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(driver_->Launch(work, {.grid = {}, .block = {}}, stream, params), Result::kSuccess);
  }
  Graph graph = nullptr;
  ASSERT_EQ(driver_->EndCapture(stream, &graph), Result::kSuccess);
  GraphExec exec = nullptr;
  ASSERT_EQ(driver_->Instantiate(&exec, graph), Result::kSuccess);
  const Time before = driver_->clock().Now();
  ASSERT_EQ(driver_->LaunchGraph(exec, stream), Result::kSuccess);
  ASSERT_EQ(driver_->SynchronizeStream(stream), Result::kSuccess);
  EXPECT_GE(driver_->clock().Now() - before, Micros(200));
  EXPECT_LT(driver_->clock().Now() - before, Micros(260));
  EXPECT_EQ(driver_->DestroyGraphExec(exec), Result::kSuccess);
  EXPECT_EQ(driver_->DestroyGraph(graph), Result::kSuccess);
}

TEST_F(SimDriver, AGraphWithBranchesSaysSo) {
  Stream stream = nullptr, branch = nullptr;
  ASSERT_EQ(driver_->CreateStream(&stream, 0), Result::kSuccess);
  ASSERT_EQ(driver_->CreateStream(&branch, 0), Result::kSuccess);
  Event fork = nullptr, join = nullptr;
  ASSERT_EQ(driver_->CreateEvent(&fork, false), Result::kSuccess);
  ASSERT_EQ(driver_->CreateEvent(&join, false), Result::kSuccess);
  const Function work = Work();
  uint64_t argument = 0;
  void* params[] = {&argument};
  for (const bool branches : {false, true}) {
    ASSERT_EQ(driver_->BeginCapture(stream), Result::kSuccess);
    const auto launch = [&](Stream on) {
      ASSERT_EQ(driver_->Launch(work, {.grid = {}, .block = {}}, on, params), Result::kSuccess);
    };
    launch(stream);
    if (branches) {
      ASSERT_EQ(driver_->RecordEvent(fork, stream), Result::kSuccess);
      ASSERT_EQ(driver_->StreamWaitEvent(branch, fork), Result::kSuccess);
      launch(branch);
      ASSERT_EQ(driver_->RecordEvent(join, branch), Result::kSuccess);
    }
    launch(stream);
    if (branches) {
      ASSERT_EQ(driver_->StreamWaitEvent(stream, join), Result::kSuccess);
    }
    launch(stream);
    Graph graph = nullptr;
    ASSERT_EQ(driver_->EndCapture(stream, &graph), Result::kSuccess);
    const GraphContents contents = driver_->ContentsOf(graph);
    EXPECT_TRUE(contents.IsOfKernelsAlone());
    EXPECT_EQ(contents.kernels.size(), branches ? 4u : 3u);
    EXPECT_EQ(contents.branches, branches);
    ASSERT_EQ(contents.edges.has_value(), branches);
    if (branches) {
      EXPECT_EQ(*contents.edges, (std::vector<GraphEdge>{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
    }
    EXPECT_EQ(driver_->DestroyGraph(graph), Result::kSuccess);
  }
}

// The driver does not tell the edges of programmatic launches, whose kernels run beside those that they follow.
TEST_F(SimDriver, KernelsOfProgrammaticLaunchesMayRunAtTheSameTime) {
  Stream stream = nullptr;
  ASSERT_EQ(driver_->CreateStream(&stream, 0), Result::kSuccess);
  const Function work = Work();
  uint64_t argument = 0;
  void* params[] = {&argument};
  const auto inject =
      reinterpret_cast<decltype(&gpushare_sim_inject)>(driver_->Symbol("gpushare_sim_inject"));
  for (const bool programmatic : {false, true}) {
    ASSERT_EQ(driver_->BeginCapture(stream), Result::kSuccess);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(driver_->Launch(work, {.grid = {}, .block = {}}, stream, params), Result::kSuccess);
    }
    Graph graph = nullptr;
    ASSERT_EQ(driver_->EndCapture(stream, &graph), Result::kSuccess);
    // A driver of before 12.3 does not have the call.
    ASSERT_EQ(inject(programmatic ? "error call=cuGraphGetEdges_v2 code=402"
                                  : "error call=cuGraphGetEdges_v2 code=801",
                     nullptr, 0),
              0);
    const GraphContents contents = driver_->ContentsOf(graph);
    ASSERT_EQ(inject("clear", nullptr, 0), 0);
    EXPECT_EQ(contents.kernels.size(), 2u);
    EXPECT_EQ(contents.branches, programmatic);
    EXPECT_FALSE(contents.edges.has_value());
    EXPECT_EQ(driver_->DestroyGraph(graph), Result::kSuccess);
  }
}

// A program may have thousands of nodes without commands behind thousands of kernels. Which kernels each waits for would take
// memory and time by their product.
TEST_F(SimDriver, TheEdgesOfAGraphAreGivenUpWhereTheyAreTooMany) {
  Stream stream = nullptr;
  ASSERT_EQ(driver_->CreateStream(&stream, 0), Result::kSuccess);
  const Function work = Work();
  uint64_t argument = 0;
  void* params[] = {&argument};
  ASSERT_EQ(driver_->BeginCapture(stream), Result::kSuccess);
  ASSERT_EQ(driver_->Launch(work, {.grid = {}, .block = {}}, stream, params), Result::kSuccess);
  Graph kernel = nullptr;
  ASSERT_EQ(driver_->EndCapture(stream, &kernel), Result::kSuccess);

  const auto create = reinterpret_cast<int (*)(Graph*, unsigned)>(driver_->Symbol("cuGraphCreate"));
  const auto add_empty = reinterpret_cast<int (*)(GraphNode*, Graph, const GraphNode*, size_t)>(
      driver_->Symbol("cuGraphAddEmptyNode"));
  const auto add_child =
      reinterpret_cast<int (*)(GraphNode*, Graph, const GraphNode*, size_t, Graph)>(
          driver_->Symbol("cuGraphAddChildGraphNode"));
  for (const size_t kernels : {size_t{10}, size_t{1000}}) {
    Graph graph = nullptr;
    ASSERT_EQ(create(&graph, 0), 0);
    std::vector<GraphNode> before(kernels);
    for (GraphNode& node : before) ASSERT_EQ(add_child(&node, graph, nullptr, 0, kernel), 0);
    for (int i = 0; i < 1000; ++i) {
      GraphNode node = nullptr;
      ASSERT_EQ(add_empty(&node, graph, before.data(), before.size()), 0);
      before = {node};
    }
    const GraphContents contents = driver_->ContentsOf(graph);
    EXPECT_TRUE(contents.branches);
    EXPECT_EQ(contents.kernels.size(), kernels);
    EXPECT_EQ(contents.edges.has_value(), kernels == 10);
    EXPECT_EQ(driver_->DestroyGraph(graph), Result::kSuccess);
  }
  EXPECT_EQ(driver_->DestroyGraph(kernel), Result::kSuccess);
}

TEST_F(SimDriver, CooperativeLaunchesAreKnown) {
  Stream stream = nullptr;
  ASSERT_EQ(driver_->CreateStream(&stream, 0), Result::kSuccess);
  const Function work = Work();
  uint64_t argument = 0;
  void* params[] = {&argument};
  EXPECT_EQ(driver_->LaunchCooperative(work, {.grid = {4}, .block = {64}}, stream, params),
            Result::kSuccess);
  EXPECT_EQ(driver_->SynchronizeStream(stream), Result::kSuccess);
}

TEST(SimDriverOpen, AWrongConfigurationNamesItsKey) {
  const auto driver = Driver::Open({.path = "sim", .simulation = "smz=4"});
  ASSERT_EQ(driver.status().code(), absl::StatusCode::kInvalidArgument) << driver.status();
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("smz"));
}

TEST(SimDriverOpen, OnTheWallClockTheClockIsTheMachines) {
  const auto driver = Driver::Open({.path = "sim", .simulation = "clock=wall"});
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_TRUE((*driver)->simulated());
  EXPECT_EQ(&(*driver)->clock(), &base::RealClock());
  Reset(**driver);
}

TEST(SimDriverOpen, ASecondDriverIsTheSameGpu) {
  const auto first = Driver::Open({.path = "sim", .simulation = kConfiguration});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Driver::Open({.path = "sim"});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->Describe(0)->uuid, (*first)->Describe(0)->uuid);
  const auto third = Driver::Open({.path = "sim", .simulation = kConfiguration});
  EXPECT_EQ(third.status().code(), absl::StatusCode::kInvalidArgument);  // in use
  Reset(**first);
}

// Like a real one, the simulated libcuda exports every name in symbols.def.
TEST_F(SimDriver, ExportsEveryEntryPoint) {
  int absent = 0;
  for (const Symbol& symbol : Symbols()) {
    if (driver_->Symbol(std::string(symbol.name).c_str()) == nullptr) {
      ADD_FAILURE() << symbol.name;
      if (++absent > 10) return;
    }
  }
}

}  // namespace
}  // namespace gpushare::driver
