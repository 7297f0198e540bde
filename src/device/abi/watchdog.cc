// SPDX-License-Identifier: Apache-2.0
// The C ABI: the watchdog.
#include <memory>
#include <utility>

#include "device/abi/c_abi.h"
#include "device/watch/watch.h"
#include "spec/text.h"

using namespace gpushare;
using namespace gpushare::device;

gpushare_status gpushare_watchdog_start(gpushare_gpu gpu, const gpushare_watchdog_options* options,
                                        gpushare_watchdog* watchdog) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_NOT_NULL(watchdog);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_watchdog_options known,
                              ReadStruct(options, "options"));
    if (known.callback == nullptr) {
      return absl::InvalidArgumentError("watchdog: 'callback' is null");
    }
    const Nanos limit = known.limit_ns == 0 ? Watch::kDefault : Nanos(known.limit_ns);
    if (limit < Watch::kLeast) {
      return absl::InvalidArgumentError(absl::StrCat(
          "watchdog: a limit of ", limit < Nanos(0) ? "0 or less" : spec::FormatDuration(limit),
          " given, ", spec::FormatDuration(Watch::kLeast), " or more allowed"));
    }
    const auto tell = [callback = known.callback,
                       context = known.context](const gate::Incident& incident) {
      gpushare_incident c = {};
      c.struct_size = sizeof(c);
      c.kind = incident.kind == gate::Incident::Kind::kStuck ? GPUSHARE_INCIDENT_STUCK
                                                             : GPUSHARE_INCIDENT_FAULT;
      c.driver_result = static_cast<int32_t>(incident.result);
      c.lease = incident.lease ? 1 : 0;
      c.late_ns = incident.late.count();
      c.stream = incident.stream;
      c.tenant = incident.tenant.c_str();
      callback(context, &c);
    };
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Watch> started, Watch::Start(opened, limit, tell));
    return NewHandle(watchdog, std::move(started));
  });
}

gpushare_status gpushare_watchdog_stop(gpushare_watchdog watchdog) {
  // Borrowed, not shared: on its own thread the watchdog cannot be destroyed meanwhile, and that thread must not hold the last
  // reference.
  const Watch* const own = Handles::Borrow(watchdog);
  if (own != nullptr && own->OnItsThread()) {
    return SetLastError(absl::FailedPreconditionError(
        "watchdog: stopped from its own callback, for whose end it would wait"));
  }
  return Destroy(watchdog);
}
