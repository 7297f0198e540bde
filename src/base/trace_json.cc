// SPDX-License-Identifier: Apache-2.0
#include "base/trace_json.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "gpushare/version.h"

namespace gpushare::base {
namespace {

// The kinds of rows ("threads" in the format) that a tenant has, in the order in which they are shown.
enum class Row : uint8_t { kDevice, kLease, kWait, kCopy };

Row RowOf(const gpushare_trace_event& event) {
  switch (event.kind) {
    case GPUSHARE_TRACE_LEASE:
      return Row::kLease;
    case GPUSHARE_TRACE_WAIT:
      return Row::kWait;
    case GPUSHARE_TRACE_COPY_WAIT:
      return Row::kCopy;
    default:
      return Row::kDevice;
  }
}

std::string ThreadName(const std::string& tenant, Row row, size_t lane) {
  constexpr const char* kNames[] = {"", ": leases", ": waits", ": copies held"};
  std::string name = absl::StrCat(tenant, kNames[static_cast<size_t>(row)]);
  if (lane > 0) absl::StrAppend(&name, " (", lane + 1, ")");
  return name;
}

// The rows of one kind of one tenant: as many as there are slices that overlap at some time.
struct Lanes {
  std::vector<int64_t> free_from;
  std::vector<int> threads;
};

class Writer {
 public:
  Writer(int64_t started_ns, absl::FunctionRef<void(std::string_view)> out)
      : started_ns_(started_ns), out_(out) {}
  ~Writer() { Flush(); }

  void Raw(std::string_view text) {
    text_ += text;
    if (text_.size() >= 1 << 16) Flush();
  }

  // Writes one object of the list; `rest` holds its further members, each with a leading comma.
  void Object(const char* phase, int process, int thread, const std::string& rest) {
    Raw(absl::StrCat(first_ ? "\n" : ",\n", R"({"ph":")", phase, R"(","pid":)", process,
                     R"(,"tid":)", thread, rest, "}"));
    first_ = false;
  }

  // Microseconds, exact to the nanosecond.
  static std::string Micros(int64_t ns) {
    char text[40];
    const bool negative = ns < 0;
    const uint64_t n = negative ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
    std::snprintf(text, sizeof(text), "%s%llu.%03d", negative ? "-" : "",
                  static_cast<unsigned long long>(n / 1000), static_cast<int>(n % 1000));
    return text;
  }
  std::string At(const gpushare_trace_event& event) const {
    return absl::StrCat(R"(,"ts":)", Micros(event.begin_ns - started_ns_));
  }

 private:
  void Flush() {
    out_(text_);
    text_.clear();
  }

  const int64_t started_ns_;
  absl::FunctionRef<void(std::string_view)> out_;
  std::string text_;
  bool first_ = true;
};

std::string Slice(const gpushare_trace_event& event, const Writer& writer) {
  std::string name, category, args;
  const bool lease = (event.flags & GPUSHARE_TRACE_FOR_LEASE) != 0;
  switch (event.kind) {
    case GPUSHARE_TRACE_WAIT:
      category = "wait";
      name = (event.flags & GPUSHARE_TRACE_GAVE_UP) != 0 ? "gave up"
             : lease                                     ? "for a lease"
                                                         : "held";
      args = absl::StrCat(R"("asked_ns":)", event.value);
      break;
    case GPUSHARE_TRACE_LEASE:
      category = "lease";
      name = (event.flags & GPUSHARE_TRACE_EXCLUSIVE) != 0 ? "exclusive lease" : "lease";
      args = absl::StrCat(R"("hint_ns":)", event.value, R"(,"overrun":)",
                          (event.flags & GPUSHARE_TRACE_OVERRUN) != 0 ? "true" : "false");
      break;
    case GPUSHARE_TRACE_COPY_WAIT:
      category = "copy";
      name = event.other == 0 ? "to the device" : "from the device";
      args = absl::StrCat(R"("bytes":)", event.value);
      break;
    default:
      category = "device";
      name = lease                 ? "leased"
             : event.commands == 1 ? "1 command"
                                   : absl::StrCat(event.commands, " commands");
      args = absl::StrCat(R"("device_ns":)", event.value, R"(,"commands":)", event.commands);
      break;
  }
  return absl::StrCat(R"(,"cat":")", category, R"(","name":")", name, "\"", writer.At(event),
                      R"(,"dur":)", Writer::Micros(event.end_ns - event.begin_ns), R"(,"args":{)",
                      args, "}");
}

std::string Instant(const gpushare_trace_event& event, const Writer& writer) {
  std::string name, category, args;
  switch (event.kind) {
    case GPUSHARE_TRACE_DENIED:
      category = "denied";
      name = (event.flags & GPUSHARE_TRACE_DEVICE_FULL) != 0 ? "device full" : "over quota";
      // Refusals that a broker counted: their sizes are unknown.
      args = event.commands > 0
                 ? absl::StrCat(R"("refusals":)", event.commands)
                 : absl::StrCat(R"("asked":)", event.value, R"(,"left":)", event.other);
      break;
    case GPUSHARE_TRACE_SUSPEND:
      category = "suspend";
      name = event.value != 0 ? "suspended" : "resumed";
      break;
    default:
      category = "device";
      name = "overdue";
      args = absl::StrCat(R"("device_ns":)", event.value, R"(,"commands":0)");
      break;
  }
  return absl::StrCat(R"(,"cat":")", category, R"(","name":")", name, "\"", writer.At(event),
                      R"(,"s":"t","args":{)", args, "}");
}

