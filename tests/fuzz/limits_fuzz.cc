// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as other products' variables for limits: no crash; errors are reported; and the MPS limit for a GPU
// is a size, absent, or refused.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limit_variables.h"
#include "spec/spec.h"
#include "spec/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gpushare::base::Limit;
  const auto require = [](bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
  };
  // Each line is the value of one variable.
  const std::vector<std::string> names = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                                          "CUDA_DEVICE_SM_LIMIT",
                                          "GPUSHARE_BROKER",
                                          "GPU_CORE_UTILIZATION_POLICY",
                                          "CUDA_TASK_PRIORITY",
                                          "CUDA_DEVICE_MEMORY_LIMIT_1",
                                          "CUDA_DEVICE_MEMORY_LIMIT",
                                          "ALIYUN_COM_GPU_MEM_CONTAINER"};
  std::map<std::string, std::string> variables;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (size_t i = 0; i < names.size() && !rest.empty(); ++i) {
    const size_t end = rest.find('\n');
    // Like in an environment: no variable is empty.
    const std::string value(rest.substr(0, end));
    if (!value.empty() && value.find('\0') == std::string::npos) variables[names[i]] = value;
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  const auto get = [&](const std::string& name) {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
  const auto is_spec = [](const std::string& text) {
    const auto spec = gpushare::spec::ParseSpec(text);
    return spec.ok() && gpushare::spec::ValidateSpec(*spec).ok();
  };
  for (const int ordinal : {0, 1}) {
    const std::vector<Limit> limits = gpushare::base::FindLimits(ordinal, get);
    bool all = true;
    for (const Limit& limit : limits) all = all && is_spec(limit.key + "=" + limit.value);
    require(all == gpushare::base::WrongLimit(limits, is_spec).empty(), "what is wrong is said");
    if (const auto pinned = get(names[0])) {
      const std::optional<std::string> said = gpushare::base::MpsMemoryLimit(*pinned, ordinal);
      require(!said.has_value() || !said->empty(), "a limit is something");
      require(!said.has_value() || said->front() != '=' || !is_spec("memory=" + *said),
              "what cannot be read is refused");
      if (pinned->find('=') == std::string::npos &&
          pinned->find_first_not_of(' ') != std::string::npos) {
        require(said.has_value() && !is_spec("memory=" + *said), "nor is it no limit");
      }
    }
  }
  return 0;
}
