// SPDX-License-Identifier: Apache-2.0
// Faults that tests inject; see gpushare_sim_inject.
#ifndef GPUSHARE_SIM_DEVICE_FAULT_H_
#define GPUSHARE_SIM_DEVICE_FAULT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpushare::sim {

class Faults {
 public:
  // Adds one fault (or clears all); empty when it was understood.
  std::string Inject(std::string_view text);
  void Clear() { *this = Faults(); }

  // True when some fault concerns calls: then OnCall must be asked.
  bool on_calls() const { return !calls_.empty(); }
  // What the call has to answer instead of doing its work (0: nothing), and its extra host time.
  int OnCall(size_t api, uint64_t* host_ns);

  // True when this allocation has to fail.
  bool FailAllocation();

  // True after all were cleared.
  bool none() const { return calls_.empty() && !oom_ && hang_.empty() && illegal_address_.empty(); }

  bool KernelHangs(const std::string& name) const { return Names(hang_, name); }
  bool KernelFaults(const std::string& name) const { return Names(illegal_address_, name); }
  // Changes whenever what the two above answer may have.
  uint64_t version() const { return version_; }

 private:
  struct Call {
    size_t api;
    int code;      // 0: none
    uint64_t nth;  // 0: every call; else the nth from the injection on, once
    uint64_t seen;
    uint64_t host_ns;
  };
  static bool Names(const std::vector<std::string>& names, const std::string& name);

  std::vector<Call> calls_;
  bool oom_ = false;
  uint64_t oom_after_ = 0;
  std::vector<std::string> hang_, illegal_address_;
  uint64_t version_ = 1;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_FAULT_H_
