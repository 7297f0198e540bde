// SPDX-License-Identifier: Apache-2.0
#include "device/share/partition.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/abi/last_error.h"
#include "device/share/admission.h"
#include "spec/text.h"

namespace gpushare::device {

Partition::~Partition() {
  if (green_ != nullptr) static_cast<void>(owner_.driver_.DestroyGreenContext(green_));
  owner_.Return(steps_);
}

absl::Status Partitions::Split() {
  {
    base::MutexLock lock(&mutex_);
    if (split_) return absl::OkStatus();
  }
  std::vector<driver::Driver::SmStep> steps;
  int sms = 0;
  const driver::Result result = driver_.SplitSms(ordinal_, &steps, &sms);
  if (result == driver::Result::kNotSupported) {
    return absl::UnimplementedError(
        absl::StrCat("spec field 'isolation': green: the driver of GPU ", ordinal_,
                     " has no green contexts; it takes one of CUDA 12.5 or newer"));
  }
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuDevSmResourceSplitByCount"));
  base::MutexLock lock(&mutex_);
  if (split_) return absl::OkStatus();
  uses_.assign(steps.size(), 0);  // needs memory, so it comes first
  split_ = true;
  steps_ = std::move(steps);
  step_sms_ = sms;
  return absl::OkStatus();
}

size_t Partitions::StepsFor(double share) const {
  const double steps = share * sm_count_ / step_sms_;
  return std::max<size_t>(1, static_cast<size_t>(std::ceil(steps - kRounding)));
}

absl::StatusOr<double> Partitions::Round(double share) {
  GPUSHARE_RETURN_IF_ERROR(Split());
  const size_t wanted = StepsFor(share);
  if (wanted > steps_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("spec field 'isolation': green with ", spec::FormatShare(share), " of GPU ",
                     ordinal_, "'s ", sm_count_, " SMs given; it gives them out in ", steps_.size(),
                     " steps of ", step_sms_, ", ask for less 'compute'"));
  }
  return static_cast<double>(static_cast<int>(wanted) * step_sms_) / sm_count_;
}

absl::StatusOr<std::shared_ptr<Partition>> Partitions::Make(const std::string& tenant, double share,
                                                            const Partition* old) {
  GPUSHARE_RETURN_IF_ERROR(Split());
  const size_t wanted = StepsFor(share);
  const std::shared_ptr<Partition> made(new Partition(*this));
  {
    base::MutexLock lock(&mutex_);
    std::vector<size_t> taken;
    if (old != nullptr) {
      taken.assign(old->steps_.begin(), old->steps_.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                  wanted, old->steps_.size())));
    }
    size_t left = taken.size();
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (uses_[i] != 0) continue;
      ++left;
      if (taken.size() < wanted) taken.push_back(i);
    }
    if (taken.size() < wanted) {
      const auto sms = [this](size_t steps) { return static_cast<int>(steps) * step_sms_; };
      const auto millionths = [&](size_t steps) {
        return static_cast<uint64_t>(std::llround(1e6 * sms(steps) / sm_count_));
      };
      return WithDetail(
          absl::ResourceExhaustedError(absl::StrCat(
              "tenant ", Quoted(tenant), " on GPU ", ordinal_, ": isolation=green asks for ",
              sms(wanted), " SMs (", spec::FormatShare(share), " of ", sm_count_, ", in steps of ",
              step_sms_, "), ", sms(left),
              " are in no partition; ask for less 'compute', or resize ",
              "or close another device of isolation green")),
          {.tenant = tenant,
           .limit = "guarantee",
           .asked = millionths(wanted),
           .left = millionths(left),
           .total = 1'000'000});
    }
    for (const size_t step : taken) ++uses_[step];
    made->steps_ = std::move(taken);  // from here on it gives them back
  }
  std::vector<driver::Driver::SmStep> resources;
  resources.reserve(made->steps_.size());
  for (const size_t step : made->steps_) resources.push_back(steps_[step]);
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(
      driver_.CreateGreenContext(&made->green_, ordinal_, resources), "cuGreenCtxCreate"));
  GPUSHARE_RETURN_IF_ERROR(
      driver::ToStatus(driver_.AsContext(&made->context_, made->green_), "cuCtxFromGreenCtx"));
  made->sms_ = static_cast<int>(resources.size()) * step_sms_;
  made->share_ = static_cast<double>(made->sms_) / sm_count_;
  return made;
}

void Partitions::Return(const std::vector<size_t>& steps) {
  base::MutexLock lock(&mutex_);
  for (const size_t step : steps) --uses_[step];
}

}  // namespace gpushare::device
