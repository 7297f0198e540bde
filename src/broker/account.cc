// SPDX-License-Identifier: Apache-2.0
#include "broker/account.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace gpushare::broker {
namespace {

constexpr size_t kMostRecord = 1 << 20;

// `find` is getpwnam_r() or getgrnam_r(); `id` is the wanted member of its record.
template <typename Record, typename Id>
absl::StatusOr<uint32_t> Find(const std::string& name, const char* what,
                              int (*find)(const char*, Record*, char*, size_t, Record**), Id id) {
  const bool number = !name.empty() && std::all_of(name.begin(), name.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  if (number) {
    uint32_t value = 0;
    // The largest number means no id.
    if (absl::SimpleAtoi(name, &value) && value != UINT32_MAX) return value;
    return absl::InvalidArgumentError("allowed: 0 to 4294967294");
  }
  const bool is_text = !HasZeroByte(name);
  for (size_t size = 1024; is_text && size <= kMostRecord; size *= 4) {
    std::vector<char> text(size);
    Record record;
    Record* found = nullptr;
    const int error = find(name.c_str(), &record, text.data(), text.size(), &found);
    if (error == ERANGE) continue;
    if (found != nullptr) return id(record);
    break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "this machine knows no ", what, " of that name; allowed: one that it knows, or a number"));
}

}  // namespace

absl::StatusOr<uint32_t> UserId(const std::string& name) {
  return Find<passwd>(name, "user", getpwnam_r, [](const passwd& user) { return user.pw_uid; });
}

absl::StatusOr<uint32_t> GroupId(const std::string& name) {
  return Find<group>(name, "group", getgrnam_r, [](const group& each) { return each.gr_gid; });
}

}  // namespace gpushare::broker
