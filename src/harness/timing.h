// SPDX-License-Identifier: Apache-2.0
// When a tenant of a scenario has work: its keys `mode`, `load`, `rate`, `arrivals`, `active`, `wait` and `goal`, and what
// comes of them.
//
//   for (yaml::Reader::Rule& rule : TimingRules(in, &tenant)) rules.push_back(std::move(rule));
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

std::vector<yaml::Reader::Rule> TimingRules(const yaml::Reader& in, Tenant* tenant);
// What is wrong with them together; empty: nothing.
std::string CheckTiming(const Tenant& tenant);
// The same with a run's length.
std::string CheckTiming(const Tenant& tenant, Nanos length);

// Of one that serves requests, on average while it is active.
double RequestsPerSecond(const Tenant& tenant);
// Takes as many random numbers as these are of one tenant.
std::vector<Nanos> ArrivalsOf(const Tenant& tenant, Nanos length, std::mt19937_64& random);
// Of one that launches by itself.
std::vector<player::Absence> AbsencesOf(const Tenant& tenant, Nanos length);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_TIMING_H_
