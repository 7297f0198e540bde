// SPDX-License-Identifier: Apache-2.0
// What processes hold of a GPU by the driver's own count, which NVML tells.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const auto nvml, driver::Nvml::Open(driver.path()));
//   GPUSHARE_ASSIGN_OR_RETURN(const auto processes, nvml->Processes(uuid));
//
// NVML's PIDs are those of the machine, which a process in a PID namespace of its own does not know.
//
// Threading: Processes() is thread-safe. A call of NVML may take long: not for a thread that others wait for.
#ifndef GPUSHARE_DRIVER_NVML_H_
#define GPUSHARE_DRIVER_NVML_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

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

  // Whether it answers for a share and not for the GPU: a preloaded gpushare has put its own in the place of NVML.
  bool stands_in() const;

 private:
  explicit Nvml(void* library) : library_(library) {}

  void* const library_;
};

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_NVML_H_
