// SPDX-License-Identifier: Apache-2.0
// Measures what the broker does: registering a process, answering a request for memory, and looking at busy processes.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/service.h"
#include "broker/time_book.h"
#include "ipc/doorbell.h"
#include "ipc/message.h"
#include "ipc/page.h"
#include "ipc/socket.h"

namespace gpushare::broker {
namespace {

constexpr int kMostOthers = 500;
constexpr uint64_t kQuota = 16 << 20;

// A service on a thread of its own, and the steps by which a process gets a share.
class Bench {
 public:
  // `kept`: the service saves what it grants to a file for its successor, as the daemon does.
  explicit Bench(bool kept = false) {
    folder_ = std::filesystem::temp_directory_path() / absl::StrCat("gpushare-bench-", getpid());
    std::filesystem::create_directory(folder_);
    Config config;
    for (int i = 0; i <= kMostOthers; ++i) {
      config.tenants.emplace_back();
      config.tenants.back().name = absl::StrCat("t", i);
      config.tenants.back().spec = "memory=16MiB";
    }
    ServiceOptions options;
    options.socket = (folder_ / "broker.sock").string();
    socket_ = options.socket;
    if (kept) options.remains = options.socket + ".books";
    service_ = *Service::Create(config, std::move(options));
    thread_ = std::thread([this] { service_->Run().IgnoreError(); });
  }
  ~Bench() {
    service_->Stop();
    thread_.join();
    service_.reset();
    std::filesystem::remove_all(folder_);
  }

  struct Process {
    base::UniqueFd connection;
    ipc::Mapped<const ipc::LimitsPage> limits;
    ipc::Mapped<ipc::UsagePage> usage;
    std::unique_ptr<ipc::Doorbell> bell;
  };
  Process Register(int tenant) {
    Process process;
    process.connection = *ipc::Connect(socket_);
    std::vector<base::UniqueFd> fds;
    Exchange(process,
             ipc::Hello{.tenant = absl::StrCat("t", tenant), .program = "bench", .spec = ""}, &fds);
    Exchange(process, ipc::OpenGpu{.uuid = "GPU-0", .memory = 16ull << 30, .sm_count = 132}, &fds);
    process.limits = *ipc::MapLimits(fds.at(0).get());
    process.usage = *ipc::MapUsage(fds.at(1).get());
    process.bell = std::make_unique<ipc::Doorbell>(*ipc::Doorbell::Of(std::move(fds.at(2))));
    return process;
  }
  void Ask(Process& process, uint64_t bytes) {
    const uint32_t number = BeginToAsk(process, bytes);
    Await(process, [&] { return process.limits->memory_answered.load() == number; });
  }
  // Moves all memory granted to `from` to `to`.
  void Move(Process& from, Process& to) {
    const uint32_t recall = from.limits->memory_recall.load();
    const uint32_t number = BeginToAsk(to, kQuota);
    Await(from, [&] { return from.limits->memory_recall.load() != recall; });
    from.usage->memory_kept = 0;
    from.usage->memory_recalled = from.limits->memory_recall.load();
    from.bell->Ring();
    Await(to, [&] { return to.limits->memory_answered.load() == number; });
  }

 private:
  static uint32_t BeginToAsk(Process& process, uint64_t bytes) {
    process.usage->memory_wanted = bytes;
    const uint32_t number = ++process.usage->memory_asked;
    process.bell->Ring();
    return number;
  }
  template <typename Ready>
  void Await(Process& process, const Ready& ready) {
    for (;;) {
      const uint32_t seen = process.limits->wake.load();
      if (ready()) return;
      clock_.WaitShared(process.limits->wake, seen, kNever);
    }
  }
  void Exchange(Process& process, const ipc::Message& message, std::vector<base::UniqueFd>* fds) {
    ipc::Send(process.connection.get(), *ipc::Encode(message)).IgnoreError();
    ipc::Received got = *ipc::ReceiveBefore(process.connection.get(), clock_, kNever);
    *fds = std::move(got.fds);
  }

