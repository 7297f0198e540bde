// SPDX-License-Identifier: Apache-2.0
// A forked child that runs one check and reports the result with its exit status.
#ifndef GPUSHARE_TESTS_UNIT_IPC_CHILD_H_
#define GPUSHARE_TESTS_UNIT_IPC_CHILD_H_

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace gpushare::ipc {

class Child {
 public:
  explicit Child(const std::function<bool()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body() ? 0 : 1);
  }
  ~Child() { Wait(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Waits for the child to end. Returns whether its check passed.
  bool Wait() {
    if (pid_ <= 0) return right_;
    int status = 0;
    right_ = waitpid(pid_, &status, 0) == pid_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    pid_ = 0;
    return right_;
  }

 private:
  pid_t pid_;
  bool right_ = false;
};

}  // namespace gpushare::ipc

#endif  // GPUSHARE_TESTS_UNIT_IPC_CHILD_H_
