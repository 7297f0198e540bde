// SPDX-License-Identifier: Apache-2.0
// Threads x tenants x streams x allocations x resizes x closing, on the machine's clock, so that ThreadSanitizer sees
// their interactions. GPUSHARE_STRESS_ROUNDS bounds the length; the assertions hold at any speed.
#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

constexpr int kTenants = 4, kThreadsPerTenant = 2;
constexpr Bytes kQuota = MiB(64);

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class StressTest : public StreamTest {
 protected:
  std::string config() const override {
    return "sms=100,memory=8GiB,overlap=footprint,clock=wall,h2d=10GB/s,d2h=10GB/s";
  }
  void SetUp() override {
    StreamTest::SetUp();
    std::printf("rounds %llu, seed %llu\n", static_cast<unsigned long long>(rounds_),
                static_cast<unsigned long long>(seed_));
  }

  const uint64_t rounds_ = FromEnvironment("GPUSHARE_STRESS_ROUNDS", 150);
  const uint64_t seed_ = FromEnvironment("GPUSHARE_STRESS_SEED", 1);
};

// One thread of a tenant, with its own streams and memory, which acts at random.
class Worker {
 public:
  Worker(const VirtualDevice& device, const Function& spin, uint64_t seed)
      : device_(device), spin_(spin), allocator_(Must(Allocator::Create(device))), random_(seed) {
    streams_.push_back(Must(Stream::Create(device_)));
  }

