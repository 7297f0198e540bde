// SPDX-License-Identifier: Apache-2.0
#include "broker/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "tests/unit/broker/snapshots.h"

namespace gpushare::broker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOnline[] =
    "{device_uuid=\"GPU-6f1c4f0e-1f7c-4c3a-9d53-0b6d8a2f1e11\",tenant=\"online\","
    "team=\"search \\\"engine\\\"\\\\\\n\"}";

// The value of a series with the given name and labels, as text.
std::string ValueOf(const std::string& text, const std::string& series) {
  const size_t at = text.find("\n" + series + " ");
  if (at == std::string::npos) return "absent";
  const size_t begin = at + series.size() + 2;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(BrokerMetrics, HasWhatAnAuditFound) {
  Snapshot snapshot = TwoTenants();
  EXPECT_THAT(ToPrometheus(snapshot), Not(HasSubstr("gpushare_audit_findings")));
  snapshot.audits = 9;
  EXPECT_THAT(ToPrometheus(snapshot), Not(HasSubstr("gpushare_audit_findings")))
      << "the latest failed";
  snapshot.audited = true;
  snapshot.shares[0].processes[0].audit = AuditResult::kUnderstates;
  snapshot.shares[0].processes[0].memory_by_driver = 5000;
  snapshot.shares[0].processes[1].memory_by_driver = 700;
  EXPECT_THAT(ToPrometheus(snapshot), Not(HasSubstr("gpushare_memory_overhead_bytes")));
  snapshot.shares[0].processes[1].memory_overhead = 300;
  snapshot.gpus[0].strangers = {{.pid = 77, .program = "game", .memory_by_driver = 600}};
  const std::string text = ToPrometheus(snapshot);
  const std::string gpu = absl::StrCat("{device_uuid=\"", kGpuOfTwo, "\"}");
  EXPECT_EQ(ValueOf(text, "gpushare_audits_total"), "9");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_audit_findings") + kOnline), "1");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_memory_by_driver_bytes") + kOnline), "5700");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_memory_overhead_bytes") + kOnline), "300");
  EXPECT_EQ(ValueOf(text, "gpushare_device_strangers" + gpu), "1");
  EXPECT_EQ(ValueOf(text, "gpushare_device_strangers_memory_bytes" + gpu), "600");
}

TEST(BrokerMetrics, NameTheParentOfAChild) {
  Snapshot snapshot = TwoTenants();
  snapshot.shares[1].parent = "online";
  const std::string text = ToPrometheus(snapshot);
  EXPECT_EQ(ValueOf(text, absl::StrCat("gpushare_tenant_suspended{device_uuid=\"", kGpuOfTwo,
                                       "\",tenant=\"batch\",parent=\"online\"}")),
            "1");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_tenant_suspended") + kOnline), "0");
}

TEST(BrokerMetrics, CountFindingsOfTimeWhereTheDriverHasNoFigureOfMemory) {
  Snapshot snapshot = TwoTenants();
  snapshot.audited = true;
  snapshot.shares[0].processes[0].audit = AuditResult::kRunsPastGpushare;
  const std::string text = ToPrometheus(snapshot);
  EXPECT_EQ(ValueOf(text, std::string("gpushare_audit_findings") + kOnline), "1");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_memory_by_driver_bytes") + kOnline), "0");
}

TEST(BrokerMetrics, CountAProcessOfTwoSessionsOnce) {
  Snapshot snapshot = TwoTenants();
  snapshot.audited = true;
  for (ProcessShare& process : snapshot.shares[0].processes) {
    process.pid = 4242;
    process.audit = AuditResult::kUnderstates;
    process.memory_by_driver = 5000;
    process.memory_overhead = 40;
  }
  const std::string text = ToPrometheus(snapshot);
  EXPECT_EQ(ValueOf(text, std::string("gpushare_audit_findings") + kOnline), "1");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_memory_by_driver_bytes") + kOnline), "5000");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_memory_overhead_bytes") + kOnline), "40");
}

