// SPDX-License-Identifier: Apache-2.0
#include "shim/last_threads.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/fd_io.h"
#include "base/service_threads.h"
#include "base/time.h"
#include "shim/attach_abi.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

constexpr Nanos kFirstLook = Millis(5), kLaterLook = Millis(200);

// The process's state in /proc.
struct Stat {
  bool main_thread_left = false;  // it stays a zombie as long as there are other threads
  int threads = 0;                // includes the main thread; 0 if unknown
};
Stat ReadStat() {
  Stat stat;
  std::string text;
  if (base::ReadFile("/proc/self/stat", 4096, &text) != 0) return stat;
  // Skip the program's name, which may contain any characters.
  const size_t name = text.rfind(") ");
  if (name == std::string::npos) return stat;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(name + 2), ' ');
  constexpr size_t kState = 0, kThreads = 17;
  if (fields.size() <= kThreads) return stat;
  stat.main_thread_left = fields[kState] == "Z";
  if (!absl::SimpleAtoi(fields[kThreads], &stat.threads)) stat.threads = 0;
  return stat;
}

// Whether the thread, by its name, is one of the simulated GPU's own. Their names contain their thread ids. A thread that one
// of them started, in a host function, inherits the name, which then has another thread's id.
bool IsSimulators(absl::string_view thread, absl::string_view name) {
  return absl::ConsumePrefix(&name, "gpusim:") && absl::ConsumeSuffix(&name, "\n") &&
         name == thread;
}

// The number of threads without the simulated GPU's own; -1 if unknown.
int Threads() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/task"), &closedir);
  if (folder == nullptr) return -1;
  int all = 0, threads = 0;
  while (const dirent* const each = readdir(folder.get())) {
    if (each->d_name[0] == '.') continue;
    std::string name;
    base::ReadFile(absl::StrCat("/proc/self/task/", each->d_name, "/comm"), 64, &name);
    ++all;
    threads += !IsSimulators(each->d_name, name);
  }
  // If a thread ends during the loop, the kernel may leave out later ones.
  return all == ReadStat().threads ? threads : -1;
}

// Whether all threads belong to the engine, apart from the main thread, which has left, and the calling one.
bool OursAlone() {
  try {
    // Read the count before and after: if an engine thread started or ended in between, a thread of the program could be
    // mistaken for it.
    const int ours = base::service_threads.load();
    return ReadStat().main_thread_left && Threads() == 2 + ours &&
           base::service_threads.load() == ours;
  } catch (const std::bad_alloc&) {
    return false;  // there may be memory at the next look
  }
}

void Look() {
  for (Nanos pause = kFirstLook;; pause = std::min(2 * pause, kLaterLook)) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
    if (OursAlone()) std::exit(0);  // as the C library does in the last thread of a process
  }
}

}  // namespace

void EndWithLastThread() {
  if (Process::Find() == nullptr) return;  // a forked child, which has no engine threads
  static std::atomic<bool> looks{false};
  if (looks.exchange(true)) return;
  try {
    // Uses the real clock: with a virtual clock this thread would have to take turns. It runs until the process ends.
    static_cast<void>(base::RealClock().StartThread("gpushare-last", &Look).release());
  } catch (...) {
    looks.store(false);  // no thread could be started: the process does not end by itself
  }
}

void EndWithLastThreadIfMainThreadHasLeft() {
  if (getpid() != syscall(SYS_gettid) && ReadStat().main_thread_left) EndWithLastThread();
}

}  // namespace gpushare::shim

void gpushare_shim_main_thread_left() { gpushare::shim::EndWithLastThread(); }
