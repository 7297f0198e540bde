// SPDX-License-Identifier: Apache-2.0
// Compiled together, see python/CMakeLists.txt.
#include "allocator.cc"
#include "amount.cc"
#include "arguments.cc"
#include "buffer.cc"
#include "clock_thread.cc"
#include "copy.cc"
