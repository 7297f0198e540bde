// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/json_writer.h"
#include "base/limit_variables.h"
#include "cli/nvml_view.h"
#include "cli/output.h"
#include "cli/run/preload_object.h"
#include "cli/text_table.h"
#include "gpushare/spec.h"
#include "gpushare/virtual_device.h"

namespace gpushare::cli {
namespace {

struct Finding {
  std::string subject, found;
  bool wrong = false;
};

constexpr char kSpec[] = "GPUSHARE_SPEC";

Finding Disabled() {
  const std::string value = base::GetEnv("GPUSHARE_DISABLE").value_or("0");
  if (value == "0") return {"GPUSHARE_DISABLE", "not set"};
  return {"GPUSHARE_DISABLE", absl::StrCat("'", value, "': no preloaded program is limited"), true};
}

Finding Object(const char* file) {
  const absl::StatusOr<std::string> path = FindPreloadObject(file);
  if (path.ok()) return {file, *path};
  return {file, std::string(path.status().message()), true};
}

// Which limits a program gets on a GPU, and which variable says so.
void AddShare(OpenedGpu& opened, int ordinal, std::vector<Finding>* findings) {
  const std::string gpu = absl::StrCat("GPU ", ordinal);
  const std::string own = base::GetEnv(kSpec).value_or("");
  std::vector<base::Limit> used;
  const std::vector<base::Limit> others = base::FindLimits(ordinal);
  const std::string text = base::AddLimits(own, others, &used);
  if (!own.empty()) findings->push_back({gpu, absl::StrCat(own, " (", kSpec, ")")});
  for (const base::Limit& limit : others) {
    bool counts = false;
    for (const base::Limit& each : used) counts = counts || each.variable == limit.variable;
    findings->push_back(
        {gpu, absl::StrCat(limit.key, "=", limit.value, " (", limit.variable, ")",
                           counts ? "" : absl::StrCat(", which ", kSpec, " overrides"))});
  }
  if (text.empty()) findings->push_back({gpu, "no limit is set: `gpushare run` sets one"});
  const absl::StatusOr<VirtualDeviceSpec> spec = VirtualDeviceSpec::Parse(text);
  absl::Status valid = spec.ok() ? spec->Validate() : spec.status();
  if (valid.ok() && used.empty()) {
    // Others' memory limits are cut to what the GPU can promise; our own has to fit.
    const absl::StatusOr<Tenant> tenant =
        Tenant::Create(opened.runtime, {.name = absl::StrCat("doctor-", ordinal)});
    valid =
        tenant.ok() ? VirtualDevice::Create(opened.gpu, *tenant, *spec).status() : tenant.status();
  }
  if (!valid.ok()) findings->push_back({gpu, std::string(valid.message()), true});
}

void AddSurroundings(const GpuProbe& probe, int ordinal, std::vector<Finding>* findings) {
  const std::string gpu = absl::StrCat("GPU ", ordinal);
  if (probe.mig) findings->push_back({gpu, "a MIG instance"});
  if (probe.mps) findings->push_back({gpu, "an MPS server listens"});
  const auto limit = [&](Bytes bytes, const char* by) {
    if (bytes.count() == 0) return;
    findings->push_back({gpu, absl::StrCat("at most ", bytes.count() >> 20, " MiB, by ", by)});
  };
  limit(probe.mps_memory_limit, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  limit(probe.dmem_limit, "the cgroup's dmem.max");
}

void AddGpu(absl::StatusOr<OpenedGpu> opened, int ordinal, std::vector<Finding>* findings) {
  const std::string gpu = absl::StrCat("GPU ", ordinal);
  if (!opened.ok()) {
    findings->push_back({gpu, std::string(opened.status().message()), true});
    return;
  }
  findings->push_back({gpu, absl::StrCat(opened->probe.name, ", ", opened->probe.uuid)});
  AddSurroundings(opened->probe, ordinal, findings);
  AddShare(*opened, ordinal, findings);
}

// What a program would be told by NVML, through `object`, which stands in for it.
void AddNvml(const Finding& object, bool simulated, std::vector<Finding>* findings) {
  if (object.wrong) return;
  // As `gpushare run` has it.
  if (simulated && !base::GetEnv("GPUSHARE_DRIVER").has_value())
    setenv("GPUSHARE_DRIVER", "sim", 1);
  const absl::StatusOr<NvmlView> view = LookThroughNvml(object.found);
  if (absl::IsUnavailable(view.status())) {
    findings->push_back({"NVML", "there is none: programs that ask it are told so"});
    return;
  }
  if (!view.ok()) {
    findings->push_back({"NVML", std::string(view.status().message()), true});
    return;
  }
  findings->push_back({"NVML", view->library});
  for (const NvmlView::Gpu& gpu : view->gpus) {
    findings->push_back(
        {"NVML", absl::StrCat("shows ", gpu.memory.count() >> 20, " MiB of ", gpu.uuid)});
  }
}

std::string Json(const std::vector<Finding>& findings) {
  base::JsonWriter json;
  json.BeginArray();
  for (const Finding& each : findings) {
    json.BeginObject().Key("subject").String(each.subject).Key("found").String(each.found);
    json.Key("ok").Bool(!each.wrong).EndObject();
  }
  return json.EndArray().text();
}

}  // namespace

ExitCode RunDoctor(GpuKind kind, bool json) {
  std::vector<Finding> findings;
  absl::StatusOr<OpenedGpu> first = OpenGpu(kind, "0");
  bool simulated = false;
  if (first.ok()) {
    simulated = first->simulated;
    const auto info = first->runtime.info();
    const int count = info.ok() ? info->gpu_count : 1;
    if (info.ok()) {
      findings.push_back(
          {"driver", absl::StrCat(info->driver_path, info->simulated ? " (simulated)" : "")});
    }
    if (!first->note.empty()) {
      findings.push_back({"driver", absl::StrCat("simulated, because ", first->note)});
      kind = GpuKind::kSimulated;  // the others too
    }
    AddGpu(std::move(first), 0, &findings);
    for (int ordinal = 1; ordinal < count; ++ordinal) {
      AddGpu(OpenGpu(kind, absl::StrCat(ordinal)), ordinal, &findings);
    }
  } else {
    findings.push_back({"driver", std::string(first.status().message()), true});
  }
  findings.push_back(Object("libgpushare_preload.so"));
  findings.push_back(Object("libgpushare_preload_nvml.so"));
  AddNvml(findings.back(), simulated, &findings);
  findings.push_back(Object("libgpushare_audit.so"));
  findings.push_back(Disabled());

  bool wrong = false;
  for (const Finding& each : findings) wrong = wrong || each.wrong;
  if (json) {
    std::puts(Json(findings).c_str());
  } else {
    TextTable table({{""}, {"what"}, {"found"}});
    for (const Finding& each : findings)
      table.AddRow({each.wrong ? "!" : "", each.subject, each.found});
    std::fputs(table.ToString().c_str(), stdout);
  }
  const ExitCode written = FinishStdout("doctor");
  return written != kExitOk ? written : wrong ? kExitFailed : kExitOk;
}

}  // namespace gpushare::cli
