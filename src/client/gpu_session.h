// SPDX-License-Identifier: Apache-2.0
// What a process has of one GPU through the broker: its engine's device time, and where its account's memory comes from.
//
// All of it goes over the two pages of ipc/page.h. Nothing that stands on the limits page is believed to make sense: the
// worst that a broker can do is to grant nothing.
//
//   GPUSHARE_ASSIGN_OR_RETURN(auto gpu, session->OpenGpu(uuid, memory, sm_count));
//   options.supply = gpu;                                  // gate::EngineOptions
//   gpu->SetOnTime([engine] { engine->Supplied(); });
//   account->SetSource(gpu);
//   gpu->SetAccount(account);
//
// Locks: lock_ is for what is read from the pages and written to them, and nothing is called with it; limiting_ for
// changes of the account's limit; asking_ for the one conversation about memory, which waits for the broker. They are
// taken in the order asking_, limiting_, lock_.
//
// In a forked child every call answers no.
//
// Threading: thread-safe.
#ifndef GPUSHARE_CLIENT_GPU_SESSION_H_
#define GPUSHARE_CLIENT_GPU_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/time.h"
#include "client/fork_mark.h"
#include "client/time_share.h"
#include "gate/supply.h"
#include "ipc/doorbell.h"
#include "ipc/page.h"
#include "quota/ledger.h"
#include "quota/source.h"
#include "quota/spin_lock.h"

namespace gpushare::client {

// What one session with the broker has of a GPU. Another session's are others.
struct Pages {
  ipc::Mapped<const ipc::LimitsPage> limits;
  ipc::Mapped<ipc::UsagePage> usage;
  ipc::Doorbell bell;
};

class GpuSession final : public gate::Supply, public quota::Source {
 public:
  // How long an answer about memory may take.
  static constexpr Nanos kLongestAnswer = Millis(500);
  // How often the usage page is brought up to date while something changes.
  static constexpr Nanos kPublishEvery = Millis(20);

  // `device_memory`: of the GPU, as promised.
  GpuSession(base::Clock& clock, std::shared_ptr<const ForkMark> fork_mark, uint64_t device_memory,
             std::shared_ptr<const Pages> pages, std::string spec);
  ~GpuSession() override;
  GpuSession(const GpuSession&) = delete;
  GpuSession& operator=(const GpuSession&) = delete;

  // The share that was in force when it was opened.
  const std::string& spec() const { return spec_; }

  Answer Tell(const Report& report, Time now) override;

  // A deadline that has passed: it asks, and does not wait; the answer raises the limit when it comes.
  bool GetRoom(quota::Account& account, uint64_t bytes, Time deadline) override;
  uint64_t Limit() const override;
  uint64_t Left() const override;

  // The account that the memory is charged to, which gets the limit that is granted; null before its end.
  void SetAccount(quota::Account* account);
  // Called without a lock when there may be more time than before, or less. When this returns, what it replaces runs no
  // more.
  void SetOnTime(std::function<void()> on_time);
  // What the gates have counted, for those who look at the broker's figures.
  struct Figures {
    uint64_t launches = 0, waits = 0;
    Nanos throttled{0};
    bool operator==(const Figures&) const = default;
  };
  void SetFigures(std::function<Figures()> figures);

  // ---- The service thread's. Acts on what has changed; by when it wants to look again.
  Time Look(Time now);
  // Until the broker has changed something, or Nudge(), or `deadline`.
  void Await(Time deadline);
  void Nudge();
  // The broker has gone, and the process goes on at its guarantee or not at all. It is there again: asks it for what is
  // charged now.
  void Lose(bool goes_on);
  void Resume(std::shared_ptr<const Pages> pages);

 private:
  // Of the page, as read once.
  static TimeShare::Limits ReadLimits(const ipc::LimitsPage& page);
  std::shared_ptr<const Pages> pages() const;
  uint64_t Charged();
  uint64_t InChunks(uint64_t needed, uint64_t limit) const;
  bool Ask(uint64_t charged, uint64_t wanted, Time until);
  void TakeAnswer();
  void LowerToPage();
  void AnswerRecall();
  bool Publish();
  void CallOnTime();

  base::Clock& clock_;
  const std::shared_ptr<const ForkMark> fork_mark_;
  const uint64_t device_memory_;
  const std::string spec_;

  mutable quota::SpinLock lock_;
  std::shared_ptr<const Pages> pages_;
  TimeShare time_;
  bool lost_ = false;
  uint32_t asked_ = 0, taken_ = 0;  // numbers of the latest request, and of the latest answer
  uint64_t wanted_ = 0;             // what that request asks for
  uint64_t granted_ = 0;            // what the account's limit was set to last
  uint32_t recall_seen_ = 0;        // number of the latest wish that was answered

  std::atomic<uint32_t> asking_{0}, limiting_{0}, calling_{0};  // ClockLocks'
  std::atomic<quota::Account*> account_{nullptr};               // changes with limiting_
  std::function<void()> on_time_;                               // with calling_
  std::function<Figures()> figures_;

  // The service thread's own.
  TimeShare::Limits seen_;
  std::shared_ptr<const Pages> looked_at_;
  uint32_t wake_seen_ = 0;
  Time publish_at_{};
  Nanos tick_ = kPublishEvery;
  struct Published {
    uint64_t charged = 0, peak = 0, denied = 0;
    Figures figures;
    bool operator==(const Published&) const = default;
  };
  Published published_;
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_GPU_SESSION_H_
