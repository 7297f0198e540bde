// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/figures.h"

#include <cstdio>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "spec/text.h"

namespace gpushare::cli {
namespace {

constexpr char kNotFree[] = ", its memory is not free yet";

}  // namespace

std::string MemoryCell(uint64_t bytes) {
  return bytes == UINT64_MAX ? "-" : spec::ReadableBytes(bytes);
}

std::string ShareCell(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", share * 100);
  return text;
}

std::string SecondsCell(Nanos time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(time.count()) / 1e9);
  return text;
}

std::string AskedCell(const broker::Share& share) {
  char text[96];
  const char* const join = share.cap < 1 ? ", at most " : "";
  const std::string cap = share.cap < 1 ? absl::StrCat(share.cap * 100, " %") : "";
  if (share.guarantee > 0) {
    std::snprintf(text, sizeof(text), "%.4g %%%s%s", share.guarantee * 100, join, cap.c_str());
  } else {
    std::snprintf(text, sizeof(text), "weight %.4g%s%s", share.weight, join, cap.c_str());
  }
  if (share.priority == "normal") return text;
  return absl::StrCat(text, ", ", Printable(share.priority, 16));
}

std::string StateCell(const broker::Share& share) {
  return absl::StrCat(share.suspended ? "suspended" : "",
                      share.suspended && share.draining ? ", " : "",
                      share.draining ? "draining" : "");
}

std::string StateCell(const broker::ProcessShare& process) {
  if (process.reclaiming) return "ended, its memory is being reclaimed";
  if (process.gone) return absl::StrCat(process.evicted ? "evicted" : "gone", kNotFree);
  if (process.audit == broker::AuditResult::kNone) return "";
  if (process.audit == broker::AuditResult::kUnderstatesTime) return "runs longer than it says";
  if (process.audit == broker::AuditResult::kRunsPastGpushare) return "runs past gpushare";
  return absl::StrCat("holds more than it ",
                      process.audit == broker::AuditResult::kOverGrant ? "was granted" : "says",
                      ": ", MemoryCell(process.memory_by_driver));
}

std::vector<const broker::Share*> InFamilies(const broker::Snapshot& snapshot,
                                             const std::string& gpu) {
  std::vector<const broker::Share*> shares;
  std::map<std::string, std::vector<const broker::Share*>> children;
  for (const broker::Share& share : snapshot.shares) {
    if (share.gpu == gpu && !share.parent.empty()) children[share.parent].push_back(&share);
  }
  for (const broker::Share& share : snapshot.shares) {
    if (share.gpu != gpu || !share.parent.empty()) continue;
    shares.push_back(&share);
    const auto own = children.extract(share.tenant);
    if (!own.empty()) shares.insert(shares.end(), own.mapped().begin(), own.mapped().end());
  }
  // Those whose parent is not in the snapshot.
  for (const auto& [parent, own] : children) shares.insert(shares.end(), own.begin(), own.end());
  return shares;
}

std::string TenantCell(const broker::Share& share) {
  return absl::StrCat(share.parent.empty() ? "" : "  ", NameCell(share.tenant));
}

std::string NameCell(const std::string& name) { return Printable(name, 63); }

std::string ProgramCell(const std::string& program) {
  std::vector<std::string> words = absl::StrSplit(program, ' ');
  for (std::string& word : words) {
    if (word.size() > 1 && word.back() != '/') word = word.substr(word.rfind('/') + 1);
  }
  return NameCell(absl::StrJoin(words, " "));
}

std::string PidCell(const broker::ProcessShare& process) {
  return process.pid == 0 ? "?" : absl::StrCat(process.pid);
}

std::string GpuLine(const broker::GpuState& gpu) {
  return absl::StrCat(NameCell(gpu.uuid), ": ", MemoryCell(gpu.memory_promised), " of ",
                      MemoryCell(gpu.memory), " promised, ", ShareCell(gpu.guaranteed),
                      " guaranteed", gpu.draining ? ", draining" : "");
}

}  // namespace gpushare::cli
