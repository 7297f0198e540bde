// SPDX-License-Identifier: Apache-2.0
// What limits a program got, and by which variable: a line in the file that GPUSHARE_LOG names, of each process and GPU.
//
//   {"event":"share","pid":4242,"gpu":0,"memory":3221225472,
//    "limits":[{"key":"memory","value":"3GiB","variable":"ALIYUN_COM_GPU_MEM_CONTAINER"}],"overridden":[]}
//
// docs/shim.md lists the fields. The program does not hear of it: nothing stays open, no standard stream is written to, and
// what cannot be written is left out.
#ifndef GPUSHARE_SHIM_SHARE_LOG_H_
#define GPUSHARE_SHIM_SHARE_LOG_H_

#include <cstdint>
#include <optional>
#include <string>

namespace gpushare::shim {

struct LoggedShare {
  int ordinal = 0;
  std::optional<uint64_t> memory;  // the quota in force; none: it has none
  std::string broker, tenant;      // empty: there is no broker
};

// The line, by what the environment says now.
std::string ShareLine(const LoggedShare& share);
// Appends it to the file that GPUSHARE_LOG names, if it does.
void LogShare(const LoggedShare& share);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_SHARE_LOG_H_