bool IsInstant(const gpushare_trace_event& event) {
  return event.kind == GPUSHARE_TRACE_DENIED || event.kind == GPUSHARE_TRACE_SUSPEND ||
         (event.flags & GPUSHARE_TRACE_OVERDUE) != 0;
}

std::string Counter(const gpushare_trace_event& event, const Writer& writer) {
  return absl::StrCat(R"(,"cat":"memory","name":)",
                      JsonQuoted(absl::StrCat("memory of ", event.tenant)), writer.At(event),
                      R"(,"args":{"bytes":)", event.value, "}");
}

}  // namespace

void TraceJson::Write(absl::FunctionRef<void(std::string_view text)> out) {
  // By GPU and tenant, then by time. Of events that begin together the longest comes first, so that
  // shorter ones go to the lanes below it.
  std::stable_sort(events_.begin(), events_.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.gpu, a.begin_ns, -a.end_ns) < std::tuple(b.gpu, b.begin_ns, -b.end_ns);
  });
  Writer writer(started_ns_, out);
  writer.Raw(absl::StrCat(R"({"displayTimeUnit":"ns","otherData":{"producer":"gpushare )",
                          GPUSHARE_VERSION_STRING, R"(","started_ns":)", started_ns_,
                          R"(,"events":)", events_.size(), R"(,"lost":)", lost_,
                          "},\n\"traceEvents\":["));
  for (const auto& [gpu, name] : gpus_) {
    const std::string title =
        lost_ == 0 ? absl::StrCat("GPU ", gpu, " ", name)
                   : absl::StrCat("GPU ", gpu, " ", name, " (", lost_, " older events were lost)");
    writer.Object(
        "M", gpu, 0,
        absl::StrCat(R"(,"name":"process_name","args":{"name":)", JsonQuoted(title), "}"));
  }
  std::map<std::tuple<int, std::string, Row>, Lanes> rows;
  int threads = 0;
  for (const gpushare_trace_event& event : events_) {
    if (event.kind == GPUSHARE_TRACE_MEMORY) {
      writer.Object("C", event.gpu, 0, Counter(event, writer));
      continue;
    }
    const Row row = RowOf(event);
    Lanes& lanes = rows[{event.gpu, event.tenant, row}];
    size_t lane = 0;
    if (!IsInstant(event)) {
      while (lane < lanes.free_from.size() && lanes.free_from[lane] > event.begin_ns) ++lane;
    }
    if (lane == lanes.free_from.size()) {
      lanes.free_from.push_back(INT64_MIN);
      lanes.threads.push_back(++threads);
      writer.Object("M", event.gpu, threads,
                    absl::StrCat(R"(,"name":"thread_name","args":{"name":)",
                                 JsonQuoted(ThreadName(event.tenant, row, lane)), "}"));
    }
    if (IsInstant(event)) {
      writer.Object("i", event.gpu, lanes.threads[0], Instant(event, writer));
      continue;
    }
    lanes.free_from[lane] = event.end_ns;
    writer.Object("X", event.gpu, lanes.threads[lane], Slice(event, writer));
  }
  // Numbers the rows so that the viewer shows those of a tenant together.
  int order = 0;
  for (const auto& [key, lanes] : rows) {
    for (const int thread : lanes.threads) {
      writer.Object(
          "M", std::get<0>(key), thread,
          absl::StrCat(R"(,"name":"thread_sort_index","args":{"sort_index":)", ++order, "}"));
    }
  }
  writer.Raw("\n]}\n");
}

}  // namespace gpushare::base
