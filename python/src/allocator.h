// SPDX-License-Identifier: Apache-2.0
// Memory of a virtual device, for Python and, as plain C functions, for frameworks.
#ifndef GPUSHARE_PYTHON_ALLOCATOR_H_
#define GPUSHARE_PYTHON_ALLOCATOR_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "object.h"
#include "stream_work.h"
#include "virtual_device.h"

namespace gpushare::python {

struct Stream;
using AllocatorHandle = Owned<gpushare_allocator, gpushare_allocator_destroy>;

// One piece of device memory. It is freed with its last owner, on any thread, with or without the interpreter's lock. Memory
// still held by a consumer of DLPack stays allocated.
class Memory final : public Closable {
 public:
  Memory(AllocatorHandle::Use_ allocator, gpushare_device_ptr pointer, uint64_t bytes)
      : allocator_(std::move(allocator)), pointer_(pointer), bytes_(bytes) {}
  ~Memory() override { Close(); }
  // Frees it now, even if others still hold it.
  void Close() override;

  gpushare_device_ptr pointer() const { return pointer_; }
  uint64_t bytes() const { return bytes_; }
  bool inherited() const { return allocator_ != nullptr && allocator_->inherited(); }

  // The streams on which it was used through gpushare, the latest one last. Consumers on other streams wait for them. Access
  // needs the interpreter's lock.
  std::vector<std::shared_ptr<StreamWork>> used_on;

 private:
  AllocatorHandle::Use_ allocator_;
  gpushare_device_ptr pointer_;
  const uint64_t bytes_;
};

struct Buffer;

class Allocator : public Object {
 public:
  // `reclaim`: None, or a function of (asked, left) in bytes that returns whether to try again. `strategy`: its name.
  static std::shared_ptr<Allocator> Create(const std::shared_ptr<VirtualDevice>& device,
                                           const pybind11::object& reclaim,
                                           const std::string& strategy = "direct");
  // The default allocator of `device`, which owns the allocator. So the allocator does not own the device.
  static std::shared_ptr<Allocator> CreateDefault(const std::shared_ptr<VirtualDevice>& device);
  ~Allocator() override;
  void Close() override;

  // `stream`: a Stream or None.
  std::shared_ptr<Memory> AllocateMemory(uint64_t bytes, const pybind11::object& timeout,
                                         const pybind11::object& stream = pybind11::none());
  std::shared_ptr<Buffer> Allocate(uint64_t bytes, const pybind11::object& timeout,
                                   const pybind11::object& stream = pybind11::none());
  void Trim(const pybind11::object& nbytes);
  pybind11::object Stats() const;  // a gpushare.PoolStats

  // (parameter, malloc, free) as addresses, for frameworks that take C functions.
  pybind11::tuple CFunctions();

  std::shared_ptr<VirtualDevice> device() const { return device_.lock(); }
  AllocatorHandle handle{"allocator"};

 private:
  struct Reclaimer;
  struct CParameter;
  friend void* CMalloc(void*, size_t, int);
  friend void CFree(void*, void*, int);

  std::weak_ptr<VirtualDevice> device_;
  std::shared_ptr<VirtualDevice> keeps_;
  std::shared_ptr<Reclaimer> reclaimer_;
  CParameter* parameter_ = nullptr;
};

// Allocates for the tenant for which the calling thread works.
std::shared_ptr<Buffer> AllocateFor(const std::shared_ptr<Gpu>& gpu, uint64_t bytes);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_ALLOCATOR_H_
