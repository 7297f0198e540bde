// SPDX-License-Identifier: Apache-2.0
#include "spec.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "amount.h"
#include "object.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

gpushare_spec Empty() {
  gpushare_spec spec = {};
  spec.struct_size = sizeof(spec);
  return spec;
}

gpushare_spec Parse(const std::string& text) {
  gpushare_spec spec = Empty();
  Check(gpushare_spec_parse(text.data(), text.size(), &spec));
  return spec;
}

// A keyword given as text goes through the library's parser, as all text does.
gpushare_spec ParseField(const std::string& key, py::handle value) {
  const std::string text = TextFrom(value, key.c_str());
  if (text.find_first_of(",=") != std::string::npos) {
    ThrowInvalid(key + ": '" + text + "' given, one value wanted");
  }
  return Parse(key + "=" + text);
}

// A number means bytes. A very small one is probably a mistake.
uint64_t MemoryFrom(py::handle value, const char* field) {
  constexpr uint64_t kFewest = 64 << 10;
  if (!IsWhole(value)) {
    ThrowType(field, value, "bytes as int, or text such as '8 GB', '8GiB' or '50%'");
  }
  const uint64_t bytes = WholeFrom(value, field);
  if (bytes == 0 || bytes >= kFewest) return bytes;
  const std::string given = std::to_string(bytes);
  ThrowInvalid(std::string(field) + ": " + given + " given, which is a number of bytes; write '" +
               given + "GiB', '" + given + "MiB' or '" + given + "%', or '" + given +
               "B' where so few are meant");
}

uint64_t BytesPerSecond(py::handle value, const char* field) {
  if (!IsWhole(value)) {
    ThrowType(field, value, "bytes a second as int, or text such as '4GB/s'");
  }
  return WholeFrom(value, field);
}

using Setter = void (*)(gpushare_spec&, py::handle);

// A key: its bits in `set`, and how to convert a value that is not text.
struct Key {
  uint32_t bits;
  Setter set;
  void (*copy)(gpushare_spec&, const gpushare_spec&);
};

#define GPUSHARE_COPY(field) \
  [](gpushare_spec& to, const gpushare_spec& from) { to.field = from.field; }

