// SPDX-License-Identifier: Apache-2.0
// The `work:` of a scenario's tenant, made into kernels.
#ifndef GPUSHARE_HARNESS_WORK_H_
#define GPUSHARE_HARNESS_WORK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "player/player.h"
#include "workload/trace.h"
#include "yaml/reader.h"

namespace gpushare::harness {

// Reads one of
//   {kernels: 30us 60us 20us, repeat: 16, sms: 120}    durations in order, each on so many SMs
//   {trace: ../traces/resnet50.csv}                    relative to `folder`
//   {model: resnet50, batch: 4, pass: training}        docs/workloads.md has the models
absl::Status ReadWork(const yaml::Reader& in, const yaml::Node& map, const std::string& place,
                      const std::string& folder, workload::KernelTrace* work);

// Reads work by the number of requests that it serves, as {1: {model: resnet50}, 8: {model: resnet50, batch: 8}}. All kernels are
// concatenated in `work`; the passes tell which part serves how many, in ascending order.
absl::Status ReadBatches(const yaml::Reader& in, const yaml::Node& map, const std::string& place,
                         const std::string& folder, workload::KernelTrace* work,
                         std::vector<player::BatchPass>* batches);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_WORK_H_
