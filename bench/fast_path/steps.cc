// SPDX-License-Identifier: Apache-2.0
#include "bench/fast_path/steps.h"

#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/fast_path/machine_code.h"
#include "bench/fast_path/symbols.h"

namespace gpushare::fast_path {
namespace {

constexpr unsigned long long kBegin = 1;
// The limit for a piece that loops or waits for ever.
constexpr uint64_t kMostSteps = 2'000'000;

class Traced {
 public:
  Traced(pid_t process, std::string driver) : process_(process), driver_(std::move(driver)) {}

  absl::StatusOr<Pieces> Run();

 private:
  enum class Place { kOurs, kDriver, kVdso };
  struct Here {
    Instruction instruction;
    Place place;
    std::string function;  // the exported function that begins here
  };

  absl::Status Step();
  absl::Status Count(Counts& counts);
  const Here& At(uint64_t address);
  void FindFunctions();
  user_regs_struct Registers() const {
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, process_, nullptr, &registers);
    return registers;
  }
  template <typename T>
  bool Read(uint64_t address, T* value, size_t bytes = sizeof(T)) const {
    iovec here = {value, bytes}, there = {reinterpret_cast<void*>(address), bytes};
    return process_vm_readv(process_, &here, 1, &there, 1, 0) > 0;
  }
  std::string Text(uint64_t address) const {
    std::array<char, 64> text{};
    for (size_t i = 0; i + 1 < text.size() && Read(address + i, &text[i]) && text[i] != 0; ++i) {
    }
    return text.data();
  }

  const pid_t process_;
  const std::string driver_;
  std::map<uint64_t, Here> seen_;
  std::vector<Mapping> mappings_;
  std::map<uint64_t, std::string> functions_;
};

void Traced::FindFunctions() {
  mappings_ = MappingsOf(process_);
  functions_.clear();
  seen_.clear();
  std::set<std::string> done;
  for (const Mapping& mapping : mappings_) {
    const bool wanted =
        absl::EndsWith(mapping.path, driver_) || absl::StrContains(mapping.path, "/libc.so");
    if (!wanted || !done.insert(mapping.path).second) continue;
    for (const auto& [offset, name] : FunctionsOf(mapping.path))
      functions_[mapping.begin + offset] = name;
  }
}

const Traced::Here& Traced::At(uint64_t address) {
  const auto found = seen_.find(address);
  if (found != seen_.end()) return found->second;
  Here here{};
  std::array<uint8_t, 16> bytes{};
  if (!Read(address, &bytes)) Read(address, &bytes, 16 - (address & 15));  // at a mapping's end
  here.instruction = Decode(bytes);
  const auto mapping = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& m) {
    return address >= m.begin && address < m.end;
  });
  if (mapping != mappings_.end()) {
    here.place = absl::EndsWith(mapping->path, driver_) ? Place::kDriver
                 : mapping->path == "[vdso]"            ? Place::kVdso
                                                        : Place::kOurs;
  }
  const auto function = functions_.find(address);
  if (function != functions_.end()) here.function = function->second;
  return seen_[address] = here;
}

absl::Status Traced::Step() {
  int status = 0;
  if (ptrace(PTRACE_SINGLESTEP, process_, nullptr, nullptr) != 0)
    return absl::ErrnoToStatus(errno, "PTRACE_SINGLESTEP");
  if (waitpid(process_, &status, 0) != process_ || !WIFSTOPPED(status)) {
    return absl::InternalError("the program ended while it was counted");
  }
  if (WSTOPSIG(status) != SIGTRAP) {
    return absl::InternalError(absl::StrCat("the program got signal ", WSTOPSIG(status)));
  }
  return absl::OkStatus();
}

bool IsAllocation(const std::string& function) {
  static const std::set<std::string> kNames = {"malloc", "calloc", "realloc", "aligned_alloc",
                                               "posix_memalign"};
  for (size_t at = 0; at <= function.size();) {
    const size_t end = std::min(function.find('|', at), function.size());
    if (kNames.count(function.substr(at, end - at)) > 0) return true;
    at = end + 1;
  }
  return false;
}

