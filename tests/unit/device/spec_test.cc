// SPDX-License-Identifier: Apache-2.0
#include "gpushare/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "spec/spec.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

std::string Message(std::string_view text) {
  const auto spec = VirtualDeviceSpec::Parse(text);
  EXPECT_FALSE(spec.ok()) << text;
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(spec.status().message());
}

TEST(Spec, ParsesEveryKey) {
  const auto spec = VirtualDeviceSpec::Parse(
      " memory=8GiB, "
      "memory_cap=12GiB,compute=30%,weight=2.5,guarantee=20%,cap=50%,burst=20ms,priority=high,"
      "delay=2.5%,h2d=4GB/s,d2h=512MiB/"
      "s,isolation=shared,oversubscription=off,policy=burst-share ");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(*spec->memory, GiB(8));
  EXPECT_EQ(*spec->memory_cap, GiB(12));
  EXPECT_EQ(*spec->compute, Percent(30));
  EXPECT_EQ(*spec->weight, 2.5);
  EXPECT_EQ(*spec->guarantee, Percent(20));
  EXPECT_EQ(*spec->cap, Percent(50));
  EXPECT_EQ(*spec->burst, absl::Milliseconds(20));
  EXPECT_EQ(*spec->priority, Priority::kHigh);
  EXPECT_EQ(*spec->delay, Share::Fraction(0.025));
  EXPECT_EQ(*spec->h2d, BytesPerSecond(4'000'000'000));
  EXPECT_EQ(*spec->d2h, Bandwidth(uint64_t{512} << 20));
  EXPECT_EQ(*spec->policy, "burst-share");
  EXPECT_EQ(spec->ToString(),
            "memory=8GiB,memory_cap=12GiB,compute=30%,weight=2.5,guarantee=20%,cap=50%,burst=20ms,"
            "priority=high,delay=2.5%,h2d=4GB/s,d2h=536870912B/"
            "s,isolation=shared,oversubscription=off,policy=burst-share");
  EXPECT_EQ(*VirtualDeviceSpec::Parse(spec->ToString()), *spec);
}

TEST(Spec, AmountsAreWrittenAsInItsText) {
  const auto text = [](const auto& amount) {
    std::ostringstream out;
    out << amount;
    return out.str();
  };
  for (const Bytes amount : {Bytes(1), Bytes(1023), KiB(1), Bytes(1025), MiB(3), GiB(8)}) {
    EXPECT_EQ(VirtualDeviceSpec::Parse("memory=" + text(amount))->memory, amount);
  }
  EXPECT_EQ(text(Bytes(0)), "0B");
  EXPECT_EQ(text(Bytes(1025)), "1025B");
  EXPECT_EQ(text(GiB(8)), "8GiB");
  EXPECT_EQ(text(GiB(5 * 1024)), "5TiB");
  EXPECT_EQ(text(Percent(12.5)), "12.5%");
  EXPECT_EQ(text(BytesPerSecond(4'000'000'000)), "4GB/s");
  EXPECT_EQ(text(BytesPerSecond(1 << 20)), "1048576B/s");
}

TEST(Spec, AnEmptyTextSetsNothing) {
  EXPECT_EQ(*VirtualDeviceSpec::Parse(""), VirtualDeviceSpec());
  EXPECT_EQ(*VirtualDeviceSpec::Parse("  "), VirtualDeviceSpec());
  EXPECT_EQ(VirtualDeviceSpec().ToString(), "");
}

TEST(Spec, ErrorsNameFieldAndRange) {
  EXPECT_THAT(Message("memorry=8GiB"),
              HasSubstr("unknown key 'memorry'; keys are memory, memory_cap, compute"));
  EXPECT_THAT(Message("compute=130%"),
              HasSubstr("'compute': 130%: it is over 100 %; allowed: 0.01% to 100%"));
  EXPECT_THAT(Message("compute=0%"), HasSubstr("'compute': 0%: it is too small"));
  EXPECT_THAT(Message("memory=0"), HasSubstr("'memory': 0B: it is zero; allowed: 1B to"));
  EXPECT_THAT(Message("memory=-1GiB"), HasSubstr("'memory': '-1GiB': it is negative"));
  EXPECT_THAT(Message("memory=99999999999999999999GiB"), HasSubstr("it is too large"));
  EXPECT_THAT(Message("memory=120%"), HasSubstr("over 100 %"));
  EXPECT_THAT(Message("weight=0"), HasSubstr("'weight': 0: it is out of range"));
  EXPECT_THAT(Message("cap=0%"), HasSubstr("'cap'"));
  EXPECT_THAT(Message("guarantee=50%,cap=30%"),
              HasSubstr("'guarantee': 50% is over the cap of 30%"));
  EXPECT_THAT(Message("delay=21%"), HasSubstr("'delay': 21%: it is too large; allowed: 0% to 20%"));
  EXPECT_THAT(Message("burst=11s"), HasSubstr("'burst': 11s: it is too large; allowed: 0s to 10s"));
  EXPECT_THAT(Message("priority=urgent"), HasSubstr("allowed: high, normal or low"));
  EXPECT_THAT(Message("h2d=1B/s"), HasSubstr("'h2d': 1B/s: it is too small"));
  EXPECT_THAT(Message("h2d=4GB"), HasSubstr("/s"));
  EXPECT_THAT(Message("policy=none-such"), HasSubstr("best-effort"));
  EXPECT_THAT(VirtualDeviceSpec{.policy = "fixed-share"}.Validate().message(),
              HasSubstr("needs a share"));
  EXPECT_THAT(Message("memory"), HasSubstr("is not key=value"));
  EXPECT_THAT(Message("memory=1GiB,memory=2GiB"), HasSubstr("'memory': it is given twice"));
  EXPECT_THAT(Message("memory=1GiB,memory=50%"), HasSubstr("given twice"));
  EXPECT_THAT(Message("memory=1GiB,"), HasSubstr("ends in a comma"));
  EXPECT_THAT(Message(",memory=1GiB"), HasSubstr("is not key=value"));
  EXPECT_THAT(Message("memory=\xff"), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(Message(std::string(1 << 20, 'a')), HasSubstr("1048576 bytes given, at most 4096"));
  EXPECT_THAT(Message(std::string("memory=1GiB\0", 12)), HasSubstr("'memory'"));
}

TEST(Spec, WhatIsNotOfferedYetIsUnimplementedByName) {
  const auto spec = VirtualDeviceSpec::Parse("oversubscription=swap");
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(spec.status().message()),
              AllOf(HasSubstr("swap is not implemented yet"), HasSubstr("'swappable'")));
}

TEST(Spec, ValidateCatchesWhatTextCannotSay) {
  VirtualDeviceSpec spec;
  spec.compute = Share::Fraction(1e300);
  EXPECT_THAT(std::string(spec.Validate().message()), HasSubstr("'compute': 1e+302%: it is over"));
  spec.compute = Share::Fraction(0.0 / 0.0 * 1);
  EXPECT_EQ(spec.Validate().code(), absl::StatusCode::kInvalidArgument);
  spec = {};
  spec.burst = absl::Seconds(-1);
  EXPECT_EQ(spec.Validate().code(), absl::StatusCode::kInvalidArgument);
  spec = {};
  spec.priority = static_cast<Priority>(17);
  EXPECT_EQ(spec.Validate().code(), absl::StatusCode::kInvalidArgument);
  spec = {};
  spec.policy = std::string(100, 'p');
  EXPECT_EQ(spec.Validate().code(), absl::StatusCode::kInvalidArgument);
  spec = {};
  spec.memory = GiB(1);
  spec.memory_share = Percent(10);
  EXPECT_EQ(spec.Validate().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Spec, EveryPolicyNameIsAccepted) {
  ASSERT_GE(PolicyNames().size(), 10u);
  for (const std::string& name : PolicyNames()) {
    bool accepted = false;
    for (const char* keys : {"", "compute=30%,", "weight=2,"}) {
      accepted |= VirtualDeviceSpec::Parse(std::string(keys) + "policy=" + name).ok();
    }
    EXPECT_TRUE(accepted) << name;
  }
}

sched::TenantLimits Resolved(std::string_view text) {
  const auto spec = spec::ParseSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  const auto limits = spec::ResolveSpec(*spec, GPUSHARE_PRIORITY_UNSET, uint64_t{10} << 30);
  EXPECT_TRUE(limits.ok()) << limits.status();
  return limits->compute;
}

TEST(Spec, ComputeMeansWhatThePolicySays) {
  EXPECT_EQ(Resolved("compute=30%").guarantee, 0.3);
  EXPECT_EQ(Resolved("compute=30%").cap, 1);
  EXPECT_EQ(Resolved("compute=30%,policy=fixed-share").cap, 0.3);
  EXPECT_EQ(Resolved("compute=30%,cap=60%").cap, 0.6);
  EXPECT_EQ(Resolved("compute=30%,cap=10%").guarantee, 0.1);
  EXPECT_EQ(Resolved("weight=3,policy=weight").weight, 3);
  EXPECT_EQ(Resolved("policy=best-effort").band, sched::Band::kLow);
  EXPECT_EQ(Resolved("policy=best-effort,priority=normal").band, sched::Band::kNormal);
  EXPECT_EQ(Resolved("").guarantee, 0);
}

TEST(Spec, WhatContradictsThePolicyIsRefusedByField) {
  EXPECT_THAT(Message("policy=fair-share,weight=5"),
              HasSubstr("'weight': 5 given, but policy 'fair-share' gives each tenant the same"));
  EXPECT_THAT(Message("policy=best-effort,guarantee=50%"),
              HasSubstr("'guarantee': 50% given, but policy 'best-effort' promises nothing"));
  EXPECT_THAT(Message("policy=best-effort,compute=50%"),
              HasSubstr("'compute': 50% given, but policy 'best-effort' promises nothing"));
  EXPECT_THAT(Message("policy=fixed-share,compute=30%,guarantee=0%"),
              HasSubstr("'guarantee': 0% given, but policy 'fixed-share' promises exactly "
                        "'compute', 30%"));
  EXPECT_THAT(Message("policy=equal-share,compute=50%"), HasSubstr("'compute': 50% given"));
  EXPECT_THAT(Message("policy=weight,weight=2,guarantee=5%"), HasSubstr("by weight alone"));
  EXPECT_EQ(Resolved("policy=fixed-share,compute=30%,guarantee=30%").guarantee, 0.3);
  EXPECT_EQ(Resolved("policy=best-effort,cap=20%").cap, 0.2);
  EXPECT_EQ(Resolved("policy=fair-share,cap=20%").cap, 0.2);
}

TEST(Spec, ACapOfMemoryIsNoLessThanTheGuarantee) {
  EXPECT_THAT(Message("memory=2GiB,memory_cap=1GiB"),
              HasSubstr("'memory_cap': 1GiB: it is less than 'memory'; raise it along"));
  EXPECT_THAT(Message("memory=50%,memory_cap=40%"), HasSubstr("less than 'memory'"));
  EXPECT_THAT(Message("memory=1GiB,memory_cap=0"), HasSubstr("'memory_cap': 0B: it is zero"));
  EXPECT_THAT(Message("memory_cap=1GiB,memory_cap=50%"), HasSubstr("it is given twice"));
  // Alone it may be a change; a complete spec also needs the guarantee.
  const auto change = spec::ParseSpec("memory_cap=4GiB");
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_THAT(std::string(spec::ValidateSpec(*change).message()),
              HasSubstr("it needs 'memory' beside it"));
  const auto limits = [](const char* text) {
    return spec::ResolveSpec(*spec::ParseSpec(text), GPUSHARE_PRIORITY_UNSET, 1000 << 20);
  };
  EXPECT_EQ(limits("memory=100MiB,memory_cap=50%")->memory_cap, uint64_t{500} << 20);
  EXPECT_EQ(limits("memory=10%,memory_cap=8GiB")->memory_cap, uint64_t{1000} << 20);
  EXPECT_FALSE(limits("memory=100MiB").value().memory_cap.has_value());
  EXPECT_THAT(std::string(limits("memory=600MiB,memory_cap=50%").status().message()),
              HasSubstr("'memory_cap': 50%: it is less than 'memory', 600 MiB"));
  EXPECT_EQ(
      spec::FormatSpec(spec::MergeSpec(*spec::ParseSpec("memory=1GiB,memory_cap=50%"), *change)),
      "memory=1GiB,memory_cap=4GiB");
}

// The result would be a quota of zero, for which 'memory=0' is refused too.
TEST(Spec, APartOfNothingIsRefused) {
  const auto spec = spec::ParseSpec("memory=10%,memory_cap=50%");
  ASSERT_TRUE(spec.ok()) << spec.status();
  for (const uint64_t capacity : {0u, 9u}) {
    const auto limits = spec::ResolveSpec(*spec, GPUSHARE_PRIORITY_UNSET, capacity);
    ASSERT_EQ(limits.status().code(), absl::StatusCode::kResourceExhausted) << capacity;
    EXPECT_THAT(std::string(limits.status().message()),
                HasSubstr(absl::StrCat("'memory': 10% of the ", capacity, " B that this GPU has")));
    EXPECT_THAT(std::string(limits.status().message()), HasSubstr("GPUSHARE_MEMORY_RESERVE"));
  }
  EXPECT_EQ(spec::ResolveSpec(*spec, GPUSHARE_PRIORITY_UNSET, 10)->memory, 1u);
}

TEST(Spec, ANewPolicyEndsWhatItContradicts) {
  const auto changed = [](const char* base, const char* change) {
    return spec::FormatSpec(spec::MergeSpec(*spec::ParseSpec(base), *spec::ParseSpec(change)));
  };
  EXPECT_EQ(changed("memory=1GiB,compute=30%,weight=2", "policy=best-effort"),
            "memory=1GiB,weight=2,policy=best-effort");
  EXPECT_EQ(changed("compute=30%,weight=2,cap=50%", "policy=fair-share"),
            "cap=50%,policy=fair-share");
  EXPECT_EQ(changed("compute=30%,cap=80%,policy=request-limit", "compute=60%,policy=fixed-share"),
            "compute=60%,policy=fixed-share");
  EXPECT_EQ(changed("compute=30%,weight=2", "policy=burst-share,compute=20%"),
            "compute=20%,weight=2,policy=burst-share");
}

TEST(Spec, APolicyThatFixesTheShareTakesTheGuaranteeInForce) {
  const auto changed = [](const char* base, const char* change) -> absl::StatusOr<std::string> {
    const gpushare_spec merged = spec::MergeSpec(*spec::ParseSpec(base), *spec::ParseSpec(change));
    const auto limits = spec::ResolveSpec(merged, GPUSHARE_PRIORITY_UNSET, uint64_t{10} << 30);
    if (!limits.ok()) return limits.status();
    return absl::StrCat(limits->compute.guarantee, " ", limits->compute.cap);
  };
  const auto alone = [&](const char* base) { return changed(base, "policy=fixed-share"); };
  EXPECT_EQ(*alone("compute=30%"), "0.3 0.3");
  EXPECT_EQ(*alone("guarantee=20%,weight=2"), "0.2 0.2");
  EXPECT_EQ(*alone("compute=50%,guarantee=20%"), "0.2 0.2");
  EXPECT_EQ(*alone("compute=50%,cap=80%"), "0.5 0.5");
  EXPECT_EQ(*alone("policy=burst-share,compute=40%,cap=60%"), "0.4 0.4");
  EXPECT_EQ(*changed("guarantee=20%,cap=60%", "policy=hard,compute=30%"), "0.3 0.3");
  const auto none = alone("memory=1GiB,weight=2");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(),
            "spec field 'policy': policy 'fixed-share' needs a share, and neither 'compute' nor "
            "'guarantee' is given; add one (compute=30%, say)");
}

TEST(Spec, ALimitOnCopiesCanBeTakenBack) {
  EXPECT_EQ(VirtualDeviceSpec::Parse("h2d=none")->ToString(), "h2d=none");
  EXPECT_EQ(*VirtualDeviceSpec::Parse("d2h=none")->d2h, BytesPerSecond(0));
  EXPECT_THAT(Message("h2d=0B/s"), HasSubstr("'h2d': '0B/s': it is too small"));
  const auto merged =
      spec::MergeSpec(*spec::ParseSpec("h2d=4GB/s,d2h=1GB/s"), *spec::ParseSpec("h2d=none"));
  EXPECT_EQ(spec::FormatSpec(merged), "h2d=none,d2h=1GB/s");
  const auto limits = spec::ResolveSpec(merged, GPUSHARE_PRIORITY_UNSET, uint64_t{10} << 30);
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->h2d_bytes_per_s, 0);
  EXPECT_EQ(limits->d2h_bytes_per_s, 1e9);
}

TEST(Spec, MemoryWithoutAUnitIsMostLikelyAMistake) {
  EXPECT_THAT(Message("memory=50"), HasSubstr("'memory': '50': it has no unit"));
  EXPECT_THAT(Message("memory=50"), HasSubstr("50GiB"));
  EXPECT_EQ(*VirtualDeviceSpec::Parse("memory=50B")->memory, Bytes(50));
  EXPECT_EQ(*VirtualDeviceSpec::Parse("memory=2097152")->memory, MiB(2));
  VirtualDeviceSpec spec;
  spec.memory = Bytes(1000);
  EXPECT_EQ(*VirtualDeviceSpec::Parse(spec.ToString()), spec);
}

TEST(Spec, MergeKeepsWhatIsNotGiven) {
  const auto base = *spec::ParseSpec("memory=2GiB,compute=30%,priority=low");
  const auto merged = spec::MergeSpec(base, *spec::ParseSpec("memory=50%,cap=40%"));
  EXPECT_EQ(spec::FormatSpec(merged), "memory=50%,compute=30%,cap=40%,priority=low");
}

TEST(Spec, TheCStructOfAnotherVersion) {
  gpushare_spec spec = {};
  spec.set = GPUSHARE_SPEC_CAP;
  spec.cap = 0.5;
  EXPECT_EQ(gpushare_spec_validate(&spec), GPUSHARE_INVALID_ARGUMENT);  // no size
  EXPECT_THAT(gpushare_last_message(), HasSubstr("struct_size"));
  spec.struct_size = sizeof(spec);
  EXPECT_EQ(gpushare_spec_validate(&spec), GPUSHARE_OK);
  struct Newer {
    gpushare_spec known;
    uint64_t more;
  } newer = {spec, 0};
  newer.known.struct_size = sizeof(newer);
  EXPECT_EQ(gpushare_spec_validate(&newer.known), GPUSHARE_OK);
  newer.more = 1;
  EXPECT_EQ(gpushare_spec_validate(&newer.known), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), HasSubstr("does not know"));
  spec.set |= 1u << 30;
  EXPECT_EQ(gpushare_spec_validate(&spec), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_EQ(gpushare_spec_validate(nullptr), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_EQ(gpushare_spec_parse(nullptr, 5, &spec), GPUSHARE_INVALID_ARGUMENT);
}

TEST(Spec, FormatSaysHowMuchRoomItNeeds) {
  gpushare_spec spec = *spec::ParseSpec("memory=1GiB");
  size_t needed = 0;
  char text[4];
  EXPECT_EQ(gpushare_spec_format(&spec, text, sizeof(text), &needed), GPUSHARE_OUT_OF_RANGE);
  EXPECT_EQ(needed, std::string("memory=1GiB").size() + 1);
}

}  // namespace
}  // namespace gpushare
