// SPDX-License-Identifier: Apache-2.0
// What the broker costs: a process that registers, a request for memory, and a look at processes that are busy.
#include <benchmark/benchmark.h>
#include <unistd.h>

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

// A service on a thread of its own, and what a process does to have a share.
class Bench {
 public:
  Bench() {
    folder_ = std::filesystem::temp_directory_path() / absl::StrCat("gpushare-bench-", getpid());
    std::filesystem::create_directory(folder_);
    Config config;
    config.tenants.emplace_back();
    config.tenants.back().name = "a";
    config.tenants.back().spec = "memory=8GiB,compute=50%";
    ServiceOptions options;
    options.socket = (folder_ / "broker.sock").string();
    socket_ = options.socket;
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
  Process Register() {
    Process process;
    process.connection = *ipc::Connect(socket_);
    std::vector<base::UniqueFd> fds;
    Exchange(process, ipc::Hello{.tenant = "a", .program = "bench", .spec = ""}, &fds);
    Exchange(process, ipc::OpenGpu{.uuid = "GPU-0", .memory = 16ull << 30, .sm_count = 132}, &fds);
    process.limits = *ipc::MapLimits(fds.at(0).get());
    process.usage = *ipc::MapUsage(fds.at(1).get());
    process.bell = std::make_unique<ipc::Doorbell>(*ipc::Doorbell::Of(std::move(fds.at(2))));
    return process;
  }
  void Ask(Process& process, uint64_t bytes) {
    process.usage->memory_wanted = bytes;
    const uint32_t number = ++process.usage->memory_asked;
    process.bell->Ring();
    for (;;) {
      const uint32_t seen = process.limits->wake.load();
      if (process.limits->memory_answered.load() == number) return;
      clock_.WaitShared(process.limits->wake, seen, kNever);
    }
  }

 private:
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

// From the connection to the mapped pages, beside as many as have come before. 500 in a second: 2 ms each.
void Register(benchmark::State& state) {
  Bench bench;
  std::vector<Bench::Process> processes;
  for (auto _ : state) processes.push_back(bench.Register());
}
BENCHMARK(Register)->Iterations(500)->Unit(benchmark::kMicrosecond)->UseRealTime();

// From a request for memory to its answer: two wake-ups.
void Memory(benchmark::State& state) {
  Bench bench;
  Bench::Process process = bench.Register();
  for (auto _ : state) bench.Ask(process, 1 << 20);
}
BENCHMARK(Memory)->Unit(benchmark::kMicrosecond)->UseRealTime();

// One look at so many processes that want the device all the time. There are some 500 in a second.
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
