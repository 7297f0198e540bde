// SPDX-License-Identifier: Apache-2.0
// Lets several processes begin at the same time, through a page in a file that all of them map.
//
//   GPUSHARE_ASSIGN_OR_RETURN(StartLine line, StartLine::Open(path));
//   line.Ready(now);                                // once
//   while (!line.begins(parties).has_value()) wait a little;
//   const Time start = *line.begins(parties);       // the same in all
//
// The last process to become ready sets the start, late enough for all to see it before.
#ifndef GPUSHARE_HARNESS_START_H_
#define GPUSHARE_HARNESS_START_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace gpushare::harness {

class StartLine {
 public:
  static constexpr Nanos kAfterTheLast = Millis(20);
  // How often each of `parties` processes polls. Hundreds that polled every millisecond would slow each other down.
  static constexpr Nanos LookEvery(uint32_t parties) {
    return parties <= 64 ? Millis(1) : Millis(50);
  }

  // Creates the file; call it before any Open().
  static absl::Status Make(const std::string& path);
  static absl::StatusOr<StartLine> Open(const std::string& path);

  void Ready(Time now);
  std::optional<Time> begins(uint32_t parties) const;

 private:
  struct Page {
    std::atomic<int64_t> last_ns{0};
    std::atomic<uint32_t> ready{0};
  };
  explicit StartLine(std::shared_ptr<Page> page) : page_(std::move(page)) {}
  std::shared_ptr<Page> page_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_START_H_
