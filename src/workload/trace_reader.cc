// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "workload/gzip.h"
#include "workload/trace.h"

namespace gpushare::workload {
namespace {

constexpr std::string_view kHeader = "kernel,bound,sms,duration_ns";
// Fits a name and three fields of the maximum length, with room for quotes.
constexpr size_t kMaxLineBytes = kMaxKernelNameBytes + 64;
constexpr size_t kMaxFileBytes = size_t{256} << 20;

absl::Status ErrorAt(const std::string& label, int64_t line, const std::string& what) {
  return absl::InvalidArgumentError(label + ":" + std::to_string(line) + ": " + what);
}

// What is wrong with a kernel's name; empty if it is valid.
std::string NameError(std::string_view name) {
  if (name.empty()) return "kernel is empty: allowed are 1 to 1024 bytes";
  if (name.size() > kMaxKernelNameBytes) {
    return "kernel " + Quoted(name) + " has " + std::to_string(name.size()) +
           " bytes: allowed are 1 to 1024";
  }
  for (size_t i = 0; i < name.size();) {
    const auto byte = static_cast<unsigned char>(name[i]);
    if (byte < 0x20 || byte == 0x7f) {
      return "kernel " + Quoted(name) + " holds a control character (byte " +
             std::to_string(static_cast<int>(byte)) + "): allowed is printable UTF-8";
    }
    const size_t length = Utf8Length(name.substr(i));
    if (length == 0) {
      return "kernel " + Quoted(name) + " is not UTF-8: allowed is printable UTF-8";
    }
    i += length;
  }
  return "";
}

std::string IntegerError(std::string_view text, const char* field, int64_t most, int64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (!text.empty() && error == std::errc() && stop == end && *value >= 1 && *value <= most)
    return "";
  return std::string(field) + " is " + Quoted(text) + ": allowed are integers from 1 to " +
         std::to_string(most);
}

// Splits the last field off `rest`, at its last comma. False when there is none.
bool TakeLast(std::string_view* rest, std::string_view* field) {
  const size_t comma = rest->rfind(',');
  if (comma == std::string_view::npos) return false;
  *field = rest->substr(comma + 1);
  *rest = rest->substr(0, comma);
  return true;
}

// Adds the kernel of one line. Empty on success, else what is wrong with the line.
std::string AddLine(std::string_view line, KernelTrace* trace) {
  if (line.size() > kMaxLineBytes) {
    return "the line has " + std::to_string(line.size()) + " bytes: allowed are up to " +
           std::to_string(kMaxLineBytes);
  }
  std::string_view name = line, bound_text, sms_text, duration_text;
  if (!TakeLast(&name, &duration_text) || !TakeLast(&name, &sms_text) ||
      !TakeLast(&name, &bound_text)) {
    return "found " + Quoted(line) + ": a line has the four fields " + std::string(kHeader);
  }
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
    name = name.substr(1, name.size() - 2);
  }
  if (std::string error = NameError(name); !error.empty()) return error;

  Bound bound;
  if (bound_text == "compute") {
    bound = Bound::kCompute;
  } else if (bound_text == "memory") {
    bound = Bound::kMemory;
  } else if (bound_text == "unknown") {
    bound = Bound::kUnknown;
  } else {
    return "bound is " + Quoted(bound_text) + ": allowed are compute, memory and unknown";
  }

  int64_t sms = 0, duration = 0;
  std::string error = IntegerError(sms_text, "sms", kMaxKernelSms, &sms);
  if (error.empty()) {
    error = IntegerError(duration_text, "duration_ns", kMaxKernelDuration.count(), &duration);
  }
  if (error.empty()) trace->Add(name, bound, sms, Nanos(duration));
  return error;
}

}  // namespace

absl::StatusOr<KernelTrace> ParseTrace(std::string_view text, const std::string& label) {
  KernelTrace trace(label);
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);  // spreadsheets write this mark
  if (text.empty()) {
    return ErrorAt(label, 1, "the file is empty: it starts with the line " + std::string(kHeader));
  }
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (number == 1) {
      if (line == kHeader) continue;
      return ErrorAt(label, 1,
                     "the header is " + Quoted(line) + ": allowed is " + std::string(kHeader));
    }
    if (line.empty() && text.empty()) break;  // a blank last line
    if (static_cast<int64_t>(trace.kernels().size()) == kMaxTraceKernels) {
      return ErrorAt(label, number, "too many kernels: allowed are up to 1000000");
    }
    if (const std::string error = AddLine(line, &trace); !error.empty()) {
      return ErrorAt(label, number, error);
    }
  }
  if (trace.empty()) {
    return ErrorAt(label, number, "no kernel follows the header: allowed are 1 to 1000000");
  }
  return trace;
}

absl::StatusOr<KernelTrace> ReadTraceFile(const std::string& path) {
  if (HasZeroByte(path)) {
    return absl::InvalidArgumentError("the path of a trace file holds a NUL byte");
  }
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  base::UniqueFd descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!descriptor || fstat(descriptor.get(), &status) != 0) {
    return absl::ErrnoToStatus(errno, "cannot open trace file " + path);
  }
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    return absl::InvalidArgumentError(path + ": a trace is read from a file");
  }
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(fdopen(descriptor.get(), "rb"), close);
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, "cannot open trace file " + path);
  }
  static_cast<void>(descriptor.Release());  // the stream owns it now
  std::string text;
  char buffer[1 << 16];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    text.append(buffer, got);
    if (text.size() > kMaxFileBytes) {
      return absl::InvalidArgumentError(path +
                                        ": the file is too large: allowed are up to 256 MiB");
    }
  }
  if (std::ferror(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, "cannot read trace file " + path);
  }
  std::string label = path.substr(path.find_last_of('/') + 1);
  if (IsGzip(text)) {
    absl::StatusOr<std::string> expanded = Gunzip(text, kMaxFileBytes);
    if (!expanded.ok()) {
      return absl::Status(expanded.status().code(),
                          path + ": " + std::string(expanded.status().message()));
    }
    text = *std::move(expanded);
    if (label.size() > 3 && label.substr(label.size() - 3) == ".gz") label.resize(label.size() - 3);
  }
  GPUSHARE_ASSIGN_OR_RETURN(KernelTrace parsed, ParseTrace(text, path));
  if (const size_t dot = label.rfind('.'); dot != std::string::npos && dot > 0) label.resize(dot);
  parsed.set_label(label);
  return parsed;
}

}  // namespace gpushare::workload
