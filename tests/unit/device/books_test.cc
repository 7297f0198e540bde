// SPDX-License-Identifier: Apache-2.0
// The parts without a device: admission, handles, limits that others have set on a GPU, footprints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/abi/handles.h"
#include "device/abi/last_error.h"
#include "device/gpu/surroundings.h"
#include "device/share/admission.h"
#include "gate/footprint.h"

namespace gpushare::device {
namespace {

using gate::Footprint;
using gate::FootprintCache;
using gate::kMostFootprint;
using ::testing::HasSubstr;

TEST(Admission, GuaranteesNeverExceedTheDevice) {
  Admission books(uint64_t{10} << 30);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(books.Check("t", 0, {.guarantee = 0.1}, 0).ok()) << i;
    books.Add({.guarantee = 0.1});
    if (i > 0) continue;
    EXPECT_THAT(std::string(books.Check("late", 0, {.guarantee = 1}, 0).message()),
                HasSubstr("10% promised to 1 other virtual device)"));
  }
  const absl::Status refused = books.Check("late", 0, {.guarantee = 0.01}, 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("tenant 'late': a guarantee of 1% asked, 0% left of the device (100% promised to "
                "10 other virtual devices)"));
  EXPECT_TRUE(books.Check("free", 0, {.guarantee = 0}, 0).ok());
}

TEST(Admission, QuotasNeverExceedTheMemoryThatIsLeft) {
  Admission books(1000);
  const uint64_t a = books.Add({.memory = 600});
  EXPECT_TRUE(books.Check("b", 0, {.memory = 400}, 0).ok());
  EXPECT_FALSE(books.Check("b", 0, {.memory = 401}, 0).ok());
  EXPECT_FALSE(books.Check("b", 0, {.memory = 400}, /*held=*/1).ok());
  EXPECT_FALSE(books.Check("b", 0, {.memory = UINT64_MAX}, 0).ok());
  EXPECT_FALSE(books.Check("b", 0, {.memory = 1}, /*held=*/UINT64_MAX).ok());
  // A device that grows may use what it gives back itself.
  EXPECT_TRUE(books.Check("a", a, {.memory = 1000}, 0).ok());
  books.Replace(a, {.memory = 100});
  EXPECT_TRUE(books.Check("b", 0, {.memory = 900}, 0).ok());
  books.Remove(a);
  EXPECT_EQ(books.memory(), 0u);
}

TEST(Admission, TheDetailIsForPrograms) {
  Admission books(1000);
  books.Add({.memory = 600});
  EXPECT_EQ(SetLastError(books.Check("b", 0, {.memory = 500}, 0)), GPUSHARE_RESOURCE_EXHAUSTED);
  const gpushare_error_detail detail = LastDetail();
  EXPECT_STREQ(detail.tenant, "b");
  EXPECT_STREQ(detail.limit, "memory");
  EXPECT_EQ(detail.asked, 500u);
  EXPECT_EQ(detail.left, 400u);
  EXPECT_EQ(detail.total, 1000u);
}

TEST(Handles, ADestroyedHandleIsRecognisedAlsoWhenItsSlotIsUsedAgain) {
  HandleTable table;
  const auto first = std::make_shared<int>(1);
  const uint64_t a = table.Add(HandleKind::kStream, first);
  EXPECT_EQ(table.Borrow(HandleKind::kStream, a), first.get());
  EXPECT_EQ(table.Borrow(HandleKind::kEvent, a), nullptr);  // a handle of another kind
  EXPECT_EQ(table.Take(HandleKind::kStream, a), first);
  EXPECT_EQ(table.Take(HandleKind::kStream, a), nullptr);
  const uint64_t b = table.Add(HandleKind::kStream, std::make_shared<int>(2));
  EXPECT_EQ(a & 0xffffff, b & 0xffffff);  // the same slot
  EXPECT_NE(a, b);
  EXPECT_EQ(table.Borrow(HandleKind::kStream, a), nullptr);
  EXPECT_EQ(table.Share(HandleKind::kStream, a), nullptr);
  for (const uint64_t garbage :
       {uint64_t{0}, uint64_t{1}, UINT64_MAX, b + 1, b ^ (uint64_t{1} << 30)}) {
    EXPECT_EQ(table.Borrow(HandleKind::kStream, garbage), nullptr) << garbage;
  }
  EXPECT_EQ(table.size(), 1u);
}

TEST(Handles, ManyThreads) {
  HandleTable table;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        const auto object = std::make_shared<int>(i);
        const uint64_t handle = table.Add(HandleKind::kEvent, object);
        if (table.Borrow(HandleKind::kEvent, handle) != object.get()) ++wrong;
        if (table.Share(HandleKind::kEvent, handle) != object) ++wrong;
        if (table.Take(HandleKind::kEvent, handle) != object) ++wrong;
        if (table.Borrow(HandleKind::kEvent, handle) != nullptr) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(table.size(), 0u);
}

TEST(Surroundings, MpsMemoryLimits) {
  EXPECT_EQ(ParseMpsMemoryLimit("0=2G,1=512M", 0), uint64_t{2} << 30);
  EXPECT_EQ(ParseMpsMemoryLimit("0=2G,1=512M", 1), uint64_t{512} << 20);
  EXPECT_EQ(ParseMpsMemoryLimit("0=2G", 1), 0u);
  EXPECT_EQ(ParseMpsMemoryLimit("garbage,=,0=,x=1", 0), 0u);
}

TEST(Surroundings, DmemLimits) {
  const char* text = "drm/0000:65:00.0/vram0 1073741824\ndrm/0000:66:00.0/vram0 max\n";
  EXPECT_EQ(ParseDmemMax(text, "00000000:65:00.0"), uint64_t{1} << 30);
  EXPECT_EQ(ParseDmemMax(text, "0000:66:00.0"), 0u);
  EXPECT_EQ(ParseDmemMax("\n\xff x y\n", "0000:65:00.0"), 0u);
  EXPECT_EQ(NormalPciId("65:00.0"), "0000:65:00.0");
  EXPECT_EQ(NormalPciId("00000000:AF:00.0"), "0000:af:00.0");
  EXPECT_EQ(NormalPciId("00010000:AF:00.0"), "10000:af:00.0");
}

// In a container the root of the namespace is the container's own group. Its limit counts too, although a process in a
// group below it does not name it.
TEST(Surroundings, TheLeastDmemLimitFromTheProcessToTheRootCounts) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / ("dmem-" + std::to_string(getpid()));
  fs::create_directories(root / "a" / "b");
  const auto limit = [&](const fs::path& group, const char* bytes) {
    std::ofstream(group / "dmem.max") << "drm/0000:65:00.0/vram0 " << bytes << "\n";
  };
  const auto found = [&](const char* self) { return DmemLimit(self, root, "0000:65:00.0"); };
  limit(root, "4096");
  EXPECT_EQ(found("0::/a/b\n"), 4096u);
  EXPECT_EQ(found("12:pids:/x\n0::/a\n"), 4096u);
  EXPECT_EQ(found("0::/\n"), 4096u);
  limit(root / "a", "1024");
  limit(root / "a" / "b", "2048");
  EXPECT_EQ(found("0::/a/b\n"), 1024u);
  limit(root, "max");
  EXPECT_EQ(found("0::/a\n"), 1024u);
  EXPECT_EQ(found("0::/gone\n"), 0u);
  EXPECT_EQ(found("12:pids:/a\n"), 0u);  // not of the unified hierarchy
  fs::remove_all(root);
}

