// SPDX-License-Identifier: Apache-2.0
// What cuGetProcAddress() is asked for, by name: the symbols that the name may mean, the driver's function and our hook
// of each, and what was answered before.
//
//   ProcNames names(symbols, [](const Symbol& s) { return driver_function; }, [](const Symbol& s) { return hook; });
//   if (ProcNames::Name* name = names.Find("cuMemAlloc")) {
//     void* known = name->Find(version, flags);                  // null: not answered yet
//     const ProcNames::Meaning* meant = name->Meant(version, /*per_thread=*/false);
//     name->Remember(version, flags, answer);
//   }
//
// Most programs ask for hundreds of names, once each: so all is looked up in one go before, and what is needed for a name lies
// together.
//
// Threading: what is made stays as it is; Find() and Remember() may be called by any number of threads.
#ifndef GPUSHARE_SHIM_PROC_NAMES_H_
#define GPUSHARE_SHIM_PROC_NAMES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "driver/symbols.h"

namespace gpushare::shim {

class ProcNames {
 public:
  // A symbol that a name may mean.
  struct Meaning {
    int version;
    bool per_thread;
    const void* exported;  // what the driver exports by the symbol's own name; null: nothing
    void* hook;            // null: there is none
  };

  class alignas(64) Name {
   public:
    // As driver::AnswerSymbol() has it; null: none.
    const Meaning* Meant(int version, bool per_thread) const;
    bool any_hook() const { return any_hook_; }

    // What was remembered of a question; null: nothing.
    void* Find(int version, uint64_t flags) const {
      if (flags > kMostFlags) return nullptr;
      const uint64_t question = QuestionOf(version, flags);
      for (const Answer& answer : answers_) {
        if (answer.question.load(std::memory_order_acquire) == question) return answer.function;
      }
      return nullptr;
    }
    // The first few questions are; of others the driver is asked each time.
    void Remember(int version, uint64_t flags, void* function);

   private:
    friend class ProcNames;
    struct Answer {
      std::atomic<uint64_t> question{kFree};
      void* function = nullptr;  // before the question
    };
    static constexpr uint64_t kFree = 0, kTaken = 1;
    static constexpr uint64_t kMostFlags = 0x3fffffff;  // there are three
    // Never one of these.
    static uint64_t QuestionOf(int version, uint64_t flags) {
      return uint64_t{static_cast<uint32_t>(version)} << 32 | flags << 2 | 2;
    }

    std::string_view name_;
    const Meaning* meanings_ = nullptr;
    uint32_t count_ = 0;
    bool any_hook_ = false;
    std::array<Answer, 3> answers_;
  };

  ProcNames(std::span<const driver::Symbol> symbols,
            absl::FunctionRef<const void*(size_t index)> exported,
            absl::FunctionRef<void*(const driver::Symbol& symbol)> hook);

  // Null: no symbol that is known has it.
  Name* Find(std::string_view name) const {
    for (size_t at = Hash(name) >> shift_;; at = (at + 1) & (places_.size() - 1)) {
      const uint16_t index = places_[at];
      if (index == kNobody) return nullptr;
      if (names_[index].name_ == name) return &names_[index];
    }
  }

 private:
  static constexpr uint16_t kNobody = 0xffff;

  static uint64_t Hash(std::string_view name);

  std::vector<Meaning> meanings_;
  std::unique_ptr<Name[]> names_;
  std::vector<uint16_t> places_;  // a power of two of them
  int shift_ = 0;
};

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_PROC_NAMES_H_
