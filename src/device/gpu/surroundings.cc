// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/surroundings.h"

#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/env.h"
#include "base/limit_variables.h"
#include "base/text.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Whether an MPS server runs: it listens at a socket in its pipe directory.
bool MpsServer() {
  const std::string folder = base::GetEnv("CUDA_MPS_PIPE_DIRECTORY").value_or("/tmp/nvidia-mps");
  struct stat info;
  return stat((folder + "/control").c_str(), &info) == 0;
}

}  // namespace

uint64_t DmemLimit(const std::string& self, const std::string& root, const std::string& pci_id) {
  std::optional<std::string> group;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(self, '\n'))) {
    if (line.compare(0, 3, "0::") == 0) group = line.substr(3);
  }
  if (!group.has_value()) return 0;
  uint64_t least = 0;
  for (;;) {
    if (const auto text = ReadFile(root + *group + "/dmem.max")) {
      const uint64_t limit = ParseDmemMax(*text, pci_id);
      if (limit != 0 && (least == 0 || limit < least)) least = limit;
    }
    if (group->empty()) return least;
    group->resize(group->rfind('/') == std::string::npos ? 0 : group->rfind('/'));
  }
}

std::string NormalPciId(std::string_view pci_id) {
  std::string text = absl::AsciiStrToLower(absl::string_view(pci_id.data(), pci_id.size()));
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  if (text.find(':', colon + 1) == std::string::npos) return "0000:" + text;
  while (text.find(':') > 4 && text.front() == '0') text.erase(0, 1);
  return text;
}

uint64_t ParseMpsMemoryLimit(std::string_view text, int ordinal) {
  const std::optional<std::string> limit = base::MpsMemoryLimit(std::string(text), ordinal);
  const absl::StatusOr<uint64_t> bytes = spec::ParseBytes(limit.value_or(""));
  return bytes.ok() ? *bytes : 0;
}

uint64_t ParseDmemMax(std::string_view text, std::string_view pci_id) {
  const std::string wanted = NormalPciId(pci_id);
  const std::vector<std::string> lines =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  uint64_t least = 0;
  for (const std::string& line : lines) {
    const std::vector<std::string> parts = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t limit = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &limit)) continue;  // "max": none
    const std::vector<std::string> region = absl::StrSplit(parts[0], '/');
    for (const std::string& part : region) {
      if (NormalPciId(part) == wanted && (least == 0 || limit < least)) least = limit;
    }
  }
  return least;
}

Surroundings LookAround(int ordinal, const std::string& pci_id) {
  Surroundings found;
  found.mps = MpsServer();
  if (const auto text = base::GetEnv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) {
    double percentage = 0;
    if (absl::SimpleAtod(*text, &percentage) && percentage > 0 && percentage <= 100) {
      found.mps_percentage = static_cast<int>(percentage);
    }
  }
  if (const auto text = base::GetEnv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")) {
    found.mps_memory_limit = ParseMpsMemoryLimit(*text, ordinal);
    if (found.mps_memory_limit == 0 && base::MpsMemoryLimit(*text, ordinal).has_value()) {
      found.wrong = absl::StrCat("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: ", Quoted(*text),
                                 " given; allowed: ", base::kMpsMemoryAllowed);
    }
  }
  if (const auto self = ReadFile("/proc/self/cgroup")) {
    found.dmem_limit = DmemLimit(*self, "/sys/fs/cgroup", pci_id);
  }
  return found;
}

}  // namespace gpushare::device