const std::map<std::string, Key>& Keys() {
  static const auto& keys = *new std::map<std::string, Key>{
      {"memory",
       {GPUSHARE_SPEC_MEMORY | GPUSHARE_SPEC_MEMORY_SHARE,
        [](gpushare_spec& s, py::handle v) {
          s.memory = MemoryFrom(v, "memory");
          s.set |= GPUSHARE_SPEC_MEMORY;
        },
        [](gpushare_spec& to, const gpushare_spec& from) {
          to.memory = from.memory;
          to.memory_share = from.memory_share;
        }}},
      {"memory_cap",
       {GPUSHARE_SPEC_MEMORY_CAP | GPUSHARE_SPEC_MEMORY_CAP_SHARE,
        [](gpushare_spec& s, py::handle v) {
          s.memory_cap = MemoryFrom(v, "memory_cap");
          s.set |= GPUSHARE_SPEC_MEMORY_CAP;
        },
        [](gpushare_spec& to, const gpushare_spec& from) {
          to.memory_cap = from.memory_cap;
          to.memory_cap_share = from.memory_cap_share;
        }}},
      {"compute",
       {GPUSHARE_SPEC_COMPUTE,
        [](gpushare_spec& s, py::handle v) {
          s.compute = ShareFrom(v, "compute");
          s.set |= GPUSHARE_SPEC_COMPUTE;
        },
        GPUSHARE_COPY(compute)}},
      {"weight",
       {GPUSHARE_SPEC_WEIGHT,
        [](gpushare_spec& s, py::handle v) {
          s.weight = NumberFrom(v, "weight");
          s.set |= GPUSHARE_SPEC_WEIGHT;
        },
        GPUSHARE_COPY(weight)}},
      {"guarantee",
       {GPUSHARE_SPEC_GUARANTEE,
        [](gpushare_spec& s, py::handle v) {
          s.guarantee = ShareFrom(v, "guarantee");
          s.set |= GPUSHARE_SPEC_GUARANTEE;
        },
        GPUSHARE_COPY(guarantee)}},
      {"cap",
       {GPUSHARE_SPEC_CAP,
        [](gpushare_spec& s, py::handle v) {
          s.cap = ShareFrom(v, "cap");
          s.set |= GPUSHARE_SPEC_CAP;
        },
        GPUSHARE_COPY(cap)}},
      {"burst",
       {GPUSHARE_SPEC_BURST,
        [](gpushare_spec& s, py::handle v) {
          s.burst_ns = DurationFrom(v, "burst");
          s.set |= GPUSHARE_SPEC_BURST;
        },
        GPUSHARE_COPY(burst_ns)}},
      {"priority",
       {GPUSHARE_SPEC_PRIORITY,
        [](gpushare_spec&, py::handle v) { ThrowType("priority", v, "'high', 'normal' or 'low'"); },
        GPUSHARE_COPY(priority)}},
      {"delay",
       {GPUSHARE_SPEC_DELAY,
        [](gpushare_spec& s, py::handle v) {
          s.delay = ShareFrom(v, "delay");
          s.set |= GPUSHARE_SPEC_DELAY;
        },
        GPUSHARE_COPY(delay)}},
      {"h2d",
       {GPUSHARE_SPEC_H2D,
        [](gpushare_spec& s, py::handle v) {
          s.h2d = BytesPerSecond(v, "h2d");
          s.set |= GPUSHARE_SPEC_H2D;
        },
        GPUSHARE_COPY(h2d)}},
      {"d2h",
       {GPUSHARE_SPEC_D2H,
        [](gpushare_spec& s, py::handle v) {
          s.d2h = BytesPerSecond(v, "d2h");
          s.set |= GPUSHARE_SPEC_D2H;
        },
        GPUSHARE_COPY(d2h)}},
      {"isolation",
       {GPUSHARE_SPEC_ISOLATION,
        [](gpushare_spec&, py::handle v) { ThrowType("isolation", v, "str, such as 'shared'"); },
        GPUSHARE_COPY(isolation)}},
      {"oversubscription",
       {GPUSHARE_SPEC_OVERSUBSCRIPTION,
        [](gpushare_spec&, py::handle v) { ThrowType("oversubscription", v, "'off'"); },
        GPUSHARE_COPY(oversubscription)}},
      {"policy",
       {GPUSHARE_SPEC_POLICY,
        [](gpushare_spec&, py::handle v) {
          ThrowType("policy", v, "str, one of gpushare.policy_names()");
        },
        [](gpushare_spec& to, const gpushare_spec& from) {
          std::memcpy(to.policy, from.policy, sizeof(to.policy));
        }}},
  };
  return keys;
}

void Set(gpushare_spec& spec, const std::string& name, py::handle value) {
  const auto at = Keys().find(name);
  if (at == Keys().end()) {
    std::string known;
    for (const auto& [key, unused] : Keys()) known += (known.empty() ? "" : ", ") + key;
    throw py::type_error("there is no limit '" + name + "'; there are " + known);
  }
  const Key& key = at->second;
  spec.set &= ~key.bits;
  if (name == "policy" && PyUnicode_Check(value.ptr())) {
    // Not validated here: whether a policy has the share that it needs depends on the whole spec. A name too long for the
    // struct is cut, and so remains unknown.
    const std::string policy = TextFrom(value, "policy");
    std::memset(spec.policy, 0, sizeof(spec.policy));
    std::memcpy(spec.policy, policy.data(), std::min(policy.size(), sizeof(spec.policy) - 1));
    spec.set |= key.bits;
  } else if (PyUnicode_Check(value.ptr())) {
    const gpushare_spec parsed = ParseField(name, value);
    key.copy(spec, parsed);
    spec.set |= parsed.set;
  } else {
    key.set(spec, value);
  }
}