TEST(BrokerMetrics, WaitsAreAHistogram) {
  Snapshot snapshot = TwoTenants();
  WaitHistogram& waits = snapshot.shares[0].in_line;
  for (const Nanos took : {Nanos(0), Micros(100), Millis(4), Millis(4), Seconds(3)})
    waits.Add(took);
  snapshot.shares[0].preempted = 4;
  const std::string text = ToPrometheus(snapshot);
  const std::string labels(kOnline, sizeof(kOnline) - 2);  // without the closing brace
  const auto bucket = [&](const char* bound) {
    return ValueOf(text,
                   absl::StrCat("gpushare_wait_seconds_bucket", labels, ",le=\"", bound, "\"}"));
  };
  EXPECT_EQ(bucket("0.0001"), "2") << text;
  EXPECT_EQ(bucket("0.002"), "2");
  EXPECT_EQ(bucket("0.005"), "4");
  EXPECT_EQ(bucket("1"), "4");
  EXPECT_EQ(bucket("+Inf"), "5");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_wait_seconds_count") + kOnline), "5");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_wait_seconds_sum") + kOnline), "3.0081");
  EXPECT_EQ(ValueOf(text, std::string("gpushare_leases_preempted_total") + kOnline), "4");
}

TEST(BrokerMetrics, HasEveryFigureOfAShare) {
  const std::string text = ToPrometheus(TwoTenants());
  const std::map<std::string, std::string> expected = {
      {"gpushare_memory_used_bytes", "3221225472"},
      {"gpushare_memory_limit_bytes", "8589934592"},
      {"gpushare_memory_reserved_bytes", "4294967296"},
      {"gpushare_memory_peak_bytes", "5368709120"},
      {"gpushare_allocations_failed_total", "2"},
      {"gpushare_compute_share_ratio", "0.5"},
      {"gpushare_compute_weight", "1"},
      {"gpushare_compute_cap_ratio", "1"},
      {"gpushare_compute_used_seconds_total", "90"},
      {"gpushare_compute_throttled_seconds_total", "1.5"},
      {"gpushare_launches_total", "123456"},
      {"gpushare_waits_total", "17"},
      {"gpushare_tenant_processes", "1"},
      {"gpushare_tenant_suspended", "0"}};
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(ValueOf(text, name + kOnline), value) << name << "\n" << text;
  }
  // Without a quota the limit is absent, and not a very large number.
  EXPECT_THAT(text, Not(HasSubstr(absl::StrCat("gpushare_memory_limit_bytes{device_uuid=\"",
                                               kGpuOfTwo, "\",tenant=\"batch\""))));
  EXPECT_EQ(ValueOf(text, absl::StrCat("gpushare_tenant_suspended{device_uuid=\"", kGpuOfTwo,
                                       "\",tenant=\"batch\"}")),
            "1");
  EXPECT_EQ(ValueOf(text, "gpushare_broker_sessions_total"), "5");
  EXPECT_EQ(
      ValueOf(text, absl::StrCat("gpushare_device_memory_bytes{device_uuid=\"", kGpuOfTwo, "\"}")),
      "150323855360");
}

// Each family has HELP, then TYPE, then all its series. Only counters end in _total.
TEST(BrokerMetrics, KeepsTheRulesOfTheFormat) {
  std::istringstream lines(ToPrometheus(TwoTenants()));
  std::set<std::string> seen, series;
  std::string family, type;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# HELP ", 0) == 0) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(seen.insert(family).second) << line;
      EXPECT_EQ(line.back(), '.') << line;
      type.clear();
    } else if (line.rfind("# TYPE ", 0) == 0) {
      EXPECT_EQ(line.substr(7, family.size() + 1), family + " ");
      type = line.substr(8 + family.size());
      const bool total = family.size() > 6 && family.substr(family.size() - 6) == "_total";
      const bool histogram = family == "gpushare_wait_seconds";
      EXPECT_EQ(type, histogram ? "histogram" : total ? "counter" : "gauge") << line;
    } else {
      const std::string name = line.substr(0, line.find_first_of("{ "));
      EXPECT_EQ(type == "histogram" ? name.substr(0, name.rfind('_')) : name, family) << line;
      EXPECT_FALSE(type.empty()) << line;
      EXPECT_EQ(name.rfind("gpushare_", 0), 0u) << line;
      EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
  }
  EXPECT_GT(series.size(), 20u);
}

