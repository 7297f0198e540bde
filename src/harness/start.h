// SPDX-License-Identifier: Apache-2.0
// Processes that begin at one time: a page in a file that all of them map.
//
//   GPUSHARE_ASSIGN_OR_RETURN(StartLine line, StartLine::Open(path));
//   line.Ready(now);                                // once
//   while (!line.begins(parties).has_value()) wait a little;
//   const Time start = *line.begins(parties);       // the same in all
//
// The last one that is ready decides when they begin, so late that all have seen it by then.
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
  // How often one of so many looks whether all are ready: hundreds that did so every millisecond would hold each other up.
  static constexpr Nanos LookEvery(uint32_t parties) {
    return parties <= 64 ? Millis(1) : Millis(50);
  }

  // The file as it is to be before anybody opens it.
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