TEST(Footprint, IsThePartOfTheSmsThatALaunchCanHold) {
  EXPECT_FLOAT_EQ(Footprint({{66, 1, 1}, {256, 1, 1}, 0}, 1, 132), 0.5f);
  EXPECT_FLOAT_EQ(Footprint({{66, 1, 1}, {256, 1, 1}, 0}, 8, 132), 9.0f / 132);
  EXPECT_FLOAT_EQ(Footprint({{1, 1, 1}, {1, 1, 1}, 0}, 32, 132), 1.0f / 132);
  EXPECT_FLOAT_EQ(Footprint({{330, 1, 1}, {256, 1, 1}, 0}, 1, 132), 2.5f);  // in waves
  EXPECT_FLOAT_EQ(Footprint({{100000, 100, 100}, {256, 1, 1}, 0}, 1, 132), kMostFootprint);
  EXPECT_FLOAT_EQ(Footprint({{1, 1, 1}, {1, 1, 1}, 0}, 0, 132), 1.0f);
}

TEST(Footprint, TheCacheAnswersOnlyForItsKey) {
  auto cache = std::make_unique<FootprintCache>();
  float footprint = 0;
  EXPECT_FALSE(cache->Find(0x123456789abcdef, &footprint));
  cache->Put(0x123456789abcdef, 0.25f);
  ASSERT_TRUE(cache->Find(0x123456789abcdef, &footprint));
  EXPECT_NEAR(footprint, 0.25, 1e-4);
  EXPECT_FALSE(cache->Find(0x923456789abcdef, &footprint));
  cache->Put(0, 0.5f);
  EXPECT_TRUE(cache->Find(0, &footprint));
  for (const float each : {1.0f / 132, 131.0f / 132, 133.0f / 132, kMostFootprint}) {
    cache->Put(7, each);
    ASSERT_TRUE(cache->Find(7, &footprint));
    EXPECT_EQ(std::lround(footprint * 132), std::lround(each * 132)) << each;
  }
  cache->Clear();
  EXPECT_FALSE(cache->Find(0x123456789abcdef, &footprint));
}

}  // namespace
}  // namespace gpushare::device
