// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/metrics_json.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace gpushare::cli {
namespace {

struct Sample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
};
struct Family {
  std::string name, type, help;
  std::vector<Sample> samples;
};

// Parses `name="value",` at the start of `rest` and removes it.
bool TakeLabel(absl::string_view& rest, Sample* sample) {
  const size_t is = rest.find("=\"");
  if (is == absl::string_view::npos) return false;
  auto& [name, value] = sample->labels.emplace_back();
  name = std::string(rest.substr(0, is));
  rest.remove_prefix(is + 2);
  while (!rest.empty() && rest[0] != '"') {
    const bool escaped = rest[0] == '\\' && rest.size() > 1;
    if (escaped) rest.remove_prefix(1);
    value += escaped && rest[0] == 'n' ? '\n' : rest[0];
    rest.remove_prefix(1);
  }
  if (rest.empty()) return false;
  rest.remove_prefix(1);
  if (!rest.empty() && rest[0] == ',') rest.remove_prefix(1);
  return true;
}

bool ReadSample(absl::string_view line, Sample* sample) {
  const size_t end = line.find_first_of("{ ");
  if (end == absl::string_view::npos) return false;
  sample->name = std::string(line.substr(0, end));
  line.remove_prefix(end);
  if (line[0] == '{') {
    line.remove_prefix(1);
    while (!line.empty() && line[0] != '}') {
      if (!TakeLabel(line, sample)) return false;
    }
    if (line.empty()) return false;
    line.remove_prefix(1);
  }
  return absl::SimpleAtod(line, &sample->value);
}

// Parses a line into `families`. A sample belongs to the last family.
bool ReadLine(absl::string_view line, std::vector<Family>* families) {
  if (line.empty()) return true;
  const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
  if (line[0] != '#') {
    return !families->empty() && ReadSample(line, &families->back().samples.emplace_back());
  }
  if (words.size() < 4) return true;  // a comment
  if (words[1] != "HELP" && words[1] != "TYPE") return true;
  if (families->empty() || families->back().name != words[2]) {
    families->push_back({words[2], "", "", {}});
  }
  (words[1] == "HELP" ? families->back().help : families->back().type) = words[3];
  return true;
}

// Writes whole numbers, such as bytes, with all digits.
void WriteValue(double value, base::JsonWriter* out) {
  if (!std::isfinite(value)) {
    out->Null();
  } else if (std::trunc(value) == value && std::fabs(value) < 9e15) {
    out->Integer(static_cast<int64_t>(value));
  } else {
    out->Number(value);
  }
}

}  // namespace

absl::StatusOr<std::string> MetricsJson(std::string_view text) {
  std::vector<Family> families;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    if (ReadLine(line, &families)) continue;
    return absl::InternalError(absl::StrCat("the broker's metrics have a line of another form: ",
                                            Quoted(std::string(line))));
  }
  base::JsonWriter out;
  out.BeginArray();
  for (const Family& family : families) {
    out.BeginObject().Key("name").String(family.name).Key("type").String(family.type);
    out.Key("help").String(family.help).Key("samples").BeginArray();
    for (const Sample& sample : family.samples) {
      out.BeginObject().Key("name").String(sample.name).Key("labels").BeginObject();
      for (const auto& [name, value] : sample.labels) out.Key(name).String(value);
      out.EndObject().Key("value");
      WriteValue(sample.value, &out);
      out.EndObject();
    }
    out.EndArray().EndObject();
  }
  return out.EndArray().text() + "\n";
}

}  // namespace gpushare::cli
