// SPDX-License-Identifier: Apache-2.0
// Processes that write anything over the pages that the broker reads, while it reads them, beside two honest ones.
// Bytes choose who comes and goes, what is written, and what an operator changes meanwhile.
//
//   if (const char* broken = PagesGame(data, size).Play()) ...
#ifndef GPUSHARE_TESTS_FUZZ_PAGES_GAME_H_
#define GPUSHARE_TESTS_FUZZ_PAGES_GAME_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "broker/registry.h"
#include "tests/unit/broker/pages.h"

namespace gpushare::broker {

class PagesGame {
 public:
  PagesGame(const uint8_t* data, size_t size)
      : at_(data), end_(data + size), words_(WordsOf(data, size)), registry_({kGpu}) {}

  // Returns the violated invariant, or nullptr. Runs are not repeatable, since the pages are written concurrently.
  const char* Play() {
    if (const char* broken = Begin()) return broken;
    std::atomic<bool> enough{false};
    std::thread writer([&] {
      for (size_t i = 0; !enough.load(std::memory_order_relaxed); ++i) Scribble(i);
    });
    const char* broken = nullptr;
    while (at_ != end_ && broken == nullptr) {
      broken = Step();
      if (broken == nullptr) broken = Check();
    }
    enough = true;
    writer.join();
    return broken;
  }

 private:
  static constexpr uint64_t kGiB = uint64_t{1} << 30;
  inline static const GpuInfo kGpu{.uuid = "GPU-0", .memory = 16 * kGiB, .sm_count = 132};
  static constexpr size_t kHostile = 4;
  struct Process {
    Registry::Session* session = nullptr;
    // A process that has ended keeps its pages for ever, since a real process may keep its mapping.
    std::unique_ptr<Pages> pages;
  };

  unsigned Next() { return at_ != end_ ? *at_++ : 0u; }
  static std::vector<uint64_t> WordsOf(const uint8_t* data, size_t size) {
    std::vector<uint64_t> words = {0, 1, UINT64_MAX, uint64_t{1} << 63, INT64_MAX, kGiB};
    for (; size >= 8; size -= 8, data += 8) std::memcpy(&words.emplace_back(), data, 8);
    return words;
  }

  // Writes a word of some hostile page.
  void Scribble(size_t i) {
    Pages* const pages = scribbled_[i % kHostile].load(std::memory_order_acquire);
    if (pages == nullptr) return std::this_thread::yield();
    auto* const page = reinterpret_cast<std::atomic<uint64_t>*>(&pages->usage);
    // The first 8 bytes are the page's version, which is read when it is mapped.
    const size_t word = 1 + (i * 0x9e3779b97f4a7c15 >> 32) % (sizeof(ipc::UsagePage) / 8 - 1);
    page[word].store(words_[i / kHostile % words_.size()], std::memory_order_relaxed);
    if (i % 3 != 0) return;
    // Claims to have answered the recall, with whatever the other fields contain.
    pages->usage.memory_recalled.store(pages->limits.memory_recall.load());
  }

  const char* Begin() {
    Config config;
    const auto add = [&config](const char* name, const char* spec) {
      config.tenants.emplace_back();
      config.tenants.back().name = name;
      config.tenants.back().spec = spec;
    };
    add("honest", "memory=8GiB,guarantee=30%,h2d=1GiB/s");
    add("hostile", "memory=4GiB,guarantee=20%,cap=50%,d2h=100MiB/s");
    add("unlimited", "weight=2");
    add("first", "memory=1GiB,priority=high");
    if (!registry_.Apply(config, now_, changed_).ok()) return "the configuration was refused";
    for (Process& process : honest_) {
      if (!Enter(process, "honest")) return "a process was refused";
    }
    return nullptr;
  }

  bool Enter(Process& process, const char* tenant) {
    const auto session = registry_.Register({.pid = ++pid_, .uid = 1, .gid = 1},
                                            {.tenant = tenant, .program = "", .spec = ""});
    if (!session.ok()) return false;
    process.session = *session;
    process.pages = std::make_unique<Pages>();
    const ipc::OpenGpu open{
        .uuid = kGpu.uuid, .memory = kGpu.memory, .sm_count = uint32_t(kGpu.sm_count)};
    return registry_.Open(*process.session, open, process.pages->seat, now_, changed_).ok();
  }

