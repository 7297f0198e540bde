// SPDX-License-Identifier: Apache-2.0
// Cubins: the kernels in a compiled module's ELF file, and files that are corrupted in every place.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

// Builds a file like those of nvJitLink and ptxas, with the parts that matter here.
class CubinBuilder {
 public:
  CubinBuilder& Architecture(uint8_t sm) {
    sm_ = sm;
    return *this;
  }
  CubinBuilder& OldAbi() {
    abi_ = 7;
    return *this;
  }
  CubinBuilder& Machine(uint16_t machine) {
    machine_ = machine;
    return *this;
  }
  // Adds a kernel with parameters of these sizes in sequence, each aligned to its size.
  CubinBuilder& Entry(const std::string& name, const std::vector<uint16_t>& sizes,
                      uint32_t max_threads = 0) {
    std::string info = {0x03, 0x1b, '\xff', 0};  // an attribute without a value
    uint16_t offset = 0;
    std::vector<uint16_t> offsets;
    for (const uint16_t size : sizes) {
      offset = static_cast<uint16_t>((offset + size - 1) / size * size);
      offsets.push_back(offset);
      offset = static_cast<uint16_t>(offset + size);
    }
    for (size_t i = sizes.size(); i-- > 0;) {  // the last one first, like the real tools
      Put(&info, uint32_t{0x000c1704});
      Put(&info, uint32_t{0});
      Put(&info, static_cast<uint16_t>(i));
      Put(&info, offsets[i]);
      Put(&info, uint32_t{sizes[i]} << 18 | 0x1f000);
    }
    if (max_threads != 0) {
      Put(&info, uint32_t{0x000c0504});
      Put(&info, max_threads);
      Put(&info, uint32_t{1});
      Put(&info, uint32_t{1});
    }
    Section(".nv.info." + name, SHT_LOPROC, info);
    Section(".text." + name, SHT_PROGBITS, std::string(128, '\x5a'));
    Symbol(name, STT_FUNC, 0x10, 128);
    return *this;
  }
  CubinBuilder& Function(const std::string& name) {
    Section(".text." + name, SHT_PROGBITS, std::string(16, '\x5a'));
    Symbol(name, STT_FUNC, 0, 16);
    return *this;
  }
  CubinBuilder& Variable(const std::string& name, uint64_t bytes) {
    Section(".nv.global", SHT_NOBITS, "");
    Symbol(name, STT_OBJECT, 0, bytes);
    return *this;
  }
  // Adds a variable that begins with `initial`, behind others in its section.
  CubinBuilder& Variable(const std::string& name, const std::string& initial) {
    const uint64_t before = 24;
    Section(".nv.global.init", SHT_PROGBITS, std::string(before, '\x5a') + initial);
    Symbol(name, STT_OBJECT, 0, initial.size());
    symbols_.back().st_value = before;
    return *this;
  }
  // Repeats the last symbol `count` times.
  CubinBuilder& Times(size_t count) {
    const Elf64_Sym last = symbols_.back();
    symbols_.resize(symbols_.size() + count - 1, last);
    return *this;
  }
  std::string Build() {
    Section(".strtab", SHT_STRTAB, strings_);
    const size_t strings = sections_.size() - 1;
    std::string table(sizeof(Elf64_Sym), '\0');
    for (const Elf64_Sym& symbol : symbols_) Put(&table, symbol);
    Section(".symtab", SHT_SYMTAB, table);
    sections_.back().header.sh_link = static_cast<uint32_t>(strings);
    sections_.back().header.sh_entsize = sizeof(Elf64_Sym);
    Section(".shstrtab", SHT_STRTAB, "");
    sections_.back().bytes = names_;

    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = 1;
    header.e_ident[EI_OSABI] = abi_ == 8 ? 0x41 : 0x33;
    header.e_ident[EI_ABIVERSION] = abi_;
    header.e_machine = machine_;
    header.e_flags = abi_ == 8 ? uint32_t{sm_} << 8 | 0x0600'0004 : uint32_t{sm_} | 0x0050'0500;
    header.e_ehsize = sizeof(header);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(sections_.size());
    header.e_shstrndx = static_cast<uint16_t>(sections_.size() - 1);
    std::string file(sizeof(header), '\0');
    for (Part& part : sections_) {
      part.header.sh_offset = file.size();
      if (part.header.sh_type != SHT_NOBITS) part.header.sh_size = part.bytes.size();
      file += part.bytes;
    }
    header.e_shoff = file.size();
    for (const Part& part : sections_) Put(&file, part.header);
    std::memcpy(file.data(), &header, sizeof(header));
    return file;
  }

