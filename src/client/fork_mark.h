// SPDX-License-Identifier: Apache-2.0
// Tells whether this process is a forked child of the one that made the mark. The mark is a page that the kernel clears in
// a child, however it was forked.
//
// Threading: thread-safe.
#ifndef GPUSHARE_CLIENT_FORK_MARK_H_
#define GPUSHARE_CLIENT_FORK_MARK_H_

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpushare::client {

class ForkMark {
 public:
  static absl::StatusOr<ForkMark> Create() {
    void* const page =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return absl::ErrnoToStatus(errno, "a page");
    ForkMark mark(new (page) std::atomic<bool>(true));
    if (madvise(page, kBytes, MADV_WIPEONFORK) != 0) {
      return absl::ErrnoToStatus(errno, "MADV_WIPEONFORK");
    }
    return mark;
  }
  ForkMark(ForkMark&& other) noexcept : here_(std::exchange(other.here_, nullptr)) {}
  ForkMark& operator=(ForkMark&&) = delete;
  ~ForkMark() {
    if (here_ != nullptr) munmap(here_, kBytes);
  }

  bool InChild() const { return !here_->load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kBytes = 4096;
  explicit ForkMark(std::atomic<bool>* here) : here_(here) {}

  std::atomic<bool>* here_;
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_FORK_MARK_H_
