// SPDX-License-Identifier: Apache-2.0
// A process's share of one GPU through the broker: device time for its engine, and memory for its account.
//
// Everything passes through the two pages of ipc/page.h. The content of the limits page is not trusted to make sense: the
// worst that a broker can do is to grant nothing.
//
//   GPUSHARE_ASSIGN_OR_RETURN(auto gpu, session->OpenGpu(uuid, memory, sm_count));
//   options.supply = gpu;                                  // gate::EngineOptions
//   gpu->SetOnTime([engine] { engine->Supplied(); });
//   account->SetSource(gpu);
//   options.copy_supply = gpu;
//   gpu->SetHolder(&holder);                               // holds that account, or several
//
// Locks: lock_ guards what is read from the pages and written to them; no function of others is called with it. limiting_
// guards changes of the holder's limit. asking_ guards the one conversation about memory, which waits for the broker. They
// are taken in the order asking_, limiting_, lock_.
//
// In a forked child every call refuses.
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
#include "client/link_share.h"
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

// The pages and the doorbell of one session with the broker on a GPU. Each session has its own.
struct Pages {
  ipc::Mapped<const ipc::LimitsPage> limits;
  ipc::Mapped<ipc::UsagePage> usage;
  ipc::Doorbell bell;
};

class GpuSession final : public gate::Supply, public gate::CopySupply, public quota::Source {
 public:
  // The longest wait for an answer about memory.
  static constexpr Nanos kLongestAnswer = Millis(500);
  // The same while the driver frees memory of the tenant's ended processes; the broker bounds that too.
  static constexpr Nanos kLongestReclaim = Seconds(15);
  // How often the usage page is updated while figures change.
  static constexpr Nanos kPublishEvery = Millis(20);

  // `device_memory` is the GPU's memory that can be promised. `goes_on`: while a connected broker is silent, the process
  // goes on at its guarantee.
  GpuSession(base::Clock& clock, std::shared_ptr<const ForkMark> fork_mark, uint64_t device_memory,
             std::shared_ptr<const Pages> pages, std::string spec, bool goes_on);
  ~GpuSession() override;
  GpuSession(const GpuSession&) = delete;
  GpuSession& operator=(const GpuSession&) = delete;

  // The spec of the share when it was opened.
  const std::string& spec() const { return spec_; }

  Answer Tell(const Report& report, Time now) override;
  // The session has one user at a time. Enter() waits until the last user has left.
  void Enter();
  void Leave();

  // The engine is gone, and its unused time is given back. Another engine may come, and count from 0.
  void EngineEnds();

  bool LimitsCopies(gate::CopyDirection direction) const override {
    return copies_limited_[static_cast<size_t>(direction)].load(std::memory_order_relaxed);
  }
  bool OthersGoFirst() const override { return below_.load(std::memory_order_relaxed); }
  gate::LinkState Link(gate::CopyDirection direction) const override;
  uint64_t LinkWindow(gate::CopyDirection direction) const override;
  bool TakeLink(gate::CopyDirection direction, uint64_t bytes, bool force, Time now) override;
  void LinkDone(gate::CopyDirection direction, uint64_t bytes) override;
  gate::CopyState Copies(gate::CopyDirection direction, Time now) override;
  void ChargeCopy(gate::CopyDirection direction, int64_t bytes) override;
  Time AwaitCopies(gate::CopyDirection direction, Time now) override;
  void NobodyAwaitsCopies(gate::CopyDirection direction) override;

  // If the deadline has passed, asks without waiting; the answer raises the limit when it comes.
  bool GetRoom(quota::Account& account, uint64_t bytes, Time deadline) override;
  uint64_t Limit() const override;
  uint64_t Left() const override;
  uint64_t Reclaiming() const override;

  // Sets the holder to which memory is charged and which gets the granted limit. Must be set to null before the holder ends.
  // `left` is memory of the last holder that will not be freed before the process ends, and stays charged. The last
  // holder's figures stay counted.
  void SetHolder(quota::Holder* holder, uint64_t left = 0);
  // `on_time` is called without a lock when there may be more or less time than before. When this returns, the function that
  // it replaces is no longer running.
  void SetOnTime(std::function<void()> on_time);
  // The gates' counters, shown in the broker's figures. `figures` is called once more before it is replaced, and its counts
  // stay counted.
  struct Figures {
    uint64_t launches = 0, waits = 0;
    Nanos throttled{0};
    bool operator==(const Figures&) const = default;
  };
  void SetFigures(std::function<Figures()> figures);

