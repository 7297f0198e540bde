// SPDX-License-Identifier: Apache-2.0
// The processes on a GPU, by NVML.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const auto nvml, Nvml::Open(driver.path()));
//   GPUSHARE_ASSIGN_OR_RETURN(Counts counts, nvml->Count({uuid}));
//
// Threading: one caller at a time. A call of NVML may take long: not for a thread that others wait for.
#ifndef GPUSHARE_BROKER_NVML_H_
#define GPUSHARE_BROKER_NVML_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/audit.h"

namespace gpushare::broker {

class Nvml {
 public:
  // GPUSHARE_NVML, else the one beside the driver of that path, else the machine's. Unavailable: there is none.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& driver);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // What each process holds of these GPUs. One that the driver shows without a figure is left out. An error, when any
  // GPU is not answered for.
  absl::StatusOr<Counts> Count(const std::vector<std::string>& uuids) const;

 private:
  explicit Nvml(void* library) : library_(library) {}
  absl::Status AddProcesses(const std::string& uuid, Counts* counts) const;

  void* const library_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_NVML_H_
