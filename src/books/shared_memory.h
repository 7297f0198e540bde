// SPDX-License-Identifier: Apache-2.0
// Memory that lives for as long as somebody refers to it: handles with references, uses (mappings, bindings to
// a multicast object) and exported descriptors. It is charged until the last of all is gone.
#ifndef GPUSHARE_BOOKS_SHARED_MEMORY_H_
#define GPUSHARE_BOOKS_SHARED_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "books/node_table.h"
#include "quota/pointer_table.h"
#include "quota/spin_lock.h"

namespace gpushare::books {

// Thread-safe. Where there is no memory of the host, what throws has changed nothing. References and uses are counted before the driver is asked for them, and taken back when it has
// given them up: an object may be thought to live for a moment longer than it does, never the reverse. A handle may
// be given out again in that moment, or while the object of a released one is still used; so what is taken back is
// named by the object's number, too.
class SharedMemory {
 public:
  struct Place {
    uint64_t handle = 0, number = 0;  // number 0: not known
    explicit operator bool() const { return number != 0; }
  };
  struct Binding {
    Place memory;
    int device;
    uint64_t offset, bytes;
  };
  struct Object {
    quota::Allocation charge;  // no account: somebody else's, or a multicast object
    uint64_t number = 0;
    uint32_t references = 1, uses = 0;
    uint32_t leaving = 0;  // references that the driver is being asked to give up
    uint32_t exports = 0;  // descriptors
    int device = 0;
    bool imported = false;  // of another process, and charged to who maps it
    bool stranded = false;  // only descriptors are left
    bool orphan = false;    // its handle is another's
    std::vector<Binding>
        bindings;  // of a multicast object; of a further handle, what it stands for

    // A new one in its place.
    void Begin(const quota::Allocation& charged, int on_device, uint64_t its_number) {
      charge = charged;
      number = its_number;
      references = 1;
      uses = leaving = exports = 0;
      device = on_device;
      imported = stranded = orphan = false;
      bindings.clear();
    }
  };
  struct Mapping {
    uint64_t address, bytes;
    Place memory;
  };
  // What ended, to be credited.
  struct Remains {
    quota::Allocation charge;
    std::vector<Binding> bindings;
  };
  using Ended = std::optional<Remains>;

  // With one reference. The object that had the handle before ended unseen, if nobody had released it.
  Ended Add(uint64_t handle, const quota::Allocation& charge, int device);
  // False when it is there, and then it has one reference more.
  bool AddOrRetain(uint64_t handle, const quota::Allocation& charge, int device);
  // The driver has given a reference to memory that is not new: to `known`, which is in use, or to what the books
  // do not know. True: by another handle than the one it has, and the use of `known` is that handle's from now on.
  bool Adopt(uint64_t handle, const Place& known, int device);
  // A reference is about to go. Not known: nobody holds one.
  Place Leave(uint64_t handle);
  Ended Left(Place place);
  void Stay(Place place);  // the driver would not
  Place Use(uint64_t handle);
  Place Use(Place place);
  Ended Unuse(Place place);
  Place Export(uint64_t handle);
  Ended Unexport(Place place);
  bool has_stranded() const { return stranded_.load() != 0; }

  // What an imported object lacks for a mapping of its first `end` bytes, and who pays for it; null: who maps.
  uint64_t Unpaid(const Place& place, uint64_t end, quota::Account** account);
  // It is charged so far, to whom it is charged already, else to `account`. By how much more than before.
  uint64_t Charge(const Place& place, uint64_t end, quota::Account* account, uint32_t owner);

  // Binds memory that is in use for it. False when the multicast object is not known.
  bool Bind(uint64_t multicast, const Place& memory, uint64_t offset, uint64_t bytes);
  std::optional<Binding> Unbind(uint64_t multicast, int device, uint64_t offset, uint64_t bytes);
  void Rebind(uint64_t multicast, const Binding& binding);
  int DeviceOf(const Place& memory);

  // What was mapped there before ended unseen.
  std::optional<Mapping> Map(const Mapping& mapping);
  // Those that begin in the range.
  using Mappings = absl::InlinedVector<Mapping, 2>;
  Mappings TakeMappings(uint64_t address, uint64_t bytes);
  // That holds the address.
  std::optional<Mapping> FindMapping(uint64_t address) const;

  // Removes an object whose charge is `wanted`, with its mappings.
  Ended TakeOne(const std::function<bool(const quota::Allocation&)>& wanted);
  void ForEach(const std::function<void(const Object&)>& visit) const;

 private:
  static constexpr size_t kMostSpares = 64;

  Object* Find(Place place);
  // The handle is nobody's.
  Object& New(uint64_t handle, const quota::Allocation& charge, int device);
  // Its handle is another's from now on.
  void Orphan(uint64_t handle, Object& object);
  void Revive(Object& object);
  Ended EndIfUnused(Place place, Object& object);
  static Remains RemainsOf(Object& object) {
    if (object.bindings.empty()) return {object.charge, {}};
    return {object.charge, std::move(object.bindings)};
  }

  mutable quota::SpinLock lock_;
  uint64_t numbers_ = 0;
  NodeTable<Object> objects_;  // by handle
  NodeTable<Object> orphans_;  // by number
  std::atomic<uint64_t> stranded_{0};
  std::map<uint64_t, Mapping> mappings_;
  std::vector<std::map<uint64_t, Mapping>::node_type> spare_mappings_;  // to be used again
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_SHARED_MEMORY_H_
