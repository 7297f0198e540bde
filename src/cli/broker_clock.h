// SPDX-License-Identifier: Apache-2.0
// Sets the clock of simulated GPUs that are used with a broker.
#ifndef GPUSHARE_CLI_BROKER_CLOCK_H_
#define GPUSHARE_CLI_BROKER_CLOCK_H_

namespace gpushare::cli {

// A virtual clock belongs to one process, or to the processes that share a simulated GPU by name. A broker and programs with
// different clocks could not wait for each other, so this adds clock=wall to GPUSHARE_SIM unless it sets `clock` or `shared`.
void SetClockBesideABroker();

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_CLOCK_H_
