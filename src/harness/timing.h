// SPDX-License-Identifier: Apache-2.0
// When a tenant of a scenario has work: its keys `mode`, `load`, `rate`, `arrivals`, `active`, `wait` and `goal`, and what
// comes of them.
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

// `folder`, with its slash: relative to which traces of arrivals are looked for.
std::vector<yaml::Reader::Rule> TimingRules(const yaml::Reader& in, const std::string& folder,
                                            Tenant* tenant);
// What is wrong with them together; empty: nothing.
std::string CheckTiming(const Tenant& tenant);
// The same with a run's length.
std::string CheckTiming(const Tenant& tenant, Nanos length);

// Of one that serves requests by a load or a rate, on average while it is active.
double RequestsPerSecond(const Tenant& tenant);
// Of one that serves requests, in a run of that length in which it is active throughout.
double RequestsExpected(const Tenant& tenant, Nanos length);
// Takes as many random numbers as these are of one tenant.
std::vector<Nanos> ArrivalsOf(const Tenant& tenant, Nanos length, std::mt19937_64& random);
// Of one that launches by itself.
std::vector<player::Absence> AbsencesOf(const Tenant& tenant, Nanos length);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_TIMING_H_
