// SPDX-License-Identifier: Apache-2.0
// Makes a system call fail with EPERM, like the seccomp filter of a container. This cannot be undone, so use it in a forked child.
#ifndef GPUSHARE_TESTS_SUPPORT_FORBIDDEN_CALL_H_
#define GPUSHARE_TESTS_SUPPORT_FORBIDDEN_CALL_H_

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace gpushare::testing {

// Applies to the calling thread and the threads that it starts later. False: the machine does not support filters.
inline bool Forbid(uint32_t call) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {.len = std::size(code), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace gpushare::testing

#endif  // GPUSHARE_TESTS_SUPPORT_FORBIDDEN_CALL_H_
