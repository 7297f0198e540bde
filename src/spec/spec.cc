// SPDX-License-Identifier: Apache-2.0
#include "spec/spec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "sched/policies.h"
#include "spec/text.h"

namespace gpushare::spec {
namespace {

constexpr size_t kMostTenantName = 63;
constexpr double kLeastShare = 1e-4;  // what the arbiter can hold a tenant to
constexpr double kLeastWeight = 1e-6, kMostWeight = 1e6;
constexpr uint64_t kMostMemory = static_cast<uint64_t>(INT64_MAX);
constexpr uint64_t kLeastBandwidth = 1'000, kMostBandwidth = 10'000'000'000'000;
constexpr int64_t kMostBurst = 10'000'000'000;

struct Choice {
  const char* word;
  int32_t value;
};
constexpr Choice kPriorities[] = {{"high", GPUSHARE_PRIORITY_HIGH},
                                  {"normal", GPUSHARE_PRIORITY_NORMAL},
                                  {"low", GPUSHARE_PRIORITY_LOW}};
constexpr Choice kIsolations[] = {{"shared", GPUSHARE_ISOLATION_SHARED},
                                  {"context", GPUSHARE_ISOLATION_CONTEXT},
                                  {"green", GPUSHARE_ISOLATION_GREEN},
                                  {"process", GPUSHARE_ISOLATION_PROCESS}};
constexpr Choice kOversubscriptions[] = {{"off", GPUSHARE_OVERSUBSCRIPTION_OFF},
                                         {"swap", GPUSHARE_OVERSUBSCRIPTION_SWAP}};

template <size_t n>
const char* WordOf(const Choice (&choices)[n], int32_t value) {
  for (const Choice& choice : choices) {
    if (choice.value == value) return choice.word;
  }
  return nullptr;
}

template <size_t n>
absl::StatusOr<int32_t> ParseChoice(const Choice (&choices)[n], std::string_view text) {
  for (const Choice& choice : choices) {
    if (text == choice.word) return choice.value;
  }
  return absl::InvalidArgumentError("there is no such choice");
}

// A field that takes numbers: its key, its bit, and what is allowed.
enum class Key {
  kMemory,
  kMemoryCap,
  kCompute,
  kWeight,
  kGuarantee,
  kCap,
  kBurst,
  kPriority,
  kH2d,
  kD2h,
  kIsolation,
  kOversubscription,
  kPolicy,
};
struct Field {
  Key key;
  const char* name;
  uint32_t bits;
  const char* allowed;
};
constexpr Field kFields[] = {
    {Key::kMemory, "memory", GPUSHARE_SPEC_MEMORY | GPUSHARE_SPEC_MEMORY_SHARE,
     "1B to 9223372036854775807B (8GiB, 512MiB, 1.5GB) or 0.01% to 100% of the device"},
    {Key::kMemoryCap, "memory_cap", GPUSHARE_SPEC_MEMORY_CAP | GPUSHARE_SPEC_MEMORY_CAP_SHARE,
     "'memory' or more, to 9223372036854775807B or 100% of the device"},
    {Key::kCompute, "compute", GPUSHARE_SPEC_COMPUTE, "0.01% to 100%"},
    {Key::kWeight, "weight", GPUSHARE_SPEC_WEIGHT, "0.000001 to 1000000"},
    {Key::kGuarantee, "guarantee", GPUSHARE_SPEC_GUARANTEE, "0% to 100%"},
    {Key::kCap, "cap", GPUSHARE_SPEC_CAP, "0.01% to 100%"},
    {Key::kBurst, "burst", GPUSHARE_SPEC_BURST, "0s to 10s (500us, 20ms)"},
    {Key::kPriority, "priority", GPUSHARE_SPEC_PRIORITY, "high, normal or low"},
    {Key::kH2d, "h2d", GPUSHARE_SPEC_H2D, "1KB/s to 10TB/s (4GB/s, 512MiB/s) or none"},
    {Key::kD2h, "d2h", GPUSHARE_SPEC_D2H, "1KB/s to 10TB/s (4GB/s, 512MiB/s) or none"},
    {Key::kIsolation, "isolation", GPUSHARE_SPEC_ISOLATION, "shared, context or green"},
    {Key::kOversubscription, "oversubscription", GPUSHARE_SPEC_OVERSUBSCRIPTION, "off"},
    {Key::kPolicy, "policy", GPUSHARE_SPEC_POLICY, "a policy by name"},
};

const Field& FieldOf(Key key) { return kFields[static_cast<size_t>(key)]; }

absl::Status Bad(Key key, const std::string& given, const std::string& why) {
  const Field& field = FieldOf(key);
  return absl::InvalidArgumentError(absl::StrCat("spec field '", field.name, "': ", given, ": ",
                                                 why, "; allowed: ", field.allowed));
}

absl::Status CheckShare(Key key, double share, double least) {
  if (Within(share, least, 1)) return absl::OkStatus();
  const char* why = share > 1   ? "it is over 100 %"
                    : share < 0 ? "it is negative"
                                : "it is too small";
  const bool has_many_digits = share > 1e6;
  return Bad(key, has_many_digits ? absl::StrCat(100 * share, "%") : FormatShare(share),
             std::isnan(share) ? "it is not a number" : why);
}

// Of the two bits of a key the lower is for bytes.
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

std::string_view PolicyOf(const gpushare_spec& spec) {
  return {spec.policy, strnlen(spec.policy, sizeof(spec.policy))};
}

// Each field on its own.
absl::Status CheckFields(const gpushare_spec& s) {
  constexpr uint32_t kAll = (GPUSHARE_SPEC_MEMORY_CAP_SHARE << 1) - 1;
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

constexpr uint32_t kMemoryBits = GPUSHARE_SPEC_MEMORY | GPUSHARE_SPEC_MEMORY_SHARE;
constexpr uint32_t kMemoryCapBits = GPUSHARE_SPEC_MEMORY_CAP | GPUSHARE_SPEC_MEMORY_CAP_SHARE;

std::string GivenCap(const gpushare_spec& s) {
  return s.set & GPUSHARE_SPEC_MEMORY_CAP ? FormatBytes(s.memory_cap)
                                          : FormatShare(s.memory_cap_share);
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

absl::Status NotYet(Key key, const char* word) {
  const Field& field = FieldOf(key);
  return absl::UnimplementedError(
      absl::StrCat("spec field '", field.name, "': ", word,
                   " is not implemented yet; offered: ", field.allowed));
}

absl::Status CheckOffered(const gpushare_spec& s) {
  if ((s.set & GPUSHARE_SPEC_ISOLATION) && s.isolation == GPUSHARE_ISOLATION_PROCESS) {
    return NotYet(Key::kIsolation, WordOf(kIsolations, s.isolation));
  }
  if ((s.set & GPUSHARE_SPEC_OVERSUBSCRIPTION) &&
      s.oversubscription != GPUSHARE_OVERSUBSCRIPTION_OFF) {
    return NotYet(Key::kOversubscription, WordOf(kOversubscriptions, s.oversubscription));
  }
  return absl::OkStatus();
}

// Keys that a policy has a meaning for, and which it is.
struct PolicyField {
  Key key;
  sched::PolicyKey means;
};
constexpr PolicyField kPolicyFields[] = {{Key::kCompute, sched::PolicyKey::kShare},
                                         {Key::kGuarantee, sched::PolicyKey::kShare},
                                         {Key::kWeight, sched::PolicyKey::kWeight},
                                         {Key::kCap, sched::PolicyKey::kLimit}};

std::string GivenFor(Key key, const gpushare_spec& s) {
  return key == Key::kWeight      ? FormatNumber(s.weight)
         : key == Key::kGuarantee ? FormatShare(s.guarantee)
         : key == Key::kCap       ? FormatShare(s.cap)
                                  : FormatShare(s.compute);
}

absl::Status CheckPolicyKeys(const gpushare_spec& s, const sched::Policy& policy) {
  const auto refused = [&](Key key, const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("spec field '", FieldOf(key).name,
                                                   "': ", GivenFor(key, s), " given, but policy '",
                                                   policy.name, "' ", why));
  };
  for (const auto& [key, means] : kPolicyFields) {
    if ((s.set & FieldOf(key).bits) == 0) continue;
    if (const char* const why = sched::Contradicts(policy.kind, means)) {
      return refused(key, absl::StrCat(why, "; leave it out, or take another policy"));
    }
  }
  constexpr uint32_t kBoth = GPUSHARE_SPEC_COMPUTE | GPUSHARE_SPEC_GUARANTEE;
  if (policy.kind == sched::PolicyKind::kFixed && (s.set & kBoth) == kBoth &&
      s.guarantee != s.compute) {
    return refused(Key::kGuarantee, absl::StrCat("promises exactly 'compute', ",
                                                 FormatShare(s.compute), "; leave it out"));
  }
  return absl::OkStatus();
}

// A policy that fixes the share takes the guarantee in force unless the change gives one, and ends a cap.
uint32_t KeptByFixed(const gpushare_spec& base, uint32_t changed) {
  constexpr uint32_t kBoth = GPUSHARE_SPEC_COMPUTE | GPUSHARE_SPEC_GUARANTEE;
  uint32_t ended = GPUSHARE_SPEC_CAP;
  if ((changed & kBoth) != 0) {
    ended |= kBoth;
  } else if ((base.set & kBoth) == kBoth) {
    ended |= GPUSHARE_SPEC_COMPUTE;
  }
  return ~ended;
}

// For a text that may be a change: as if what the policy and a cap need beside them were given already.
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

absl::StatusOr<sched::TenantLimits> ComputeLimits(const gpushare_spec& s) {
  const bool has_cap = (s.set & GPUSHARE_SPEC_CAP) != 0;
  const bool has_guarantee = (s.set & GPUSHARE_SPEC_GUARANTEE) != 0;
  sched::TenantLimits limits;
  if (s.set & GPUSHARE_SPEC_POLICY) {
    absl::StatusOr<const sched::Policy*> policy = sched::FindPolicy(PolicyOf(s));
    if (!policy.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec field 'policy': ", policy.status().message()));
    }
    GPUSHARE_RETURN_IF_ERROR(CheckPolicyKeys(s, **policy));
    sched::PolicyRequest request;
    // A guarantee can stand for the share that the policy asks for.
    request.share = s.set & GPUSHARE_SPEC_COMPUTE ? s.compute : has_guarantee ? s.guarantee : 0;
    request.limit = has_cap ? s.cap : 0;
    request.weight = s.set & GPUSHARE_SPEC_WEIGHT ? s.weight : 0;
    absl::StatusOr<sched::TenantLimits> preset = sched::ApplyPolicy((*policy)->name, request);
    if (!preset.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec field 'policy': ", preset.status().message()));
    }
    limits = *preset;
  } else if (s.set & GPUSHARE_SPEC_COMPUTE) {
    limits.guarantee = s.compute;
    // compute=50%,cap=30% asks for 30 %: the cap is the narrower word.
    if (has_cap && s.cap < limits.guarantee) limits.guarantee = s.cap;
  }
  if (s.set & GPUSHARE_SPEC_WEIGHT) limits.weight = s.weight;
  if (has_guarantee) limits.guarantee = s.guarantee;
  if (has_cap) limits.cap = s.cap;
  if (s.set & GPUSHARE_SPEC_BURST) limits.burst = Nanos(s.burst_ns);
  if (limits.guarantee > limits.cap) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec field 'guarantee': ", FormatShare(limits.guarantee), " is over the cap of ",
        FormatShare(limits.cap), "; allowed: 0% to ", FormatShare(limits.cap), ", or raise 'cap'"));
  }
  GPUSHARE_RETURN_IF_ERROR(sched::CheckLimits(limits));
  return limits;
}

