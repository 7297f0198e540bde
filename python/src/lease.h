// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_LEASE_H_
#define GPUSHARE_PYTHON_LEASE_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "async_with.h"
#include "object.h"
#include "stream.h"
#include "virtual_device.h"

namespace gpushare::python {

inline gpushare_status ReleaseLease(gpushare_lease lease) {
  return gpushare_lease_release(lease, nullptr);
}
using LeaseHandle = Owned<gpushare_lease, ReleaseLease>;

// The terms of a lease and, while it is held, the permit. Can be acquired repeatedly.
struct Lease : Object {
  static constexpr char kInUse[] =
      "this lease is held or being acquired already; make another one with lease()";
  LeaseHandle handle{"lease"};  // closed: not held
  std::shared_ptr<VirtualDevice> device;
  std::vector<std::shared_ptr<Stream>> streams;
  gpushare_lease_options options = {};
  bool acquiring = false;
  bool overrun = false;
  int64_t held_ns = 0;  // the duration of the last hold

  void Close() override { handle.Close(); }
  void Acquire();
  // Acquires on behalf of no particular thread, on a thread that does not look at signals.
  void AcquireForNobody(int64_t timeout_ns, const CallOff& call_off);
  void Release();
};

// Sets the term `name` (hint, maximum, exclusive, timeout). False if there is no such term.
bool SetTerm(const std::string& name, pybind11::handle value, gpushare_lease_options* options);
// Converts streams given by the user. Streams of other libraries are bound as long as the result is held.
std::vector<std::shared_ptr<Stream>> StreamsFrom(const std::shared_ptr<VirtualDevice>& device,
                                                 pybind11::handle value);

std::shared_ptr<Lease> NewLease(const std::shared_ptr<VirtualDevice>& device,
                                const pybind11::kwargs& options);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_LEASE_H_
