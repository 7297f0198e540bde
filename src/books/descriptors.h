// SPDX-License-Identifier: Apache-2.0
// File descriptors that stand for memory, watched without being kept open: the memory stays the device's until the
// last copy of one is closed, in whichever process.
//
// A file that is added to an epoll set is in it until the file itself is closed, and is not kept by it; the set's
// entry in /proc says which are left. Of a file that no epoll set takes, only the descriptor that the program was
// given is looked at.
#ifndef GPUSHARE_BOOKS_DESCRIPTORS_H_
#define GPUSHARE_BOOKS_DESCRIPTORS_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/sync.h"
#include "books/shared_memory.h"

namespace gpushare::books {

// Thread-safe. Makes system calls and calls nobody.
class Descriptors {
 public:
  Descriptors() = default;
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  // The descriptor stands for `memory`. False: it is none.
  bool Watch(int descriptor, const SharedMemory::Place& memory);
  // What a descriptor, or a copy of one, stands for; a place that is none: nothing that is known here.
  SharedMemory::Place Find(int descriptor);
  // What every descriptor of which is closed, one for each Watch().
  std::vector<SharedMemory::Place> TakeClosed();
  // Time to look, lest the list of what is closed grow for ever.
  bool many() const { return count_.load() >= look_at_.load(); }

 private:
  struct Watched {
    uint64_t id;
    int descriptor;
    int number;  // in the set; -1: not there, and what it was is compared
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
      -1;  // a member of the set that is never closed: that it is read right
  uint64_t ids_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Watched> watched_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> count_{0}, look_at_{64};
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_DESCRIPTORS_H_
