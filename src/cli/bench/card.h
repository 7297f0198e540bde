// SPDX-License-Identifier: Apache-2.0
// Finds the real GPU that `gpushare bench --gpu` names.
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

// Whether `name` has the form of an ordinal, a UUID or a PCI id.
bool NamesCard(const std::string& name);

// Uses the driver that the loader finds or GPUSHARE_DRIVER names. Creates no context and changes no settings of the GPU.
// Unavailable, NotFound: there is no GPU, or no such GPU, and what to do.
absl::StatusOr<FoundCard> FindCard(const std::string& name);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_CARD_H_
