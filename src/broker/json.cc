// SPDX-License-Identifier: Apache-2.0
#include "broker/json.h"

#include <array>
#include <nlohmann/json.hpp>

#include "broker/json_members.h"

namespace gpushare::broker {

static constexpr std::array<const char*, 6> NamesOf(AuditResult) {
  return {"", "understates", "over_grant", "stranger", "understates_time", "runs_past_gpushare"};
}

static void VisitMembers(Is<ProcessShare> auto& process, auto visit) {
  visit("session", process.session);
  visit("pid", process.pid);
  visit("uid", process.uid);
  visit("gid", process.gid);
  visit("program", process.program);
  visit("memory_used", process.memory_used);
  visit("memory_granted", process.memory_granted);
  visit("time_used_ns", process.time_used);
  visit("gone", process.gone);
  visit("evicted", process.evicted);
  visit("reclaiming", process.reclaiming);
  visit("memory_by_driver", process.memory_by_driver);
  visit("memory_overhead", process.memory_overhead);
  visit("audit", process.audit);
}

static void VisitMembers(Is<Stranger> auto& stranger, auto visit) {
  visit("pid", stranger.pid);
  visit("program", stranger.program);
  visit("memory_by_driver", stranger.memory_by_driver);
}

static void VisitMembers(Is<Share> auto& share, auto visit) {
  visit("gpu", share.gpu);
  visit("tenant", share.tenant);
  visit("parent", share.parent);
  visit("spec", share.spec);
  visit("labels", share.labels);
  visit("suspended", share.suspended);
  visit("draining", share.draining);
  visit("memory_limit", share.memory_limit);
  visit("memory_used", share.memory_used);
  visit("memory_granted", share.memory_granted);
  visit("memory_peak", share.memory_peak);
  visit("memory_reclaiming", share.memory_reclaiming);
  visit("allocations_denied", share.allocations_denied);
  visit("priority", share.priority);
  visit("guarantee", share.guarantee);
  visit("weight", share.weight);
  visit("cap", share.cap);
  visit("time_used_ns", share.time_used);
  visit("throttled_ns", share.throttled);
  visit("launches", share.launches);
  visit("waits", share.waits);
  visit("processes", share.processes);
}

static void VisitMembers(Is<GpuState> auto& gpu, auto visit) {
  visit("uuid", gpu.uuid);
  visit("memory", gpu.memory);
  visit("memory_promised", gpu.memory_promised);
  visit("guaranteed", gpu.guaranteed);
  visit("draining", gpu.draining);
  visit("strangers", gpu.strangers);
}

static void VisitMembers(Is<Snapshot> auto& snapshot, auto visit) {
  visit("at_ns", snapshot.at);
  visit("sessions", snapshot.sessions);
  visit("sessions_ever", snapshot.sessions_ever);
  visit("refused", snapshot.refused);
  visit("audits", snapshot.audits);
  visit("audited", snapshot.audited);
  visit("gpus", snapshot.gpus);
  visit("shares", snapshot.shares);
}

std::string ToJson(const Snapshot& snapshot) {
  return MembersWriter(base::JsonWriter::Style::kIndented).Text(snapshot);
}

absl::StatusOr<Snapshot> SnapshotFromJson(std::string_view text) {
  const auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return ReadAnswer<Snapshot>(document, {});
}

}  // namespace gpushare::broker
