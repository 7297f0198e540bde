// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <new>

#include "cli/command.h"

int main(int argc, char** argv) {
  try {
    return gpushare::cli::RunCommand(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("gpushare: the host has no memory left for this\n", stderr);
    return gpushare::cli::kExitFailed;
  }
}
