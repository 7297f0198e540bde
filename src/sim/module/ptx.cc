// SPDX-License-Identifier: Apache-2.0
// Reads as much of PTX as a driver that does not execute it needs: directives, entries with their parameters, and the nesting
// of everything else.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "sim/module/module.h"

namespace gpushare::sim {
namespace {

constexpr std::string_view kCostMark = "gpushare.sim";

class PtxReader {
 public:
  PtxReader(std::string_view text, DeviceModule* module) : text_(text), module_(module) {}

  std::string Read() {
    if (!Next() || token_ != ".version") return Fail("expected .version first");
    if (!Next() || !ReadVersion()) return Fail("bad .version");
    if (!Next() || token_ != ".target") return Fail("expected .target after .version");
    if (!Next() || token_.substr(0, 3) != "sm_") return Fail("bad .target");
    while (error_.empty() && Next()) {
      if (token_ == ".entry") {
        ReadEntry();
      } else if (token_ == ".global" || token_ == ".const") {
        ReadGlobal();
      } else if (token_ == "{") {
        SkipBlock();
      } else if (token_ == "(") {  // what a .func takes or answers
        while (error_.empty() && token_ != ")") {
          if (!Next()) Fail("'(' is not closed");
        }
      } else if (token_ == "}" || token_ == ")") {
        return Fail("'" + std::string(token_) + "' closes nothing");
      }
    }
    if (!error_.empty()) return error_;
    if (!pending_cost_.empty()) return Fail("a gpushare.sim line without an .entry after it");
    return std::string();
  }

 private:
  std::string Fail(const std::string& what) {
    if (error_.empty()) error_ = "line " + std::to_string(line_) + ": " + what;
    return error_;
  }

  static bool IsWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$' ||
           c == '%' || c == '@';
  }

