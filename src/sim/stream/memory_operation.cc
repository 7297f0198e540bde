// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/memory_operation.h"

#include <utility>
#include <vector>

#include "sim/memory/address.h"
#include "sim/processes/device.h"
#include "sim/state.h"

namespace gpushare::sim {
namespace {

// Null when the device has no access to the word.
uint8_t* FindWord(const Command& command, Access access) {
  const ValueWork& work = command.value;
  if (!IsOperand(work.address, work.bytes)) return nullptr;
  const Piece piece = FindPiece(work.address, work.bytes, command.stream->device->ordinal, access);
  return piece.kind == Piece::Kind::kBytes ? piece.bytes : nullptr;
}

bool Compare(ValueCompare compare, uint64_t now, uint64_t value, bool wide) {
  switch (compare) {
    case ValueCompare::kAtLeast:
      // The comparison is cyclic, as for sequence numbers.
      return wide ? static_cast<int64_t>(now - value) >= 0
                  : static_cast<int32_t>(static_cast<uint32_t>(now - value)) >= 0;
    case ValueCompare::kEqual:
      return now == value;
    case ValueCompare::kAnyBit:
      return (now & value) != 0;
    case ValueCompare::kAnyBitClear:
      return (wide ? ~(now | value) : uint32_t{~static_cast<uint32_t>(now | value)}) != 0;
  }
  return false;
}

enum class Outcome : uint8_t { kBlocked, kSatisfied, kFault };

// Threads of the host may write the word meanwhile.
Outcome Look(const Command& command) {
  const ValueWork& work = command.value;
  if (work.bytes == 0) {
    SharedDevice* const shared = state().shared;
    const auto index = static_cast<uint32_t>(work.address);
    return shared == nullptr || shared->events().IsComplete(index, work.value) ? Outcome::kSatisfied
                                                                               : Outcome::kBlocked;
  }
  const uint8_t* const word = FindWord(command, Access::kRead);
  if (word == nullptr) return Outcome::kFault;
  const bool wide = work.bytes == 8;
  const uint64_t now =
      wide ? __atomic_load_n(reinterpret_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE)
           : __atomic_load_n(reinterpret_cast<const uint32_t*>(word), __ATOMIC_ACQUIRE);
  return Compare(work.compare, now, work.value, wide) ? Outcome::kSatisfied : Outcome::kBlocked;
}

}  // namespace

ValueWork SharedRecord(uint32_t index, uint64_t record) {
  return {.address = index, .value = record, .bytes = 0, .compare = ValueCompare::kAtLeast};
}

bool IsOperand(uint64_t address, uint32_t bytes) {
  if (const HostRange* const host = state().host.Find(address); host != nullptr) {
    return bytes <= host->size - (address - host->address);
  }
  const Known known = Lookup(address);
  if (known.mapping != nullptr && known.mapping->allocation->team != nullptr) return false;
  return IsDeviceAddress(address) && IsUsableRange(address, bytes);
}

void BlockOnValue(Command* command) {
  State& s = state();
  s.value_waits.push_back({command, command->generation});
  s.clock.SetBlocked(static_cast<int>(s.value_waits.size()));
}

void CheckValueWaits() {
  State& s = state();
  std::vector<std::pair<Eligible, Outcome>> over;
  size_t kept = 0;
  for (const Eligible& wait : s.value_waits) {
    if (wait.command->generation != wait.generation) continue;  // dropped with its stream
    const Outcome outcome = Look(*wait.command);
    if (outcome == Outcome::kBlocked) {
      s.value_waits[kept++] = wait;
    } else {
      over.emplace_back(wait, outcome);
    }
  }
  s.value_waits.resize(kept);
  s.clock.SetBlocked(static_cast<int>(kept));
  for (const auto& [wait, outcome] : over) {
    if (wait.command->generation != wait.generation) continue;
    Context* const context = wait.command->stream->context;
    Complete(wait.command);
    if (outcome == Outcome::kFault) LoseContext(context, kIllegalAddress);
  }
}

bool WriteValue(const Command& command) {
  uint8_t* const word = FindWord(command, Access::kWrite);
  if (word == nullptr) return false;
  if (command.value.bytes == 8) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(word), command.value.value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(word), static_cast<uint32_t>(command.value.value),
                     __ATOMIC_RELEASE);
  }
  return true;
}

}  // namespace gpushare::sim
