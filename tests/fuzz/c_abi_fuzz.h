// SPDX-License-Identifier: Apache-2.0
// Called by libFuzzer and by tests/unit/device/c_abi_sequence_test.cc.
#ifndef GPUSHARE_TESTS_FUZZ_C_ABI_FUZZ_H_
#define GPUSHARE_TESTS_FUZZ_C_ABI_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gpushare::fuzz {

// The names of the functions that the fuzzer calls.
std::vector<std::string> FunctionsOfTheCAbi();

}  // namespace gpushare::fuzz

#endif  // GPUSHARE_TESTS_FUZZ_C_ABI_FUZZ_H_
