// SPDX-License-Identifier: Apache-2.0
// When a tenant of a scenario has work: its keys `mode`, `load`, `rate`, `arrivals`, `active`, `wait` and `goal`, and the arrivals
// and absences that follow from them.
//
//   for (yaml::Reader::Rule& rule : TimingRules(in, folder, &tenant)) rules.push_back(std::move(rule));
//   ...
//   std::vector<Nanos> arrivals = ArrivalsOf(tenant, scenario.length, random);
#ifndef GPUSHARE_HARNESS_TIMING_H_
#define GPUSHARE_HARNESS_TIMING_H_

#include <random>
#include <string>
#include <vector>

#include "harness/scenario.h"
#include "harness/stretch.h"
#include "player/player.h"
#include "yaml/reader.h"

namespace gpushare::harness {

// Paths of arrival traces are relative to `folder`, which ends with a slash.
std::vector<yaml::Reader::Rule> TimingRules(const yaml::Reader& in, const std::string& folder,
                                            Tenant* tenant);
// What is wrong with the combination of keys; empty if nothing is.
std::string CheckTiming(const Tenant& tenant);
// CheckTiming(), also against a run's length.
std::string CheckTiming(const Tenant& tenant, Nanos length);

// The average request rate while the tenant is active. For tenants that serve requests by `load` or `rate`.
double RequestsPerSecond(const Tenant& tenant);
// The expected number of requests in a run of this length. For tenants that serve requests and are active throughout.
double RequestsExpected(const Tenant& tenant, Nanos length);
// The arrivals of one tenant; consumes the random numbers that they need.
std::vector<Nanos> ArrivalsOf(const Tenant& tenant, Nanos length, std::mt19937_64& random);
// The absences of a tenant that does not serve requests.
std::vector<player::Absence> AbsencesOf(const Tenant& tenant, Nanos length);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_TIMING_H_
