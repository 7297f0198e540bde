// SPDX-License-Identifier: Apache-2.0
// A tenant's requests for device memory, and their results.
//
//   {sizes: 256MiB 64MiB, from: malloc async, keep: 8, every: 5ms}
#ifndef GPUSHARE_HARNESS_ALLOCATIONS_H_
#define GPUSHARE_HARNESS_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/time.h"
#include "yaml/reader.h"

namespace gpushare::harness {

// The call that a request uses: cuMemAlloc, cuMemAllocAsync from the default pool, cuMemAllocManaged, cuMemCreate with a
// mapping.
enum class MemoryFamily : uint8_t { kMalloc, kAsync, kManaged, kVirtual };
inline constexpr char kMemoryFamilies[] = "malloc|async|managed|virtual";  // in that order

// Requests at regular intervals, each with the next size and the next family. A tenant that holds `keep` allocations frees the
// oldest before it asks; one that is refused frees the oldest afterwards, like a program that makes room.
struct Allocations {
  std::vector<uint64_t> sizes = {};  // bytes; empty: no requests
  std::vector<MemoryFamily> families = {MemoryFamily::kMalloc};
  size_t keep = 1;
  Nanos every = Millis(10);
  bool empty() const { return sizes.empty(); }
  bool operator==(const Allocations&) const = default;
};

struct MemoryRequest {
  Nanos at;              // since the start
  uint64_t bytes, held;  // requested; the sum of the requests that it held before
  bool granted;
};

// Whether the request fits into the quota beside what the tenant holds.
bool FitsInto(uint64_t quota, const MemoryRequest& request);

inline constexpr Nanos kLeastBetweenRequests = Millis(1);

absl::Status ReadAllocations(const yaml::Reader& in, const yaml::Node& map,
                             const std::string& place, Allocations* out);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_ALLOCATIONS_H_
