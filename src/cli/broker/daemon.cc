// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/daemon.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "broker/auditor.h"
#include "broker/config.h"
#include "broker/host.h"
#include "broker/json.h"
#include "broker/metrics.h"
#include "broker/nvml.h"
#include "broker/reclaimer.h"
#include "broker/service.h"
#include "cli/broker/ask.h"
#include "cli/broker/check.h"
#include "cli/broker_clock.h"
#include "cli/output.h"
#include "gpushare/version.h"

namespace gpushare::cli {
namespace {

using broker::Config;
using broker::EventLog;
using broker::LogField;
using broker::LogLevel;

std::string SocketOf(const DaemonOptions& options, const Config& config) {
  if (!options.socket.empty()) return options.socket;
  if (!config.socket.empty()) return config.socket;
  return SocketOfEnvironment();
}

absl::StatusOr<Config> ConfigOf(const DaemonOptions& options) {
  return options.config.empty() ? Config() : broker::LoadConfig(options.config);
}

absl::StatusOr<std::string> MetricsOf(const DaemonOptions& options, const Config& config) {
  if (options.metrics.empty()) return config.metrics;
  absl::StatusOr<std::string> address = broker::ParseAddress(options.metrics);
  if (address.ok()) return address;
  return absl::InvalidArgumentError(
      absl::StrCat("--metrics: '", options.metrics, "' given; ", address.status().message()));
}

// Creates the socket's folder if it is missing, as in /run after a reboot.
void MakeFolderOf(const std::string& socket) {
  const size_t slash = socket.rfind('/');
  if (slash != std::string::npos && slash > 0) mkdir(socket.substr(0, slash).c_str(), 0755);
}

// nullopt: the GPUs will be learnt from processes.
absl::StatusOr<std::optional<broker::Host>> HostOf(GpuSource gpus, const EventLog& log) {
  if (gpus == GpuSource::kNone) return std::nullopt;
  SetClockBesideABroker();
  absl::StatusOr<broker::Host> host = broker::OpenHost(gpus == GpuSource::kSimulated ? "sim" : "");
  if (host.ok()) return std::optional(*std::move(host));
  if (gpus != GpuSource::kAuto) return host.status();
  log.Info("no_gpus_known", {{"why", std::string(host.status().message())}});
  return std::nullopt;
}

// Writes an event of the service to the log.
void Say(const EventLog& log, std::string_view event,
         const std::vector<std::pair<std::string, std::string>>& given) {
  std::vector<LogField> fields;
  bool bad = event == "refused" || event == "audit_finding" || event == "audit_failed" ||
             event == "stranger" || event == "reclaim_overdue" || event == "remains_refused" ||
             event == "remains_not_kept" || event == "lines_left_out";
  for (const auto& [name, value] : given) {
    bad = bad || (name == "result" && value != "ok");
    LogField& field = fields.emplace_back(name, value);
    field.is_number = (name == "pid" || name == "uid" || name == "session" || name == "says" ||
                       name == "processes" || name == "granted" || name == "by_driver" ||
                       name == "lines" || name == "ran_ns" || name == "says_ran_ns") &&
                      !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  }
  log.Write(bad ? LogLevel::kWarning : LogLevel::kInfo, event, fields);
}

// The threads that query NVML; both null without NVML.
struct Askers {
  std::unique_ptr<broker::Auditor> auditor;
  std::unique_ptr<broker::Reclaimer> reclaimer;
};

Askers AskersOf(broker::Service& service, const std::optional<broker::Host>& host,
                const EventLog& log) {
  if (!host.has_value()) return {};
  absl::StatusOr<std::unique_ptr<driver::Nvml>> nvml = driver::Nvml::Open(host->driver->path());
  if (!nvml.ok()) {
    log.Warning("audit_failed", {{"why", std::string(nvml.status().message())}});
    return {};
  }
  const std::shared_ptr<driver::Nvml> shared = *std::move(nvml);
  const auto count = [nvml = shared](const std::vector<std::string>& uuids) {
    return broker::Count(*nvml, uuids);
  };
  const auto sample = [nvml = shared](const std::map<std::string, uint64_t>& since) {
    return broker::Sample(*nvml, since);
  };
  return {std::make_unique<broker::Auditor>(service, count, host->clock(), sample),
          std::make_unique<broker::Reclaimer>(service, count, host->clock())};
}

void SayDoubts(const Config& config, const EventLog& log) {
  for (const std::string& doubt : broker::DoubtsOf(config)) log.Warning("doubt", {{"why", doubt}});
}

void Reload(const DaemonOptions& options, const Config& begun, const EventLog& log,
            broker::Service& service) {
  if (options.config.empty()) {
    log.Warning("reload_refused", {{"why", "the broker was started without --config"}});
    return;
  }
  const uint64_t reading = service.BeginReading();
  const absl::StatusOr<Config> config = ConfigOf(options);
  const absl::Status applied = config.ok() ? service.Apply(*config, reading) : config.status();
  if (!applied.ok()) {
    log.Error("reload_refused", {{"why", std::string(applied.message())}});
    return;
  }
  const std::string waits = broker::WaitForRestart(begun, *config);
  if (!waits.empty()) log.Warning("restart_wanted", {{"keys", waits}});
  SayDoubts(*config, log);
  log.Info("reloaded", {{"config", options.config}, {"tenants", uint64_t{config->tenants.size()}}});
}

// Handles the process's signals on a thread of its own. Blocks them in all threads, so create it before other threads.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    for (const int each : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, each);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  ~Signals() { End(); }
  // `end` and `reload` are called on that thread.
  void Take(std::function<void(int signal)> end, std::function<void()> reload) {
    thread_ = std::thread([this, end = std::move(end), reload = std::move(reload)] {
      for (;;) {
        int signal = 0;
        sigwait(&set_, &signal);
        if (ended_) return;
        signal == SIGHUP ? reload() : end(signal);
      }
    });
  }
  // Stops handling signals.
  void End() {
    if (!thread_.joinable()) return;
    ended_ = true;
    pthread_kill(thread_.native_handle(), SIGHUP);
    thread_.join();
  }

