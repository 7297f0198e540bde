// SPDX-License-Identifier: Apache-2.0
// Which sources this gpushare was built from, for results that say so.
#ifndef GPUSHARE_CLI_BENCH_COMMIT_H_
#define GPUSHARE_CLI_BENCH_COMMIT_H_

namespace gpushare::cli {

// The begin of the commit's name, with "-dirty" where they had been changed since; "unknown": they were in no checkout.
// Written by cmake/GpushareCommit.cmake.
const char* BuiltFromCommit();

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_COMMIT_H_
