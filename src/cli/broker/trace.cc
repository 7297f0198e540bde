// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/trace.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/trace_json.h"
#include "broker/recorder.h"
#include "cli/broker/ask.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace gpushare::cli {
namespace {

using broker::RecordedEvent;
using broker::Recording;
using Kind = RecordedEvent::Kind;

constexpr Nanos kAsksEvery =
    Millis(200);  // the broker keeps several seconds of a busy GPU's events
constexpr Nanos kLooksEvery = Millis(20);  // polling interval for Ctrl-C
constexpr size_t kMostName = 40;           // of a tenant's name, which the pid follows
// Each event takes about 300 bytes. To see more, record a part.
constexpr size_t kMostEvents = 4 << 20;

gpushare_trace_event ToC(const RecordedEvent& event, int gpu) {
  gpushare_trace_event out = {};
  out.struct_size = sizeof out;
  out.gpu = gpu;
  out.begin_ns = event.begin.time_since_epoch().count();
  out.end_ns = event.end.time_since_epoch().count();
  out.value = event.value;
  out.other = event.other;
  switch (event.kind) {
    case Kind::kLease:
      out.kind = GPUSHARE_TRACE_LEASE;
      break;
    case Kind::kWait:
      out.kind = GPUSHARE_TRACE_WAIT;
      break;
    case Kind::kDevice:
      out.kind = GPUSHARE_TRACE_DEVICE;
      break;
    case Kind::kMemory:
      out.kind = GPUSHARE_TRACE_MEMORY;
      break;
    case Kind::kDenied:
      out.kind = GPUSHARE_TRACE_DENIED;
      out.commands = static_cast<uint32_t>(std::clamp<int64_t>(event.value, 1, UINT32_MAX));
      break;
    case Kind::kSuspend:
      out.kind = GPUSHARE_TRACE_SUSPEND;
      break;
  }
  std::string name = Printable(event.tenant, kMostName);
  if (event.pid != 0) {
    absl::StrAppend(&name, " [", event.pid, "]");
  } else if (event.session != 0) {
    absl::StrAppend(&name, " [session ", event.session, "]");
  }
  std::strncpy(out.tenant, name.c_str(), sizeof(out.tenant) - 1);
  return out;
}

// The events recorded so far of the selected tenants.
class Tape {
 public:
  explicit Tape(const std::vector<std::string>& tenants)
      : wanted_(tenants.begin(), tenants.end()) {}

  void Add(Recording recording) {
    if (!began_.has_value()) began_ = recording.at;
    ended_ = recording.at;
    lost_ += recording.lost;
    std::erase_if(recording.events, [this](const auto& event) { return !IsWanted(event); });
    std::erase_if(recording.open, [this](const auto& event) { return !IsWanted(event); });
    std::move(recording.events.begin(), recording.events.end(), std::back_inserter(events_));
    open_ = std::move(recording.open);
  }
  bool full() const { return events_.size() >= kMostEvents; }
  size_t events() const { return events_.size() + open_.size(); }
  uint64_t lost() const { return lost_; }
  double seconds() const {
    return began_.has_value() ? static_cast<double>((ended_ - *began_).count()) / 1e9 : 0;
  }
  std::set<std::string> tenants() const {
    std::set<std::string> names;
    for (const auto* each : {&events_, &open_}) {
      for (const RecordedEvent& event : *each) names.insert(event.tenant);
    }
    return names;
  }

  // In Chrome's trace format. An event that began before the recording is shown from its start.
  std::string ToFile() const {
    std::map<std::string, int> gpus;
    for (const auto* each : {&events_, &open_}) {
      for (const RecordedEvent& event : *each) gpus.emplace(event.gpu, 0);
    }
    int ordinal = 0;
    base::TraceJson json(began_.value_or(Time()));
    for (auto& [uuid, number] : gpus) json.AddGpu(number = ordinal++, Printable(uuid, 80));
    json.SetLost(lost_);
    for (const auto* each : {&events_, &open_}) {
      for (const RecordedEvent& event : *each) json.Add(ToC(event, gpus.at(event.gpu)));
    }
    std::string text;
    json.Write([&](std::string_view piece) { text += piece; });
    return text;
  }