 private:
  sigset_t set_{};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

absl::Status Serve(const DaemonOptions& options, const Config& config, const std::string& metrics,
                   const std::optional<broker::Host>& host, const EventLog& log, Signals& signals) {
  const std::string socket = SocketOf(options, config);
  MakeFolderOf(socket);
  base::Clock& clock = host.has_value() ? host->clock() : base::RealClock();
  broker::ServiceOptions service_options;
  service_options.clock = &clock;
  if (host.has_value()) service_options.gpus = host->gpus;
  service_options.socket = socket;
  service_options.mode = static_cast<mode_t>(options.mode);
  service_options.remains = socket + ".books";
  service_options.teardown = broker::kTeardown;
  service_options.answer = [](std::string_view what,
                              const broker::Snapshot& snapshot) -> absl::StatusOr<std::string> {
    if (what == "list") return broker::ToJson(snapshot);
    if (what == "metrics") return broker::ToPrometheus(snapshot);
    return absl::InvalidArgumentError("the broker is asked for what it does not know");
  };
  if (!options.config.empty()) service_options.reload = [&options] { return ConfigOf(options); };
  service_options.log = [&log](std::string_view event, const auto& fields) {
    Say(log, event, fields);
  };
  GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<broker::Service> service,
                            broker::Service::Create(config, std::move(service_options)));
  std::unique_ptr<broker::MetricsServer> server;
  if (!metrics.empty()) {
    GPUSHARE_ASSIGN_OR_RETURN(
        server, broker::MetricsServer::Listen(metrics, [&] { return service->TakeSnapshot(); }));
    log.Info("metrics_served", {{"address", metrics}, {"port", server->port()}});
  }
  signals.Take(
      [&](int signal) {
        log.Info("stopping", {{"signal", signal}});
        server.reset();  // takes a while, during which processes are still served
        service->Stop();
      },
      [&] { Reload(options, config, log, *service); });
  SayDoubts(config, log);
  log.Info("started", {{"version", GPUSHARE_VERSION_STRING},
                       {"socket", socket},
                       {"config", options.config},
                       {"tenants", uint64_t{config.tenants.size()}},
                       {"gpus", uint64_t{host.has_value() ? host->gpus.size() : 0}},
                       {"pid", int64_t{getpid()}}});
  Askers askers = AskersOf(*service, host, log);
  absl::Status ended;
  // The service runs on a thread of the clock, since a simulated GPU's clock must know its threads.
  clock.StartService("broker", [&] { ended = service->Run(); })->Join();
  askers = {};
  signals.End();
  return ended;
}

}  // namespace

absl::StatusOr<Configured> ReadConfigured(const std::string& path) {
  GPUSHARE_ASSIGN_OR_RETURN(const Config config, broker::LoadConfig(path));
  Configured configured{.socket = config.socket, .tenants = {}};
  for (const broker::TenantConfig& tenant : config.tenants) {
    configured.tenants.push_back(tenant.name);
  }
  return configured;
}

ExitCode RunDaemon(const DaemonOptions& options) {
  const absl::StatusOr<Config> config = ConfigOf(options);
  const absl::StatusOr<std::string> metrics =
      config.ok() ? MetricsOf(options, *config) : config.status();
  if (options.check) return Check(options, config, metrics.status());
  if (!metrics.ok()) return Fail("broker", kExitUsage, metrics.status());
  const EventLog log(
      {.level = options.level, .format = options.format, .sink = {}, .wall_clock = {}});
  const auto failed = [&log](ExitCode code, const absl::Status& status) {
    log.Error("failed", {{"why", std::string(status.message())}});
    return code;
  };
  broker::AllowAllDescriptors();
  Signals signals;  // before the driver creates threads
  const absl::StatusOr<std::optional<broker::Host>> host = HostOf(options.gpus, log);
  if (!host.ok()) return failed(kExitNoGpu, host.status());
  const absl::Status ended = Serve(options, *config, *metrics, *host, log, signals);
  if (!ended.ok()) return failed(kExitFailed, ended);
  log.Info("stopped");
  return kExitOk;
}

}  // namespace gpushare::cli
