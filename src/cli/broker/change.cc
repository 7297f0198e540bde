// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/change.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "broker/json.h"
#include "cli/broker/ask.h"
#include "cli/broker/figures.h"
#include "cli/broker/list.h"
#include "cli/output.h"
#include "spec/spec.h"

namespace gpushare::cli {
namespace {

broker::Snapshot OnlyOf(broker::Snapshot snapshot, const std::string& tenant) {
  std::erase_if(snapshot.shares, [&](const broker::Share& share) {
    return share.tenant != tenant && share.parent != tenant;
  });
  return snapshot;
}

// Checks what can be checked without the broker.
absl::Status Check(const ipc::Change& change) {
  if (change.what != "set") return absl::OkStatus();
  const absl::StatusOr<gpushare_spec> spec = spec::ParseSpec(change.spec);
  if (!spec.ok()) return spec.status();
  if (spec->set != 0) return absl::OkStatus();
  return absl::InvalidArgumentError("spec: it is empty; name the keys to change, as in cap=50%");
}

// The key of `share`, such as "guarantee=30%", that takes precedence over a `compute` just set, so that it has no effect; empty if
// there is none.
std::string GoesBefore(const ipc::Change& change, const broker::Share& share) {
  if (change.what != "set" || (!change.gpu.empty() && share.gpu != change.gpu)) return "";
  const absl::StatusOr<gpushare_spec> keys = spec::ParseSpec(change.spec);
  const absl::StatusOr<gpushare_spec> now = spec::ParseSpec(share.spec);
  if (!keys.ok() || !now.ok()) return "";
  const uint32_t both = GPUSHARE_SPEC_COMPUTE | GPUSHARE_SPEC_GUARANTEE;
  if ((keys->set & both) != GPUSHARE_SPEC_COMPUTE || (now->set & both) != both) return "";
  gpushare_spec alone = *now;
  alone.set = GPUSHARE_SPEC_GUARANTEE;
  return spec::FormatSpec(alone);
}

// Calls `take` for each holder of a tenant (empty: any) on a GPU (empty: any).
template <typename Take>
void EachHolder(const broker::Snapshot& snapshot, const std::string& tenant, const std::string& gpu,
                Take take) {
  for (const broker::Share& share : snapshot.shares) {
    if (!tenant.empty() && share.tenant != tenant) continue;
    if (!gpu.empty() && share.gpu != gpu) continue;
    for (const broker::ProcessShare& process : share.processes) take(share, process);
  }
}

}  // namespace

ExitCode RunChange(const ChangeOptions& options) {
  const char* const command = options.change.what.c_str();
  if (const absl::Status valid = Check(options.change); !valid.ok()) {
    return Fail(command, kExitUsage, valid);
  }
  absl::StatusOr<BrokerConnection> broker = BrokerConnection::To(options.socket);
  if (!broker.ok()) return FailOfBroker(command, broker.status());
  const absl::StatusOr<std::string> ended = broker->Change(options.change);
  if (!ended.ok()) return FailOfBroker(command, ended.status());
  if (!ended->empty() && options.change.what == "reload") {
    std::fprintf(stderr,
                 "gpushare reload: changed, and in force when the broker is started again: %s\n",
                 Printable(*ended, 4096).c_str());
  } else if (!ended->empty()) {
    std::fprintf(
        stderr,
        "gpushare %s: the new policy contradicts what was set before and has ended it: %s\n",
        command, Printable(*ended, 4096).c_str());
  }
  const absl::StatusOr<broker::Snapshot> snapshot = broker->List();
  if (!snapshot.ok()) return FailOfBroker(command, snapshot.status());
  const std::string& tenant = options.change.tenant;
  for (const broker::Share& share : snapshot->shares) {
    const std::string first = share.tenant == tenant ? GoesBefore(options.change, share) : "";
    if (first.empty()) continue;
    std::fprintf(stderr,
                 "gpushare set: 'compute' changes nothing on GPU %s: the tenant has %s, which goes "
                 "before it; "
                 "set 'guarantee'\n",
                 NameCell(share.gpu).c_str(), first.c_str());
  }
  if (options.json) {
    std::puts(broker::ToJson(tenant.empty() ? *snapshot : OnlyOf(*snapshot, tenant)).c_str());
  } else {
    std::fputs(ListText(*snapshot, tenant).c_str(), stdout);
  }
  return FinishStdout(command);
}

std::vector<std::string> Holders(const broker::Snapshot& snapshot, const std::string& tenant,
                                 const std::string& gpu) {
  std::vector<std::string> holders;
  EachHolder(snapshot, tenant, gpu, [&](const auto& share, const auto& process) {
    holders.push_back(absl::StrCat(NameCell(share.tenant), ": ", PidCell(process), " (",
                                   process.gone ? StateCell(process) : ProgramCell(process.program),
                                   "), ", MemoryCell(process.memory_used), " on ",
                                   NameCell(share.gpu)));
  });
  return holders;
}

std::string DrainJson(const DrainOptions& options, const broker::Snapshot& snapshot) {
  base::JsonWriter out;
  bool any = false;
  out.BeginObject().Key("draining").Bool(!options.undo).Key("holders").BeginArray();
  EachHolder(snapshot, options.tenant, options.gpu, [&](const auto& share, const auto& process) {
    any = true;
    out.BeginObject().Key("tenant").String(share.tenant).Key("gpu").String(share.gpu);
    out.Key("pid").Integer(process.pid).Key("program").String(process.program);
    out.Key("memory_used").Integer(static_cast<int64_t>(process.memory_used));
    out.Key("gone").Bool(process.gone).Key("evicted").Bool(process.evicted).EndObject();
  });
  out.EndArray().Key("drained").Bool(!options.undo && !any);
  return out.EndObject().text() + "\n";
}

ExitCode RunDrain(const DrainOptions& options) {
  constexpr Nanos kBetween = Millis(200);
  absl::StatusOr<BrokerConnection> broker = BrokerConnection::To(options.socket);
  if (!broker.ok()) return FailOfBroker("drain", broker.status());
  const ipc::Change change{options.undo ? "undrain" : "drain", options.tenant, options.gpu, ""};
  if (const absl::Status done = broker->Change(change).status(); !done.ok()) {
    return FailOfBroker("drain", done);
  }
  if (options.undo && !options.json) return kExitOk;
  base::Clock& clock = base::RealClock();
  const Time until = clock.Now() + Nanos(static_cast<int64_t>(options.timeout * 1e9));
  for (;;) {
    const absl::StatusOr<broker::Snapshot> snapshot = broker->List();
    if (!snapshot.ok()) return FailOfBroker("drain", snapshot.status());
    const std::vector<std::string> holders = Holders(*snapshot, options.tenant, options.gpu);
    const Time now = clock.Now();
    if (!options.undo && !holders.empty() && now < until) {
      clock.SleepUntil(std::min(until, now + kBetween));
      continue;
    }
    const bool waited = options.timeout > 0 && !options.undo;
    if (options.json) {
      std::fputs(DrainJson(options, *snapshot).c_str(), stdout);
    } else if (!waited && !holders.empty()) {
      std::printf("draining; still there:\n  %s\n", absl::StrJoin(holders, "\n  ").c_str());
    }
    const ExitCode written = FinishStdout("drain");
    if (holders.empty() || !waited || written != kExitOk) return written;
    return Fail("drain", kExitTimeout,
                absl::DeadlineExceededError(absl::StrCat(
                    "still there after ", options.timeout, " s:\n  ",
                    absl::StrJoin(holders, "\n  "), "\nit stays in force; `gpushare drain ",
                    options.tenant.empty() ? "" : absl::StrCat(options.tenant, " "),
                    options.gpu.empty() ? "" : absl::StrCat("--gpu ", options.gpu, " "),
                    "--undo` takes it back, `gpushare evict` ends a tenant's sessions")));
  }
}

}  // namespace gpushare::cli
