// SPDX-License-Identifier: Apache-2.0
#include "ipc/address.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace gpushare::ipc {
namespace {

// Behind the longest /proc/self/fd/N/ it still fits into an address.
constexpr size_t kMostFile = 80;

}  // namespace

absl::StatusOr<Address> Address::Of(const std::string& path) {
  if (path.empty() || HasZeroByte(path)) {
    return absl::InvalidArgumentError("a socket's path is empty or has a NUL in it");
  }
  Address address;
  address.name.sun_family = AF_UNIX;
  std::string shown = path;
  if (path.size() >= sizeof(address.name.sun_path)) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
    if (file.size() > kMostFile) {
      return absl::InvalidArgumentError(absl::StrCat("the socket's name ", Quoted(file), " has ",
                                                     file.size(), " bytes; ", kMostFile,
                                                     " are the most"));
    }
    address.folder.Reset(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.folder) return absl::ErrnoToStatus(errno, Quoted(folder));
    shown = absl::StrCat("/proc/self/fd/", address.folder.get(), "/", file);
  }
  std::memcpy(address.name.sun_path, shown.data(), shown.size());
  return address;
}

}  // namespace gpushare::ipc
