// SPDX-License-Identifier: Apache-2.0
// Hooks of the calls that go through the gate (src/work), generated from the member functions of work::Calls.
//
//   Add(hooks, "cuMemsetD8Async", &Gated<&Calls::MemsetD8Async>::Legacy);
//   Add(hooks, "cuMemsetD8Async_ptsz", &Gated<&Calls::MemsetD8Async>::PerThread);
//
// Also calls the driver's own function by its exported name:
//
//   Driver<"cuStreamWaitValue32", CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned)>::Call(...)
#ifndef GPUSHARE_SHIM_GATED_H_
#define GPUSHARE_SHIM_GATED_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shim/hook.h"
#include "shim/process.h"
#include "work/calls.h"

namespace gpushare::shim {

// Runs `call(calls, payer)` for the process's share.
template <typename Call>
CUresult Submitted(const Call& call) {
  return Guarded([&] {
    Process& process = Process::Get();
    return call(process.calls(), process.payer());
  });
}

// A parameter as the _ptsz variant of a call reads it: a null stream is the per-thread default stream.
template <typename T>
struct PerThreadForm {
  explicit PerThreadForm(T v) : value(v) {}
  T value;
};
template <>
struct PerThreadForm<CUstream> {
  explicit PerThreadForm(CUstream v) : value(PerThread(v)) {}
  CUstream value;
};
template <>
struct PerThreadForm<const CUlaunchConfig*> {
  explicit PerThreadForm(const CUlaunchConfig* v) {
    if (v == nullptr) return;
    copy = *v;
    copy.hStream = PerThread(v->hStream);
    value = &copy;
  }
  CUlaunchConfig copy{};
  const CUlaunchConfig* value = nullptr;
};

template <typename Function>
struct ParametersOf;
template <typename... A>
struct ParametersOf<CUresult (work::Calls::*)(const work::Payer&, A...)> {
  using Tuple = std::tuple<A...>;
  // The last parameter says which default stream a call without a stream uses. The driver's function does not have it.
  static constexpr bool kNullStream = (std::is_same_v<A, work::NullStream> || ...);
  using Indices = std::make_index_sequence<sizeof...(A) - (kNullStream ? 1 : 0)>;
};

template <auto kCall, typename Parameters = ParametersOf<decltype(kCall)>,
          typename Indices = typename Parameters::Indices>
struct Gated;
template <auto kCall, typename Parameters, size_t... i>
struct Gated<kCall, Parameters, std::index_sequence<i...>> {
  template <size_t n>
  using Parameter = std::tuple_element_t<n, typename Parameters::Tuple>;

  static CUresult Legacy(Parameter<i>... a) {
    return Submitted([&](work::Calls& calls, const work::Payer& payer) {
      if constexpr (Parameters::kNullStream) {
        return (calls.*kCall)(payer, a..., work::NullStream::kLegacy);
      } else {
        return (calls.*kCall)(payer, a...);
      }
    });
  }
  static CUresult PerThread(Parameter<i>... a) {
    return Submitted([&](work::Calls& calls, const work::Payer& payer) {
      if constexpr (Parameters::kNullStream) {
        return (calls.*kCall)(payer, a..., work::NullStream::kPerThread);
      } else {
        return (calls.*kCall)(payer, PerThreadForm<Parameter<i>>(a).value...);
      }
    });
  }
};

// An exported name as a template argument.
template <size_t n>
struct Name {
  // NOLINTNEXTLINE(google-explicit-constructor): Driver<"cuInit", ...> is the purpose.
  constexpr Name(const char (&from)[n]) { std::copy_n(from, n, text); }
  constexpr bool per_thread() const { return std::string_view(text).ends_with("_ptsz"); }
  char text[n];
};

// The driver's function of that name, looked up once. Not a guarded static: the lookup takes the loader's lock, and the thread
// that holds that lock may need this function too.
template <Name kName, typename Function>
struct Driver;
template <Name kName, typename... A>
struct Driver<kName, CUresult(A...)> {
  static CUresult Call(A... a) {
    static constinit std::atomic<void*> found{nullptr};
    void* real = found.load(std::memory_order_acquire);
    if (real == nullptr) [[unlikely]] {
      real = RealEntry(kName.text);
      found.store(real, std::memory_order_release);
    }
    return real != nullptr ? reinterpret_cast<CUresult (*)(A...)>(real)(a...)
                           : CUDA_ERROR_NOT_SUPPORTED;
  }
};

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_GATED_H_
