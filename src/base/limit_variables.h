// SPDX-License-Identifier: Apache-2.0
// Reads the limit variables of other systems (HAMi, NVIDIA, Aliyun, MPS) as keys and values of a spec.
//
//   CUDA_DEVICE_MEMORY_LIMIT=1g CUDA_DEVICE_SM_LIMIT=50 program
//   FindLimits(0) == {{"memory", "1073741824B", "CUDA_DEVICE_MEMORY_LIMIT"}, {"cap", "50%", "CUDA_DEVICE_SM_LIMIT"}}
//
// If several variables set the same limit, the first one in the table of docs/env.md wins. Values that mean "no limit" there
// are left out. An unreadable value is passed on unchanged, so that the spec is refused instead of running without a limit.
#ifndef GPUSHARE_BASE_LIMIT_VARIABLES_H_
#define GPUSHARE_BASE_LIMIT_VARIABLES_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpushare::base {

struct Limit {
  std::string key;       // of a spec: memory, cap, compute, policy, priority
  std::string value;     // in the spec's notation
  std::string variable;  // the variable that won
  std::string text;      // its value
  std::string allowed;   // the values it may have, for messages
  std::string note;      // what is to be known of it, as in "cap=50% holds ..."; "": nothing
};

// The limits for GPU `ordinal`, counted among the GPUs that the program sees. `get` reads the environment.
std::vector<Limit> FindLimits(
    int ordinal, const std::function<std::optional<std::string>(const std::string& name)>& get);
std::vector<Limit> FindLimits(int ordinal);

// The limit of GPU `ordinal` in a value of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT ("0=2G,1=512M"), in the spec's notation: "2GiB".
// nullopt if it has none for this GPU. An unreadable value gives text that no spec accepts.
std::optional<std::string> MpsMemoryLimit(const std::string& text, int ordinal);
inline constexpr char kMpsMemoryAllowed[] = "GPUs by their number, as in 0=2G,1=512M";

// Adds to `spec`, the text of GPUSHARE_SPEC, the `limits` about subjects that it does not mention: memory, compute, priority.
// `used`, unless null, receives the ones that were added.
std::string AddLimits(const std::string& spec, const std::vector<Limit>& limits,
                      std::vector<Limit>* used = nullptr);

// Adds to `spec` the keys of the spec `wider` about subjects (memory, compute, or the key itself) that `spec` does not mention.
std::string AddSpec(const std::string& spec, const std::string& wider);

// The message about the first limit that does not parse as a spec, naming its variable; "" if all parse. `is_spec` decides
// about texts such as "memory=bogusMiB".
std::string WrongLimit(const std::vector<Limit>& limits,
                       const std::function<bool(const std::string& spec)>& is_spec);

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_LIMIT_VARIABLES_H_
