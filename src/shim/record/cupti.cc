// SPDX-License-Identifier: Apache-2.0
#include "shim/record/cupti.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/sync.h"

namespace gpushare::shim::recording {
namespace {

// A buffer holds many records. CUPTI requires this alignment.
constexpr size_t kBufferBytes = size_t{1} << 20, kAlignment = 8;
constexpr uint32_t kFlushForced = 1;

// The records that CUPTI has delivered. Global, because its callbacks have no user parameter.
struct Brought {
  base::Mutex mutex;
  std::vector<Cupti::Kernel> kernels ABSL_GUARDED_BY(mutex);
  uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  int (*next)(uint8_t*, size_t, CuptiKernel**) = nullptr;
  int (*dropped_of)(void*, uint32_t, size_t*) = nullptr;
};
Brought& TheBrought() {
  static auto& brought = *new Brought;
  return brought;
}

void GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;
}

Cupti::Kernel KernelOf(const CuptiKernel& record) {
  const auto size = [](const int32_t(&of)[3]) {
    uint64_t product = 1;
    for (const int32_t each : of) product *= static_cast<uint64_t>(std::max(each, 1));
    return product;
  };
  Cupti::Kernel kernel;
  kernel.name = record.name != nullptr ? record.name : "";
  kernel.blocks = size(record.grid);
  kernel.threads = static_cast<uint32_t>(std::min<uint64_t>(size(record.block), 1 << 16));
  kernel.dynamic_shared = static_cast<uint32_t>(std::max(record.dynamic_shared, 0));
  kernel.start = Nanos(static_cast<int64_t>(record.start));
  // CUPTI reports zeroes for a kernel that it had no memory to time.
  kernel.took = record.start == 0 || record.end < record.start
                    ? Nanos(-1)
                    : Nanos(static_cast<int64_t>(record.end - record.start));
  return kernel;
}

void TakeBuffer(void* context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  Brought& brought = TheBrought();
  CuptiKernel* record = nullptr;
  while (valid > 0 && brought.next(buffer, valid, &record) == 0) {
    if (record->kind != CuptiKernel::kAlone && record->kind != CuptiKernel::kConcurrent) continue;
    Cupti::Kernel kernel = KernelOf(*record);
    const base::MutexLock lock(&brought.mutex);
    brought.kernels.push_back(std::move(kernel));
  }
  size_t dropped = 0;
  if (brought.dropped_of(context, stream, &dropped) == 0 && dropped > 0) {
    const base::MutexLock lock(&brought.mutex);
    brought.dropped += dropped;
  }
  std::free(buffer);
}

// The paths to try, the newest version that the driver supports first.
std::vector<std::string> Places(int driver_version) {
  if (const auto given = base::GetEnv("GPUSHARE_CUPTI"); given.has_value()) return {*given};
  std::vector<std::string> places;
  for (int major = std::max(driver_version / 1000, 12); major >= 12; --major) {
    const std::string name = absl::StrCat("libcupti.so.", major);
    for (const char* folder :
         {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"}) {
      places.push_back(absl::StrCat(folder, name));
    }
  }
  return places;
}

}  // namespace

struct Cupti::Calls {
  int (*register_callbacks)(decltype(&GiveBuffer), decltype(&TakeBuffer)) = nullptr;
  int (*enable)(uint32_t) = nullptr;
  int (*disable)(uint32_t) = nullptr;
  int (*flush)(uint32_t) = nullptr;
  int (*text_of)(int, const char**) = nullptr;
};

Cupti::Cupti(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}
Cupti::~Cupti() { Stop(); }

std::unique_ptr<Cupti> Cupti::Open(const driver::Driver& driver, std::string* why) {
  if (driver.simulated() && !base::GetEnv("GPUSHARE_CUPTI").has_value()) {
    *why = "CUPTI knows no simulated GPU";
    return nullptr;
  }
  void* library = nullptr;
  for (const std::string& place : Places(driver.version())) {
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    *why = "there is no CUPTI (libcupti.so.12 or newer; GPUSHARE_CUPTI names its file)";
    return nullptr;
  }
  // NVIDIA's CUPTI needs driver interfaces that the simulated GPU lacks.
  if (driver.simulated() && dlsym(library, "gpushare_cupti_of_simulated_gpu") == nullptr) {
    *why = "this CUPTI knows no simulated GPU";
    return nullptr;
  }
  auto calls = std::make_unique<Calls>();
  Brought& brought = TheBrought();
  bool whole = true;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    whole = whole && *function != nullptr;
  };
  find(&calls->register_callbacks, "cuptiActivityRegisterCallbacks");
  find(&calls->enable, "cuptiActivityEnable");
  find(&calls->disable, "cuptiActivityDisable");
  find(&calls->flush, "cuptiActivityFlushAll");
  find(&calls->text_of, "cuptiGetResultString");
  find(&brought.next, "cuptiActivityGetNextRecord");
  find(&brought.dropped_of, "cuptiActivityGetNumDroppedRecords");
  if (!whole) {
    *why = "this CUPTI lacks what is needed of it";
    return nullptr;
  }
  return std::unique_ptr<Cupti>(new Cupti(std::move(calls)));
}

std::string Cupti::TextOf(int result) const {
  const char* text = nullptr;
  return calls_->text_of(result, &text) == 0 && text != nullptr ? text
                                                                : absl::StrCat("error ", result);
}

bool Cupti::Start(std::string* why) {
  int result = calls_->register_callbacks(&GiveBuffer, &TakeBuffer);
  if (result == 0) result = calls_->enable(CuptiKernel::kConcurrent);
  started_ = result == 0;
  if (!started_) *why = absl::StrCat("CUPTI refuses: ", TextOf(result));
  return started_;
}

void Cupti::Stop() {
  if (std::exchange(started_, false)) calls_->disable(CuptiKernel::kConcurrent);
}

std::vector<Cupti::Kernel> Cupti::Take() {
  calls_->flush(kFlushForced);
  Brought& brought = TheBrought();
  std::vector<Kernel> kernels;
  {
    const base::MutexLock lock(&brought.mutex);
    kernels.swap(brought.kernels);
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Kernel& a, const Kernel& b) { return a.start < b.start; });
  return kernels;
}

uint64_t Cupti::TakeDropped() {
  Brought& brought = TheBrought();
  const base::MutexLock lock(&brought.mutex);
  return std::exchange(brought.dropped, 0);
}

}  // namespace gpushare::shim::recording
