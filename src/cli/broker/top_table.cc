// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/top_table.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "cli/broker/figures.h"
#include "cli/text_table.h"

namespace gpushare::cli {
namespace {

using broker::ProcessShare;
using broker::Share;
using broker::Snapshot;

// Rates per second.
struct Rates {
  double device = 0;     // part of the device's time
  double throttled = 0;  // host seconds, of all threads
  double launches = 0, waits = 0;
};

const Share* Find(const Snapshot& snapshot, const Share& like) {
  for (const Share& share : snapshot.shares) {
    if (share.gpu == like.gpu && share.tenant == like.tenant) return &share;
  }
  return nullptr;
}

const ProcessShare* Find(const Share& share, const ProcessShare& like) {
  for (const ProcessShare& process : share.processes) {
    if (process.session == like.session) return &process;
  }
  return nullptr;
}

double PerSecond(double amount, Nanos time) {
  return amount * 1e9 / static_cast<double>(time.count());
}

class Interval {
 public:
  Interval(const Snapshot* before, const Snapshot& now)
      : before_(before),
        shares_(now.shares),
        length_(before == nullptr ? Nanos(0) : now.at - before->at) {
    for (const Share& share : now.shares) {
      double processes = 0;
      for (const ProcessShare& process : share.processes) {
        processes += Measured(share, process).value_or(0);
      }
      const Share* const then = Then(share);
      const bool counts = then != nullptr && share.time_used >= then->time_used;
      all_[share.gpu] += std::max(counts ? Used(share.time_used - then->time_used) : 0, processes);
    }
  }

  Nanos length() const { return length_; }

  // Parts can add up to more than the device's time: processes whose slices overlap each measure the other's time as their own, and
  // late reports count in the next interval. Then they are scaled down.
  double OfDevice(const std::string& gpu, double part) const {
    const auto at = all_.find(gpu);
    return at == all_.end() || at->second <= 1 ? part : part / at->second;
  }

  // `device` of a parent with what its children got, as its limits are theirs too.
  std::optional<Rates> Of(const Share& now) const {
    std::optional<Rates> rates = OwnOf(now);
    if (!rates.has_value()) return rates;
    for (const Share& other : shares_) {
      if (other.gpu != now.gpu || other.parent != now.tenant) continue;
      if (const std::optional<Rates> its = OwnOf(other)) rates->device += its->device;
    }
    return rates;
  }
  // The process's part of the device's time.
  std::optional<double> Of(const Share& share, const ProcessShare& now) const {
    const std::optional<double> part = Measured(share, now);
    return part.has_value() ? std::optional(OfDevice(share.gpu, *part)) : std::nullopt;
  }

 private:
  std::optional<Rates> OwnOf(const Share& now) const {
    const Share* const then = Then(now);
    if (then == nullptr || now.time_used < then->time_used || now.launches < then->launches ||
        now.waits < then->waits || now.throttled < then->throttled) {
      return std::nullopt;
    }
    return Rates{
        OfDevice(now.gpu, Used(now.time_used - then->time_used)),
        PerSecond(static_cast<double>((now.throttled - then->throttled).count()) / 1e9, length_),
        PerSecond(static_cast<double>(now.launches - then->launches), length_),
        PerSecond(static_cast<double>(now.waits - then->waits), length_)};
  }
  double Used(Nanos time) const {
    return PerSecond(static_cast<double>(time.count()) / 1e9, length_);
  }
  std::optional<double> Measured(const Share& share, const ProcessShare& now) const {
    const Share* const share_then = Then(share);
    const ProcessShare* const then = share_then == nullptr ? nullptr : Find(*share_then, now);
    if (then == nullptr || now.time_used < then->time_used) return std::nullopt;
    return Used(now.time_used - then->time_used);
  }
  const Share* Then(const Share& share) const {
    return before_ == nullptr || length_ <= Nanos(0) ? nullptr : Find(*before_, share);
  }

