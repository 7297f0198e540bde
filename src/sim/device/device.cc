// SPDX-License-Identifier: Apache-2.0
#include "sim/device/device.h"

#include <algorithm>
#include <cmath>

#include "sim/device/stamps.h"
#include "sim/processes/device.h"
#include "sim/stream/stream.h"

namespace gpushare::sim {

Device::Device(int device_ordinal, int device_which, const Config& device_config)
    : ordinal(device_ordinal),
      which(device_which),
      config(device_config),
      memory(device_config.memory, device_config.page),
      sm_units_(device_config.serial ? 1 : static_cast<uint32_t>(device_config.sms)),
      free_sms_(sm_units_),
      random_(device_config.seed * 1000003 + static_cast<uint64_t>(device_which)) {}

Account* Device::FindAccount(uint32_t number) {
  std::unique_ptr<Account>& account = accounts_[number];
  if (account == nullptr) {
    account = std::make_unique<Account>();
    account->number = number;
  }
  return account.get();
}

// Ends a sample. Nothing began or ended between the last integration and `now`.
void Device::EndSample(uint64_t now) {
  const uint64_t end = now / kSample * kSample, begin = end - kSample;
  const bool running = !holding_.empty() && !is_paused();
  const auto percent = [&](double until_now, double sample_begin, bool goes_on) {
    const auto at = [&](uint64_t time) {
      return goes_on ? until_now + static_cast<double>(time - integrated_) : until_now;
    };
    const double busy = at(end) - (begin < integrated_ ? sample_begin : at(begin));
    return static_cast<uint32_t>(std::lround(100 * busy / kSample));
  };
  utilization_ = {percent(busy_ns_, sample_busy_ns_, running),
                  percent(transfer_ns_, sample_transfer_ns_, transfers_ > 0)};
  const auto since = static_cast<double>(end - integrated_);
  sample_busy_ns_ = running ? busy_ns_ + since : busy_ns_;
  sample_transfer_ns_ = transfers_ == 0 ? transfer_ns_ : transfer_ns_ + since;
  sample_end_ = end + kSample;
  if (shared_ != nullptr) {
    shared_->Publish(static_cast<uint32_t>(which),
                     SampleOf(end, utilization_.kernels_percent, utilization_.copies_percent));
  }
}

void Device::IntegrateTo(uint64_t now) {
  if (now >= sample_end_) [[unlikely]]
    EndSample(now);
  const uint64_t elapsed = now - integrated_;
  integrated_ = now;
  if (transfers_ > 0) transfer_ns_ += static_cast<double>(elapsed);
  if (holding_.empty() || is_paused()) return;
  const uint32_t held = sm_units_ - free_sms_;
  const auto dt = static_cast<double>(elapsed);
  busy_ns_ += dt;
  sm_ns_ += held == sm_units_ ? dt : dt * held / sm_units_;
  for (Account* account : holding_) {
    account->used_ns += account->sms_held == held ? dt : dt * account->sms_held / held;
    account->work_ns += dt * account->work_rate;
    account->sm_ns += dt * account->sms_held / sm_units_;
  }
}

void Device::StartKernel(Command* command) {
  Queue& queue = ready_[command->level];
  command->link = nullptr;
  (queue.head != nullptr ? queue.tail->link : queue.head) = command;
  queue.tail = command;
  levels_ |= 1u << command->level;
  stuck_ = false;
}

void Device::Dispatch(Timeline& timeline, uint64_t now) {
  if (!needs_dispatch()) return;
  Integrate(now);
  if (knows_sms_) [[unlikely]]
    return DispatchToSms(timeline, now);
  while (needs_dispatch()) {
    const auto level = static_cast<uint32_t>(__builtin_ctz(levels_));
    Queue& queue = ready_[level];
    Command* const command = queue.head;
    KernelWork& kernel = command->kernel;
    const uint32_t groups = std::min(free_sms_, kernel.left);
    if (kernel.stamped && kernel.left == kernel.groups) [[unlikely]]
      command->began = now;
    Hold(command, groups);
    kernel.left -= groups;
    if (kernel.left == 0) {
      queue.head = command->link;
      command->link = nullptr;
      if (queue.head == nullptr) levels_ &= ~(1u << level);
    }
    FinishLater(command, Due::kGroups, groups, timeline, now);
  }
}

void Device::FinishLater(Command* command, Due due, uint32_t count, Timeline& timeline,
                         uint64_t now) {
  const KernelWork& kernel = command->kernel;
  if (kernel.hangs != hang_era_) [[likely]]
    return timeline.Push(now + kernel.group_ns, command, due, count);
  std::erase_if(hung_,
                [](const Hung& hung) { return hung.generation != hung.command->generation; });
  hung_.push_back({command, command->generation, due, count});
}

void Device::LetHungGo(Timeline& timeline, uint64_t now) {
  ++hang_era_;
  for (const Hung& hung : std::exchange(hung_, {})) {
    if (hung.generation != hung.command->generation) continue;  // its context is gone
    timeline.Push(now + hung.command->kernel.group_ns, hung.command, hung.due, hung.count);
  }
  if (is_paused()) TakeOff(timeline, now);
}

void Device::StartRecord(Command* command, Timeline& timeline, uint64_t now) {
  ++records_;
  timeline.Push(now + config.record_device, command, Due::kDone, 0);
  if (is_paused()) TakeOff(timeline, now);
}

// Takes the events of the kernels and records off the timeline; their times become relative to the pause.
void Device::TakeOff(Timeline& timeline, uint64_t now) {
  const size_t before = paused_.size();
  timeline.Extract(
      [this](const TimelineEvent& event) {
        const Command& command = *event.command;
        if (event.generation != command.generation || command.stream->device != this) return false;
        return event.due() == Due::kGroups || event.due() == Due::kBatch ||
               (event.due() == Due::kDone && command.type == CommandType::kRecord);
      },
      &paused_);
  for (size_t i = before; i < paused_.size(); ++i) {
    paused_[i].at -= std::min(paused_[i].at, now);
  }
}

void Device::Pause(Timeline& timeline, uint64_t now) {
  if (is_paused()) return;
  if (now > integrated_) Integrate(now);
  open_levels_ = 0;
  paused_at_ = now;
  TakeOff(timeline, now);
}

void Device::Resume(Timeline& timeline, uint64_t now) {
  if (!is_paused()) return;
  if (now > integrated_) Integrate(now);
  integrated_ = now;  // on the wall clock the resumption may be in the past
  open_levels_ = ~0u;
  for (TimelineEvent& event : paused_) {
    Command& command = *event.command;
    if (event.generation == command.generation && command.type == CommandType::kKernel &&
        command.kernel.tells_away && !WriteAway(command, paused_at_, now)) {
      command.kernel.faults = true;
    }
    event.at += now;
    timeline.Insert(event);
  }
  paused_.clear();
}

bool Device::FinishGroups(Command* command, uint32_t count, uint64_t now) {
  Integrate(now);
  Release(command, count);
  if (knows_sms_) [[unlikely]]
    FreeUnknown(count);
  if (command->kernel.left != 0 || command->kernel.resident != 0) return false;
  ++command->account->kernels;
  return true;
}

Device::Queue& Device::EngineOf(const Command* command) {
  if (command->type == CommandType::kSet) return engines_[2];
  switch (command->type == CommandType::kPrefetch ? command->prefetch.direction
                                                  : command->copy.direction) {
    case CopyDirection::kHostToDevice:
      return engines_[0];
    case CopyDirection::kDeviceToHost:
      return engines_[1];
    default:
      return engines_[2];
  }
}

void Device::StartTransfer(Command* command, Timeline& timeline, uint64_t now) {
  Queue& engine = EngineOf(command);
  command->link = nullptr;
  (engine.head != nullptr ? engine.tail->link : engine.head) = command;
  engine.tail = command;
  BeginTransfer(engine, timeline, now);
}

void Device::BeginTransfer(Queue& engine, Timeline& timeline, uint64_t now) {
  if (engine.busy || engine.head == nullptr) return;
  Command* const command = engine.head;
  CopyDirection direction = CopyDirection::kDeviceToDevice;
  uint64_t bytes;
  if (command->type == CommandType::kSet) {
    bytes = command->set.width * command->set.element * command->set.rows;
  } else if (command->type == CommandType::kPrefetch) {
    bytes = command->prefetch.missing;
    direction = command->prefetch.direction;
  } else {
    bytes = command->copy.total();
    direction = command->copy.direction;
  }
  const double rate = direction == CopyDirection::kHostToDevice   ? config.h2d
                      : direction == CopyDirection::kDeviceToHost ? config.d2h
                                                                  : config.d2d;
  engine.busy = true;
  Integrate(now);
  ++transfers_;
  const auto takes = static_cast<uint64_t>(std::llround(static_cast<double>(bytes) / rate));
  engine.begins = now;
  if (shared_ != nullptr) [[unlikely]]
    engine.begins = shared_->TakeEngine(static_cast<uint32_t>(which), IndexOf(engine), now, takes);
  engine.ends = engine.begins + takes;
  timeline.Push(engine.ends, command, Due::kDone, 0);
}

void Device::FinishTransfer(Command* command, Timeline& timeline, uint64_t now) {
  Queue& engine = EngineOf(command);
  engine.head = command->link;
  command->link = nullptr;
  engine.busy = false;
  if (shared_ != nullptr && now < engine.ends) [[unlikely]] {  // the transfer was cancelled
    shared_->ReturnEngine(static_cast<uint32_t>(which), IndexOf(engine), engine.ends,
                          std::max(now, engine.begins));
  }
  Integrate(now);
  --transfers_;
  BeginTransfer(engine, timeline, now);
}

void Device::Cancel(Command* command, Timeline& timeline, uint64_t now) {
  if (command->type == CommandType::kKernel) {
    Integrate(now);
    if (knows_sms_) FreeBatchesOf(command);
    if (command->kernel.resident > 0) Release(command, command->kernel.resident);
    if (command->kernel.left == 0) return;
    Queue& queue = ready_[command->level];
    Command* previous = nullptr;
    for (Command* at = queue.head; at != nullptr; previous = at, at = at->link) {
      if (at != command) continue;
      (previous != nullptr ? previous->link : queue.head) = at->link;
      if (queue.tail == at) queue.tail = previous;
      break;
    }
    if (queue.head == nullptr) levels_ &= ~(1u << command->level);
    return;
  }
  Queue& engine = EngineOf(command);
  if (engine.head == command) {
    FinishTransfer(command, timeline, now);
    return;
  }
  for (Command* at = engine.head; at != nullptr; at = at->link) {
    if (at->link != command) continue;
    at->link = command->link;
    if (engine.tail == command) engine.tail = at;
    return;
  }
}

double Device::NoiseFactor() {
  if (config.noise == 0) return 1;
  double normal = spare_normal_;
  if (!has_spare_) {
    // The Box-Muller transform, written out because std::normal_distribution differs between libraries.
    const double u = (static_cast<double>(random_() >> 11) + 1) * 0x1p-53;
    const double v = static_cast<double>(random_() >> 11) * 0x1p-53;
    const double radius = std::sqrt(-2 * std::log(u));
    normal = radius * std::cos(6.283185307179586 * v);
    spare_normal_ = radius * std::sin(6.283185307179586 * v);
  }
  has_spare_ = !has_spare_;
  // A lognormal factor with mean 1 and relative standard deviation `noise`.
  const double variance = std::log1p(config.noise * config.noise);
  return std::exp(std::sqrt(variance) * normal - variance / 2);
}

}  // namespace gpushare::sim
