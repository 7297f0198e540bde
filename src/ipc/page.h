// SPDX-License-Identifier: Apache-2.0
// The two pages that a process and the broker share for each GPU.
//
// The broker writes LimitsPage and the process may only read it; the process writes UsagePage, of which the broker
// believes nothing that would give the process more than it was granted. Each is a memfd of its own that can be
// neither shrunk nor grown; the process's mapping of the first can never be made writable. Neither holds a lock, so
// whoever dies leaves nothing behind that another waits for.
//
//   broker:   GPUSHARE_ASSIGN_OR_RETURN(LimitsPages limits, NewLimitsPage());   // its mapping, and what to send
//   process:  GPUSHARE_ASSIGN_OR_RETURN(Mapped<const LimitsPage> limits, MapLimits(fd));
//
// Units: bytes; nanoseconds of device time, counted from the beginning of the session. Requests have numbers, which
// wrap: only whether they are equal says anything.
#ifndef GPUSHARE_IPC_PAGE_H_
#define GPUSHARE_IPC_PAGE_H_

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace gpushare::ipc {

inline constexpr uint32_t kLimitsMagic = 0x6c737067;  // "gpsl"
inline constexpr uint32_t kUsageMagic = 0x75737067;   // "gpsu"
inline constexpr uint32_t kPageVersion = 3;

// What the process is granted of one GPU.
struct LimitsPage {
  enum Flags : uint32_t {
    kClosed = 1,     // hand out no device time: somebody of a higher priority has the device
    kSuspended = 2,  // nor while the tenant is suspended, however long that takes
    kBypass = 4,     // of high priority: device time needs no grant, and is charged afterwards
    kDraining = 8,   // no new memory
    kInLine = 16,  // the broker knows that a grant is wanted: it need not be called again for that
    kBelow =
        32,  // somebody of a higher priority is on the GPU: little is to be in flight at a time
  };

  uint32_t magic = kLimitsMagic;
  uint32_t version = kPageVersion;

  // Bumped after every change of what is below; the process sleeps on it.
  alignas(64) std::atomic<uint32_t> wake{0};
  std::atomic<uint32_t> flags{0};
  // Bumped whenever the broker comes to what this process has called it for. Pages of before have it as 0.
  std::atomic<uint32_t> beat{0};

  // Device time granted so far, in all. What was granted and not returned is charged to the tenant.
  alignas(64) std::atomic<int64_t> time_granted_ns{0};
  std::atomic<int64_t> grant_ns{
      0};  // the latest grant; the next is asked for when half of it is left
  // Without a broker, by GPUSHARE_ON_BROKER_LOSS=open: this part of the device, for this process alone.
  std::atomic<uint32_t> guarantee_ppm{0};

  // Memory that this process may hold.
  alignas(64) std::atomic<uint64_t> memory_granted{0};
  std::atomic<uint32_t> memory_answered{0};  // UsagePage::memory_asked that was answered last
  // The broker would like the grant to be no more than `memory_recall_to`: number of that wish, 0: none was ever.
  std::atomic<uint32_t> memory_recall{0};
  std::atomic<uint64_t> memory_recall_to{0};
  // Of the tenant, for what programs see.
  std::atomic<uint64_t> memory_limit{0};   // UINT64_MAX: none
  std::atomic<uint64_t> memory_others{0};  // held by its other processes
  // What processes that have ended held and the driver may not have back yet: it is asked for like what is free, and the
  // answer comes when it is. Pages of before have it as 0.
  std::atomic<uint64_t> memory_reclaiming{0};

  // Copies to the device and from it: bytes granted so far, in all.
  alignas(64) std::atomic<uint64_t> copy_granted[2] = {};
  // Bytes a second that it may copy when there is no broker, its part of the tenant's limit; 0: copies have no limit.
  std::atomic<uint64_t> copy_rate[2] = {};
};

// What the process says of itself.
struct UsagePage {
  uint32_t magic = kUsageMagic;
  uint32_t version = kPageVersion;

  // Device time, in all so far.
  alignas(64) std::atomic<int64_t> time_used_ns{0};  // of commands that are done, as measured
  std::atomic<int64_t> time_returned_ns{0};          // granted, and given back
  std::atomic<int64_t> time_wanted_ns{
      0};  // now: what the next commands will take; 0: there are none
  std::atomic<int64_t> time_in_flight_ns{0};    // now: predicted, not known to be done
  std::atomic<uint64_t> launches{0}, waits{0};  // for `top` and metrics
  std::atomic<int64_t> throttled_ns{0};
  static constexpr int64_t kGuess = INT64_MAX;
  std::atomic<int64_t> time_ends_ns{
      0};  // when what is in flight is done, as predicted, by CLOCK_MONOTONIC; kGuess: nobody can say

  alignas(64) std::atomic<uint32_t> memory_asked{0};  // number of the latest request
  std::atomic<uint64_t> memory_wanted{0};             // the grant it asks for, in all
  std::atomic<uint32_t> memory_recalled{0};  // LimitsPage::memory_recall that was answered last
  std::atomic<uint64_t> memory_kept{0};      // what it has lowered its grant to then
  std::atomic<uint64_t> memory_charged{0}, memory_peak{0}, allocations_denied{0};
  // Of a session that ends while its process lives on: not 0 when it ended by itself, and then all that the process still
  // holds is `memory_left`. Pages of before have it as 0.
  std::atomic<uint32_t> ended{0};
  std::atomic<uint64_t> memory_left{0};

  // Copies: what the process would like to have been granted, in all. No more than was granted: nothing waits.
  alignas(64) std::atomic<uint64_t> copy_wanted[2] = {};
  // What it has used of what was granted, in all; of more its tenant owes the rest when it ends. Pages of before have
  // it as 0.
  std::atomic<uint64_t> copy_used[2] = {};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);
inline constexpr size_t kPageBytes = 4096;
static_assert(sizeof(LimitsPage) <= kPageBytes && sizeof(UsagePage) <= kPageBytes);

// A page in this process, until its owner's end. A forked child does not have it: its first look there would be its
// last, so whoever may be in one asks first.
template <typename Page>
class Mapped {
 public:
  Mapped() = default;
  explicit Mapped(Page* page) : page_(page) {}
  Mapped(Mapped&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  Mapped& operator=(Mapped&& other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~Mapped() {
    if (page_ != nullptr) munmap(const_cast<std::remove_const_t<Page>*>(page_), kPageBytes);
  }

  Page* get() const { return page_; }
  Page& operator*() const { return *page_; }
  Page* operator->() const { return page_; }
  explicit operator bool() const { return page_ != nullptr; }

 private:
  Page* page_ = nullptr;
};

// The broker's: its mapping, and the descriptor for the process. Unimplemented: the kernel is older than 5.1.
// ResourceExhausted: there is no descriptor or memory left.
template <typename Page>
struct NewPage {
  Mapped<Page> page;
  base::UniqueFd fd;
};
absl::StatusOr<NewPage<LimitsPage>> NewLimitsPage();
absl::StatusOr<NewPage<const UsagePage>> NewUsagePage();

// The process's, of descriptors that came from whoever answers at the broker's socket. InvalidArgument: what it is, and
// not a page that nobody can take away from under its reader.
absl::StatusOr<Mapped<const LimitsPage>> MapLimits(int fd);
absl::StatusOr<Mapped<UsagePage>> MapUsage(int fd);

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_PAGE_H_
