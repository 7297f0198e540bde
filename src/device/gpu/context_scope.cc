// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/context_scope.h"

#include <atomic>
#include <set>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"

namespace gpushare::device {
namespace {

// The sites whose contexts may still exist. Never destroyed, since threads may end after everything else.
struct Sites {
  base::Mutex mutex;
  uint64_t last ABSL_GUARDED_BY(mutex) = 0;
  std::set<uint64_t> alive ABSL_GUARDED_BY(mutex);
};

Sites& sites() {
  static Sites* const all = new Sites;
  return *all;
}

std::atomic<uint64_t> ends{0};  // how many sites have been forgotten

}  // namespace

constinit thread_local uint64_t ContextScope::bound = 0;
constinit thread_local uint64_t ContextScope::pushed = 0;
constinit thread_local driver::Context ContextScope::pushed_context = nullptr;
constinit thread_local uint64_t ContextScope::ends_seen = 0;

uint64_t ContextScope::NewSite() {
  base::MutexLock lock(&sites().mutex);
  sites().alive.insert(++sites().last);
  return sites().last;
}

void ContextScope::Enter() {
  if (const uint64_t now = ends.load(); pushed != 0 && ends_seen != now) {
    ends_seen = now;
    bool alive;
    {
      base::MutexLock lock(&sites().mutex);
      alive = sites().alive.count(pushed) != 0;
    }
    if (!alive) DropPushed(site_.driver);
  }
  driver::Context current = nullptr;
  result_ = site_.driver.CurrentContext(&current);
  if (result_ != driver::Result::kSuccess) return;
  if (current == site_.context) {
    bound = site_.id;
    return;
  }
  result_ = site_.driver.PushContext(site_.context);
  if (result_ != driver::Result::kSuccess) return;
  if (current == nullptr) {
    bound = pushed = site_.id;
    pushed_context = site_.context;
    ends_seen = ends.load();
  } else {
    pushed_ = true;
    bound = 0;
  }
}

void ContextScope::Leave() { static_cast<void>(site_.driver.PopContext()); }

// If the program has pushed another context on top, the context stays below it.
void ContextScope::DropPushed(const driver::Driver& driver) {
  pushed = 0;
  driver::Context current = nullptr;
  if (driver.CurrentContext(&current) == driver::Result::kSuccess && current == pushed_context) {
    static_cast<void>(driver.PopContext());
  }
}

ContextScope::Restores::Restores(const driver::Driver& driver) : driver_(driver) {
  driver::Context current = nullptr;
  none_ = driver_.CurrentContext(&current) == driver::Result::kSuccess && current == nullptr;
}

ContextScope::Restores::~Restores() {
  if (!none_) return;
  if (pushed != 0) DropPushed(driver_);
  bound = 0;
}

void ContextScope::Forget(const Site& site) {
  {
    base::MutexLock lock(&sites().mutex);
    sites().alive.erase(site.id);
  }
  ends.fetch_add(1);
  if (bound == site.id) bound = 0;
  if (pushed == site.id) DropPushed(site.driver);
}

}  // namespace gpushare::device