// The value of one key, as the Python type in which it is given.
py::object Get(const gpushare_spec& s, const std::string& name) {
  const auto given = [&](uint32_t bit) { return (s.set & bit) != 0; };
  if (name == "memory") {
    if (given(GPUSHARE_SPEC_MEMORY)) return py::int_(s.memory);
    if (!given(GPUSHARE_SPEC_MEMORY_SHARE)) return py::none();
    gpushare_spec only = Empty();
    only.set = GPUSHARE_SPEC_MEMORY_SHARE;
    only.memory_share = s.memory_share;
    return py::str(Spec{only}.Text().substr(sizeof("memory=") - 1));
  }
  if (name == "memory_cap") {
    if (given(GPUSHARE_SPEC_MEMORY_CAP)) return py::int_(s.memory_cap);
    if (!given(GPUSHARE_SPEC_MEMORY_CAP_SHARE)) return py::none();
    gpushare_spec only = Empty();
    only.set = GPUSHARE_SPEC_MEMORY_SHARE;  // formatted the same way, and valid on its own
    only.memory_share = s.memory_cap_share;
    return py::str(Spec{only}.Text().substr(sizeof("memory=") - 1));
  }
  if (!given(Keys().at(name).bits)) return py::none();
  if (name == "compute") return py::float_(s.compute);
  if (name == "weight") return py::float_(s.weight);
  if (name == "guarantee") return py::float_(s.guarantee);
  if (name == "cap") return py::float_(s.cap);
  if (name == "burst") return py::float_(static_cast<double>(s.burst_ns) / 1e9);
  if (name == "priority") return py::str(PriorityName(s.priority));
  if (name == "delay") return py::float_(s.delay);
  if (name == "h2d") return py::int_(s.h2d);
  if (name == "d2h") return py::int_(s.d2h);
  if (name == "policy") return py::str(s.policy);
  if (name == "isolation") {
    constexpr const char* kNames[] = {"shared", "context", "green", "process"};
    return py::str(kNames[s.isolation & 3]);
  }
  return py::str(s.oversubscription == GPUSHARE_OVERSUBSCRIPTION_OFF ? "off" : "swap");
}

py::dict ToDict(const gpushare_spec& spec) {
  py::dict fields;
  for (const auto& [name, key] : Keys()) {
    if (spec.set & key.bits) fields[py::str(name)] = Get(spec, name);
  }
  return fields;
}

py::tuple PolicyNames() {
  py::list names;
  for (size_t i = 0; const char* name = gpushare_policy_name(i); ++i) names.append(name);
  return py::tuple(names);
}

}  // namespace

std::string Spec::Text() const {
  char text[1024];
  Check(gpushare_spec_format(&c, text, sizeof(text), nullptr));
  return text;
}

gpushare_spec ChangeFrom(py::handle text, const py::kwargs& fields) {
  gpushare_spec spec = Empty();
  if (py::isinstance<Spec>(text)) {
    spec = py::cast<const Spec&>(text).c;
  } else if (PyUnicode_Check(text.ptr())) {
    spec = Parse(TextFrom(text, "spec"));
  } else if (!text.is_none()) {
    ThrowType("spec", text, "text such as 'memory=8GiB,compute=30%' or a VirtualDeviceSpec");
  }
  for (const auto& [key, value] : fields) {
    if (!value.is_none()) Set(spec, TextFrom(key, "keyword"), value);
  }
  return spec;
}

gpushare_spec SpecFrom(py::handle text, const py::kwargs& fields) {
  const gpushare_spec spec = ChangeFrom(text, fields);
  Check(gpushare_spec_validate(&spec));
  return spec;
}

int PriorityFrom(py::handle value, const char* field) {
  if (value.is_none()) return GPUSHARE_PRIORITY_UNSET;
  const std::string name = TextFrom(value, field);
  for (int i = GPUSHARE_PRIORITY_HIGH; i <= GPUSHARE_PRIORITY_LOW; ++i) {
    if (name == PriorityName(i)) return i;
  }
  ThrowInvalid(std::string(field) + ": '" + name + "' given; 'high', 'normal' or 'low' wanted");
}

