// SPDX-License-Identifier: Apache-2.0
// Somebody else's program that ends with the harness:
//
//   with_parent PARENT COMMAND [ARGUMENT]...
//
// COMMAND is looked for on the PATH. What the kernel was told of its parent's end holds for what this process becomes.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "harness/stage/parent.h"

int main(int argc, char** argv) {
  if (argc < 3 || !gpushare::harness::EndWithParent(argv[1])) return 2;
  execvp(argv[2], argv + 2);
  std::fprintf(stderr, "%s: %s\n", argv[2], std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
  return 127;
}
