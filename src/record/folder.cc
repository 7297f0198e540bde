// SPDX-License-Identifier: Apache-2.0
#include "record/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"

namespace gpushare::record {
namespace {

constexpr char kOrders[] = "/orders";

std::string TextOf(const char* bytes, size_t most) {
  return std::string(bytes, strnlen(bytes, most));
}

// nullopt if the page is incomplete.
std::optional<Recorded> ReadPage(const std::string& path) {
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat about;
  if (!fd || fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      about.st_size != static_cast<off_t>(sizeof(Page))) {
    return std::nullopt;
  }
  // Read instead of mapped, since the file may be truncated at any time.
  alignas(Page) char bytes[sizeof(Page)];
  if (pread(fd.get(), bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
    return std::nullopt;
  }
  const auto* const page = reinterpret_cast<const Page*>(bytes);
  Recorded one;
  const bool whole = page->mark == Page::kMark;
  one.program = TextOf(page->program, sizeof(page->program));
  one.note = TextOf(page->note, sizeof(page->note));
  one.pid = page->pid;
  one.began_ns = page->began_ns;
  one.state = page->state.load(std::memory_order_acquire);
  one.how = page->how.load(std::memory_order_relaxed);
  one.error = page->error.load(std::memory_order_relaxed);
  one.kernels = page->kernels.load(std::memory_order_relaxed);
  one.skipped = page->skipped.load(std::memory_order_relaxed);
  one.graphs = page->graphs.load(std::memory_order_relaxed);
  one.captured = page->captured.load(std::memory_order_relaxed);
  one.unmeasured = page->unmeasured.load(std::memory_order_relaxed);
  one.late = page->late.load(std::memory_order_relaxed);
  one.together = page->together.load(std::memory_order_relaxed);
  one.device_ns = page->device_ns.load(std::memory_order_relaxed);
  one.bias_ns = page->bias_ns.load(std::memory_order_relaxed);
  if (!whole) return std::nullopt;
  one.rows = path.substr(0, path.size() - strlen(kPageSuffix)) + kRowsSuffix;
  struct stat rows;
  if (lstat(one.rows.c_str(), &rows) != 0 || !S_ISREG(rows.st_mode)) return std::nullopt;
  return one;
}

}  // namespace

absl::Status WriteOrders(const std::string& folder, const Orders& orders) {
  const std::string path = folder + kOrders;
  const base::UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return absl::ErrnoToStatus(errno, path);
  errno = EIO;
  if (write(fd.get(), &orders, sizeof(orders)) != static_cast<ssize_t>(sizeof(orders))) {
    return absl::ErrnoToStatus(errno, path);
  }
  return absl::OkStatus();
}

absl::StatusOr<Orders> ReadOrders(const std::string& folder) {
  const std::string path = folder + kOrders;
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return absl::ErrnoToStatus(errno, path);
  Orders orders;
  char more;
  if (read(fd.get(), &orders, sizeof(orders)) != static_cast<ssize_t>(sizeof(orders)) ||
      read(fd.get(), &more, 1) != 0 || orders.mark != Orders::kMark) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " was not written by this version's `gpushare bench record`"));
  }
  orders.kernels = std::clamp<uint64_t>(orders.kernels, 1, kMostKernels);
  return orders;
}

absl::StatusOr<std::vector<Recorded>> ReadFolder(const std::string& folder) {
  const auto close = [](DIR* open) { closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> listing(opendir(folder.c_str()), close);
  if (listing == nullptr) return absl::ErrnoToStatus(errno, folder);
  std::vector<Recorded> recorded;
  while (const dirent* const entry = readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (!absl::EndsWith(name, kPageSuffix)) continue;
    std::optional<Recorded> one = ReadPage(absl::StrCat(folder, "/", name));
    if (one.has_value()) recorded.push_back(*std::move(one));
  }
  std::sort(recorded.begin(), recorded.end(), [](const Recorded& a, const Recorded& b) {
    return std::tie(a.began_ns, a.rows) < std::tie(b.began_ns, b.rows);
  });
  return recorded;
}

}  // namespace gpushare::record
