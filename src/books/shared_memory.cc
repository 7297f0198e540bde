// SPDX-License-Identifier: Apache-2.0
#include "books/shared_memory.h"

#include <iterator>
#include <mutex>
#include <utility>

namespace gpushare::books {

using Guard = std::lock_guard<quota::SpinLock>;

SharedMemory::Object* SharedMemory::Find(Place place) {
  Object* const object = objects_.Find(place.handle);
  if (object != nullptr && object->number == place.number) return object;
  return orphans_.empty() ? nullptr : orphans_.Find(place.number);
}

SharedMemory::Object& SharedMemory::New(uint64_t handle, const quota::Allocation& charge,
                                        int device) {
  Object& object = objects_.Insert(handle);
  object.Begin(charge, device, ++numbers_);
  return object;
}

void SharedMemory::Orphan(uint64_t handle, Object& object) {
  const uint64_t number = object.number;
  orphans_.Put(number, std::move(object)).orphan = true;
  objects_.Erase(handle);
}

void SharedMemory::Revive(Object& object) {
  if (std::exchange(object.stranded, false)) stranded_.fetch_sub(1);
}

SharedMemory::Ended SharedMemory::EndIfUnused(Place place, Object& object) {
  if ((object.references | object.uses | object.leaving) != 0) return {};
  if (object.exports > 0) {
    if (!std::exchange(object.stranded, true)) stranded_.fetch_add(1);
    return {};
  }
  Revive(object);
  Ended ended = RemainsOf(object);
  if (object.orphan) {
    orphans_.Erase(place.number);
  } else {
    objects_.Erase(place.handle);
  }
  return ended;
}

SharedMemory::Ended SharedMemory::Add(uint64_t handle, const quota::Allocation& charge,
                                      int device) {
  const Guard guard(lock_);
  if (Object* const object = objects_.Find(handle)) {
    if (object->references > 0) {
      Revive(*object);
      Ended before = RemainsOf(*object);
      object->Begin(charge, device, ++numbers_);
      return before;
    }
    Orphan(handle, *object);
  }
  New(handle, charge, device);
  return {};
}

bool SharedMemory::AddOrRetain(uint64_t handle, const quota::Allocation& charge, int device) {
  const Guard guard(lock_);
  if (Object* const object = objects_.Find(handle)) {
    if (object->references > 0) {
      ++object->references;
      return false;
    }
    Orphan(handle, *object);  // it was destroyed, but a buffer of it still exists
  }
  New(handle, charge, device);
  return true;
}

bool SharedMemory::Adopt(uint64_t handle, const Place& known, int device) {
  const Guard guard(lock_);
  if (Object* const object = objects_.Find(handle)) {
    if (object->references > 0 || (known && object->number == known.number)) {
      Revive(*object);
      ++object->references;
      return false;
    }
    Orphan(handle, *object);
  }
  std::vector<Binding> stands_for;
  if (known) stands_for.push_back({known, device, 0, 0});
  Object& object = New(handle, {}, device);
  object.imported = !known;
  object.bindings = std::move(stands_for);
  return static_cast<bool>(known);
}

SharedMemory::Place SharedMemory::Leave(uint64_t handle) {
  const Guard guard(lock_);
  Object* const object = objects_.Find(handle);
  if (object == nullptr || object->references == 0) return {};
  --object->references;
  ++object->leaving;
  return {handle, object->number};
}

SharedMemory::Ended SharedMemory::Left(Place place) {
  const Guard guard(lock_);
  Object* const object = Find(place);
  if (object == nullptr) return {};
  --object->leaving;
  return EndIfUnused(place, *object);
}

void SharedMemory::Stay(Place place) {
  const Guard guard(lock_);
  Object* const object = Find(place);
  if (object == nullptr) return;
  --object->leaving;
  ++object->references;
}

SharedMemory::Place SharedMemory::Use(uint64_t handle) {
  const Guard guard(lock_);
  Object* const object = objects_.Find(handle);
  if (object == nullptr) return {};
  Revive(*object);
  ++object->uses;
  return {handle, object->number};
}

SharedMemory::Place SharedMemory::Use(Place place) {
  const Guard guard(lock_);
  Object* const object = place ? Find(place) : nullptr;
  if (object == nullptr) return {};
  Revive(*object);
  ++object->uses;
  return place;
}

SharedMemory::Ended SharedMemory::Unuse(Place place) {
  const Guard guard(lock_);
  Object* const object = place ? Find(place) : nullptr;
  if (object == nullptr) return {};
  --object->uses;
  return EndIfUnused(place, *object);
}

SharedMemory::Place SharedMemory::Export(uint64_t handle) {
  const Guard guard(lock_);
  Object* const object = objects_.Find(handle);
  if (object == nullptr) return {};
  ++object->exports;
  return {handle, object->number};
}

SharedMemory::Ended SharedMemory::Unexport(Place place) {
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
  if (charge.account != account) return 0;  // another account has just mapped it first
  return end - std::exchange(charge.bytes, end);
}

bool SharedMemory::Bind(uint64_t multicast, const Place& memory, uint64_t offset, uint64_t bytes) {
  const Guard guard(lock_);
  Object* const object = objects_.Find(multicast);
  const Object* const bound = Find(memory);
  if (object == nullptr || bound == nullptr) return false;
  object->bindings.push_back({memory, bound->device, offset, bytes});
  return true;
}

std::optional<SharedMemory::Binding> SharedMemory::Unbind(uint64_t multicast, int device,
                                                          uint64_t offset, uint64_t bytes) {
  const Guard guard(lock_);
  Object* const object = objects_.Find(multicast);
  if (object == nullptr) return {};
  auto& bindings = object->bindings;
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
  Object* const object = objects_.Find(multicast);
  if (object != nullptr) object->bindings.push_back(binding);
}

int SharedMemory::DeviceOf(const Place& memory) {
  const Guard guard(lock_);
  const Object* const object = Find(memory);
  return object != nullptr ? object->device : 0;
}

std::optional<SharedMemory::Mapping> SharedMemory::Map(const Mapping& mapping) {
  const Guard guard(lock_);
  if (spare_mappings_.capacity() < kMostSpares) spare_mappings_.reserve(kMostSpares);
  if (!spare_mappings_.empty()) {
    auto node = std::move(spare_mappings_.back());
    spare_mappings_.pop_back();
    node.key() = mapping.address;
    node.mapped() = mapping;
    const auto there = mappings_.insert(std::move(node));
    if (there.inserted) return {};
    return std::exchange(there.position->second, mapping);
  }
  const auto [at, added] = mappings_.try_emplace(mapping.address, mapping);
  if (added) return {};
  return std::exchange(at->second, mapping);
}

SharedMemory::Mappings SharedMemory::TakeMappings(uint64_t address, uint64_t bytes) {
  Mappings taken;
  const Guard guard(lock_);
  const auto first = mappings_.lower_bound(address);
  size_t count = 0;
  for (auto at = first; at != mappings_.end() && at->first - address < bytes; ++at) ++count;
  taken.reserve(count);
  auto at = first;
  while (at != mappings_.end() && at->first - address < bytes) {
    taken.push_back(at->second);
    auto node = mappings_.extract(at++);
    if (spare_mappings_.size() < kMostSpares) spare_mappings_.push_back(std::move(node));
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

SharedMemory::Ended SharedMemory::TakeOne(
    const std::function<bool(const quota::Allocation&)>& wanted) {
  Ended taken;
  const Guard guard(lock_);
  for (NodeTable<Object>* table : {&objects_, &orphans_}) {
    table->EraseIf([&](Object& object) {
      if (taken.has_value() || !wanted(object.charge)) return false;
      std::erase_if(mappings_, [&](const auto& mapping) {
        return mapping.second.memory.number == object.number;
      });
      Revive(object);
      taken = RemainsOf(object);
      return true;
    });
  }
  return taken;
}

void SharedMemory::ForEach(const std::function<void(const Object&)>& visit) const {
  const Guard guard(lock_);
  objects_.ForEach(visit);
  orphans_.ForEach(visit);
}

}  // namespace gpushare::books