  // Reads the next word or punctuation mark and skips comments. False at the end and after an error.
  bool Next() {
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        if (text_[at_] == '\n') ++line_;
        ++at_;
      }
      if (at_ >= text_.size()) return false;
      const std::string_view rest = text_.substr(at_);
      if (rest.substr(0, 2) == "//") {
        const size_t end = rest.find('\n');
        std::string_view comment = rest.substr(2, end == rest.npos ? end : end - 2);
        comment.remove_prefix(std::min(comment.find_first_not_of(" \t"), comment.size()));
        if (comment.substr(0, kCostMark.size()) == kCostMark) {
          pending_cost_ = comment.substr(kCostMark.size());
          pending_line_ = line_;
        }
        at_ = end == rest.npos ? text_.size() : at_ + end;
        continue;
      }
      if (rest.substr(0, 2) == "/*") {
        const size_t end = rest.find("*/");
        if (end == rest.npos) {
          Fail("comment does not end");
          return false;
        }
        for (char c : rest.substr(0, end)) line_ += c == '\n';
        at_ += end + 2;
        continue;
      }
      if (rest[0] == '"') {
        const size_t end = rest.find('"', 1);
        if (end == rest.npos) {
          Fail("string does not end");
          return false;
        }
        token_ = rest.substr(0, end + 1);
      } else if (IsWord(rest[0])) {
        size_t end = 1;
        while (end < rest.size() && IsWord(rest[end])) ++end;
        token_ = rest.substr(0, end);
      } else {
        const auto c = static_cast<unsigned char>(rest[0]);
        if (c < 0x20 || c >= 0x7f) {
          Fail("byte that is not text");
          return false;
        }
        token_ = rest.substr(0, 1);
      }
      at_ += token_.size();
      return true;
    }
  }

  template <typename T>
  static bool Number(std::string_view text, T* value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size();
  }

  bool ReadVersion() {
    const size_t dot = token_.find('.');
    int major = 0, minor = 0;
    if (dot == token_.npos || !Number(token_.substr(0, dot), &major) ||
        !Number(token_.substr(dot + 1), &minor) || major < 1 || major > 99 || minor > 9) {
      return false;
    }
    module_->version = major * 10 + minor;
    return true;
  }

  void SkipBlock() {
    int depth = 1;
    while (depth > 0) {
      if (!Next()) {
        Fail("'{' is not closed");
        return;
      }
      if (token_ == "{") ++depth;
      if (token_ == "}") --depth;
    }
  }

  static std::optional<uint32_t> SizeOfType(std::string_view type) {
    size_t digits = 1;
    while (digits < type.size() && std::isdigit(static_cast<unsigned char>(type[digits])) == 0) {
      ++digits;
    }
    if (type == ".pred") return 1;
    uint32_t bits = 0;
    if (type.size() < 3 || type[0] != '.' || !Number(type.substr(digits), &bits)) return {};
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128) return {};
    return bits / 8;
  }

  // Reads the part after ".param", ".global" or ".const": [attributes] .type name [ [count] ]. Stops before what follows.
  bool ReadVariable(std::string* name, uint64_t* bytes, uint32_t* alignment) {
    std::optional<uint32_t> size;
    *alignment = 0;
    while (Next() && token_[0] == '.') {
      if (token_ == ".align") {
        if (!Next() || !Number(token_, alignment) || *alignment == 0 ||
            (*alignment & (*alignment - 1)) != 0 || *alignment > 4096) {
          Fail("bad .align");
          return false;
        }
      } else if (token_ == ".v2" || token_ == ".v4") {
        vector_ = token_ == ".v2" ? 2 : 4;
      } else if (std::optional<uint32_t> parsed = SizeOfType(token_)) {
        size = parsed;
      } else if (token_ == ".texref" || token_ == ".samplerref" || token_ == ".surfref") {
        size = 8;  // a handle
      } else if (token_ != ".ptr" && token_ != ".global" && token_ != ".const" &&
                 token_ != ".shared" && token_ != ".local" && token_ != ".attribute") {
        Fail("unknown type '" + std::string(token_) + "'");
        return false;
      }
    }
    if (!size) {
      Fail("variable without a type");
      return false;
    }
    if (!IsWord(token_[0])) {
      Fail("variable without a name");
      return false;
    }
    *name = std::string(token_);
    *bytes = uint64_t{*size} * vector_;
    if (*alignment == 0) *alignment = *size * vector_;
    vector_ = 1;
    return true;
  }

  // Reads "[count]" after a name, if present; leaves token_ at what follows.
  bool ReadArray(uint64_t* bytes) {
    while (Next()) {
      if (token_ != "[") return true;
      uint64_t count = 0;
      if (!Next()) break;
      if (token_ == "]") continue;  // of unknown size: one element
      if (!Number(token_, &count) || count > (1u << 30)) {
        Fail("bad array size");
        return false;
      }
      *bytes *= count;
      if (*bytes > (1ull << 34)) {
        Fail("array is too large");
        return false;
      }
      if (!Next() || token_ != "]") {
        Fail("expected ]");
        return false;
      }
    }
    Fail("unexpected end");
    return false;
  }

  void ReadGlobal() {
    PtxGlobal global;
    uint32_t alignment = 0;
    if (!ReadVariable(&global.name, &global.bytes, &alignment)) return;
    if (!ReadArray(&global.bytes)) return;
    while (token_ != ";") {
      if (token_ == "{") SkipBlock();
      if (!error_.empty()) return;
      if (!Next()) {
        Fail("expected ; after '" + global.name + "'");
        return;
      }
    }
    module_->globals.push_back(std::move(global));
  }

  void ReadEntry() {
    PtxEntry entry;
    if (!Next() || !IsWord(token_[0]) || token_[0] == '.') {
      Fail(".entry without a name");
      return;
    }
    entry.name = std::string(token_);
    if (!ReadCost(&entry.cost)) return;
    if (!Next()) {
      Fail("unexpected end after .entry");
      return;
    }
    if (token_ == "(") {
      if (!ReadParameters(&entry)) return;
      Next();
    }
    while (token_ != "{" && token_ != ";") {
      if (token_ == ".maxntid" || token_ == ".reqntid") {
        uint64_t threads = 1;
        do {
          uint32_t n = 0;
          if (!Next() || !Number(token_, &n) || n == 0 || n > 1024) {
            Fail("bad thread count");
            return;
          }
          threads *= n;
          if (!Next()) break;
        } while (token_ == ",");
        if (threads > 1024) {
          Fail("too many threads");
          return;
        }
        entry.max_threads = static_cast<uint32_t>(threads);
        continue;
      }
      if (!Next()) {
        Fail("entry '" + entry.name + "' has no body");
        return;
      }
    }
    if (token_ == "{") SkipBlock();
    if (!error_.empty()) return;
    if (entry.cost.kind == KernelCost::Kind::kParameter &&
        (entry.cost.parameter >= entry.parameters.size() ||
         entry.parameters[entry.cost.parameter].size != 8)) {
      Fail("cost=param:N names no parameter of 8 bytes of '" + entry.name + "'");
      return;
    }
    if (entry.cost.stamps.has_value() && (*entry.cost.stamps >= entry.parameters.size() ||
                                          entry.parameters[*entry.cost.stamps].size != 8)) {
      Fail("stamps=param:N names no parameter of 8 bytes of '" + entry.name + "'");
      return;
    }
    if (entry.cost.away && !entry.cost.stamps.has_value()) {
      Fail("away=yes is of stamps, which '" + entry.name + "' does not write");
      return;
    }
    for (const PtxEntry& other : module_->entries) {
      if (other.name == entry.name) {
        Fail("entry '" + entry.name + "' is defined twice");
        return;
      }
    }
    module_->entries.push_back(std::move(entry));
  }

  bool ReadParameters(PtxEntry* entry) {
    if (!Next()) {
      Fail("unexpected end");
      return false;
    }
    if (token_ == ")") return true;
    for (;;) {
      if (token_ != ".param") {
        Fail("expected .param");
        return false;
      }
      std::string name;
      uint64_t bytes = 0;
      uint32_t alignment = 1;
      if (!ReadVariable(&name, &bytes, &alignment) || !ReadArray(&bytes)) return false;
      const uint64_t offset = (entry->parameter_bytes + alignment - 1) / alignment * alignment;
      if (offset + bytes > 32764) {
        Fail("more than 32764 bytes of parameters");
        return false;
      }
      entry->parameters.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
      entry->parameter_bytes = static_cast<uint32_t>(offset + bytes);
      if (token_ == ")") return true;
      if (token_ != "," || !Next()) {
        Fail("expected , or )");
        return false;
      }
    }
  }

  // Reads the gpushare.sim line that stood before the entry.
  bool ReadCost(KernelCost* cost) {
    std::string_view text = pending_cost_;
    pending_cost_ = {};
    while (!text.empty()) {
      const size_t begin = text.find_first_not_of(" \t\r");
      if (begin == text.npos) break;
      text.remove_prefix(begin);
      const size_t end = text.find_first_of(" \t\r");
      const std::string_view item = text.substr(0, end);
      text = end == text.npos ? std::string_view() : text.substr(end);
      const size_t equals = item.find('=');
      const std::string_view key = item.substr(0, equals);
      std::string_view value = equals == item.npos ? std::string_view() : item.substr(equals + 1);
      bool ok = false;
      if (key == "cost" && value.substr(0, 6) == "param:") {
        cost->kind = KernelCost::Kind::kParameter;
        ok = Number(value.substr(6), &cost->parameter);
      } else if (key == "cost") {
        cost->kind = KernelCost::Kind::kFixed;
        if (value.size() > 5 && value.substr(value.size() - 5) == "/wave") {
          cost->kind = KernelCost::Kind::kPerWave;
          value.remove_suffix(5);
        }
        ok = ParseDuration(value, &cost->ns) && cost->ns <= 1'000'000'000'000;
      } else if (key == "stamps" && value.substr(0, 6) == "param:") {
        ok = Number(value.substr(6), &cost->stamps.emplace());
      } else if (key == "away") {
        ok = cost->away = value == "yes";
      } else if (key == "blocks_per_sm") {
        ok = Number(value, &cost->blocks_per_sm) && cost->blocks_per_sm >= 1 &&
             cost->blocks_per_sm <= 1024;
      }
      if (!ok) {
        line_ = pending_line_;
        Fail("bad gpushare.sim item '" + std::string(item) +
             "'; as in cost=14us, cost=10us/wave, cost=param:0, blocks_per_sm=1");
        return false;
      }
    }
    return true;
  }

  const std::string_view text_;
  DeviceModule* const module_;
  size_t at_ = 0;
  int line_ = 1;
  uint32_t vector_ = 1;
  std::string_view token_;
  std::string_view pending_cost_;
  int pending_line_ = 0;
  std::string error_;
};

}  // namespace

std::string ParsePtx(std::string_view text, DeviceModule* module) {
  return PtxReader(text, module).Read();
}

}  // namespace gpushare::sim
