// SPDX-License-Identifier: Apache-2.0
// gpu-facts: measures the facts behind gpushare's defaults on one GPU, and prints JSON.
//
//   gpu-facts [--out FILE] [--date DATE] [--commit COMMIT] [--limit SECONDS] [--only GROUP]...
//   [--list]
//
// Each group of measurements runs in a child process with a time limit. Failures are recorded with their reasons. The exit
// status is 0 when the run was completed, 1 when no group reported a fact, and 2 for wrong arguments. docs/on-a-gpu.md explains
// the facts.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "groups.h"
#include "report.h"

namespace gpushare::facts {
namespace {

constexpr int kSchema = 1;

struct Arguments {
  std::string out, date, commit;
  double limit_s = 175;
  std::vector<std::string> only;
  bool list = false;
};

// What the process of a group reported.
struct Outcome {
  std::map<std::string, std::string> facts, machine;  // by name: JSON fields; JSON value
  std::string status = "FAILED", reason;              // of what it did not report
  bool complete = false;
  double seconds = 0;
};

double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void TakeLine(const std::string& line, Outcome& outcome) {
  const size_t first = line.find('\t');
  const size_t second = first == std::string::npos ? first : line.find('\t', first + 1);
  if (second == std::string::npos) return;
  const std::string name = line.substr(first + 1, second - first - 1),
                    rest = line.substr(second + 1);
  switch (line[0]) {
    case 'F':
      outcome.facts[name] = rest;
      break;
    case 'M':
      outcome.machine[name] = rest;
      break;
    case 'U':
      outcome.status = "NOT_SUPPORTED";
      outcome.reason = rest;
      break;
    case 'E':
      outcome.reason = rest;
      break;
    default:
      break;
  }
}

// Reads lines until the end of the pipe. False when `deadline` came first.
bool ReadLines(int fd, double deadline, Outcome& outcome) {
  std::string pending;
  char buffer[4096];
  for (;;) {
    const double left = deadline - Seconds();
    pollfd poller{fd, POLLIN, 0};
    if (left <= 0 || poll(&poller, 1, static_cast<int>(left * 1'000) + 1) == 0) return false;
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n <= 0) return true;
    pending.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      TakeLine(pending.substr(0, end), outcome);
    }
  }
}

Outcome RunGroup(const Group& group, double time_left) {
  Outcome outcome;
  const double start = Seconds();
  int fds[2];
  if (time_left < 1 || pipe(fds) != 0) {
    outcome.reason = time_left < 1 ? "skipped: the run's time limit was reached" : "no pipe";
    return outcome;
  }
  std::fflush(nullptr);
  const pid_t child = fork();  // the driver has not been opened in this process
  if (child == 0) {
    setpgid(0, 0);
    close(fds[0]);
    SetReportDescriptor(fds[1]);
    group.run();
    _exit(0);
  }
  close(fds[1]);
  const bool ended =
      child > 0 && ReadLines(fds[0], start + std::min<double>(group.timeout_s, time_left), outcome);
  close(fds[0]);
  int status = 0;
  if (child > 0) {
    if (!ended) kill(-child, SIGKILL);  // and the processes that it started
    waitpid(child, &status, 0);
  }
  outcome.seconds = Seconds() - start;
  outcome.complete = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!ended) {
    outcome.reason =
        "did not end within " + std::to_string(static_cast<int>(outcome.seconds)) + " s";
  } else if (WIFSIGNALED(status)) {
    outcome.reason = std::string("died of ") + strsignal(WTERMSIG(status));
  } else if (outcome.reason.empty()) {
    outcome.reason = "not reported";
  }
  return outcome;
}

std::string FactJson(const FactInfo& fact, const Outcome& outcome) {
  const auto found = outcome.facts.find(fact.name);
  std::string json = "    " + JsonString(fact.name) + ": {";
  if (found != outcome.facts.end()) {
    json += found->second;
  } else {
    json += "\"value\": null, \"status\": " + JsonString(outcome.status) +
            ", \"reason\": " + JsonString(outcome.reason);
  }
  return json + ", \"unit\": " + JsonString(fact.unit) + ", \"how\": " + JsonString(fact.how) + "}";
}

bool Parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--list") {
      arguments.list = true;
      continue;
    }
    if (i + 1 >= argc) return false;
    const std::string value = argv[++i];
    if (option == "--out") {
      arguments.out = value;
    } else if (option == "--date") {
      arguments.date = value;
    } else if (option == "--commit") {
      arguments.commit = value;
    } else if (option == "--limit") {
      char* end = nullptr;
      arguments.limit_s = std::strtod(value.c_str(), &end);
      if (*end != '\0' || !(arguments.limit_s > 0)) return false;
    } else if (option == "--only") {
      arguments.only.push_back(value);
    } else {
      return false;
    }
  }
  for (const std::string& name : arguments.only) {
    const auto same = [&](const Group& group) { return name == group.name; };
    if (std::none_of(Groups().begin(), Groups().end(), same)) return false;
  }
  return true;
}

