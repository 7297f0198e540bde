// SPDX-License-Identifier: Apache-2.0
// A spec's keys: their names, their bits, what each allows, and the words of those that are choices. Errors name the
// key and say what is allowed.
#ifndef GPUSHARE_SPEC_KEYS_H_
#define GPUSHARE_SPEC_KEYS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"
#include "sched/policies.h"

namespace gpushare::spec {

enum class Key {
  kMemory,
  kMemoryCap,
  kCompute,
  kWeight,
  kGuarantee,
  kCap,
  kBurst,
  kPriority,
  kDelay,
  kH2d,
  kD2h,
  kIsolation,
  kOversubscription,
  kPolicy,
};
struct Field {
  Key key;
  const char* name;
  uint32_t bits;  // of a key in bytes or per cent two, the lower for bytes
  const char* allowed;
};
std::span<const Field> Fields();
const Field& FieldOf(Key key);

inline constexpr uint32_t kMemoryBits = GPUSHARE_SPEC_MEMORY | GPUSHARE_SPEC_MEMORY_SHARE;
inline constexpr uint32_t kMemoryCapBits =
    GPUSHARE_SPEC_MEMORY_CAP | GPUSHARE_SPEC_MEMORY_CAP_SHARE;

struct Choice {
  const char* word;
  int32_t value;
};
inline constexpr Choice kPriorities[] = {{"high", GPUSHARE_PRIORITY_HIGH},
                                         {"normal", GPUSHARE_PRIORITY_NORMAL},
                                         {"low", GPUSHARE_PRIORITY_LOW}};
inline constexpr Choice kIsolations[] = {{"shared", GPUSHARE_ISOLATION_SHARED},
                                         {"context", GPUSHARE_ISOLATION_CONTEXT},
                                         {"green", GPUSHARE_ISOLATION_GREEN},
                                         {"process", GPUSHARE_ISOLATION_PROCESS}};
inline constexpr Choice kOversubscriptions[] = {{"off", GPUSHARE_OVERSUBSCRIPTION_OFF},
                                                {"swap", GPUSHARE_OVERSUBSCRIPTION_SWAP}};
// Null: no word has that value.
const char* WordOf(std::span<const Choice> choices, int32_t value);
absl::StatusOr<int32_t> ParseChoice(std::span<const Choice> choices, std::string_view text);

// Keys that a policy has a meaning for, and which it is.
struct PolicyField {
  Key key;
  sched::PolicyKey means;
};
inline constexpr PolicyField kPolicyFields[] = {{Key::kCompute, sched::PolicyKey::kShare},
                                                {Key::kGuarantee, sched::PolicyKey::kShare},
                                                {Key::kWeight, sched::PolicyKey::kWeight},
                                                {Key::kCap, sched::PolicyKey::kLimit}};
// The policy's name; "" for none.
std::string_view PolicyOf(const gpushare_spec& spec);

// InvalidArgument: what was `given` for the key, `why` it is none, what is allowed.
absl::Status Bad(Key key, const std::string& given, const std::string& why);
// `spec`'s memory cap as text.
std::string GivenCap(const gpushare_spec& spec);

}  // namespace gpushare::spec

#endif  // GPUSHARE_SPEC_KEYS_H_
