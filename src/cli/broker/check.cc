// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/check.h"

#include <cstdio>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "cli/output.h"

namespace gpushare::cli {
namespace {

std::string CheckJson(const std::string& file, const broker::Config& config,
                      const absl::Status& valid) {
  base::JsonWriter out;
  out.BeginObject().Key("config").String(file);
  out.Key("valid").Bool(valid.ok()).Key("error").String(std::string(valid.message()));
  out.Key("tenants").BeginArray();
  for (const broker::TenantConfig& tenant : config.tenants) out.String(tenant.name);
  out.EndArray().Key("doubts").BeginArray();
  for (const std::string& doubt : broker::DoubtsOf(config)) out.String(doubt);
  return out.EndArray().EndObject().text() + "\n";
}

}  // namespace

ExitCode Check(const DaemonOptions& options, const absl::StatusOr<broker::Config>& config,
               const absl::Status& valid) {
  if (options.json) Print(CheckJson(options.config, config.value_or(broker::Config()), valid));
  if (!valid.ok()) return Fail("broker", kExitUsage, valid);
  if (options.json) return FinishStdout("broker");
  const size_t tenants = config->tenants.size();
  if (options.config.empty()) {
    std::printf("no --config is given: there are no tenants\n");
  } else {
    std::printf("%s is valid: %zu tenant%s\n", options.config.c_str(), tenants,
                tenants == 1 ? "" : "s");
  }
  for (const std::string& doubt : broker::DoubtsOf(*config)) {
    std::fprintf(stderr, "gpushare broker: %s\n", doubt.c_str());
  }
  return FinishStdout("broker");
}

}  // namespace gpushare::cli
