// SPDX-License-Identifier: Apache-2.0
// Compiled together, see python/CMakeLists.txt.
#include "stream.cc"
#include "tenant.cc"
#include "torch.cc"
#include "trace.cc"
#include "virtual_device.cc"
#include "wait.cc"
#include "watchdog.cc"
