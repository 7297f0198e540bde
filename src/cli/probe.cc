// SPDX-License-Identifier: Apache-2.0
#include "cli/probe.h"

#include <cstdio>

#include "base/json_writer.h"
#include "cli/output.h"
#include "cli/text_table.h"

namespace gpushare::cli {
namespace {

std::string Gibibytes(Bytes size) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(size.count()) / (1 << 30));
  return text;
}

void AddLimit(const char* key, Bytes limit, base::JsonWriter* out) {
  out->Key(key);
  limit.count() > 0 ? out->Integer(static_cast<int64_t>(limit.count())) : out->Null();
}

std::string ProbeJson(const OpenedGpu& opened) {
  const GpuProbe& gpu = opened.probe;
  base::JsonWriter out;
  out.BeginObject().Key("name").String(gpu.name).Key("simulated").Bool(opened.simulated);
  out.Key("uuid").String(gpu.uuid).Key("pci_id").String(gpu.pci_id);
  out.Key("compute_major").Integer(gpu.compute_major);
  out.Key("compute_minor").Integer(gpu.compute_minor).Key("sm_count").Integer(gpu.sm_count);
  out.Key("memory_total").Integer(static_cast<int64_t>(gpu.memory_total.count()));
  out.Key("memory_free").Integer(static_cast<int64_t>(gpu.memory_free.count()));
  out.Key("mig").Bool(gpu.mig).Key("mps").Bool(gpu.mps).Key("mps_percentage");
  gpu.mps_percentage > 0 ? out.Integer(gpu.mps_percentage) : out.Null();
  AddLimit("mps_memory_limit", gpu.mps_memory_limit, &out);
  AddLimit("dmem_limit", gpu.dmem_limit, &out);
  if (const auto info = opened.runtime.info(); info.ok()) {
    out.Key("driver").String(info->driver_path).Key("driver_version").Integer(info->driver_version);
  }
  return out.EndObject().text() + "\n";
}

std::string LimitOrNone(Bytes limit) { return limit.count() > 0 ? Gibibytes(limit) : "none"; }

}  // namespace

ExitCode RunProbe(GpuKind kind, const std::string& name, bool json) {
  const absl::StatusOr<OpenedGpu> opened = OpenGpu(kind, name);
  if (!opened.ok()) return Fail("probe", ExitCodeOf(opened.status()), opened.status());
  if (!opened->note.empty()) {
    std::fprintf(stderr, "gpushare probe: of the simulated GPU, because %s\n",
                 opened->note.c_str());
  }
  if (json) {
    std::fputs(ProbeJson(*opened).c_str(), stdout);
    return FinishStdout("probe");
  }
  const GpuProbe& gpu = opened->probe;
  TextTable table({{"property"}, {"value"}});
  table.AddRow({"name", gpu.name});
  table.AddRow({"simulated", opened->simulated ? "yes" : "no"});
  table.AddRow({"uuid", gpu.uuid});
  table.AddRow({"pci id", gpu.pci_id});
  table.AddRow({"compute capability",
                std::to_string(gpu.compute_major) + "." + std::to_string(gpu.compute_minor)});
  table.AddRow({"SMs", std::to_string(gpu.sm_count)});
  table.AddRow({"memory", Gibibytes(gpu.memory_total) + ", free " + Gibibytes(gpu.memory_free)});
  table.AddRow({"MIG instance", gpu.mig ? "yes" : "no"});
  table.AddRow({"MPS", gpu.mps ? "yes" : "no"});
  table.AddRow({"MPS active threads",
                gpu.mps_percentage > 0 ? std::to_string(gpu.mps_percentage) + " %" : "no limit"});
  table.AddRow({"MPS memory limit", LimitOrNone(gpu.mps_memory_limit)});
  table.AddRow({"cgroup dmem limit", LimitOrNone(gpu.dmem_limit)});
  if (const auto info = opened->runtime.info(); info.ok()) {
    table.AddRow({"driver", info->driver_path});
    table.AddRow({"driver version", std::to_string(info->driver_version / 1000) + "." +
                                        std::to_string(info->driver_version % 1000 / 10)});
  }
  std::fputs(table.ToString().c_str(), stdout);
  return FinishStdout("probe");
}

}  // namespace gpushare::cli
