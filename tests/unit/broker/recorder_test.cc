// SPDX-License-Identifier: Apache-2.0
#include "broker/recorder.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/unit/broker/pages.h"

namespace gpushare::broker {
namespace {

constexpr char kRecordedGpu[] = "GPU-00000000-0000-0000-0000-000000000001";
constexpr uint64_t kOneGiB = 1ull << 30;

// A registry with processes whose pages the test writes.
class RecorderTest : public testing::Test {
 protected:
  struct Process {
    Pages pages;
    Registry::Session* session = nullptr;
  };

  RecorderTest()
      : registry_({{.uuid = kRecordedGpu, .memory = 16 * kOneGiB, .reserve = 0, .sm_count = 132}}) {
    Config config;
    config.unlisted = true;
    EXPECT_TRUE(registry_.Apply(config, now_, changed_).ok());
  }

  Process& Start(const std::string& tenant, const std::string& spec, int32_t pid) {
    Process& process = processes_.emplace_back();
    ipc::Hello hello;
    hello.tenant = tenant;
    hello.spec = spec;
    absl::StatusOr<Registry::Session*> session = registry_.Register({.pid = pid}, hello);
    EXPECT_TRUE(session.ok()) << session.status();
    process.session = *session;
    ipc::OpenGpu open;
    open.uuid = kRecordedGpu;
    const auto given = registry_.Open(*process.session, open, process.pages.seat, now_, changed_);
    EXPECT_TRUE(given.ok()) << given.status();
    return process;
  }
  void Look(Nanos later = Nanos(0)) {
    now_ += later;
    registry_.Look(now_, changed_);
    recorder_.Look(registry_, now_);
  }
  Recording Take(std::optional<uint64_t> from = std::nullopt) {
    return recorder_.Take(registry_, now_, from);
  }
  static std::vector<RecordedEvent> Of(const std::vector<RecordedEvent>& events,
                                       RecordedEvent::Kind kind) {
    std::vector<RecordedEvent> found;
    for (const RecordedEvent& event : events) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }

