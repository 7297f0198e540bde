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

// What the kernel says of the process.
struct Stat {
  bool main_thread_left = false;  // it is kept as long as others are there
  int threads = 0;                // with that one; 0: it cannot be told
};
Stat ReadStat() {
  Stat stat;
  std::string text;
  if (base::ReadFile("/proc/self/stat", 4096, &text) != 0) return stat;
  // Behind the program's name, which may have anything in it.
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

// Is the thread, by its name, one of the simulated GPU's own? These bear their numbers: of a thread that one of them has
// made, in a host function, it is another's.
bool IsSimulators(absl::string_view thread, absl::string_view name) {
  return absl::ConsumePrefix(&name, "gpusim:") && absl::ConsumeSuffix(&name, "\n") &&
         name == thread;
}

// But for the simulated GPU's own. -1: it cannot be told.
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
  // Where one ends meanwhile the kernel may leave out those behind it.
  return all == ReadStat().threads ? threads : -1;
}

// Whether but for the main thread, which has left, and this one all are ours.
bool OursAlone() {
  try {
    // Ours are counted before and after: of one that comes or goes meanwhile a thread of the program could be taken for it.
    const int ours = base::service_threads.load();
    return ReadStat().main_thread_left && Threads() == 2 + ours &&
           base::service_threads.load() == ours;
  } catch (const std::bad_alloc&) {
    return false;  // the next look may find memory
  }
}

void Look() {
  for (Nanos pause = kFirstLook;; pause = std::min(2 * pause, kLaterLook)) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
    if (OursAlone()) std::exit(0);  // what the C library does in the last thread of a process
  }
}

}  // namespace

void EndWithLastThread() {
  if (Process::Find() == nullptr) return;  // of a forked child, which has no thread of ours
  static std::atomic<bool> looks{false};
  if (looks.exchange(true)) return;
  try {
    // On the machine's clock: on a virtual one this thread would have to take turns. It lasts as long as the process.
    static_cast<void>(base::RealClock().StartThread("gpushare-last", &Look).release());
  } catch (...) {
    looks.store(false);  // the host gives no thread: the process stays
  }
}

void EndWithLastThreadIfMainThreadHasLeft() {
  if (getpid() != syscall(SYS_gettid) && ReadStat().main_thread_left) EndWithLastThread();
}

}  // namespace gpushare::shim

void gpushare_shim_main_thread_left() { gpushare::shim::EndWithLastThread(); }
