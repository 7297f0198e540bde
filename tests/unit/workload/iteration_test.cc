// SPDX-License-Identifier: Apache-2.0
#include "workload/iteration.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

namespace gpushare::workload {
namespace {

// A trace in which each letter is a kernel, of 10, 20, 30 ... ns.
KernelTrace Trace(const std::string& letters) {
  KernelTrace trace("letters");
  int64_t at = 0;
  for (const char letter : letters)
    trace.Add(std::string(1, letter), Bound::kUnknown, 1, Nanos(10 * ++at));
  return trace;
}

std::string Letters(const KernelTrace& trace) {
  std::string letters;
  for (const TraceKernel& kernel : trace.kernels()) letters += trace.name_of(kernel);
  return letters;
}

std::string Found(const std::string& letters) {
  const absl::StatusOr<Iteration> one = LastIteration(Trace(letters));
  return one.ok() ? Letters(one->trace) : "";
}

TEST(LastIteration, IsWhatComesAgainAndAgainAtTheEnd) {
  EXPECT_EQ(Found("warmABCABCABC"), "ABC");
  EXPECT_EQ(Found("AAA"), "A");
  EXPECT_EQ(Found("xABABAB"), "AB");
  // Starts in the middle of an iteration, and has repeats within one.
  EXPECT_EQ(Found("CABBCABBCABBCABB"), "CABB");
  EXPECT_EQ(Found("BCABCABCA"), "BCA");
  // Each iteration ends with many equal kernels.
  EXPECT_EQ(Found("xABDDDDDABDDDDDABDDDDD"), "ABDDDDD");
  EXPECT_EQ(Found("ABDDDDD"), "D");
}

TEST(LastIteration, NotWhereItIsNot) {
  for (const char* letters : {"", "A", "AA", "ABAB", "ABCABCABCx", "abcdefgh"})
    EXPECT_EQ(Found(letters), "") << letters;
  const absl::Status status = LastIteration(Trace("ABAB")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "no sequence of kernels stands 3 times at the end of the 4 that were recorded");
}

TEST(LastIteration, TakesTheMedianOfAllRepeats) {
  // A at 10, 30, 50, 70, 90 and B at 20, 40, 60, 80, 100.
  const absl::StatusOr<Iteration> one = LastIteration(Trace("ABABABABAB"));
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->repeats, 5);
  EXPECT_EQ(one->trace.kernels()[0].duration, Nanos(50));
  EXPECT_EQ(one->trace.kernels()[1].duration, Nanos(60));
  EXPECT_EQ(one->trace.label(), "letters");
}

TEST(LastIteration, TellsKernelsApartByTheirFootprint) {
  KernelTrace trace;
  for (int i = 0; i < 12; ++i) trace.Add("k", Bound::kMemory, 1 + i % 4, Nanos(5));
  const absl::StatusOr<Iteration> one = LastIteration(trace);
  ASSERT_TRUE(one.ok());
  ASSERT_EQ(one->trace.kernels().size(), 4u);
  EXPECT_EQ(one->trace.kernels()[3].sms, 4);
  EXPECT_EQ(one->trace.kernels()[3].bound, Bound::kMemory);
}

// A slow reference that tries each length.
std::optional<std::string> Slowly(const std::string& letters) {
  std::optional<std::string> best;
  size_t furthest = 0;
  for (size_t period = 1; period * 3 <= letters.size(); ++period) {
    size_t same = period;
    while (same < letters.size() &&
           letters[letters.size() - 1 - same] == letters[letters.size() - 1 - same + period]) {
      ++same;
    }
    if (same < 3 * period || same <= furthest) continue;
    furthest = same;
    best = letters.substr(letters.size() - period);
  }
  return best;
}

TEST(LastIteration, AnySequence) {
  std::mt19937_64 random(1);
  int there = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string letters(random() % 12, 'a'), part(1 + random() % 6, 'a');
    for (char& letter : letters) letter = static_cast<char>('a' + random() % 3);
    for (char& letter : part) letter = static_cast<char>('a' + random() % 3);
    for (uint64_t repeat = random() % 5; repeat > 0; --repeat) letters += part;
    const std::optional<std::string> expected = Slowly(letters);
    ASSERT_EQ(Found(letters), expected.value_or("")) << letters;
    there += expected.has_value() ? 1 : 0;
  }
  EXPECT_GT(there, 5'000);
  EXPECT_LT(there, 19'000);
}

TEST(LastIteration, AMillionKernels) {
  KernelTrace trace;
  for (int64_t i = 0; i < kMaxTraceKernels; ++i)
    trace.Add(i % 1000 == 0 ? "a" : "b", Bound::kUnknown, 1, Nanos(1 + i % 7));
  const absl::StatusOr<Iteration> one = LastIteration(trace);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->trace.kernels().size(), 1000u);
  EXPECT_EQ(one->repeats, 1000);
}

}  // namespace
}  // namespace gpushare::workload
