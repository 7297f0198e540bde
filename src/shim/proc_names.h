// SPDX-License-Identifier: Apache-2.0
// The names that cuGetProcAddress() can be asked for. For each: the symbols that the name may mean, with the driver's function
// and the hook, and the earlier answers.
//
//   ProcNames names(symbols, [](const Symbol& s) { return driver_function; }, [](const Symbol& s) { return hook; });
//   if (ProcNames::Name* name = names.Find("cuMemAlloc")) {
//     void* known = name->Find(version, flags);                  // null if not answered yet
//     const ProcNames::Meaning* meant = name->Meant(version, /*per_thread=*/false);
//     name->Remember(version, flags, answer);
//   }
//
// Most programs ask for hundreds of names, once each. So everything is looked up beforehand in one pass, and the data of a
// name is kept together in memory.
//
// Threading: immutable but for the remembered answers; Find() and Remember() may be called by any number of threads.
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
    const void* exported;  // the driver's export of the symbol's own name; may be null
    void* hook;            // null if not hooked
  };

  class alignas(64) Name {
   public:
    // The symbol that driver::AnswerSymbol() chooses; null if none.
    const Meaning* Meant(int version, bool per_thread) const;
    bool any_hook() const { return any_hook_; }

    // The remembered answer; null if there is none.
    void* Find(int version, uint64_t flags) const {
      if (flags > kMostFlags) return nullptr;
      const uint64_t question = QuestionOf(version, flags);
      for (const Answer& answer : answers_) {
        if (answer.question.load(std::memory_order_acquire) == question) return answer.function;
      }
      return nullptr;
    }
    // Remembers an answer to each of the first few questions. The driver is asked again for any other.
    void Remember(int version, uint64_t flags, void* function);

   private:
    friend class ProcNames;
    struct Answer {
      std::atomic<uint64_t> question{kFree};
      void* function = nullptr;  // is written before `question`
    };
    static constexpr uint64_t kFree = 0, kTaken = 1;
    static constexpr uint64_t kMostFlags = 0x3fffffff;  // the driver defines three flags
    // Never kFree or kTaken.
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

  // Null if no known symbol has the name.
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
  std::vector<uint16_t> places_;  // a hash table; its size is a power of two
  int shift_ = 0;
};

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_PROC_NAMES_H_
