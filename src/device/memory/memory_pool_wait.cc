// SPDX-License-Identifier: Apache-2.0
// Waiting for memory of a pool: for what comes free in it, for what streams come to, and for room in the quota.
#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "device/memory/memory_pool.h"
#include "device/memory/tell_behind.h"
#include "device/stream/poll.h"
#include "driver/relaxed_capture.h"

namespace gpushare::device {
namespace {

using pool::kNobody;
using pool::StreamId;

}  // namespace

bool MemoryPool::LiesWithStreams() const {
  const std::lock_guard lock(lock_);
  return !ends_.empty() || !blocks_.StreamsWithFree(kNobody).empty();
}

absl::StatusOr<driver::DevicePtr> MemoryPool::Wait(const VirtualDevice::Request& request,
                                                   StreamId stream) {
  const driver::RelaxedCapture relaxed(gpu_.driver());
  const auto waiter = std::make_shared<Waiter>();
  waiter->bytes = request.bytes;
  waiter->stream = stream;
  Want least;
  {
    const std::lock_guard lock(lock_);
    least = blocks_.LeastSegmentFor(request.bytes);
    waiters_.push_back(waiter);
    CountWaiters();
  }
  // Leaves the line, and tells what was handed over meanwhile.
  const auto leave = [&] {
    const std::lock_guard lock(lock_);
    waiters_.remove(waiter);
    CountWaiters();
    return waiter->got;
  };
  const Time began = gpu_.clock().Now();
  VirtualDevice::Asked asked{.place = waiter->ticket.get(), .began = began};
  // What has come through streams by now, or is idle elsewhere; the places in line are kept.
  const auto look = [&] {
    uint64_t free_bytes = 0, total = 0;
    device_.Memory(&free_bytes, &total);
    // The quota was made smaller, or nobody wants it, or it would be of no use.
    if (least.bytes > total || request.AskCalledOff(gpu_.clock().Now()) || device_.context_lost()) {
      static_cast<void>(device_.account().CallAway(waiter->ticket, gpu_.clock()));
    } else {
      // What is handed over needs no call of the driver.
      if (LiesWithStreams()) ServeWaiters(began);
      if (waiter->ticket->waits()) static_cast<void>(device_.MakeRoom(least.bytes, &asked));
      device_.account().Poll();
    }
    return gpu_.clock().Now() + kPoll;
  };
  driver::DevicePtr got = 0;
  bool charged = false;
  quota::Grant grant;
  try {
    // What was freed before the lines above did not see this waiter.
    ServeWaiters(began);
    grant = device_.account().ReserveBefore(least.bytes, gpu_.clock(), request.deadline,
                                            waiter->ticket, look);
    charged = grant.granted;
  } catch (...) {
    // A block that was handed over goes back to whoever is next.
    if (const driver::DevicePtr late = leave(); late != 0) static_cast<void>(Free(late, {}));
    if (charged) device_.account().Cancel(least.bytes);
    throw;
  }
  got = leave();
  absl::StatusOr<driver::DevicePtr> answer = got;
  if (got != 0) {
    if (charged) device_.account().Cancel(least.bytes);  // both came at once
  } else if (!charged) {
    VirtualDevice::Request late = request;
    late.bytes = least.bytes;
    if (!request.CalledOff()) device_.account().CountDenied();
    answer = device_.Refuse(late, grant.left);
  } else {
    const absl::StatusOr<driver::DevicePtr> base = device_.TakeReserved(least.bytes);
    answer = base.ok() ? Cut(*base, least, request.bytes, stream) : base;
  }
  // Those behind may fit. Who is done waits no longer for them.
  if (waiting_.load() != 0) {
    try {
      ServeWaiters(kNever);
    } catch (const std::bad_alloc&) {  // they look by themselves
    }
  }
  return answer;
}

void MemoryPool::ServeWaiters(Time began) {
  FindReached(kNobody);
  TellOfFreed();
  HandOver(began);
}

void MemoryPool::HandOver(Time began) {
  for (bool unserved = false; !unserved;) {
    std::shared_ptr<quota::Ticket> ticket;
    {
      const std::lock_guard lock(lock_);
      if (waiters_.empty()) return;
      Waiter& first = *waiters_.front();
      first.got = blocks_.AllocateAnywhere(first.bytes, first.stream);
      ticket = first.ticket;
      if (first.got == 0) {
        unserved = true;
      } else {
        waiters_.pop_front();
        CountWaiters();
      }
    }
    if (!unserved) static_cast<void>(device_.account().CallAway(ticket, gpu_.clock()));
  }
  // What is idle is worth more to the quota, where the first waits as well.
  GiveBackIdle(UINT64_MAX, /*waits=*/false, began);
}

// ---- What streams come to ----

bool MemoryPool::IsAwaited() const {
  return waiting_.load() != 0 || device_.account().is_awaited();
}

void MemoryPool::TellOfFreed() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(lock_);
    const std::vector<StreamId> ids = blocks_.StreamsWithFree(kNobody);
    streams.reserve(
        ids.size());  // the last reference to a stream must not go with the lock held: its end takes the lock
    for (const StreamId id : ids) {
      const auto told = told_.find(id);
      if (told != told_.end() && told->second.asked == blocks_.FreesOf(id)) continue;
      const auto at = streams_.find(id);
      if (at == streams_.end()) continue;
      if (std::shared_ptr<Stream> stream = at->second.lock()) streams.push_back(std::move(stream));
    }
  }
  for (const std::shared_ptr<Stream>& stream : streams) TellOfFreed(stream->id(), stream->native());
}

