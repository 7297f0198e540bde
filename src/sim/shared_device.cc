// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace gpushare::sim {
namespace {

SharedSettings SettingsOf(const Config& config) {
  return {.memory = config.memory,
          .teardown = config.teardown,
          .slice = config.slice,
          .slice_switch = config.slice_switch,
          .sms = static_cast<uint32_t>(config.sms),
          .serial = config.serial ? 1u : 0u,
          .virtual_clock = config.virtual_clock ? 1u : 0u,
          .processes = config.processes};
}

}  // namespace

std::unique_ptr<SharedDevice> SharedDevice::Join(const Config& config, const Clock& clock,
                                                 std::string* error) {
  std::unique_ptr<SharedDevice> device(new SharedDevice(clock));
  *error = device->file_.OpenLocked(config.shared);
  if (error->empty()) {
    *error = device->Enter(config);
    device->file_.Unlock();
  }
  if (!error->empty()) {
    *error = "shared=" + config.shared + ": " + *error;
    return nullptr;
  }
  return device;
}

void SharedDevice::Initialize() {
  segment_->magic = 0;
  for (ProcessPlace& place : segment_->places) place.incarnation = 0;
  for (Teardown& teardown : segment_->teardowns) teardown.incarnation = 0;
  for (SharedEvent& event : segment_->events) {
    event.number = event.latest = event.users = event.waiting = 0;
    for (uint32_t i = 0; i < kPlaces; ++i) event.recorded[i] = event.completed[i] = 0;
  }
  segment_->event_numbers = 0;
  segment_->version = kSegmentVersion;
  segment_->cpu = -1;
  segment_->settings = settings_;
  segment_->incarnations = 0;
  segment_->now = 0;
  segment_->holder = segment_->owner = segment_->last_owner = kNobody;
  segment_->contended = 0;
  segment_->slice_start = segment_->slice_end = 0;
  segment_->magic = kSegmentMagic;
}

std::string SharedDevice::Enter(const Config& config) {
  settings_ = SettingsOf(config);
  segment_ = static_cast<Segment*>(file_.Map(sizeof(Segment)));
  if (segment_ == nullptr) return "its file is not that of a shared device, or cannot be mapped";
  // The device is as old as the longest-lived of those who have it.
  if (!file_.IsClaimed(0, kPlaces)) Initialize();
  if (segment_->magic != kSegmentMagic || segment_->version != kSegmentVersion) {
    return "its file is not that of a shared device of this version";
  }
  if (!(segment_->settings == settings_)) {
    return "other processes have the device with other settings; memory, sms, overlap, clock, "
           "slice, slice_switch, teardown and processes must be the same in all";
  }
  Sweep();
  for (uint32_t i = 0; i < kPlaces && place_ == kNobody; ++i) {
    if (config.place >= 0 && i != static_cast<uint32_t>(config.place)) continue;
    if (segment_->places[i].incarnation == 0 && file_.Claim(i)) place_ = i;
  }
  if (place_ == kNobody) {
    return config.place >= 0 ? "place=" + std::to_string(config.place) + " is taken"
                             : "all of its " + std::to_string(kPlaces) + " places are taken";
  }
  ProcessPlace& place = own();
  place.bytes = 0;
  place.pid = getpid();
  place.turn = place.request = place.waits = place.wants = 0;
  place.next_thread = place.next_event = place.lost_at = kForever;
  if (settings_.virtual_clock != 0) {
    // As soon as it is counted among those that are there it is due, and the others wait for it.
    segment_->now = Now();
    place.next_thread = uint64_t{segment_->now};
  }
  place.incarnation = incarnation_ = ++segment_->incarnations;
  joined_ = true;
  return std::string();
}

void SharedDevice::Leave() {
  const Locked locked(*this);
  if (!joined_) return;
  joined_ = false;
  const bool had_turn = segment_->holder == place_;
  DeclareOver(place_);
  if (had_turn) turn_.Give(turn_.IsReady() ? turn_.Pick() : kNobody);
  file_.Disclaim(place_);
  if (!file_.IsClaimed(0, kPlaces)) file_.Remove();
}

uint64_t SharedDevice::Now() const {
  const uint64_t now = clock_.Read();
  // The machine's clock goes by itself, whatever was written there.
  if (settings_.virtual_clock == 0) return now;
  return std::min(std::max(now, uint64_t{segment_->now}), kLastNow);
}

bool SharedDevice::IsDead(uint32_t place) const {
  return place != place_ && segment_->places[place].incarnation != 0 && !file_.IsClaimed(place);
}

bool SharedDevice::IsGone(uint32_t place) const {
  return place >= kPlaces || segment_->places[place].incarnation == 0 || IsDead(place);
}

void SharedDevice::Repair() {
  if (!joined()) return;
  ProcessPlace& place = own();
  if (place.incarnation != incarnation_) place.incarnation = incarnation_;
  if (segment_->incarnations < incarnation_) segment_->incarnations = incarnation_;
  const uint32_t holder = segment_->holder;
  if (holder != kNobody && IsGone(holder)) segment_->holder = kNobody;
}

void SharedDevice::Forget() {
  file_.Close();
  // A mapping keeps the file open, and with it the parent's locks after the parent is gone.
  constexpr int kOwn = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(segment_, sizeof(Segment), PROT_READ | PROT_WRITE, kOwn, -1, 0) == MAP_FAILED) {
    munmap(segment_, sizeof(Segment));
  }
  if (arena_ < 0) return;
  // Copied as it is written: the parent's pages stay as the parent has them.
  void* const pages = reinterpret_cast<void*>(arena_address_);
  if (mmap(pages, arena_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED,
           arena_, 0) == MAP_FAILED) {
    mprotect(pages, arena_bytes_, PROT_NONE);
  }
}

