// SPDX-License-Identifier: Apache-2.0
// The share that a virtual device asks for. It is validated as a whole, and has one text form everywhere (C++, C, command
// line, environment).
//
//   absl::StatusOr<VirtualDeviceSpec> spec =
//       VirtualDeviceSpec::Parse("memory=8GiB,compute=30%,priority=high");
//   spec->h2d = BytesPerSecond(4'000'000'000);
//   std::string text = spec->ToString();   // parses to the same spec
//
// Text form: `key=value` separated by commas; white space around keys and values is ignored; each
// key at most once; at most 4096 bytes of UTF-8.
//
//   key               value and range                                     not given
//   memory            1B to 2^63-1 B: 8GiB, 512MiB, 1.5GB, 1073741824;    no quota: what the quotas of
//                     or a part of the device less the reserve: 50%;      others leave, first come
//                     a number without a unit is bytes, 1048576 or more
//   memory_cap        like memory, and at least that: the most that may    memory
//                     be held; memory beyond `memory` is borrowed from what
//                     others leave unused, and they can have it back
//   compute           0.01% to 100%: share asked for; the policy decides  0 %
//                     what it means; without a policy, as burst-share
//   weight            1e-6 to 1e6: part of what is not guaranteed         1
//   guarantee         [0%, 100%]: least share while backlogged            by policy, else 0 %
//   cap               0.01% to 100%, >= guarantee: largest share, even    by policy, else 100 %
//                     if the device is idle otherwise
//   burst             0s to 10s: device time that a tenant back from      20ms
//                     idle may be ahead by: 500us, 20ms, 1s
//   priority          high, normal, low                                   the tenant's, else normal
//   delay             0% to 20%, for priority high: how much longer than     3%
//                     alone its work may take because of kernels of lower
//                     priorities beside it; 0%: none may run beside it
//   h2d, d2h          1KB/s to 10TB/s: 4GB/s, 512MiB/s; none              no limit
//   isolation         shared, context, green, process                     shared
//                     green needs compute or guarantee, rounded up to the driver's steps of SMs,
//                     process needs a broker, and no other tenant of the GPU in the process
//   oversubscription  off (swap: Unimplemented)                           off
//   policy            a name of PolicyNames()                             none
//
// Sizes take B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB or no unit (bytes). Shares take
// `30%`. Keys that contradict the policy are refused (docs/api-and-abi.md has the table), for example
// best-effort with a guarantee, or fair-share with a weight.
//
// Errors: Parse and Validate return InvalidArgument, which names the field, the value given and the
// allowed range, and Unimplemented for values that are valid but not offered yet. Threading: a plain
// value, like int.
#ifndef GPUSHARE_SPEC_H_
#define GPUSHARE_SPEC_H_

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/units.h"

namespace gpushare {

enum class Priority {
  // Bypasses the gate, is charged afterwards; lower priorities wait for it.
  kHigh = GPUSHARE_PRIORITY_HIGH,
  kNormal = GPUSHARE_PRIORITY_NORMAL,
  kLow = GPUSHARE_PRIORITY_LOW,
};

// What tenants are protected from; docs/isolation.md has the table.
enum class Isolation {
  kShared = GPUSHARE_ISOLATION_SHARED,  // one context: an illegal address ends every tenant's work
  // Its own context: an illegal address ends only its own work.
  kContext = GPUSHARE_ISOLATION_CONTEXT,
  kGreen = GPUSHARE_ISOLATION_GREEN,  // its own SMs; faults as with kShared
  // Its own process, by a broker: faults end only its own work.
  kProcess = GPUSHARE_ISOLATION_PROCESS,
};

enum class Oversubscription {
  kOff = GPUSHARE_OVERSUBSCRIPTION_OFF,
  kSwap = GPUSHARE_OVERSUBSCRIPTION_SWAP,  // Unimplemented
};

struct VirtualDeviceSpec {
  std::optional<Bytes> memory = std::nullopt;  // at most one of these two
  std::optional<Share> memory_share = std::nullopt;
  std::optional<Bytes> memory_cap = std::nullopt;  // at most one of these two
  std::optional<Share> memory_cap_share = std::nullopt;
  std::optional<Share> compute = std::nullopt;
  std::optional<double> weight = std::nullopt;
  std::optional<Share> guarantee = std::nullopt;
  std::optional<Share> cap = std::nullopt;
  std::optional<absl::Duration> burst = std::nullopt;
  std::optional<Priority> priority = std::nullopt;
  std::optional<Share> delay = std::nullopt;
  // BytesPerSecond(0): no limit; also removes an earlier one.
  std::optional<Bandwidth> h2d = std::nullopt;
  std::optional<Bandwidth> d2h = std::nullopt;
  std::optional<Isolation> isolation = std::nullopt;
  std::optional<Oversubscription> oversubscription = std::nullopt;
  std::optional<std::string> policy = std::nullopt;

  static absl::StatusOr<VirtualDeviceSpec> Parse(std::string_view text);
  absl::Status Validate() const;
  // The text form, or the error's text if the spec is not valid.
  std::string ToString() const;

  friend bool operator==(const VirtualDeviceSpec&, const VirtualDeviceSpec&) = default;
};

// The names that `policy` takes: presets of {weight, guarantee, cap, priority}, under names that
// operators know from other systems.
inline std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (size_t i = 0; const char* name = gpushare_policy_name(i); ++i) names.emplace_back(name);
  return names;
}