// Word comes once for what was freed until now. Whoever looks then needs not ask the driver, which would say that the
// stream has more to do.
void MemoryPool::TellOfFreed(StreamId id, driver::Stream native) try {
  uint64_t frees;
  std::shared_ptr<Told::Word> word;
  const Time now = gpu_.clock().Now();
  {
    const std::lock_guard lock(lock_);
    frees = blocks_.FreesOf(id);
    if (frees == 0) return;  // it has been forgotten
    auto at = told_.find(id);
    if (at != told_.end() && at->second.asked == frees) return;
    if (at == told_.end()) at = told_.try_emplace(id).first;
    at->second.asked = frees;
    word = at->second.word;
  }
  const ContextScope current(device_.site());
  const driver::RelaxedCapture relaxed(gpu_.driver());
  const bool comes =
      TellBehind(gpu_.driver(), native,
                 [frees, now, word = std::move(word), waiters = device_.account().AwaitedBy()] {
                   word->at.store(now);
                   word->frees.store(frees);
                   waiters.LookAgain();
                 });
  const std::lock_guard lock(lock_);
  const auto at = told_.find(id);
  if (at == told_.end() || at->second.asked != frees) return;
  at->second.mute = !comes;
  if (!comes) at->second.asked = 0;  // perhaps later
} catch (const std::bad_alloc&) {
  // Who waits finds out by asking.
}

std::vector<StreamId> MemoryPool::SparedSince(Time began) const {
  std::vector<StreamId> streams = blocks_.StreamsWithFree(kNobody);
  if (began == kNever) return streams;
  std::vector<StreamId> gone;
  for (const End& end : ends_) gone.push_back(end.stream);
  std::sort(gone.begin(), gone.end());
  std::erase_if(streams, [&](StreamId id) {
    if (std::binary_search(gone.begin(), gone.end(), id)) return false;
    if (const auto at = told_.find(id); at != told_.end()) {
      const Told::Word& word = *at->second.word;
      if (at->second.mute || word.frees.load() == blocks_.FreesOf(id) || word.at.load() >= began) {
        return true;
      }
    }
    if (id < pool::kFirstForeign) return streams_.find(id) == streams_.end();
    const auto at = foreign_.find(id);
    return at == foreign_.end() || at->second.stream == nullptr || !at->second.stream->marked();
  });
  return streams;
}

