// SPDX-License-Identifier: Apache-2.0
// What processes hold of a GPU, and how busy they keep it, by the driver's own count, which NVML tells.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const auto nvml, driver::Nvml::Open(driver.path()));
//   GPUSHARE_ASSIGN_OR_RETURN(const auto processes, nvml->Processes(uuid));
//
// NVML's PIDs are those of the machine, which a process in a PID namespace of its own does not know.
//
// Threading: Processes() and Utilization() are thread-safe. A call of NVML may take long: not for a thread that others wait for.
#ifndef GPUSHARE_DRIVER_NVML_H_
#define GPUSHARE_DRIVER_NVML_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpushare::driver {

class Nvml {
 public:
  // GPUSHARE_NVML, else the one beside the driver of that path, else the machine's. Unavailable: there is none.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& driver);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Bytes by process; of one that the driver lists without a figure nothing.
  using ByProcess = std::map<int32_t, std::optional<uint64_t>>;
  absl::StatusOr<ByProcess> Processes(const std::string& uuid) const;

  // The part of a sample's time in which kernels of a process ran. How long that is the driver does not say.
  struct Sample {
    int32_t pid = 0;
    uint64_t until_us = 0;  // by the driver's clock
    uint32_t percent = 0;
  };
  using Samples = std::vector<Sample>;
  // Those that ended after `since_us`; often no more than the latest of each process. Nothing: the driver cannot tell,
  // as of a part of a GPU (MIG), or what it tells is not each process's own, since they run at the same time (MPS).
  absl::StatusOr<std::optional<Samples>> Utilization(const std::string& uuid,
                                                     uint64_t since_us) const;

  // Whether it answers for a share and not for the GPU: a preloaded gpushare has put its own in the place of NVML.
  bool stands_in() const;

 private:
  explicit Nvml(void* library) : library_(library) {}

  void* const library_;
};

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_NVML_H_
