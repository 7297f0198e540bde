// SPDX-License-Identifier: Apache-2.0
#include "harness/work.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "harness/values.h"
#include "spec/text.h"
#include "workload/models.h"
#include "workload/roofline.h"

namespace gpushare::harness {
namespace {

using yaml::Node;

// The keys of all three forms; which ones are given decides the form.
struct Given {
  std::vector<Nanos> kernels;
  int64_t repeat = 1, sms = 132;
  std::string trace, model;
  int64_t batch = 1, tokens = 128;
  workload::Pass pass = workload::Pass::kInference;
  bool says_kernels = false, says_model = false;  // whether a key of only this form was given
};

absl::Status ReadKernels(const yaml::Reader& in, const Node& value, const std::string& place,
                         std::vector<Nanos>* kernels) {
  constexpr char kAllowed[] = "1 to 1000 times of 1us to 1s, as in 30us 60us";
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, kAllowed, &text));
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipWhitespace())) {
    const absl::StatusOr<Nanos> time = spec::ParseDuration({word.data(), word.size()});
    if (!time.ok() || *time < Micros(1) || *time > Seconds(1) || kernels->size() == 1000) {
      return in.Wrong(value, place, absl::StrCat("allowed: ", kAllowed));
    }
    kernels->push_back(*time);
  }
  return absl::OkStatus();
}

absl::StatusOr<workload::ModelTrace> MakeModel(const std::string& model, const Given& given) {
  GPUSHARE_ASSIGN_OR_RETURN(const workload::GpuRates rates, workload::RatesOf("h200"));
  if (model == "resnet50") {
    return workload::Resnet50({.pass = given.pass, .batch = given.batch}, rates);
  }
  if (model == "bert-base") {
    return workload::BertBase(
        {.pass = given.pass, .batch = given.batch, .sequence_length = given.tokens}, rates);
  }
  if (model == "gpt-prefill") {
    return workload::GptPrefill({.batch = given.batch}, given.tokens, rates);
  }
  return workload::GptDecode({.batch = given.batch}, given.tokens, rates);
}

}  // namespace

absl::Status ReadWork(const yaml::Reader& in, const Node& map, const std::string& place,
                      const std::string& folder, workload::KernelTrace* work) {
  using Where = const std::string&;
  Given given;
  const auto count = [&](int64_t most, int64_t* out, bool* says) {
    return [&in, most, out, says](const Node& value, Where below) {
      *says = true;
      return ReadCount(in, value, below, 1, most, out);
    };
  };
  const absl::Status keys = in.Keys(
      map, place,
      {{"kernels", [&](const Node& value,
                       Where below) { return ReadKernels(in, value, below, &given.kernels); }},
       {"repeat", count(100'000, &given.repeat, &given.says_kernels)},
       {"sms", count(4096, &given.sms, &given.says_kernels)},
       {"trace",
        [&](const Node& value, Where below) {
          return in.Text(value, below, "the path of a kernel trace", &given.trace);
        }},
       {"model",
        [&](const Node& value, Where below) {
          size_t which = 0;
          GPUSHARE_RETURN_IF_ERROR(
              ReadWord(in, value, below, "resnet50|bert-base|gpt-prefill|gpt-decode", &which));
          given.model = value.text;
          return absl::OkStatus();
        }},
       {"batch", count(4096, &given.batch, &given.says_model)},
       {"tokens", count(16'384, &given.tokens, &given.says_model)},
       {"pass", [&](const Node& value, Where below) {
          size_t pass = 0;
          GPUSHARE_RETURN_IF_ERROR(ReadWord(in, value, below, "inference|training", &pass));
          given.pass = static_cast<workload::Pass>(pass);
          given.says_model = true;
          return absl::OkStatus();
        }}});
  if (!keys.ok()) return keys;
  const int forms = (given.kernels.empty() ? 0 : 1) + (given.trace.empty() ? 0 : 1) +
                    (given.model.empty() ? 0 : 1);
  if (forms != 1) return in.Error(map.line, place, "allowed: one of kernels, trace and model");
  if (given.says_kernels && given.kernels.empty()) {
    return in.Error(map.line, place, "'repeat' and 'sms' are of 'kernels'");
  }
  if (given.says_model && given.model.empty()) {
    return in.Error(map.line, place, "'batch', 'tokens' and 'pass' are of 'model'");
  }
  if (!given.model.empty()) {
    absl::StatusOr<workload::ModelTrace> model = MakeModel(given.model, given);
    if (!model.ok()) return in.Error(map.line, place, std::string(model.status().message()));
    *work = std::move(model->trace);
    return absl::OkStatus();
  }
  if (!given.trace.empty()) {
    const bool absolute = given.trace.front() == '/';
    absl::StatusOr<workload::KernelTrace> trace =
        workload::ReadTraceFile(absolute ? given.trace : absl::StrCat(folder, given.trace));
    if (!trace.ok()) return in.Error(map.line, place, std::string(trace.status().message()));
    *work = *std::move(trace);
    return absl::OkStatus();
  }
  if (given.repeat * static_cast<int64_t>(given.kernels.size()) > workload::kMaxTraceKernels) {
    return in.Error(map.line, place,
                    absl::StrCat("at most ", workload::kMaxTraceKernels, " kernels in all"));
  }
  *work = workload::KernelTrace("kernels");
  for (int64_t pass = 0; pass < given.repeat; ++pass) {
    for (size_t i = 0; i < given.kernels.size(); ++i) {
      work->Add(absl::StrCat("kernel_", i), workload::Bound::kUnknown, given.sms, given.kernels[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadBatches(const yaml::Reader& in, const Node& map, const std::string& place,
                         const std::string& folder, workload::KernelTrace* work,
                         std::vector<player::BatchPass>* batches) {
  constexpr size_t kMostSizes = 64;
  std::map<int64_t, workload::KernelTrace> by_size;
  size_t kernels = 0;
  const absl::Status entries = in.Entries(
      map, place, "numbers of requests, each with its work",
      [&](const Node& key, const Node& value, const std::string& below) {
        int64_t size = 0;
        GPUSHARE_RETURN_IF_ERROR(ReadCount(in, key, below, 1, 4096, &size));
        if (by_size.contains(size)) return in.Error(key.line, below, "it is given twice");
        if (by_size.size() == kMostSizes) {
          return in.Error(key.line, place, absl::StrCat("at most ", kMostSizes, " are allowed"));
        }
        workload::KernelTrace& one = by_size[size];
        GPUSHARE_RETURN_IF_ERROR(ReadWork(in, value, below, folder, &one));
        kernels += one.kernels().size();
        if (kernels <= static_cast<size_t>(workload::kMaxTraceKernels)) return absl::OkStatus();
        return in.Error(key.line, place,
                        absl::StrCat("at most ", workload::kMaxTraceKernels, " kernels in all"));
      });
  if (!entries.ok()) return entries;
  if (by_size.empty()) return in.Error(map.line, place, "at least one is wanted");
  *work = workload::KernelTrace("batches");
  for (const auto& [size, one] : by_size) {
    batches->push_back({static_cast<size_t>(size), work->kernels().size(), one.kernels().size()});
    for (const workload::TraceKernel& kernel : one.kernels()) {
      work->Add(one.name_of(kernel), kernel.bound, kernel.sms, kernel.duration);
    }
  }
  return absl::OkStatus();
}

}  // namespace gpushare::harness
