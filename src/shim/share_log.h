// SPDX-License-Identifier: Apache-2.0
// Logs which limits a program got from which variable: one line for each process and GPU in the file that GPUSHARE_LOG names.
//
//   {"event":"share","pid":4242,"gpu":0,"memory":3221225472,
//    "limits":[{"key":"memory","value":"3GiB","variable":"ALIYUN_COM_GPU_MEM_CONTAINER"}],"overridden":[]}
//
// And why a program got no share, of which the program only hears a code:
//
//   {"event":"refused","pid":4242,"gpu":null,"why":"CUDA_DEVICE_MEMORY_LIMIT: '1x' given; allowed: as in 1g, 1024m or 1048576k, or bytes"}
//
// docs/shim.md lists the fields. The program does not notice: no file stays open, no standard stream is written to, and a
// line that cannot be written is dropped.
#ifndef GPUSHARE_SHIM_SHARE_LOG_H_
#define GPUSHARE_SHIM_SHARE_LOG_H_

#include <cstdint>
#include <optional>
#include <string>

namespace gpushare::shim {

struct LoggedShare {
  int ordinal = 0;
  std::optional<uint64_t> memory;  // the quota in force, if any
  std::string broker, tenant;      // empty if there is no broker
};

// The line, built from the current environment.
std::string ShareLine(const LoggedShare& share);
// Appends the line to the file that GPUSHARE_LOG names, if it is set.
void LogShare(const LoggedShare& share);
// Likewise. `ordinal`: the GPU; none: the program got no driver at all.
void LogRefusal(std::optional<int> ordinal, const std::string& why);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_SHARE_LOG_H_
