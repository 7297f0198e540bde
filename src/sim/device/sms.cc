// SPDX-License-Identifier: Apache-2.0
// A device that knows each of its SMs by number, because kernels keep to partitions.
#include <algorithm>
#include <utility>

#include "sim/device/device.h"
#include "sim/stream/stream.h"

namespace gpushare::sim {

void Device::KnowSms() {
  if (knows_sms_) return;
  knows_sms_ = true;
  all_ = SmSet::Range(0, sm_units_);
  free_ = all_;
  unknown_ = free_.Take(all_, sm_units_ - free_sms_, /*last=*/true);
}

uint32_t Device::NewBatch(const Command* command, SmSet sms) {
  if (unused_batches_.empty()) {
    unused_batches_.push_back(static_cast<uint32_t>(batches_.size()));
    batches_.emplace_back();
  }
  const uint32_t batch = unused_batches_.back();
  unused_batches_.pop_back();
  batches_[batch] = {command, command->generation, std::move(sms)};
  return batch;
}

// Starts the ready kernels in their order, each as far as SMs are free where it may run: a kernel with a full partition does
// not delay the others. A kernel without a partition begins with the last SMs, since partitions are cut off from the first on.
void Device::DispatchToSms(Timeline& timeline, uint64_t now) {
  for (uint32_t level = 0; level < ready_.size() && free_sms_ > 0; ++level) {
    Queue& queue = ready_[level];
    Command* previous = nullptr;
    for (Command *command = queue.head, *next; command != nullptr && free_sms_ > 0;
         command = next) {
      next = command->link;
      KernelWork& kernel = command->kernel;
      // In serial mode a kernel has the whole device, wherever it may run.
      const bool anywhere = command->partition == kWholeDevice || config.serial;
      SmSet taken = free_.Take(anywhere ? all_ : PartitionOf(command->partition).sms, kernel.left,
                               /*last=*/anywhere);
      const uint32_t groups = taken.count();
      if (groups == 0) {
        previous = command;
        continue;
      }
      if (kernel.stamped && kernel.left == kernel.groups) command->began = now;
      Hold(command, groups);
      kernel.left -= groups;
      const uint32_t batch = NewBatch(command, std::move(taken));
      FinishLater(command, Due::kBatch, batch, timeline, now);
      if (kernel.left > 0) {
        previous = command;
        continue;
      }
      (previous != nullptr ? previous->link : queue.head) = next;
      if (queue.tail == command) queue.tail = previous;
      command->link = nullptr;
    }
    if (queue.head == nullptr) levels_ &= ~(1u << level);
  }
  stuck_ = true;
}

bool Device::FinishBatch(Command* command, uint32_t batch, uint64_t now) {
  SmSet sms = std::exchange(batches_[batch].sms, SmSet());
  batches_[batch].command = nullptr;
  unused_batches_.push_back(batch);
  Integrate(now);
  Release(command, sms.count());
  free_.Add(sms);
  if (command->kernel.left != 0 || command->kernel.resident != 0) return false;
  ++command->account->kernels;
  return true;
}

// Any of them will do: nobody knows which ended, and no other kernel sees a difference.
void Device::FreeUnknown(uint32_t groups) { free_.Add(unknown_.TakeAny(groups)); }

void Device::FreeBatchesOf(const Command* command) {
  uint32_t known = 0;
  for (uint32_t i = 0; i < batches_.size(); ++i) {
    Batch& batch = batches_[i];
    if (batch.command != command || batch.generation != command->generation) continue;
    known += batch.sms.count();
    free_.Add(std::exchange(batch.sms, SmSet()));
    batch.command = nullptr;
    unused_batches_.push_back(i);
  }
  FreeUnknown(command->kernel.resident - known);
}

}  // namespace gpushare::sim
