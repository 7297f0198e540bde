// SPDX-License-Identifier: Apache-2.0
#include "broker/time_audit.h"

#include <algorithm>

namespace gpushare::broker {
namespace {

// Figures that have gone back belong to another process with the same pid.
bool IsAnother(const Claim& before, const Claim& now) {
  return now.time_used_ns < before.time_used_ns || now.launches < before.launches;
}

}  // namespace

std::map<std::string, uint64_t> TimeAudit::Since(const std::vector<std::string>& gpus) const {
  std::map<std::string, uint64_t> since;
  for (const std::string& gpu : gpus) {
    const auto at = until_us_.find(gpu);
    since[gpu] = at == until_us_.end() ? 0 : at->second;
  }
  return since;
}

void TimeAudit::Add(const Claims& claims, const Ran& ran, Time now) {
  std::erase_if(seen_, [&](const auto& entry) {
    return claims.count(entry.first) == 0 || ran.count(entry.first.gpu) == 0;
  });
  for (const auto& [process, claim] : claims) {
    if (ran.count(process.gpu) == 0) continue;
    const auto [at, is_new] = seen_.try_emplace(process);
    if (is_new || IsAnother(at->second.latest, claim)) {
      at->second = {};
      at->second.begin = now;
      at->second.first = claim;
    }
    at->second.latest = claim;
  }
  for (const auto& [gpu, samples] : ran) {
    uint64_t& latest = until_us_[gpu];
    for (const RanSample& sample : samples) {
      latest = std::max(latest, sample.until_us);
      const auto at = seen_.find({gpu, sample.pid});
      if (at == seen_.end()) continue;
      Seen& seen = at->second;
      if (sample.until_us <= seen.until_us) continue;
      // The first sample may be from before the stretch.
      if (seen.until_us != 0) {
        const uint64_t since_us = sample.until_us - seen.until_us;
        const int64_t length = since_us >= static_cast<uint64_t>(kSample.count() / 1000)
                                   ? kSample.count()
                                   : static_cast<int64_t>(since_us) * 1000;
        seen.ran_ns += length * std::min<int64_t>(sample.percent, 100) / 100;
      }
      seen.until_us = sample.until_us;
    }
  }
}

void TimeAudit::End(Seen& seen, Nanos length) {
  const int64_t says = seen.latest.time_used_ns - seen.first.time_used_ns;
  const auto ran = static_cast<double>(seen.ran_ns);
  AuditResult what = AuditResult::kNone;
  if (ran > kOfDevice * static_cast<double>(length.count())) {
    const bool idle =
        seen.latest.launches == seen.first.launches && says == 0 && !seen.latest.in_flight;
    if (seen.latest.launches == 0 || idle) {
      what = AuditResult::kRunsPastGpushare;
    } else if (ran > kFactor * static_cast<double>(says + kLate.count())) {
      what = AuditResult::kUnderstatesTime;
    }
  }
  seen.in_a_row = what == AuditResult::kNone ? 0 : seen.in_a_row + 1;
  seen.finding.what = what;
  seen.finding.counted = UINT64_MAX;
  seen.finding.claim = seen.latest;
  seen.finding.ran_ns = seen.ran_ns;
  seen.finding.says_ran_ns = says;
}

Findings TimeAudit::Judge(Time now) {
  Findings findings;
  for (auto& [process, seen] : seen_) {
    const Nanos length = now - seen.begin;
    const bool nothing_done =
        seen.latest.in_flight && seen.latest.time_used_ns == seen.first.time_used_ns;
    if (length >= kShortest && (!nothing_done || length >= kLongest)) {
      End(seen, length);
      seen.begin = now;
      seen.first = seen.latest;
      seen.ran_ns = 0;
    }
    if (seen.in_a_row >= kInARow) findings[process] = seen.finding;
  }
  return findings;
}

}  // namespace gpushare::broker
