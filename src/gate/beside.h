// SPDX-License-Identifier: Apache-2.0
// Decides what may be launched beside the high band's commands in flight, from the books of those commands.
#ifndef GPUSHARE_GATE_BESIDE_H_
#define GPUSHARE_GATE_BESIDE_H_

#include "absl/container/inlined_vector.h"
#include "gate/state.h"
#include "meter/outlook.h"
#include "sched/arbiter.h"

namespace gpushare::gate {

// Used for one Run() of the arbiter, under the engine's lock.
class Engine::Impl::LooksAhead final : public sched::Beside {
 public:
  explicit LooksAhead(Impl& engine) : engine_(engine) {}
  // Brings the books up to date. False: nothing may run beside the high band now, so there is nothing to ask.
  bool Prepare(Time now);
  bool Admits(sched::TenantId id, Time now, Time* again) override;

 private:
  bool Admit(const GrantRequest& request, Time now, Time* again);
  static meter::Outlook::Delay Worst(meter::Outlook& outlook, meter::Outlook::Command command,
                                     double most);

  Impl& engine_;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_BESIDE_H_
