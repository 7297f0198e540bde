// SPDX-License-Identifier: Apache-2.0
#include "books/descriptors.h"

#include <linux/kcmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace gpushare::books {
namespace {

enum class Added { kNew, kThere, kNot };

Added Add(int set, int descriptor, uint64_t id) {
  epoll_event event{};
  event.data.u64 = id;
  if (epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0) return Added::kNew;
  return errno == EEXIST ? Added::kThere : Added::kNot;
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
  set_ = epoll_create1(EPOLL_CLOEXEC);
  always_ = eventfd(0, EFD_CLOEXEC);
  return set_ >= 0 && Add(set_, always_, 0) == Added::kNew;
}

// In a set a file is named by its number, too. Files that had one number after the other are not told apart: then it
// is nothing that is known.
bool Descriptors::IsSame(const Watched& watched, int descriptor) const {
  struct stat file;
  if (fstat(descriptor, &file) != 0 || file.st_dev != watched.device ||
      file.st_ino != watched.inode) {
    return false;
  }
  if (!watched.in_set) return true;
  if (std::count_if(watched_.begin(), watched_.end(), [&](const Watched& other) {
        return other.in_set && other.descriptor == watched.descriptor;
      }) != 1) {
    return false;
  }
  if (watched.descriptor == descriptor) {
    const Added added = Add(set_, descriptor, UINT64_MAX);
    if (added == Added::kNew) epoll_ctl(set_, EPOLL_CTL_DEL, descriptor, nullptr);
    return added == Added::kThere;
  }
  const pid_t self = getpid();
  kcmp_epoll_slot slot{.efd = static_cast<uint32_t>(set_),
                       .tfd = static_cast<uint32_t>(watched.descriptor),
                       .toff = 0};
  return syscall(SYS_kcmp, self, self, KCMP_EPOLL_TFD, descriptor, &slot) == 0;
}

bool Descriptors::Watch(int descriptor, const SharedMemory::Place& memory) {
  const base::MutexLock lock(&mutex_);
  struct stat file;
  if (fstat(descriptor, &file) != 0) return false;
  const uint64_t id = ++ids_;
  const bool in_set = Open() && Add(set_, descriptor, id) == Added::kNew;
  watched_.push_back({id, descriptor, memory, in_set, file.st_dev, file.st_ino});
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
  std::vector<uint64_t> members = MembersOf(set_);
  std::sort(members.begin(), members.end());
  // Somebody may have closed the set, or /proc may not be there.
  const bool right = !members.empty() && members.front() == 0;
  std::erase_if(watched_, [&](const Watched& one) {
    struct stat file;
    const bool open = one.in_set
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
