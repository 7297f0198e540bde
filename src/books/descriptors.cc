// SPDX-License-Identifier: Apache-2.0
#include "books/descriptors.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

#include "base/host_fd.h"

namespace gpushare::books {
namespace {

enum class Added { kNew, kThere, kNot };

Added Add(int set, int descriptor, uint64_t id) {
  epoll_event event{};
  event.data.u64 = id;
  if (epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0) return Added::kNew;
  return errno == EEXIST ? Added::kThere : Added::kNot;
}

// Duplicates `descriptor` to the number while `call` runs. False if the number is in use.
template <typename Call>
bool WithNumber(int descriptor, int number, const Call& call) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, number);
  if (copy < 0) return false;
  if (copy == number) call();
  close(copy);
  return copy == number;
}

// The highest number to use. Programs use the low ones.
int HighestNumber() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 4096)) - 1;
}

// The ids of a set's members, from the lines "tfd: 4 events: 18 data: 2a ...".
std::vector<uint64_t> MembersOf(int set) {
  std::vector<uint64_t> ids;
  std::ifstream file("/proc/self/fdinfo/" + std::to_string(set));
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(" data:");
    if (line.compare(0, 4, "tfd:") != 0 || at == std::string::npos) continue;
    std::istringstream text(line.substr(at + 6));
    uint64_t id = 0;
    if (text >> std::hex >> id) ids.push_back(id);
  }
  return ids;
}

}  // namespace

Descriptors::~Descriptors() {
  const base::MutexLock lock(&mutex_);
  if (set_ >= 0) close(set_);
  if (always_ >= 0) close(always_);
}

bool Descriptors::Open() {
  if (set_ >= 0) return true;
  set_ = base::ClearOfStdio(base::UniqueFd(epoll_create1(EPOLL_CLOEXEC))).Release();
  always_ = base::ClearOfStdio(base::UniqueFd(eventfd(0, EFD_CLOEXEC))).Release();
  return set_ >= 0 && Add(set_, always_, 0) == Added::kNew;
}

bool Descriptors::IsSame(const Watched& watched, int descriptor) const {
  struct stat file;
  if (fstat(descriptor, &file) != 0 || file.st_dev != watched.device ||
      file.st_ino != watched.inode) {
    return false;
  }
  if (watched.number < 0) return true;
  Added added = Added::kNot;
  WithNumber(descriptor, watched.number, [&, set = set_] {
    added = Add(set, watched.number, UINT64_MAX);
    if (added == Added::kNew) epoll_ctl(set, EPOLL_CTL_DEL, watched.number, nullptr);
  });
  return added == Added::kThere;
}

// An epoll set identifies a file together with the descriptor number under which it was added. Each file is added under a
// number of its own, by which it can be found later: the program's own numbers are reused.
int Descriptors::AddToSet(int descriptor, uint64_t id) {
  if (!Open()) return -1;
  constexpr int kLeast = 16, kTries = 64;
  int number = HighestNumber();
  for (int tries = 0; number >= kLeast && tries < kTries; --number) {
    const auto has_it = [&](const Watched& one) { return one.number == number; };
    if (std::any_of(watched_.begin(), watched_.end(), has_it)) continue;
    ++tries;
    Added added = Added::kNot;
    if (!WithNumber(descriptor, number, [&, set = set_] { added = Add(set, number, id); }))
      continue;
    return added == Added::kNew ? number : -1;
  }
  return -1;
}

bool Descriptors::Watch(int descriptor, const SharedMemory::Place& memory) {
  const base::MutexLock lock(&mutex_);
  struct stat file;
  if (fstat(descriptor, &file) != 0) return false;
  if (watched_.size() == watched_.capacity()) watched_.reserve(2 * watched_.size() + 8);
  const uint64_t id = ++ids_;
  const int number = AddToSet(descriptor, id);
  watched_.push_back({id, descriptor, number, memory, file.st_dev, file.st_ino});
  count_.store(watched_.size());
  return true;
}

SharedMemory::Place Descriptors::Find(int descriptor) {
  if (count_.load() == 0) return {};
  const base::MutexLock lock(&mutex_);
  for (const Watched& one : watched_) {
    if (IsSame(one, descriptor)) return one.memory;
  }
  return {};
}

std::vector<SharedMemory::Place> Descriptors::TakeClosed() {
  std::vector<SharedMemory::Place> closed;
  if (count_.load() == 0) return closed;
  const base::MutexLock lock(&mutex_);
  closed.reserve(watched_.size());
  std::vector<uint64_t> members = MembersOf(set_);
  std::sort(members.begin(), members.end());
  // The program may have closed the set, or /proc may be missing.
  const bool right = !members.empty() && members.front() == 0;
  std::erase_if(watched_, [&](const Watched& one) {
    struct stat file;
    const bool open = one.number >= 0
                          ? !right || std::binary_search(members.begin(), members.end(), one.id)
                          : fstat(one.descriptor, &file) == 0 && file.st_dev == one.device &&
                                file.st_ino == one.inode;
    if (!open) closed.push_back(one.memory);
    return !open;
  });
  count_.store(watched_.size());
  look_at_.store(std::max<uint64_t>(64, 2 * watched_.size()));
  return closed;
}

}  // namespace gpushare::books
