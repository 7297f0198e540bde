// SPDX-License-Identifier: Apache-2.0
#include "spec/check.h"

#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "spec/keys.h"
#include "spec/limits.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::spec {
namespace {

constexpr size_t kMostTenantName = 63;
constexpr double kLeastShare = 1e-4;  // the smallest share that the arbiter can enforce
constexpr double kLeastWeight = 1e-6, kMostWeight = 1e6;
constexpr uint64_t kMostMemory = static_cast<uint64_t>(INT64_MAX);
constexpr uint64_t kLeastBandwidth = 1'000, kMostBandwidth = 10'000'000'000'000;
constexpr double kMostDelay = 0.2;
constexpr int64_t kMostBurst = 10'000'000'000;

absl::Status CheckShare(Key key, double share, double least) {
  if (Within(share, least, 1)) return absl::OkStatus();
  const char* why = share > 1   ? "it is over 100 %"
                    : share < 0 ? "it is negative"
                                : "it is too small";
  const bool has_many_digits = share > 1e6;
  return Bad(key, has_many_digits ? absl::StrCat(100 * share, "%") : FormatShare(share),
             std::isnan(share) ? "it is not a number" : why);
}

// Each of these keys has two bits; the lower one stands for a value in bytes.
absl::Status CheckMemory(Key key, const gpushare_spec& s, uint64_t bytes, double share) {
  const uint32_t given = s.set & FieldOf(key).bits;
  if (given == 0) return absl::OkStatus();
  if (given == FieldOf(key).bits) return Bad(key, "bytes and a percentage", "it is given twice");
  if (given > FieldOf(key).bits / 2) return CheckShare(key, share, kLeastShare);
  if (bytes >= 1 && bytes <= kMostMemory) return absl::OkStatus();
  return Bad(key, absl::StrCat(bytes, "B"), bytes < 1 ? "it is zero" : "it is too large");
}

absl::Status CheckBandwidth(Key key, uint64_t rate) {
  if (rate == 0 || (rate >= kLeastBandwidth && rate <= kMostBandwidth)) return absl::OkStatus();
  return Bad(key, FormatBandwidth(rate),
             rate < kLeastBandwidth ? "it is too small" : "it is too large");
}

absl::Status NotYet(Key key, const char* word, const char* instead) {
  const Field& field = FieldOf(key);
  return absl::UnimplementedError(absl::StrCat("spec field '", field.name, "': ", word,
                                               " is not implemented yet; offered: ", field.allowed,
                                               "; ", instead));
}

}  // namespace

