// SPDX-License-Identifier: Apache-2.0
// Leases on several GPUs, all or none.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "amount.h"
#include "async_with.h"
#include "lease.h"
#include "object.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

inline gpushare_status ReleaseGang(gpushare_gang gang) {
  return gpushare_gang_release(gang, nullptr);
}

// The terms of a gang and, while it is held, the gang. Can be acquired repeatedly.
struct Gang : Object {
  static constexpr char kInUse[] =
      "this gang is held or being acquired already; make another one with Gang()";
  struct Member {
    std::shared_ptr<VirtualDevice> device;
    std::vector<std::shared_ptr<Stream>> streams;
  };
  Owned<gpushare_gang, ReleaseGang> handle{"gang"};  // closed: not held
  std::vector<Member> members;
  gpushare_lease_options options = {};
  bool acquiring = false;
  bool overrun = false;
  int64_t held_ns = 0;  // the duration of the last hold

  void Close() override { handle.Close(); }
  void Acquire();
  // Runs on a thread that does not look at signals.
  void AcquireForNobody(int64_t timeout_ns, const CallOff& call_off);
  void Release();
};

// What the call needs, held so that closing an object meanwhile does no harm.
struct Attempt {
  explicit Attempt(const Gang& gang) : options(gang.options) {
    for (const Gang::Member& member : gang.members) {
      devices.push_back(member.device->handle.Use());
      std::vector<gpushare_stream>& native = streams.emplace_back();
      for (const std::shared_ptr<Stream>& stream : member.streams) {
        uses.push_back(stream->handle.Use());
        native.push_back(uses.back()->get());
      }
      members.push_back(
          {sizeof(gpushare_gang_member), 0, devices.back()->get(), native.data(), native.size()});
    }
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  std::vector<Owned<gpushare_vdev, gpushare_vdev_destroy>::Use_> devices;
  std::vector<StreamHandle::Use_> uses;
  std::vector<std::vector<gpushare_stream>> streams;
  std::vector<gpushare_gang_member> members;
  gpushare_lease_options options;
  gpushare_gang got = nullptr;

  // One attempt for the whole timeout. An exclusive member that waits for the others keeps its GPU up to its maximum.
  gpushare_status Acquire() {
    return gpushare_gang_acquire(members.data(), members.size(), &options, &got);
  }
};

void Gang::AcquireForNobody(int64_t timeout_ns, const CallOff& call_off) {
  const Acquiring one(*this);
  Attempt attempt(*this);
  attempt.options.timeout_ns = timeout_ns;
  Check(Unlocked([&] {
    const CallOffWatch watch(call_off.set);
    return attempt.Acquire();
  }));
  handle.Reset(attempt.got);
}

void Gang::Acquire() {
  const Acquiring one(*this);
  Attempt attempt(*this);
  WaitInterruptibly([&] { return attempt.Acquire(); });
  handle.Reset(attempt.got);
}

void Gang::Release() {
  if (handle.closed()) {
    Throw("FailedPreconditionError", "this gang is not held; it has been released");
  }
  gpushare_lease_result result = {};
  result.struct_size = sizeof(result);
  const auto use = handle.Use();
  handle.Close();
  Check(Unlocked([&] { return gpushare_gang_release(use->get(), &result); }));
  overrun = result.overrun != 0;
  held_ns = result.held_ns;
}

Gang::Member MemberFrom(py::handle given) {
  constexpr char kWanted[] = "gpushare.VirtualDevice, or a pair of one and its streams";
  Gang::Member member;
  if (!py::isinstance<py::tuple>(given)) {
    member.device = Given<VirtualDevice>(given, "members", kWanted);
    return member;
  }
  const auto pair = py::reinterpret_borrow<py::tuple>(given);
  if (pair.size() != 2) ThrowType("members", given, kWanted);
  member.device = Given<VirtualDevice>(pair[0], "members", kWanted);
  member.streams = StreamsFrom(member.device, pair[1]);
  return member;
}

std::shared_ptr<Gang> NewGang(const py::object& members, const py::kwargs& terms) {
  if (!py::isinstance<py::iterable>(members)) {
    ThrowType("members", members, "a sequence of virtual devices");
  }
  std::vector<Gang::Member> all;
  for (const py::handle given : members) all.push_back(MemberFrom(given));
  if (all.empty()) ThrowInvalid("members: none given, one for each GPU wanted");
  auto gang = Born<Gang>(all[0].device->family);
  gang->members = std::move(all);
  gang->options.struct_size = sizeof(gang->options);
  gang->options.timeout_ns = GPUSHARE_FOREVER;
  gang->options.any_thread = 1;  // as documented; coroutines share the loop's thread
  for (const auto& [key, value] : terms) {
    const std::string name = TextFrom(key, "keyword");
    if (!SetTerm(name, value, &gang->options)) {
      throw py::type_error("Gang() has no keyword '" + name +
                           "'; there are hint, maximum, exclusive, timeout");
    }
  }
  return gang;
}

}  // namespace

