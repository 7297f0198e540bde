// SPDX-License-Identifier: Apache-2.0
#include "sim/module/cubin.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpushare::sim {
namespace {

constexpr int kSuccess = 0, kInvalidImage = 200, kNoBinaryForGpu = 209;

// From NVIDIA's ELF files.
constexpr uint16_t kMachine = 190;  // EM_CUDA
constexpr uint8_t kNewAbi = 8;      // the flags have the architecture in their second byte
constexpr uint8_t kIsEntry = 0x10;  // bit of a symbol's st_other
// Attributes of a kernel, in its section .nv.info.NAME: a format, a code, and 16 bits, which in the last format are the size of
// the data that follows.
constexpr uint8_t kSized = 4;
constexpr uint8_t kMaxThreads = 0x05, kRequiredThreads = 0x10, kParameterInfo = 0x17;

constexpr uint64_t kMostOfASection = 256 << 20;
// The limit on names, attributes and initial values together: symbols may share them, so a small file can name much.
constexpr uint64_t kMostOfAModule = 256 << 20;
constexpr size_t kMostParameterBytes = 32764;

// Reads memory that may not be mapped. Reading through /proc/self/mem fails in that case instead of raising a signal. Where
// that is not mounted, memory is read directly.
class Image {
 public:
  explicit Image(const void* at)
      : at_(static_cast<const char*>(at)), memory_(open("/proc/self/mem", O_RDONLY | O_CLOEXEC)) {}
  ~Image() {
    if (memory_ >= 0) close(memory_);
  }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  bool Read(uint64_t offset, void* to, uint64_t bytes) const {
    const auto from = reinterpret_cast<uint64_t>(at_);
    if (offset > INT64_MAX - from || bytes > INT64_MAX - from - offset) return false;
    if (memory_ < 0) {
      std::memcpy(to, at_ + offset, bytes);
      return true;
    }
    return pread(memory_, to, bytes, static_cast<off_t>(from + offset)) ==
           static_cast<ssize_t>(bytes);
  }

 private:
  const char* const at_;
  const int memory_;
};

template <typename T>
std::vector<T> Elements(const std::string& bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  if (!elements.empty()) {
    std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(T));
  }
  return elements;
}

class CubinReader {
 public:
  CubinReader(const void* image, DeviceModule* module) : image_(image), module_(module) {}