const char* PriorityName(int priority) {
  switch (priority) {
    case GPUSHARE_PRIORITY_HIGH:
      return "high";
    case GPUSHARE_PRIORITY_LOW:
      return "low";
    default:
      return "normal";
  }
}

void BindSpec(py::module_& m) {
  auto cls = py::class_<Spec>(
      m, "VirtualDeviceSpec",
      "VirtualDeviceSpec(text=None, /, **fields)\n--\n\n"
      "What a virtual device is to have: text such as ``memory=8GiB,compute=30%,priority=high``, "
      "keywords, or\nboth; keywords win. Immutable, compares by value; ``str()`` gives the text "
      "form "
      "back.\n\n"
      "Fields, each None when it was not given:\n"
      "    memory: bytes (int), or text: \"8GiB\", \"8 GB\", \"50%\" of the device.\n"
      "    memory_cap: as memory, and at least that; beyond memory it is borrowed from what others "
      "leave unused.\n"
      "    compute, guarantee, cap: parts of the device: 0.3 or \"30%\".\n"
      "    weight: part of what is not guaranteed, (0, 1e6].\n"
      "    burst: seconds, or text: \"20ms\".\n"
      "    priority: \"high\", \"normal\" or \"low\".\n"
      "    delay: of priority high, by what part of its time kernels of lower ones beside it may "
      "make it later: 0.03, "
      "\"3%\", to 0.2.\n"
      "    h2d, d2h: bytes a second (int), or text: \"4GB/s\".\n"
      "    isolation: \"shared\", \"context\", \"green\" or \"process\". oversubscription: "
      "\"off\". policy: one "
      "of policy_names().\n\n"
      "Raises:\n"
      "    InvalidArgumentError (ValueError): a value out of its range; the message names the "
      "field.\n"
      "    UnimplementedError (NotImplementedError): valid, and not offered yet.\n"
      "    TypeError: a value of the wrong type.");
  cls.def(py::init([](const py::object& text, const py::kwargs& fields) {
            return Spec{SpecFrom(text, fields)};
          }),
          py::arg("text") = py::none(), py::pos_only(),
          "__init__(self, text=None, /, **fields)\n--\n\n")
      .def("__str__", &Spec::Text)
      .def("__repr__", [](const Spec& self) { return "VirtualDeviceSpec('" + self.Text() + "')"; })
      .def("__eq__",
           [](const Spec& self, const py::object& other) -> py::object {
             if (!py::isinstance<Spec>(other)) {
               return py::reinterpret_borrow<py::object>(Py_NotImplemented);
             }
             return py::bool_(self.Text() == py::cast<const Spec&>(other).Text());
           })
      .def("__hash__", [](const Spec& self) { return py::hash(py::str(self.Text())); })
      .def("__reduce__",
           [](const py::object& self) {
             return py::make_tuple(py::type::of(self),
                                   py::make_tuple(py::cast<const Spec&>(self).Text()));
           })
      .def(
          "to_dict", [](const Spec& self) { return ToDict(self.c); },
          "to_dict(self)\n--\n\nThe fields that were given, as keywords for the constructor.")
      .def(
          "replace",
          [](const py::object& self, const py::kwargs& fields) {
            return Spec{SpecFrom(self, fields)};
          },
          "replace(self, **fields)\n--\n\nReturns a copy with these fields changed.");
  for (const auto& [name, key] : Keys()) {
    cls.def_property_readonly(name.c_str(), py::cpp_function([name = name](const Spec& self) {
                                return Get(self.c, name);
                              }));
  }
  m.def("policy_names", &PolicyNames,
        "policy_names()\n--\n\nThe valid names for a spec's ``policy``: presets named after "
        "the terms of other systems.\ndocs/api-and-abi.md says what each sets.");
}

}  // namespace gpushare::python