// Whoever is killed in the middle of this leaves it to be done again: a second teardown of the same
// incarnation is not begun, and the place is free last.
void SharedDevice::DeclareOver(uint32_t number) {
  ProcessPlace& place = segment_->places[number];
  const uint64_t incarnation = place.incarnation;
  const uint64_t bytes = std::min(place.bytes.load(), settings_.memory);
  const uint64_t now = Now();
  if (incarnation != 0 && bytes > 0) {
    Teardown* to = nullptr;
    Teardown* last = &segment_->teardowns[0];
    bool begun = false;
    for (Teardown& teardown : segment_->teardowns) {
      if (teardown.incarnation == incarnation) begun = true;
      if (teardown.incarnation == 0 || teardown.freed_at <= now) to = &teardown;
      if (teardown.freed_at > last->freed_at) last = &teardown;
    }
    if (!begun && to != nullptr) {
      to->incarnation = 0;
      to->bytes = bytes;
      to->pid = place.pid.load();
      to->freed_at = now + settings_.teardown;
      to->incarnation = incarnation;
    } else if (!begun) {
      // More at one time than there is room to tell apart.
      last->bytes = std::min(settings_.memory, last->bytes + bytes);
      last->freed_at = now + settings_.teardown;
      last->incarnation = incarnation;
    }
  }
  if (segment_->holder == number) segment_->holder = kNobody;
  slices_.Release(number, now);
  events_.Release(number, now);
  place.incarnation = 0;
}

void SharedDevice::Sweep() {
  for (uint32_t i = 0; i < kPlaces; ++i) {
    if (IsDead(i)) DeclareOver(i);
  }
}

uint64_t SharedDevice::HeldByOthers() {
  const uint64_t now = Now();
  uint64_t left = settings_.memory;
  const auto take = [&left](uint64_t bytes) { left -= std::min(left, bytes); };
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const ProcessPlace& place = segment_->places[i];
    if (i != place_ && place.incarnation != 0) take(place.bytes);
  }
  for (Teardown& teardown : segment_->teardowns) {
    if (teardown.incarnation == 0) continue;
    const uint64_t latest = now + settings_.teardown;
    if (teardown.freed_at > latest) teardown.freed_at = latest;
    if (teardown.freed_at <= now) {
      teardown.incarnation = 0;
    } else {
      take(teardown.bytes);
    }
  }
  return settings_.memory - left;
}

bool SharedDevice::Hold(uint64_t bytes) {
  const Locked locked(*this);
  if (!joined_) return true;  // the process is about to end
  if (bytes > settings_.memory) return false;
  if (HeldByOthers() > settings_.memory - bytes) {
    Sweep();
    if (HeldByOthers() > settings_.memory - bytes) return false;
  }
  own().bytes = bytes;
  return true;
}

void SharedDevice::HoldLess(uint64_t bytes) {
  const Locked locked(*this);
  if (joined_) own().bytes = bytes;
}

uint64_t SharedDevice::Left() {
  const Locked locked(*this);
  Sweep();
  const uint64_t held = HeldByOthers();
  const uint64_t bytes = own().bytes;
  return settings_.memory - std::min(settings_.memory, held + std::min(bytes, settings_.memory));
}

std::vector<Holding> SharedDevice::Holdings() {
  const Locked locked(*this);
  Sweep();
  HeldByOthers();  // forgets what is torn down
  std::vector<Holding> holdings;
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const ProcessPlace& place = segment_->places[i];
    if (place.incarnation == 0) continue;
    holdings.push_back(
        {.bytes = std::min(place.bytes.load(), settings_.memory), .pid = place.pid, .place = i});
  }
  for (const Teardown& teardown : segment_->teardowns) {
    if (teardown.incarnation == 0) continue;
    holdings.push_back({.bytes = std::min(teardown.bytes.load(), settings_.memory),
                        .freed_at = teardown.freed_at,
                        .pid = teardown.pid});
  }
  return holdings;
}

bool SharedDevice::IsAlive(uint64_t incarnation) {
  const Locked locked(*this);
  for (uint32_t i = 0; i < kPlaces && incarnation != 0; ++i) {
    if (segment_->places[i].incarnation == incarnation) return !IsDead(i);
  }
  return false;
}

void* SharedDevice::NewArena(uint64_t bytes) {
  if (arena_ >= 0) close(arena_);
  arena_ = memfd_create("gpushare-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (arena_ < 0) return MAP_FAILED;
  void* mapped = MAP_FAILED;
  // Sealed: who maps it can rely on its size.
  if (ftruncate(arena_, static_cast<off_t>(bytes)) == 0 &&
      fcntl(arena_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena_, 0);
  }
  if (mapped == MAP_FAILED) {
    close(arena_);
    arena_ = -1;
  }
  arena_address_ = reinterpret_cast<uint64_t>(mapped);
  arena_bytes_ = bytes;
  return mapped;
}

std::string SharedDevice::Check() {
  const Locked locked(*this);
  Sweep();  // whoever was killed in the middle of that left it half done
  return CheckSegment(*segment_, settings_);
}

}  // namespace gpushare::sim
