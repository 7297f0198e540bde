// SPDX-License-Identifier: Apache-2.0
#include "base/json_writer.h"
#include "cli/demo/report.h"
#include "gpushare/version.h"

namespace gpushare::cli {
namespace {

double InSeconds(Nanos time) { return static_cast<double>(time.count()) / 1e9; }

void Numbers(const char* key, const std::vector<double>& values, base::JsonWriter* json) {
  json->Key(key).BeginArray();
  for (const double value : values) json->Number(value);
  json->EndArray();
}

void Latency(const char* key, const LatencyFigures& figures, base::JsonWriter* json) {
  json->Key(key).BeginObject();
  json->Key("requests").Integer(figures.requests);
  json->Key("p50_s").Number(InSeconds(figures.p50));
  json->Key("p99_s").Number(InSeconds(figures.p99));
  json->Key("longest_s").Number(InSeconds(figures.most));
  json->EndObject();
}

void TenantObject(const TenantFigures& tenant, base::JsonWriter* json) {
  json->BeginObject();
  json->Key("name").String(tenant.name);
  json->Key("workload").String(tenant.workload);
  json->Key("spec").String(tenant.spec);
  json->Key("asked");
  tenant.guarantee >= 0 ? json->Number(tenant.guarantee) : json->Null();
  Numbers("got", tenant.got, json);
  Numbers("metered", tenant.metered, json);
  json->Key("memory").BeginObject();
  json->Key("limit_bytes").Integer(static_cast<int64_t>(tenant.memory_limit));
  json->Key("peak_bytes").Integer(static_cast<int64_t>(tenant.memory_peak));
  json->Key("denied").Integer(static_cast<int64_t>(tenant.denied));
  json->EndObject();
  json->Key("launches").Integer(static_cast<int64_t>(tenant.launches));
  json->Key("waits").Integer(static_cast<int64_t>(tenant.waits));
  json->Key("passes").Integer(static_cast<int64_t>(tenant.passes));
  json->Key("throttled_s").Number(InSeconds(tenant.throttled));
  Numbers("series", tenant.series, json);
  json->EndObject();
}

}  // namespace

std::string ReportJson(const DemoReport& report) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("gpushare").String(GPUSHARE_VERSION_STRING);
  json.Key("gpu").String(report.gpu);
  json.Key("simulated").Bool(report.simulated);
  json.Key("policy").String(report.options.policy);
  json.Key("seed").Integer(static_cast<int64_t>(report.options.seed));
  json.Key("seconds").Number(InSeconds(report.length));
  json.Key("step_s").Number(InSeconds(report.step));
  json.Key("phases").BeginArray();
  for (const Phase& phase : report.phases) {
    json.BeginObject();
    json.Key("name").String(phase.name);
    json.Key("from_s").Number(InSeconds(phase.from));
    json.Key("to_s").Number(InSeconds(phase.to));
    json.EndObject();
  }
  json.EndArray();
  json.Key("tenants").BeginArray();
  for (const TenantFigures& tenant : report.tenants) TenantObject(tenant, &json);
  json.EndArray();
  json.Key("latency").BeginObject();
  Latency("alone", report.alone, &json);
  Latency("shared", report.shared, &json);
  json.EndObject();
  json.Key("device").BeginObject();
  json.Key("busy").Number(report.busy);
  json.Key("sms_held").Number(report.sms_held);
  json.EndObject();
  json.EndObject();
  return json.text() + "\n";
}

}  // namespace gpushare::cli
