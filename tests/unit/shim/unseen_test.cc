// SPDX-License-Identifier: Apache-2.0
// What is watched while there are no hooks (shim/preload/unseen.h), with the test's own driver, which has such
// tables.
#include "shim/preload/unseen.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "shim/preload/refused.h"

namespace gpushare::preload {
namespace {

int driver_answer = 0;
void* driver_gives = nullptr;

int ExportTable(const void** table, const void*) {
  *table = driver_gives;
  return driver_answer;
}
int ProcAddress(const char*, void** function, int, uint64_t, int* status) {
  *function = driver_gives;
  if (status != nullptr) *status = 0;
  return driver_answer;
}
int OldProcAddress(const char*, void** function, int, uint64_t) {
  *function = driver_gives;
  return driver_answer;
}
int Other() { return 0; }

}  // namespace

// As in slots.cc.
const EntryPoint kEntryPoints[PRELOAD_ENTRY_COUNT] = {
    {"cuCtxCreate_v2", 1},   {"cuCtxGetCurrent", 0},  {"cuCtxSetCurrent", 1},
    {"cuGetExportTable", 1}, {"cuGetProcAddress", 1}, {"cuGetProcAddress_v2", 1},
    {"cuMemAlloc_v2", 1}};

size_t FindEntryPoint(const char* name) {
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT && kEntryPoints[i].name != nullptr; ++i) {
    if (std::strcmp(kEntryPoints[i].name, name) == 0) return i;
  }
  return PRELOAD_ENTRY_COUNT;
}
void* RealEntryPoint(size_t index) {
  const char* const name = kEntryPoints[index].name;
  if (std::strcmp(name, "cuGetExportTable") == 0) return reinterpret_cast<void*>(&ExportTable);
  if (std::strcmp(name, "cuGetProcAddress") == 0) return reinterpret_cast<void*>(&OldProcAddress);
  if (std::strcmp(name, "cuGetProcAddress_v2") == 0) return reinterpret_cast<void*>(&ProcAddress);
  return reinterpret_cast<void*>(&Other);
}

namespace {

class Unseen : public testing::Test {
 protected:
  void SetUp() override {
    contexts_unseen = 0;
    driver_answer = 0;
    driver_gives = reinterpret_cast<void*>(&Other);
  }
  template <typename Function>
  static Function* Get(const char* name) {
    return reinterpret_cast<Function*>(Watched(FindEntryPoint(name)));
  }
  static int Asked(const char* name) {
    void* found = nullptr;
    int status = -1;
    const int answer = Get<int(const char*, void**, int, uint64_t, int*)>("cuGetProcAddress_v2")(
        name, &found, 12000, 0, &status);
    EXPECT_EQ(found, driver_gives);
    EXPECT_EQ(status, 0);
    return answer;
  }
};

TEST_F(Unseen, ATableIsNotedWhereTheDriverGaveIt) {
  const void* table = nullptr;
  auto* const get = Get<int(const void**, const void*)>("cuGetExportTable");
  driver_answer = 500;
  EXPECT_EQ(get(&table, nullptr), 500);
  EXPECT_EQ(contexts_unseen, 0);
  driver_answer = 0;
  EXPECT_EQ(get(&table, nullptr), 0);
  EXPECT_EQ(table, driver_gives);
  EXPECT_NE(contexts_unseen, 0);
}

TEST_F(Unseen, WhatIsHookedIsNotedWhereItWasFound) {
  EXPECT_EQ(Asked("cuCtxGetCurrent"), 0);  // not hooked
  EXPECT_EQ(Asked("cuNoSuchThing"), 0);
  driver_answer = 500;
  EXPECT_EQ(Asked("cuCtxSetCurrent"), 500);
  EXPECT_EQ(contexts_unseen, 0);
  driver_answer = 0;
  for (const char* name : {"cuCtxSetCurrent", "cuCtxCreate", "cuMemAlloc", "cuGetProcAddress"}) {
    contexts_unseen = 0;
    EXPECT_EQ(Asked(name), 0);
    EXPECT_NE(contexts_unseen, 0) << name;
    contexts_unseen = 0;
    void* found = nullptr;
    EXPECT_EQ(
        (Get<int(const char*, void**, int, uint64_t)>("cuGetProcAddress")(name, &found, 11030, 0)),
        0);
    EXPECT_EQ(found, driver_gives);
    EXPECT_NE(contexts_unseen, 0) << name;
  }
}

TEST_F(Unseen, WhatIsCalledByOurEntryPointsIsTheDriversOwn) {
  for (const char* name : {"cuCtxSetCurrent", "cuCtxGetCurrent", "cuMemAlloc_v2"}) {
    EXPECT_EQ(Watched(FindEntryPoint(name)), reinterpret_cast<void*>(&Other));
  }
  EXPECT_EQ(contexts_unseen, 0);
}

TEST_F(Unseen, WithoutAShareOnlyWhatLimitsNothingPasses) {
  EXPECT_NE(WatchedOfRefused(FindEntryPoint("cuCtxSetCurrent")), nullptr);
  EXPECT_NE(WatchedOfRefused(FindEntryPoint("cuGetExportTable")),
            RealEntryPoint(FindEntryPoint("cuGetExportTable")));
  for (const char* name : {"cuCtxCreate_v2", "cuMemAlloc_v2", "cuGetProcAddress_v2"}) {
    EXPECT_EQ(WatchedOfRefused(FindEntryPoint(name)), nullptr) << name;
  }
}

}  // namespace
}  // namespace gpushare::preload