 private:
  struct Part {
    Elf64_Shdr header{};
    std::string bytes;
  };
  template <typename T>
  static void Put(std::string* to, const T& value) {
    to->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static uint32_t Add(std::string* strings, const std::string& text) {
    const auto at = static_cast<uint32_t>(strings->size());
    *strings += text + '\0';
    return at;
  }
  void Section(const std::string& name, uint32_t type, const std::string& bytes) {
    Part& part = sections_.emplace_back();
    part.header.sh_name = Add(&names_, name);
    part.header.sh_type = type;
    part.bytes = bytes;
  }
  void Symbol(const std::string& name, unsigned type, unsigned char other, uint64_t size) {
    Elf64_Sym symbol{};
    symbol.st_name = Add(&strings_, name);
    symbol.st_info = static_cast<unsigned char>(ELF64_ST_INFO(STB_GLOBAL, type));
    symbol.st_other = other;
    symbol.st_shndx = static_cast<uint16_t>(sections_.size() - 1);
    symbol.st_size = size;
    symbols_.push_back(symbol);
  }

  uint8_t sm_ = 90, abi_ = 8;
  uint16_t machine_ = 190;
  std::vector<Part> sections_{1};
  std::vector<Elf64_Sym> symbols_;
  std::string names_ = std::string(1, '\0'), strings_ = names_;
};

CubinBuilder Usual() {
  return CubinBuilder()
      .Function("inner")
      .Entry("first", {8, 4, 8}, 256)
      .Variable("table", 4096)
      .Variable("begins", std::string("initial"))
      .Entry("second", {});
}

// A copy of a file that ends at an inaccessible page.
class AtTheEnd {
 public:
  explicit AtTheEnd(const std::string& bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = (bytes.size() / page + 2) * page;
    at_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(static_cast<char*>(at_) + size_ - page, page);
    begin_ = static_cast<char*>(at_) + size_ - page - bytes.size();
    std::memcpy(begin_, bytes.data(), bytes.size());
  }
  ~AtTheEnd() { munmap(at_, size_); }
  const void* get() const { return begin_; }

 private:
  void* at_;
  char* begin_;
  size_t size_;
};

class CubinTest : public SimTest {
 protected:
  static CUresult Load(const std::string& file) {
    const AtTheEnd image(file);
    CUmodule module = nullptr;
    const CUresult result = cuModuleLoadData(&module, image.get());
    if (result == CUDA_SUCCESS) {
      EXPECT_CU(cuModuleUnload(module));
    }
    return result;
  }
};

TEST_F(CubinTest, ItsKernelsAreLaunchedAndItsVariablesAreThere) {
  const std::string file = Usual().Build();
  CUmodule module = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, file.data()));
  unsigned count = 0;
  EXPECT_CU(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, 2u);
  CUfunction first = nullptr, inner = nullptr;
  ASSERT_CU(cuModuleGetFunction(&first, module, "first"));
  EXPECT_EQ(cuModuleGetFunction(&inner, module, "inner"), CUDA_ERROR_NOT_FOUND);
  const size_t places[][2] = {{0, 8}, {8, 4}, {16, 8}};
  for (size_t i = 0; i < 3; ++i) {
    size_t offset = 0, size = 0;
    EXPECT_CU(cuFuncGetParamInfo(first, i, &offset, &size));
    EXPECT_EQ(offset, places[i][0]);
    EXPECT_EQ(size, places[i][1]);
  }
  size_t offset = 0;
  EXPECT_EQ(cuFuncGetParamInfo(first, 3, &offset, nullptr), CUDA_ERROR_INVALID_VALUE);
  int threads = 0;
  EXPECT_CU(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, first));
  EXPECT_EQ(threads, 256);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  EXPECT_CU(cuModuleGetGlobal(&address, &bytes, module, "table"));
  EXPECT_EQ(bytes, 4096u);
  // Costs as much as a PTX kernel that does not declare its cost.
  uint64_t value = 0;
  void* given[] = {&value, &value, &value};
  const CUstream s = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuLaunchKernel(first, 100, 1, 1, 32, 1, 1, 0, s, given, nullptr));
  EXPECT_EQ(DoneAt(s, start), 5000u);
}

// Run-time libraries query them to find out how to launch a kernel.
TEST_F(CubinTest, VariablesBeginWithTheirValues) {
  const std::string file = Usual().Build();
  for (int i = 0; i < 2; ++i) {  // the second copy is loaded after the first was written to
    CUmodule module = nullptr;
    ASSERT_CU(cuModuleLoadData(&module, file.data()));
    CUdeviceptr begins = 0, table = 0;
    size_t bytes = 0;
    ASSERT_CU(cuModuleGetGlobal(&begins, &bytes, module, "begins"));
    ASSERT_EQ(bytes, 7u);
    char value[8] = {}, there[4096];
    EXPECT_CU(cuMemcpyDtoH(value, begins, bytes));
    EXPECT_STREQ(value, "initial");
    ASSERT_CU(cuModuleGetGlobal(&table, &bytes, module, "table"));
    EXPECT_CU(cuMemcpyDtoH(there, table, bytes));
    EXPECT_EQ(std::string_view(there, bytes).find_first_not_of('\0'), std::string_view::npos);
    EXPECT_CU(cuMemsetD8(begins, 1, 7));
    EXPECT_CU(cuMemsetD8(table, 1, 4096));
    EXPECT_CU(cuCtxSynchronize());
    EXPECT_CU(cuModuleUnload(module));
  }
}