  const char* Step() {
    static constexpr const char* kTenants[] = {"hostile", "unlimited", "first", "hostile"};
    const unsigned what = Next();
    const size_t which = what / 16 % kHostile;
    Process& process = hostile_[which];
    switch (what % 16) {
      case 0:
      case 1:
        if (process.session != nullptr) return nullptr;
        if (process.pages != nullptr) gone_.push_back(std::move(process.pages));
        if (!Enter(process, kTenants[which])) return "a process was refused";
        scribbled_[which].store(process.pages.get(), std::memory_order_release);
        return nullptr;
      case 2:
        if (process.session != nullptr) registry_.End(*process.session, now_, changed_);
        return nullptr;
      case 3:
        if (process.session != nullptr) registry_.Free(process.session, now_, changed_);
        process.session = nullptr;
        return nullptr;
      case 4:
        return Set("hostile", Next() % 2 == 0 ? "memory=1GiB,cap=10%" : "memory=4GiB,cap=50%");
      case 5:
        return registry_.Suspend("hostile", Next() % 2 == 0, now_, changed_).ok()
                   ? nullptr
                   : "a tenant was not suspended";
      case 6:
        registry_.TakeSnapshot(now_);
        registry_.TakeClaims();
        return nullptr;
      case 7:
      case 8:
        return Ask(Next());
      case 9:
        honest_[0].pages->usage.time_wanted_ns = 1000 * int64_t{Next()};
        return nullptr;
      default:
        return Look(Nanos(int64_t{1} << (Next() % 28)));
    }
  }

  const char* Set(const char* tenant, const char* spec) {
    // An increase may not fit beside the guarantees of others; then it is refused.
    registry_.Set(tenant, "", spec, now_, changed_).IgnoreError();
    return nullptr;
  }

  const char* Look(Nanos later) {
    now_ += later;
    const Time next = registry_.Look(now_, changed_);
    changed_.Take();
    // The honest processes use their grants, and give back what they do not need.
    for (Process& process : honest_) {
      Pages& pages = *process.pages;
      pages.AnswerRecall();
      pages.usage.time_used_ns = pages.limits.time_granted_ns.load();
    }
    return next >= now_ ? nullptr : "it is to be looked again in the past";
  }

  // They get what their quota has, whatever the others write.
  const char* Ask(unsigned wanted) {
    Pages &asks = *honest_[wanted % 2].pages, &other = *honest_[1 - wanted % 2].pages;
    const uint64_t free = 8 * kGiB - other.usage.memory_charged.load();
    const uint64_t bytes = free / 128 * (1 + wanted / 2);
    asks.Ask(bytes);
    for (int i = 0; i < 4 && !asks.answered(); ++i) {
      if (const char* broken = Look(Millis(1))) return broken;
    }
    if (!asks.answered()) return "who asks is not answered";
    if (asks.granted() < bytes) return "who asks for what is free does not get it";
    asks.usage.memory_charged = bytes;
    return nullptr;
  }

  const char* Check() {
    if (const char* broken = registry_.CheckInvariants()) return broken;
    for (const Share& share : registry_.TakeSnapshot(now_).shares) {
      if (share.tenant == "honest" && share.memory_granted > 8 * kGiB) return "a quota is passed";
      // When a quota is lowered, earlier grants may be kept.
      if (share.tenant == "hostile" && share.memory_granted > 4 * kGiB) return "a quota is passed";
      if (share.tenant == "first" && share.memory_granted > 1 * kGiB) return "a quota is passed";
    }
    return nullptr;
  }

  const uint8_t* at_;
  const uint8_t* const end_;
  const std::vector<uint64_t> words_;
  Time now_{Seconds(1)};
  int32_t pid_ = 0;
  Changed changed_;
  std::array<Process, 2> honest_;
  std::array<Process, kHostile> hostile_;
  std::vector<std::unique_ptr<Pages>> gone_;
  std::array<std::atomic<Pages*>, kHostile> scribbled_{};
  Registry registry_;  // ends before the pages
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_TESTS_FUZZ_PAGES_GAME_H_
