// SPDX-License-Identifier: Apache-2.0
// Compiled together, see python/CMakeLists.txt.
#include "dlpack.cc"
#include "dtype.cc"
#include "errors.cc"
#include "event.cc"
#include "gang.cc"
#include "gpu.cc"
#include "kernel.cc"
