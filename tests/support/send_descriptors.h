// SPDX-License-Identifier: Apache-2.0
// Sends a packet with any number of descriptors over a Unix socket, as a peer may that does not use ipc::Send().
#ifndef GPUSHARE_TESTS_SUPPORT_SEND_DESCRIPTORS_H_
#define GPUSHARE_TESTS_SUPPORT_SEND_DESCRIPTORS_H_

#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

namespace gpushare::testing {

// Whether all of the packet was sent.
inline bool SendWithDescriptors(int to, std::string_view packet, const std::vector<int>& fds) {
  const size_t bytes = fds.size() * sizeof(int);
  std::vector<char> control(CMSG_SPACE(bytes));
  iovec data{const_cast<char*>(packet.data()), packet.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const part = CMSG_FIRSTHDR(&header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(part), fds.data(), bytes);
  return sendmsg(to, &header, 0) == static_cast<ssize_t>(packet.size());
}

}  // namespace gpushare::testing

#endif  // GPUSHARE_TESTS_SUPPORT_SEND_DESCRIPTORS_H_
