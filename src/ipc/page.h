// SPDX-License-Identifier: Apache-2.0
// The two pages that a process and the broker share for each GPU.
//
// The broker writes LimitsPage, and the process may only read it. The process writes UsagePage; the broker never lets its
// content give the process more than it was granted. Each page is a memfd of its own whose size is sealed; the process can
// never map the first one writable. Neither page holds a lock, so a process that dies leaves nothing that others wait for.
//
//   broker:   GPUSHARE_ASSIGN_OR_RETURN(LimitsPages limits, NewLimitsPage());   // its mapping, and what to send
//   process:  GPUSHARE_ASSIGN_OR_RETURN(Mapped<const LimitsPage> limits, MapLimits(fd));
//
// Units: bytes; nanoseconds of device time since the session began. Request numbers wrap, so they are compared for equality
// only.
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

// What the process has been granted on one GPU.
struct LimitsPage {
  enum Flags : uint32_t {
    kClosed = 1,     // admit no work: a tenant of higher priority has the device
    kSuspended = 2,  // admit no work: the tenant is suspended, for as long as that lasts
    kBypass = 4,     // high priority: device time needs no grant and is charged afterwards
    kDraining = 8,   // no new memory
    kInLine = 16,    // the broker knows that a grant is wanted; the process need not ring again
    kBelow = 32,     // a tenant of higher priority is on the GPU: keep little work in flight
    kHeld = 64,      // the tenants below have their turn: admit no work, whatever the priority
  };

  uint32_t magic = kLimitsMagic;
  uint32_t version = kPageVersion;

  // Incremented after every change of the fields below; the process waits on this futex word.
  alignas(64) std::atomic<uint32_t> wake{0};
  std::atomic<uint32_t> flags{0};
  // Incremented whenever the broker handles a ring of this process. 0 from brokers that do not have the field.
  std::atomic<uint32_t> beat{0};

  // Device time granted since the session began. What was granted and not returned is charged to the tenant.
  alignas(64) std::atomic<int64_t> time_granted_ns{0};
  std::atomic<int64_t> grant_ns{
      0};  // size of the latest grant; the process asks for the next one when half of it is left
  // The part of the device that this process gives itself after the broker is lost (GPUSHARE_ON_BROKER_LOSS=open).
  std::atomic<uint32_t> guarantee_ppm{0};

  // Memory that this process may hold.
  alignas(64) std::atomic<uint64_t> memory_granted{0};
  std::atomic<uint32_t> memory_answered{0};  // the UsagePage::memory_asked that was answered last
  // Number of the broker's latest request to lower the grant to `memory_recall_to`; 0: there was none.
  std::atomic<uint32_t> memory_recall{0};
  std::atomic<uint64_t> memory_recall_to{0};
  // The tenant's figures, shown to the program as its device.
  std::atomic<uint64_t> memory_limit{0};   // UINT64_MAX: none
  std::atomic<uint64_t> memory_others{0};  // held by its other processes
  // Memory of ended processes that the driver may not have freed yet. It may be requested like free memory; the answer comes
  // once it is free. 0 from brokers that do not have the field.
  std::atomic<uint64_t> memory_reclaiming{0};

  // Bytes granted for copies to the device and from it, since the session began.
  alignas(64) std::atomic<uint64_t> copy_granted[2] = {};
  // Bytes per second that the process may copy after the broker is lost: its part of the tenant's limit. 0: no limit.
  std::atomic<uint64_t> copy_rate[2] = {};

  // Bytes that the process may give the device for copies in each direction, counted as UsagePage::link_given, while other
  // processes copy too. 0: no other process is there, or a broker that does not have the field; kLinkUnbound: none copies.
  static constexpr uint64_t kLinkUnbound = UINT64_MAX;
  alignas(64) std::atomic<uint64_t> link_granted[2] = {};
  // How many of them it may have in flight, where it copies in pieces. 0: as many as it does by itself, or a broker that does not
  // have the field.
  std::atomic<uint64_t> link_window[2] = {};
};

// What the process reports about itself.
struct UsagePage {
  uint32_t magic = kUsageMagic;
  uint32_t version = kPageVersion;

  // Device time since the session began.
  alignas(64) std::atomic<int64_t> time_used_ns{0};  // measured, of completed commands
  std::atomic<int64_t> time_returned_ns{0};          // granted and given back unused
  std::atomic<int64_t> time_wanted_ns{
      0};  // predicted time of the commands that wait now; 0: none wait
  std::atomic<int64_t> time_in_flight_ns{0};    // predicted time of the commands in flight now
  std::atomic<uint64_t> launches{0}, waits{0};  // for `top` and metrics
  std::atomic<int64_t> throttled_ns{0};
  static constexpr int64_t kGuess = INT64_MAX;
  std::atomic<int64_t> time_ends_ns{
      0};  // CLOCK_MONOTONIC time at which the commands in flight are predicted to end; kGuess: unknown

  alignas(64) std::atomic<uint32_t> memory_asked{0};  // number of the latest request
  std::atomic<uint64_t> memory_wanted{0};             // the total grant that it asks for
  std::atomic<uint32_t> memory_recalled{0};  // the LimitsPage::memory_recall that was answered last
  std::atomic<uint64_t> memory_kept{0};      // the grant to which it lowered itself in that answer
  std::atomic<uint64_t> memory_charged{0}, memory_peak{0}, allocations_denied{0};
  // For a session that ends while its process lives on. Nonzero if the process ended it: all that it still holds is then
  // `memory_left`. 0 from clients that do not have the field.
  std::atomic<uint32_t> ended{0};
  std::atomic<uint64_t> memory_left{0};

  // The total bytes of copies that the process wants granted. Not above LimitsPage::copy_granted: no copy waits.
  alignas(64) std::atomic<uint64_t> copy_wanted[2] = {};
  // The total bytes of copies made. If that exceeds the grant when the session ends, the tenant owes the rest. 0 from clients
  // that do not have the field.
  std::atomic<uint64_t> copy_used[2] = {};

  // When the last command that is known to be done was, as measured, by CLOCK_MONOTONIC. Pages of before have it as 0.
  std::atomic<int64_t> time_ended_ns{0};

  // Bytes of copies that were given to the device while other processes were there, and the part of them that is known to be
  // done; and the total that the process wants to give. Not above LimitsPage::link_granted: it asks for nothing.
  alignas(64) std::atomic<uint64_t> link_given[2] = {};
  std::atomic<uint64_t> link_done[2] = {};
  std::atomic<uint64_t> link_wanted[2] = {};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);
inline constexpr size_t kPageBytes = 4096;
static_assert(sizeof(LimitsPage) <= kPageBytes && sizeof(UsagePage) <= kPageBytes);

// A page mapped into this process for the owner's lifetime. A forked child does not inherit the mapping (MADV_DONTFORK), so an
// access there is a segmentation fault: code that may run in a child checks first.
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

// The broker's side: its mapping, and the descriptor to send. Unimplemented: the kernel is older than 5.1. ResourceExhausted: no
// descriptor or memory is left.
template <typename Page>
struct NewPage {
  Mapped<Page> page;
  base::UniqueFd fd;
};
absl::StatusOr<NewPage<LimitsPage>> NewLimitsPage();
absl::StatusOr<NewPage<const UsagePage>> NewUsagePage();

// The process's side: maps a descriptor that it received at the broker's socket. InvalidArgument: it is not a sealed page of
// the right size; another file could be truncated under its reader. The message says what it is.
absl::StatusOr<Mapped<const LimitsPage>> MapLimits(int fd);
absl::StatusOr<Mapped<UsagePage>> MapUsage(int fd);

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_PAGE_H_
