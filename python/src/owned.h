// SPDX-License-Identifier: Apache-2.0
// How Python objects own handles of the C ABI.
//
//   class Stream : public Object { Owned<gpushare_stream, gpushare_stream_destroy> handle{...}; };
//   const auto use = stream.handle.Use();         // ClosedError, ForkedError
//   Unlocked([&] { return gpushare_stream_synchronize(use->get()); });
//
// Closing an object while another thread is in a call on it is the one misuse that the C ABI does not detect, and Python does
// not prevent it. So a call holds the handle by a shared owner, and close() takes effect when the last call has returned.
//
// Nothing is destroyed in a forked child, because the parent still needs it. Nothing is destroyed while the interpreter is
// finalizing either: the process is about to end, and the threads that would have to cooperate are gone.
#ifndef GPUSHARE_PYTHON_OWNED_H_
#define GPUSHARE_PYTHON_OWNED_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "errors.h"
#include "fork.h"
#include "gil.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::python {

// The number of handles in the process that are not destroyed yet. A handle held by a call counts too, even by a call that was
// abandoned when a signal ended the wait for it.
inline std::atomic<int64_t> live_handles{0};

// An object with a close() method.
class Closable {
 public:
  virtual ~Closable() = default;
  virtual void Close() = 0;
};

// All objects made from one runtime, oldest first. Only used with the interpreter's lock.
class Family {
 public:
  void Add(const std::shared_ptr<Closable>& member) {
    if (members_.size() >= sweep_at_) {
      std::erase_if(members_, [](const auto& weak) { return weak.expired(); });
      sweep_at_ = std::max<size_t>(64, 2 * members_.size());
    }
    members_.push_back(member);
  }
  // Closes the remaining objects, youngest first.
  void CloseAll() {
    std::vector<std::weak_ptr<Closable>> members;
    members.swap(members_);
    for (auto at = members.rbegin(); at != members.rend(); ++at) {
      if (const std::shared_ptr<Closable> member = at->lock()) member->Close();
    }
  }

 private:
  std::vector<std::weak_ptr<Closable>> members_;
  size_t sweep_at_ = 64;
};

template <typename H, gpushare_status (*Destroy)(H)>
class Owned {
 public:
  class Owner {
   public:
    explicit Owner(H handle) : handle_(handle), born_(ForkGeneration()) {
      live_handles.fetch_add(1, std::memory_order_relaxed);
    }
    ~Owner() {
      if (born_ != ForkGeneration() || Finalizing()) return;
      UnlockedIfLocked([this] {
        // Whichever handle closes the GPU reports that work is still running there.
        if (Destroy(handle_) == GPUSHARE_DEADLINE_EXCEEDED) WarnLast();
      });
      live_handles.fetch_sub(1, std::memory_order_release);
    }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    H get() const { return handle_; }
    bool inherited() const { return born_ != ForkGeneration(); }

   private:
    const H handle_;
    const uint32_t born_;
  };
  using Use_ = std::shared_ptr<const Owner>;

  // `kind` is the word for the object in messages.
  explicit Owned(const char* kind) : kind_(kind) {}
  Owned(const char* kind, H handle) : owner_(std::make_shared<const Owner>(handle)), kind_(kind) {}

  void Reset(H handle) { owner_ = std::make_shared<const Owner>(handle); }

  // The result is valid as long as it is held.
  const Use_& Use() const {
    if (owner_ == nullptr) [[unlikely]] {
      ThrowClosed(kind_);
    }
    if (owner_->inherited()) [[unlikely]] {
      ThrowForked(kind_);
    }
    return owner_;
  }
  bool closed() const { return owner_ == nullptr; }
  bool inherited() const { return owner_ != nullptr && owner_->inherited(); }
  void Close() {
    // Made unreachable before the interpreter's lock may be released.
    const Use_ last = std::move(owner_);
    owner_ = nullptr;
  }

 private:
  Use_ owner_;
  const char* kind_;
};

// Creates an object that belongs to a family.
template <typename T, typename... Arguments>
std::shared_ptr<T> Born(const std::shared_ptr<Family>& family, Arguments&&... arguments) {
  auto object = std::make_shared<T>(std::forward<Arguments>(arguments)...);
  object->family = family;
  family->Add(object);
  return object;
}

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_OWNED_H_
