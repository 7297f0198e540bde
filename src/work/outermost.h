// SPDX-License-Identifier: Apache-2.0
// The driver may make one of its calls out of another: only the outermost is charged.
#ifndef GPUSHARE_WORK_OUTERMOST_H_
#define GPUSHARE_WORK_OUTERMOST_H_

#include <type_traits>
#include <utility>

namespace gpushare::work {

// While it lives, calls of this thread are inside of another.
class Outermost {
 public:
  Outermost() : was_(std::exchange(inside(), true)) {}
  // Where Inside() is known to be false.
  explicit Outermost(std::false_type) : was_(false) { inside() = true; }
  ~Outermost() { inside() = was_; }
  Outermost(const Outermost&) = delete;
  Outermost& operator=(const Outermost&) = delete;
  static bool Inside() { return inside(); }

 private:
  static bool& inside() {
    static thread_local constinit bool inside = false;
    return inside;
  }
  const bool was_;
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_OUTERMOST_H_
