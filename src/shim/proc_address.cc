// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: what the driver answers, with our function where that is hooked.
//
// Whose function it is, proc_answer.h decides.
//
// What was found once is remembered: the driver answers the same each time, and programs ask again and again.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "driver/symbols.h"
#include "shim/gated.h"
#include "shim/hook.h"
#include "shim/proc_answer.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using RealV2 = Driver<"cuGetProcAddress_v2", CUresult(const char*, void**, int, cuuint64_t,
                                                      CUdriverProcAddressQueryResult*)>;
using RealV1 = Driver<"cuGetProcAddress", CUresult(const char*, void**, int, cuuint64_t)>;

// Answers that were found, by what was asked. An entry stays as it is for as long as the process; whoever finds its
// place taken by another is asked for anew each time.
class Answers {
 public:
  struct Question {
    std::string_view name;
    int version;
    cuuint64_t flags;
  };

  void* Find(const Question& question) const {
    const Entry* const entry = PlaceOf(question).load(std::memory_order_acquire);
    if (entry == nullptr || entry->version != question.version || entry->flags != question.flags ||
        entry->name != question.name) {
      return nullptr;
    }
    return entry->function;
  }
  void Remember(const Question& question, void* function) {
    std::atomic<const Entry*>& place = PlaceOf(question);
    if (place.load(std::memory_order_relaxed) != nullptr) return;
    auto entry = std::make_unique<const Entry>(
        Entry{std::string(question.name), question.version, question.flags, function});
    const Entry* nobody = nullptr;
    if (place.compare_exchange_strong(nobody, entry.get(), std::memory_order_release)) {
      static_cast<void>(entry.release());
    }
  }

 private:
  struct Entry {
    std::string name;
    int version;
    cuuint64_t flags;
    void* function;
  };
  static constexpr size_t kPlaces = 2048;

  std::atomic<const Entry*>& PlaceOf(const Question& question) const {
    const size_t hash = std::hash<std::string_view>()(question.name) ^
                        (static_cast<size_t>(question.version) * 0x9e3779b97f4a7c15u) ^
                        static_cast<size_t>(question.flags) << 32;
    return places_[(hash * 0x9e3779b97f4a7c15u) >> 53];
  }
  mutable std::array<std::atomic<const Entry*>, kPlaces> places_{};
};
constinit Answers answers;

// Of each symbol, looked up when it is asked for first: the function that the driver exports by its name, and our hook of
// it. Most programs ask for hundreds of names, once each.
class Functions {
 public:
  void* Exported(const driver::Symbol& symbol) {
    return Find(symbol, &Pair::exported, [](const char* name) { return RealEntry(name); });
  }
  void* Hook(const driver::Symbol& symbol) {
    return Find(symbol, &Pair::hook, [](const char* name) { return FindHook(name); });
  }

 private:
  struct Pair {
    std::atomic<void*> exported{nullptr}, hook{nullptr};  // null: not looked up
  };
  static constexpr size_t kMost = 1024;

  template <typename LookUp>
  void* Find(const driver::Symbol& symbol, std::atomic<void*> Pair::*which, const LookUp& look_up) {
    const auto index = static_cast<size_t>(&symbol - driver::Symbols().data());
    if (index >= kMost) return look_up(std::string(symbol.name).c_str());
    std::atomic<void*>& place = pairs_[index].*which;
    void* found = place.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = look_up(std::string(symbol.name).c_str());
      if (found == nullptr) found = this;  // there is none
      place.store(found, std::memory_order_release);
    }
    return found == this ? nullptr : found;
  }

  std::array<Pair, kMost> pairs_{};
};
constinit Functions functions;

// `ask(function, version)` asks the driver.
template <typename Ask>
CUresult Answer(const char* name, void** function, int version, cuuint64_t flags, bool* too_new,
                const Ask& ask) {
  *too_new = false;
  const CUresult result = ask(function, version);
  if (result != CUDA_SUCCESS || name == nullptr || function == nullptr || *function == nullptr) {
    return result;
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  // What the driver exports by the symbol's own name has its ABI: it need not be asked once more.
  const driver::Symbol* const meant = driver::AnswerSymbol(name, version, per_thread);
  if (meant != nullptr && functions.Exported(*meant) == *function) {
    if (void* const hook = functions.Hook(*meant)) *function = hook;
    return result;
  }
  const ProcAnswer answer = AnswerFor(
      {name, version, per_thread}, *function,
      [&](int at) -> const void* {
        void* found = nullptr;
        return ask(&found, at) == CUDA_SUCCESS ? found : nullptr;
      },
      [&](const driver::Symbol& symbol) { return functions.Hook(symbol) != nullptr; });
  if (answer.what == ProcAnswer::kOurs) *function = functions.Hook(*answer.symbol);
  if (answer.what != ProcAnswer::kTooNew) return result;
  *too_new = true;
  *function = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

CUresult GetProcAddressV2(const char* name, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  return Guarded([&] {
    const bool asks = name != nullptr && function != nullptr;
    if (void* const known = asks ? answers.Find({name, version, flags}) : nullptr) {
      *function = known;
      if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
      return CUDA_SUCCESS;
    }
    CUdriverProcAddressQueryResult ignored;
    bool first = true, too_new = false;
    const CUresult result =
        Answer(name, function, version, flags, &too_new, [&](void** found, int asked) {
          CUdriverProcAddressQueryResult* const told = first ? status : &ignored;
          first = false;
          return RealV2::Call(name, found, asked, flags, told);
        });
    if (too_new && status != nullptr) *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (asks && result == CUDA_SUCCESS && *function != nullptr) {
      answers.Remember({name, version, flags}, *function);
    }
    return result;
  });
}

CUresult GetProcAddressV1(const char* name, void** function, int version, cuuint64_t flags) {
  return Guarded([&] {
    bool too_new = false;
    return Answer(name, function, version, flags, &too_new,
                  [&](void** found, int asked) { return RealV1::Call(name, found, asked, flags); });
  });
}

}  // namespace

void AddLoaderHooks(Hooks* hooks) {
  Add<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
      hooks, "cuGetProcAddress_v2", &GetProcAddressV2);
  Add<CUresult(const char*, void**, int, cuuint64_t)>(hooks, "cuGetProcAddress", &GetProcAddressV1);
}

}  // namespace gpushare::shim
