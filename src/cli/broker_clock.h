// SPDX-License-Identifier: Apache-2.0
// The clock of simulated GPUs beside a broker.
#ifndef GPUSHARE_CLI_BROKER_CLOCK_H_
#define GPUSHARE_CLI_BROKER_CLOCK_H_

namespace gpushare::cli {

// A virtual clock is its process's own, or of those that share a simulated GPU by name: a broker and programs on clocks of
// their own would each wait by another time. From here on GPUSHARE_SIM says clock=wall, where it says nothing of either.
void SetClockBesideABroker();

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_CLOCK_H_
