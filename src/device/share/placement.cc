// SPDX-License-Identifier: Apache-2.0
#include "device/share/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_payloads.h"
#include "device/abi/last_error.h"
#include "device/gpu/gpu.h"
#include "device/process/tenant.h"
#include "device/share/virtual_device.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

double Part(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Of what is asked for, what would be left over, in bytes of the largest GPU's memory and in shares: so
// that of two GPUs of different size the one that is just large enough comes first.
double LeftOver(const Candidate& candidate, uint64_t largest) {
  const auto& [room, wanted] = candidate;
  double left = 0;
  if (wanted.memory.has_value()) left += Part(room.memory_left - *wanted.memory, largest);
  if (wanted.guarantee > 0) left += room.guarantee_left - wanted.guarantee;
  return left;
}

// How full a GPU is: by the resource of which the larger part is promised.
double Load(const Room& room) {
  return std::max(Part(room.memory_total - room.memory_left, room.memory_total),
                  1 - room.guarantee_left);
}

// The less, the sooner it is tried.
std::pair<double, int64_t> Rank(Placement placement, const Candidate& candidate, uint64_t largest) {
  const auto devices = static_cast<int64_t>(candidate.room.devices);
  switch (placement) {
    case Placement::kBestFit:
      return {LeftOver(candidate, largest), -devices};
    case Placement::kBinpack:
      return {-Load(candidate.room), -devices};
    case Placement::kSpread:
      break;
  }
  return {Load(candidate.room), devices};
}

// What no GPU can give, with the most there is of it; that of which another asks too much besides
// counts where each GPU has enough of one only.
Detail WhatIsShort(const Tenant& tenant, absl::Span<const Candidate> candidates) {
  constexpr double kMillion = 1e6;
  uint64_t most_memory = 0, memory_beside = 0, asked = 0, total = 0;
  double most_guarantee = 0, guarantee = 0;
  bool memory_somewhere = false, guarantee_somewhere = false;
  for (const auto& [room, wanted] : candidates) {
    const bool memory_fits = wanted.memory.value_or(0) <= room.memory_left;
    const bool guarantee_fits = Fits({room, {std::nullopt, wanted.guarantee}});
    memory_somewhere |= memory_fits;
    guarantee_somewhere |= guarantee_fits;
    most_memory = std::max(most_memory, room.memory_left);
    if (guarantee_fits) memory_beside = std::max(memory_beside, room.memory_left);
    most_guarantee = std::max(most_guarantee, room.guarantee_left);
    asked = std::max(asked, wanted.memory.value_or(0));
    total = std::max(total, room.memory_total);
    guarantee = wanted.guarantee;
  }
  if (memory_somewhere && !guarantee_somewhere) {
    return {.tenant = tenant.name(),
            .limit = "guarantee",
            .asked = static_cast<uint64_t>(std::llround(guarantee * kMillion)),
            .left = static_cast<uint64_t>(std::llround(most_guarantee * kMillion)),
            .total = static_cast<uint64_t>(kMillion)};
  }
  return {.tenant = tenant.name(),
          .limit = "memory",
          .asked = asked,
          .left = guarantee_somewhere ? memory_beside : most_memory,
          .total = total};
}

}  // namespace

bool Fits(const Candidate& candidate) {
  // Ten guarantees of 10 % add up to a little more than 1, as in Admission::Check.
  const auto& [room, wanted] = candidate;
  return wanted.memory.value_or(0) <= room.memory_left &&
         (wanted.guarantee <= 0 || wanted.guarantee <= room.guarantee_left + kRounding);
}

std::vector<size_t> OrderOfTrial(Placement placement, absl::Span<const Candidate> candidates) {
  uint64_t largest = 0;
  for (const Candidate& candidate : candidates) {
    largest = std::max(largest, candidate.room.memory_total);
  }
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto others = std::stable_partition(order.begin(), order.end(),
                                            [&](size_t i) { return Fits(candidates[i]); });
  std::stable_sort(order.begin(), others, [&](size_t a, size_t b) {
    return Rank(placement, candidates[a], largest) < Rank(placement, candidates[b], largest);
  });
  return order;
}

absl::StatusOr<Placed> Place(const std::vector<std::shared_ptr<Gpu>>& gpus,
                             const std::shared_ptr<Tenant>& tenant, const gpushare_spec& spec,
                             Placement placement) {
  if (gpus.empty()) return absl::InvalidArgumentError("placement: no GPU to choose from");
  std::vector<Candidate> candidates;
  for (const std::shared_ptr<Gpu>& gpu : gpus) {
    const absl::StatusOr<spec::Limits> limits =
        spec::ResolveSpec(spec, tenant->priority(), gpu->capacity());
    if (limits.ok()) {
      candidates.push_back({gpu->RoomFor(*tenant), {limits->memory, limits->compute.guarantee}});
    } else if (limits.status().code() == absl::StatusCode::kResourceExhausted) {
      candidates.push_back(
          {gpu->RoomFor(*tenant), {}});  // too small for this spec, as it will say itself
    } else {
      return limits.status();
    }
  }
  std::string reasons;
  std::vector<Candidate> full;  // as they are now: others may have come since
  absl::Status last;
  const Tenant* const parent = tenant->parent().get();
  bool without_parent = false;
  for (const size_t i : OrderOfTrial(placement, candidates)) {
    if (parent != nullptr && parent->DeviceOn(gpus[i].get()) == nullptr) {
      without_parent = true;
      absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", "GPU ", gpus[i]->ordinal(),
                      ": its parent ", Quoted(parent->name()), " has no virtual device there");
      continue;
    }
    absl::StatusOr<std::shared_ptr<VirtualDevice>> made =
        VirtualDevice::Create(gpus[i], tenant, spec);
    if (made.ok()) return Placed{*std::move(made), i};
    const absl::StatusCode code = made.status().code();
    if (code == absl::StatusCode::kResourceExhausted) {
      full.push_back({gpus[i]->RoomFor(*tenant), candidates[i].wanted});
      last = made.status();
    } else if (code != absl::StatusCode::kAlreadyExists) {
      return made.status();
    }
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", "GPU ", gpus[i]->ordinal(), ": ",
                    made.status().message());
  }
  const std::string message =
      absl::StrCat("placement: none of ", gpus.size(), gpus.size() == 1 ? " GPU" : " GPUs",
                   " takes tenant ", Quoted(tenant->name()), ": ", reasons);
  if (full.empty()) {
    return without_parent ? absl::FailedPreconditionError(message)
                          : absl::AlreadyExistsError(message);
  }
  absl::Status refused = absl::ResourceExhaustedError(message);
  if (std::none_of(full.begin(), full.end(), Fits)) {
    return WithDetail(std::move(refused), WhatIsShort(*tenant, full));
  }
  // There was no room a moment ago, or too many virtual devices.
  return base::WithPayloadsOf(std::move(refused), last);
}

}  // namespace gpushare::device
