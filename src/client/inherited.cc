// SPDX-License-Identifier: Apache-2.0
#include "client/inherited.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace gpushare::client {
namespace {

constexpr int kNone = 0;  // entries hold a descriptor's number plus 1

struct Place {
  std::atomic<int> number{kNone};
  std::atomic<ino_t> inode{0};  // of the socket; no two have the same
};
constinit std::array<Place, 16> inherited{};

ino_t SocketAt(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode) ? file.st_ino : 0;
}

void CloseAll() {
  for (Place& place : inherited) {
    const int fd = place.number.exchange(kNone) - 1;
    const ino_t inode = place.inode.load();  // 0: no socket was there, or it is not known yet
    if (fd >= 0 && inode != 0 && SocketAt(fd) == inode) close(fd);
  }
}

}  // namespace

void CloseInChildren(int socket) {
  static const int registered = pthread_atfork(nullptr, nullptr, &CloseAll);
  if (registered != 0) return;
  for (Place& place : inherited) {
    int none = kNone;
    if (!place.number.compare_exchange_strong(none, socket + 1)) continue;
    place.inode.store(SocketAt(socket));
    return;
  }
}

void KeepInChildren(int socket) {
  for (Place& place : inherited) {
    int found = socket + 1;
    if (place.number.compare_exchange_strong(found, kNone)) return;
  }
}

}  // namespace gpushare::client
