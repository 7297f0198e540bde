// SPDX-License-Identifier: Apache-2.0
// Limits in the environment by the names that others gave them, as keys and values of a spec.
//
//   CUDA_DEVICE_MEMORY_LIMIT=1g CUDA_DEVICE_SM_LIMIT=50 program
//   FindLimits(0) == {{"memory", "1073741824B", "CUDA_DEVICE_MEMORY_LIMIT"}, {"cap", "50%", "CUDA_DEVICE_SM_LIMIT"}}
//
// Where several say the same, the first of docs/env.md's table wins. What is said there to mean "no limit" is
// none; what cannot be read is handed on as it stands, so that the spec is refused and nothing runs without a limit.
#ifndef GPUSHARE_BASE_LIMIT_VARIABLES_H_
#define GPUSHARE_BASE_LIMIT_VARIABLES_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpushare::base {

struct Limit {
  std::string key;       // of a spec: memory, cap, compute, policy, priority
  std::string value;     // as a spec has it
  std::string variable;  // that won
  std::string text;      // what it has
  std::string allowed;   // what it may have
  std::string note;      // what is to be known of it, as in "cap=50% holds ..."; "": nothing
};

// For GPU `ordinal`, of those that the program sees. `get` is the environment.
std::vector<Limit> FindLimits(
    int ordinal, const std::function<std::optional<std::string>(const std::string& name)>& get);
std::vector<Limit> FindLimits(int ordinal);

// What CUDA_MPS_PINNED_DEVICE_MEM_LIMIT ("0=2G,1=512M") says of GPU `ordinal`, as a spec has it: "2GiB". Nothing: nothing. What
// cannot be read comes to what no spec takes.
std::optional<std::string> MpsMemoryLimit(const std::string& text, int ordinal);
inline constexpr char kMpsMemoryAllowed[] = "GPUs by their number, as in 0=2G,1=512M";

// `spec`, the text of GPUSHARE_SPEC, and those of `limits` that it leaves open: memory where it has no key of
// memory, compute where it has none of compute, and the priority. `used`, unless null: those of them.
std::string AddLimits(const std::string& spec, const std::vector<Limit>& limits,
                      std::vector<Limit>* used = nullptr);

// `spec`, and the keys of `wider`, the text of another, whose subject (memory, compute, or the key itself) it leaves open.
std::string AddSpec(const std::string& spec, const std::string& wider);

// What is wrong with the first of them that is no spec by itself, in the words of its variable; "" for none. `is_spec`
// tells, of "memory=bogusMiB".
std::string WrongLimit(const std::vector<Limit>& limits,
                       const std::function<bool(const std::string& spec)>& is_spec);

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_LIMIT_VARIABLES_H_