bool MemoryPool::FindReached(StreamId but) {
  struct Asked {
    StreamId id;
    uint64_t frees;
    std::shared_ptr<Stream> stream;
    std::shared_ptr<ForeignStream> foreign;  // one of the two
  };
  std::vector<Asked> asked;
  std::vector<End> ends;
  std::vector<std::shared_ptr<ForeignStream>> gone;  // they call the driver, without the lock
  bool changed = false;
  const auto let_go = [&](StreamId id) {
    changed = true;
    if (id < pool::kFirstForeign) return blocks_.Reached(id);
    // Whether it is still there nobody tells: it is known from its next free on.
    blocks_.Forget(id);
    told_.erase(id);
    const auto at = foreign_.find(id);
    if (at == foreign_.end() || at->second.marking != 0) return;
    gone.push_back(std::move(at->second.stream));
    foreign_.erase(at);
  };
  {
    const std::lock_guard lock(lock_);
    const std::vector<StreamId> ids = blocks_.StreamsWithFree(but);
    asked.reserve(ids.size());  // as in TellOfFreed()
    gone.reserve(ids.size());
    for (const StreamId id : ids) {
      const auto told = told_.find(id);
      if (told != told_.end() && told->second.word->frees.load() == blocks_.FreesOf(id)) {
        let_go(id);
        continue;
      }
      if (id >= pool::kFirstForeign) {
        const auto at = foreign_.find(id);
        if (at != foreign_.end() && at->second.stream != nullptr) {
          asked.push_back({id, blocks_.FreesOf(id), nullptr, at->second.stream});
        }
        continue;
      }
      const auto at = streams_.find(id);
      if (at == streams_.end()) continue;
      if (std::shared_ptr<Stream> stream = at->second.lock()) {
        asked.push_back({id, blocks_.FreesOf(id), std::move(stream), nullptr});
      }
    }
    ends = ends_;
  }
  if (asked.empty() && ends.empty() && gone.empty()) return changed;
  const ContextScope current(device_.site());
  const driver::RelaxedCapture relaxed(gpu_.driver());
  // What is left of them is over.
  std::erase_if(asked, [](const Asked& a) {
    return a.foreign != nullptr ? !a.foreign->Over() : !a.stream->Idle();
  });
  std::erase_if(ends, [](const End& end) { return !end.end->Over(); });
  const auto by_stream = [](const End& a, const End& b) { return a.stream < b.stream; };
  std::sort(ends.begin(), ends.end(), by_stream);
  {
    const std::lock_guard lock(lock_);
    for (const Asked& a : asked) {
      if (blocks_.FreesOf(a.id) == a.frees) let_go(a.id);  // else perhaps after more work
    }
    std::erase_if(ends_, [&](const End& end) {  // not those that another thread has found too
      if (!std::binary_search(ends.begin(), ends.end(), end, by_stream)) return false;
      blocks_.Forget(end.stream);
      told_.erase(end.stream);
      return changed = true;
    });
  }
  asked.clear();
  gone.clear();
  return changed;
}

void MemoryPool::ForgetForeign() {
  {
    const std::lock_guard lock(lock_);
    if (foreign_.size() <= most_foreign_) return;
    most_foreign_ = SIZE_MAX;  // one thread does it
  }
  std::vector<std::shared_ptr<ForeignStream>> gone;
  const auto forget = [&] {
    FindReached(kNobody);
    const std::lock_guard lock(lock_);
    gone.reserve(foreign_.size());
    for (auto at = foreign_.begin(); at != foreign_.end();) {
      const auto& [id, foreign] = *at;
      if (foreign.marking != 0 || blocks_.HasFree(id)) {
        ++at;
        continue;
      }
      blocks_.Forget(id);
      told_.erase(id);
      gone.push_back(std::move(at->second.stream));
      at = foreign_.erase(at);
    }
  };
  try {
    forget();
  } catch (const std::bad_alloc&) {
    // Another time.
  }
  {
    const std::lock_guard lock(lock_);
    most_foreign_ = std::max(kForeignKept, 2 * foreign_.size());
  }
  if (gone.empty()) return;
  const ContextScope current(device_.site());
  const driver::RelaxedCapture relaxed(gpu_.driver());
  gone.clear();
}

}  // namespace gpushare::device
