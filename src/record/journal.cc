// SPDX-License-Identifier: Apache-2.0
#include "record/journal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/fd_io.h"
#include "base/status_macros.h"
#include "record/folder.h"
#include "record/row.h"

namespace gpushare::record {
namespace {

// The most programs that one process may become by exec; each begins a recording of its own.
constexpr int kMostPrograms = 1000;

std::string OwnProgram() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string whole(path, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return whole.substr(whole.rfind('/') + 1);
}

// Allocates the file's blocks at once: a write through the mapping to a full disk would kill the process (SIGBUS).
absl::StatusOr<Page*> MakePage(int fd, const std::string& path) {
  if (const int error = posix_fallocate(fd, 0, sizeof(Page)); error != 0) {
    return absl::ErrnoToStatus(error, path);
  }
  void* const at = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return absl::ErrnoToStatus(errno, path);
  auto* const page = static_cast<Page*>(at);  // zeroed
  page->pid = getpid();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  page->began_ns = now.tv_sec * 1'000'000'000 + now.tv_nsec;
  const std::string program = OwnProgram();
  program.copy(page->program, sizeof(page->program) - 1);
  page->mark = Page::kMark;
  return page;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Begin(const std::string& folder) {
  GPUSHARE_ASSIGN_OR_RETURN(const Orders orders, ReadOrders(folder));
  for (int program = 1; program <= kMostPrograms; ++program) {
    const std::string path = absl::StrCat(folder, "/", getpid(), "-", program);
    const std::string page_path = path + kPageSuffix, rows_path = path + kRowsSuffix;
    base::UniqueFd rows(open(rows_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!rows && errno == EEXIST) continue;
    if (!rows) return absl::ErrnoToStatus(errno, rows_path);
    if (const int error = base::WriteAll(rows.get(), kHeader); error != 0) {
      return absl::ErrnoToStatus(error, rows_path);
    }
    const base::UniqueFd fd(open(page_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) return absl::ErrnoToStatus(errno, page_path);
    GPUSHARE_ASSIGN_OR_RETURN(Page* const page, MakePage(fd.get(), page_path));
    std::unique_ptr<Journal> journal(new Journal(orders, std::move(rows), page));
    journal->length_ = static_cast<int64_t>(strlen(kHeader));
    return journal;
  }
  return absl::ResourceExhaustedError(absl::StrCat(folder, ": this process was too many programs"));
}

Journal::~Journal() { munmap(page_, sizeof(Page)); }

bool Journal::Append(std::string_view name, uint64_t sms, Nanos duration) {
  if (!recording()) return false;
  const std::string row = RowOf(name, sms, duration);
  if (const int error = base::WriteAll(rows_.get(), row); error != 0) {
    // Removes the partial line. If that fails too, readers ignore the line.
    static_cast<void>(ftruncate(rows_.get(), length_) == 0);
    page_->error.store(error, std::memory_order_relaxed);
    page_->state.store(State::kFailed, std::memory_order_release);
    return false;
  }
  length_ += static_cast<int64_t>(row.size());
  page_->device_ns.fetch_add(std::clamp(duration, Nanos(1), kLongest).count(),
                             std::memory_order_relaxed);
  if (page_->kernels.fetch_add(1, std::memory_order_relaxed) + 1 >= orders_.kernels) End();
  return true;
}

}  // namespace gpushare::record