namespace internal {

// A policy name that is too long for the C struct is cut, and a zero byte in it is replaced: both stay unknown names.
inline gpushare_spec ToC(const VirtualDeviceSpec& s) {
  gpushare_spec c = {};
  c.struct_size = sizeof(c);
  if (s.memory) c.set |= GPUSHARE_SPEC_MEMORY, c.memory = s.memory->count();
  if (s.memory_share)
    c.set |= GPUSHARE_SPEC_MEMORY_SHARE, c.memory_share = s.memory_share->fraction();
  if (s.memory_cap) c.set |= GPUSHARE_SPEC_MEMORY_CAP, c.memory_cap = s.memory_cap->count();
  if (s.memory_cap_share) {
    c.set |= GPUSHARE_SPEC_MEMORY_CAP_SHARE;
    c.memory_cap_share = s.memory_cap_share->fraction();
  }
  if (s.compute) c.set |= GPUSHARE_SPEC_COMPUTE, c.compute = s.compute->fraction();
  if (s.weight) c.set |= GPUSHARE_SPEC_WEIGHT, c.weight = *s.weight;
  if (s.guarantee) c.set |= GPUSHARE_SPEC_GUARANTEE, c.guarantee = s.guarantee->fraction();
  if (s.cap) c.set |= GPUSHARE_SPEC_CAP, c.cap = s.cap->fraction();
  if (s.burst) c.set |= GPUSHARE_SPEC_BURST, c.burst_ns = absl::ToInt64Nanoseconds(*s.burst);
  if (s.priority) c.set |= GPUSHARE_SPEC_PRIORITY, c.priority = static_cast<int32_t>(*s.priority);
  if (s.delay) c.set |= GPUSHARE_SPEC_DELAY, c.delay = s.delay->fraction();
  if (s.h2d) c.set |= GPUSHARE_SPEC_H2D, c.h2d = s.h2d->bytes_per_second();
  if (s.d2h) c.set |= GPUSHARE_SPEC_D2H, c.d2h = s.d2h->bytes_per_second();
  if (s.isolation)
    c.set |= GPUSHARE_SPEC_ISOLATION, c.isolation = static_cast<int32_t>(*s.isolation);
  if (s.oversubscription) {
    c.set |= GPUSHARE_SPEC_OVERSUBSCRIPTION;
    c.oversubscription = static_cast<int32_t>(*s.oversubscription);
  }
  if (s.policy) {
    c.set |= GPUSHARE_SPEC_POLICY;
    const size_t n = s.policy->size() < sizeof(c.policy) ? s.policy->size() : sizeof(c.policy) - 1;
    std::memcpy(c.policy, s.policy->data(), n);
    for (size_t i = 0; i < n; ++i) {
      if (c.policy[i] == '\0') c.policy[i] = '?';
    }
  }
  return c;
}

inline VirtualDeviceSpec FromC(const gpushare_spec& c) {
  VirtualDeviceSpec s;
  if (c.set & GPUSHARE_SPEC_MEMORY) s.memory = Bytes(c.memory);
  if (c.set & GPUSHARE_SPEC_MEMORY_SHARE) s.memory_share = Share::Fraction(c.memory_share);
  if (c.set & GPUSHARE_SPEC_MEMORY_CAP) s.memory_cap = Bytes(c.memory_cap);
  if (c.set & GPUSHARE_SPEC_MEMORY_CAP_SHARE) {
    s.memory_cap_share = Share::Fraction(c.memory_cap_share);
  }
  if (c.set & GPUSHARE_SPEC_COMPUTE) s.compute = Share::Fraction(c.compute);
  if (c.set & GPUSHARE_SPEC_WEIGHT) s.weight = c.weight;
  if (c.set & GPUSHARE_SPEC_GUARANTEE) s.guarantee = Share::Fraction(c.guarantee);
  if (c.set & GPUSHARE_SPEC_CAP) s.cap = Share::Fraction(c.cap);
  if (c.set & GPUSHARE_SPEC_BURST) s.burst = absl::Nanoseconds(c.burst_ns);
  if (c.set & GPUSHARE_SPEC_PRIORITY) s.priority = static_cast<Priority>(c.priority);
  if (c.set & GPUSHARE_SPEC_DELAY) s.delay = Share::Fraction(c.delay);
  if (c.set & GPUSHARE_SPEC_H2D) s.h2d = Bandwidth(c.h2d);
  if (c.set & GPUSHARE_SPEC_D2H) s.d2h = Bandwidth(c.d2h);
  if (c.set & GPUSHARE_SPEC_ISOLATION) s.isolation = static_cast<Isolation>(c.isolation);
  if (c.set & GPUSHARE_SPEC_OVERSUBSCRIPTION) {
    s.oversubscription = static_cast<Oversubscription>(c.oversubscription);
  }
  if (c.set & GPUSHARE_SPEC_POLICY) s.policy = c.policy;
  return s;
}

}  // namespace internal

inline absl::StatusOr<VirtualDeviceSpec> VirtualDeviceSpec::Parse(std::string_view text) {
  gpushare_spec c = {};
  c.struct_size = sizeof(c);
  const gpushare_status code = gpushare_spec_parse(text.data(), text.size(), &c);
  if (code != GPUSHARE_OK) return internal::ToStatus(code);
  return internal::FromC(c);
}

inline absl::Status VirtualDeviceSpec::Validate() const {
  const gpushare_spec c = internal::ToC(*this);
  return internal::ToStatus(gpushare_spec_validate(&c));
}

inline std::string VirtualDeviceSpec::ToString() const {
  const gpushare_spec c = internal::ToC(*this);
  char text[1024];
  const gpushare_status code = gpushare_spec_format(&c, text, sizeof(text), nullptr);
  return code == GPUSHARE_OK ? text : gpushare_last_message();
}

}  // namespace gpushare

#endif  // GPUSHARE_SPEC_H_