  void Step() {
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
      case 3:
        Launch(1 + random_() % 20);
        break;
      case 4:
        Allocate();
        break;
      case 5:
        if (!memory_.empty()) memory_.erase(memory_.begin() + Pick(memory_.size()));
        break;
      case 6:
        Copy();
        break;
      case 7:
        if (streams_.size() < 4) {
          streams_.push_back(Must(Stream::Create(device_)));
        } else {  // while work is in flight
          streams_.erase(streams_.begin() + Pick(streams_.size()));
        }
        break;
      case 8:
        UnderALease();
        break;
      case 9:
        Captured();
        break;
    }
  }
  void Finish() {
    for (const Stream& stream : streams_) EXPECT_OK(stream.Synchronize());
    memory_.clear();
    streams_.clear();
  }
  uint64_t launches() const { return launches_; }

 private:
  std::ptrdiff_t Pick(size_t n) { return static_cast<std::ptrdiff_t>(random_() % n); }
  const Stream& AnyStream() { return streams_[random_() % streams_.size()]; }

  void Launch(uint64_t n) {
    const Stream& stream = AnyStream();
    const LaunchShape shape = {.grid = {static_cast<unsigned>(1 + random_() % 150)},
                               .block = {1024}};
    for (uint64_t i = 0; i < n; ++i) {
      EXPECT_OK(stream.Launch(spin_, shape, uint64_t{1000} + random_() % 30'000));
      ++launches_;
    }
    if (random_() % 3 == 0) EXPECT_OK(stream.Synchronize());
  }
  void Allocate() {
    // Two threads of a tenant want up to 40 of its 64 MiB each, so now and then a request is refused.
    absl::StatusOr<Allocation> memory = allocator_.Allocate(Bytes(1 + random_() % (10 << 20)));
    if (!memory.ok()) {
      EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted) << memory.status();
      return;
    }
    if (memory_.size() >= 4) memory_.erase(memory_.begin());
    memory_.push_back(*std::move(memory));
  }
  void Copy() {
    if (memory_.empty()) return;
    const Allocation& memory = memory_[random_() % memory_.size()];
    const Bytes size(std::min<uint64_t>(memory.size().count(), 4096));
    std::vector<uint8_t> out(size.count(), static_cast<uint8_t>(random_())), in(size.count());
    const Stream& stream = AnyStream();
    EXPECT_OK(stream.CopyToDeviceAsync(memory.pointer(), out.data(), size));
    EXPECT_OK(stream.CopyToHost(in.data(), memory.pointer(), size));
    EXPECT_EQ(in, out);
  }
  void UnderALease() {
    const Stream& stream = AnyStream();
    absl::StatusOr<Lease> lease =
        Lease::Acquire(device_, {.exclusive = random_() % 4 == 0, .streams = {&stream}});
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_OK(stream.Launch(spin_, {.grid = {10}, .block = {1024}}, uint64_t{20'000}));
    if (random_() % 2 == 0) EXPECT_OK(stream.Synchronize());
    EXPECT_OK(lease->Release().status());
  }
  void Captured() {
    const Stream stream = Must(Stream::Create(device_));
    EXPECT_OK(stream.BeginCapture());
    for (int i = 0; i < 5; ++i) {
      EXPECT_OK(stream.Launch(spin_, {.grid = {10}, .block = {1024}}, uint64_t{5'000}));
    }
    if (random_() % 4 == 0) return;  // the stream ends in the middle of this
    const Graph graph = Must(stream.EndCapture());
    EXPECT_OK(stream.LaunchGraph(graph));
    ++launches_;
    EXPECT_OK(stream.Synchronize());
  }

  const VirtualDevice& device_;
  const Function spin_;
  Allocator allocator_;
  std::mt19937_64 random_;
  std::vector<Stream> streams_;
  std::vector<Allocation> memory_;
  uint64_t launches_ = 0;
};

TEST_F(StressTest, EverythingAtOnce) {
  const std::array<const char*, kTenants> specs = {
      "memory=64MiB,priority=high", "memory=64MiB,compute=40%", "memory=64MiB,cap=50%",
      "memory=64MiB,policy=best-effort"};
  std::vector<VirtualDevice> devices;
  for (int t = 0; t < kTenants; ++t) {
    devices.push_back(MakeDevice("t" + std::to_string(t), specs[static_cast<size_t>(t)]));
  }
  std::array<std::atomic<uint64_t>, kTenants> launches{};
  std::atomic<int> running{kTenants * kThreadsPerTenant};
  std::vector<std::thread> threads;
  for (int i = 0; i < kTenants * kThreadsPerTenant; ++i) {
    const auto t = static_cast<size_t>(i % kTenants);
    threads.emplace_back([&, i, t] {
      Worker worker(devices[t], spin_, seed_ * 1000 + static_cast<uint64_t>(i));
      for (uint64_t round = 0; round < rounds_; ++round) worker.Step();
      worker.Finish();
      launches[t] += worker.launches();
      --running;
    });
  }
  // Limits change, tenants are held, and others come and go.
  threads.emplace_back([&] {
    std::mt19937_64 random(seed_ * 1000 + 900);
    // The number of rounds is bounded: on few processors the others would hardly get past a tenant that is held again
    // at once.
    for (uint64_t n = 0; n < 4 * rounds_ && running > 0; ++n) {
      const VirtualDevice& device = devices[1 + random() % (kTenants - 1)];
      EXPECT_OK(device.Resize(random() % 2 == 0 ? "cap=60%" : "cap=100%"));
      EXPECT_OK(device.Suspend());
      EXPECT_OK(device.Resume());
    }
  });
  threads.emplace_back([&] {
    for (uint64_t n = 0; n < rounds_ && running > 0; ++n) {
      const VirtualDevice guest = MakeDevice("guest" + std::to_string(n), "memory=8MiB");
      const Stream stream = Must(Stream::Create(guest));
      const Allocator allocator = Must(Allocator::Create(guest));
      const Allocation memory = Must(allocator.Allocate(MiB(8)));
      EXPECT_EQ(allocator.Allocate(Bytes(1)).status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_OK(Spin(stream, absl::Microseconds(10)));
    }
  });
  // Invariants that must hold at every instant.
  std::array<uint64_t, kTenants> seen{};
  while (running > 0) {
    const Snapshot snapshot = Must(Snapshot::Take(*runtime_));
    for (const VirtualDeviceStats& stats : snapshot.devices) {
      if (stats.tenant.empty() || stats.tenant[0] != 't') continue;
      const auto t = static_cast<size_t>(stats.tenant[1] - '0');
      EXPECT_LE(stats.memory.used, kQuota);
      EXPECT_GE(stats.compute.launches, seen[t]);
      seen[t] = stats.compute.launches;
    }
  }
  for (std::thread& thread : threads) thread.join();
  // And the ones that must hold when everything has stopped.
  for (size_t t = 0; t < kTenants; ++t) {
    const VirtualDeviceStats stats = Must(devices[t].stats());
    EXPECT_EQ(stats.memory.used, Bytes(0)) << t;
    EXPECT_EQ(stats.memory.allocations, 0u) << t;
    EXPECT_EQ(stats.compute.launches, launches[t].load()) << t;
  }
  EXPECT_EQ(Must(Snapshot::Take(*runtime_)).devices.size(), size_t{kTenants});
  EXPECT_EQ(UsedOnDevice(), 0u);
}

}  // namespace
}  // namespace gpushare