// The version of the kernel module, known as the driver version. Empty if it cannot be read.
std::string DriverRelease() {
  FILE* file = std::fopen("/sys/module/nvidia/version", "r");
  char text[64] = "";
  if (file != nullptr && std::fgets(text, sizeof(text), file) == nullptr) text[0] = '\0';
  if (file != nullptr) std::fclose(file);
  text[std::strcspn(text, "\n")] = '\0';
  return text;
}

int Run(const Arguments& arguments) {
  const double start = Seconds();
  std::map<std::string, std::string> machine;
  std::string facts, durations;
  int groups_with_facts = 0;
  for (const Group& group : Groups()) {
    if (!arguments.only.empty() && std::find(arguments.only.begin(), arguments.only.end(),
                                             group.name) == arguments.only.end()) {
      continue;
    }
    const Outcome outcome = RunGroup(group, arguments.limit_s - (Seconds() - start));
    for (const FactInfo& fact : group.facts) {
      facts += (facts.empty() ? "" : ",\n") + FactJson(fact, outcome);
    }
    machine.insert(outcome.machine.begin(), outcome.machine.end());
    durations += (durations.empty() ? "" : ", ") + JsonString(group.name) + ": " +
                 JsonNumber(outcome.seconds);
    if (!outcome.facts.empty()) ++groups_with_facts;
    std::fprintf(stderr, "%-15s %5.1f s  %zu of %zu facts%s%s\n", group.name, outcome.seconds,
                 outcome.facts.size(), group.facts.size(), outcome.complete ? "" : ": ",
                 outcome.complete ? "" : outcome.reason.c_str());
    // Without a device the other groups are pointless.
    if (outcome.facts.empty() && std::strcmp(group.name, "machine") == 0) return 1;
  }
  const std::string release = DriverRelease();
  if (!release.empty()) machine["driver"] = JsonString(release);
  std::string json = "{\n  \"schema\": " + std::to_string(kSchema) +
                     ",\n  \"tool\": \"gpu-facts\",\n  \"date\": " + JsonString(arguments.date) +
                     ",\n  \"commit\": " + JsonString(arguments.commit) + ",\n  \"machine\": {";
  for (const auto& [key, value] : machine) {
    json += (json.back() == '{' ? "" : ", ") + JsonString(key) + ": " + value;
  }
  json += "},\n  \"seconds\": " + JsonNumber(Seconds() - start) + ",\n  \"group_seconds\": {" +
          durations + "},\n  \"facts\": {\n" + facts + "\n  }\n}\n";
  FILE* out = arguments.out.empty() ? stdout : std::fopen(arguments.out.c_str(), "w");
  if (out == nullptr || std::fputs(json.c_str(), out) < 0 || std::fflush(out) != 0) {
    std::fprintf(stderr, "gpu-facts: cannot write %s: %s\n", arguments.out.c_str(),
                 std::strerror(errno));
    return 1;
  }
  return groups_with_facts > 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--role") == 0) return PlayRole(argv[2], argv[3]);
  Arguments arguments;
  if (!Parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: gpu-facts [--out FILE] [--date DATE] [--commit COMMIT] [--limit SECONDS] "
                 "[--only GROUP]... [--list]\n");
    return 2;
  }
  if (!arguments.list) return Run(arguments);
  for (const Group& group : Groups()) {
    for (const FactInfo& fact : group.facts) {
      std::printf("%s %s %s\n", group.name, fact.name, fact.unit);
    }
  }
  return 0;
}

}  // namespace
}  // namespace gpushare::facts

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  return gpushare::facts::Main(argc, argv);
}
