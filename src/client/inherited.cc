// SPDX-License-Identifier: Apache-2.0
#include "client/inherited.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace gpushare::client {
namespace {

constexpr int kNone = 0;  // entries hold a descriptor's number plus 1

constinit std::array<std::atomic<int>, 16> inherited{};

void CloseAll() {
  for (std::atomic<int>& place : inherited) {
    const int fd = place.exchange(kNone) - 1;
    if (fd >= 0) close(fd);
  }
}

}  // namespace

void CloseInChildren(int fd) {
  static const int registered = pthread_atfork(nullptr, nullptr, &CloseAll);
  if (registered != 0) return;
  for (std::atomic<int>& place : inherited) {
    int none = kNone;
    if (place.compare_exchange_strong(none, fd + 1)) return;
  }
}

void KeepInChildren(int fd) {
  for (std::atomic<int>& place : inherited) {
    int found = fd + 1;
    if (place.compare_exchange_strong(found, kNone)) return;
  }
}

}  // namespace gpushare::client
