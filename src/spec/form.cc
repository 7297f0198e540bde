// SPDX-License-Identifier: Apache-2.0
// The text form of a spec: reading and writing it.
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "sched/policies.h"
#include "spec/check.h"
#include "spec/keys.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::spec {
namespace {

// Prepares a text that may be a change of another spec: assumes that the keys which a policy or a cap requires are set there.
gpushare_spec WithNeeds(gpushare_spec s) {
  if ((s.set & kMemoryBits) == 0) s.set &= ~kMemoryCapBits;
  const absl::StatusOr<const sched::Policy*> policy = sched::FindPolicy(PolicyOf(s));
  if ((s.set & GPUSHARE_SPEC_POLICY) == 0 || !policy.ok()) return s;
  using Kind = sched::PolicyKind;
  const bool has_share = (s.set & (GPUSHARE_SPEC_COMPUTE | GPUSHARE_SPEC_GUARANTEE)) != 0;
  if (((*policy)->kind == Kind::kFixed || (*policy)->kind == Kind::kBurst) && !has_share) {
    s.set |= GPUSHARE_SPEC_COMPUTE;
    s.compute = s.set & GPUSHARE_SPEC_CAP ? s.cap : 1;
  }
  if ((*policy)->kind == Kind::kWeighted && (s.set & GPUSHARE_SPEC_WEIGHT) == 0) {
    s.set |= GPUSHARE_SPEC_WEIGHT;
    s.weight = 1;
  }
  return s;
}

constexpr uint64_t kNoLimit = 0;  // a bandwidth without a limit
constexpr char kNone[] = "none";

absl::StatusOr<uint64_t> ParseLimit(std::string_view text) {
  if (text == kNone) return kNoLimit;
  GPUSHARE_ASSIGN_OR_RETURN(const uint64_t rate, ParseBandwidth(text));
  if (rate == kNoLimit) return absl::InvalidArgumentError("it is too small");
  return rate;
}

std::string FormatLimit(uint64_t rate) { return rate == kNoLimit ? kNone : FormatBandwidth(rate); }

absl::Status SetField(Key key, std::string_view value, gpushare_spec* spec) {
  const auto read = [&](auto result, auto* to, uint32_t bit) {
    if (!result.ok()) return Bad(key, Quoted(value), std::string(result.status().message()));
    *to = *result;
    spec->set |= bit;
    return absl::OkStatus();
  };
  const uint32_t bit = FieldOf(key).bits;
  switch (key) {
    case Key::kMemory:
      if (!value.empty() && value.back() == '%') {
        return read(ParseShare(value), &spec->memory_share, GPUSHARE_SPEC_MEMORY_SHARE);
      }
      return read(ParseMemory(value), &spec->memory, GPUSHARE_SPEC_MEMORY);
    case Key::kMemoryCap:
      if (!value.empty() && value.back() == '%') {
        return read(ParseShare(value), &spec->memory_cap_share, GPUSHARE_SPEC_MEMORY_CAP_SHARE);
      }
      return read(ParseMemory(value), &spec->memory_cap, GPUSHARE_SPEC_MEMORY_CAP);
    case Key::kCompute:
      return read(ParseShare(value), &spec->compute, bit);
    case Key::kWeight:
      return read(ParseNumber(value), &spec->weight, bit);
    case Key::kGuarantee:
      return read(ParseShare(value), &spec->guarantee, bit);
    case Key::kCap:
      return read(ParseShare(value), &spec->cap, bit);
    case Key::kBurst: {
      Nanos burst{0};
      GPUSHARE_RETURN_IF_ERROR(read(ParseDuration(value), &burst, bit));
      spec->burst_ns = burst.count();
      return absl::OkStatus();
    }
    case Key::kPriority:
      return read(ParseChoice(kPriorities, value), &spec->priority, bit);
    case Key::kDelay:
      return read(ParseShare(value), &spec->delay, bit);
    case Key::kH2d:
      return read(ParseLimit(value), &spec->h2d, bit);
    case Key::kD2h:
      return read(ParseLimit(value), &spec->d2h, bit);
    case Key::kIsolation:
      return read(ParseChoice(kIsolations, value), &spec->isolation, bit);
    case Key::kOversubscription:
      return read(ParseChoice(kOversubscriptions, value), &spec->oversubscription, bit);
    case Key::kPolicy: {
      absl::StatusOr<const sched::Policy*> policy = sched::FindPolicy(value);
      if (!policy.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("spec field 'policy': ", policy.status().message()));
      }
      std::strncpy(spec->policy, (*policy)->name, sizeof(spec->policy) - 1);
      spec->set |= bit;
      return absl::OkStatus();
    }
  }
  return absl::InternalError("no such key");
}

}  // namespace