constexpr uint64_t kNoLimit = 0;  // of a bandwidth
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
    for (const Field& candidate : kFields) {
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
  add(Key::kH2d, GPUSHARE_SPEC_H2D, FormatLimit(s.h2d));
  add(Key::kD2h, GPUSHARE_SPEC_D2H, FormatLimit(s.d2h));
  add(Key::kIsolation, GPUSHARE_SPEC_ISOLATION, word(WordOf(kIsolations, s.isolation)));
  add(Key::kOversubscription, GPUSHARE_SPEC_OVERSUBSCRIPTION,
      word(WordOf(kOversubscriptions, s.oversubscription)));
  add(Key::kPolicy, GPUSHARE_SPEC_POLICY, std::string(PolicyOf(s)));
  return text;
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

gpushare_spec MergeSpec(const gpushare_spec& base, const gpushare_spec& change) {
  gpushare_spec merged = base;
  const uint32_t set = change.set;
  if (set & kMemoryBits) merged.set &= ~kMemoryBits;
  if (set & kMemoryCapBits) merged.set &= ~kMemoryCapBits;
  if (set & GPUSHARE_SPEC_POLICY) {
    // A new policy ends what the old one was told and the new one would contradict.
    const absl::StatusOr<const sched::Policy*> policy = sched::FindPolicy(PolicyOf(change));
    for (const auto& [key, means] : kPolicyFields) {
      if (policy.ok() && sched::Contradicts((*policy)->kind, means) != nullptr) {
        merged.set &= ~FieldOf(key).bits;
      }
    }
    if (policy.ok() && (*policy)->kind == sched::PolicyKind::kFixed) {
      merged.set &= KeptByFixed(merged, set);
    }
  }
  merged.set |= set;
  if (set & GPUSHARE_SPEC_MEMORY) merged.memory = change.memory;
  if (set & GPUSHARE_SPEC_MEMORY_SHARE) merged.memory_share = change.memory_share;
  if (set & GPUSHARE_SPEC_MEMORY_CAP) merged.memory_cap = change.memory_cap;
  if (set & GPUSHARE_SPEC_MEMORY_CAP_SHARE) merged.memory_cap_share = change.memory_cap_share;
  if (set & GPUSHARE_SPEC_COMPUTE) merged.compute = change.compute;
  if (set & GPUSHARE_SPEC_WEIGHT) merged.weight = change.weight;
  if (set & GPUSHARE_SPEC_GUARANTEE) merged.guarantee = change.guarantee;
  if (set & GPUSHARE_SPEC_CAP) merged.cap = change.cap;
  if (set & GPUSHARE_SPEC_BURST) merged.burst_ns = change.burst_ns;
  if (set & GPUSHARE_SPEC_PRIORITY) merged.priority = change.priority;
  if (set & GPUSHARE_SPEC_H2D) merged.h2d = change.h2d;
  if (set & GPUSHARE_SPEC_D2H) merged.d2h = change.d2h;
  if (set & GPUSHARE_SPEC_ISOLATION) merged.isolation = change.isolation;
  if (set & GPUSHARE_SPEC_OVERSUBSCRIPTION) merged.oversubscription = change.oversubscription;
  if (set & GPUSHARE_SPEC_POLICY) std::memcpy(merged.policy, change.policy, sizeof(merged.policy));
  return merged;
}

std::string EndedBy(const gpushare_spec& base, const gpushare_spec& change) {
  gpushare_spec ended = base;
  ended.set &= ~MergeSpec(base, change).set & ~change.set;
  // These stand for one another.
  for (const uint32_t same : {kMemoryBits, kMemoryCapBits}) {
    if (change.set & same) ended.set &= ~same;
  }
  return ended.set == 0 ? "" : FormatSpec(ended);
}

absl::StatusOr<Limits> ResolveSpec(const gpushare_spec& spec, gpushare_priority priority,
                                   uint64_t capacity) {
  GPUSHARE_RETURN_IF_ERROR(ValidateSpec(spec));
  Limits limits;
  GPUSHARE_ASSIGN_OR_RETURN(limits.compute, ComputeLimits(spec));
  if (spec.set & GPUSHARE_SPEC_MEMORY) limits.memory = spec.memory;
  if (spec.set & GPUSHARE_SPEC_MEMORY_SHARE) {
    limits.memory = static_cast<uint64_t>(spec.memory_share * static_cast<double>(capacity));
    if (*limits.memory == 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("spec field 'memory': ", FormatShare(spec.memory_share), " of the ",
                       ReadableBytes(capacity),
                       " that this GPU has to promise is nothing; ask for more, or lower "
                       "the memory reserve (GPUSHARE_MEMORY_RESERVE)"));
    }
  }
  if (spec.set & kMemoryCapBits) {
    limits.memory_cap =
        spec.set & GPUSHARE_SPEC_MEMORY_CAP
            ? spec.memory_cap
            : static_cast<uint64_t>(spec.memory_cap_share * static_cast<double>(capacity));
    limits.memory_cap = std::min(*limits.memory_cap, capacity);  // there is no more
    if (*limits.memory_cap < *limits.memory) {
      // What is over the capacity admission refuses, by 'memory'.
      if (*limits.memory <= capacity) {
        return Bad(Key::kMemoryCap, GivenCap(spec),
                   absl::StrCat("it is less than 'memory', ", ReadableBytes(*limits.memory)));
      }
      limits.memory_cap = limits.memory;
    }
  }
  // The spec's word, else the tenant's, else what the policy says.
  if (spec.set & GPUSHARE_SPEC_PRIORITY) priority = static_cast<gpushare_priority>(spec.priority);
  switch (priority) {
    case GPUSHARE_PRIORITY_UNSET:
      break;
    case GPUSHARE_PRIORITY_HIGH:
      limits.compute.band = sched::Band::kHigh;
      break;
    case GPUSHARE_PRIORITY_NORMAL:
      limits.compute.band = sched::Band::kNormal;
      break;
    case GPUSHARE_PRIORITY_LOW:
      limits.compute.band = sched::Band::kLow;
      break;
  }
  if (spec.set & GPUSHARE_SPEC_H2D) limits.h2d_bytes_per_s = static_cast<double>(spec.h2d);
  if (spec.set & GPUSHARE_SPEC_D2H) limits.d2h_bytes_per_s = static_cast<double>(spec.d2h);
  return limits;
}

}  // namespace gpushare::spec
