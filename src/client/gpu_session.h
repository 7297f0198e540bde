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
//   options.copy_supply = gpu;
//   gpu->SetHolder(&holder);                               // of that account, or of several
//
// Locks: lock_ is for what is read from the pages and written to them, and nothing is called with it; limiting_ for
// changes of the holder's limit; asking_ for the one conversation about memory, which waits for the broker. They are
// taken in the order asking_, limiting_, lock_.
//
// In a forked child every call answers no.
//
// Threading: thread-safe.
#ifndef GPUSHARE_CLIENT_GPU_SESSION_H_
#define GPUSHARE_CLIENT_GPU_SESSION_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/time.h"
#include "client/copy_share.h"
#include "client/fork_mark.h"
#include "client/silence.h"
#include "client/time_share.h"
#include "gate/copy_supply.h"
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

class GpuSession final : public gate::Supply, public gate::CopySupply, public quota::Source {
 public:
  // How long an answer about memory may take.
  static constexpr Nanos kLongestAnswer = Millis(500);
  // And while the driver takes back what processes of the tenant had that have ended: the broker bounds it.
  static constexpr Nanos kLongestReclaim = Seconds(15);
  // How often the usage page is brought up to date while something changes.
  static constexpr Nanos kPublishEvery = Millis(20);

  // `device_memory`: of the GPU, as promised. `goes_on`: at its guarantee, while a broker that is there is silent.
  GpuSession(base::Clock& clock, std::shared_ptr<const ForkMark> fork_mark, uint64_t device_memory,
             std::shared_ptr<const Pages> pages, std::string spec, bool goes_on);
  ~GpuSession() override;
  GpuSession(const GpuSession&) = delete;
  GpuSession& operator=(const GpuSession&) = delete;

  // The share that was in force when it was opened.
  const std::string& spec() const { return spec_; }

  Answer Tell(const Report& report, Time now) override;
  // One user of it at a time: the next waits until the last has left.
  void Enter();
  void Leave();

  // The engine that told is gone, and what it had not used is given back. Another may come, and count from 0.
  void EngineEnds();

  bool LimitsCopies(gate::CopyDirection direction) const override {
    return copies_limited_[static_cast<size_t>(direction)].load(std::memory_order_relaxed);
  }
  bool OthersGoFirst() const override { return below_.load(std::memory_order_relaxed); }
  gate::CopyState Copies(gate::CopyDirection direction, Time now) override;
  void ChargeCopy(gate::CopyDirection direction, int64_t bytes) override;
  Time AwaitCopies(gate::CopyDirection direction, Time now) override;
  void NobodyAwaitsCopies(gate::CopyDirection direction) override;

  // A deadline that has passed: it asks, and does not wait; the answer raises the limit when it comes.
  bool GetRoom(quota::Account& account, uint64_t bytes, Time deadline) override;
  uint64_t Limit() const override;
  uint64_t Left() const override;
  uint64_t Reclaiming() const override;

  // Who the memory is charged to, and gets the limit that is granted; null before its end. `left`: of what it held, what
  // nobody will free before the process ends, and is charged as long. What it has counted stays counted.
  void SetHolder(quota::Holder* holder, uint64_t left = 0);
  // Called without a lock when there may be more time than before, or less. When this returns, what it replaces runs no
  // more.
  void SetOnTime(std::function<void()> on_time);
  // What the gates have counted, for those who look at the broker's figures. It is asked once more before it is replaced,
  // and what it has counted stays counted.
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
  // The session ends by itself, after the holder: says what is left to be waited for, so that the rest need not be.
  void GiveAllBack();
  // The broker has gone, and the process goes on at its guarantee or not at all; `for_good`: no other will be looked
  // for, and what waits for the device is refused. It is there again: asks it for what is charged now.
  void Lose(bool goes_on, bool for_good = false);
  void Resume(std::shared_ptr<const Pages> pages);

 private:
  static constexpr int kEverybody = INT32_MAX;  // who sleeps on a word
  // Of the page, as read once.
  static TimeShare::Limits ReadLimits(const ipc::LimitsPage& page);
  static CopyShare::Limits ReadCopies(const ipc::LimitsPage& page, size_t way);
  // With lock_. Whether it differs from before.
  bool ReadWhetherCopiesAreHeld(const ipc::LimitsPage& page);
  void SayWhatWasCopied(size_t way);
  std::shared_ptr<const Pages> pages() const;
  // With limiting_.
  uint64_t ChargedNow() const;
  void Limit(uint64_t granted);
  uint64_t Charged();
  uint64_t InChunks(uint64_t needed, uint64_t limit) const;
  struct Question {
    Time begun, last_reclaimed;  // and when something was seen to be reclaimed last
  };
  // By when there has to be an answer, as it is now.
  Time AnswerBy(Question* question, Time deadline) const;
  bool Ask(uint64_t charged, uint64_t wanted, Question* question, Time deadline);
  void TakeAnswer();
  void LowerToPage();
  void AnswerRecall();
  bool Publish();
  void CallOnTime();
  // Of the broker. The first is called with lock_, before the bell is rung.
  void Calls(Time now) { silence_.Called(now); }
  void Listen(Time now);

  base::Clock& clock_;
  const std::shared_ptr<const ForkMark> fork_mark_;
  const uint64_t device_memory_;
  const std::string spec_;
  const bool goes_on_;

  mutable quota::SpinLock lock_;
  std::shared_ptr<const Pages> pages_;
  TimeShare time_;
  std::array<CopyShare, 2> copies_;  // to the device, from it
  std::array<Time, 2> copies_asked_at_{};
  Nanos told_{0}, before_{0};  // charged in all; of it, by engines that are gone
  bool lost_ = false;
  bool ended_ = false;   // lost for good: nothing will be granted any more
  bool silent_ = false;  // lost with its session and pages, which count again when it is heard
  Silence silence_;
  uint32_t asked_ = 0, taken_ = 0;  // numbers of the latest request, and of the latest answer
  uint64_t wanted_ = 0;             // what that request asks for
  uint64_t granted_ = 0;            // what the holder's limit was set to last
  uint32_t recall_seen_ = 0;        // number of the latest wish that was answered

  std::atomic<uint32_t> asking_{0}, limiting_{0}, calling_{0};  // ClockLocks'
  std::atomic<uint32_t> in_use_{0};
  std::atomic<quota::Holder*> holder_{nullptr};  // changes with limiting_
  std::atomic<uint64_t> left_{0};                // of holders that are gone; with limiting_
  std::function<void()> on_time_;                // with calling_
  std::function<Figures()> figures_;
  std::array<std::atomic<bool>, 2>
      copies_limited_{};            // change with lock_, and the engine hears of it
  std::atomic<bool> below_{false};  // LimitsPage::kBelow, as it was seen last
  std::atomic<bool> copies_suspended_{false};

  // The service thread's own.
  TimeShare::Limits seen_;
  std::array<uint64_t, 4> copies_seen_{};  // granted and rate, of each direction
  std::shared_ptr<const Pages> looked_at_;
  uint32_t wake_seen_ = 0;
  Time publish_at_{};
  Nanos tick_ = kPublishEvery;
  struct Published {
    quota::Holder::Figures memory;
    Figures figures;
    bool operator==(const Published&) const = default;
  };
  Published Count();
  Published published_;  // with lock_
  Published at_loss_,
      before_session_;  // of what is counted: what the last broker knows, and what this one does not count
  Figures figures_before_;                // of engines that are gone; with calling_
  quota::Holder::Figures memory_before_;  // of holders that are gone; with limiting_
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_GPU_SESSION_H_