  Time now_{Seconds(1)};
  Changed changed_;
  Registry registry_;
  Recorder recorder_{64};
  std::deque<Process> processes_;
};

TEST_F(RecorderTest, ALeaseIsAGrantUntilItIsUsed) {
  Process& process = Start("a", "", 7);
  const uint64_t from = Take().next;
  process.pages.usage.time_wanted_ns = 1'000'000;
  Look(Millis(1));
  const Time granted = now_;
  const int64_t grant = process.pages.limits.time_granted_ns.load();
  ASSERT_GT(grant, 0);
  Recording recording = Take(from);
  EXPECT_TRUE(Of(recording.events, RecordedEvent::Kind::kLease).empty());
  ASSERT_EQ(Of(recording.open, RecordedEvent::Kind::kLease).size(), 1u);  // still in progress
  EXPECT_EQ(recording.open[0].begin, granted);
  EXPECT_EQ(recording.open[0].end, now_);

  process.pages.usage.time_wanted_ns = 0;
  process.pages.usage.time_used_ns = grant;
  Look(Millis(4));
  recording = Take(from);
  ASSERT_EQ(Of(recording.events, RecordedEvent::Kind::kLease).size(), 1u);
  const RecordedEvent lease = Of(recording.events, RecordedEvent::Kind::kLease)[0];
  EXPECT_EQ(lease.tenant, "a");
  EXPECT_EQ(lease.gpu, kRecordedGpu);
  EXPECT_EQ(lease.pid, 7);
  EXPECT_EQ(lease.begin, granted);
  EXPECT_EQ(lease.end, granted + Millis(4));
  EXPECT_EQ(lease.value, grant);
  EXPECT_TRUE(recording.open.empty());
}

TEST_F(RecorderTest, WhoWaitsIsSeenUntilItIsGranted) {
  Process& first = Start("a", "", 7);
  Process& second = Start("b", "", 8);
  const uint64_t from = Take().next;
  for (Process* each : {&first, &second}) {
    each->pages.usage.time_wanted_ns = 500'000;
    each->pages.usage.time_in_flight_ns = 0;
  }
  Look(Millis(1));
  Recording recording = Take(from);
  ASSERT_EQ(Of(recording.open, RecordedEvent::Kind::kWait).size(),
            1u);  // one tenant at a time has the device
  const RecordedEvent waits = Of(recording.open, RecordedEvent::Kind::kWait)[0];
  EXPECT_EQ(waits.value, 500'000);
  Process& granted = waits.pid == 8 ? first : second;
  Process& waiting = waits.pid == 8 ? second : first;
  granted.pages.usage.time_wanted_ns = 0;
  granted.pages.usage.time_used_ns = granted.pages.limits.time_granted_ns.load();
  Look(Millis(4));
  ASSERT_GT(waiting.pages.limits.time_granted_ns.load(), 0);
  const std::vector<RecordedEvent> waited = Of(Take(from).events, RecordedEvent::Kind::kWait);
  ASSERT_EQ(waited.size(), 1u);
  EXPECT_EQ(waited[0].end - waited[0].begin, Millis(4));
}

TEST_F(RecorderTest, HighPriorityHasNoGrantsButDeviceTime) {
  Process& process = Start("a", "priority=high", 7);
  Look();  // the process is found to bypass gpushare
  const uint64_t from = Take().next;
  process.pages.usage.time_in_flight_ns = 300'000;
  Look(Millis(1));
  const Time began = now_;
  process.pages.usage.time_used_ns = 200'000;
  Look(Micros(200));
  process.pages.usage.time_in_flight_ns = 0;
  process.pages.usage.time_used_ns = 310'000;
  Look(Micros(110));
  const Recording recording = Take(from);
  EXPECT_TRUE(Of(recording.events, RecordedEvent::Kind::kLease).empty());
  const std::vector<RecordedEvent> device = Of(recording.events, RecordedEvent::Kind::kDevice);
  ASSERT_EQ(device.size(), 1u);
  EXPECT_EQ(device[0].begin, began);
  EXPECT_EQ(device[0].end, began + Micros(310));
  EXPECT_EQ(device[0].value, 310'000);
}

TEST_F(RecorderTest, MemoryAndRefusals) {
  Process& process = Start("a", "memory=1GiB", 7);
  const Recording first = Take();
  ASSERT_EQ(first.events.size(), 1u);
  EXPECT_EQ(first.events[0].value, 0);
  EXPECT_EQ(first.events[0].other, kOneGiB);  // the tenant's only process is granted everything
  process.pages.usage.memory_charged = kOneGiB / 4;
  process.pages.usage.allocations_denied = 3;
  Look(Millis(1));
  Look(Millis(1));  // no change
  const Recording recording = Take(first.next);
  const std::vector<RecordedEvent> memory = Of(recording.events, RecordedEvent::Kind::kMemory);
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory[0].value, static_cast<int64_t>(kOneGiB / 4));
  const std::vector<RecordedEvent> denied = Of(recording.events, RecordedEvent::Kind::kDenied);
  ASSERT_EQ(denied.size(), 1u);
  EXPECT_EQ(denied[0].value, 3);
}

TEST_F(RecorderTest, TheEndOfAProcessEndsWhatIsUnderWay) {
  Process& process = Start("a", "memory=1GiB", 7);
  const uint64_t from = Take().next;
  process.pages.usage.time_wanted_ns = 1'000'000;
  process.pages.usage.memory_charged = 5;
  Look(Millis(1));
  registry_.End(*process.session, now_, changed_);
  Look(Millis(1));
  Recording recording = Take(from);
  EXPECT_EQ(Of(recording.events, RecordedEvent::Kind::kLease).size(), 1u);
  EXPECT_TRUE(recording.open.empty());
  registry_.Free(process.session, now_, changed_);
  Look(Millis(1));
  recording = Take(from);
  ASSERT_FALSE(recording.events.empty());
  EXPECT_EQ(recording.events.back().kind, RecordedEvent::Kind::kMemory);
  EXPECT_EQ(recording.events.back().value, 0);
  EXPECT_EQ(recording.events.back().begin, now_);
}

TEST_F(RecorderTest, SuspendAndResume) {
  Start("a", "", 7);
  const uint64_t from = Take().next;
  for (const bool suspended : {true, false}) {
    ASSERT_TRUE(registry_.Suspend("a", suspended, now_, changed_).ok());
    Look(Millis(1));
  }
  const std::vector<RecordedEvent> events = Of(Take(from).events, RecordedEvent::Kind::kSuspend);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].value, 1);
  EXPECT_EQ(events[1].value, 0);
  EXPECT_EQ(events[0].tenant, "a");
  EXPECT_EQ(events[0].pid, 0);
}

TEST_F(RecorderTest, WhoAsksGoesOnFromWhereItWas) {
  Process& process = Start("a", "memory=1GiB", 7);
  const Recording first = Take();
  EXPECT_EQ(Of(first.events, RecordedEvent::Kind::kMemory).size(), 1u);  // what it holds already
  process.pages.usage.memory_charged = 1;
  Look(Millis(1));
  const Recording second = Take(first.next);
  EXPECT_EQ(second.events.size(), second.next - first.next);
  EXPECT_TRUE(Take(second.next).events.empty());
  EXPECT_EQ(Take(first.next).events, second.events);  // several readers may ask for the same events
  // A new reader gets the present state and no earlier events.
  const Recording other = Take();
  ASSERT_EQ(other.events.size(), 1u);
  EXPECT_EQ(other.events[0].value, 1);
  EXPECT_EQ(other.next, second.next);
}

// A process that changes its figures all the time does not push out other events.
TEST_F(RecorderTest, MemoryIsToldSoOftenAndAtLastAsItIs) {
  Process& process = Start("a", "memory=1GiB", 7);
  uint64_t from = Take().next;
  for (uint64_t i = 1; i <= 1000; ++i) {
    process.pages.usage.memory_charged = i;
    process.pages.usage.allocations_denied = i;
    Look(Micros(1));
  }
  Recording recording = Take(from);
  const size_t told = recording.events.size();
  EXPECT_LE(told, size_t{2 * Recorder::kMostEachMilli});
  EXPECT_GE(told, size_t{Recorder::kMostEachMilli});
  int64_t denied = 0;
  Look(Millis(1));
  recording = Take(from);
  EXPECT_EQ(Of(recording.events, RecordedEvent::Kind::kMemory).back().value, 1000);
  for (const RecordedEvent& event : Of(recording.events, RecordedEvent::Kind::kDenied)) {
    denied += event.value;
  }
  EXPECT_EQ(denied, 1000);
}

TEST_F(RecorderTest, ManyEventsComeInPieces) {
  Recorder recorder;
  Process& process = Start("a", "memory=1GiB", 7);
  uint64_t next = recorder.Take(registry_, now_).next;
  constexpr uint64_t kEvents = 3 * Recorder::kMostAtOnce / 2;
  for (uint64_t i = 1; i <= kEvents; ++i) {
    process.pages.usage.memory_charged = i;
    now_ += Millis(1);
    recorder.Take(registry_, now_, next);  // the recording continues
    recorder.Look(registry_, now_);
  }
  size_t total = 0;
  for (int i = 0; i < 2; ++i) {
    const Recording recording = recorder.Take(registry_, now_, next);
    EXPECT_LE(recording.events.size(), Recorder::kMostAtOnce);
    total += recording.events.size();
    next = recording.next;
  }
  EXPECT_EQ(total, kEvents);
}

TEST_F(RecorderTest, TheOldestAreLostAndCounted) {
  Process& process = Start("a", "memory=1GiB", 7);
  const uint64_t from = Take().next;
  for (uint64_t i = 1; i <= 100; ++i) {
    process.pages.usage.memory_charged = i;
    Look(Millis(1));
  }
  const Recording recording = Take(from);
  EXPECT_EQ(recording.events.size(), 64u);
  EXPECT_EQ(recording.next - from, recording.lost + 64);
  EXPECT_EQ(recording.events.back().value, 100);
}

TEST_F(RecorderTest, ItEndsWhenNobodyAsks) {
  Process& process = Start("a", "memory=1GiB", 7);
  const uint64_t from = Take().next;
  process.pages.usage.memory_charged = 4;
  Look(Recorder::kGoesOn);
  EXPECT_EQ(Take(from).events.size(), 1u);
  Look(Recorder::kGoesOn + Nanos(1));
  process.pages.usage.memory_charged = 5;
  Look(Millis(1));
  const Recording recording = Take();  // begins anew
  ASSERT_EQ(recording.events.size(), 1u);
  EXPECT_EQ(recording.events[0].value, 5);
  EXPECT_EQ(Take(from).lost, 1u);
}

TEST(RecordingJson, ComesBackAsItWent) {
  RecordedEvent event{
      .kind = RecordedEvent::Kind::kDenied, .gpu = kRecordedGpu, .tenant = "a \"b\"\n", .pid = 9};
  event.session = 4;
  event.begin = Time(Seconds(3));
  event.end = Time(Seconds(4));
  event.value = 17;
  event.other = 5;
  const Recording recording{
      .at = Time(Seconds(9)), .next = 12, .lost = 3, .events = {event, event}, .open = {event}};
  const absl::StatusOr<Recording> read = RecordingFromJson(ToJson(recording));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at, recording.at);
  EXPECT_EQ(read->next, 12u);
  EXPECT_EQ(read->lost, 3u);
  EXPECT_EQ(read->events, recording.events);
  EXPECT_EQ(read->open, recording.open);
}

TEST(RecordingJson, NonsenseIsRefusedAndWhatIsNewerPassedOver) {
  EXPECT_TRUE(RecordingFromJson(R"({"events":[{"kind":"from later","x":1}],"more":{}})").ok());
  EXPECT_TRUE(RecordingFromJson(R"({"events":[{"kind":"from later"}]})")->events.empty());
  for (const char* text :
       {"", "[]", R"({"events":{}})", R"({"events":[1]})", R"({"next":-1})", R"({"at_ns":"now"})",
        R"({"events":[{"kind":"lease","pid":4294967296}]})",
        R"({"events":[{"kind":"lease","begin_ns":2,"end_ns":1}]})",
        R"({"events":[{"kind":"lease","begin_ns":1.5}]})", R"({"lost":18446744073709551615})"}) {
    EXPECT_EQ(RecordingFromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace gpushare::broker
