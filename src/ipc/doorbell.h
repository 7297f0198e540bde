// SPDX-License-Identifier: Apache-2.0
// Lets a process tell the broker to look at its pages: an eventfd that the broker created and polls.
//
//   GPUSHARE_ASSIGN_OR_RETURN(Doorbell bell, Doorbell::Create());   // the broker's; what is sent is bell.fd()
//   ... poll bell.fd() for changes alone (EPOLLET) ...              // and never read it, see Answer()
//
//   GPUSHARE_ASSIGN_OR_RETURN(Doorbell bell, Doorbell::Of(std::move(fd)));   // the process's
//   bell.Ring();
//
// Threading: thread-safe.
#ifndef GPUSHARE_IPC_DOORBELL_H_
#define GPUSHARE_IPC_DOORBELL_H_

#include <utility>

#include "absl/status/statusor.h"
#include "base/host_fd.h"
#include "base/unique_fd.h"

namespace gpushare::ipc {

class Doorbell {
 public:
  static absl::StatusOr<Doorbell> Create();
  // InvalidArgument: `fd` is not an eventfd; writing to something else might block.
  static absl::StatusOr<Doorbell> Of(base::UniqueFd fd);

  int fd() const { return fd_.get(); }
  // Nothing, if the program has closed the descriptor or put another file in its place.
  void Ring() const;
  // Whether it was rung since the last call. Do not use it on a doorbell that was sent to another process: both ends are one
  // open file, so the peer can make it blocking.
  bool Answer() const;

 private:
  explicit Doorbell(base::HostFd fd) : fd_(std::move(fd)) {}

  base::HostFd fd_;
};

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_DOORBELL_H_
