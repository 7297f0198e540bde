// SPDX-License-Identifier: Apache-2.0
#include "broker/event_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace gpushare::broker {
namespace {

const char* WordOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      break;
  }
  return "error";
}

// The form is 2026-11-22T14:20:15.123Z.
std::string Written(int64_t ns) {
  const time_t seconds = static_cast<time_t>(ns / 1'000'000'000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32], text[48];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof(text), "%s.%03dZ", date,
                static_cast<int>(ns % 1'000'000'000 / 1'000'000));
  return text;
}

// Whether logfmt needs no quotes for the text.
bool IsPlain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
  });
}

// Bytes of a value: enough for every message, and few enough for a line.
constexpr size_t kMostValue = 1000;

std::string Logfmt(std::string_view value) {
  return IsPlain(value) ? std::string(value) : JsonQuoted(value);
}

// The reader of the log may have stopped reading, and the broker must not wait for it. Lines that do not fit are dropped and
// counted. One thread at a time, or what the first has seen to have room for would be taken by the second.
class StandardError {
 public:
  void Write(std::string_view line) {
    // A writable pipe takes at least this much without blocking.
    constexpr size_t kAtOnce = 4096;
    const std::lock_guard lock(mutex_);
    std::string all;
    if (lost_ > 0) all = absl::StrCat("event=log_lines_lost lines=", lost_, "\n");
    all += line;
    pollfd room{STDERR_FILENO, POLLOUT, 0};
    if (all.size() > kAtOnce || poll(&room, 1, 0) <= 0 || (room.revents & POLLOUT) == 0) {
      ++lost_;
      return;
    }
    lost_ = 0;
    // There is nowhere to report an error of this write.
    static_cast<void>(!write(STDERR_FILENO, all.data(), all.size()));
  }

 private:
  std::mutex mutex_;
  uint64_t lost_ = 0;
};

int64_t WallClock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

LogOptions WithDefaults(LogOptions options) {
  if (!options.sink) {
    options.sink = [out = std::make_shared<StandardError>()](std::string_view line) {
      out->Write(line);
    };
  }
  if (!options.wall_clock) options.wall_clock = &WallClock;
  return options;
}

}  // namespace

EventLog::EventLog(LogOptions options) : options_(WithDefaults(std::move(options))) {}

void EventLog::Write(LogLevel level, std::string_view event,
                     const std::vector<LogField>& fields) const {
  if (level < options_.level) return;
  std::vector<LogField> all = {{"time", Written(options_.wall_clock())},
                               {"level", WordOf(level)},
                               {"event", std::string(event)}};
  all.insert(all.end(), fields.begin(), fields.end());
  for (LogField& field : all) {
    if (field.value.size() > kMostValue) field.value = field.value.substr(0, kMostValue) + "...";
  }
  std::string line;
  if (options_.format == LogFormat::kJson) {
    for (const LogField& field : all) {
      absl::StrAppend(&line, line.empty() ? "{" : ",", JsonQuoted(field.name), ":",
                      field.is_number ? field.value : JsonQuoted(field.value));
    }
    line += "}";
  } else {
    for (const LogField& field : all) {
      absl::StrAppend(&line, line.empty() ? "" : " ", field.name, "=",
                      field.is_number ? field.value : Logfmt(field.value));
    }
  }
  line += "\n";
  options_.sink(line);
}

}  // namespace gpushare::broker
