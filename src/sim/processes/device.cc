// SPDX-License-Identifier: Apache-2.0
#include "sim/processes/device.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace gpushare::sim {
namespace {

constexpr long kLookForDeaths = 5'000'000;  // ns

SharedSettings SettingsOf(const Config& config) {
  return {.memory = config.memory,
          .teardown = config.teardown,
          .slice = config.slice,
          .slice_switch = config.slice_switch,
          .h2d = config.h2d,
          .d2h = config.d2h,
          .d2d = config.d2d,
          .sms = static_cast<uint32_t>(config.sms),
          .serial = config.serial ? 1u : 0u,
          .virtual_clock = config.virtual_clock ? 1u : 0u,
          .processes = config.processes,
          .devices = static_cast<uint32_t>(config.devices)};
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
  for (SharedMemory& memory : segment_->memories) memory.number = 0;
  segment_->memory_numbers = 0;
  segment_->version = kSegmentVersion;
  segment_->cpu = -1;
  segment_->settings = settings_;
  segment_->incarnations = 0;
  segment_->now = 0;
  segment_->holder = kNobody;
  for (SharedGpu& gpu : segment_->gpus) {
    gpu.owner = gpu.last_owner = kNobody;
    gpu.contended = 0;
    gpu.slice_start = gpu.slice_end = 0;
    for (auto& end : gpu.engine_end) end = 0;
  }
  segment_->magic = kSegmentMagic;
}

std::string SharedDevice::Enter(const Config& config) {
  settings_ = SettingsOf(config);
  segment_ = static_cast<Segment*>(file_.Map(sizeof(Segment)));
  if (segment_ == nullptr) return "its file is not that of a shared device, or cannot be mapped";
  // The shared device begins when its first process joins and ends with its last.
  if (!file_.IsClaimed(0, kPlaces)) Initialize();
  if (segment_->magic != kSegmentMagic || segment_->version != kSegmentVersion) {
    return "its file is not that of a shared device of this version";
  }
  if (!(segment_->settings == settings_)) {
    return "other processes have the device with other settings; devices, memory, sms, overlap, "
           "h2d, d2h, d2d, clock, slice, slice_switch, teardown and processes must be the same in "
           "all";
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
  for (ShareOfGpu& share : place.gpus) {
    share.bytes = 0;
    share.wants = 0;
    share.lost_at = kForever;
    share.sample = 0;
  }
  place.pid = getpid();
  place.turn = place.request = place.waits = 0;
  place.next_thread = place.next_event = kForever;
  if (settings_.virtual_clock != 0) {
    // From the moment when the process counts as present it is due, and the others wait for it.
    segment_->now = Now();
    place.next_thread = uint64_t{segment_->now};
  }
  place.incarnation = incarnation_ = ++segment_->incarnations;
  joined_ = true;
  // Without a teardown time, memory is free at once, and nobody has to notice when the teardown begins.
  if (settings_.virtual_clock == 0 && settings_.teardown > 0) WatchForDeaths();
  return std::string();
}

void SharedDevice::WatchForDeaths() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // only the program's threads handle signals
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  // If the machine has no thread left, a teardown begins when some process looks.
  pthread_create(
      &thread, &detached,
      [](void* device) -> void* {
        NameOwnThread();
        auto* const self = static_cast<SharedDevice*>(device);
        const timespec pause = {.tv_sec = 0, .tv_nsec = kLookForDeaths};
        while (self->joined()) {
          nanosleep(&pause, nullptr);
          const Locked locked(*self);
          if (self->joined_) self->Sweep();
        }
        return nullptr;
      },
      this);
  pthread_attr_destroy(&detached);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
  // The machine's clock does not depend on what was written there.
  if (settings_.virtual_clock == 0) return now;
  return std::max(now, AsNow(segment_->now));
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
  // The mapping would keep the file open, and the parent's locks locked, after the parent is gone.
  constexpr int kOwn = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(segment_, sizeof(Segment), PROT_READ | PROT_WRITE, kOwn, -1, 0) == MAP_FAILED) {
    munmap(segment_, sizeof(Segment));
  }
  for (const Arena& arena : arenas_) {
    if (arena.file < 0) continue;
    // Copy-on-write: the parent's pages stay unchanged.
    void* const pages = reinterpret_cast<void*>(arena.address);
    if (mmap(pages, arena.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED,
             arena.file, 0) == MAP_FAILED) {
      mprotect(pages, arena.bytes, PROT_NONE);
    }
  }
}

