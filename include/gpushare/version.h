// SPDX-License-Identifier: Apache-2.0
// The only place where the version is written; CMake and the Python package read it from here.
#ifndef GPUSHARE_VERSION_H_
#define GPUSHARE_VERSION_H_

#define GPUSHARE_VERSION_MAJOR 0
#define GPUSHARE_VERSION_MINOR 1
#define GPUSHARE_VERSION_PATCH 0
#define GPUSHARE_VERSION_STRING "0.1.0"

#endif  // GPUSHARE_VERSION_H_
