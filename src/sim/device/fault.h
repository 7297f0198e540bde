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
  // Adds one fault, or clears all. Empty on success, else what is wrong.
  std::string Inject(std::string_view text);
  void Clear() { *this = Faults(); }

  // True when some fault concerns calls: then every call must ask OnCall.
  bool on_calls() const { return !calls_.empty(); }
  // The result with which the call must fail instead of doing its work (0: none), and its extra host time.
  int OnCall(size_t api, uint64_t* host_ns);

  // True when this allocation must fail.
  bool FailAllocation();

  // True after all were cleared.
  bool none() const { return calls_.empty() && !oom_ && hang_.empty() && illegal_address_.empty(); }

  bool KernelHangs(const std::string& name) const { return Names(hang_, name); }
  bool KernelFaults(const std::string& name) const { return Names(illegal_address_, name); }
  // Changes whenever the answers of the two functions above may have changed.
  uint64_t version() const { return version_; }

 private:
  struct Call {
    size_t api;
    int code;      // 0: none
    uint64_t nth;  // 0: every call; else only the nth call after the injection
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