  // ---- For the service thread. Look() acts on changes, and returns when to look again.
  Time Look(Time now);
  // Waits until the broker has changed something, or Nudge() is called, or `deadline`.
  void Await(Time deadline);
  void Nudge();
  // The process ends the session, after the holder. Publishes the memory that is left, so that the broker frees the rest at
  // once.
  void GiveAllBack();
  // Lose(): the broker has gone, and the process goes on at its guarantee or not at all. `for_good`: no other broker will be
  // looked for, and work that waits for the device is refused. Resume(): there is a broker again; asks it for the memory
  // that is charged now.
  void Lose(bool goes_on, bool for_good = false);
  void Resume(std::shared_ptr<const Pages> pages);

 private:
  static constexpr int kEverybody = INT32_MAX;  // all waiters on a word
  // Read the page once.
  static TimeShare::Limits ReadLimits(const ipc::LimitsPage& page);
  static CopyShare::Limits ReadCopies(const ipc::LimitsPage& page, size_t way);
  // With lock_. Whether the state has changed.
  bool ReadWhetherCopiesAreHeld(const ipc::LimitsPage& page);
  void SayWhatWasCopied(size_t way);
  void SayWhatWasGiven(size_t way);
  uint64_t Granted(size_t way) const;
  std::shared_ptr<const Pages> pages() const;
  // With limiting_.
  uint64_t ChargedNow() const;
  void Limit(uint64_t granted);
  uint64_t Charged();
  uint64_t InChunks(uint64_t needed, uint64_t limit) const;
  struct Question {
    Time begun, last_reclaimed;  // when it began, and when memory was last seen being reclaimed
  };
  // The present deadline for the answer.
  Time AnswerBy(Question* question, Time deadline) const;
  bool Ask(uint64_t charged, uint64_t wanted, Question* question, Time deadline);
  void TakeAnswer();
  void LowerToPage();
  void AnswerRecall();
  bool Publish();
  void CallOnTime();
  // For noticing a silent broker. Calls() needs lock_, and comes before the bell is rung.
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
  std::array<LinkShare, 2> link_;  // to the device, from it
  Nanos told_{0}, before_{0};      // charged in total, and the part of it by engines that are gone
  bool lost_ = false;
  bool ended_ = false;  // lost for good: nothing will be granted any more
  // Lost because of silence; the same session and pages count again when the broker answers.
  bool silent_ = false;
  Silence silence_;
  uint32_t asked_ = 0, taken_ = 0;  // numbers of the latest request, and of the latest answer
  uint64_t wanted_ = 0;             // bytes that the latest request asks for
  uint64_t granted_ = 0;            // the holder's limit as last set
  uint32_t recall_seen_ = 0;        // number of the latest recall that was answered

  std::atomic<uint32_t> asking_{0}, limiting_{0}, calling_{0};  // ClockLocks
  std::atomic<uint32_t> in_use_{0};
  std::atomic<quota::Holder*> holder_{nullptr};  // changed with limiting_
  std::atomic<uint64_t> left_{0};  // left by holders that are gone; changed with limiting_
  std::function<void()> on_time_;  // guarded by calling_
  std::function<Figures()> figures_;
  std::array<std::atomic<bool>, 2> copies_limited_{};  // changed with lock_; the engine is told
  std::atomic<bool> below_{false};                     // LimitsPage::kBelow as last seen
  std::atomic<bool> shares_link_{false};               // LimitsPage::link_granted as last seen
  std::atomic<bool> copies_suspended_{false};

  // Used only by the service thread.
  TimeShare::Limits seen_;
  std::array<uint64_t, 4> copies_seen_{};  // granted and rate of each direction
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
  Published published_;  // guarded by lock_
  Published at_loss_,
      before_session_;  // figures published to the last broker, and figures from before this session, which are subtracted
  Figures figures_before_;                // of engines that are gone; guarded by calling_
  quota::Holder::Figures memory_before_;  // of holders that are gone; guarded by limiting_
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_GPU_SESSION_H_
