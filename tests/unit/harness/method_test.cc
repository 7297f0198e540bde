// SPDX-License-Identifier: Apache-2.0
#include "harness/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

TEST(Method, IsFoundByItsName) {
  for (const std::string& name : MethodNames()) {
    const auto method = FindMethod(name);
    ASSERT_TRUE(method.ok()) << name;
    EXPECT_EQ(method->name, name);
  }
  EXPECT_THAT(std::string(FindMethod("turbo").status().message()),
              HasSubstr("no method is called 'turbo'; allowed: native, time-slicing, "));
}

TEST(Method, ALibraryIsToldInItsOwnWords) {
  const auto method = FindMethod("other=/opt/libother.so,CORES=%CAP%,FIXED=1");
  ASSERT_TRUE(method.ok()) << method.status();
  EXPECT_EQ(method->library, "/opt/libother.so");
  EXPECT_TRUE(HasProcesses(*method));
  const auto environment = EnvironmentOf(*method, {.cap = 0.3});
  ASSERT_EQ(environment.size(), 2u);
  EXPECT_EQ(environment[0], std::make_pair(std::string("CORES"), std::string("30")));
  EXPECT_EQ(environment[1].second, "1");
  EXPECT_EQ(EnvironmentOf(*method, {})[0].second, "100");

  Case one;
  one.tenants.emplace_back().ask.cap = 0.3;
  EXPECT_EQ(WhyNot(*method, one), "");
  one.tenants[0].ask.share = 0.5;
  EXPECT_EQ(WhyNot(*method, one), "no share");
  one.tenants[0].ask = {.high_priority = true};
  EXPECT_EQ(WhyNot(*method, one), "no priority");

  EXPECT_FALSE(FindMethod("other=/opt/libother.so,=5").ok());
  EXPECT_FALSE(FindMethod("=/opt/libother.so").ok());
  EXPECT_FALSE(FindMethod("other=").ok());
  EXPECT_THAT(std::string(FindMethod("native=/opt/libother.so").status().message()),
              HasSubstr("native is a method already"));
  EXPECT_THAT(std::string(FindMethod("other=/l.so,LD_PRELOAD=/m.so").status().message()),
              HasSubstr("LD_PRELOAD is set by the harness"));
  // The loader takes these for the ends of a path, and would name another file in its complaint.
  for (const char* const path : {"other=/my libs/l.so", "other=/a.so:/b.so,CORES=%CAP%"}) {
    EXPECT_THAT(std::string(FindMethod(path).status().message()),
                HasSubstr("the loader preloads no path with a blank or a colon"));
  }
}

TEST(Method, WhatEachTenantHasForItselfIsNamed) {
  const auto method = FindMethod("other=/opt/libother.so,STATE=%FOLDER%/%TENANT%.state");
  ASSERT_TRUE(method.ok()) << method.status();
  EXPECT_EQ(EnvironmentOf(*method, {}, "a", "/tmp/run")[0].second, "/tmp/run/a.state");
}

TEST(Method, APriorityIsToldInTheWordsOfEach) {
  const auto method =
      FindMethod("other=/l.so,TASK=%PRIORITY:0:1%,BOTH=a%PRIORITY:high:%b%PRIORITY::low%");
  ASSERT_TRUE(method.ok()) << method.status();
  const auto high = EnvironmentOf(*method, {.high_priority = true}),
             normal = EnvironmentOf(*method, {});
  EXPECT_EQ(high[0].second, "0");
  EXPECT_EQ(normal[0].second, "1");
  EXPECT_EQ(high[1].second, "ahighb");
  EXPECT_EQ(normal[1].second, "ablow");
  Case one;
  one.tenants.emplace_back().ask = {.high_priority = true};
  EXPECT_EQ(WhyNot(*method, one), "");
  for (const char* const bad : {"%SHRE%", "%CAP%%CAPP%", "%cap%%MEMORY%"}) {
    EXPECT_THAT(std::string(FindMethod(std::string("other=/l.so,CORES=") + bad).status().message()),
                HasSubstr("' stands for nothing; allowed: %SHARE%, %CAP%, "))
        << bad;
  }
  for (const char* const good : {"50%", "%", "%%", "%d%X%s", "100%CAP%", "%SHARE%%CAP%", "a%b%"}) {
    EXPECT_TRUE(FindMethod(std::string("other=/l.so,CORES=") + good).ok()) << good;
  }
  for (const char* const bad : {"%PRIORITY%", "%PRIORITY:1%", "%PRIORITY:1:2", "%PRIORITYS:1:2%"}) {
    EXPECT_THAT(std::string(FindMethod(std::string("other=/l.so,TASK=") + bad).status().message()),
                HasSubstr("a priority is %PRIORITY:HIGH:NORMAL%"))
        << bad;
  }
}

