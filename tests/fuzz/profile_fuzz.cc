// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a device profile: no crash; an error names its place; and the simulated GPU reads the same
// settings as YAML.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "sim/config/config.h"
#include "sim/config/profile.h"
#include "yaml/document.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

namespace {

using Settings = std::map<std::string, std::string, std::less<>>;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// The settings as YAML reads them; false for a document of another kind.
bool SettingsOf(const gpushare::yaml::Node& document, Settings* settings) {
  using Kind = gpushare::yaml::Node::Kind;
  for (size_t i = 0; i < document.keys.size(); ++i) {
    if (document.keys[i].text != "settings") continue;
    const gpushare::yaml::Node& map = document.values[i];
    for (size_t k = 0; k < map.keys.size(); ++k) {
      if (map.values[k].kind != Kind::kText && map.values[k].kind != Kind::kNothing) return false;
      (*settings)[map.keys[k].text] = map.values[k].text;
    }
    return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Settings taken;
  const auto take = [&](std::string_view key, std::string_view value) {
    taken[std::string(key)] = std::string(value);
    // The simulated GPU's own parser also gets every setting.
    gpushare::sim::Config config;
    gpushare::sim::ParseConfig(std::string(key) + "=" + std::string(value), &config);
    return std::string();
  };
  const std::string why = gpushare::sim::ParseProfile(text, "file", take);
  if (!why.empty()) {
    Require(why.substr(0, 5) == "file:", "an error says where");
    Require(why.size() < 512, "an error does not echo its input");
    return 0;
  }
  // YAML refuses more: text that is not UTF-8, and bad syntax in parts that are meant for people.
  const absl::StatusOr<gpushare::yaml::Node> document = gpushare::yaml::Parse(text, "file");
  if (!document.ok()) return 0;
  Settings meant;
  Require(SettingsOf(*document, &meant), "what is taken has settings in YAML");
  Require(meant == taken, "what is taken is what YAML says");
  return 0;
}
