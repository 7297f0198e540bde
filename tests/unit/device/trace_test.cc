// SPDX-License-Identifier: Apache-2.0
#include "gpushare/trace.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;
using Kind = TraceEvent::Kind;

class TraceTest : public StreamTest {
 protected:
  // Two tenants that contend for the device, one of them also with leases.
  void Contend(const VirtualDevice& a, const VirtualDevice& b) {
    std::vector<Thread> threads;
    for (const VirtualDevice* device : {&a, &b}) {
      threads.push_back(Must(runtime_->StartThread("tenant", [this, device] {
        const Stream stream = Must(Stream::Create(*device));
        for (int i = 0; i < 200; ++i) ASSERT_OK(Spin(stream, absl::Microseconds(50)));
        ASSERT_OK(stream.Synchronize());
        for (int i = 0; i < 3; ++i) {
          Lease lease = Must(
              Lease::Acquire(*device, {.hint = absl::Microseconds(200), .streams = {&stream}}));
          ASSERT_OK(Spin(stream, absl::Microseconds(150)));
          ASSERT_OK(stream.Synchronize());
        }
      })));
    }
    threads.clear();
    runtime_->SleepFor(absl::Milliseconds(20));  // until everything is settled
  }
  static std::vector<TraceEvent> All(Trace& trace) {
    std::vector<TraceEvent> all;
    for (;;) {
      std::vector<TraceEvent> some = Must(trace.Read(100));
      if (some.empty()) return all;
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  static std::string Contents(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

TEST_F(TraceTest, AddsUpToTheSnapshot) {
  const VirtualDevice a = MakeDevice("a", "memory=2GiB,weight=3"), b = MakeDevice("b", "");
  Trace trace = Must(Trace::Start(*runtime_));
  Contend(a, b);
  ASSERT_OK(trace.Stop());
  std::map<std::string, absl::Duration> waited, used;
  std::map<std::string, uint64_t> waits, leases, commands;
  for (const TraceEvent& event : All(trace)) {
    EXPECT_EQ(event.gpu, 0);
    EXPECT_LE(event.begin, event.end);
    switch (event.kind) {
      case Kind::kWait:
        EXPECT_FALSE(event.gave_up);
        ++waits[event.tenant];
        waited[event.tenant] += event.end - event.begin;
        break;
      case Kind::kLease:
        ++leases[event.tenant];
        break;
      case Kind::kDevice:
        used[event.tenant] += absl::Nanoseconds(event.value);
        commands[event.tenant] += event.commands;
        break;
      default:
        break;
    }
  }
  EXPECT_EQ(Must(trace.lost()), 0u);
  const Snapshot snapshot = Must(Snapshot::Take(*runtime_));
  ASSERT_EQ(snapshot.devices.size(), 2u);
  for (const VirtualDeviceStats& stats : snapshot.devices) {
    EXPECT_GT(stats.waits, 10u);
    EXPECT_EQ(waits[stats.tenant], stats.waits);
    EXPECT_EQ(waited[stats.tenant], stats.throttled);
    EXPECT_EQ(leases[stats.tenant], 3u);
    EXPECT_GT(stats.compute.measured, absl::Milliseconds(10));
    EXPECT_EQ(used[stats.tenant], stats.compute.measured);
    EXPECT_GE(commands[stats.tenant], 200u);
  }
}

TEST_F(TraceTest, DeviceTimeStandsWhereItWasUsed) {
  const VirtualDevice a = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(a));
  for (int i = 0; i < 50; ++i)
    ASSERT_OK(Spin(stream, absl::Milliseconds(1)));  // the costs become known
  ASSERT_OK(stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(100));
  Trace trace = Must(Trace::Start(*runtime_));
  const absl::Duration began = runtime_->Now();
  ASSERT_OK(Spin(stream, absl::Milliseconds(1)));
  ASSERT_OK(stream.Synchronize());
  const absl::Duration ended = runtime_->Now();
  runtime_->SleepFor(absl::Milliseconds(20));
  int found = 0;
  for (const TraceEvent& event : All(trace)) {
    if (event.kind != Kind::kDevice) continue;
    ++found;
    EXPECT_NEAR(absl::ToDoubleMicroseconds(event.end - event.begin), 1000, 50);
    EXPECT_GE(event.begin, began - absl::Microseconds(10));
    EXPECT_LE(event.end, ended + absl::Microseconds(10));
    EXPECT_NEAR(static_cast<double>(event.value), 1e6, 5e4);
  }
  EXPECT_EQ(found, 1);
}

TEST_F(TraceTest, FollowsMemory) {
  const VirtualDevice a = MakeDevice("a", "memory=1GiB");
  const Allocator memory = Must(Allocator::Create(a));
  const DevicePtr before = Must(memory.AllocateRaw(MiB(100)));
  Trace trace = Must(Trace::Start(*runtime_));
  const DevicePtr more = Must(memory.AllocateRaw(MiB(500)));
  EXPECT_FALSE(memory.Allocate(MiB(500)).ok());
  ASSERT_OK(memory.Free(before));
  ASSERT_OK(memory.Free(more));
  ASSERT_OK(trace.Stop());
  EXPECT_OK(memory.Free(Must(memory.AllocateRaw(MiB(1)))));
  std::vector<uint64_t> held;
  int denied = 0;
  for (const TraceEvent& event : All(trace)) {
    EXPECT_EQ(event.tenant, "a");
    EXPECT_EQ(event.begin, event.end);
    if (event.kind == Kind::kMemory) {
      held.push_back(static_cast<uint64_t>(event.value) >> 20);
      EXPECT_EQ(event.other, GiB(1).count());
    } else if (event.kind == Kind::kDenied) {
      ++denied;
      EXPECT_EQ(event.value, static_cast<int64_t>(MiB(500).count()));
      EXPECT_EQ(event.other, MiB(424).count());
      EXPECT_FALSE(event.device_full);
    }
  }
  // At the start, after each change, and at the end.
  EXPECT_THAT(held, ::testing::ElementsAre(100, 600, 500, 0, 0));
  const VirtualDeviceStats stats = Must(a.stats());
  EXPECT_EQ(stats.memory.peak, MiB(600));
  EXPECT_EQ(static_cast<uint64_t>(denied), stats.memory.denied);
}

TEST_F(TraceTest, TellsWaitsThatWereGivenUp) {
  const VirtualDevice a = MakeDevice("a", "");
  a.Suspend().IgnoreError();
  Trace trace = Must(Trace::Start(*runtime_));
  EXPECT_FALSE(Lease::Acquire(a, {.timeout = absl::Milliseconds(2)}).ok());
  ASSERT_OK(a.Resume());
  std::vector<TraceEvent> waits, suspends;
  for (const TraceEvent& event : All(trace)) {
    if (event.kind == Kind::kWait) waits.push_back(event);
    if (event.kind == Kind::kSuspend) suspends.push_back(event);
  }
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_TRUE(waits[0].gave_up);
  EXPECT_TRUE(waits[0].for_lease);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(waits[0].end - waits[0].begin), 2, 0.1);
  ASSERT_EQ(suspends.size(), 1u);
  EXPECT_EQ(suspends[0].value, 0);
}

TEST_F(TraceTest, OneAtATimeAndGpusThatComeAndGo) {
  std::optional<Trace> trace = Must(Trace::Start(*runtime_));
  EXPECT_EQ(Trace::Start(*runtime_).status().code(), absl::StatusCode::kAlreadyExists);
  {
    const Gpu other = Must(Gpu::Open(*runtime_, "1"));
    const Tenant tenant = MakeTenant("b");
    const VirtualDevice b = Must(VirtualDevice::Create(other, tenant, "memory=1GiB"));
    const Allocator memory = Must(Allocator::Create(b));
    ASSERT_OK(memory.Free(Must(memory.AllocateRaw(MiB(1)))));
  }
  // The recorded events of a GPU outlive it.
  const std::vector<TraceEvent> events = All(*trace);
  ASSERT_EQ(events.size(), 3u);  // the device begins, grows, shrinks
  EXPECT_EQ(events[0].gpu, 1);
  EXPECT_EQ(events[0].tenant, "b");
  trace.reset();
  EXPECT_OK(Trace::Start(*runtime_).status());
  EXPECT_EQ(Trace::Start(*runtime_, {.capacity = (1u << 22) + 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TraceTest, WritesAFile) {
  const std::string name = "\"quoted\\\" <b> \xc3\xa4";
  const VirtualDevice a = MakeDevice(name, "memory=1GiB"), b = MakeDevice("b", "");
  Trace trace = Must(Trace::Start(*runtime_));
  Contend(a, b);
  const std::string path = ::testing::TempDir() + "/gpushare_trace_test.json";
  ASSERT_OK(trace.Write(path));
  const std::string text = Contents(path);
  std::remove(path.c_str());
  EXPECT_THAT(text, HasSubstr(R"("lost":0)"));
  EXPECT_THAT(text, HasSubstr(R"("name":"\"quoted\\\" <b> )"));
  EXPECT_THAT(text, HasSubstr(R"("cat":"lease")"));
  EXPECT_THAT(text, HasSubstr(R"("name":"process_name","args":{"name":"GPU 0 )"));
  EXPECT_TRUE(All(trace).empty());  // writing consumes the events
  EXPECT_EQ(trace.Write("/no such folder/x.json").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(trace.Write("/no such folder/x.json").message()),
              HasSubstr("No such file or directory"));
}

TEST_F(TraceTest, SaysWhatIsLost) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  Trace trace = Must(Trace::Start(*runtime_, {.capacity = 16}));
  Contend(a, b);
  const std::string path = ::testing::TempDir() + "/gpushare_trace_lost_test.json";
  ASSERT_OK(trace.Write(path));
  const uint64_t lost = Must(trace.lost());
  EXPECT_GT(lost, 100u);
  EXPECT_THAT(Contents(path), HasSubstr(std::to_string(lost) + " older events were lost"));
  std::remove(path.c_str());
}

TEST_F(TraceTest, ReadsIntoStructsOfAnotherVersion) {
  const VirtualDevice a = MakeDevice("a", "memory=1GiB");
  gpushare_trace trace = nullptr;
  ASSERT_EQ(gpushare_trace_start(runtime_->handle(), nullptr, &trace), GPUSHARE_OK);
  struct Later {
    gpushare_trace_event known;
    uint64_t unknown;
  } events[4] = {};
  size_t got = 0;
  EXPECT_EQ(gpushare_trace_read(trace, &events[0].known, 4, &got), GPUSHARE_INVALID_ARGUMENT);
  events[0].known.struct_size = sizeof(Later);
  events[1].unknown = 77;
  const Allocator memory = Must(Allocator::Create(a));
  ASSERT_OK(memory.Free(Must(memory.AllocateRaw(MiB(1)))));
  ASSERT_EQ(gpushare_trace_read(trace, &events[0].known, 4, &got), GPUSHARE_OK);
  ASSERT_EQ(got, 3u);
  EXPECT_EQ(events[1].known.value, 1 << 20);
  EXPECT_STREQ(events[2].known.tenant, "a");
  EXPECT_EQ(events[1].unknown, 77u);
  EXPECT_EQ(gpushare_trace_destroy(trace), GPUSHARE_OK);
  EXPECT_EQ(gpushare_trace_stop(trace), GPUSHARE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace gpushare
