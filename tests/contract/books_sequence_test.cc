// SPDX-License-Identifier: Apache-2.0
// The fuzzer of driver calls (tests/fuzz/books_fuzz.cc) on random bytes and on its corpus.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gpushare::books {
namespace {

TEST(BooksSequence, TheBooksAreTheModelsAndTheDriversCountAfterEveryCall) {
  std::mt19937 random(7);
  for (int sequence = 0; sequence < 120; ++sequence) {
    std::vector<uint8_t> bytes(random() % 600);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    EXPECT_EQ(0, LLVMFuzzerTestOneInput(bytes.data(), bytes.size())) << sequence;  // it aborts
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
