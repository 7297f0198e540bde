// SPDX-License-Identifier: Apache-2.0
#include "base/limit_variables.h"

#include <gtest/gtest.h>

#include <map>

namespace gpushare::base {
namespace {

using Variables = std::map<std::string, std::string>;

// The limits that the variables give on GPU 0 or another one, such as "memory=1GiB,cap=50%".
std::string Of(const Variables& variables, const std::string& spec = "", int ordinal = 0) {
  return AddLimits(spec, FindLimits(ordinal, [&](const std::string& name) {
                     const auto at = variables.find(name);
                     return at == variables.end() ? std::nullopt : std::optional(at->second);
                   }));
}

TEST(LimitVariables, OfNothingIsNothing) { EXPECT_EQ(Of({}), ""); }

TEST(LimitVariables, EachInItsOwnUnits) {
  EXPECT_EQ(Of({{"NVIDIA_GPU_MEMORY_LIMIT", "4096"}}), "memory=4096MiB");
  EXPECT_EQ(Of({{"CUDA_DEVICE_MEMORY_LIMIT", "1g"}}), "memory=1GiB");
  EXPECT_EQ(Of({{"CUDA_DEVICE_MEMORY_LIMIT", "1024M"}}), "memory=1024MiB");
  EXPECT_EQ(Of({{"CUDA_DEVICE_MEMORY_LIMIT", "1048576k"}}), "memory=1048576KiB");
  EXPECT_EQ(Of({{"CUDA_DEVICE_MEMORY_LIMIT", "1073741824"}}), "memory=1073741824B");
  EXPECT_EQ(Of({{"ALIYUN_COM_GPU_MEM_CONTAINER", "3"}}), "memory=3GiB");
  EXPECT_EQ(Of({{"CUDA_DEVICE_SM_LIMIT", "50"}}), "cap=50%");
  EXPECT_EQ(Of({{"CUDA_TASK_PRIORITY", "0"}}), "priority=high");
  EXPECT_EQ(Of({{"CUDA_TASK_PRIORITY", "1"}}), "priority=low");
}

TEST(LimitVariables, OfMpsIsTheLastOfMemory) {
  const auto of = [](const char* text, int ordinal = 0) {
    return Of({{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", text}}, "", ordinal);
  };
  EXPECT_EQ(of("0=2G"), "memory=2GiB");
  EXPECT_EQ(of(" 1 = 512m , 0=2g"), "memory=2GiB");
  EXPECT_EQ(of("0=2G,1=512M", 1), "memory=512MiB");
  EXPECT_EQ(of("0=1073741824"), "memory=1073741824B");
  EXPECT_EQ(of("0=1.5GiB"), "memory=1.5GiB");
  EXPECT_EQ(of("0=2G", 1), "");
  EXPECT_EQ(of(""), "");
  // An unreadable value neither counts for another GPU nor is ignored: the spec refuses it.
  for (const char* text : {"2G", "2GiB", "0:2G", "=2G", "0=", "GPU-12ab=2G", "-1=2G"}) {
    EXPECT_EQ(of(text), std::string("memory==") + text);
    EXPECT_EQ(of(text, 1), std::string("memory==") + text);
  }
  EXPECT_EQ(of("0=2G,nonsense"), "memory==0=2G;nonsense");
  EXPECT_EQ(of("2GiB,priority=high"), "memory==2GiB;priority=high");
  EXPECT_EQ(of("0=2Gb"), "memory=2Gb");
  EXPECT_EQ(Of({{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"}, {"CUDA_DEVICE_MEMORY_LIMIT", "1g"}}),
            "memory=1GiB");
  EXPECT_EQ(Of({{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"}}, "memory=3GiB"), "memory=3GiB");
}

// By HAMi's default a lone tenant is not limited, which only a broker can know.
TEST(LimitVariables, HamisDefaultIsNoCapUnderABroker) {
  const auto of = [](Variables variables) {
    variables.emplace("CUDA_DEVICE_SM_LIMIT", "50");
    return Of(variables);
  };
  EXPECT_EQ(of({{"GPUSHARE_BROKER", "/b"}}), "compute=50%,policy=default");
  EXPECT_EQ(of({{"GPUSHARE_BROKER", "/b"}, {"GPU_CORE_UTILIZATION_POLICY", "DEFAULT"}}),
            "compute=50%,policy=default");
  EXPECT_EQ(of({{"GPUSHARE_BROKER", "/b"}, {"GPU_CORE_UTILIZATION_POLICY", "force"}}), "cap=50%");
  EXPECT_EQ(of({{"GPUSHARE_BROKER", "/b"}, {"GPU_CORE_UTILIZATION_POLICY", "disable"}}), "");
  EXPECT_EQ(of({{"GPUSHARE_BROKER", "/b"}, {"GPU_CORE_UTILIZATION_POLICY", "often"}}), "cap=50%");
  EXPECT_EQ(of({{"GPUSHARE_BROKER", "none"}}), "cap=50%");
  EXPECT_EQ(of({{"GPUSHARE_BROKER", ""}}), "cap=50%");
  EXPECT_EQ(Of({{"GPUSHARE_BROKER", "/b"}, {"CUDA_DEVICE_SM_LIMIT", "100"}}), "");
  EXPECT_EQ(Of({{"GPUSHARE_BROKER", "/b"}, {"CUDA_DEVICE_SM_LIMIT", "50"}}, "weight=2"),
            "weight=2");
}

TEST(LimitVariables, WhatIsWrongIsSaidInTheirWords) {
  const auto wrong = [](const Variables& variables) {
    return WrongLimit(FindLimits(0,
                                 [&](const std::string& name) {
                                   const auto at = variables.find(name);
                                   return at == variables.end() ? std::nullopt
                                                                : std::optional(at->second);
                                 }),
                      [](const std::string& spec) {
                        return spec == "memory=1GiB" || spec == "cap=50%" || spec == "priority=low";
                      });
  };
  EXPECT_EQ(wrong({}), "");
  EXPECT_EQ(wrong({{"CUDA_DEVICE_MEMORY_LIMIT", "1g"},
                   {"CUDA_DEVICE_SM_LIMIT", "50"},
                   {"CUDA_TASK_PRIORITY", "1"}}),
            "");
  EXPECT_EQ(wrong({{"CUDA_DEVICE_MEMORY_LIMIT", "1g"}, {"CUDA_TASK_PRIORITY", "7"}}),
            "CUDA_TASK_PRIORITY: '7' given; allowed: 0, which is high, or 1, low");
  EXPECT_EQ(
      wrong({{"CUDA_DEVICE_MEMORY_LIMIT_0", "bogus"}}),
      "CUDA_DEVICE_MEMORY_LIMIT_0: 'bogus' given; allowed: as in 1g, 1024m or 1048576k, or bytes");
  EXPECT_EQ(wrong({{"CUDA_DEVICE_SM_LIMIT", "150"}}),
            "CUDA_DEVICE_SM_LIMIT: '150' given; allowed: percent, 0 to 100");
}

TEST(LimitVariables, TheOneForAGpuGoesBeforeTheOneForAll) {
  const Variables both = {{"CUDA_DEVICE_MEMORY_LIMIT", "1g"},
                          {"CUDA_DEVICE_MEMORY_LIMIT_1", "2g"},
                          {"CUDA_DEVICE_SM_LIMIT_0", "10"},
                          {"CUDA_DEVICE_SM_LIMIT", "20"}};
  EXPECT_EQ(Of(both), "memory=1GiB,cap=10%");
  EXPECT_EQ(Of(both, "", 1), "memory=2GiB,cap=20%");
}

TEST(LimitVariables, TheFirstOfTheTableWins) {
  Variables all = {{"NVIDIA_GPU_MEMORY_LIMIT", "1"},
                   {"CUDA_DEVICE_MEMORY_LIMIT", "2m"},
                   {"ALIYUN_COM_GPU_MEM_CONTAINER", "3"}};
  EXPECT_EQ(Of(all), "memory=1MiB");
  all.erase("NVIDIA_GPU_MEMORY_LIMIT");
  EXPECT_EQ(Of(all), "memory=2MiB");
  all.erase("CUDA_DEVICE_MEMORY_LIMIT");
  EXPECT_EQ(Of(all), "memory=3GiB");
}

TEST(LimitVariables, WhatMeansNoLimitIsNone) {
  EXPECT_EQ(Of({{"CUDA_DEVICE_MEMORY_LIMIT", "0"}, {"CUDA_DEVICE_SM_LIMIT", "0"}}), "");
  EXPECT_EQ(Of({{"CUDA_DEVICE_SM_LIMIT", "100"}}), "");
  EXPECT_EQ(Of({{"CUDA_DEVICE_SM_LIMIT", "50"}, {"GPU_CORE_UTILIZATION_POLICY", "DISABLE"}}), "");
  EXPECT_EQ(Of({{"CUDA_DEVICE_SM_LIMIT", "50"}, {"GPU_CORE_UTILIZATION_POLICY", "force"}}),
            "cap=50%");
}

TEST(LimitVariables, NonsenseIsLeftForTheSpecToRefuse) {
  EXPECT_EQ(Of({{"CUDA_DEVICE_MEMORY_LIMIT", "lots"}}), "memory=lotsB");
  EXPECT_EQ(Of({{"CUDA_DEVICE_SM_LIMIT", "-1"}}), "cap=-1%");
  EXPECT_EQ(Of({{"NVIDIA_GPU_MEMORY_LIMIT", "99999999999999999999999"}}),
            "memory=99999999999999999999999MiB");
  EXPECT_EQ(Of({{"CUDA_TASK_PRIORITY", "urgent"}}), "priority=urgent");
  EXPECT_EQ(Of({{"CUDA_DEVICE_MEMORY_LIMIT", "g"}}), "memory=GiB");
}

TEST(LimitVariables, WhatTheSpecSaysItself) {
  const Variables all = {{"CUDA_DEVICE_MEMORY_LIMIT", "1g"},
                         {"CUDA_DEVICE_SM_LIMIT", "50"},
                         {"CUDA_TASK_PRIORITY", "1"}};
  EXPECT_EQ(Of(all, "memory=2GiB"), "memory=2GiB,cap=50%,priority=low");
  EXPECT_EQ(Of(all, "h2d=1GB/s, weight = 3"), "h2d=1GB/s, weight = 3,memory=1GiB,priority=low");
  EXPECT_EQ(Of(all, "compute=30%,priority=high,memory_cap=4GiB"),
            "compute=30%,priority=high,memory_cap=4GiB");
}

TEST(LimitVariables, OfAWiderSpecCountsWhatTheNarrowerLeavesOpen) {
  EXPECT_EQ(AddSpec("", "memory=1GiB,cap=20%"), "memory=1GiB,cap=20%");
  EXPECT_EQ(AddSpec("cap=50%", "memory=1GiB, compute=20% ,h2d=1GB/s"),
            "cap=50%,memory=1GiB,h2d=1GB/s");
  EXPECT_EQ(AddSpec("memory_cap=2GiB,h2d=2GB/s", "memory=1GiB,h2d=1GB/s,d2h=1GB/s"),
            "memory_cap=2GiB,h2d=2GB/s,d2h=1GB/s");
  EXPECT_EQ(AddSpec("priority=low", "nonsense,priority=high"), "priority=low,nonsense");
}

}  // namespace
}  // namespace gpushare::base
