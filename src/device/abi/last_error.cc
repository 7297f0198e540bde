// SPDX-License-Identifier: Apache-2.0
#include "device/abi/last_error.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpushare::device {
namespace {

constexpr char kPayload[] = "gpushare/detail";
constexpr char kDriverPayload[] = "gpushare/driver-result";  // set by driver/errors.cc

struct LastError {
  char message[2048];
  gpushare_error_detail detail;
};

// The thread's error, allocated at its first failure. It is not itself thread-local, since a library loaded by dlopen() finds
// little room for thread-local variables (glibc has some 1600 bytes for all libraries).
thread_local LastError* last_error = nullptr;

LastError& OfThisThread() {
  if (last_error != nullptr) return *last_error;
  static pthread_key_t key;
  static const bool has_key = pthread_key_create(&key, [](void* error) {
                                last_error = nullptr;
                                std::free(error);
                              }) == 0;
  // Threads that find no memory share this error, and may see each other's.
  static LastError shared;
  void* const memory = has_key ? std::calloc(1, sizeof(LastError)) : nullptr;
  if (memory == nullptr || pthread_setspecific(key, memory) != 0) {
    std::free(memory);
    return *(last_error = &shared);
  }
  return *(last_error = static_cast<LastError*>(memory));
}

template <size_t n>
void Copy(const char* from, size_t size, char (&to)[n]) {
  const size_t length = std::min(size, n - 1);
  std::memcpy(to, from, length);
  to[length] = '\0';
}

}  // namespace

absl::Status WithDetail(absl::Status status, const Detail& detail) {
  status.SetPayload(
      kPayload, absl::Cord(absl::StrCat(detail.asked, "\n", detail.left, "\n", detail.total, "\n",
                                        detail.limit, "\n", detail.tenant)));
  return status;
}

gpushare_status SetLastError(const absl::Status& status) {
  if (status.ok()) return GPUSHARE_OK;
  LastError& error = OfThisThread();
  error.detail = {};
  Copy(status.message().data(), status.message().size(), error.message);
  if (const auto payload = status.GetPayload(kDriverPayload)) {
    int32_t result = 0;
    if (absl::SimpleAtoi(std::string(*payload), &result)) error.detail.driver_result = result;
  }
  if (const auto payload = status.GetPayload(kPayload)) {
    const std::vector<std::string> parts =
        absl::StrSplit(std::string(*payload), absl::MaxSplits('\n', 4));
    if (parts.size() == 5 && absl::SimpleAtoi(parts[0], &error.detail.asked) &&
        absl::SimpleAtoi(parts[1], &error.detail.left) &&
        absl::SimpleAtoi(parts[2], &error.detail.total)) {
      Copy(parts[3].data(), parts[3].size(), error.detail.limit);
      Copy(parts[4].data(), parts[4].size(), error.detail.tenant);
    }
  }
  return static_cast<gpushare_status>(status.code());
}

gpushare_status SetLastError(gpushare_status code, const char* message) {
  LastError& error = OfThisThread();
  error.detail = {};
  Copy(message, std::strlen(message), error.message);
  return code;
}

const char* LastMessage() { return last_error == nullptr ? "" : last_error->message; }
gpushare_error_detail LastDetail() {
  return last_error == nullptr ? gpushare_error_detail{} : last_error->detail;
}

}  // namespace gpushare::device
