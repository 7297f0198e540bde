// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/limit_variables.h"
#include "base/over_quota.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "cli/broker/ask.h"
#include "cli/broker/figures.h"
#include "cli/broker/try_share.h"
#include "cli/broker_clock.h"
#include "cli/gpu_option.h"
#include "cli/output.h"
#include "cli/run/preload_object.h"
#include "cli/run/private_broker.h"
#include "gpushare/placement.h"
#include "gpushare/spec.h"
#include "gpushare/virtual_device.h"

namespace gpushare::cli {
namespace {

// Exit codes by the convention of env(1) and shells.
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

// Appends to the list, so that a library listed before which looks up the next definition (RTLD_NEXT) finds gpushare's.
void Append(const char* variable, const std::string& path) {
  const std::optional<std::string> before = base::GetEnv(variable);
  setenv(variable, before.has_value() ? absl::StrCat(*before, ":", path).c_str() : path.c_str(), 1);
}

// Checks that the GPU can grant such a share, without keeping it.
absl::Status TryOn(OpenedGpu& opened, const std::string& spec, const std::string& name) {
  absl::StatusOr<VirtualDeviceSpec> parsed = VirtualDeviceSpec::Parse(spec);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<Tenant> tenant = Tenant::Create(opened.runtime, {.name = name});
  if (!tenant.ok()) tenant = Tenant::Create(opened.runtime, {.name = "program"});
  if (!tenant.ok()) return tenant.status();
  return VirtualDevice::Create(opened.gpu, *tenant, *parsed).status();
}

bool IsSpec(const std::string& text) {
  const absl::StatusOr<VirtualDeviceSpec> spec = VirtualDeviceSpec::Parse(text);
  return spec.ok() && spec->Validate().ok();
}

absl::Status CheckOfProgram(const std::string& text) {
  const absl::StatusOr<VirtualDeviceSpec> spec = VirtualDeviceSpec::Parse(text);
  if (!spec.ok()) return spec.status();
  if (const absl::Status valid = spec->Validate(); !valid.ok()) return valid;
  // The program creates its contexts itself, so isolation that needs other contexts is not possible.
  const Isolation isolation = spec->isolation.value_or(Isolation::kProcess);
  if (isolation != Isolation::kShared && isolation != Isolation::kProcess) {
    return absl::UnimplementedError(
        "spec field 'isolation': a program that is run is a process of its own, which 'process' "
        "says; the others divide one process, and are of the SDK");
  }
  return absl::OkStatus();
}

// Checks the limits that other systems' variables add to the spec.
absl::Status CheckLimits(const std::string& spec) {
  std::vector<base::Limit> used;
  const absl::StatusOr<VirtualDeviceSpec> all =
      VirtualDeviceSpec::Parse(base::AddLimits(spec, base::FindLimits(0), &used));
  const absl::Status status = all.ok() ? all->Validate() : all.status();
  if (status.ok()) return status;
  if (const std::string wrong = base::WrongLimit(used, IsSpec); !wrong.empty()) {
    return absl::InvalidArgumentError(wrong);
  }
  std::string names;
  for (const base::Limit& limit : used) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", limit.variable);
  }
  return absl::Status(status.code(), absl::StrCat(status.message(), "; set by ", names,
                                                  " (`gpushare doctor` shows which counts)"));
}

// Rejects an empty value, which a shell passes for an unset variable: the program would run without its limit.
CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](std::string& value) { return std::string(value.empty() ? "an empty value given" : ""); },
      "");
}

}  // namespace

void AddRunOptions(CLI::App* app, RunOptions* options) {
  AddGpuOptions(app, &options->kind, &options->device);
  app->get_option("--device")
      ->description("the GPU that the program sees: ordinal, UUID or PCI id; without it, all")
      ->default_str("")
      ->each([options](const std::string&) { options->device_given = true; });
  app->add_option("--memory", options->memory, "device memory it may hold: 8GiB, 512MiB, 25%")
      ->type_name("SIZE")
      ->check(NotEmpty());
  app->add_option("--compute", options->compute, "share of the device's time: 30%")
      ->type_name("SHARE")
      ->check(NotEmpty());
  app->add_option("--cap", options->cap, "most of the device's time, also while it is idle: 50%")
      ->type_name("SHARE")
      ->check(NotEmpty());
  app->add_option("--priority", options->priority, "whose work goes first")
      ->type_name("high|normal|low")
      ->check(NotEmpty());
  app->add_option("--policy", options->policy, "what the share means; see `gpushare policies`")
      ->type_name("NAME")
      ->check(NotEmpty());
  app->add_option("--spec", options->spec, "the share in its text form: memory=8GiB,compute=30%")
      ->type_name("TEXT")
      ->check(NotEmpty());
  app->add_option("--broker", options->broker,
                  "a broker's socket; private: one of the program's own, whose processes have the "
                  "share in common; none: each has it for itself; auto: GPUSHARE_BROKER, else "
                  "private on a real GPU")
      ->type_name("SOCKET|private|none|auto");
  app->add_option("--tenant", options->tenant, "which tenant the program is to the broker")
      ->type_name("NAME")
      ->check(NotEmpty());
  app->add_flag("--audit", options->audit,
                "load by the audit interface of the loader, which also reaches plugins that bind "
                "past preloading");
  app->add_option("command", options->command, "the program and its arguments, after --")
      ->required()
      ->type_name("PROGRAM [ARGUMENT]");
  app->positionals_at_end();
}

