// SPDX-License-Identifier: Apache-2.0
#include "broker/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpushare/version.h"

namespace gpushare::broker {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

double InSeconds(Nanos time) { return static_cast<double>(time.count()) / 1e9; }

// The labels that identify a share, its parent if it has one, and the tenant's own labels.
Labels LabelsOf(const Share& share) {
  Labels labels = {{"device_uuid", share.gpu}, {"tenant", share.tenant}};
  if (!share.parent.empty()) labels.push_back({"parent", share.parent});
  for (const auto& [name, value] : share.labels) labels.push_back({name, value});
  return labels;
}

// Metric families in the order of their first use.
class Families {
 public:
  void Gauge(const char* name, const char* help, Labels labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    Of(name, help, MetricType::Gauge).metric.push_back(std::move(metric));
  }
  void Counter(const char* name, const char* help, Labels labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.counter.value = value;
    Of(name, help, MetricType::Counter).metric.push_back(std::move(metric));
  }
  void Histogram(const char* name, const char* help, Labels labels, const WaitHistogram& waits) {
    ClientMetric metric;
    metric.label = std::move(labels);
    uint64_t so_far = 0;
    for (size_t i = 0; i < waits.counts.size(); ++i) {
      so_far += waits.counts[i];
      const double bound = i < WaitHistogram::kBounds.size()
                               ? InSeconds(WaitHistogram::kBounds[i])
                               : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({so_far, bound});
    }
    metric.histogram.sample_count = so_far;
    metric.histogram.sample_sum = InSeconds(waits.sum);
    Of(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> Take() && { return std::move(families_); }

 private:
  MetricFamily& Of(const char* name, const char* help, MetricType type) {
    const auto [place, is_new] = places_.emplace(name, families_.size());
    if (is_new) {
      MetricFamily family;
      family.name = name;
      family.help = help;
      family.type = type;
      families_.push_back(std::move(family));
    }
    return families_[place->second];
  }

  std::vector<MetricFamily> families_;
  std::map<std::string, size_t> places_;
};

void AddMemory(const Share& share, const Labels& labels, Families* out) {
  out->Gauge("gpushare_memory_used_bytes",
             "Device memory that the tenant holds, with its children.", labels,
             static_cast<double>(share.memory_used));
  if (share.memory_limit != UINT64_MAX) {
    out->Gauge("gpushare_memory_limit_bytes", "The tenant's memory quota; absent without one.",
               labels, static_cast<double>(share.memory_limit));
  }
  out->Gauge("gpushare_memory_reserved_bytes",
             "Device memory granted to the tenant's processes, held or not.", labels,
             static_cast<double>(share.memory_granted));
  out->Gauge("gpushare_memory_reclaiming_bytes",
             "Of that, what processes held that have ended and the driver may not have back.",
             labels, static_cast<double>(share.memory_reclaiming));
  out->Gauge("gpushare_memory_peak_bytes", "The most that the tenant has held.", labels,
             static_cast<double>(share.memory_peak));
  out->Counter("gpushare_allocations_failed_total",
               "Allocations that were refused because of the tenant's quota.", labels,
               static_cast<double>(share.allocations_denied));
}

void AddCompute(const Share& share, const Labels& labels, Families* out) {
  out->Gauge("gpushare_compute_share_ratio",
             "Part of the device's time that the tenant is guaranteed, 0 to 1.", labels,
             share.guarantee);
  out->Gauge("gpushare_compute_weight", "The tenant's weight in what is not guaranteed.", labels,
             share.weight);
  out->Gauge("gpushare_compute_cap_ratio",
             "Part of the device's time that the tenant never exceeds, 0 to 1.", labels, share.cap);
  out->Counter("gpushare_compute_used_seconds_total", "Device time that the tenant has used.",
               labels, InSeconds(share.time_used));
  out->Counter("gpushare_compute_throttled_seconds_total",
               "Host time that the tenant's launches were held.", labels,
               InSeconds(share.throttled));
  out->Counter("gpushare_launches_total", "Kernels and graphs that the tenant has launched.",
               labels, static_cast<double>(share.launches));
  out->Counter("gpushare_waits_total", "Launches that were held.", labels,
               static_cast<double>(share.waits));
  out->Histogram("gpushare_wait_seconds",
                 "How long the tenant's processes were in line for a grant of device time.", labels,
                 share.in_line);
  out->Counter("gpushare_leases_preempted_total",
               "Times that a process of the tenant which had device time, or was in line for it, "
               "was stopped for a tenant of high priority.",
               labels, static_cast<double>(share.preempted));
}

void AddAudit(const Share& share, const Labels& labels, Families* out) {
  double held = 0;
  int findings = 0;
  std::set<int32_t> counted;  // the driver counts a process once, however many sessions it has
  for (const ProcessShare& process : share.processes) {
    if (process.memory_by_driver == UINT64_MAX && process.audit == AuditResult::kNone) continue;
    if (!counted.insert(process.pid).second) continue;
    if (process.memory_by_driver != UINT64_MAX)
      held += static_cast<double>(process.memory_by_driver);
    if (process.audit != AuditResult::kNone) ++findings;
  }
  out->Gauge("gpushare_memory_by_driver_bytes",
             "Device memory that the tenant's processes hold by the driver's count, contexts "
             "included.",
             labels, held);
  if (const uint64_t overhead = share.memory_overhead(); overhead != UINT64_MAX) {
    out->Gauge("gpushare_memory_overhead_bytes",
               "Device memory that the tenant's processes hold beyond what is charged: contexts, "
               "modules and libraries.",
               labels, static_cast<double>(overhead));
  }
  out->Gauge(
      "gpushare_audit_findings",
      "The tenant's processes that hold more than they say, or than they were granted, run longer "
      "than they say, or run past gpushare.",
      labels, findings);
}

std::vector<MetricFamily> Collected(const Snapshot& snapshot) {
  Families out;
  out.Gauge("gpushare_build_info", "1, with the broker's version as a label.",
            {{"version", GPUSHARE_VERSION_STRING}}, 1);
  out.Gauge("gpushare_broker_sessions", "Processes that are registered.", {},
            static_cast<double>(snapshot.sessions));
  out.Counter("gpushare_broker_sessions_total", "Processes that have registered so far.", {},
              static_cast<double>(snapshot.sessions_ever));
  out.Counter("gpushare_broker_refused_total", "Processes that were refused.", {},
              static_cast<double>(snapshot.refused));
  out.Counter("gpushare_audits_total",
              "How often what processes say was held against the driver's count.", {},
              static_cast<double>(snapshot.audits));
  for (const GpuState& gpu : snapshot.gpus) {
    const Labels labels = {{"device_uuid", gpu.uuid}};
    out.Gauge("gpushare_device_memory_bytes", "Device memory that may be promised.", labels,
              static_cast<double>(gpu.memory));
    out.Gauge("gpushare_device_memory_promised_bytes", "Memory quotas of all tenants.", labels,
              static_cast<double>(gpu.memory_promised));
    out.Gauge("gpushare_device_guaranteed_ratio", "Guarantees of all tenants, 0 to 1.", labels,
              gpu.guaranteed);
    if (!snapshot.audited) continue;
    double held = 0;
    for (const Stranger& stranger : gpu.strangers) {
      held += static_cast<double>(stranger.memory_by_driver);
    }
    out.Gauge("gpushare_device_strangers", "Processes on the GPU that are no tenant's.", labels,
              static_cast<double>(gpu.strangers.size()));
    out.Gauge("gpushare_device_strangers_memory_bytes",
              "Device memory that these hold, by the driver's count.", labels, held);
  }
  for (const Share& share : snapshot.shares) {
    const Labels labels = LabelsOf(share);
    AddMemory(share, labels, &out);
    AddCompute(share, labels, &out);
    if (snapshot.audited) AddAudit(share, labels, &out);
    uint64_t processes = 0;
    for (const ProcessShare& process : share.processes) processes += process.gone ? 0 : 1;
    out.Gauge("gpushare_tenant_processes", "The tenant's processes.", labels,
              static_cast<double>(processes));
    out.Gauge("gpushare_tenant_suspended", "1 while the tenant is suspended, else 0.", labels,
              share.suspended ? 1 : 0);
  }
  return std::move(out).Take();
}

class SnapshotMetrics : public prometheus::Collectable {
 public:
  explicit SnapshotMetrics(MetricsServer::Source source) : source_(std::move(source)) {}
  std::vector<MetricFamily> Collect() const override { return Collected(source_()); }

 private:
  const MetricsServer::Source source_;
};

}  // namespace

std::string ToPrometheus(const Snapshot& snapshot) {
  return prometheus::TextSerializer().prometheus::Serializer::Serialize(Collected(snapshot));
}

struct MetricsServer::Parts {
  std::shared_ptr<SnapshotMetrics> metrics;
  std::unique_ptr<prometheus::Exposer> exposer;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Listen(const std::string& address,
                                                                     Source source) {
  auto parts = std::make_unique<Parts>();
  parts->metrics = std::make_shared<SnapshotMetrics>(std::move(source));
  try {
    // An incomplete request occupies a thread, but only until the timeout.
    parts->exposer = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", address, "num_threads", "8", "request_timeout_ms", "1000"});
    parts->exposer->RegisterCollectable(parts->metrics);
  } catch (const std::exception&) {
    // The library's own message says only that there was an error.
    return absl::UnavailableError(
        absl::StrCat("metrics cannot be served at ", address,
                     ": the address is not of this machine, or the port is in use or not allowed"));
  }
  const std::vector<int> ports = parts->exposer->GetListeningPorts();
  return std::unique_ptr<MetricsServer>(
      new MetricsServer(std::move(parts), ports.empty() ? 0 : ports[0]));
}

MetricsServer::MetricsServer(std::unique_ptr<Parts> parts, int port)
    : parts_(std::move(parts)), port_(port) {}

MetricsServer::~MetricsServer() = default;

}  // namespace gpushare::broker
