// SPDX-License-Identifier: Apache-2.0
#include "ipc/page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

#ifndef MFD_NOEXEC_SEAL  // Linux 6.3
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace gpushare::ipc {
namespace {

constexpr int kBothSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kLimitsSeals = kBothSeals | F_SEAL_FUTURE_WRITE;

absl::StatusOr<base::UniqueFd> NewMemory(const char* name) {
  // A kernel that knows the flag complains when it is missing, one that does not when it is there.
  base::UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd.Reset(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return absl::ErrnoToStatus(errno, absl::StrCat("memfd_create ", name));
  if (ftruncate(fd.get(), kPageBytes) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("the size of ", name));
  }
  return fd;
}

absl::Status Seal(int fd, int seals) {
  if (fcntl(fd, F_ADD_SEALS, seals) == 0) return absl::OkStatus();
  if (errno == EINVAL) {
    return absl::UnimplementedError("a page that only the broker can write needs Linux 5.1");
  }
  return absl::ErrnoToStatus(errno, "F_ADD_SEALS");
}

template <typename Page>
absl::StatusOr<Mapped<Page>> Map(int fd) {
  const int access = std::is_const_v<Page> ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const address = mmap(nullptr, kPageBytes, access, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping a page");
  Mapped<Page> mapped(static_cast<Page*>(address));
  if (madvise(address, kPageBytes, MADV_DONTFORK) != 0) {
    return absl::ErrnoToStatus(errno, "MADV_DONTFORK");
  }
  return mapped;
}

// The same memory by a descriptor that cannot write; `fd` itself where there is no /proc, which the seal takes care of.
base::UniqueFd ReadOnly(base::UniqueFd fd) {
  base::UniqueFd reader(
      open(absl::StrCat("/proc/self/fd/", fd.get()).c_str(), O_RDONLY | O_CLOEXEC));
  return reader ? std::move(reader) : std::move(fd);
}

absl::Status CheckMemory(int fd, int seals) {
  struct stat found;
  if (fstat(fd, &found) != 0) return absl::ErrnoToStatus(errno, "a page's descriptor");
  const int has = fcntl(fd, F_GET_SEALS);
  if (has < 0) return absl::InvalidArgumentError("not a page: memory without seals");
  if ((has & seals) != seals) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a page: its seals are ", has, ", and ", seals, " are needed"));
  }
  if (found.st_size != static_cast<off_t>(kPageBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a page: ", static_cast<int64_t>(found.st_size), " bytes"));
  }
  return absl::OkStatus();
}

template <typename Page>
absl::StatusOr<Mapped<Page>> CheckAndMap(int fd, int seals, uint32_t magic) {
  GPUSHARE_RETURN_IF_ERROR(CheckMemory(fd, seals));
  GPUSHARE_ASSIGN_OR_RETURN(Mapped<Page> mapped, Map<Page>(fd));
  if (mapped->magic != magic) return absl::InvalidArgumentError("a page of another kind");
  if (mapped->version != kPageVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("a process and the broker are of different versions of gpushare (page ",
                     mapped->version, ", here ", kPageVersion, "): start anew whichever is older"));
  }
  return mapped;
}

}  // namespace

absl::StatusOr<NewPage<LimitsPage>> NewLimitsPage() {
  GPUSHARE_ASSIGN_OR_RETURN(base::UniqueFd fd, NewMemory("gpushare-limits"));
  GPUSHARE_ASSIGN_OR_RETURN(Mapped<LimitsPage> page, Map<LimitsPage>(fd.get()));
  new (page.get()) LimitsPage;
  // From here on nobody maps it for writing, by this descriptor or by another of the same memory.
  GPUSHARE_RETURN_IF_ERROR(Seal(fd.get(), kLimitsSeals));
  return NewPage<LimitsPage>{.page = std::move(page), .fd = ReadOnly(std::move(fd))};
}

absl::StatusOr<NewPage<const UsagePage>> NewUsagePage() {
  GPUSHARE_ASSIGN_OR_RETURN(base::UniqueFd fd, NewMemory("gpushare-usage"));
  {
    GPUSHARE_ASSIGN_OR_RETURN(const Mapped<UsagePage> page, Map<UsagePage>(fd.get()));
    new (page.get()) UsagePage;
  }
  GPUSHARE_RETURN_IF_ERROR(Seal(fd.get(), kBothSeals));
  GPUSHARE_ASSIGN_OR_RETURN(Mapped<const UsagePage> page, Map<const UsagePage>(fd.get()));
  return NewPage<const UsagePage>{.page = std::move(page), .fd = std::move(fd)};
}

absl::StatusOr<Mapped<const LimitsPage>> MapLimits(int fd) {
  return CheckAndMap<const LimitsPage>(fd, kLimitsSeals, kLimitsMagic);
}

absl::StatusOr<Mapped<UsagePage>> MapUsage(int fd) {
  return CheckAndMap<UsagePage>(fd, kBothSeals, kUsageMagic);
}

}  // namespace gpushare::ipc