absl::Status Traced::Count(Counts& counts) {
  uint64_t steps = 0, back = 0,
           stack = 0;  // where a call of the driver (or of the kernel's clock) returns to
  for (;;) {
    const user_regs_struct registers = Registers();
    const Here& here = At(registers.rip);
    if (back != 0 && registers.rip == back && registers.rsp > stack) back = 0;
    if (back == 0) {
      if (here.instruction == Instruction::kBreakpoint) return absl::OkStatus();
      if (here.place != Place::kOurs) {
        Read(registers.rsp, &back);
        stack = registers.rsp;
        // The simulated GPU's clock stands for the host's clock.
        const bool clock =
            here.place == Place::kVdso || absl::StartsWith(here.function, "gpushare_sim_now");
        if (clock) {
          ++counts.clock_reads;
        } else {
          counts.driver_calls.push_back(here.function.empty() ? "?" : here.function);
        }
      } else {
        ++counts.instructions;
        if (here.instruction == Instruction::kAtomic) ++counts.atomics;
        if (here.instruction == Instruction::kSyscall) ++counts.syscalls;
        if (IsAllocation(here.function)) ++counts.allocations;
      }
    }
    if (++steps > kMostSteps)
      return absl::InternalError("it took more than two million instructions");
    if (absl::Status stepped = Step(); !stepped.ok()) return stepped;
  }
}

absl::StatusOr<Pieces> Traced::Run() {
  Pieces pieces;
  for (;;) {
    int status = 0;
    if (ptrace(PTRACE_CONT, process_, nullptr, nullptr) != 0)
      return absl::ErrnoToStatus(errno, "PTRACE_CONT");
    if (waitpid(process_, &status, 0) != process_) return absl::ErrnoToStatus(errno, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return pieces;
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
      return absl::InternalError(
          absl::StrCat("the program ended or was stopped with status ", status));
    }
    const user_regs_struct registers = Registers();
    if (registers.rdi != kBegin) continue;
    const std::string name = Text(registers.rsi);
    auto piece =
        std::find_if(pieces.begin(), pieces.end(), [&](const auto& p) { return p.first == name; });
    if (piece == pieces.end()) {
      FindFunctions();  // an object may have been loaded since
      piece = pieces.insert(pieces.end(), {name, {}});
    }
    Counts counts;
    if (absl::Status counted = Count(counts); !counted.ok()) {
      return absl::Status(counted.code(), absl::StrCat(name, ": ", counted.message()));
    }
    piece->second.push_back(std::move(counts));
  }
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<Pieces> CountSteps(const std::vector<std::string>& command,
                                  const std::vector<std::string>& environment,
                                  const std::string& driver) {
  std::vector<std::string> arguments = command, variables = environment;
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(variables);
  const pid_t process = fork();
  if (process < 0) return absl::ErrnoToStatus(errno, "fork");
  if (process == 0) {
    personality(ADDR_NO_RANDOMIZE);  // hash tables keyed by addresses behave the same in every run
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(126);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  int status = 0;
  if (waitpid(process, &status, 0) != process) return absl::ErrnoToStatus(errno, "waitpid");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 126) {
    return absl::FailedPreconditionError("this machine does not let a process trace another");
  }
  if (!WIFSTOPPED(status))
    return absl::NotFoundError(absl::StrCat(command[0], " cannot be started"));
  ptrace(PTRACE_SETOPTIONS, process, nullptr, PTRACE_O_EXITKILL);
  absl::StatusOr<Pieces> pieces = Traced(process, driver).Run();
  if (!pieces.ok()) {
    kill(process, SIGKILL);
    waitpid(process, &status, 0);
  }
  return pieces;
}

}  // namespace gpushare::fast_path