  int Read(int major, int minor) {
    Elf64_Ehdr header;
    if (!image_.Read(0, &header, sizeof(header))) return kInvalidImage;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_machine != kMachine) {
      return kNoBinaryForGpu;
    }
    const uint32_t architecture = header.e_ident[EI_ABIVERSION] >= kNewAbi
                                      ? header.e_flags >> 8 & 0xff
                                      : header.e_flags & 0xff;
    // Machine code runs on its own compute capability and on later ones of the same generation.
    if (static_cast<int>(architecture / 10) != major ||
        static_cast<int>(architecture % 10) > minor) {
      return kNoBinaryForGpu;
    }
    return ReadSections(header) && ReadNames(header) && ReadSymbols() ? kSuccess : kInvalidImage;
  }

 private:
  bool Spend(uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  bool ReadSections(const Elf64_Ehdr& header) {
    if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0) return false;
    sections_.resize(header.e_shnum);
    return image_.Read(header.e_shoff, sections_.data(), sections_.size() * sizeof(Elf64_Shdr));
  }

  // The contents of a section. Empty if the section is invalid.
  std::optional<std::string> Contents(size_t index) const {
    if (index >= sections_.size()) return std::nullopt;
    const Elf64_Shdr& section = sections_[index];
    if (section.sh_type == SHT_NOBITS || section.sh_size > kMostOfASection) return std::nullopt;
    std::string bytes(section.sh_size, '\0');
    if (!image_.Read(section.sh_offset, bytes.data(), bytes.size())) return std::nullopt;
    return bytes;
  }

  static std::optional<std::string_view> Text(const std::string& strings, uint64_t at) {
    if (at >= strings.size()) return std::nullopt;
    const size_t end = strings.find('\0', at);
    if (end == std::string::npos) return std::nullopt;
    return std::string_view(strings).substr(at, end - at);
  }

  bool ReadNames(const Elf64_Ehdr& header) {
    const auto strings = Contents(header.e_shstrndx);
    if (!strings) return false;
    for (const Elf64_Shdr& section : sections_) {
      const auto name = Text(*strings, section.sh_name);
      if (!name || !Spend(name->size())) return false;
      names_.emplace_back(*name);
    }
    return true;
  }

  bool ReadSymbols() {
    const auto at = std::find_if(sections_.begin(), sections_.end(), [](const Elf64_Shdr& section) {
      return section.sh_type == SHT_SYMTAB;
    });
    if (at == sections_.end()) return false;
    const auto table = Contents(static_cast<size_t>(at - sections_.begin()));
    const auto strings = Contents(at->sh_link);
    if (!table || !strings) return false;
    for (const Elf64_Sym& symbol : Elements<Elf64_Sym>(*table)) {
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= sections_.size()) continue;
      const auto name = Text(*strings, symbol.st_name);
      if (!name || !Spend(name->size())) return false;
      const unsigned type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_FUNC && (symbol.st_other & kIsEntry) != 0) {
        if (!ReadEntry(std::string(*name))) return false;
      } else if (type == STT_OBJECT && IsVariable(names_[symbol.st_shndx])) {
        PtxGlobal global{.name = std::string(*name), .bytes = symbol.st_size};
        if (!ReadInitial(symbol, &global.initial)) return false;
        module_->globals.push_back(std::move(global));
      }
    }
    return true;
  }

  // The initial value of a variable, from its place in its section. A section without bytes is all 0.
  bool ReadInitial(const Elf64_Sym& symbol, std::string* initial) {
    const Elf64_Shdr& section = sections_[symbol.st_shndx];
    if (section.sh_type == SHT_NOBITS) return true;
    if (symbol.st_size > kMostOfASection || symbol.st_value > section.sh_size ||
        symbol.st_size > section.sh_size - symbol.st_value ||
        section.sh_offset > UINT64_MAX - symbol.st_value || !Spend(symbol.st_size)) {
      return false;
    }
    initial->resize(symbol.st_size);
    return image_.Read(section.sh_offset + symbol.st_value, initial->data(), initial->size());
  }

  // Whether the section has variables of the module, not ones internal to the compiler.
  static bool IsVariable(std::string_view section) {
    return section.substr(0, 10) == ".nv.global" || section == ".nv.constant3";
  }

  bool ReadEntry(const std::string& name) {
    PtxEntry entry;
    entry.name = name;
    const auto at = std::find(names_.begin(), names_.end(), ".nv.info." + name);
    if (at != names_.end()) {
      const auto info = Contents(static_cast<size_t>(at - names_.begin()));
      if (!info || !Spend(info->size()) || !ReadAttributes(*info, &entry)) return false;
    }
    module_->entries.push_back(std::move(entry));
    return true;
  }

  static bool ReadAttributes(const std::string& info, PtxEntry* entry) {
    struct Placed {
      uint16_t ordinal;
      KernelParameter parameter;
    };
    std::vector<Placed> placed;
    for (size_t at = 0; at < info.size();) {
      uint8_t format, code;
      uint16_t size;
      if (info.size() - at < 4) return false;
      std::memcpy(&format, &info[at], 1);
      std::memcpy(&code, &info[at + 1], 1);
      std::memcpy(&size, &info[at + 2], 2);
      at += 4;
      if (format != kSized) continue;
      if (info.size() - at < size) return false;
      const char* const value = info.data() + at;
      at += size;
      if (code == kParameterInfo) {
        if (size < 12) return false;
        uint16_t ordinal, offset;
        uint32_t how;
        std::memcpy(&ordinal, value + 4, 2);
        std::memcpy(&offset, value + 6, 2);
        std::memcpy(&how, value + 8, 4);
        const uint32_t bytes = how >> 18;
        if (offset + bytes > kMostParameterBytes) return false;
        placed.push_back({ordinal, {offset, bytes}});
        entry->parameter_bytes = std::max(entry->parameter_bytes, offset + bytes);
      } else if (code == kMaxThreads || code == kRequiredThreads) {
        uint32_t threads[3];
        if (size < sizeof(threads)) return false;
        std::memcpy(threads, value, sizeof(threads));
        uint64_t all = 1;
        for (const uint32_t each : threads) all = std::min<uint64_t>(all * each, 1024);
        if (all > 0) entry->max_threads = static_cast<uint32_t>(all);
      }
    }
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return a.ordinal < b.ordinal; });
    for (size_t i = 0; i < placed.size(); ++i) {
      if (placed[i].ordinal != i) return false;
      entry->parameters.push_back(placed[i].parameter);
    }
    return true;
  }

  const Image image_;
  DeviceModule* const module_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<std::string> names_;  // of the sections
  uint64_t left_ = kMostOfAModule;
};

}  // namespace

bool IsElf(const void* image) {
  const auto* const bytes = static_cast<const char*>(image);
  // Byte by byte, since text may end earlier.
  for (int i = 0; i < SELFMAG; ++i) {
    if (bytes[i] != ELFMAG[i]) return false;
  }
  return true;
}

int ReadCubin(const void* image, int compute_major, int compute_minor, DeviceModule* module) {
  return CubinReader(image, module).Read(compute_major, compute_minor);
}

}  // namespace gpushare::sim
