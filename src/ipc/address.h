// SPDX-License-Identifier: Apache-2.0
// A file path as a Unix socket's address. A path that is too long for one is reached through a descriptor of its folder.
#ifndef GPUSHARE_IPC_ADDRESS_H_
#define GPUSHARE_IPC_ADDRESS_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace gpushare::ipc {

struct Address {
  sockaddr_un name{};
  base::UniqueFd folder;  // keeps `name` valid if it goes through a descriptor; else empty

  // InvalidArgument: `path` is empty, contains a NUL, or its last component is too long.
  static absl::StatusOr<Address> Of(const std::string& path);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
  static constexpr socklen_t kSize = sizeof(sockaddr_un);
};

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_ADDRESS_H_
