// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "cli/demo/report.h"
#include "cli/text_table.h"

namespace gpushare::cli {
namespace {

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Percent(double part) { return std::isfinite(part) ? Format("%.1f", part * 100) : "-"; }

std::string Seconds2(Nanos time) {
  return Format("%.2f s", static_cast<double>(time.count()) / 1e9);
}

std::string Millis3(Nanos time) {
  return Format("%.3f ms", static_cast<double>(time.count()) / 1e6);
}

std::string Gibibytes(uint64_t bytes) {
  return Format("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string Ratio(Nanos a, Nanos b) {
  return b > Nanos(0)
             ? Format("%.3f x", static_cast<double>(a.count()) / static_cast<double>(b.count()))
             : "-";
}

// A separate table, since a name taken from a file may be long.
std::string WorkloadsTable(const DemoReport& report) {
  TextTable table({{"tenant"}, {"runs"}});
  for (const TenantFigures& tenant : report.tenants) {
    table.AddRow({tenant.name, Printable(tenant.workload, 60)});
  }
  return table.ToString();
}

std::string SharesTable(const DemoReport& report) {
  std::vector<TextColumn> columns = {{"tenant"}, {"asked", Align::kRight}};
  for (const Phase& phase : report.phases) columns.push_back({phase.name, Align::kRight});
  TextTable table(columns);
  for (const TenantFigures& tenant : report.tenants) {
    std::vector<std::string> cells = {tenant.name, tenant.asked};
    for (size_t i = 0; i < report.phases.size(); ++i) {
      cells.push_back(report.simulated
                          ? Percent(tenant.got[i]) + " (" + Percent(tenant.metered[i]) + ")"
                          : Percent(tenant.metered[i]));
    }
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

std::string LimitsTable(const DemoReport& report) {
  TextTable table({{"tenant"},
                   {"memory limit", Align::kRight},
                   {"peak", Align::kRight},
                   {"denied", Align::kRight},
                   {"launches", Align::kRight},
                   {"passes", Align::kRight},
                   {"throttled", Align::kRight}});
  for (const TenantFigures& tenant : report.tenants) {
    table.AddRow({tenant.name, Gibibytes(tenant.memory_limit), Gibibytes(tenant.memory_peak),
                  std::to_string(tenant.denied), std::to_string(tenant.launches),
                  std::to_string(tenant.passes), Seconds2(tenant.throttled)});
  }
  return table.ToString();
}

std::string LatencyTable(const DemoReport& report) {
  TextTable table({{report.tenants.front().name},
                   {"requests", Align::kRight},
                   {"p50", Align::kRight},
                   {"p99", Align::kRight},
                   {"longest", Align::kRight}});
  for (const auto& [name, figures] :
       {std::pair{"alone", report.alone}, std::pair{"shared", report.shared}}) {
    table.AddRow({name, std::to_string(figures.requests), Millis3(figures.p50),
                  Millis3(figures.p99), Millis3(figures.most)});
  }
  table.AddRow({"ratio", "", Ratio(report.shared.p50, report.alone.p50),
                Ratio(report.shared.p99, report.alone.p99), ""});
  return table.ToString();
}

}  // namespace

std::string ReportText(const DemoReport& report) {
  std::string text = report.gpu + ", " +
                     Format("%g s", static_cast<double>(report.length.count()) / 1e9) +
                     " of device time, policy " + report.options.policy + ", seed " +
                     std::to_string(report.options.seed) + "\n\n";
  text += WorkloadsTable(report) + "\n";
  text += report.simulated
              ? "Shares of the device in %, by the device's own books (by gpushare's meter)\n"
              : "Shares of the device in %, by gpushare's meter\n";
  text += SharesTable(report) + "\n";
  text += "Memory and the gate\n" + LimitsTable(report) + "\n";
  text += "Latency of the service's requests\n" + LatencyTable(report) + "\n";
  if (std::isfinite(report.busy)) {
    text += "Device busy " + Percent(report.busy) + " % of the time, SMs held " +
            Percent(report.sms_held) + " %\n";
  }
  return text;
}

}  // namespace gpushare::cli