absl::StatusOr<gpushare_spec> ParseSpec(std::string_view text) {
  if (text.size() > kMostSpecText) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec: ", text.size(), " bytes given, at most ", kMostSpecText, " allowed"));
  }
  if (!IsUtf8(text)) return absl::InvalidArgumentError("spec: the text is not valid UTF-8");
  gpushare_spec spec = {};
  spec.struct_size = sizeof(spec);
  text = Trim(text);
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = Trim(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    if (comma != std::string_view::npos && Trim(text).empty()) {
      return absl::InvalidArgumentError("spec: it ends in a comma");
    }
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec: ", Quoted(item), " is not key=value, as in memory=8GiB,compute=30%"));
    }
    const std::string_view key = Trim(item.substr(0, equals));
    const Field* field = nullptr;
    std::string keys;
    for (const Field& candidate : Fields()) {
      if (key == candidate.name) field = &candidate;
      absl::StrAppend(&keys, keys.empty() ? "" : ", ", candidate.name);
    }
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec: unknown key ", Quoted(key), "; keys are ", keys));
    }
    if ((spec.set & field->bits) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec field '", field->name, "': it is given twice"));
    }
    GPUSHARE_RETURN_IF_ERROR(SetField(field->key, Trim(item.substr(equals + 1)), &spec));
  }
  GPUSHARE_RETURN_IF_ERROR(CheckFields(spec));
  GPUSHARE_RETURN_IF_ERROR(ValidateSpec(WithNeeds(spec)));
  return spec;
}

std::string FormatSpec(const gpushare_spec& s) {
  std::string text;
  const auto add = [&text, &s](Key key, uint32_t bit, const std::string& value) {
    if ((s.set & bit) != 0) {
      absl::StrAppend(&text, text.empty() ? "" : ",", FieldOf(key).name, "=", value);
    }
  };
  const auto word = [](const char* w) { return std::string(w == nullptr ? "?" : w); };
  add(Key::kMemory, GPUSHARE_SPEC_MEMORY, FormatBytes(s.memory));
  add(Key::kMemory, GPUSHARE_SPEC_MEMORY_SHARE, FormatShare(s.memory_share));
  add(Key::kMemoryCap, GPUSHARE_SPEC_MEMORY_CAP, FormatBytes(s.memory_cap));
  add(Key::kMemoryCap, GPUSHARE_SPEC_MEMORY_CAP_SHARE, FormatShare(s.memory_cap_share));
  add(Key::kCompute, GPUSHARE_SPEC_COMPUTE, FormatShare(s.compute));
  add(Key::kWeight, GPUSHARE_SPEC_WEIGHT, FormatNumber(s.weight));
  add(Key::kGuarantee, GPUSHARE_SPEC_GUARANTEE, FormatShare(s.guarantee));
  add(Key::kCap, GPUSHARE_SPEC_CAP, FormatShare(s.cap));
  add(Key::kBurst, GPUSHARE_SPEC_BURST, FormatDuration(Nanos(s.burst_ns)));
  add(Key::kPriority, GPUSHARE_SPEC_PRIORITY, word(WordOf(kPriorities, s.priority)));
  add(Key::kDelay, GPUSHARE_SPEC_DELAY, FormatShare(s.delay));
  add(Key::kH2d, GPUSHARE_SPEC_H2D, FormatLimit(s.h2d));
  add(Key::kD2h, GPUSHARE_SPEC_D2H, FormatLimit(s.d2h));
  add(Key::kIsolation, GPUSHARE_SPEC_ISOLATION, word(WordOf(kIsolations, s.isolation)));
  add(Key::kOversubscription, GPUSHARE_SPEC_OVERSUBSCRIPTION,
      word(WordOf(kOversubscriptions, s.oversubscription)));
  add(Key::kPolicy, GPUSHARE_SPEC_POLICY, std::string(PolicyOf(s)));
  return text;
}

}  // namespace gpushare::spec