 private:
  bool IsWanted(const RecordedEvent& event) const {
    return wanted_.empty() || wanted_.contains(event.tenant);
  }

  const std::set<std::string> wanted_;
  std::optional<Time> began_;
  Time ended_{};
  uint64_t lost_ = 0;
  std::vector<RecordedEvent> events_, open_;
};

// Records for `seconds`, or until Ctrl-C.
absl::Status Record(const TraceOptions& options, BrokerConnection& broker, Tape* tape) {
  base::Clock& clock = base::RealClock();
  const std::atomic<int>& interrupted = TellInterrupts();
  const Time until = options.seconds.has_value()
                         ? clock.Now() + Nanos(static_cast<int64_t>(*options.seconds * 1e9))
                         : kNever;
  GPUSHARE_ASSIGN_OR_RETURN(Recording recording, broker.Trace());
  for (;;) {
    const uint64_t next = recording.next;
    const bool more = recording.events.size() >= broker::Recorder::kMostAtOnce;
    tape->Add(std::move(recording));
    const bool over = interrupted != 0 || clock.Now() >= until || tape->full();
    if (over && !more) return absl::OkStatus();
    const Time asks = std::min(clock.Now() + kAsksEvery, until);
    while (!more && interrupted == 0 && clock.Now() < asks) {
      clock.SleepUntil(std::min(clock.Now() + kLooksEvery, asks));
    }
    GPUSHARE_ASSIGN_OR_RETURN(recording, broker.Trace(next));
  }
}

std::string Summary(const TraceOptions& options, const Tape& tape) {
  if (options.json) {
    base::JsonWriter json(base::JsonWriter::Style::kOneLine);
    json.BeginObject().Key("file").String(options.file).Key("seconds").Number(tape.seconds());
    json.Key("events").Integer(static_cast<int64_t>(tape.events()));
    json.Key("lost").Integer(static_cast<int64_t>(tape.lost())).Key("tenants").BeginArray();
    for (const std::string& name : tape.tenants()) json.String(name);
    json.EndArray().EndObject();
    return json.text() + "\n";
  }
  std::string text =
      absl::StrFormat("%s: %d events of %d tenants in %.1f s", Printable(options.file, 1024),
                      tape.events(), tape.tenants().size(), tape.seconds());
  if (tape.lost() > 0) absl::StrAppend(&text, "; ", tape.lost(), " were lost");
  if (tape.full()) absl::StrAppend(&text, "; it is full");
  return text + "\n";
}

}  // namespace

ExitCode RunTrace(const TraceOptions& options) {
  if (const ExitCode code = CheckWritable("trace", options.file); code != kExitOk) return code;
  absl::StatusOr<BrokerConnection> broker = BrokerConnection::To(options.socket);
  if (!broker.ok()) return FailOfBroker("trace", broker.status());
  Tape tape(options.tenants);
  const absl::Status recorded = Record(options, *broker, &tape);
  if (!recorded.ok() && tape.events() == 0) return FailOfBroker("trace", recorded);
  if (const ExitCode code = WriteFile("trace", options.file, tape.ToFile()); code != kExitOk) {
    return code;
  }
  for (const std::string& tenant : options.tenants) {
    if (tape.tenants().contains(tenant)) continue;
    std::fprintf(stderr, "gpushare trace: nothing was seen of tenant '%s'\n",
                 Printable(tenant, 63).c_str());
  }
  if (options.file != kStdout) {
    std::fputs(Summary(options, tape).c_str(), stdout);
    if (const ExitCode code = FinishStdout("trace"); code != kExitOk) return code;
  }
  return recorded.ok() ? kExitOk : FailOfBroker("trace", recorded);
}

}  // namespace gpushare::cli
