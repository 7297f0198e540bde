// SPDX-License-Identifier: Apache-2.0
// Reference-counted memory: it lives as long as there are references to its handles, uses (mappings, bindings to a multicast
// object) or exported descriptors. It is charged until the last of these is gone.
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

// Thread-safe. A function that throws for lack of host memory has changed nothing. References and uses are counted before the
// driver is asked for them, and removed after it has given them up. So an object may seem to live a moment longer than it does,
// but never shorter. The driver may reuse a handle in that moment, or while a released object is still in use. So a removal
// names the object's number as well as its handle.
class SharedMemory {
 public:
  struct Place {
    uint64_t handle = 0, number = 0;  // number 0: unknown
    explicit operator bool() const { return number != 0; }
  };
  struct Binding {
    Place memory;
    int device;
    uint64_t offset, bytes;
  };
  struct Object {
    quota::Allocation charge;  // without an account: charged elsewhere, or a multicast object
    uint64_t number = 0;
    uint32_t references = 1, uses = 0;
    uint32_t leaving = 0;  // references whose release by the driver is in progress
    uint32_t exports = 0;  // descriptors
    int device = 0;
    bool imported = false;  // from another process, and charged to the account that maps it
    bool stranded = false;  // only descriptors are left
    bool orphan = false;    // another object has its handle
    std::vector<Binding>
        bindings;  // of a multicast object; for a further handle, the memory that it stands for

    // Reuses this for a new object.
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
  // The remains of an object that ended, to be credited.
  struct Remains {
    quota::Allocation charge;
    std::vector<Binding> bindings;
  };
  using Ended = std::optional<Remains>;

  // Adds an object with one reference. An unreleased object with the same handle must have ended unnoticed; it is returned.
  Ended Add(uint64_t handle, const quota::Allocation& charge, int device);
  // Returns false if the object exists; it then gets one more reference.
  bool AddOrRetain(uint64_t handle, const quota::Allocation& charge, int device);
  // Adds a reference to existing memory: to `known`, which is in use, or to memory that the books do not know. Returns true if
  // the handle is another than the object's; the handle then takes over the use of `known`.
  bool Adopt(uint64_t handle, const Place& known, int device);
  // Begins the release of a reference. Returns an unknown place if there is none.
  Place Leave(uint64_t handle);
  Ended Left(Place place);
  void Stay(Place place);  // the driver refused the release
  Place Use(uint64_t handle);
  Place Use(Place place);
  Ended Unuse(Place place);
  Place Export(uint64_t handle);
  Ended Unexport(Place place);
  bool has_stranded() const { return stranded_.load() != 0; }

  // The bytes of an imported object's first `end` bytes that are not charged yet, and the account that pays for them; null means
  // the account that maps them.
  uint64_t Unpaid(const Place& place, uint64_t end, quota::Account** account);
  // Charges the object up to `end`: to the account that is charged already, else to `account`. Returns the increase.
  uint64_t Charge(const Place& place, uint64_t end, quota::Account* account, uint32_t owner);

  // Binds memory, which must be marked as used for this. False if the multicast object is unknown.
  bool Bind(uint64_t multicast, const Place& memory, uint64_t offset, uint64_t bytes);
  std::optional<Binding> Unbind(uint64_t multicast, int device, uint64_t offset, uint64_t bytes);
  void Rebind(uint64_t multicast, const Binding& binding);
  int DeviceOf(const Place& memory);

  // Returns an earlier mapping at that address, which must have ended unnoticed.
  std::optional<Mapping> Map(const Mapping& mapping);
  // Takes the mappings that begin in the range.
  using Mappings = absl::InlinedVector<Mapping, 2>;
  Mappings TakeMappings(uint64_t address, uint64_t bytes);
  // The mapping that contains the address.
  std::optional<Mapping> FindMapping(uint64_t address) const;

  // Removes an object for whose charge `wanted` returns true, with its mappings.
  Ended TakeOne(const std::function<bool(const quota::Allocation&)>& wanted);
  void ForEach(const std::function<void(const Object&)>& visit) const;

 private:
  static constexpr size_t kMostSpares = 64;

  Object* Find(Place place);
  // The handle must be free.
  Object& New(uint64_t handle, const quota::Allocation& charge, int device);
  // Removes the object's handle, which another object gets.
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
  std::vector<std::map<uint64_t, Mapping>::node_type> spare_mappings_;  // for reuse
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_SHARED_MEMORY_H_
