// SPDX-License-Identifier: Apache-2.0
// The memory that processes hold on a GPU, and how busy they keep it, by the driver's own count (NVML).
//
//   GPUSHARE_ASSIGN_OR_RETURN(const auto nvml, driver::Nvml::Open(driver.path()));
//   GPUSHARE_ASSIGN_OR_RETURN(const auto processes, nvml->Processes(uuid));
//
// NVML reports PIDs of the root namespace; a process in a PID namespace of its own cannot find itself there.
//
// Threading: Processes() and Utilization() are thread-safe. NVML calls may take long, so make them on a thread that nobody
// waits for.
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
  // Opens GPUSHARE_NVML, else the library beside the driver at that path, else the system's. Unavailable: none was found.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& driver);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Bytes by pid; nullopt for a process that the driver lists without a figure.
  using ByProcess = std::map<int32_t, std::optional<uint64_t>>;
  absl::StatusOr<ByProcess> Processes(const std::string& uuid) const;

  // The part of a sampling period in which kernels of a process ran. The driver does not tell the period's length.
  struct Sample {
    int32_t pid = 0;
    uint64_t until_us = 0;  // end of the period, on the driver's clock
    uint32_t percent = 0;
  };
  using Samples = std::vector<Sample>;
  // The samples that ended after `since_us`; often only the latest of each process. nullopt: the driver cannot tell, as on a MIG
  // instance, or its figures are not each process's own, since processes run at the same time (MPS).
  absl::StatusOr<std::optional<Samples>> Utilization(const std::string& uuid,
                                                     uint64_t since_us) const;

  // Whether this NVML describes a share instead of the GPU, because a preloaded gpushare has replaced it.
  bool stands_in() const;

 private:
  explicit Nvml(void* library) : library_(library) {}

  void* const library_;
};

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_NVML_H_
