// SPDX-License-Identifier: Apache-2.0
// The GPU that `gpushare bench --gpu` names, when it is not the simulated one.
#ifndef GPUSHARE_CLI_BENCH_CARD_H_
#define GPUSHARE_CLI_BENCH_CARD_H_

#include <string>

#include "absl/status/statusor.h"
#include "harness/run.h"

namespace gpushare::cli {

struct FoundCard {
  harness::Card card;
  std::string name;    // "NVIDIA H200"
  std::string driver;  // "550.54.15, CUDA 12.4"; of a simulated one that is said
  std::string
      clocks;  // "SM 1980 of 1980 MHz, memory 2619 of 2619 MHz, 41 C, 119 W"; what NVML says of it
};

// Whether it is of the form of an ordinal, a UUID or a PCI id.
bool NamesCard(const std::string& name);

// By a driver that the loader finds, or GPUSHARE_DRIVER names. It is looked at as it is: no context is made, and none of its
// settings changed. Unavailable, NotFound: there is none, or not that one; what to do.
absl::StatusOr<FoundCard> FindCard(const std::string& name);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_CARD_H_