std::string Source(const std::string& path) {
  const char* const source = std::getenv("GPUSHARE_SOURCE");
  std::stringstream text;
  if (source != nullptr) text << std::ifstream(absl::StrCat(source, "/", path)).rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// The names of metrics in a text.
std::set<std::string> Named(const std::string& text) {
  std::set<std::string> names;
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
  for (size_t at = 0; (at = text.find("gpushare_", at)) != std::string::npos;) {
    const size_t end = text.find_first_not_of(kLetters, at);
    names.insert(text.substr(at, end - at));
    at = end;
  }
  return names;
}

Snapshot Audited() {
  Snapshot snapshot = TwoTenants();
  snapshot.audits = 1;
  snapshot.audited = true;
  snapshot.shares[0].processes[0].memory_overhead = 300;
  return snapshot;
}

TEST(BrokerMetrics, AreThoseOfTheDocumentation) {
  const std::string page = Source("docs/broker.md");
  const size_t begin = page.find("\n## Metrics\n");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(Named(page.substr(begin, page.find("\n## ", begin + 1) - begin)),
            Named(ToPrometheus(Audited())));
}

TEST(BrokerMetrics, AreThoseOfTheDashboard) {
  const auto dashboard =
      nlohmann::json::parse(Source("share/grafana/gpushare.json"), nullptr, false);
  ASSERT_FALSE(dashboard.is_discarded());
  const std::set<std::string> there = Named(ToPrometheus(Audited()));
  size_t targets = 0;
  for (const auto& panel : dashboard["panels"]) {
    for (const auto& target : panel["targets"]) {
      for (const std::string& name : Named(target["expr"].get<std::string>())) {
        EXPECT_TRUE(there.count(name) > 0) << panel["title"] << ": " << name;
      }
      ++targets;
    }
  }
  EXPECT_GE(targets, 10u);
}

// The response to an HTTP GET.
std::string Get(int port, const std::string& path) {
  const base::UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n");
  EXPECT_EQ(send(client.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char part[4096];
  for (ssize_t n; (n = recv(client.get(), part, sizeof(part), 0)) > 0;) {
    answer.append(part, static_cast<size_t>(n));
  }
  return answer;
}

TEST(BrokerMetrics, AreServed) {
  std::atomic<int> asked{0};
  const auto server = MetricsServer::Listen("127.0.0.1:0", [&asked] {
    ++asked;
    return TwoTenants();
  });
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  ASSERT_GT(port, 0);
  const std::string answer = Get(port, "/metrics");
  EXPECT_THAT(answer, HasSubstr(" 200 OK"));
  EXPECT_THAT(answer, HasSubstr("text/plain"));
  EXPECT_THAT(answer, HasSubstr(absl::StrCat("gpushare_launches_total", kOnline, " 123456\n")));
  EXPECT_EQ(asked, 1);
  EXPECT_THAT(Get(port, "/"), HasSubstr(" 404 "));
  EXPECT_THAT(Get(port, "/../../etc/passwd"), Not(HasSubstr("root:")));
  // The port is in use now.
  const auto second =
      MetricsServer::Listen(absl::StrCat("127.0.0.1:", port), [] { return Snapshot(); });
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("127.0.0.1:", port)));
}

}  // namespace
}  // namespace gpushare::broker
