// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a spec: no crash, and an accepted spec is valid and survives its own text form exactly.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "spec/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gpushare::spec::FormatSpec;
  using gpushare::spec::ParseSpec;
  const auto require = [](bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<gpushare_spec> spec = ParseSpec(text);
  if (!spec.ok()) {
    require(!spec.status().message().empty(), "an error has a message");
    require(spec.status().message().size() < 1024, "an error does not echo its input");
    return 0;
  }
  // A spec that is not valid as a whole is a change, which omits what its policy or its cap of memory needs.
  if (gpushare::spec::ValidateSpec(*spec).ok()) {
    const auto limits =
        gpushare::spec::ResolveSpec(*spec, GPUSHARE_PRIORITY_UNSET, uint64_t{80} << 30);
    // Whether a number of bytes exceeds a fraction of the device depends on the device.
    constexpr uint32_t kBytes = GPUSHARE_SPEC_MEMORY | GPUSHARE_SPEC_MEMORY_CAP;
    constexpr uint32_t kShares = GPUSHARE_SPEC_MEMORY_SHARE | GPUSHARE_SPEC_MEMORY_CAP_SHARE;
    const bool mixed = (spec->set & kBytes) != 0 && (spec->set & kShares) != 0;
    require(limits.ok() || mixed, "what is valid has limits");
    if (limits.ok()) {
      require(limits->compute.guarantee <= limits->compute.cap, "the guarantee is within the cap");
      require(!limits->memory_cap || *limits->memory <= *limits->memory_cap,
              "the quota is within its cap");
    }
  } else {
    constexpr uint32_t kMayNeedMore =
        GPUSHARE_SPEC_POLICY | GPUSHARE_SPEC_MEMORY_CAP | GPUSHARE_SPEC_MEMORY_CAP_SHARE;
    require((spec->set & kMayNeedMore) != 0, "what is accepted is valid");
  }
  const std::string formatted = FormatSpec(*spec);
  const absl::StatusOr<gpushare_spec> again = ParseSpec(formatted);
  require(again.ok(), "the text form is accepted");
  require(std::memcmp(&*again, &*spec, sizeof(gpushare_spec)) == 0, "the text form is exact");
  require(FormatSpec(*again) == formatted, "the text form is stable");
  return 0;
}
