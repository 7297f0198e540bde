// SPDX-License-Identifier: Apache-2.0
// A path as a socket's address: those too long for one go through a descriptor of their folder.
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
  base::UniqueFd folder;  // what `name` goes through, if it is not the path itself

  // InvalidArgument: it is empty, has a NUL, or its last name is too long.
  static absl::StatusOr<Address> Of(const std::string& path);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
  static constexpr socklen_t kSize = sizeof(sockaddr_un);
};

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_ADDRESS_H_
