// SPDX-License-Identifier: Apache-2.0
// Limits how many lines of the log a user can cause by what its processes do: a burst, and then one each kEvery. Anybody who may
// connect may come, be refused and leave as often as it likes, and must neither fill a disk nor push the lines about others out of
// a log that has a bound.
//
//   if (const std::optional<uint64_t> left_out = limit.Take(uid, now)) ...   // write it, and that so many were left out
//
// Pure: time is passed in.
#ifndef GPUSHARE_BROKER_LINE_LIMIT_H_
#define GPUSHARE_BROKER_LINE_LIMIT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/time.h"

namespace gpushare::broker {

class LineLimit {
 public:
  static constexpr int64_t kBurst = 2000;  // some hundred processes that begin and end at once
  static constexpr Nanos kEvery = Millis(100);
  // Of more users, those are forgotten who have all of their lines again.
  static constexpr size_t kMostUsers = 1024;

  // nullopt: the line is left out. Otherwise how many lines of the user were left out since its last.
  std::optional<uint64_t> Take(uint32_t uid, Time now) {
    if (users_.size() >= forget_at_) {
      std::erase_if(users_, [now](const auto& each) { return IsWhole(each.second, now); });
      // Not at each line, if they are many.
      forget_at_ = std::max(kMostUsers, 2 * users_.size());
    }
    User& user = users_.try_emplace(uid, User{.since = now}).first->second;
    const int64_t back = (now - user.since) / kEvery;
    user.since += back * kEvery;
    user.left = std::min(kBurst, user.left + back);
    if (user.left == 0) {
      ++user.left_out;
      return std::nullopt;
    }
    --user.left;
    return std::exchange(user.left_out, 0);
  }
  size_t users() const { return users_.size(); }

 private:
  struct User {
    Time since{};  // when it last got a line back
    int64_t left = kBurst;
    uint64_t left_out = 0;
  };
  static bool IsWhole(const User& user, Time now) {
    return user.left_out == 0 && user.left + (now - user.since) / kEvery >= kBurst;
  }

  std::map<uint32_t, User> users_;
  size_t forget_at_ = kMostUsers;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_LINE_LIMIT_H_
