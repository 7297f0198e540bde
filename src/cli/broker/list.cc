// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/list.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/broker/ask.h"
#include "cli/broker/figures.h"
#include "cli/broker/metrics_json.h"
#include "cli/output.h"
#include "cli/text_table.h"

namespace gpushare::cli {
namespace {

ExitCode Print(const char* command, const std::string& socket, const char* what) {
  absl::StatusOr<BrokerConnection> broker = BrokerConnection::To(socket);
  if (!broker.ok()) return FailOfBroker(command, broker.status());
  const absl::StatusOr<std::string> text = broker->Ask(what);
  if (!text.ok()) return FailOfBroker(command, text.status());
  std::fputs(text->c_str(), stdout);
  if (!text->empty() && text->back() != '\n') std::fputc('\n', stdout);
  return FinishStdout(command);
}

}  // namespace

std::string ListText(const broker::Snapshot& snapshot, const std::string& tenant) {
  std::string text;
  for (const broker::GpuState& gpu : snapshot.gpus) {
    TextTable table({{"tenant"},
                     {"pid", Align::kRight},
                     {"memory", Align::kRight},
                     {"of", Align::kRight},
                     {"peak", Align::kRight},
                     {"overhead", Align::kRight},
                     {"time used", Align::kRight},
                     {"spec, program"},
                     {"state"}});
    bool any = false;
    for (const broker::Share* const each : InFamilies(snapshot, gpu.uuid)) {
      const broker::Share& share = *each;
      if (!tenant.empty() && share.tenant != tenant && share.parent != tenant) continue;
      any = true;
      table.AddRow({TenantCell(share), "", MemoryCell(share.memory_used),
                    MemoryCell(share.memory_limit), MemoryCell(share.memory_peak),
                    MemoryCell(share.memory_overhead()), SecondsCell(share.time_used),
                    NameCell(share.spec), StateCell(share)});
      for (const broker::ProcessShare& process : share.processes) {
        table.AddRow({"", PidCell(process), MemoryCell(process.memory_used),
                      MemoryCell(process.memory_granted), "", MemoryCell(process.memory_overhead),
                      SecondsCell(process.time_used), ProgramCell(process.program),
                      StateCell(process)});
      }
    }
    for (const broker::Stranger& stranger : gpu.strangers) {
      if (!tenant.empty()) break;
      any = true;
      table.AddRow({"(none)", absl::StrCat(stranger.pid), MemoryCell(stranger.memory_by_driver), "",
                    "", "", "", ProgramCell(stranger.program), "no tenant's"});
    }
    if (!any && !tenant.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "\n", GpuLine(gpu), "\n",
                    any ? table.ToString() : "");
  }
  if (text.empty()) text = "no process has opened a GPU yet\n";
  return text;
}

ExitCode RunList(const std::string& socket, bool json) {
  if (json) return Print("list", socket, "list");
  absl::StatusOr<BrokerConnection> broker = BrokerConnection::To(socket);
  if (!broker.ok()) return FailOfBroker("list", broker.status());
  const absl::StatusOr<broker::Snapshot> snapshot = broker->List();
  if (!snapshot.ok()) return FailOfBroker("list", snapshot.status());
  std::fputs(ListText(*snapshot).c_str(), stdout);
  return FinishStdout("list");
}

ExitCode RunMetrics(const std::string& socket, bool json) {
  if (!json) return Print("metrics", socket, "metrics");
  absl::StatusOr<BrokerConnection> broker = BrokerConnection::To(socket);
  if (!broker.ok()) return FailOfBroker("metrics", broker.status());
  const absl::StatusOr<std::string> text = broker->Ask("metrics");
  if (!text.ok()) return FailOfBroker("metrics", text.status());
  const absl::StatusOr<std::string> as_json = MetricsJson(*text);
  if (!as_json.ok()) return Fail("metrics", kExitFailed, as_json.status());
  std::fputs(as_json->c_str(), stdout);
  return FinishStdout("metrics");
}

}  // namespace gpushare::cli
