// SPDX-License-Identifier: Apache-2.0
#include "sim/processes/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpushare::sim {
namespace {

// The folder for this user's devices, to which only this user may write. Empty on failure, with the reason in `error`.
std::string Folder(std::string* error) {
  struct stat found;
  const char* const base = stat("/dev/shm", &found) == 0 && S_ISDIR(found.st_mode) &&
                                   access("/dev/shm", W_OK | X_OK) == 0
                               ? "/dev/shm"
                               : "/tmp";
  const std::string folder = std::string(base) + "/gpushare-sim-" + std::to_string(geteuid());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    *error = folder + ": " + std::strerror(errno);
    return std::string();
  }
  if (lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & 077) != 0) {
    *error = folder + " is not a folder of this user's alone (owner, mode 0700)";
    return std::string();
  }
  return folder;
}

}  // namespace

SharedFile::~SharedFile() { Close(); }

void SharedFile::Close() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

bool SharedFile::LockBytes(uint64_t from, uint64_t count, short type, bool wait) const {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(from);
  lock.l_len = static_cast<off_t>(count);
  while (fcntl(descriptor_, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

std::string SharedFile::OpenLocked(const std::string& name) {
  std::string error;
  const std::string folder = Folder(&error);
  if (!error.empty()) return error;
  path_ = folder + "/" + name;
  for (;;) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (descriptor_ < 0) return path_ + ": " + std::strerror(errno);
    Lock();
    // The last user of the file may have removed it after we opened it and before we locked it.
    struct stat opened, named;
    if (fstat(descriptor_, &opened) == 0 && stat(path_.c_str(), &named) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
      if (S_ISREG(opened.st_mode) && opened.st_uid == geteuid()) return std::string();
      Unlock();
      return path_ + " is not a file of this user's";
    }
    Unlock();
    close(descriptor_);
  }
}

void* SharedFile::Map(uint64_t bytes) {
  struct stat opened;
  if (fstat(descriptor_, &opened) != 0) return nullptr;
  const auto size = static_cast<off_t>(bytes);
  // A file that no process uses is a leftover, perhaps of another version.
  if (opened.st_size != size && opened.st_size != 0 && IsClaimed(0, kClaims)) return nullptr;
  if (opened.st_size != size &&
      (ftruncate(descriptor_, 0) != 0 || ftruncate(descriptor_, size) != 0)) {
    return nullptr;
  }
  // Reserves the pages now: if a later write found no room, it would end the process.
  if (posix_fallocate(descriptor_, 0, size) == ENOSPC) return nullptr;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

void SharedFile::Lock() {
  threads_.lock();
  if (!LockBytes(0, 1, F_WRLCK, /*wait=*/true)) lost_.store(true);
}

void SharedFile::Unlock() {
  LockBytes(0, 1, F_UNLCK, /*wait=*/false);
  threads_.unlock();
}

bool SharedFile::Claim(uint32_t number) {
  return LockBytes(uint64_t{1} + number, 1, F_WRLCK, /*wait=*/false);
}

void SharedFile::Disclaim(uint32_t number) {
  LockBytes(uint64_t{1} + number, 1, F_UNLCK, /*wait=*/false);
}

bool SharedFile::IsClaimed(uint32_t number, uint32_t count) const {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = off_t{1} + number;
  lock.l_len = count;
  // If the kernel does not answer, the process counts as alive.
  return fcntl(descriptor_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool SharedFile::Is(const struct stat& other) const {
  struct stat own;
  return Look(&own) && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

bool SharedFile::Look(struct stat* own) const { return fstat(descriptor_, own) == 0; }

void SharedFile::Remove() {
  struct stat named;
  if (stat(path_.c_str(), &named) == 0 && Is(named)) unlink(path_.c_str());
}

bool SharedFile::RemoveUnused(const std::string& name) {
  std::string error;
  const std::string folder = Folder(&error);
  if (!error.empty() || access((folder + "/" + name).c_str(), F_OK) != 0) return false;
  SharedFile file;
  if (!file.OpenLocked(name).empty()) return false;
  const bool unused = !file.IsClaimed(0, kClaims);
  if (unused) file.Remove();
  file.Unlock();
  return unused;
}

}  // namespace gpushare::sim
