// SPDX-License-Identifier: Apache-2.0
// Policies by name through the public API, on the simulated GPU: the share that a virtual device gets, and a Resize()
// from each policy to each other. policy_test.cc tests all promises of each policy.
#include <string>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

struct Named {
  const char* policy;
  const char* spec;  // asks for a share of 30 % or a weight of 1, whichever the policy takes
  double beside;     // share beside one backlogged tenant of weight 1
  double alone;
};
constexpr Named kPolicies[] = {
    {"best-effort", "policy=best-effort", 0, 1},
    {"fixed-share", "compute=30%,policy=fixed-share", 0.3, 0.3},
    {"burst-share", "compute=30%,policy=burst-share", 0.65, 1},
    {"fair-share", "policy=fair-share", 0.5, 1},
    {"preemptive", "policy=preemptive", 0.5, 1},
    {"weight", "weight=1,policy=weight", 0.5, 1},
    {"equal-share", "policy=equal-share", 0.5, 1},
    {"hard", "compute=30%,policy=hard", 0.3, 0.3},
    {"soft", "compute=30%,policy=soft", 0.65, 1},
    {"request-limit", "compute=30%,cap=80%,policy=request-limit", 0.65, 0.8},
    {"force", "compute=30%,policy=force", 0.3, 0.3},
    {"default", "compute=30%,policy=default", 0.65, 1},
};

class PolicySim : public StreamTest {
 protected:
  std::string config() const override {
    return "sms=100,memory=8GiB,overlap=serial,clock=virtual,noise=0.03,seed=5";
  }
  // Shares of the device in the last two thirds of `length`, while every device is backlogged.
  std::vector<double> SharesOf(const std::vector<const VirtualDevice*>& devices,
                               absl::Duration length) {
    const absl::Duration begin = runtime_->Now(), end = begin + length;
    std::vector<Stream> streams;
    std::vector<Thread> threads;
    for (const VirtualDevice* device : devices) {
      streams.push_back(Must(Stream::Create(*device)));
      EXPECT_EQ(account_(Must(streams.back().native()), static_cast<uint32_t>(streams.size())), 0);
    }
    for (const Stream& stream : streams) {
      threads.push_back(Must(runtime_->StartThread("tenant", [this, &stream, end] {
        while (runtime_->Now() < end) EXPECT_OK(Spin(stream, absl::Microseconds(200)));
        EXPECT_OK(stream.Synchronize());
      })));
    }
    const auto used = [&] {
      std::vector<double> ms;
      for (uint32_t i = 1; i <= streams.size(); ++i) {
        gpushare_sim_truth truth{};
        EXPECT_EQ(truth_(0, i, &truth), 0);
        ms.push_back(truth.used_ns * 1e-6);
      }
      return ms;
    };
    runtime_->SleepFor(length / 3);
    std::vector<double> shares = used();
    const absl::Duration from = runtime_->Now();
    runtime_->SleepFor(end - from);
    const std::vector<double> last = used();
    const double window = absl::ToDoubleMilliseconds(runtime_->Now() - from);
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = (last[i] - shares[i]) / window;
    threads.clear();
    return shares;
  }
};

class PolicySimByName : public PolicySim, public ::testing::WithParamInterface<Named> {};

TEST_P(PolicySimByName, GetsWhatItPromises) {
  const VirtualDevice device = MakeDevice("a", GetParam().spec), other = MakeDevice("b", "");
  const std::vector<double> beside = SharesOf({&device, &other}, absl::Milliseconds(900));
  EXPECT_NEAR(beside[0], GetParam().beside, 0.02);
  EXPECT_GE(beside[0] + beside[1], 0.98);
  EXPECT_NEAR(SharesOf({&device}, absl::Milliseconds(600))[0], GetParam().alone, 0.02);
}

TEST_P(PolicySimByName, TakesOverByResizeWhileItRuns) {
  const VirtualDevice device = MakeDevice("a", "compute=60%,policy=fixed-share");
  const VirtualDevice other = MakeDevice("b", "");
  std::vector<double> shares;
  {
    Thread resize = Must(runtime_->StartThread("resize", [&] {
      runtime_->SleepFor(absl::Milliseconds(150));
      EXPECT_OK(device.Resize(GetParam().spec));
    }));
    shares = SharesOf({&device, &other}, absl::Milliseconds(900));
  }
  EXPECT_NEAR(shares[0], GetParam().beside, 0.03);
  // And back: the settings that only this policy has are gone.
  EXPECT_OK(device.Resize("compute=60%,policy=fixed-share"));
  EXPECT_NEAR(SharesOf({&device}, absl::Milliseconds(300))[0], 0.6, 0.04);
}

std::string NameOf(const ::testing::TestParamInfo<Named>& tested) {
  std::string name = tested.param.policy;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}
INSTANTIATE_TEST_SUITE_P(Policies, PolicySimByName, ::testing::ValuesIn(kPolicies), NameOf);

TEST_F(PolicySim, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  const Tenant tenant = MakeTenant("a");
  const auto device = VirtualDevice::Create(*gpu_, tenant, "compute=30%,policy=turbo");
  ASSERT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  const VirtualDevice there = Must(VirtualDevice::Create(*gpu_, tenant, "compute=30%"));
  const absl::Status resized = there.Resize("policy=turbo");
  ASSERT_EQ(resized.code(), absl::StatusCode::kInvalidArgument);
  for (const Named& named : kPolicies) {
    EXPECT_THAT(std::string(device.status().message()), HasSubstr(named.policy));
    EXPECT_THAT(std::string(resized.message()), HasSubstr(named.policy));
  }
}

}  // namespace
}  // namespace gpushare
