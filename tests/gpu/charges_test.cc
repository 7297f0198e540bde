// SPDX-License-Identifier: Apache-2.0
// The charge for each family of allocations, compared with the counts of the driver and of NVML.
//
// On the simulated GPU the charge is exact to the byte, on a real GPU to one granule of the driver's pools, and to one page for
// everything else. The figures are properties of the test's report.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "driver/driver.h"
#include "tests/contract/books_families.h"

namespace gpushare::books {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGranule = 32 * kMiB;  // of the driver's pools, the largest granule
constexpr uint64_t kPiece = 32 * kMiB;
constexpr int kPieces = 4;

// NVML's own count of the same GPU.
class Nvml {
 public:
  // `beside`: a file in the folder of the library; null: wherever the loader finds it.
  Nvml(const char* beside, const std::string& pci_bus_id) {
    const std::string folder(beside == nullptr ? "" : beside);
    library_ = dlopen((folder.substr(0, folder.rfind('/') + 1) + "libnvidia-ml.so.1").c_str(),
                      RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    const auto find = [&](const char* name) { return dlsym(library_, name); };
    auto* const init = reinterpret_cast<int (*)()>(find("nvmlInit_v2"));
    auto* const by_bus =
        reinterpret_cast<int (*)(const char*, void**)>(find("nvmlDeviceGetHandleByPciBusId_v2"));
    read_ = reinterpret_cast<int (*)(void*, Memory*)>(find("nvmlDeviceGetMemoryInfo"));
    if (init == nullptr || by_bus == nullptr || read_ == nullptr || init() != 0 ||
        by_bus(pci_bus_id.c_str(), &device_) != 0) {
      device_ = nullptr;
    }
  }
  bool there() const { return device_ != nullptr; }
  uint64_t Used() const {
    Memory memory{};
    EXPECT_EQ(read_(device_, &memory), 0);
    return memory.used;
  }

 private:
  struct Memory {
    unsigned long long total, free, used;
  };
  void* library_ = nullptr;
  void* device_ = nullptr;
  int (*read_)(void*, Memory*) = nullptr;
};

class ChargesTest : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    static const auto* const opened = new auto(driver::Driver::Open({}));
    if (!opened->ok()) GTEST_SKIP() << opened->status();
    driver_ = (*opened)->get();
    SetFamilyDriver(*driver_);
    cu_ = &SparseTable();
    if (cu_->DevicePrimaryCtxRetain(&context_, 0) != CUDA_SUCCESS) GTEST_SKIP() << "no GPU";
    ASSERT_EQ(cu_->CtxPushCurrent(context_), CUDA_SUCCESS);
    ASSERT_EQ(cu_->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    account_ = *quota::Account::Create(uint64_t{1} << 30);
    const Books::Options options = {.page = PageOf(*driver_)};
    books_ = std::make_unique<Books>(*cu_, nullptr, options);
    Dl_info where{};
    if (driver_->simulated()) dladdr(reinterpret_cast<void*>(cu_->MemAlloc), &where);
    char bus[32] = "";
    if (cu_->DeviceGetPCIBusId != nullptr) cu_->DeviceGetPCIBusId(bus, sizeof(bus), 0);
    nvml_ = std::make_unique<Nvml>(where.dli_fname, bus);
    // The first allocation of each kind takes additional memory of the device.
    uint64_t thing = 0;
    if (GetParam().raw_take(*cu_, kPiece, stream_, &thing) != CUDA_SUCCESS) {
      GTEST_SKIP() << "this driver does not give such memory";
    }
    ASSERT_EQ(GetParam().raw_give(*cu_, thing, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cu_->StreamSynchronize(stream_), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    books_.reset();
    cu_->DevicePrimaryCtxRelease(0);
  }

  uint64_t Used() const {
    size_t free = 0, total = 0;
    EXPECT_EQ(cu_->MemGetInfo(&free, &total), CUDA_SUCCESS);
    return total - free;
  }
  // Managed memory takes memory of a GPU only when it is there.
  void Bring(uint64_t pointer) const {
    if (std::string_view(GetParam().name) != "managed" || driver_->simulated()) return;
    EXPECT_EQ(cu_->MemPrefetchAsyncV1(pointer, kPiece, 0, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cu_->StreamSynchronize(stream_), CUDA_SUCCESS);
  }
  uint64_t Slack() const {
    if (driver_->simulated()) return 0;
    const std::string_view family = GetParam().name;
    return family == "pool" || family == "own_pool" || family == "graph" ? kGranule : kCardPage;
  }

  const driver::Driver* driver_ = nullptr;
  const driver::Table* cu_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::unique_ptr<quota::Account> account_;
  std::unique_ptr<Books> books_;
  std::unique_ptr<Nvml> nvml_;
};

TEST_P(ChargesTest, AreWhatTheDriverAndNvmlCount) {
  const Family& family = GetParam();
  const uint64_t used_before = Used(), nvml_before = nvml_->there() ? nvml_->Used() : 0;
  const Payer payer{.account = account_.get(), .owner = 1};
  std::vector<uint64_t> things(kPieces);
  for (uint64_t& thing : things) {
    ASSERT_EQ(family.take(*books_, payer, kPiece, stream_, &thing).result, CUDA_SUCCESS);
    Bring(thing);
  }
  books_->Settle();
  const uint64_t charged = account_->charged(), used = Used() - used_before;
  RecordProperty("charged", std::to_string(charged));
  RecordProperty("driver", std::to_string(used));
  EXPECT_GE(charged, kPieces * kPiece);
  EXPECT_LE(std::max(charged, used) - std::min(charged, used), Slack())
      << charged << " charged, " << used << " by the driver's count";
  if (nvml_->there()) {
    const uint64_t by_nvml = nvml_->Used() - nvml_before;
    RecordProperty("nvml", std::to_string(by_nvml));
    EXPECT_LE(std::max(by_nvml, used) - std::min(by_nvml, used),
              driver_->simulated() ? 0 : kCardPage)
        << by_nvml << " by NVML's count, " << used << " by the driver's";
  } else {
    EXPECT_FALSE(driver_->simulated()) << "the simulated GPU's NVML lies beside it";
  }
  for (const uint64_t thing : things) {
    EXPECT_EQ(family.give(*books_, thing, stream_), CUDA_SUCCESS);
  }
  // A pool shrinks at a synchronization.
  EXPECT_EQ(cu_->StreamSynchronize(stream_), CUDA_SUCCESS);
  books_->Settle();
  const uint64_t left = Used() - std::min(Used(), used_before);
  EXPECT_EQ(account_->charged(), driver_->simulated() ? left : account_->charged());
  EXPECT_LE(account_->charged(), left + Slack());
  EXPECT_TRUE(books_->CheckInvariants().ok()) << books_->CheckInvariants();
}

INSTANTIATE_TEST_SUITE_P(Families, ChargesTest, ::testing::ValuesIn(Families()),
                         [](const auto& family) { return std::string(family.param.name); });

}  // namespace
}  // namespace gpushare::books
