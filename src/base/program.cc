// SPDX-License-Identifier: Apache-2.0
#include "base/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

#include "base/fd_io.h"
#include "base/unique_fd.h"

namespace gpushare::base {
namespace {

constexpr size_t kMostRead = 64 << 10;  // bytes of the command line

// Whether `program` is `name` with an optional version behind it: "python3.11" for "python".
bool Runs(std::string_view program, std::string_view name) {
  if (program.substr(0, name.size()) != name) return false;
  program.remove_prefix(name.size());
  return std::all_of(program.begin(), program.end(), [](char c) {
    return c == '.' || c == '-' || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

bool RunsScripts(std::string_view program) {
  constexpr std::array<std::string_view, 11> kNames = {
      "python", "pypy", "perl", "ruby", "node", "julia", "lua", "bash", "dash", "sh", "zsh"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return Runs(program, name); });
}

// The script among an interpreter's arguments; "" if there is none, or the interpreter is unknown.
std::string ScriptOf(std::string_view program, const std::vector<std::string>& arguments) {
  const bool python = Runs(program, "python") || Runs(program, "pypy");
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& each = arguments[i];
    if (each.empty()) return "";
    if (each[0] != '-') return each;
    // The code is in the argument itself (or on standard input): it has no name, and may be long.
    if (each == "-c" || each == "-e" || each == "-") return "";
    if (!python) continue;
    if (each == "-m") return i + 1 < arguments.size() ? "-m " + arguments[i + 1] : "";
    if (each == "-W" || each == "-X") ++i;  // which have a value
  }
  return "";
}

}  // namespace

std::string ProgramOf(std::string_view file, const std::vector<std::string>& arguments) {
  const std::string_view name = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  std::string program(file);
  if (!RunsScripts(name)) return program;
  const std::string script = ScriptOf(name, arguments);
  return script.empty() ? program : program + " " + script;
}

std::string ThisProgram() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "";
  std::string text;
  if (const UniqueFd fd(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC)); fd) {
    ReadAll(fd.get(), kMostRead, &text);  // if there is more, the beginning is enough
  }
  std::vector<std::string> arguments;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    arguments.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return ProgramOf(std::string_view(path.data(), static_cast<size_t>(length)), arguments);
}

}  // namespace gpushare::base
