// SPDX-License-Identifier: Apache-2.0
// Runs the fuzzer of driver calls (tests/fuzz/books_fuzz.cc) on random bytes and on its corpus.
// GPUSHARE_PROPERTY_CASES=N sets the number of sequences; GPUSHARE_PROPERTY_SEED=S selects other ones.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gpushare::books {
namespace {

TEST(BooksSequence, TheBooksAreTheModelsAndTheDriversCountAfterEveryCall) {
  const char* const many = std::getenv("GPUSHARE_PROPERTY_CASES");
  const char* const seed = std::getenv("GPUSHARE_PROPERTY_SEED");
  const int sequences = many != nullptr ? std::atoi(many) : 120;
  std::mt19937 random(seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 7);
  for (int sequence = 0; sequence < sequences; ++sequence) {
    std::vector<uint8_t> bytes(random() % 600);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    EXPECT_EQ(0, LLVMFuzzerTestOneInput(bytes.data(), bytes.size()))
        << sequence;  // aborts on failure
  }
}

TEST(BooksSequence, TheCorpusHolds) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GPUSHARE_BOOKS_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    EXPECT_EQ(0, LLVMFuzzerTestOneInput(bytes.data(), bytes.size())) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace gpushare::books
