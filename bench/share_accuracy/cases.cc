// SPDX-License-Identifier: Apache-2.0
#include "bench/share_accuracy/cases.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status_macros.h"
#include "workload/models.h"

namespace gpushare::bench {
namespace {

struct Part {
  const char* trace;
  double weight;
};

CaseSpec Mix(const Traces& traces, const std::vector<Part>& parts, Mode mode, bool overlap) {
  CaseSpec spec;
  spec.seconds = settings.seconds;
  spec.seed = settings.seed;
  spec.overlap = overlap;
  for (const Part& part : parts) {
    TenantSpec tenant;
    tenant.name = part.trace;
    tenant.trace = traces.at(part.trace);
    tenant.mode = mode;
    tenant.options.limits.weight = part.weight;
    spec.tenants.push_back(std::move(tenant));
  }
  return spec;
}

// As many kernels as a framework's graph: layers of twelve kinds of 15 to 26 us, each kind on one of several numbers of SMs.
Trace Layers(const std::string& name, int kernels) {
  constexpr std::array<int, 5> kSms = {12, 80, 30, 200, 60};
  constexpr int kKinds = 12;
  auto trace = std::make_shared<workload::KernelTrace>(name);
  for (int i = 0; i < kernels; ++i) {
    const int kind = i % kKinds;
    trace->Add(name + "_" + std::to_string(kind), workload::Bound::kUnknown,
               kSms[static_cast<size_t>(kind * 5 + kind / 3) % kSms.size()], Micros(15 + kind));
  }
  return trace;
}

}  // namespace

Traces SyntheticTraces() {
  Traces traces;
  traces["14us"] = Synthetic("14us", {3, 5, 8, 10, 15, 25, 40, 6}, 64, 160);
  traces["30us"] = Synthetic("30us", {30}, 64, 80);
  traces["mid"] = Synthetic("mid", {40, 120, 80, 300, 60, 200}, 16, 160);
  traces["1ms"] = Synthetic("1ms", {800, 1200, 1500, 600}, 8, 160);
  traces["14us x8"] = Synthetic("14us", {3, 5, 8, 10, 15, 25, 40, 6}, 8, 160);
  traces["1ms x1"] = Synthetic("1ms", {800, 1200, 1500, 600}, 1, 160);
  traces["mid x1"] = Synthetic("mid", {40, 120, 80, 300, 60, 200}, 1, 160);
  traces["mixed short"] = Synthetic("mixed_short", {5, 10, 20, 40, 80, 15, 30, 60}, 2, 80);
  traces["uneven"] = Synthetic("uneven", {5, 10, 20, 40, 80, 15, 30, 60}, 1, 80);
  traces["uneven, short"] = Synthetic("uneven_short", {2, 5, 10, 20, 40, 8, 15, 30}, 1, 80);
  traces["uneven, shorter"] = Synthetic("uneven_shorter", {1, 2, 5, 10, 20, 4, 8, 15}, 1, 80);
  traces["small x1"] = Synthetic("small", {40, 90, 60}, 1, 20);
  traces["half x1"] = Synthetic("half", {100, 250, 150}, 1, 44);
  traces["wide x1"] = Synthetic("wide", {100, 200, 60}, 1, 200);
  traces["lengths"] = Synthetic("lengths", {10, 20, 300, 40, 5, 100, 15, 10}, 1, 40);
  {
    const auto widths = std::make_shared<workload::KernelTrace>("widths");
    for (const auto& [us, sms] :
         {std::pair{30, 80}, {60, 16}, {40, 40}, {100, 80}, {20, 16}, {50, 40}}) {
      widths->Add("widths_" + std::to_string(us), workload::Bound::kUnknown, sms, Micros(us));
    }
    traces["widths"] = widths;
  }
  for (const int n : {48, 128, 512}) {
    traces[std::to_string(n) + " kernels"] = Layers("layers_" + std::to_string(n), n);
  }
  {
    const auto few = std::make_shared<workload::KernelTrace>("few_long");
    for (int i = 0; i < 48; ++i) {
      const bool is_long = i % 6 == 5;
      few->Add(is_long ? "few_long_wide" : "few_long_narrow", workload::Bound::kUnknown,
               is_long ? 70 : 10, Micros(is_long ? 100 : 5));
    }
    traces["48 kernels, few long"] = few;
  }
  {
    // As in a network of Inception's kind: narrow kernels side by side, of unlike length.
    const auto branches = std::make_shared<workload::KernelTrace>("branches");
    for (const auto& [us, sms] : {std::pair{60, 20},
                                  {90, 28},
                                  {40, 36},
                                  {30, 16},
                                  {80, 40},
                                  {50, 24},
                                  {120, 12},
                                  {25, 60},
                                  {45, 30},
                                  {70, 18},
                                  {35, 44},
                                  {20, 80}}) {
      branches->Add("branches_" + std::to_string(us), workload::Bound::kUnknown, sms, Micros(us));
    }
    traces["branches"] = branches;
  }
  for (const int n : {48, 160}) {
    // Each of a kind of its own.
    const auto kinds = std::make_shared<workload::KernelTrace>("kinds");
    for (int i = 0; i < n; ++i) {
      constexpr std::array<int, 7> kSms = {12, 80, 30, 200, 60, 160, 44};
      kinds->Add("kinds_" + std::to_string(i), workload::Bound::kUnknown,
                 kSms[static_cast<size_t>(i * 5 + i / 3) % kSms.size()], Micros(3 + i * 29 % 53));
    }
    traces[std::to_string(n) + " kinds"] = kinds;
  }
  traces["half, short"] = Synthetic("half_short", {8, 20, 12}, 1, 44);
  traces["wide, short"] = Synthetic("wide_short", {10, 20, 10}, 1, 200);
  traces["mixed long"] = Synthetic("mixed_long", {40, 120, 80, 300, 60, 200}, 1, 80);
  traces["150ms"] = Synthetic("150ms", {150000}, 1, 160);
  traces["10ms"] = Synthetic("10ms", {10000, 9000}, 4, 160);
  traces["1block"] = Synthetic("1block", {50, 100, 200, 250}, 16, 1);
  traces["request"] = Synthetic("request", {30, 60, 20, 90, 45}, 16, 120);
  traces["0.5ms"] = Synthetic("0.5ms", {30, 60, 20, 90, 45}, 2, 120);
  traces["forward"] = Synthetic("forward", {200, 150, 250, 180, 220}, 1, 160);
  traces["small"] = Synthetic("small", {40, 90, 60}, 32, 20);
  traces["half"] = Synthetic("half", {100, 250, 150}, 16, 44);
  traces["wide"] = Synthetic("wide", {200, 400, 120}, 16, 200);
  return traces;
}

absl::Status AddModels(Traces* traces) {
  using workload::Pass;
  GPUSHARE_ASSIGN_OR_RETURN(const workload::GpuRates rates, workload::RatesOf("h200"));
  const auto add = [&](const char* name, absl::StatusOr<workload::ModelTrace> model) {
    if (!model.ok()) return model.status();
    (*traces)[name] = std::make_shared<workload::KernelTrace>(std::move(model->trace));
    return absl::OkStatus();
  };
  GPUSHARE_RETURN_IF_ERROR(
      add("resnet50 training", workload::Resnet50({.pass = Pass::kTraining, .batch = 32}, rates)));
  return add("resnet50 inference", workload::Resnet50({.batch = 4}, rates));
}

absl::Status AddRealTraces(const std::string& folder, Traces* traces) {
  for (const char* name : {"bert_b2_inference", "mobilenetv2_b64_training", "resnet50_b32_training",
                           "resnet50_b4_inference", "transformer_xl_b8_training"}) {
    GPUSHARE_ASSIGN_OR_RETURN(workload::KernelTrace trace,
                              workload::ReadTraceFile(folder + "/" + name + ".csv"));
    (*traces)[name] = std::make_shared<workload::KernelTrace>(std::move(trace));
  }
  return absl::OkStatus();
}

std::vector<Case> Cases(const Traces& t, bool real) {
  std::vector<Case> cases;
  auto serial = [&](std::vector<Part> parts, Mode mode = Mode::kBacklog) {
    return Mix(t, parts, mode, false);
  };
  cases.push_back(Shares("serial 75:25 14us/1ms", serial({{"14us", 75}, {"1ms", 25}}), {}));
  cases.push_back(Shares("serial 50:50 14us/1ms", serial({{"14us", 50}, {"1ms", 50}}), {}));
  cases.push_back(
      Shares("serial 50:30:20 14us/mid/1ms", serial({{"14us", 50}, {"mid", 30}, {"1ms", 20}}), {}));
  {
    std::vector<Part> parts;
    for (int i = 0; i < 16; ++i)
      parts.push_back({i % 3 == 0 ? "14us" : i % 3 == 1 ? "mid" : "1ms", 1});
    cases.push_back(Shares("serial 16 equal, mixed sizes", serial(parts), {}));
  }
  const SharesBars synchronising = {.error_1s = 1.5, .busy = 98};
  cases.push_back(
      Shares("sync 75:25 mid/1ms", serial({{"mid", 75}, {"1ms", 25}}, Mode::kSync), synchronising));
  // A graph is one command: beyond the bar for a second, one of them ÷ the window; in 100 ms that alone where
  // it is more than the bar.
  auto graphs = [](double longest_ms) {
    return SharesBars{.error_1s = 1 + longest_ms / 10, .error_100ms = std::max(4.0, longest_ms)};
  };
  cases.push_back(Shares("graphs 75:25, 0.9 ms and 4.1 ms",
                         Mix(t, {{"14us x8", 75}, {"1ms x1", 25}}, Mode::kGraph, false),
                         graphs(4.1)));
  cases.push_back(Shares("graphs 75:25, 0.9 ms and 0.8 ms",
                         Mix(t, {{"14us x8", 75}, {"mid x1", 25}}, Mode::kGraph, false),
                         graphs(0.9)));
  {
    CaseSpec spec = serial({{"mid", 75}, {"1ms x1", 25}});
    spec.tenants[1].mode = Mode::kGraph;
    cases.push_back(Shares("graphs 25 beside launches 75", spec, graphs(4.1)));
  }
  {
    CaseSpec spec = serial({{"14us", 75}, {"mid x1", 25}});
    spec.tenants[1].mode = Mode::kGraph;
    cases.push_back(Shares("graphs 25 of 0.8 ms beside launches 75", spec, graphs(0.8)));
    spec = serial({{"1ms", 75}, {"mid x1", 25}});
    spec.tenants[1].mode = Mode::kGraph;
    cases.push_back(Shares("graphs 25 of 0.8 ms beside launches of 1ms", spec, graphs(0.8)));
    spec = serial({{"mid", 75}, {"uneven", 25}});
    spec.tenants[1].mode = Mode::kGraph;
    cases.push_back(Shares("graphs 25 of 0.3 ms beside launches 75", spec, {}));
    spec = serial({{"mid", 75}, {"uneven, short", 25}});
    spec.tenants[1].mode = Mode::kGraph;
    cases.push_back(Shares("graphs 25 of 0.13 ms beside launches 75", spec, {}));
    spec = serial({{"mid", 75}, {"uneven, shorter", 25}});
    spec.tenants[1].mode = Mode::kGraph;
    cases.push_back(Shares("graphs 25 of 0.07 ms beside launches 75", spec, {}));
    spec = serial({{"mid", 25}, {"14us x8", 75}});
    spec.tenants[1].mode = Mode::kGraph;
    cases.push_back(Shares("graphs 75 of 0.9 ms beside launches 25", spec, graphs(0.9)));
  }
  cases.push_back(Shares("graphs 75:25, 7 ms and 33 ms",
                         Mix(t, {{"14us", 75}, {"1ms", 25}}, Mode::kGraph, false), graphs(33)));
  // Copies and sets within the device run beside others' kernels and are paid for like kernels; a cooperative
  // launch drains the device.
  cases.push_back(Shares("all kinds of commands 75:25",
                         serial({{"mixed short", 75}, {"mixed long", 25}}, Mode::kMixed), {}));
  cases.push_back(Shares("all kinds of commands 25:75",
                         serial({{"mixed short", 25}, {"mixed long", 75}}, Mode::kMixed), {}));
  {
    CaseSpec spec = serial({{"mixed short", 50}, {"mixed long", 30}, {"mid", 20}}, Mode::kMixed);
    spec.tenants[2].mode = Mode::kBacklog;
    cases.push_back(Shares("all kinds of commands 50:30 beside kernels 20", spec, {}));
  }
  cases.push_back(LongCommands("kernels of 150 ms, 50:50 with 14us",
                               serial({{"150ms", 50}, {"14us", 50}}), 0.15));
  {
    // Leases: the gate sees when work begins and ends, not what it is.
    struct LeaseCase {
      const char* name;
      Mode a, b;
    };
    for (const LeaseCase& c :
         {LeaseCase{"leases 75:25, exclusive", Mode::kLeaseExclusive, Mode::kLeaseExclusive},
          LeaseCase{"leases 75:25, synchronised", Mode::kLeaseSync, Mode::kLeaseSync},
          LeaseCase{"leases 75:25, released at once", Mode::kLease, Mode::kLease},
          LeaseCase{"leases 75:25, beside launches", Mode::kLease, Mode::kBacklog},
          LeaseCase{"leases 75:25, launches beside them", Mode::kBacklog, Mode::kLease}}) {
      CaseSpec spec = serial({{"forward", 75}, {"forward", 25}});
      spec.tenants[0].mode = c.a;
      spec.tenants[1].mode = c.b;
      // Between two exclusive leases the device is drained.
      const bool exclusive = c.a == Mode::kLeaseExclusive;
      cases.push_back(Shares(c.name, spec,
                             {.error_1s = 2.5, .error_100ms = 0, .busy = exclusive ? 90.0 : 99.0}));
    }
  }
  const SharesBars overlapping = {.error_1s = 2.5, .work = 85};
  {
    std::vector<Part> two = {{"small", 40}, {"wide", 60}};
    std::vector<Part> three = {{"small", 50}, {"wide", 30}, {"half", 20}};
    std::vector<Part> many;
    for (int i = 0; i < 16; ++i)
      many.push_back({i % 3 == 0 ? "small" : i % 3 == 1 ? "wide" : "half", 1});
    for (const auto& [graph, other] : std::vector<std::pair<const char*, const char*>>{
             {"small", "wide"}, {"small", "half"}, {"half", "wide"}, {"wide", "small"}}) {
      const std::string one = std::string(graph) + " x1";
      CaseSpec spec = Mix(t, {{one.c_str(), 40}, {other, 60}}, Mode::kBacklog, true);
      spec.tenants[0].mode = Mode::kGraph;
      cases.push_back(
          Shares(std::string("overlap 40:60 graphs of ") + graph + "/" + other, spec, overlapping));
    }
    {
      // Kernels of unlike length in one graph, and of unlike width; graphs of less than 50 us; graphs beside graphs; those whose
      // kernels ran by themselves before (warm), and those that nobody saw instantiated.
      const auto add = [&](const std::string& name, std::vector<Part> parts, size_t of_graphs,
                           bool warmed_up = false, bool unseen = false) {
        CaseSpec spec = Mix(t, parts, Mode::kBacklog, true);
        for (size_t i = 0; i < of_graphs; ++i) {
          spec.tenants[i].mode = Mode::kGraph;
          spec.tenants[i].warmed_up = warmed_up;
          spec.tenants[i].unseen = unseen;
        }
        cases.push_back(Shares("overlap " + name, spec, overlapping));
      };
      add("60:40 graphs of half/wide", {{"half x1", 60}, {"wide", 40}}, 1);
      add("40:60 graphs of half/wide, warm", {{"half x1", 40}, {"wide", 60}}, 1, true);
      for (const char* other : {"wide", "half"}) {
        const std::string beside = std::string("/") + other;
        add("50:50 graphs of lengths" + beside, {{"lengths", 50}, {other, 50}}, 1);
        add("50:50 graphs of lengths" + beside + ", warm", {{"lengths", 50}, {other, 50}}, 1, true);
        add("50:50 graphs of widths" + beside, {{"widths", 50}, {other, 50}}, 1);
      }
      add("50:50 graphs of half, 40 us/wide", {{"half, short", 50}, {"wide", 50}}, 1);
      add("50:50 graphs of half, 40 us/wide, warm", {{"half, short", 50}, {"wide", 50}}, 1, true);
      add("50:50 graphs of wide, 40 us/small", {{"wide, short", 50}, {"small", 50}}, 1);
      add("50:50 graphs of half beside graphs of wide", {{"half x1", 50}, {"wide x1", 50}}, 2);
      add("20:40:40 graphs of small, half, lengths",
          {{"small x1", 20}, {"half x1", 40}, {"lengths", 40}}, 3);
      add("20:40:40 graphs of small, half, lengths, warm",
          {{"small x1", 20}, {"half x1", 40}, {"lengths", 40}}, 3, true);
      add("50:30:20 graphs of small, half beside wide",
          {{"small x1", 50}, {"half x1", 30}, {"wide", 20}}, 2);
      add("40:60 graphs of half/wide, not seen", {{"half x1", 40}, {"wide", 60}}, 1, false, true);
      add("40:60 graphs of wide/small, not seen", {{"wide x1", 40}, {"small", 60}}, 1, false, true);
    }
    {
      // Graphs of many kernels on 12 to 200 SMs. Beyond the bar, a graph ÷ the window.
      for (const auto& [graph, longest_ms] : std::vector<std::pair<const char*, double>>{
               {"48 kernels", 1.0}, {"128 kernels", 2.6}, {"512 kernels", 10.6}}) {
        for (const char* other : {"half", "14us"}) {
          CaseSpec spec = Mix(t, {{graph, 50}, {other, 50}}, Mode::kBacklog, true);
          spec.tenants[0].mode = Mode::kGraph;
          spec.tenants[0].warmed_up = true;
          cases.push_back(Shares(std::string("overlap 50:50 graphs of ") + graph + "/" + other,
                                 spec,
                                 {.error_1s = 2.5 + longest_ms / 10,
                                  .error_100ms = std::max(4.0, longest_ms),
                                  .work = 85}));
        }
      }
      for (const auto& [graph, other] : std::vector<std::pair<const char*, const char*>>{
               {"48 kinds", "half"}, {"48 kinds", "wide"}, {"160 kinds", "half"}}) {
        CaseSpec kinds = Mix(t, {{graph, 50}, {other, 50}}, Mode::kBacklog, true);
        kinds.tenants[0].mode = Mode::kGraph;
        cases.push_back(Shares(std::string("overlap 50:50 graphs of ") + graph + "/" + other, kinds,
                               overlapping));
      }
      CaseSpec spec = Mix(t, {{"48 kernels, few long", 50}, {"half", 50}}, Mode::kBacklog, true);
      spec.tenants[0].mode = Mode::kGraph;
      cases.push_back(
          Shares("overlap 50:50 graphs of 48 kernels, few long/half", spec, overlapping));
    }
    {
      // Graphs with branches.
      struct Branching {
        const char* graph;
        int branches, layer;
        const char* other;
        bool warmed_up;
      };
      for (const Branching& b :
           {Branching{"branches", 2, 6, "half", true}, Branching{"branches", 3, 6, "half", true},
            Branching{"branches", 3, 6, "14us", true}, Branching{"branches", 2, 0, "half", true},
            Branching{"branches", 2, 6, "half", false}, Branching{"half x1", 2, 0, "half", false},
            Branching{"half x1", 2, 0, "wide", true}, Branching{"half x1", 2, 0, "14us", true},
            Branching{"48 kernels", 2, 6, "half", true},
            Branching{"48 kernels", 3, 12, "14us", true}}) {
        CaseSpec spec = Mix(t, {{b.graph, 50}, {b.other, 50}}, Mode::kBacklog, true);
        spec.tenants[0].mode = Mode::kGraph;
        spec.tenants[0].warmed_up = b.warmed_up;
        spec.tenants[0].branches = b.branches;
        spec.tenants[0].layer = b.layer;
        std::string name = "overlap 50:50 graphs of " + std::string(b.graph) + ", " +
                           std::to_string(b.branches) + " branches";
        if (b.layer > 0) name += " a layer of " + std::to_string(b.layer);
        name += std::string("/") + b.other + (b.warmed_up ? ", warm" : "");
        cases.push_back(Shares(name, spec, overlapping));
      }
    }
    cases.push_back(
        Shares("overlap 40:60 small/wide", Mix(t, two, Mode::kBacklog, true), overlapping));
    cases.push_back(Shares("overlap 50:30:20", Mix(t, three, Mode::kBacklog, true), overlapping));
    cases.push_back(Shares("overlap 16 equal", Mix(t, many, Mode::kBacklog, true),
                           {.error_1s = 3.5, .work = 85}));
  }
  auto tenant = [&](const char* trace, Mode mode) {
    TenantSpec spec;
    spec.name = trace;
    spec.trace = t.at(trace);
    spec.mode = mode;
    return spec;
  };
  cases.push_back(Cap("cap 14us kernels", tenant("14us", Mode::kBacklog), false));
  cases.push_back(Cap("cap 1ms kernels", tenant("1ms", Mode::kBacklog), false));
  cases.push_back(Cap("cap 10ms kernels", tenant("10ms", Mode::kBacklog), false));
  cases.push_back(Cap("cap 1-block kernels", tenant("1block", Mode::kBacklog), false));
  cases.push_back(Cap("cap graphs", tenant("mid", Mode::kGraph), false));
  cases.push_back(Cap("cap all kinds of commands", tenant("mixed long", Mode::kMixed), false));
  cases.push_back(Cap("cap sync per launch", tenant("mid", Mode::kSyncEach), true));
  cases.push_back(Cap("cap 30us kernels, slow host", tenant("30us", Mode::kSlowHost), true));
  cases.push_back(Online("online 20 % beside 1ms", t.at("request"), t.at("1ms"), 0.2, false));
  cases.push_back(Online("online 50 % beside mid", t.at("request"), t.at("mid"), 0.5, false));
  cases.push_back(
      Online("online 20 % beside wide, overlap", t.at("request"), t.at("wide"), 0.2, true));
  cases.push_back(Online("online 20 % beside all kinds of commands", t.at("request"),
                         t.at("mixed long"), 0.2, false, Mode::kMixed));
  // Nothing of the time between two requests is the job's while the gate is closed for their sake.
  cases.push_back(
      Online("online 20 % beside mid, requests of 0.5 ms", t.at("0.5ms"), t.at("mid"), 0.2, false));
  const CaseSpec changing = serial({{"14us", 75}, {"1ms", 25}});
  cases.push_back(Mispredicted("mispredicted x0.3", changing, 0.3, 1));
  cases.push_back(Mispredicted("mispredicted x3", changing, 3, 1));
  cases.push_back(Mispredicted("clocks fall by 25 %", changing, 1.33, 1.33));
  cases.push_back(Demonstration("the four tenants of the demonstration"));
  // Of kernels of 3 and of 12 us, which share the device in part.
  cases.push_back(
      Shares("overlap 70:30 resnet50 training/inference",
             Mix(t, {{"resnet50 training", 70}, {"resnet50 inference", 30}}, Mode::kBacklog, true),
             {.error_1s = 2.5, .work = 85}));
  if (!real) return cases;

  const std::vector<std::pair<const char*, std::vector<Part>>> mixes = {
      {"75:25 resnet50/transformer-xl",
       {{"resnet50_b32_training", 75}, {"transformer_xl_b8_training", 25}}},
      {"75:25 bert/mobilenetv2", {{"bert_b2_inference", 75}, {"mobilenetv2_b64_training", 25}}},
      {"25:75 mobilenetv2/transformer-xl",
       {{"mobilenetv2_b64_training", 25}, {"transformer_xl_b8_training", 75}}},
      {"50:30:20 bert/resnet50/mobilenetv2",
       {{"bert_b2_inference", 50},
        {"resnet50_b32_training", 30},
        {"mobilenetv2_b64_training", 20}}},
      {"50:50 bert/resnet50 inference",
       {{"bert_b2_inference", 50}, {"resnet50_b4_inference", 50}}}};
  for (const auto& [name, parts] : mixes) {
    cases.push_back(Shares(std::string("real serial ") + name, serial(parts), {}));
  }
  for (const auto& [name, parts] : mixes) {
    cases.push_back(
        Shares(std::string("real sync ") + name, serial(parts, Mode::kSync), synchronising));
  }
  for (const auto& [name, parts] : mixes) {
    cases.push_back(Shares(std::string("real overlap ") + name, Mix(t, parts, Mode::kBacklog, true),
                           overlapping));
  }
  // Of kernels that fill a part of the device, and are to have most of it.
  for (const char* beside : {"bert_b2_inference", "mobilenetv2_b64_training"}) {
    cases.push_back(Shares(
        std::string("real overlap 70:30 resnet50 inference/") + beside,
        Mix(t, {{"resnet50_b4_inference", 70}, {beside, 30}}, Mode::kBacklog, true), overlapping));
  }
  for (const char* trace :
       {"resnet50_b32_training", "bert_b2_inference", "transformer_xl_b8_training"}) {
    cases.push_back(Cap(std::string("real cap ") + trace, tenant(trace, Mode::kBacklog), false));
  }
  for (double load : {0.2, 0.5}) {
    for (const char* trace : {"transformer_xl_b8_training", "mobilenetv2_b64_training"}) {
      const std::string name = "real online resnet50 " +
                               std::to_string(static_cast<int>(load * 100)) + " % beside " + trace;
      cases.push_back(Online(name, t.at("resnet50_b4_inference"), t.at(trace), load, false));
      cases.push_back(
          Online(name + ", overlap", t.at("resnet50_b4_inference"), t.at(trace), load, true));
    }
  }
  return cases;
}

}  // namespace gpushare::bench