  base::Clock& clock_ = base::RealClock();
  std::filesystem::path folder_;
  std::string socket_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
};

// From the connection to the mapped pages, while all earlier processes are still there. 500 in a second: 2 ms each. The
// argument of these benchmarks: whether there is a file.
void Register(benchmark::State& state) {
  Bench bench(state.range(0) != 0);
  std::vector<Bench::Process> processes;
  for (auto _ : state) processes.push_back(bench.Register(static_cast<int>(processes.size()) + 1));
}
BENCHMARK(Register)
    ->ArgName("file")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(500)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// From a request for memory to its answer: two wake-ups.
void Memory(benchmark::State& state) {
  Bench bench;
  Bench::Process process = bench.Register(0);
  for (auto _ : state) bench.Ask(process, 1 << 20);
}
BENCHMARK(Memory)->Unit(benchmark::kMicrosecond)->UseRealTime();

// The same if another process has to give the memory back first, with other tenants' processes that hold some: the grants
// change, and with them the file.
void Moved(benchmark::State& state) {
  Bench bench(state.range(0) != 0);
  std::vector<Bench::Process> others;
  for (int i = 0; i < state.range(1); ++i) others.push_back(bench.Register(i + 1));
  Bench::Process one = bench.Register(0), other = bench.Register(0);
  for (auto _ : state) {
    bench.Move(one, other);
    std::swap(one, other);
  }
}
BENCHMARK(Moved)
    ->ArgNames({"file", "others"})
    ->ArgsProduct({{0, 1}, {0, 500}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// From the broker's change of a page's word and its call that wakes the sleeper on it, to the sleeper's return.
void Wake(benchmark::State& state) {
  base::Clock& clock = base::RealClock();
  ipc::LimitsPage page;
  std::atomic<uint32_t> sleeps{0}, woken{0};
  std::atomic<bool> enough{false};
  Time returned{};
  std::thread sleeper([&] {
    while (!enough) {
      const uint32_t seen = page.wake.load();
      ++sleeps;
      while (page.wake.load() == seen) clock.WaitShared(page.wake, seen, kNever);
      returned = clock.Now();
      ++woken;
    }
  });
  std::vector<int64_t> took;
  for (auto _ : state) {
    const uint32_t round = static_cast<uint32_t>(took.size()) + 1;
    while (sleeps.load() != round) std::this_thread::yield();
    clock.SleepUntil(clock.Now() + Millis(1));  // by now it sleeps
    const Time begin = clock.Now();
    page.wake.fetch_add(1);
    clock.WakeShared(page.wake, 8);
    while (woken.load() != round) std::this_thread::yield();
    took.push_back((returned - begin).count());
    state.SetIterationTime(1e-9 * static_cast<double>(took.back()));
  }
  enough = true;
  page.wake.fetch_add(1);
  clock.WakeShared(page.wake, 8);
  sleeper.join();
  std::sort(took.begin(), took.end());
  const auto at = [&](double part) {
    return 1e-3 * static_cast<double>(took[static_cast<size_t>(part * double(took.size() - 1))]);
  };
  state.counters["p50_us"] = at(0.5);
  state.counters["p99_us"] = at(0.99);
}
BENCHMARK(Wake)->Iterations(1000)->Unit(benchmark::kMicrosecond)->UseManualTime();

// One look at processes that want the device all the time. The broker looks some 500 times a second.
void Look(benchmark::State& state) {
  struct Pages {
    ipc::LimitsPage limits;
    ipc::UsagePage usage;
    Seat seat{.limits = &limits, .usage = &usage};
  };
  std::vector<std::unique_ptr<Pages>> pages;
  Changed changed;
  TimeBook book;
  Time now{Seconds(1)};
  for (int i = 0; i < state.range(0); ++i) {
    pages.push_back(std::make_unique<Pages>());
    book.Join(book.AddTenant({}, now), pages.back()->seat, now, changed);
    pages.back()->usage.time_wanted_ns = 100'000;
  }
  for (auto _ : state) {
    now += Millis(2);
    for (Seat* seat : changed.Take()) {
      auto* usage = const_cast<ipc::UsagePage*>(seat->usage);
      usage->time_used_ns = seat->limits->time_granted_ns.load();
    }
    book.Look(now, changed);
  }
}
BENCHMARK(Look)->Arg(1)->Arg(16)->Arg(128)->Arg(500);

}  // namespace
}  // namespace gpushare::broker
