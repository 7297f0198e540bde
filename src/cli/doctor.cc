// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor.h"

#include <cstdint>
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
#include "base/over_quota.h"
#include "base/text.h"
#include "cli/broker/figures.h"
#include "cli/broker/try_share.h"
#include "cli/launch_trial.h"
#include "cli/nvml_view.h"
#include "cli/output.h"
#include "cli/run/preload_object.h"
#include "cli/text_table.h"
#include "gpushare/placement.h"
#include "gpushare/spec.h"
#include "gpushare/virtual_device.h"

namespace gpushare::cli {
namespace {

struct Finding {
  std::string subject, found;
  bool wrong = false;
};

constexpr char kSpec[] = "GPUSHARE_SPEC", kBroker[] = "GPUSHARE_BROKER",
               kOnLoss[] = "GPUSHARE_ON_BROKER_LOSS";

Finding Disabled() {
  const std::string value = base::GetEnv("GPUSHARE_DISABLE").value_or("0");
  if (value == "0") return {"GPUSHARE_DISABLE", "not set"};
  return {"GPUSHARE_DISABLE", absl::StrCat("'", value, "': no preloaded program is limited"), true};
}

// Adds a finding if it is set.
void AddOverQuota(std::vector<Finding>* findings) {
  const absl::StatusOr<Nanos> waits = base::OverQuotaWait();
  if (!waits.ok()) {
    findings->push_back({"GPUSHARE_OVER_QUOTA",
                         absl::StrCat(waits.status().message(), ": no program begins here"), true});
  } else if (const auto set = base::GetEnv("GPUSHARE_OVER_QUOTA")) {
    findings->push_back({"GPUSHARE_OVER_QUOTA", *set});
  }
}

// Adds a finding if `bench record` is active: recorded programs are not limited.
void AddRecord(std::vector<Finding>* findings) {
  const std::optional<std::string> folder = base::GetEnv("GPUSHARE_RECORD");
  if (!folder.has_value()) return;
  findings->push_back(
      {"GPUSHARE_RECORD",
       absl::StrCat(Quoted(*folder), ": a preloaded program is recorded, and not limited"), true});
}

Finding Object(const char* file) {
  const absl::StatusOr<std::string> path = FindPreloadObject(file);
  if (path.ok()) return {file, *path};
  return {file, std::string(path.status().message()), true};
}

// A GPU that was opened, and the properties that a broker is told.
struct Seen {
  int ordinal = 0;
  ipc::OpenGpu gpu;
};

// The limits that the environment asks for on a GPU.
struct Asked {
  std::string own;                  // GPUSHARE_SPEC
  std::vector<base::Limit> others;  // from other systems' variables
  std::vector<base::Limit> used;    // those of `others` that count
  std::string text;                 // the resulting spec
};

Asked AskedOn(int ordinal) {
  Asked asked{base::GetEnv(kSpec).value_or(""), base::FindLimits(ordinal), {}, ""};
  asked.text = base::AddLimits(asked.own, asked.others, &asked.used);
  return asked;
}

// Why a program would be refused because of these limits, on any GPU.
absl::Status Check(const Asked& asked) {
  const auto check = [](const std::string& text) {
    const absl::StatusOr<VirtualDeviceSpec> spec = VirtualDeviceSpec::Parse(text);
    return spec.ok() ? spec->Validate() : spec.status();
  };
  const std::string wrong =
      base::WrongLimit(asked.used, [&](const std::string& each) { return check(each).ok(); });
  if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
  const absl::Status valid = check(asked.text);
  if (valid.ok() || asked.own.empty()) return valid;
  return absl::Status(valid.code(), absl::StrCat(kSpec, ": ", valid.message()));
}

// Adds the limits and the variables that ask for them. Memory limits of other systems' variables are cut to `cut_to`.
void AddAsked(const Asked& asked, const std::string& gpu, Bytes cut_to, bool broker_overrides,
              std::vector<Finding>* findings) {
  const char* const end = broker_overrides ? ", which the broker's overrides" : "";
  if (!asked.own.empty())
    findings->push_back({gpu, absl::StrCat(asked.own, " (", kSpec, ")", end)});
  for (const base::Limit& limit : asked.others) {
    bool counts = false;
    for (const base::Limit& each : asked.used) counts = counts || each.variable == limit.variable;
    std::string more = counts ? end : absl::StrCat(", which ", kSpec, " overrides");
    const auto spec = VirtualDeviceSpec::Parse(absl::StrCat(limit.key, "=", limit.value));
    if (counts && !spec.ok()) continue;  // Check() reports what is wrong
    if (more.empty() && spec.ok() && spec->memory.value_or(Bytes(0)) > cut_to) {
      more = absl::StrCat(", cut to ", cut_to.count() >> 20, " MiB, which the GPU can promise");
    }
    findings->push_back(
        {gpu, absl::StrCat(limit.key, "=", limit.value, " (", limit.variable, ")", more)});
    if (counts && !broker_overrides && !limit.note.empty()) {
      findings->push_back({gpu, absl::StrCat(limit.key, "=", limit.value, " ", limit.note)});
    }
  }
}

// Adds the limits that a program gets on a GPU without a broker.
void AddShare(OpenedGpu& opened, int ordinal, std::vector<Finding>* findings) {
  const std::string gpu = absl::StrCat("GPU ", ordinal);
  const Asked asked = AskedOn(ordinal);
  const absl::StatusOr<Room> room = RoomOf(opened.gpu);
  AddAsked(asked, gpu, room.ok() ? room->memory_left : opened.probe.memory_total, false, findings);
  if (asked.text.empty()) findings->push_back({gpu, "no limit is set: `gpushare run` sets one"});
  absl::Status valid = Check(asked);
  if (valid.ok() && asked.used.empty()) {
    // Memory limits from other systems' variables are cut to what the GPU can promise; GPUSHARE_SPEC has to fit.
    const absl::StatusOr<VirtualDeviceSpec> spec = VirtualDeviceSpec::Parse(asked.text);
    const absl::StatusOr<Tenant> tenant = Tenant::Create(opened.runtime, {.name = "program"});
    valid =
        tenant.ok() ? VirtualDevice::Create(opened.gpu, *tenant, *spec).status() : tenant.status();
  }
  if (!valid.ok()) findings->push_back({gpu, std::string(valid.message()), true});
}

// Adds the tenant that a program would be to its broker, and its limits on each GPU. A program opens all GPUs at its first call.
void AddBroker(const std::string& socket, const std::vector<Seen>& gpus,
               std::vector<Finding>* findings) {
  const Asked asked = AskedOn(0);
  std::vector<ipc::Message> opens;
  absl::Status valid = Check(asked);
  for (const Seen& each : gpus) {
    const Asked there = AskedOn(each.ordinal);
    valid.Update(Check(there));
    if (there.text == asked.text) {
      opens.emplace_back(each.gpu);
    } else {
      opens.emplace_back(ipc::OpenGpuAs{each.gpu, there.text});
    }
  }
  const absl::StatusOr<std::vector<broker::Share>> shares =
      !valid.ok() ? valid
                  : TryShare(socket, kBroker,
                             {.tenant = base::GetEnv("GPUSHARE_TENANT").value_or(""),
                              .program = "gpushare doctor",
                              .spec = asked.text},
                             opens);
  if (!shares.ok()) {
    findings->push_back(
        {"broker", absl::StrCat(shares.status().message(), ": no program begins here"), true});
    return;
  }
  const std::string on_loss = base::GetEnv(kOnLoss).value_or("open");
  if (on_loss != "open" && on_loss != "closed") {
    findings->push_back({"broker",
                         absl::StrCat(kOnLoss, ": ", Quoted(on_loss),
                                      " given; allowed: open, closed: no program begins here"),
                         true});
  }
  const std::string at = absl::StrCat(Quoted(socket), " (", kBroker, ")");
  findings->push_back(
      {"broker",
       shares->empty() ? at : absl::StrCat(at, ", as tenant ", Quoted(shares->front().tenant))});
  for (const Seen& each : gpus) {
    const broker::Share* const share = ShareOn(*shares, each.gpu.uuid);
    if (share == nullptr) continue;
    const std::string gpu = absl::StrCat("GPU ", each.ordinal);
    const Asked there = AskedOn(each.ordinal);
    AddAsked(there, gpu, Bytes(UINT64_MAX), !Counts(there.text, *share), findings);
    findings->push_back({gpu, absl::StrCat(share->spec.empty() ? "no limit" : NameCell(share->spec),
                                           " (the broker's share of the tenant)",
                                           share->suspended ? ", suspended" : "")});
  }
}

void AddSurroundings(const GpuProbe& probe, int ordinal, std::vector<Finding>* findings) {
  const std::string gpu = absl::StrCat("GPU ", ordinal);
  if (probe.mig) findings->push_back({gpu, "a MIG instance"});
  if (probe.mps) findings->push_back({gpu, "an MPS server listens"});
  if (probe.mps_percentage > 0) {
    findings->push_back({gpu, absl::StrCat("at most ", probe.mps_percentage,
                                           " % of the SMs, by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")});
  }
  const auto limit = [&](Bytes bytes, const char* by) {
    if (bytes.count() == 0) return;
    findings->push_back({gpu, absl::StrCat("at most ", bytes.count() >> 20, " MiB, by ", by)});
  };
  limit(probe.mps_memory_limit, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  limit(probe.dmem_limit, "the cgroup's dmem.max");
}

// `under_broker`: the broker sets the limits. A GPU that could be opened is added to `seen`.
void AddGpu(absl::StatusOr<OpenedGpu> opened, int ordinal, bool under_broker,
            std::vector<Seen>* seen, std::vector<Finding>* findings) {
  const std::string gpu = absl::StrCat("GPU ", ordinal);
  if (!opened.ok()) {
    findings->push_back({gpu, std::string(opened.status().message()), true});
    return;
  }
  findings->push_back({gpu, absl::StrCat(opened->probe.name, ", ", opened->probe.uuid)});
  AddSurroundings(opened->probe, ordinal, findings);
  if (!under_broker) return AddShare(*opened, ordinal, findings);
  const absl::StatusOr<Room> room = RoomOf(opened->gpu);
  if (!room.ok()) {
    findings->push_back({gpu, std::string(room.status().message()), true});
    return;
  }
  seen->push_back({ordinal,
                   {.uuid = opened->probe.uuid,
                    .memory = room->memory_left.count(),
                    .sm_count = static_cast<uint32_t>(opened->probe.sm_count)}});
}

// Adds what NVML would tell a program, through gpushare's replacement `object`.
void AddNvml(const Finding& object, bool simulated, bool under_broker,
             std::vector<Finding>* findings) {
  if (object.wrong) return;
  // Like `gpushare run`.
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
        {"NVML", absl::StrCat("shows ", gpu.memory.count() >> 20, " MiB of ", gpu.uuid,
                              under_broker ? " until the program calls the driver" : "")});
  }
}

// Adds whether a program's launches pass through the preloaded library, which `object` is about. Errors that would keep a program
// from starting are reported elsewhere.
void AddLaunches(LaunchTrial& trial, const Finding& object, bool simulated,
                 std::vector<Finding>* findings) {
  if (object.wrong) return;
  constexpr char kSubject[] = "shim coverage";
  const absl::StatusOr<LaunchTrial::Launches> tried = trial.Run(object.found, simulated);
  if (!tried.ok()) {
    findings->push_back({kSubject, absl::StrCat("not known: ", tried.status().message())});
    return;
  }
  const std::string found =
      absl::StrCat(tried->seen, " launches seen of ", tried->reached, " that reached the driver");
  const bool all = tried->seen >= tried->reached && tried->reached > 0;
  findings->push_back(
      {kSubject, all ? found : absl::StrCat(found, ": limits of compute do not hold"), !all});
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
  LaunchTrial trial;
  std::vector<Finding> findings;
  const std::string broker = base::GetEnv(kBroker).value_or("none");
  const bool under_broker = broker != "none";
  std::vector<Seen> seen;
  absl::StatusOr<OpenedGpu> first = OpenGpu(kind, "0");
  const bool there = first.ok();
  const bool simulated = there && first->simulated;
  if (there) {
    const auto info = first->runtime.info();
    const int count = info.ok() ? info->gpu_count : 1;
    if (info.ok()) {
      findings.push_back(
          {"driver", absl::StrCat(info->driver_path, info->simulated ? " (simulated)" : "")});
    }
    if (!first->note.empty()) {
      findings.push_back({"driver", absl::StrCat("simulated, because ", first->note)});
      kind = GpuKind::kSimulated;  // for the following GPUs too
    }
    AddGpu(std::move(first), 0, under_broker, &seen, &findings);
    for (int ordinal = 1; ordinal < count; ++ordinal) {
      AddGpu(OpenGpu(kind, absl::StrCat(ordinal)), ordinal, under_broker, &seen, &findings);
    }
  } else {
    findings.push_back({"driver", std::string(first.status().message()), true});
  }
  if (under_broker) {
    AddBroker(broker, seen, &findings);
  } else {
    findings.push_back(
        {"broker", absl::StrCat("none (", kBroker, "): each process has its limits by itself")});
  }
  const Finding object = Object("libgpushare_preload.so");
  findings.push_back(object);
  if (there) AddLaunches(trial, object, simulated, &findings);
  findings.push_back(Object("libgpushare_preload_nvml.so"));
  // Without a driver it is unknown which NVML would be used.
  if (there) AddNvml(findings.back(), simulated, under_broker, &findings);
  findings.push_back(Object("libgpushare_audit.so"));
  AddOverQuota(&findings);
  findings.push_back(Disabled());
  AddRecord(&findings);

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