TEST(Method, ALibraryMayHaveAServer) {
  auto methods = FindMethods({"native", "other=/l.so"});
  ASSERT_TRUE(methods.ok()) << methods.status();
  EXPECT_TRUE(SetServer("other=serverd --socket=%FOLDER%/socket", &*methods).ok());
  EXPECT_EQ((*methods)[1].server, "serverd --socket=%FOLDER%/socket");
  const auto refused = [&methods](const char* text) {
    return std::string(SetServer(text, &*methods).message());
  };
  EXPECT_THAT(refused("other=again"), HasSubstr("other has one already"));
  EXPECT_THAT(refused("native=serverd"), HasSubstr("no --method native=LIBRARY is given"));
  EXPECT_THAT(refused("nobody=serverd"), HasSubstr("no --method nobody=LIBRARY is given"));
  EXPECT_THAT(refused("serverd"), HasSubstr("NAME=COMMAND allowed"));
}

TEST(Method, MemoryIsToldInTheUnitsOfEach) {
  const auto method = FindMethod("other=/opt/libother.so,LIMIT=%MEMORY_MIB%m,BYTES=%MEMORY_BYTES%");
  ASSERT_TRUE(method.ok()) << method.status();
  const Ask ask = {.memory = uint64_t{3} << 30};
  const auto told = EnvironmentOf(*method, ask);
  EXPECT_EQ(told[0].second, "3072m");
  EXPECT_EQ(told[1].second, "3221225472");
  EXPECT_EQ(EnvironmentOf(*method, {})[0].second, "0m");
  EXPECT_EQ(SpecOf(ask), "memory=3GiB");
  EXPECT_EQ(SpecOf({.own_context = true}), "isolation=context");

  Case one;
  one.tenants.emplace_back().ask = ask;
  EXPECT_EQ(WhyNot(*method, one), "");
  EXPECT_EQ(WhyNot(*FindMethod("other=/opt/libother.so,CORES=%CAP%"), one), "no memory quota");
}

TEST(Method, WhatCannotBeIsNotSupported) {
  Case one;
  one.tenants.emplace_back().allocations = {.sizes = {1}, .families = {MemoryFamily::kVirtual}};
  EXPECT_EQ(WhyNot(*FindMethod("gpushare"), one), "no managed or virtual memory in the SDK");
  EXPECT_EQ(WhyNot(*FindMethod("gpushare-preload"), one), "");
  one.tenants[0].allocations = {};
  one.tenants.resize(64);
  EXPECT_EQ(WhyNot(*FindMethod("time-slicing"), one), "");
  EXPECT_EQ(WhyNot(*FindMethod("gpushare-preload"), one),
            "65 processes; the simulated GPU has room for 64");
  EXPECT_EQ(WhyNot(*FindMethod("gpushare"), one), "");
  // Each tenant on a separate GPU.
  one.settings["apart"] = 1;
  EXPECT_EQ(WhyNot(*FindMethod("gpushare-preload"), one), "");
  EXPECT_EQ(WhyNot(*FindMethod("gpushare"), one), "its tenants are one program");
}

