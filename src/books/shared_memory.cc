// SPDX-License-Identifier: Apache-2.0
#include "books/shared_memory.h"

#include <iterator>
#include <mutex>
#include <utility>

namespace gpushare::books {

using Guard = std::lock_guard<quota::SpinLock>;

SharedMemory::Object* SharedMemory::Find(const Place& place) {
  const auto at = objects_.find(place.handle);
  return at != objects_.end() && at->second.number == place.number ? &at->second : nullptr;
}

SharedMemory::Ended SharedMemory::EndIfUnused(const Place& place, const Object& object) {
  if (object.references + object.uses + object.leaving > 0) return {};
  Ended ended = object;
  objects_.erase(place.handle);
  return ended;
}

SharedMemory::Ended SharedMemory::Add(uint64_t handle, const quota::Allocation& charge,
                                      int device) {
  const Guard guard(lock_);
  const auto [at, added] = objects_.try_emplace(handle);
  Ended before;
  if (!added) before = std::move(at->second);
  at->second = {.charge = charge, .device = device, .number = ++numbers_, .bindings = {}};
  return before;
}

bool SharedMemory::AddOrRetain(uint64_t handle, const quota::Allocation& charge, int device) {
  const Guard guard(lock_);
  const auto [at, added] = objects_.try_emplace(handle);
  if (added) {
    at->second = {.charge = charge, .device = device, .number = ++numbers_, .bindings = {}};
  } else {
    ++at->second.references;
  }
  return added;
}

SharedMemory::Place SharedMemory::Retain(uint64_t handle) {
  const Guard guard(lock_);
  const auto at = objects_.find(handle);
  if (at == objects_.end()) return {};
  ++at->second.references;
  return {handle, at->second.number};
}

SharedMemory::Place SharedMemory::Leave(uint64_t handle) {
  const Guard guard(lock_);
  const auto at = objects_.find(handle);
  if (at == objects_.end() || at->second.references == 0) return {};
  --at->second.references;
  ++at->second.leaving;
  return {handle, at->second.number};
}

SharedMemory::Ended SharedMemory::Left(const Place& place) {
  const Guard guard(lock_);
  Object* const object = Find(place);
  if (object == nullptr) return {};
  --object->leaving;
  return EndIfUnused(place, *object);
}

void SharedMemory::Stay(const Place& place) {
  const Guard guard(lock_);
  Object* const object = Find(place);
  if (object == nullptr) return;
  --object->leaving;
  ++object->references;
}

SharedMemory::Place SharedMemory::Use(uint64_t handle) {
  const Guard guard(lock_);
  const auto at = objects_.find(handle);
  if (at == objects_.end()) return {};
  ++at->second.uses;
  return {handle, at->second.number};
}

SharedMemory::Ended SharedMemory::Unuse(const Place& place) {
  const Guard guard(lock_);
  Object* const object = Find(place);
  if (object == nullptr) return {};
  --object->uses;
  return EndIfUnused(place, *object);
}

bool SharedMemory::Bind(uint64_t multicast, const Place& memory, uint64_t offset, uint64_t bytes) {
  const Guard guard(lock_);
  const auto at = objects_.find(multicast);
  const Object* const bound = Find(memory);
  if (at == objects_.end() || bound == nullptr) return false;
  at->second.bindings.push_back({memory, bound->device, offset, bytes});
  return true;
}

std::optional<SharedMemory::Binding> SharedMemory::Unbind(uint64_t multicast, int device,
                                                          uint64_t offset, uint64_t bytes) {
  const Guard guard(lock_);
  const auto at = objects_.find(multicast);
  if (at == objects_.end()) return {};
  auto& bindings = at->second.bindings;
  for (auto one = bindings.begin(); one != bindings.end(); ++one) {
    if (one->device != device || one->offset != offset || one->bytes != bytes) continue;
    const Binding found = *one;
    bindings.erase(one);
    return found;
  }
  return {};
}

void SharedMemory::Rebind(uint64_t multicast, const Binding& binding) {
  const Guard guard(lock_);
  const auto at = objects_.find(multicast);
  if (at != objects_.end()) at->second.bindings.push_back(binding);
}

void SharedMemory::Map(const Mapping& mapping) {
  const Guard guard(lock_);
  mappings_[mapping.address] = mapping;
}

std::vector<SharedMemory::Mapping> SharedMemory::TakeMappings(uint64_t address, uint64_t bytes) {
  std::vector<Mapping> taken;
  const Guard guard(lock_);
  auto at = mappings_.lower_bound(address);
  while (at != mappings_.end() && at->first - address < bytes) {
    taken.push_back(at->second);
    at = mappings_.erase(at);
  }
  return taken;
}

std::optional<SharedMemory::Mapping> SharedMemory::FindMapping(uint64_t address) const {
  const Guard guard(lock_);
  auto at = mappings_.upper_bound(address);
  if (at == mappings_.begin()) return {};
  --at;
  if (address - at->first >= at->second.bytes) return {};
  return at->second;
}

void SharedMemory::ForEach(const std::function<void(const Object&)>& visit) const {
  const Guard guard(lock_);
  for (const auto& [handle, object] : objects_) visit(object);
}

}  // namespace gpushare::books
