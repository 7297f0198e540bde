// SPDX-License-Identifier: Apache-2.0
// Compiled together, see python/CMakeLists.txt.
#include "lease.cc"
#include "module.cc"
#include "placement.cc"
#include "runtime.cc"
#include "simulation.cc"
#include "snapshot.cc"
#include "spec.cc"
