// SPDX-License-Identifier: Apache-2.0
// Watches file descriptors that stand for memory, without keeping them open. The device holds the memory until the last copy of
// such a descriptor is closed, in any process.
//
// A file in an epoll set stays in it until the file itself is closed, and the set does not keep it open. The set's entry in
// /proc shows which files are left. If a file cannot be added to an epoll set, only the descriptor that the program received is
// checked.
#ifndef GPUSHARE_BOOKS_DESCRIPTORS_H_
#define GPUSHARE_BOOKS_DESCRIPTORS_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/sync.h"
#include "books/shared_memory.h"

namespace gpushare::books {

// Thread-safe. Makes only system calls; runs no callbacks.
class Descriptors {
 public:
  Descriptors() = default;
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  // Watches a descriptor that stands for `memory`. False if it is not an open descriptor.
  bool Watch(int descriptor, const SharedMemory::Place& memory);
  // The memory that a descriptor, or a copy of one, stands for; an empty place if it is unknown.
  SharedMemory::Place Find(int descriptor);
  // The memory whose descriptors are all closed: one entry for each Watch().
  std::vector<SharedMemory::Place> TakeClosed();
  // Whether TakeClosed() is due, so that the list of closed descriptors does not grow without bound.
  bool many() const { return count_.load() >= look_at_.load(); }

 private:
  struct Watched {
    uint64_t id;
    int descriptor;
    int number;  // the file's descriptor number in the set; -1 if it is not in the set and only its inode is compared
    SharedMemory::Place memory;
    dev_t device;
    ino_t inode;
  };
  bool Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int AddToSet(int descriptor, uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsSame(const Watched& watched, int descriptor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  base::Mutex mutex_;
  int set_ ABSL_GUARDED_BY(mutex_) = -1;
  int always_ ABSL_GUARDED_BY(mutex_) =
      -1;  // a member that is never closed, to verify that the set is read correctly
  uint64_t ids_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Watched> watched_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> count_{0}, look_at_{64};
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_DESCRIPTORS_H_
