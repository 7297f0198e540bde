// SPDX-License-Identifier: Apache-2.0
#include "stream_work.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gpu.h"

namespace gpushare::python {
namespace {

bool IsOver(const EventHandle::Use_& event) {
  if (event->inherited()) return false;  // only the parent can wait for it
  int done = 0;
  // A lost context runs nothing any more.
  return gpushare_event_query(event->get(), &done) != GPUSHARE_OK || done != 0;
}

// Drops what is complete. Works on a copy of the list: destroying an object of the program may call this again.
void Sweep(Gpu& gpu) {
  std::vector<Ended> all;
  all.swap(gpu.ended);
  std::vector<Ended> over;
  std::vector<bool> is_over(all.size());
  Unlocked([&] {
    for (size_t i = 0; i < all.size(); ++i) is_over[i] = IsOver(all[i].end);
    return 0;
  });
  for (size_t i = 0; i < all.size(); ++i) {
    (is_over[i] ? over : gpu.ended).push_back(std::move(all[i]));
  }
}

}  // namespace

void InFlight::PutBack(InFlight before) {
  const auto put = [](auto& now, auto& first) {
    first.insert(first.end(), std::make_move_iterator(now.begin()),
                 std::make_move_iterator(now.end()));
    now = std::move(first);
  };
  put(modules, before.modules);
  put(hosts, before.hosts);
}

void LetGoOfFinished(Gpu& gpu) {
  if (!gpu.ended.empty()) Sweep(gpu);
}

void LetGoOfAll(Gpu& gpu) {
  constexpr int kMostMs = 5000;
  if (gpu.ended.empty()) return;
  if (Finalizing() || gpu.runtime == nullptr || gpu.runtime->handle.inherited()) {
    static_cast<void>(new std::vector<Ended>(std::move(gpu.ended)));
    gpu.ended.clear();
    return;
  }
  LetGoOfFinished(gpu);
  const auto hosts = [&] {
    return std::any_of(gpu.ended.begin(), gpu.ended.end(),
                       [](const Ended& ended) { return !ended.kept.hosts.empty(); });
  };
  const auto runtime = gpu.runtime->handle.closed() ? nullptr : gpu.runtime->handle.Use();
  for (int i = 0; runtime != nullptr && i < kMostMs && hosts(); ++i) {
    Unlocked([&] { return SleepFor(runtime->get(), 1'000'000); });
    LetGoOfFinished(gpu);
  }
  // The device may still write to this host memory, so it is leaked. Closing the GPU takes care of the code.
  std::vector<Ended> last = std::exchange(gpu.ended, {});
  for (Ended& ended : last) {
    static_cast<void>(new std::vector<std::shared_ptr<void>>(std::move(ended.kept.hosts)));
  }
}

}  // namespace gpushare::python
