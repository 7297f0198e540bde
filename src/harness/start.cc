// SPDX-License-Identifier: Apache-2.0
#include "harness/start.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace gpushare::harness {

absl::Status StartLine::Make(const std::string& path) {
  const base::UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return absl::ErrnoToStatus(errno, path);
  // Takes the room now: on a full disk a program that touched a page without room would be ended by SIGBUS.
  const int error = posix_fallocate(file.get(), 0, sizeof(Page));
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, path);
}

absl::StatusOr<StartLine> StartLine::Open(const std::string& path) {
  const base::UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return absl::ErrnoToStatus(errno, path);
  void* const there =
      mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (there == MAP_FAILED) return absl::ErrnoToStatus(errno, path);
  return StartLine(std::shared_ptr<Page>(static_cast<Page*>(there),
                                         [](Page* page) { munmap(page, sizeof(Page)); }));
}

void StartLine::Ready(Time now) {
  const int64_t mine = now.time_since_epoch().count();
  int64_t last = page_->last_ns.load(std::memory_order_relaxed);
  while (last < mine && !page_->last_ns.compare_exchange_weak(last, mine)) {
  }
  page_->ready.fetch_add(1, std::memory_order_acq_rel);
}

std::optional<Time> StartLine::begins(uint32_t parties) const {
  if (page_->ready.load(std::memory_order_acquire) < parties) return std::nullopt;
  return Time(Nanos(page_->last_ns.load(std::memory_order_relaxed))) + kAfterTheLast;
}

}  // namespace gpushare::harness
