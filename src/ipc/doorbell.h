// SPDX-License-Identifier: Apache-2.0
// How a process calls the broker to its pages: an eventfd that the broker made, and polls.
//
//   GPUSHARE_ASSIGN_OR_RETURN(Doorbell bell, Doorbell::Create());   // the broker's; what is sent is bell.fd()
//   if (bell.Answer()) ...                                          // it was rung since the last time
//
//   GPUSHARE_ASSIGN_OR_RETURN(Doorbell bell, Doorbell::Of(std::move(fd)));   // the process's
//   bell.Ring();
//
// Neither call ever blocks. Threading: thread-safe.
#ifndef GPUSHARE_IPC_DOORBELL_H_
#define GPUSHARE_IPC_DOORBELL_H_

#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace gpushare::ipc {

class Doorbell {
 public:
  static absl::StatusOr<Doorbell> Create();
  // InvalidArgument: it is something else, which might block who writes to it.
  static absl::StatusOr<Doorbell> Of(base::UniqueFd fd);

  int fd() const { return fd_.get(); }
  void Ring() const;
  bool Answer() const;

 private:
  explicit Doorbell(base::UniqueFd fd) : fd_(std::move(fd)) {}

  base::UniqueFd fd_;
};

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_DOORBELL_H_
