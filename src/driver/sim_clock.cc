// SPDX-License-Identifier: Apache-2.0
#include "driver/sim_clock.h"

#include <dlfcn.h>

#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gpushare::driver {
namespace {

// The simulator takes the address of a plain 32-bit word.
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);
const uint32_t* Address(const std::atomic<uint32_t>& word) {
  return reinterpret_cast<const uint32_t*>(&word);
}

uint64_t Deadline(Time time) {
  if (time == kNever) return UINT64_MAX;
  const int64_t ns = time.time_since_epoch().count();
  return ns < 0 ? 0 : static_cast<uint64_t>(ns);
}

template <typename Function>
bool Look(void* handle, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  if (*function == nullptr && missing->empty()) *missing = name;
  return *function != nullptr;
}

}  // namespace

class SimClock::Thread final : public base::ClockThread {
 public:
  // `announce` comes last of all that can fail: the clock waits for a thread that was announced.
  Thread(SimClock& clock, uint64_t (*announce)(const char* name), const std::string& name,
         std::function<void()> body)
      : clock_(clock), done_(std::make_shared<std::atomic<uint32_t>>(0)) {
    const uint64_t announced = announce(name.c_str());
    try {
      // The body goes last: of a detached thread it may be all that keeps the clock.
      thread_ = std::thread([&clock, done = done_, announced, body = std::move(body)] {
        clock.calls_.thread_enter_announced(announced);
        body();
        done->store(1);
        clock.Wake(*done, INT32_MAX);
        clock.calls_.thread_leave();
      });
    } catch (...) {  // no thread could be created: the clock must not wait for it
      clock_.calls_.thread_withdraw(announced);
      throw;
    }
  }
  ~Thread() override { Join(); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void Join() override {
    if (!thread_.joinable()) return;
    // Waits on the clock first, so that in every run the joiner continues at the moment at which the thread
    // ended. The system thread then ends without needing the turn.
    while (done_->load() == 0) clock_.Wait(*done_, 0, kNever, Nanos(0));
    thread_.join();
  }
  void Detach() override { thread_.detach(); }

 private:
  SimClock& clock_;
  const std::shared_ptr<std::atomic<uint32_t>> done_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<SimClock>> SimClock::Attach(void* handle) {
  Calls calls;
  decltype(&gpushare_sim_clock_is_virtual) is_virtual;
  std::string missing;
  Look(handle, "gpushare_sim_now", &calls.now, &missing);
  Look(handle, "gpushare_sim_wait_word", &calls.wait_word, &missing);
  Look(handle, "gpushare_sim_wake_word", &calls.wake_word, &missing);
  Look(handle, "gpushare_sim_thread_announce", &calls.thread_announce, &missing);
  Look(handle, "gpushare_sim_thread_announce_service", &calls.thread_announce_service, &missing);
  Look(handle, "gpushare_sim_thread_enter_announced", &calls.thread_enter_announced, &missing);
  Look(handle, "gpushare_sim_thread_withdraw", &calls.thread_withdraw, &missing);
  Look(handle, "gpushare_sim_thread_leave", &calls.thread_leave, &missing);
  Look(handle, "gpushare_sim_clock_is_virtual", &is_virtual, &missing);
  if (!missing.empty()) {
    return absl::InternalError(absl::StrCat("the simulated driver does not export ", missing));
  }
  if (is_virtual() == 0) return std::unique_ptr<SimClock>();
  return std::unique_ptr<SimClock>(new SimClock(calls));
}

Time SimClock::Now() { return Time(Nanos(static_cast<int64_t>(calls_.now()))); }

base::WaitResult SimClock::Wait(const std::atomic<uint32_t>& word, uint32_t expected, Time deadline,
                                Nanos spin) {
  const int passed = calls_.wait_word(Address(word), expected, Deadline(deadline),
                                      spin.count() < 0 ? 0 : static_cast<uint64_t>(spin.count()));
  return passed == 0 ? base::WaitResult::kWoken : base::WaitResult::kDeadline;
}

void SimClock::Wake(const std::atomic<uint32_t>& word, int count) {
  calls_.wake_word(Address(word), count);
}

std::unique_ptr<base::ClockThread> SimClock::StartThread(std::string name,
                                                         std::function<void()> body) {
  return std::make_unique<Thread>(*this, calls_.thread_announce, name, std::move(body));
}

std::unique_ptr<base::ClockThread> SimClock::StartService(std::string name,
                                                          std::function<void()> body) {
  return std::make_unique<Thread>(*this, calls_.thread_announce_service, name,
                                  base::Service(std::move(body)));
}

}  // namespace gpushare::driver