  const Snapshot* const before_;
  const std::vector<Share>& shares_;
  const Nanos length_;
  std::map<std::string, double> all_;  // by GPU: the sum over its processes
};

std::string Rate(double per_second) {
  char text[32];
  std::snprintf(text, sizeof(text), per_second < 9.95 ? "%.1f/s" : "%.0f/s", per_second);
  return text;
}

void Number(const char* key, const std::optional<Rates>& rates, double Rates::*which,
            base::JsonWriter* out) {
  out->Key(key);
  rates.has_value() ? out->Number((*rates).*which) : out->Null();
}

}  // namespace

std::string TopText(const Snapshot* before, const Snapshot& now) {
  const Interval interval(before, now);
  std::string text;
  for (const broker::GpuState& gpu : now.gpus) {
    TextTable table({{"tenant"},
                     {"pid", Align::kRight},
                     {"memory", Align::kRight},
                     {"of", Align::kRight},
                     {"asked"},
                     {"got", Align::kRight},
                     {"throttled", Align::kRight},
                     {"waits", Align::kRight},
                     {"launches", Align::kRight},
                     {"state, program"}});
    for (const Share* const each : InFamilies(now, gpu.uuid)) {
      const Share& share = *each;
      const std::optional<Rates> rates = interval.Of(share);
      table.AddRow({TenantCell(share), "", MemoryCell(share.memory_used),
                    MemoryCell(share.memory_limit), AskedCell(share),
                    rates ? ShareCell(rates->device) : "-",
                    rates ? ShareCell(rates->throttled) : "-", rates ? Rate(rates->waits) : "-",
                    rates ? Rate(rates->launches) : "-", StateCell(share)});
      for (const ProcessShare& process : share.processes) {
        const std::optional<double> got = interval.Of(share, process);
        table.AddRow({"", PidCell(process), MemoryCell(process.memory_used),
                      MemoryCell(process.memory_granted), "", got ? ShareCell(*got) : "-", "", "",
                      "", process.gone ? StateCell(process) : ProgramCell(process.program)});
      }
    }
    absl::StrAppend(&text, text.empty() ? "" : "\n", GpuLine(gpu), "\n", table.ToString());
  }
  return text.empty() ? "no process has opened a GPU yet\n" : text;
}

std::string TopJson(const Snapshot* before, const Snapshot& now) {
  const Interval interval(before, now);
  base::JsonWriter out(base::JsonWriter::Style::kOneLine);
  out.BeginObject().Key("at_ns").Integer(now.at.time_since_epoch().count());
  out.Key("interval_s").Number(static_cast<double>(interval.length().count()) / 1e9);
  out.Key("shares").BeginArray();
  for (const Share& share : now.shares) {
    const std::optional<Rates> rates = interval.Of(share);
    out.BeginObject().Key("gpu").String(share.gpu).Key("tenant").String(share.tenant);
    out.Key("parent").String(share.parent);
    out.Key("memory_used").Integer(static_cast<int64_t>(share.memory_used)).Key("memory_limit");
    share.memory_limit == UINT64_MAX ? out.Null()
                                     : out.Integer(static_cast<int64_t>(share.memory_limit));
    out.Key("priority").String(share.priority);
    out.Key("guarantee").Number(share.guarantee).Key("weight").Number(share.weight);
    out.Key("cap").Number(share.cap);
    Number("got", rates, &Rates::device, &out);
    Number("throttled", rates, &Rates::throttled, &out);
    Number("launches_per_s", rates, &Rates::launches, &out);
    Number("waits_per_s", rates, &Rates::waits, &out);
    out.Key("suspended").Bool(share.suspended).Key("draining").Bool(share.draining);
    out.Key("processes").BeginArray();
    for (const ProcessShare& process : share.processes) {
      const std::optional<double> got = interval.Of(share, process);
      out.BeginObject().Key("session").Integer(static_cast<int64_t>(process.session));
      out.Key("pid").Integer(process.pid).Key("program").String(process.program);
      out.Key("memory_used").Integer(static_cast<int64_t>(process.memory_used)).Key("got");
      got.has_value() ? out.Number(*got) : out.Null();
      out.Key("gone").Bool(process.gone).Key("evicted").Bool(process.evicted).EndObject();
    }
    out.EndArray().EndObject();
  }
  return out.EndArray().EndObject().text() + "\n";
}

}  // namespace gpushare::cli
