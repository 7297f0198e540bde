// SPDX-License-Identifier: Apache-2.0
// Runs the fuzzer of the C ABI (tests/fuzz/c_abi_fuzz.cc) on random bytes and on its corpus.
// GPUSHARE_PROPERTY_CASES=N sets the number of programs; GPUSHARE_PROPERTY_SEED=S selects other ones.
// GPUSHARE_FUZZ_KEEP=FILE keeps the input that is being run, for when it ends the process.
// GPUSHARE_FUZZ_CORPUS=FOLDER replaces the corpus.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/c_abi_fuzz.h"

namespace gpushare::fuzz {
namespace {

// Each function is a word of the table of exports. Words with another prefix are not functions of the header.
TEST(CAbiSequence, EveryFunctionOfTheAbiIsCalled) {
  std::ifstream exports(GPUSHARE_EXPORTS);
  std::vector<std::string> functions;
  for (std::string name; exports >> name;) {
    if (name.find("gpushare_shim_") == std::string::npos) functions.push_back(name);
  }
  EXPECT_THAT(FunctionsOfTheCAbi(), ::testing::UnorderedElementsAreArray(functions));
}

TEST(CAbiSequence, AnyProgramGetsAnAnswerAndLeavesNothing) {
  const char* const many = std::getenv("GPUSHARE_PROPERTY_CASES");
  const char* const seed = std::getenv("GPUSHARE_PROPERTY_SEED");
  const int programs = many != nullptr ? std::atoi(many) : 100;
  std::mt19937 random(seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 7);
  for (int program = 0; program < programs; ++program) {
    std::vector<uint8_t> bytes(random() % 1200);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (const char* const kept = std::getenv("GPUSHARE_FUZZ_KEEP")) {
      std::ofstream(kept, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
    EXPECT_EQ(0, LLVMFuzzerTestOneInput(bytes.data(), bytes.size()))
        << program;  // aborts on failure
  }
}

TEST(CAbiSequence, TheCorpusHolds) {
  int files = 0;
  const char* const other = std::getenv("GPUSHARE_FUZZ_CORPUS");
  for (const auto& entry :
       std::filesystem::directory_iterator(other != nullptr ? other : GPUSHARE_C_ABI_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    EXPECT_EQ(0, LLVMFuzzerTestOneInput(bytes.data(), bytes.size())) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace gpushare::fuzz