TEST_F(CubinTest, AVariableBeyondItsSectionIsRefused) {
  const std::string good = CubinBuilder().Variable("v", std::string("initial")).Build();
  EXPECT_CU(Load(good));
  // The only entry of the symbol table has the value 24 and the size 7.
  const std::string place = {24, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0};
  const size_t at = good.find(place);
  ASSERT_NE(at, std::string::npos);
  for (const size_t word : {at, at + 8}) {
    for (const int byte : {0x20, 0xff}) {
      std::string bad = good;
      bad[word] = static_cast<char>(byte);
      EXPECT_EQ(Load(bad), CUDA_ERROR_INVALID_IMAGE) << word;
      bad[word + 7] = static_cast<char>(byte);
      EXPECT_EQ(Load(bad), CUDA_ERROR_INVALID_IMAGE) << word;
    }
  }
}

// A file may refer to the same data many times; the memory that loading takes is bounded nevertheless.
TEST_F(CubinTest, SymbolsThatShareWhatTheyNameAreBounded) {
  const std::string initial(4 << 20, 'i'), name(1 << 20, 'n');
  EXPECT_CU(Load(CubinBuilder().Variable("v", initial).Times(4).Build()));
  EXPECT_EQ(Load(CubinBuilder().Variable("v", initial).Times(65).Build()),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_CU(Load(CubinBuilder().Variable(name, 8).Times(4).Build()));
  EXPECT_EQ(Load(CubinBuilder().Variable(name, 8).Times(257).Build()), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(Load(CubinBuilder().Function(name).Times(257).Build()), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(CubinTest, IsForItsOwnArchitecture) {
  EXPECT_CU(Load(CubinBuilder().Entry("k", {}).Build()));
  EXPECT_CU(Load(CubinBuilder().OldAbi().Entry("k", {}).Build()));
  for (const uint8_t sm : std::initializer_list<uint8_t>{70, 80, 89, 91, 100, 120}) {
    EXPECT_EQ(Load(CubinBuilder().Architecture(sm).Entry("k", {}).Build()),
              CUDA_ERROR_NO_BINARY_FOR_GPU)
        << int{sm};
    EXPECT_EQ(Load(CubinBuilder().OldAbi().Architecture(sm).Entry("k", {}).Build()),
              CUDA_ERROR_NO_BINARY_FOR_GPU)
        << int{sm};
  }
  EXPECT_EQ(Load(CubinBuilder().Machine(EM_X86_64).Entry("k", {}).Build()),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_F(CubinTest, EveryPrefixIsRefused) {
  const std::string file = Usual().Build();
  for (size_t length = 4; length < file.size(); ++length) {
    const CUresult result = Load(file.substr(0, length));
    EXPECT_EQ(result, CUDA_ERROR_INVALID_IMAGE) << length;
  }
}

// Whatever a word of the file contains, the result is one of these, and a rejected file leaves nothing behind.
TEST_F(CubinTest, NonsenseInAnyPlaceIsSurvived) {
  const std::string good = Usual().Build();
  const uint64_t before = gpushare_sim_memory_used(0);
  std::mt19937_64 random(5);
  for (int i = 0; i < 4000; ++i) {
    std::string file = good;
    for (uint64_t words = 1 + random() % 3; words > 0; --words) {
      const size_t at = 4 + random() % (file.size() - 8);
      const uint64_t value = random() % 4 == 0 ? UINT64_MAX : random() >> (random() % 64);
      std::memcpy(&file[at], &value, 1 + random() % 4);
    }
    const CUresult result = Load(file);
    EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_IMAGE ||
                result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_OUT_OF_MEMORY)
        << result;
  }
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

TEST_F(CubinTest, ParametersThatCannotBeAreRefused) {
  // A parameter that occurs twice, and one beyond the kernel's parameter space.
  std::string twice = CubinBuilder().Entry("k", {8, 8}).Build();
  const std::string mark = {4, 0x17, 12, 0};
  const size_t at = twice.find(mark);
  ASSERT_NE(at, std::string::npos);
  std::string far = twice;
  twice[at + 8] = 0;
  EXPECT_EQ(Load(twice), CUDA_ERROR_INVALID_IMAGE);
  far[at + 11] = '\xff';
  EXPECT_EQ(Load(far), CUDA_ERROR_INVALID_IMAGE);
}

}  // namespace
}  // namespace gpushare::sim_test
