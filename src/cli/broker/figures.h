// SPDX-License-Identifier: Apache-2.0
// Formats a broker's snapshot for table cells. Names come from other processes, so they are made printable.
#ifndef GPUSHARE_CLI_BROKER_FIGURES_H_
#define GPUSHARE_CLI_BROKER_FIGURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "broker/snapshot.h"

namespace gpushare::cli {

std::string MemoryCell(uint64_t bytes);  // "7.9 GiB"; "-" for UINT64_MAX, no limit
std::string ShareCell(double share);     // "12.5 %"
std::string SecondsCell(Nanos time);     // "90.0 s"
// A tenant's compute limits: "50 %, at most 80 %", "weight 2.5", "50 %, high".
std::string AskedCell(const broker::Share& share);
std::string StateCell(const broker::Share& share);  // "", "suspended", "draining", both
std::string StateCell(const broker::ProcessShare& process);
// The shares of a GPU, each followed by those of its children.
std::vector<const broker::Share*> InFamilies(const broker::Snapshot& snapshot,
                                             const std::string& gpu);
// The tenant's name, indented if it has a parent.
std::string TenantCell(const broker::Share& share);
std::string NameCell(const std::string& name);
// The program without the folders of its files.
std::string ProgramCell(const std::string& program);
std::string PidCell(
    const broker::ProcessShare& process);  // "?" if the pid is not visible to the broker
// "GPU-...: 8 GiB of 140 GiB promised, 50 % guaranteed"
std::string GpuLine(const broker::GpuState& gpu);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_FIGURES_H_