absl::Status CheckFields(const gpushare_spec& s) {
  constexpr uint32_t kAll = (GPUSHARE_SPEC_DELAY << 1) - 1;
  if ((s.set & ~kAll) != 0) {
    return absl::InvalidArgumentError("spec: it sets fields that this library does not know");
  }
  GPUSHARE_RETURN_IF_ERROR(CheckMemory(Key::kMemory, s, s.memory, s.memory_share));
  GPUSHARE_RETURN_IF_ERROR(CheckMemory(Key::kMemoryCap, s, s.memory_cap, s.memory_cap_share));
  if (s.set & GPUSHARE_SPEC_COMPUTE) {
    GPUSHARE_RETURN_IF_ERROR(CheckShare(Key::kCompute, s.compute, kLeastShare));
  }
  if ((s.set & GPUSHARE_SPEC_WEIGHT) && !Within(s.weight, kLeastWeight, kMostWeight)) {
    return Bad(Key::kWeight, FormatNumber(s.weight), "it is out of range");
  }
  if (s.set & GPUSHARE_SPEC_GUARANTEE) {
    GPUSHARE_RETURN_IF_ERROR(CheckShare(Key::kGuarantee, s.guarantee, 0));
  }
  if (s.set & GPUSHARE_SPEC_CAP)
    GPUSHARE_RETURN_IF_ERROR(CheckShare(Key::kCap, s.cap, kLeastShare));
  if ((s.set & GPUSHARE_SPEC_BURST) && (s.burst_ns < 0 || s.burst_ns > kMostBurst)) {
    return Bad(Key::kBurst, FormatDuration(Nanos(s.burst_ns)),
               s.burst_ns < 0 ? "it is negative" : "it is too large");
  }
  if ((s.set & GPUSHARE_SPEC_DELAY) && !Within(s.delay, 0, kMostDelay)) {
    return Bad(Key::kDelay, FormatShare(s.delay),
               s.delay < 0 ? "it is negative" : "it is too large");
  }
  if (s.set & GPUSHARE_SPEC_H2D) GPUSHARE_RETURN_IF_ERROR(CheckBandwidth(Key::kH2d, s.h2d));
  if (s.set & GPUSHARE_SPEC_D2H) GPUSHARE_RETURN_IF_ERROR(CheckBandwidth(Key::kD2h, s.d2h));
  const auto check_choice = [&s](Key key, const char* word, int32_t value) {
    if (word != nullptr || (s.set & FieldOf(key).bits) == 0) return absl::OkStatus();
    return Bad(key, absl::StrCat(value), "there is no such choice");
  };
  GPUSHARE_RETURN_IF_ERROR(
      check_choice(Key::kPriority, WordOf(kPriorities, s.priority), s.priority));
  GPUSHARE_RETURN_IF_ERROR(
      check_choice(Key::kIsolation, WordOf(kIsolations, s.isolation), s.isolation));
  GPUSHARE_RETURN_IF_ERROR(check_choice(
      Key::kOversubscription, WordOf(kOversubscriptions, s.oversubscription), s.oversubscription));
  return absl::OkStatus();
}

absl::Status CheckMemoryCap(const gpushare_spec& s) {
  if ((s.set & kMemoryCapBits) == 0) return absl::OkStatus();
  if ((s.set & kMemoryBits) == 0) {
    return Bad(Key::kMemoryCap, GivenCap(s), "it needs 'memory' beside it, which is guaranteed");
  }
  const bool less = (s.set & GPUSHARE_SPEC_MEMORY) && (s.set & GPUSHARE_SPEC_MEMORY_CAP)
                        ? s.memory_cap < s.memory
                        : (s.set & GPUSHARE_SPEC_MEMORY_SHARE) &&
                              (s.set & GPUSHARE_SPEC_MEMORY_CAP_SHARE) &&
                              s.memory_cap_share < s.memory_share;
  if (!less) return absl::OkStatus();
  return Bad(Key::kMemoryCap, GivenCap(s), "it is less than 'memory'; raise it along");
}

absl::Status CheckOffered(const gpushare_spec& s) {
  if ((s.set & GPUSHARE_SPEC_OVERSUBSCRIPTION) &&
      s.oversubscription != GPUSHARE_OVERSUBSCRIPTION_OFF) {
    return NotYet(
        Key::kOversubscription, WordOf(kOversubscriptions, s.oversubscription),
        "memory of the allocator strategy 'swappable' leaves the device while its virtual "
        "device is suspended");
  }
  return absl::OkStatus();
}

absl::Status ValidateSpec(const gpushare_spec& spec) {
  GPUSHARE_RETURN_IF_ERROR(CheckFields(spec));
  GPUSHARE_RETURN_IF_ERROR(CheckMemoryCap(spec));
  GPUSHARE_RETURN_IF_ERROR(ComputeLimits(spec).status());
  return CheckOffered(spec);
}

absl::Status ValidateTenantName(std::string_view name) {
  if (name.empty() || name.size() > kMostTenantName) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tenant name: ", name.size(), " bytes given, 1 to ", kMostTenantName, " allowed"));
  }
  if (!IsUtf8(name)) return absl::InvalidArgumentError("tenant name: it is not valid UTF-8");
  for (char c : name) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError("tenant name: control characters are not allowed");
    }
  }
  return absl::OkStatus();
}

}  // namespace gpushare::spec
