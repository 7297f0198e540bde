// SPDX-License-Identifier: Apache-2.0
#include "sim/config/identity.h"

#include <cstdio>
#include <cstring>

namespace gpushare::sim {

std::array<uint8_t, 16> UuidOf(int ordinal) {
  std::array<uint8_t, 16> uuid{};
  static constexpr char kPrefix[] = "gpushare-sim-";
  std::memcpy(uuid.data(), kPrefix, sizeof(kPrefix) - 1);
  uuid[15] = static_cast<uint8_t>(ordinal);
  return uuid;
}

std::string UuidText(const uint8_t* uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

gpushare_sim_device_info IdleInfo(const Config& config, int ordinal) {
  gpushare_sim_device_info info{};
  std::snprintf(info.name, sizeof(info.name), "%s", config.name.c_str());
  const auto uuid = UuidOf(ordinal);
  std::memcpy(info.uuid, uuid.data(), uuid.size());
  info.pci_bus = PciBusOf(ordinal);
  info.compute_major = config.compute_major;
  info.compute_minor = config.compute_minor;
  info.memory_total = config.memory;
  return info;
}

}  // namespace gpushare::sim