absl::StatusOr<std::string> SpecOf(const RunOptions& options) {
  std::string text = options.spec;
  const std::pair<const char*, const std::string*> given[] = {{"memory", &options.memory},
                                                              {"compute", &options.compute},
                                                              {"cap", &options.cap},
                                                              {"priority", &options.priority},
                                                              {"policy", &options.policy}};
  for (const auto& [key, value] : given) {
    if (!value->empty()) absl::StrAppend(&text, text.empty() ? "" : ",", key, "=", *value);
  }
  if (const absl::Status valid = CheckOfProgram(text); !valid.ok()) return valid;
  return text;
}

namespace {

// Adds to the options what the environment sets.
absl::StatusOr<std::string> WithEnvironment(const std::string& options) {
  const std::string own = base::GetEnv("GPUSHARE_SPEC").value_or("");
  if (const absl::Status wrong = CheckOfProgram(own); !wrong.ok()) {
    return absl::Status(wrong.code(), absl::StrCat("GPUSHARE_SPEC: ", wrong.message()));
  }
  std::string text = base::AddSpec(options, own);
  const absl::Status together = CheckOfProgram(text);
  if (together.ok()) return text;
  return absl::Status(together.code(),
                      absl::StrCat(together.message(), "; GPUSHARE_SPEC is ", Quoted(own)));
}

// Reports a requested share that differs from the one that the program gets.
void SayWhatCounts(const std::string& asked, const std::vector<broker::Share>& shares,
                   const std::string& gpu) {
  const broker::Share* const share = ShareOn(shares, gpu);
  if (asked.empty() || share == nullptr || Counts(asked, *share)) return;
  std::fprintf(stderr, "gpushare run: %s is not what counts: tenant '%s' has the broker's, %s\n",
               Printable(asked, 1024).c_str(), NameCell(share->tenant).c_str(),
               share->spec.empty() ? "which limits nothing" : Printable(share->spec, 1024).c_str());
}

// Of a program that no broker of the machine is asked for, and nobody has said that this is meant: reports what has no effect then.
void SayWhatNoBrokerIsAsked(const RunOptions& options) {
  std::string why;
  if (!options.tenant.empty()) {
    why = absl::StrCat("tenant ", Quoted(options.tenant), " is asked of no broker");
  } else if (const absl::StatusOr<VirtualDeviceSpec> spec =
                 VirtualDeviceSpec::Parse(SpecOf(options).value_or(""));
             spec.ok() && spec->compute.has_value() && !spec->cap.has_value() &&
             !spec->policy.has_value()) {
    why = "'compute' limits nothing where no other program is known of";
  } else {
    return;
  }
  std::fprintf(
      stderr,
      "gpushare run: %s; name a broker by --broker or GPUSHARE_BROKER (as in %s), or say that "
      "none of the machine's is meant: --broker private or none%s\n",
      why.c_str(), kDefaultSocket,
      options.tenant.empty() ? "; 'cap' limits this program by itself" : "");
}

// Fails if a variable would silently remove the program's limits, whoever set them.
absl::Status CheckNothingTakesOff(const RunOptions& options, const std::string& spec) {
  const std::string disabled = base::GetEnv("GPUSHARE_DISABLE").value_or("0");
  if (disabled == "0") return absl::OkStatus();
  const auto refused = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPUSHARE_DISABLE: ", Quoted(disabled), " given, and ", what,
                     ", which would not hold; unset it, or ask for none"));
  };
  const std::string limits = base::AddLimits(spec, base::FindLimits(0));
  if (!limits.empty()) return refused(absl::StrCat("limits are asked for (", limits, ")"));
  const std::string broker =
      options.broker == "auto" ? base::GetEnv("GPUSHARE_BROKER").value_or("none") : options.broker;
  if (broker == "none" || broker == "private") return absl::OkStatus();
  return refused(absl::StrCat("the share is to be a broker's (", Printable(broker, 256), ")"));
}

