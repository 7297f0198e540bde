// SPDX-License-Identifier: Apache-2.0
#include "harness/fault.h"

#include "base/status_macros.h"
#include "harness/values.h"

namespace gpushare::harness {

absl::Status ReadFault(const yaml::Reader& in, const yaml::Node& map, const std::string& place,
                       Nanos step, Fault* out) {
  using yaml::Node;
  using Where = const std::string&;
  Fault read;
  bool has_sms = false;
  const absl::Status keys =
      in.Keys(map, place,
              {{"kind",
                [&](const Node& value, Where below) {
                  size_t which = 0;
                  GPUSHARE_RETURN_IF_ERROR(ReadWord(in, value, below, kFaultKinds, &which));
                  read.kind = static_cast<Fault::Kind>(which + 1);
                  return absl::OkStatus();
                }},
               {"at",
                [&](const Node& value, Where below) {
                  return ReadTime(in, value, below, step, Seconds(600), step, &read.at);
                }},
               {"sms", [&](const Node& value, Where below) {
                  has_sms = true;
                  return ReadCount(in, value, below, 1, 4096, &read.sms);
                }}});
  if (!keys.ok()) return keys;
  if (read.kind == Fault::Kind::kNone) return in.Error(map.line, place, "'kind' is missing");
  if (read.at == Nanos(0)) return in.Error(map.line, place, "'at' is missing");
  if (has_sms != (read.kind == Fault::Kind::kEndlessKernel)) {
    return in.Error(map.line, place, "'sms' is of the kind 'endless-kernel', which needs it");
  }
  *out = read;
  return absl::OkStatus();
}

}  // namespace gpushare::harness
