// SPDX-License-Identifier: Apache-2.0
// A call that the driver refuses after the gate has admitted it, in every family: what it was granted comes back at once, and
// the books are as if it had never been made.
#include <string>
#include <tuple>
#include <vector>

#include "tests/contract/work_bed.h"
#include "work/batches.h"

namespace gpushare::work {
namespace {

constexpr size_t kRefusedBytes = 1 << 20;
constexpr CUresult kRefusal = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;

enum class Knows { kNothing, kTheCost };  // what the gate knows of the command when it is refused
enum class Answers { kAtOnce, kLate };    // kLate: the books have read the command's record before
struct Call {
  const char* name;
  const char* entry;  // the driver's entry point that refuses
};

class RefusedTest : public WorkTest,
                    public ::testing::WithParamInterface<std::tuple<Call, Knows, Answers>> {
 protected:
  void SetUp() override {
    WorkTest::SetUp();
    host_.resize(8 * kRefusedBytes);
    ASSERT_CU(cu_->MemAlloc(&a_, 8 * kRefusedBytes));
    ASSERT_CU(cu_->MemAlloc(&b_, 8 * kRefusedBytes));
    ASSERT_CU(cu_->MemAllocManaged(&managed_, kRefusedBytes, CU_MEM_ATTACH_GLOBAL));
    // The simulated driver does not support decompression.
    table_ = const_cast<driver::Table*>(cu_);
    decompress_ = table_->MemBatchDecompressAsync;
    table_->MemBatchDecompressAsync = [](auto...) { return decompressed; };
    decompressed = CUDA_SUCCESS;
  }
  void TearDown() override {
    if (table_ != nullptr) table_->MemBatchDecompressAsync = decompress_;
    WorkTest::TearDown();
  }
  void Prepare(const Tenant& t) {
    const auto capture = [&](const std::function<CUresult()>& body) {
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      EXPECT_CU(calls_->StreamBeginCapture(t.stream, [&] {
        return cu_->StreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
      }));
      EXPECT_CU(body());
      EXPECT_CU(calls_->StreamEndCapture(t.stream, &graph));
      EXPECT_CU(calls_->GraphInstantiateWithFlags(&exec, graph, 0));
      return exec;
    };
    graph_ = capture([&] {
      for (int i = 0; i < 4; ++i) EXPECT_CU(Spin(t, Micros(30)));
      return CUDA_SUCCESS;
    });
    copying_graph_ = capture([&] {
      EXPECT_CU(calls_->MemcpyHtoDAsync(t.payer(), a_, host_.data(), kRefusedBytes, t.stream));
      return Spin(t, Micros(30));
    });
  }

  CUresult SpinEx(const Tenant& t, Nanos cost) {
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    CUlaunchConfig config{};
    config.gridDimX = 100;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 1024;
    config.hStream = t.stream;
    return calls_->LaunchKernelEx(t.payer(), &config, spin_, params, nullptr);
  }
  CUresult Submit(const Tenant& t, const std::string& name) {
    const Payer p = t.payer();
    const CUstream s = t.stream;
    uint64_t ns = 20'000;
    void* params[] = {&ns};
    CUmemcpyAttributes in_order{};
    in_order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t of_all = 0;
    CUdeviceptr to[] = {b_, b_ + kRefusedBytes}, from[] = {a_, a_ + kRefusedBytes};
    size_t sizes[] = {kRefusedBytes, kRefusedBytes};
    CUmemLocation device{};
    device.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcHost = host_.data();
    rows.dstDevice = a_;
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 4096;
    rows.Height = 64;
    if (name == "Kernel") return Spin(t, Micros(20));
    if (name == "KernelEx") return SpinEx(t, Micros(20));
    if (name == "Cooperative") {
      return calls_->LaunchCooperativeKernel(p, spin_, 100, 1, 1, 1024, 1, 1, 0, s, params);
    }
    if (name == "Graph") return calls_->GraphLaunch(p, graph_, s);
    if (name == "CopyingGraph") return calls_->GraphLaunch(p, copying_graph_, s);
    if (name == "HtoD") return calls_->MemcpyHtoD(p, a_, host_.data(), kRefusedBytes);
    if (name == "HtoDAsync") return calls_->MemcpyHtoDAsync(p, a_, host_.data(), kRefusedBytes, s);
    if (name == "DtoHAsync") return calls_->MemcpyDtoHAsync(p, host_.data(), a_, kRefusedBytes, s);
    if (name == "DtoDAsync") return calls_->MemcpyDtoDAsync(p, b_, a_, kRefusedBytes, s);
    if (name == "Peer")
      return calls_->MemcpyPeerAsync(p, b_, context_, a_, context_, kRefusedBytes, s);
    if (name == "Rows") return calls_->Memcpy2DAsync(p, &rows, s);
    if (name == "Batch") {
      return calls_->MemcpyBatchAsync(p, to, from, sizes, 2, &in_order, &of_all, 1, s);
    }
    if (name == "BatchFromHost") {
      from[0] = reinterpret_cast<CUdeviceptr>(host_.data());
      return calls_->MemcpyBatchAsync(p, to, from, sizes, 2, &in_order, &of_all, 1, s);
    }
    if (name == "LongBatch") {
      const size_t count = 5000;
      std::vector<CUdeviceptr> many_to(count, b_);
      std::vector<CUdeviceptr> many_from(count, reinterpret_cast<CUdeviceptr>(host_.data()));
      std::vector<size_t> many_sizes(count, 64);
      return calls_->MemcpyBatchAsync(p, many_to.data(), many_from.data(), many_sizes.data(), count,
                                      &in_order, &of_all, 1, s);
    }
    if (name == "Prefetch")
      return calls_->MemPrefetchAsync(p, managed_, kRefusedBytes, device, 0, s);
    if (name == "Set") return calls_->MemsetD8Async(p, a_, 1, kRefusedBytes, s);
    if (name == "SetOfRows") return calls_->MemsetD2D32Async(p, a_, 4096, 1, 512, 64, s);
    if (name == "Decompress") {
      Decompression one{};
      one.to_bytes = kRefusedBytes;
      return calls_->MemBatchDecompressAsync(p, &one, 1, 0, nullptr, s);
    }
    ADD_FAILURE() << name << " is unknown";
    return CUDA_ERROR_UNKNOWN;
  }
  void Refuse(const Call& call, Answers answers) {
    decompressed = kRefusal;
    if (call.entry == std::string("cuMemBatchDecompressAsync")) return;
    const std::string fault = "error call=" + std::string(call.entry) + " code=701" +
                              (answers == Answers::kLate ? " host=3ms" : "");
    char error[128];
    ASSERT_EQ(sim_->inject(fault.c_str(), error, sizeof error), 0) << error;
  }

  static inline CUresult decompressed;
  driver::Table* table_ = nullptr;
  decltype(driver::Table::MemBatchDecompressAsync) decompress_ = nullptr;
  CUdeviceptr a_ = 0, b_ = 0, managed_ = 0;
  CUgraphExec graph_ = nullptr, copying_graph_ = nullptr;
  std::vector<char> host_;
};

TEST_P(RefusedTest, ItCostsNothingAndKeepsNobodyWaiting) {
  const auto& [call, knows, answers] = GetParam();
  const Tenant& a =
      Add({.limits = {.weight = 1, .cap = 0.5}, .h2d_bytes_per_s = 1e9, .d2h_bytes_per_s = 1e9});
  const Tenant& b = Weighing(1);
  Prepare(a);
  // By an entry point that does not refuse. Short, so that the other tenant never gets so far ahead that it is in turn to wait.
  const bool by_kernels = call.entry == std::string("cuLaunchKernel");
  const auto spin_b = [&] { return by_kernels ? SpinEx(b, Micros(4)) : Spin(b, Micros(4)); };
  for (int i = 0; i < 8; ++i) {
    if (knows == Knows::kTheCost) {
      ASSERT_CU(Submit(a, call.name));
    }
    ASSERT_CU(calls_->CtxSynchronize(a.payer()));
    ASSERT_CU(spin_b());
    ASSERT_CU(calls_->CtxSynchronize(b.payer()));
  }
  Rest(Millis(50));
  const gate::GateStats before = a.gate->stats();
  const Nanos tokens = a.gate->view().cap_tokens;
  ASSERT_NO_FATAL_FAILURE(Refuse(call, answers));
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Submit(a, call.name), kRefusal) << i;
    // The other tenant waits neither for its end nor until the refused tenant is found to be silent.
    const Time began = clock().Now();
    ASSERT_CU(spin_b());
    ASSERT_CU(calls_->CtxSynchronize(b.payer()));
    EXPECT_LT(clock().Now() - began, Micros(60)) << i;
  }
  char error[128];
  ASSERT_EQ(sim_->inject("clear", error, sizeof error), 0) << error;
  ASSERT_CU(calls_->CtxSynchronize(a.payer()));
  EXPECT_EQ(a.gate->view().outstanding, Nanos(0));
  EXPECT_GE(a.gate->view().cap_tokens, tokens);
  Rest();
  const gate::GateStats after = a.gate->stats();
  EXPECT_EQ(after.launches, before.launches);
  EXPECT_EQ(after.graph_launches, before.graph_launches);
  EXPECT_EQ(after.measured, before.measured);
  EXPECT_EQ(after.copy_bytes[0], before.copy_bytes[0]);
  EXPECT_EQ(after.copy_bytes[1], before.copy_bytes[1]);
  EXPECT_EQ(a.gate->view().outstanding, Nanos(0));
}

