// SPDX-License-Identifier: Apache-2.0
#include "shim/share_log.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/host_fd.h"
#include "base/limit_variables.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace gpushare::shim {
namespace {

constexpr char kLog[] = "GPUSHARE_LOG", kOwnSpec[] = "GPUSHARE_SPEC",
               kMps[] = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

std::string Of(std::string_view key, std::string_view value, std::string_view variable) {
  return absl::StrCat("{\"key\":", JsonQuoted(key), ",\"value\":", JsonQuoted(value),
                      ",\"variable\":", JsonQuoted(variable), "}");
}

// Writing past the process's file size limit would end the program with a signal.
bool HasRoom(int fd, size_t size) {
  struct stat file {};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return false;
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
  return limit.rlim_cur == RLIM_INFINITY ||
         static_cast<rlim_t>(file.st_size) + size <= limit.rlim_cur;
}

void Append(const std::string& line) {
  const auto path = base::GetEnv(kLog);
  if (!path) return;
  const base::UniqueFd file = base::ClearOfStdio(base::UniqueFd(open(
      path->c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600)));
  if (!file || !HasRoom(file.get(), line.size())) return;
  // A full disk may cut the line short. There is nobody to report that to.
  static_cast<void>(!write(file.get(), line.data(), line.size()));
}

}  // namespace

std::string ShareLine(const LoggedShare& share) {
  const std::string own = base::GetEnv(kOwnSpec).value_or("");
  std::vector<base::Limit> used;
  const std::vector<base::Limit> others = base::FindLimits(share.ordinal);
  base::AddLimits(own, others, &used);
  std::string won, lost;
  const auto add = [](std::string* list, const std::string& what) {
    absl::StrAppend(list, list->empty() ? "" : ",", what);
  };
  if (!own.empty()) add(&won, Of("spec", own, kOwnSpec));
  for (const base::Limit& limit : others) {
    const bool counts = std::any_of(used.begin(), used.end(), [&](const base::Limit& each) {
      return each.variable == limit.variable;
    });
    add(counts ? &won : &lost, Of(limit.key, limit.value, limit.variable));
  }
  // Not a quota, but an upper bound on what can be guaranteed.
  if (const auto most = base::GetEnv(kMps)) add(&won, Of("memory_at_most", *most, kMps));
  return absl::StrCat(
      "{\"event\":\"share\",\"pid\":", getpid(), ",\"gpu\":", share.ordinal,
      ",\"memory\":", share.memory.has_value() ? absl::StrCat(*share.memory) : "null",
      share.broker.empty() ? "" : absl::StrCat(",\"broker\":", JsonQuoted(share.broker)),
      share.broker.empty() ? "" : absl::StrCat(",\"tenant\":", JsonQuoted(share.tenant)),
      ",\"limits\":[", won, "],\"overridden\":[", lost, "]}\n");
}

void LogShare(const LoggedShare& share) {
  if (base::GetEnv(kLog)) Append(ShareLine(share));
}

void LogRefusal(std::optional<int> ordinal, const std::string& why) {
  if (!base::GetEnv(kLog)) return;
  Append(absl::StrCat("{\"event\":\"refused\",\"pid\":", getpid(),
                      ",\"gpu\":", ordinal.has_value() ? absl::StrCat(*ordinal) : "null",
                      ",\"why\":", JsonQuoted(why), "}\n"));
}

}  // namespace gpushare::shim
