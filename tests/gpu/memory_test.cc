// SPDX-License-Identifier: Apache-2.0
// Quotas compared with the driver's own count of memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "gpushare/error.h"
#include "tests/gpu/bed.h"

namespace gpushare::gpu_test {
namespace {

using namespace literals;  // NOLINT: the units of the test

using MemGetInfo = int(size_t* free, size_t* total);

class MemoryTest : public GpuTest {
 protected:
  Bytes FreeByDriver() const {
    auto* info = runtime().Symbol<MemGetInfo>("cuMemGetInfo_v2");
    size_t free = 0, total = 0;
    EXPECT_NE(info, nullptr);
    EXPECT_EQ(info(&free, &total), 0);
    return Bytes(free);
  }
};

TEST_F(MemoryTest, QuotaIsExactAgainstTheDriversCount) {
  // On a real GPU the log is within the quota as well.
  constexpr Bytes kQuota = 1_GiB, kPiece = 128_MiB;
  Player& player = Add("a", "memory=1GiB");
  const Bytes before = player.device.stats()->memory.used;
  const Bytes free_before = FreeByDriver();
  std::vector<Allocation> pieces;
  absl::Status refused;
  for (;;) {
    absl::StatusOr<Allocation> piece = player.allocator.Allocate(kPiece);
    if (!piece.ok()) {
      refused = piece.status();
      break;
    }
    pieces.push_back(*std::move(piece));
    ASSERT_LE(pieces.size(), 8u) << "more than the quota was given out";
  }
  const uint64_t fitting = (kQuota - before).count() / kPiece.count();
  EXPECT_EQ(pieces.size(), fitting);
  const Bytes taken = kPiece * pieces.size();
  EXPECT_EQ(player.device.stats()->memory.used, before + taken);
  // The pieces are whole 2 MiB pages, so the driver's count falls by the same bytes.
  EXPECT_EQ(free_before - FreeByDriver(), taken);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  const auto detail = ErrorDetail::Of(refused);
  ASSERT_TRUE(detail.has_value()) << refused;
  EXPECT_EQ(detail->limit, "memory");
  EXPECT_EQ(detail->asked, kPiece.count());
  EXPECT_EQ(detail->left, (kQuota - before - taken).count());

  // Exact to the byte: an allocation of the rest fits, and one byte more does not. A card hands out whole pages.
  const Bytes left = kQuota - before - taken;
  const uint64_t page = uint64_t{2} << 20;
  if (!simulated() && left.count() % page != 0) {
    EXPECT_FALSE(player.allocator.Allocate(left).ok());
  } else if (left.count() > 0) {
    EXPECT_FALSE(player.allocator.Allocate(left + 1_B).ok());
    const absl::StatusOr<Allocation> rest = player.allocator.Allocate(left);
    EXPECT_TRUE(rest.ok()) << rest.status();
    EXPECT_EQ(player.device.stats()->memory.used, kQuota);
    EXPECT_FALSE(player.allocator.Allocate(1_B).ok());
  } else {
    EXPECT_FALSE(player.allocator.Allocate(1_B).ok());
  }
  pieces.clear();
  EXPECT_EQ(player.device.stats()->memory.used, before);
  EXPECT_EQ(FreeByDriver(), free_before);
}

TEST_F(MemoryTest, SwappableMemoryLeavesByTheDriversCountAndComesBack) {
  constexpr Bytes kSize = 256_MiB;
  Player& player = Add("a", "memory=1GiB");
  const absl::StatusOr<Allocator> memory =
      Allocator::Create(player.device, {.strategy = AllocationStrategy::kSwappable});
  ASSERT_TRUE(memory.ok()) << memory.status();
  const absl::StatusOr<Allocation> some = memory->Allocate(kSize);
  ASSERT_TRUE(some.ok()) << some.status();
  std::vector<uint32_t> host(kSize.count() / 4);
  for (int round = 0; round < 3; ++round) {
    uint32_t value = 12345u + static_cast<uint32_t>(round);
    for (uint32_t& word : host) word = value = value * 1664525u + 1013904223u;
    const std::vector<uint32_t> written = host;
    GPUSHARE_GPU_TEST_OK(player.stream.CopyToDevice(some->pointer(), host.data(), kSize));
    const Bytes before = FreeByDriver();
    GPUSHARE_GPU_TEST_OK(player.device.Suspend());
    // What a first stream or event takes of the device is within 4 MiB.
    EXPECT_GE(FreeByDriver() + 4_MiB, before + kSize);
    GPUSHARE_GPU_TEST_OK(player.device.Resume());
    EXPECT_LE(FreeByDriver(), before);
    host.assign(host.size(), 0);
    GPUSHARE_GPU_TEST_OK(player.stream.CopyToHost(host.data(), some->pointer(), kSize));
    EXPECT_TRUE(host == written);
  }
  const VirtualDeviceStats stats = *player.device.stats();
  EXPECT_EQ(stats.swaps.out, 3u);
  const double moved = static_cast<double>((stats.swaps.out_bytes + stats.swaps.in_bytes).count());
  Figure("swap_gb_per_s", moved / absl::ToDoubleNanoseconds(stats.swaps.time));
}

TEST_F(MemoryTest, OneTenantsQuotaIsNotAnothers) {
  Player& a = Add("a", "memory=512MiB");
  Player& b = Add("b", "memory=512MiB");
  EXPECT_FALSE(a.allocator.Allocate(513_MiB).ok());
  const absl::StatusOr<Allocation> of_b = b.allocator.Allocate(384_MiB);
  EXPECT_TRUE(of_b.ok()) << of_b.status();
  const absl::StatusOr<Allocation> of_a = a.allocator.Allocate(384_MiB);
  EXPECT_TRUE(of_a.ok()) << of_a.status();
  EXPECT_EQ(a.device.stats()->memory.denied, 1u);
  EXPECT_EQ(b.device.stats()->memory.denied, 0u);
}

TEST_F(MemoryTest, BytesComeBackAsTheyWent) {
  Player& player = Add("a", "memory=512MiB");
  const absl::StatusOr<Allocation> buffer = player.allocator.Allocate(64_MiB);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::vector<uint32_t> out(16 << 20), in(16 << 20);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint32_t>(i * 2654435761u);
  GPUSHARE_GPU_TEST_OK(player.stream.CopyToDevice(buffer->pointer(), out.data(), 64_MiB));
  GPUSHARE_GPU_TEST_OK(player.stream.CopyToHost(in.data(), buffer->pointer(), 64_MiB));
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace gpushare::gpu_test
