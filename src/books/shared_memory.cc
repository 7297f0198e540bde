// SPDX-License-Identifier: Apache-2.0
#include "books/shared_memory.h"

#include <iterator>
#include <mutex>
#include <utility>

namespace gpushare::books {

using Guard = std::lock_guard<quota::SpinLock>;

SharedMemory::Object* SharedMemory::Find(const Place& place) {
  const auto at = objects_.find(place.handle);
  if (at != objects_.end() && at->second.number == place.number) return &at->second;
  if (orphans_.empty()) return nullptr;
  const auto orphan = orphans_.find(place.number);
  return orphan != orphans_.end() ? &orphan->second : nullptr;
}

SharedMemory::Object& SharedMemory::New(uint64_t handle, const quota::Allocation& charge,
                                        int device) {
  return objects_[handle] = {
             .charge = charge, .device = device, .number = ++numbers_, .bindings = {}};
}

void SharedMemory::Orphan(Table::iterator at) {
  orphans_.emplace(at->second.number, std::move(at->second));
  objects_.erase(at);
}

void SharedMemory::Revive(Object& object) {
  if (std::exchange(object.stranded, false)) stranded_.fetch_sub(1);
}

SharedMemory::Ended SharedMemory::EndIfUnused(const Place& place, Object& object) {
  if (object.references + object.uses + object.leaving > 0) return {};
  if (object.exports > 0) {
    if (!std::exchange(object.stranded, true)) stranded_.fetch_add(1);
    return {};
  }
  Revive(object);
  Ended ended = std::move(object);
  const auto at = objects_.find(place.handle);
  if (at != objects_.end() && at->second.number == place.number) {
    objects_.erase(at);
  } else {
    orphans_.erase(place.number);
  }
  return ended;
}

SharedMemory::Ended SharedMemory::Add(uint64_t handle, const quota::Allocation& charge,
                                      int device) {
  const Guard guard(lock_);
  Ended before;
  if (const auto at = objects_.find(handle); at != objects_.end()) {
    if (at->second.references > 0) {
      Revive(at->second);
      before = std::move(at->second);
    } else {
      Orphan(at);
    }
  }
  New(handle, charge, device);
  return before;
}

bool SharedMemory::AddOrRetain(uint64_t handle, const quota::Allocation& charge, int device) {
  const Guard guard(lock_);
  if (const auto at = objects_.find(handle); at != objects_.end()) {
    if (at->second.references > 0) {
      ++at->second.references;
      return false;
    }
    Orphan(at);  // it was destroyed, and a buffer of it lives
  }
  New(handle, charge, device);
  return true;
}

bool SharedMemory::Adopt(uint64_t handle, const Place& known, int device) {
  const Guard guard(lock_);
  if (const auto at = objects_.find(handle); at != objects_.end()) {
    if (at->second.references > 0 || (known && at->second.number == known.number)) {
      Revive(at->second);
      ++at->second.references;
      return false;
    }
    Orphan(at);
  }
  Object& object = New(handle, {}, device);
  object.imported = !known;
  if (known) object.bindings.push_back({known, device, 0, 0});
  return static_cast<bool>(known);
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
  Revive(at->second);
  ++at->second.uses;
  return {handle, at->second.number};
}

SharedMemory::Place SharedMemory::Use(const Place& place) {
  const Guard guard(lock_);
  Object* const object = place ? Find(place) : nullptr;
  if (object == nullptr) return {};
  Revive(*object);
  ++object->uses;
  return place;
}

SharedMemory::Ended SharedMemory::Unuse(const Place& place) {
  const Guard guard(lock_);
  Object* const object = place ? Find(place) : nullptr;
  if (object == nullptr) return {};
  --object->uses;
  return EndIfUnused(place, *object);
}

SharedMemory::Place SharedMemory::Export(uint64_t handle) {
  const Guard guard(lock_);
  const auto at = objects_.find(handle);
  if (at == objects_.end()) return {};
  ++at->second.exports;
  return {handle, at->second.number};
}

SharedMemory::Ended SharedMemory::Unexport(const Place& place) {
  const Guard guard(lock_);
  Object* const object = Find(place);
  if (object == nullptr) return {};
  --object->exports;
  return EndIfUnused(place, *object);
}

uint64_t SharedMemory::Unpaid(const Place& place, uint64_t end, quota::Account** account) {
  const Guard guard(lock_);
  const Object* const object = place ? Find(place) : nullptr;
  if (object == nullptr || !object->imported || object->charge.bytes >= end) return 0;
  *account = object->charge.account;
  return end - object->charge.bytes;
}

uint64_t SharedMemory::Charge(const Place& place, uint64_t end, quota::Account* account,
                              uint32_t owner) {
  const Guard guard(lock_);
  Object* const object = Find(place);
  if (object == nullptr || object->charge.bytes >= end) return 0;
  quota::Allocation& charge = object->charge;
  if (charge.account == nullptr) charge = {0, account, quota::Kind::kHandle, owner, 0};
  if (charge.account != account) return 0;  // who mapped it first at this very moment
  return end - std::exchange(charge.bytes, end);
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

std::optional<SharedMemory::Mapping> SharedMemory::Map(const Mapping& mapping) {
  const Guard guard(lock_);
  const auto [at, added] = mappings_.try_emplace(mapping.address, mapping);
  if (added) return {};
  return std::exchange(at->second, mapping);
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

std::vector<SharedMemory::Object> SharedMemory::TakeWhere(
    const std::function<bool(const quota::Allocation&)>& wanted) {
  std::vector<Object> taken;
  const Guard guard(lock_);
  for (Table* table : {&objects_, &orphans_}) {
    for (auto at = table->begin(); at != table->end();) {
      if (!wanted(at->second.charge)) {
        ++at;
        continue;
      }
      std::erase_if(mappings_, [&](const auto& mapping) {
        return mapping.second.memory.number == at->second.number;
      });
      Revive(at->second);
      taken.push_back(std::move(at->second));
      at = table->erase(at);
    }
  }
  return taken;
}

void SharedMemory::ForEach(const std::function<void(const Object&)>& visit) const {
  const Guard guard(lock_);
  for (const auto& [handle, object] : objects_) visit(object);
  for (const auto& [number, object] : orphans_) visit(object);
}

}  // namespace gpushare::books
