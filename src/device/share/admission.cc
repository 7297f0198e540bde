// SPDX-License-Identifier: Apache-2.0
#include "device/share/admission.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/abi/last_error.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

uint64_t PartsPerMillion(double share) { return static_cast<uint64_t>(std::llround(share * 1e6)); }

std::string Percentage(double share) { return spec::FormatShare(std::round(share * 1e4) / 1e4); }

}  // namespace

double Admission::guarantee(uint64_t id) const {
  const auto at = promises_.find(id);
  return at == promises_.end() ? 0 : at->second.guarantee;
}

double Admission::guarantees_but(uint64_t id) const {
  return static_cast<double>(guarantees_ - Units(guarantee(id))) * kGuaranteeUnit;
}

absl::Status Admission::Check(const std::string& tenant, uint64_t id, const Promise& promise,
                              uint64_t held) const {
  const double guarantees = guarantees_but(id);
  uint64_t memory = memory_;
  if (const auto replaced = promises_.find(id); replaced != promises_.end()) {
    memory -= replaced->second.memory.value_or(0);
  }
  if (promise.guarantee > 0 && guarantees + promise.guarantee > 1 + kRounding) {
    const double left = std::max(0.0, 1 - guarantees);
    const size_t others = promises_.size() - promises_.count(id);
    return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                          "tenant ", Quoted(tenant), ": a guarantee of ",
                          Percentage(promise.guarantee), " asked, ", Percentage(left),
                          " left of the device (", Percentage(guarantees), " promised to ", others,
                          others == 1 ? " other virtual device" : " other virtual devices",
                          "); ask for less ('compute' or 'guarantee'), or shrink another")),
                      {.tenant = tenant,
                       .limit = "guarantee",
                       .asked = PartsPerMillion(promise.guarantee),
                       .left = PartsPerMillion(left),
                       .total = PartsPerMillion(1)});
  }
  if (promise.memory.has_value()) {
    const uint64_t given =
        std::min(capacity_, std::min(memory, capacity_) + std::min(held, capacity_));
    if (*promise.memory > capacity_ - given) {
      return WithDetail(
          absl::ResourceExhaustedError(absl::StrCat(
              "tenant ", Quoted(tenant), ": ", spec::ReadableBytes(*promise.memory),
              " of memory asked, ", spec::ReadableBytes(capacity_ - given), " left of ",
              spec::ReadableBytes(capacity_), " (", spec::ReadableBytes(memory),
              " promised as quotas, ", spec::ReadableBytes(held),
              " in use without a quota); ask for less ('memory'), shrink another, or lower the "
              "runtime's memory reserve")),
          {.tenant = tenant,
           .limit = "memory",
           .asked = *promise.memory,
           .left = capacity_ - given,
           .total = capacity_});
    }
  }
  return absl::OkStatus();
}

uint64_t Admission::Add(const Promise& promise) {
  const uint64_t id = ++last_id_;
  promises_[id];
  Replace(id, promise);
  return id;
}

void Admission::Replace(uint64_t id, const Promise& promise) {
  const auto at = promises_.find(id);
  if (at == promises_.end()) return;
  Count(at->second, -1);
  at->second = promise;
  Count(promise, 1);
}

void Admission::Remove(uint64_t id) {
  const auto at = promises_.find(id);
  if (at == promises_.end()) return;
  Count(at->second, -1);
  promises_.erase(at);
}

void Admission::Count(const Promise& promise, int times) {
  const auto factor = static_cast<uint64_t>(times);  // modulo 2^64
  memory_ += factor * promise.memory.value_or(0);
  guarantees_ += times * Units(promise.guarantee);
}

int64_t Admission::Units(double guarantee) {
  return static_cast<int64_t>(std::llround(guarantee / kGuaranteeUnit));
}

}  // namespace gpushare::device