void BindGang(py::module_& m) {
  auto cls = py::class_<Gang, std::shared_ptr<Gang>>(
      m, "Gang",
      "Gang(members, *, hint=1e-4, maximum=1.0, exclusive=False, "
      "timeout=None)\n--\n\nLeases on several GPUs, all or none, for work with parts that "
      "wait for each other: ``with gang:``, or\n``async with gang:``. They are acquired in "
      "the order of the GPUs' UUIDs, so that gangs cannot deadlock. While\nan exclusive "
      "member waits for the others it keeps its GPU, and is charged for it. A gang can be "
      "used\nrepeatedly, by one user at a time; it belongs to no thread.\n\nArgs:\n    "
      "members: virtual devices, one for each GPU, or pairs (virtual device, "
      "streams).\n    hint, maximum, exclusive: for each member, as in lease(); `maximum` "
      "starts when all members are held.\n    timeout: for acquiring all of them; None for "
      "ever.");
  cls.def(py::init(&NewGang), py::arg("members"),
          "__init__(self, members, *, hint=1e-4, maximum=1.0, exclusive=False, timeout=None)\n"
          "--\n\n")
      .def("acquire", &Gang::Acquire,
           "acquire(self)\n--\n\nWaits for all members. Ctrl-C ends the wait.\n\nRaises:\n    "
           "DeadlineExceededError (TimeoutError): the timeout passed, and nothing is held.\n    "
           "InvalidArgumentError (ValueError): two members are on one GPU.\n    "
           "FailedPreconditionError (RuntimeError): the gang is already held.")
      .def("release", &Gang::Release,
           "release(self)\n--\n\nReleases all members. Any thread may call it; it does not wait.")
      .def(
          "__enter__",
          [](const py::object& self) {
            py::cast<Gang&>(self).Acquire();
            return self;
          },
          "__enter__(self)\n--\n\nacquire().")
      .def(
          "__exit__", [](Gang& self, const py::args&) { self.Release(); },
          "__exit__(self, *args)\n--\n\nrelease().")
      .def_property_readonly(
          "held", [](const Gang& self) { return !self.handle.closed(); }, "Whether it is held now.")
      .def_property_readonly(
          "overrun", [](const Gang& self) { return self.overrun; },
          "Whether a member was held longer than the maximum in the last use.")
      .def_property_readonly(
          "held_seconds", [](const Gang& self) { return static_cast<double>(self.held_ns) / 1e9; },
          "For how long all members were held in the last use, in seconds of the host.")
      .def_property_readonly(
          "virtual_devices",
          [](const Gang& self) {
            py::list devices;
            for (const Gang::Member& member : self.members) devices.append(member.device);
            return py::tuple(devices);
          },
          "Its members.")
      .def("__repr__", [](const Gang& self) {
        return "<gpushare.Gang of " + std::to_string(self.members.size()) + " GPUs" +
               (self.handle.closed() ? ">" : ", held>");
      });
  DefineAsyncWith(cls);
}

}  // namespace gpushare::python
