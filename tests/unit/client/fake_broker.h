// SPDX-License-Identifier: Apache-2.0
// The broker's side of a GPU's pages, and a clock that lets the test act as the broker during waits.
#ifndef GPUSHARE_TESTS_UNIT_CLIENT_FAKE_BROKER_H_
#define GPUSHARE_TESTS_UNIT_CLIENT_FAKE_BROKER_H_

#include <fcntl.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "client/gpu_session.h"
#include "ipc/doorbell.h"
#include "ipc/page.h"

namespace gpushare::client {

inline base::UniqueFd Duplicate(int fd) { return base::UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

struct BrokerPages {
  ipc::NewPage<ipc::LimitsPage> limits = *ipc::NewLimitsPage();
  ipc::NewPage<const ipc::UsagePage> usage = *ipc::NewUsagePage();
  ipc::Doorbell bell = *ipc::Doorbell::Create();

  // The pages as the process maps them.
  std::shared_ptr<const Pages> ForProcess() const {
    return std::make_shared<const Pages>(Pages{*ipc::MapLimits(limits.fd.get()),
                                               *ipc::MapUsage(usage.fd.get()),
                                               *ipc::Doorbell::Of(Duplicate(bell.fd()))});
  }
  ipc::LimitsPage& said() const { return *limits.page; }
  const ipc::UsagePage& used() const { return *usage.page; }
  bool rung() const { return bell.Answer(); }
  void Wake() const {
    said().wake.fetch_add(1);
    base::RealClock().WakeShared(said().wake, INT32_MAX);
  }
  void Answer(uint64_t granted) const {
    said().memory_granted = granted;
    said().memory_answered = used().memory_asked.load();
    Wake();
  }
};

// A clock for a single thread. A wait lets the test act, and then lasts until its deadline unless something has
// changed.
class PlayedClock final : public base::Clock {
 public:
  std::function<void()> others = [] {};
  Time now{Seconds(1)};

  Time Now() override { return now; }
  base::WaitResult Wait(const std::atomic<uint32_t>& word, uint32_t expected, Time deadline,
                        Nanos) override {
    others();
    if (word.load() != expected) return base::WaitResult::kWoken;
    EXPECT_NE(deadline, kNever) << "it waits for ever";
    now = std::max(now, deadline);
    return base::WaitResult::kDeadline;
  }
  base::WaitResult WaitShared(const std::atomic<uint32_t>& word, uint32_t expected,
                              Time deadline) override {
    return Wait(word, expected, deadline, Nanos(0));
  }
  void Wake(const std::atomic<uint32_t>&, int) override {}
  std::unique_ptr<base::ClockThread> StartThread(std::string, std::function<void()>) override {
    return nullptr;
  }
};

// A holder with a single account.
class HolderOfOne final : public quota::Holder {
 public:
  explicit HolderOfOne(quota::Account& account) : account_(account) {}
  uint64_t Charged() const override { return account_.charged(); }
  void SetLimit(uint64_t limit) override { account_.SetLimit(limit); }
  Figures figures() const override {
    const quota::AccountUsage usage = account_.Usage();
    return {.charged = account_.charged(), .peak = usage.peak, .denied = usage.denied};
  }

 private:
  quota::Account& account_;
};

// A session for which the test is the broker.
class GpuSessionTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;
  static constexpr uint64_t kDevice = 8192 * kMiB;

  GpuSessionTest() {
    broker.said().memory_limit = 1024 * kMiB;
    gpu =
        std::make_shared<GpuSession>(clock, std::make_shared<const ForkMark>(*ForkMark::Create()),
                                     kDevice, broker.ForProcess(), "memory=1GiB", /*goes_on=*/true);
    account = *quota::Account::Create(quota::kUnlimited);
    holder = std::make_unique<HolderOfOne>(*account);
    gpu->SetHolder(holder.get());
  }
  ~GpuSessionTest() override {
    gpu->SetHolder(nullptr);
    EXPECT_TRUE(account->CheckInvariants().ok());
  }

  bool Allocate(uint64_t bytes) {
    quota::Grant grant = account->TryReserve(bytes);
    if (!grant && gpu->GetRoom(*account, bytes, kNever)) grant = account->TryReserve(bytes);
    if (grant) account->Commit(bytes);
    return static_cast<bool>(grant);
  }
  // Makes the broker grant at most `bytes` to this process.
  void Has(uint64_t bytes) {
    clock.others = [this, bytes] {
      if (!broker.rung()) return;
      ++answers;
      broker.Answer(std::min(bytes, broker.used().memory_wanted.load()));
    };
  }
  gate::Supply::Answer Tell(Nanos charged, Nanos outstanding, Nanos wanted) {
    return gpu->Tell({.charged = charged, .outstanding = outstanding, .wanted = wanted}, clock.now);
  }

  BrokerPages broker;
  PlayedClock clock;
  std::shared_ptr<GpuSession> gpu;
  std::unique_ptr<quota::Account> account;
  std::unique_ptr<HolderOfOne> holder;
  int answers = 0;
};

}  // namespace gpushare::client

#endif  // GPUSHARE_TESTS_UNIT_CLIENT_FAKE_BROKER_H_