// Sets the variables by which the program's processes find their broker.
absl::Status SetBroker(const RunOptions& options, const std::string& spec, bool simulated,
                       const ipc::OpenGpu& gpu) {
  std::string broker = options.broker;
  if (broker == "auto") {
    const std::optional<std::string> named = base::GetEnv("GPUSHARE_BROKER");
    if (!named.has_value()) SayWhatNoBrokerIsAsked(options);
    // A simulated GPU belongs to one process unless configured otherwise, so it needs no broker.
    broker = named.value_or(simulated ? "none" : "private");
  }
  if (broker == "none") {
    unsetenv("GPUSHARE_BROKER");
    return absl::OkStatus();
  }
  const std::string& program = options.command[0];
  std::string tenant = options.tenant;
  if (broker == "private") {
    GPUSHARE_ASSIGN_OR_RETURN(broker, StartPrivateBroker());
    // Children inherit the name, whatever program they run.
    if (tenant.empty()) {
      tenant = absl::StrCat(program.substr(program.rfind('/') + 1).substr(0, 40), "-", getpid());
    }
  } else {
    // Reports a refusal here, since a preloaded library could not.
    const ipc::Hello hello{
        .tenant = tenant.empty() ? base::GetEnv("GPUSHARE_TENANT").value_or("") : tenant,
        .program = Printable(program, 256),
        .spec = base::AddLimits(spec, base::FindLimits(0))};
    GPUSHARE_ASSIGN_OR_RETURN(const std::vector<broker::Share> shares,
                              TryShare(broker, "--broker", hello, {gpu}));
    SayWhatCounts(hello.spec, shares, gpu.uuid);
  }
  if (simulated) SetClockBesideABroker();
  setenv("GPUSHARE_BROKER", broker.c_str(), 1);
  if (!tenant.empty()) setenv("GPUSHARE_TENANT", tenant.c_str(), 1);
  return absl::OkStatus();
}

}  // namespace

ExitCode Run(const RunOptions& options) {
  absl::StatusOr<std::string> spec = SpecOf(options);
  if (spec.ok()) spec = WithEnvironment(*spec);
  if (!spec.ok()) return Fail("run", kExitUsage, spec.status());
  if (const absl::Status held = CheckNothingTakesOff(options, *spec); !held.ok())
    return Fail("run", kExitUsage, held);
  if (const auto waits = base::OverQuotaWait(); !waits.ok())
    return Fail("run", kExitUsage, waits.status());
  unsetenv("GPUSHARE_RECORD");  // `bench record`'s alone: a library that records limits nothing
  const absl::StatusOr<std::string> object =
      FindPreloadObject(options.audit ? "libgpushare_audit.so" : "libgpushare_preload.so");
  if (!object.ok()) return Fail("run", kExitFailed, object.status());
  // Also preloaded, for programs that are linked with NVML.
  const absl::StatusOr<std::string> nvml = FindPreloadObject("libgpushare_preload_nvml.so");
  if (!nvml.ok()) return Fail("run", kExitFailed, nvml.status());
  if (object->find_first_of(" \t\n:") != std::string::npos) {
    return Fail("run", kExitFailed,
                absl::FailedPreconditionError(absl::StrCat(
                    "the loader cannot preload '", *object,
                    "', whose path has a blank or a colon; install gpushare elsewhere")));
  }
  bool simulated = false;
  ipc::OpenGpu gpu;
  {
    absl::StatusOr<OpenedGpu> opened = OpenGpu(options.kind, options.device);
    if (!opened.ok()) return Fail("run", ExitCodeOf(opened.status()), opened.status());
    if (!opened->note.empty()) {
      std::fprintf(stderr, "gpushare run: on the simulated GPU, because %s\n",
                   opened->note.c_str());
    }
    const std::string program = options.command[0].substr(options.command[0].rfind('/') + 1);
    const std::string name = !options.tenant.empty()
                                 ? options.tenant
                                 : base::GetEnv("GPUSHARE_TENANT").value_or(program);
    if (const absl::Status fits = TryOn(*opened, *spec, name); !fits.ok())
      return Fail("run", kExitUsage, fits);
    if (const absl::Status others = CheckLimits(*spec); !others.ok())
      return Fail("run", kExitUsage, others);
    simulated = opened->simulated;
    const absl::StatusOr<Room> room = RoomOf(opened->gpu);
    if (!room.ok()) return Fail("run", ExitCodeOf(room.status()), room.status());
    gpu = {.uuid = opened->probe.uuid,
           .memory = room->memory_left.count(),
           .sm_count = static_cast<uint32_t>(opened->probe.sm_count)};
  }
  if (simulated && !base::GetEnv("GPUSHARE_DRIVER").has_value())
    setenv("GPUSHARE_DRIVER", "sim", 1);
  // By UUID, which means the same to the driver; ordinals depend on what is visible here.
  if (options.device_given) setenv("CUDA_VISIBLE_DEVICES", gpu.uuid.c_str(), 1);
  setenv("GPUSHARE_SPEC", spec->c_str(), 1);
  if (const absl::Status set = SetBroker(options, *spec, simulated, gpu); !set.ok())
    return FailOfBroker("run", set);
  Append(options.audit ? "LD_AUDIT" : "LD_PRELOAD", *object);
  if (!options.audit) Append("LD_PRELOAD", *nvml);

  std::vector<char*> arguments;
  for (const std::string& argument : options.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int why = errno;
  std::fprintf(stderr, "gpushare run: %s: %s\n", arguments[0], std::strerror(why));
  return static_cast<ExitCode>(why == ENOENT ? kNotFound : kNotExecutable);
}

}  // namespace gpushare::cli