constexpr Call kRefusedCalls[] = {
    {"Kernel", "cuLaunchKernel"},
    {"KernelEx", "cuLaunchKernelEx"},
    {"Cooperative", "cuLaunchCooperativeKernel"},
    {"Graph", "cuGraphLaunch"},
    {"CopyingGraph", "cuGraphLaunch"},
    {"HtoD", "cuMemcpyHtoD_v2"},
    {"HtoDAsync", "cuMemcpyHtoDAsync_v2"},
    {"DtoHAsync", "cuMemcpyDtoHAsync_v2"},
    {"DtoDAsync", "cuMemcpyDtoDAsync_v2"},
    {"Peer", "cuMemcpyPeerAsync"},
    {"Rows", "cuMemcpy2DAsync_v2"},
    {"Batch", "cuMemcpyBatchAsync_v2"},
    {"BatchFromHost", "cuMemcpyBatchAsync_v2"},
    {"LongBatch", "cuMemcpyBatchAsync_v2"},
    {"Prefetch", "cuMemPrefetchAsync_v2"},
    {"Set", "cuMemsetD8Async"},
    {"SetOfRows", "cuMemsetD2D32Async"},
    {"Decompress", "cuMemBatchDecompressAsync"},
};
INSTANTIATE_TEST_SUITE_P(Every, RefusedTest,
                         ::testing::Combine(::testing::ValuesIn(kRefusedCalls),
                                            ::testing::Values(Knows::kNothing, Knows::kTheCost),
                                            ::testing::Values(Answers::kAtOnce, Answers::kLate)),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) +
                                  (std::get<1>(tested.param) == Knows::kTheCost ? "Known" : "New") +
                                  (std::get<2>(tested.param) == Answers::kLate ? "Late" : "");
                         });

}  // namespace
}  // namespace gpushare::work
