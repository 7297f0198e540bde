// SPDX-License-Identifier: Apache-2.0
#include "spec/keys.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "spec/text.h"

namespace gpushare::spec {
namespace {

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
    {Key::kDelay, "delay", GPUSHARE_SPEC_DELAY, "0% to 20%"},
    {Key::kH2d, "h2d", GPUSHARE_SPEC_H2D, "1KB/s to 10TB/s (4GB/s, 512MiB/s) or none"},
    {Key::kD2h, "d2h", GPUSHARE_SPEC_D2H, "1KB/s to 10TB/s (4GB/s, 512MiB/s) or none"},
    {Key::kIsolation, "isolation", GPUSHARE_SPEC_ISOLATION, "shared, context, green or process"},
    {Key::kOversubscription, "oversubscription", GPUSHARE_SPEC_OVERSUBSCRIPTION, "off"},
    {Key::kPolicy, "policy", GPUSHARE_SPEC_POLICY, "a policy by name"},
};

}  // namespace

std::span<const Field> Fields() { return kFields; }

const Field& FieldOf(Key key) { return kFields[static_cast<size_t>(key)]; }

const char* WordOf(std::span<const Choice> choices, int32_t value) {
  for (const Choice& choice : choices) {
    if (choice.value == value) return choice.word;
  }
  return nullptr;
}

absl::StatusOr<int32_t> ParseChoice(std::span<const Choice> choices, std::string_view text) {
  for (const Choice& choice : choices) {
    if (text == choice.word) return choice.value;
  }
  return absl::InvalidArgumentError("there is no such choice");
}

std::string_view PolicyOf(const gpushare_spec& spec) {
  return {spec.policy, strnlen(spec.policy, sizeof(spec.policy))};
}

absl::Status Bad(Key key, const std::string& given, const std::string& why) {
  const Field& field = FieldOf(key);
  return absl::InvalidArgumentError(absl::StrCat("spec field '", field.name, "': ", given, ": ",
                                                 why, "; allowed: ", field.allowed));
}

std::string GivenCap(const gpushare_spec& spec) {
  return spec.set & GPUSHARE_SPEC_MEMORY_CAP ? FormatBytes(spec.memory_cap)
                                             : FormatShare(spec.memory_cap_share);
}

}  // namespace gpushare::spec