TEST(Method, OnAGpuOtherThingsCannotBeThanOnTheSimulatedOne) {
  const Method mps = *FindMethod("mps"), sliced = *FindMethod("time-slicing"),
               native = *FindMethod("native");
  Case one;
  one.tenants.emplace_back().ask = {.share = 0.5, .cap = 0.6, .high_priority = true};
  EXPECT_EQ(WhyNot(mps, one), "the simulated GPU has no MPS");
  EXPECT_EQ(WhyNot(mps, one, Ground::kGpu), "");
  one.tenants.resize(100);
  EXPECT_EQ(WhyNot(sliced, one, Ground::kGpu),
            "100 processes; of a GPU's contexts no more are tried than 48");
  EXPECT_EQ(WhyNot(native, one, Ground::kGpu), "");
  one.tenants.resize(48);
  EXPECT_EQ(WhyNot(sliced, one, Ground::kGpu), "");
  one.tenants[0].allocations = {.sizes = {1}};
  one.tenants[0].fault.kind = Fault::Kind::kEndlessKernel;
  for (const Method& method : {mps, sliced, native}) {
    EXPECT_EQ(WhyNot(method, one, Ground::kGpu), "") << method.name;
  }
  one.settings["apart"] = 1;
  EXPECT_EQ(WhyNot(sliced, one, Ground::kGpu), "each program wants a simulated GPU of its own");
}

TEST(Method, MpsIsToldInItsOwnWords) {
  using Pair = std::pair<std::string, std::string>;
  const Method mps = *FindMethod("mps");
  EXPECT_TRUE(HasProcesses(mps));
  EXPECT_THAT(EnvironmentOf(mps, {}),
              ::testing::ElementsAre(Pair("CUDA_MPS_CLIENT_PRIORITY", "1")));
  EXPECT_THAT(EnvironmentOf(mps, {.share = 0.125, .high_priority = true, .memory = 3u << 30}),
              ::testing::ElementsAre(Pair("CUDA_MPS_CLIENT_PRIORITY", "0"),
                                     Pair("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "12.5"),
                                     Pair("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3072M")));
  EXPECT_EQ(EnvironmentOf(mps, {.cap = 0.3})[1].second, "30");
}

TEST(Method, PercentagesAreToldAsTheyWereAskedFor) {
  const auto method = FindMethod("other=/opt/libother.so,CORES=%CAP%,PART=%SHARE%");
  ASSERT_TRUE(method.ok()) << method.status();
  const auto told = EnvironmentOf(*method, {.share = 0.07, .cap = 0.004});
  EXPECT_EQ(told[0].second, "0.4");
  EXPECT_EQ(told[1].second, "7");
  EXPECT_EQ(EnvironmentOf(*method, {.cap = 0.125})[0].second, "12.5");
}

TEST(Method, OneNameIsGivenOnce) {
  EXPECT_EQ(FindMethods({"native", "a=/l.so"})->size(), 2u);
  EXPECT_EQ(std::string(FindMethods({"a=/l.so", "native", "a=/m.so"}).status().message()),
            "the method 'a' is given twice: 'a=/l.so' and 'a=/m.so'");
  EXPECT_FALSE(FindMethods({"native", "native"}).ok());
}

TEST(Method, AVirtualDevicesSpec) {
  EXPECT_EQ(SpecOf({.share = 0.75}), "weight=75");
  EXPECT_EQ(SpecOf({.share = 0.07, .cap = 0.0001}), "weight=7,cap=0.01%");
  EXPECT_EQ(SpecOf({.cap = 0.3, .high_priority = true}), "cap=30%,priority=high");
  EXPECT_EQ(SpecOf({.high_priority = true, .delay = 0.05}), "priority=high,delay=5%");
  EXPECT_EQ(SpecOf({.high_priority = true, .delay = 0.0}), "priority=high,delay=0%");
  EXPECT_EQ(SpecOf({}), "");
}

}  // namespace
}  // namespace gpushare::harness
