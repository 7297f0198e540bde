// SPDX-License-Identifier: Apache-2.0
#include "sim/config/profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

namespace gpushare::sim {
namespace {

constexpr std::string_view kVersion = "1";
constexpr std::string_view kSections[] = {"from", "settings", "measured", "not_measured"};

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

std::string_view WithoutBlanks(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

// For messages: cuts a line that may be a megabyte long, and replaces every character that a terminal could interpret.
std::string Shown(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string shown = "'";
  for (const char c : text.substr(0, kMost)) shown.push_back(c < ' ' || c > '~' ? '?' : c);
  return shown + (text.size() > kMost ? "...'" : "'");
}

// Whether YAML reads the text as null.
bool IsNothing(std::string_view text) {
  return text == "~" || text == "null" || text == "Null" || text == "NULL";
}

bool IsKey(std::string_view text) {
  return !text.empty() && !IsNothing(text) && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Removes the quotes, or a comment after the value. Empty on success, else what is wrong.
std::string Unquote(std::string_view text, std::string* value) {
  value->clear();
  if (text.empty() || text.front() != '"') {
    const size_t comment = text.find(" #");
    *value = std::string(WithoutBlanks(text.substr(0, comment)));
    constexpr std::string_view kOfYaml = "!&*?{}[]|>%@`',#:-";
    const bool special =
        !value->empty() &&
        (kOfYaml.find(value->front()) != kOfYaml.npos || value->find(": ") != value->npos ||
         value->back() == ':' || value->find('\t') != value->npos || IsNothing(*value));
    return special ? "wants double quotes around " + Shown(*value) : std::string();
  }
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      const std::string_view rest = text.substr(i + 1);
      const std::string_view behind = WithoutBlanks(rest);
      const bool comment = !behind.empty() && behind.front() == '#' && IsBlank(rest.front());
      return behind.empty() || comment ? std::string()
                                       : Shown(behind) + " stands behind the quotes";
    }
    if (text[i] == '\\' && (++i == text.size() || (text[i] != '"' && text[i] != '\\'))) {
      return "of what a backslash may stand before, quotes and backslashes alone are read";
    }
    value->push_back(text[i]);
  }
  return "the quotes do not end";
}

// Whether it is a measurement as profiles have them, in one line: {key: value, key: "value"}.
bool IsFlat(std::string_view text) {
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') return false;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t end = text.find(',');
    const std::string_view pair = WithoutBlanks(text.substr(0, end));
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    const size_t colon = pair.find(": ");
    if (colon == pair.npos || !IsKey(pair.substr(0, colon))) return false;
    std::string_view value = WithoutBlanks(pair.substr(colon + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
      if (value.find_first_of("\"\\") != value.npos) return false;
      continue;
    }
    const auto is_plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '+' || c == '-' || c == '/';
    };
    if (value.empty() || !std::all_of(value.begin(), value.end(), is_plain)) return false;
  }
  return true;
}

struct Line {
  std::string_view key, value;
  size_t indent = 0;
};

class Reading {
 public:
  explicit Reading(const TakeSetting& take) : take_(take) {}

  // Reads one line. Empty on success, else what is wrong with it.
  std::string Take(std::string_view text) {
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    // Other characters could end a line invisibly.
    if (!std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= ' ' && c <= '~') || c == '\t'; })) {
      return Shown(WithoutBlanks(text)) + " is not printable ASCII";
    }
    const size_t indent = std::min(text.find_first_not_of(' '), text.size());
    const std::string_view said = WithoutBlanks(text);
    if (said.empty() || said.front() == '#') return std::string();
    if (text[indent] == '\t') return "a tab before the key: blanks alone are read";
    const size_t colon = said.find(':');
    const bool is_pair = colon != said.npos && (colon + 1 == said.size() || said[colon + 1] == ' ');
    Line line;
    line.indent = indent;
    if (is_pair) {
      line.key = said.substr(0, colon);
      line.value = WithoutBlanks(said.substr(colon + 1));
      if (!line.value.empty() && line.value.front() == '#') line.value = std::string_view();
    }
    if (!IsKey(line.key)) return Shown(said) + " is not of the form 'key: value'";
    if (!begun_) return Begin(line);
    return indent == 0 ? TakeSection(line) : TakeEntry(line);
  }

  // Checks for what is missing at the end.
  std::string End() const {
    if (!begun_) return "it is no device profile: the first line is not 'profile: 1'";
    if (seen_.count("settings") == 0) return "there are no settings";
    return std::string();
  }

 private:
  std::string Begin(const Line& line) {
    if (line.indent != 0 || line.key != "profile") {
      return "it is no device profile: the first line is not 'profile: 1'";
    }
    std::string version;
    if (std::string why = Unquote(line.value, &version); !why.empty()) return why;
    if (version != kVersion) {
      return "a profile of version " + Shown(version) + "; this gpushare reads version " +
             std::string(kVersion);
    }
    begun_ = true;
    return std::string();
  }

  std::string TakeSection(const Line& line) {
    if (std::find(std::begin(kSections), std::end(kSections), line.key) == std::end(kSections)) {
      return "unknown key " + Shown(line.key) +
             "; there are from, settings, measured and not_measured";
    }
    if (!line.value.empty()) return Shown(line.key) + " is a section: its entries stand below it";
    if (!seen_.insert(std::string(line.key)).second) return Shown(line.key) + " is there twice";
    section_ = std::string(line.key);
    indent_ = 0;
    keys_.clear();
    return std::string();
  }

  std::string TakeEntry(const Line& line) {
    if (section_.empty()) return Shown(line.key) + " is in no section";
    if (indent_ == 0) indent_ = line.indent;
    if (line.indent != indent_) return Shown(line.key) + " does not stand below the key before it";
    if (!keys_.insert(std::string(line.key)).second) return Shown(line.key) + " is there twice";
    const bool is_setting = section_ == "settings";
    if (!is_setting && IsFlat(line.value)) return std::string();
    std::string value;
    if (std::string why = Unquote(line.value, &value); !why.empty()) {
      return std::string(line.key) + ": " + why;
    }
    if (!is_setting) return std::string();  // for people
    return take_(line.key, value);
  }

  const TakeSetting& take_;
  bool begun_ = false;
  std::string section_;
  size_t indent_ = 0;
  std::set<std::string> seen_, keys_;  // sections; the entries of this one
};

}  // namespace

std::string ParseProfile(std::string_view text, std::string_view file, const TakeSetting& take) {
  const auto at = [&](size_t line, const std::string& why) {
    return std::string(file) + ":" + std::to_string(line) + ": " + why;
  };
  if (text.size() > kMostProfileBytes) return at(1, "a profile has 64 KiB at most");
  Reading reading(take);
  size_t line = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string why = reading.Take(text.substr(0, end));
    ++line;
    if (!why.empty()) return at(line, why);
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
  }
  const std::string missing = reading.End();
  return missing.empty() ? std::string() : at(std::max<size_t>(line, 1), missing);
}

std::string ReadProfile(const std::string& path, const TakeSetting& take) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return path + ": " + std::strerror(errno);
  struct stat there;
  if (fstat(fd, &there) != 0 || !S_ISREG(there.st_mode)) {
    close(fd);
    return path + ": it is no file";
  }
  std::string text(kMostProfileBytes + 1, '\0');
  size_t size = 0;
  int error = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd, text.data() + size, text.size() - size);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      error = errno;
      break;
    }
    size += static_cast<size_t>(got);
  }
  close(fd);
  if (error != 0) return path + ": " + std::strerror(error);
  return ParseProfile(std::string_view(text).substr(0, size), path, take);
}

}  // namespace gpushare::sim
