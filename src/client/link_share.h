// SPDX-License-Identifier: Apache-2.0
// What a process may give the device for copies in one direction while other processes copy too: the broker's grants, which come
// ahead of their use.
//
// Pure: time is passed in, no I/O, no locks.
#ifndef GPUSHARE_CLIENT_LINK_SHARE_H_
#define GPUSHARE_CLIENT_LINK_SHARE_H_

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "ipc/page.h"

namespace gpushare::client {

class LinkShare {
 public:
  // While nothing binds it the broker hears of it when it has copied so much, and not more often than that. While it is bound
  // the broker looks by itself, and hears of it only when a copy has waited for so long.
  static constexpr uint64_t kSayBytes = uint64_t{4} << 20;
  static constexpr Nanos kSay = Millis(5), kAskAgain = Millis(1);
  // Bytes that it asks for ahead; the broker grants less.
  static constexpr uint64_t kAhead = uint64_t{64} << 20;

  static bool Binds(uint64_t granted) {
    return granted != 0 && granted != ipc::LimitsPage::kLinkUnbound;
  }
  struct Answer {
    bool open = false;  // the bytes count as given
    bool ring = false;  // the broker should look
  };
  // `granted` is the page's value, any value of which must be handled. `force`: the bytes are given in any case.
  Answer Take(uint64_t bytes, uint64_t granted, bool force, Time now) {
    const bool bound = Binds(granted);
    const bool open = !bound || given_ < granted || force;
    if (open) given_ += bytes;
    wanted_ = bound ? given_ + kAhead : 0;
    if (bound && open) asked_at_ = now;
    const bool ring = bound ? now >= After(asked_at_, kAskAgain)
                            : given_ - said_ >= kSayBytes && now >= After(asked_at_, kSay);
    if (ring) {
      asked_at_ = now;
      said_ = given_;
    }
    return {.open = open, .ring = ring};
  }
  void Done(uint64_t bytes) { done_ += std::min(bytes, given_ - done_); }

  // For the usage page: bytes since the process began.
  uint64_t given() const { return given_; }
  uint64_t done() const { return done_; }
  uint64_t wanted() const { return wanted_; }

 private:
  uint64_t given_ = 0, done_ = 0, wanted_ = 0, said_ = 0;
  Time asked_at_{};
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_LINK_SHARE_H_
