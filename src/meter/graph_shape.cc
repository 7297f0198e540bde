// SPDX-License-Identifier: Apache-2.0
#include "meter/graph_shape.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <queue>
#include <tuple>

namespace gpushare::meter {
namespace {

// For each kernel, the set of those that end before it begins.
class Ancestors {
 public:
  explicit Ancestors(size_t kernels) : words_((kernels + 63) / 64), bits_(words_ * kernels) {}
  void Add(uint32_t from, uint32_t to) {
    uint64_t* const set = &bits_[to * words_];
    for (size_t i = 0; i < words_; ++i) set[i] |= bits_[from * words_ + i];
    set[from / 64] |= uint64_t{1} << (from % 64);
  }
  bool Has(uint32_t kernel, uint32_t before) const {
    return (bits_[kernel * words_ + before / 64] >> (before % 64) & 1) != 0;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

// The model of the device.
class Device {
 public:
  Device(const GraphShape& kernels, const Branches& branches, int sm_count)
      : free_(sm_count), kernels_(kernels.size()) {
    constexpr double kMostWaves = 64;  // as in Replay
    for (uint32_t i = 0; i < kernels_.size(); ++i) {
      const double sms =
          std::clamp(std::round(static_cast<double>(kernels[i].footprint) * sm_count), 1.0,
                     kMostWaves * sm_count);
      kernels_[i].waiting = static_cast<int>(sms);
      kernels_[i].unit = static_cast<double>(kernels[i].length) / std::ceil(sms / sm_count);
      kernels_[i].before = branches.Before(i).size();
      for (const uint32_t earlier : branches.Before(i)) kernels_[earlier].behind.push_back(i);
      if (kernels_[i].before == 0) ready_.push_back(i);
    }
  }

  double Run() {
    for (Place(); !running_.empty(); Place()) {
      now_ = running_.top().end;
      while (!running_.empty() && running_.top().end <= now_) End();
    }
    return now_;
  }

 private:
  struct Kernel {
    int waiting = 0, running = 0;  // groups of blocks
    double unit = 0;               // how long each takes
    size_t before = 0;             // kernels that it waits for
    std::vector<uint32_t> behind;
  };
  struct Running {
    double end;
    uint32_t kernel;
    int groups;
    bool operator>(const Running& other) const {
      return std::tie(end, kernel) > std::tie(other.end, other.kernel);
    }
  };

  void Place() {
    while (free_ > 0 && !ready_.empty()) {
      Kernel& kernel = kernels_[ready_.front()];
      const int n = std::min(free_, kernel.waiting);
      running_.push({now_ + kernel.unit, ready_.front(), n});
      kernel.waiting -= n;
      kernel.running += n;
      free_ -= n;
      if (kernel.waiting == 0) ready_.pop_front();
    }
  }

  void End() {
    const Running ended = running_.top();
    running_.pop();
    Kernel& kernel = kernels_[ended.kernel];
    free_ += ended.groups;
    kernel.running -= ended.groups;
    if (kernel.running > 0 || kernel.waiting > 0) return;
    for (const uint32_t next : kernel.behind) {
      if (--kernels_[next].before == 0) ready_.push_back(next);
    }
  }

  int free_;
  double now_ = 0;
  std::vector<Kernel> kernels_;
  std::deque<uint32_t>
      ready_;  // kernels with groups that wait, in the order in which they could begin
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
};

}  // namespace

std::shared_ptr<const Branches> Branches::Of(uint32_t kernels,
                                             std::span<const driver::GraphEdge> edges) {
  const auto made = std::make_shared<Branches>();
  made->branch_of_.resize(kernels);
  made->first_.resize(kernels + 1);
  for (const driver::GraphEdge& edge : edges) ++made->first_[edge.to + 1];
  for (uint32_t i = 0; i < kernels; ++i) made->first_[i + 1] += made->first_[i];
  made->before_.resize(edges.size());
  std::vector<uint32_t> next(made->first_.begin(), made->first_.end());
  for (const driver::GraphEdge& edge : edges) made->before_[next[edge.to]++] = edge.from;

  Ancestors ancestors(kernels);
  std::vector<uint32_t> last;  // kernel of each branch
  for (uint32_t i = 0; i < kernels; ++i) {
    for (const uint32_t earlier : made->Before(i)) ancestors.Add(earlier, i);
    // It goes on with the branch of one that it waits for, directly if possible: such a branch adds no further order.
    const auto goes_on = [&](uint32_t tail) { return ancestors.Has(i, tail); };
    auto branch = std::find_if(last.begin(), last.end(), [&](uint32_t tail) {
      const auto before = made->Before(i);
      return std::find(before.begin(), before.end(), tail) != before.end();
    });
    if (branch == last.end()) branch = std::find_if(last.begin(), last.end(), goes_on);
    made->branch_of_[i] = static_cast<uint32_t>(branch - last.begin());
    if (branch == last.end()) {
      last.push_back(i);
      if (last.size() > kMost || last.size() * kernels > kMostTimesKernels) return nullptr;
    } else {
      *branch = i;
    }
  }
  made->count_ = static_cast<uint32_t>(last.size());
  return made;
}

double LengthTogether(const GraphShape& kernels, const Branches& branches, int sm_count) {
  return Device(kernels, branches, sm_count).Run();
}

}  // namespace gpushare::meter