// If this process is killed in the middle, another one repeats this: a second teardown of the same incarnation is not begun,
// and the place is freed last.
void SharedDevice::DeclareOver(uint32_t number) {
  ProcessPlace& place = segment_->places[number];
  const uint64_t incarnation = place.incarnation;
  uint64_t bytes[kGpus], all = 0;
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    bytes[gpu] = std::min(place.gpus[gpu].bytes.load(), settings_.memory);
  }
  // What other processes hold too stays.
  for (const SharedMemory& memory : segment_->memories) {
    const uint32_t gpu = memory.gpu;
    if (memory.number == 0 || memory.owner != number || gpu >= kGpus ||
        (memory.holders & ~(uint64_t{1} << number)) == 0) {
      continue;
    }
    bytes[gpu] -= std::min(bytes[gpu], memory.bytes.load());
  }
  for (const uint64_t of_one : bytes) all |= of_one;
  const uint64_t now = Now();
  if (incarnation != 0 && all > 0) {
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
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) to->bytes[gpu] = bytes[gpu];
      to->pid = place.pid.load();
      to->freed_at = now + settings_.teardown;
      to->incarnation = incarnation;
    } else if (!begun) {
      // More simultaneous teardowns than there are slots: this one joins the last to end.
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
        last->bytes[gpu] = std::min(settings_.memory, last->bytes[gpu] + bytes[gpu]);
      }
      last->freed_at = now + settings_.teardown;
      last->incarnation = incarnation;
    }
  }
  if (segment_->holder == number) segment_->holder = kNobody;
  slices_.Release(number, now);
  events_.Release(number, now);
  for (SharedMemory& memory : segment_->memories) {
    if (memory.number != 0) DropMemory(memory, number);
  }
  place.incarnation = 0;
}

void SharedDevice::Sweep() {
  for (uint32_t i = 0; i < kPlaces; ++i) {
    if (IsDead(i)) DeclareOver(i);
  }
}

void SharedDevice::ForgetTornDown() {
  const uint64_t now = Now();
  for (Teardown& teardown : segment_->teardowns) {
    if (teardown.incarnation == 0) continue;
    const uint64_t latest = now + settings_.teardown;
    if (teardown.freed_at > latest) teardown.freed_at = latest;
    if (teardown.freed_at <= now) teardown.incarnation = 0;
  }
}

uint64_t SharedDevice::HeldByOthers(uint32_t gpu) {
  ForgetTornDown();
  uint64_t left = settings_.memory;
  const auto take = [&left](uint64_t bytes) { left -= std::min(left, bytes); };
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const ProcessPlace& place = segment_->places[i];
    if (i != place_ && place.incarnation != 0) take(place.gpus[gpu].bytes);
  }
  for (const Teardown& teardown : segment_->teardowns) {
    if (teardown.incarnation != 0) take(teardown.bytes[gpu]);
  }
  if (segment_->memory_numbers == 0) return settings_.memory - left;
  for (const SharedMemory& memory : segment_->memories) {
    if (memory.number != 0 && memory.owner == kNobody && memory.gpu == gpu) take(memory.bytes);
  }
  return settings_.memory - left;
}

void SharedDevice::Publish(uint32_t gpu, uint64_t sample) {
  if (joined()) own().gpus[gpu].sample = sample;
}

std::vector<SharedDevice::Sample> SharedDevice::Samples(uint32_t gpu) {
  const Locked locked(*this);
  Sweep();
  std::vector<Sample> samples;
  for (const ProcessPlace& place : segment_->places) {
    const uint64_t sample = place.gpus[gpu].sample;
    if (place.incarnation != 0 && sample != 0) samples.push_back({place.pid, sample});
  }
  return samples;
}

uint64_t SharedDevice::GiveMemory(uint32_t gpu, uint64_t bytes) {
  const Locked locked(*this);
  if (!joined_) return 0;
  for (SharedMemory& memory : segment_->memories) {
    if (memory.number != 0) continue;
    memory.gpu = gpu;
    memory.bytes = bytes;
    memory.owner = place_;
    memory.holders = uint64_t{1} << place_;
    memory.number = ++segment_->memory_numbers;
    return memory.number;
  }
  return 0;
}

bool SharedDevice::HoldMemory(uint64_t number, uint32_t gpu, uint64_t bytes) {
  const Locked locked(*this);
  if (!joined_ || number == 0 || bytes > settings_.memory) return false;
  Sweep();
  SharedMemory* free = nullptr;
  for (SharedMemory& memory : segment_->memories) {
    if (memory.number == number) {
      memory.holders |= uint64_t{1} << place_;
      return true;
    }
    if (memory.number == 0) free = &memory;
  }
  // No process held it any more: only a descriptor in transit kept it.
  const uint64_t own_bytes = std::min(own().gpus[gpu].bytes.load(), settings_.memory);
  if (free == nullptr || HeldByOthers(gpu) + own_bytes > settings_.memory - bytes) {
    return false;
  }
  free->gpu = gpu;
  free->bytes = bytes;
  free->owner = kNobody;
  free->holders = uint64_t{1} << place_;
  if (segment_->memory_numbers < number) segment_->memory_numbers = number;
  free->number = number;
  return true;
}

void SharedDevice::DropMemory(uint64_t number) {
  const Locked locked(*this);
  if (!joined_) return;
  for (SharedMemory& memory : segment_->memories) {
    if (memory.number == number) DropMemory(memory, place_);
  }
}

