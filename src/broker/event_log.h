// SPDX-License-Identifier: Apache-2.0
// The broker's log: one line per event, for people and for log collectors.
//
//   EventLog log({.level = LogLevel::kInfo});
//   log.Info("session_begins", {{"tenant", name}, {"pid", pid}});
//   // time=2026-11-22T14:20:15.123Z level=info event=session_begins tenant="trainer 1" pid=4242
//
// The names of events stay the same between versions; docs/broker.md lists them. Text from outside is escaped, so that
// nobody can forge a line. Threading: any thread; lines are never mixed.
#ifndef GPUSHARE_BROKER_EVENT_LOG_H_
#define GPUSHARE_BROKER_EVENT_LOG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpushare::broker {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kLogfmt, kJson };

// A name, and text or a number.
struct LogField {
  LogField(std::string field, std::string text) : name(std::move(field)), value(std::move(text)) {}
  LogField(std::string field, const char* text) : name(std::move(field)), value(text) {}
  LogField(std::string field, int64_t number)
      : name(std::move(field)), value(std::to_string(number)), is_number(true) {}
  LogField(std::string field, int number) : LogField(std::move(field), int64_t{number}) {}
  LogField(std::string field, uint64_t number)
      : name(std::move(field)), value(std::to_string(number)), is_number(true) {}

  std::string name;
  std::string value;
  bool is_number = false;
};

struct LogOptions {
  LogLevel level = LogLevel::kInfo;  // lower levels are left out
  LogFormat format = LogFormat::kLogfmt;
  // Takes a line with its newline. By default the line goes to standard error in one write, or is lost if that would
  // block; the next line says how many were lost (event=log_lines_lost).
  std::function<void(std::string_view line)> sink;
  // Nanoseconds since 1970; by default the machine's clock.
  std::function<int64_t()> wall_clock;
};

class EventLog {
 public:
  explicit EventLog(LogOptions options);

  void Debug(std::string_view event, const std::vector<LogField>& fields = {}) const {
    Write(LogLevel::kDebug, event, fields);
  }
  void Info(std::string_view event, const std::vector<LogField>& fields = {}) const {
    Write(LogLevel::kInfo, event, fields);
  }
  void Warning(std::string_view event, const std::vector<LogField>& fields = {}) const {
    Write(LogLevel::kWarning, event, fields);
  }
  void Error(std::string_view event, const std::vector<LogField>& fields = {}) const {
    Write(LogLevel::kError, event, fields);
  }
  void Write(LogLevel level, std::string_view event, const std::vector<LogField>& fields) const;

 private:
  const LogOptions options_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_EVENT_LOG_H_