void SharedDevice::DropMemory(SharedMemory& memory, uint32_t place) {
  const uint64_t others = memory.holders & ~(uint64_t{1} << place);
  if (others == 0) {
    memory.number = 0;
    return;
  }
  if (memory.owner == place) memory.owner = kNobody;
  memory.holders = others;
}

bool SharedDevice::Hold(uint32_t gpu, uint64_t bytes) {
  const Locked locked(*this);
  if (!joined_) return true;  // the process is about to end
  if (bytes > settings_.memory) return false;
  if (HeldByOthers(gpu) > settings_.memory - bytes) {
    Sweep();
    if (HeldByOthers(gpu) > settings_.memory - bytes) return false;
  }
  own().gpus[gpu].bytes = bytes;
  return true;
}

void SharedDevice::HoldLess(uint32_t gpu, uint64_t bytes) {
  const Locked locked(*this);
  if (joined_) own().gpus[gpu].bytes = bytes;
}

uint64_t SharedDevice::Left(uint32_t gpu) {
  const Locked locked(*this);
  Sweep();
  const uint64_t held = HeldByOthers(gpu);
  const uint64_t bytes = own().gpus[gpu].bytes;
  return settings_.memory - std::min(settings_.memory, held + std::min(bytes, settings_.memory));
}

std::vector<Holding> SharedDevice::Holdings(uint32_t gpu) {
  const Locked locked(*this);
  Sweep();
  ForgetTornDown();
  std::vector<Holding> holdings;
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const ProcessPlace& place = segment_->places[i];
    if (place.incarnation == 0) continue;
    holdings.push_back({.bytes = std::min(place.gpus[gpu].bytes.load(), settings_.memory),
                        .pid = place.pid,
                        .place = i});
    // Memory that belongs to no process is reported with its first holder.
    for (const SharedMemory& memory : segment_->memories) {
      if (memory.number == 0 || memory.owner != kNobody || memory.gpu != gpu ||
          static_cast<uint32_t>(std::countr_zero(memory.holders.load())) != i) {
        continue;
      }
      holdings.back().bytes = std::min(holdings.back().bytes + memory.bytes, settings_.memory);
    }
  }
  for (const Teardown& teardown : segment_->teardowns) {
    // There is nothing to tear down on a GPU where the process held nothing.
    if (teardown.incarnation == 0 || teardown.bytes[gpu] == 0) continue;
    holdings.push_back({.bytes = std::min(teardown.bytes[gpu].load(), settings_.memory),
                        .freed_at = teardown.freed_at,
                        .pid = teardown.pid});
  }
  return holdings;
}

uint64_t SharedDevice::TakeEngine(uint32_t gpu, uint32_t engine, uint64_t now, uint64_t ns) {
  const Locked locked(*this);
  if (!joined()) return now;
  std::atomic<uint64_t>& end = segment_->gpus[gpu].engine_end[engine];
  // Each process gives the engine one transfer at a time, and none takes longer than a copy of all of the memory, or this one.
  // A later end is nonsense.
  const double slowest = std::min({settings_.h2d, settings_.d2h, settings_.d2d});
  const double longest = static_cast<double>(settings_.memory) / slowest;
  const uint64_t most = kPlaces * (ns + static_cast<uint64_t>(std::min(longest, 1e12)));
  const uint64_t before = end;
  const uint64_t begins = before > now && before - now <= most ? before : now;
  end = begins + ns;
  return begins;
}

void SharedDevice::ReturnEngine(uint32_t gpu, uint32_t engine, uint64_t end, uint64_t now) {
  const Locked locked(*this);
  if (joined() && segment_->gpus[gpu].engine_end[engine] == end) {
    segment_->gpus[gpu].engine_end[engine] = now;
  }
}

bool SharedDevice::IsAlive(uint64_t incarnation) {
  const Locked locked(*this);
  for (uint32_t i = 0; i < kPlaces && incarnation != 0; ++i) {
    if (segment_->places[i].incarnation == incarnation) return !IsDead(i);
  }
  return false;
}

void* SharedDevice::NewArena(uint32_t gpu, uint64_t bytes) {
  Arena& arena = arenas_[gpu];
  if (arena.file >= 0) close(arena.file);
  arena.file = memfd_create("gpushare-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (arena.file < 0) return MAP_FAILED;
  void* mapped = MAP_FAILED;
  // Sealed, so that a process that maps it can rely on its size.
  if (ftruncate(arena.file, static_cast<off_t>(bytes)) == 0 &&
      fcntl(arena.file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    mapped =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena.file, 0);
  }
  if (mapped == MAP_FAILED) {
    close(arena.file);
    arena.file = -1;
  }
  arena.address = reinterpret_cast<uint64_t>(mapped);
  arena.bytes = bytes;
  return mapped;
}

std::string SharedDevice::Check() {
  const Locked locked(*this);
  Sweep();  // repairs what a process killed in the middle left half done
  return CheckSegment(*segment_, settings_);
}

}  // namespace gpushare::sim
