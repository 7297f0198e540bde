// SPDX-License-Identifier: Apache-2.0
#include "gate/copy_line.h"

#include <gtest/gtest.h>

namespace gpushare::gate {
namespace {

struct Copy {
  explicit Copy(CopyLine::Turn& turn) : waiter{nullptr, &turn} {}
  CopyLine::Waiter waiter;
};

TEST(CopyLine, WhoHasHadLeastComesFirst) {
  CopyLine line;
  CopyLine::Turn one, other;
  Copy a(one), b(one), c(other);
  EXPECT_EQ(line.First(), nullptr);
  for (Copy* each : {&a, &b, &c, &a}) line.Join(&each->waiter);
  EXPECT_EQ(line.First(), &a.waiter);  // the first one in the queue
  line.Served(one, 10);
  EXPECT_TRUE(line.Leave(&a.waiter));
  EXPECT_FALSE(line.Leave(&a.waiter));
  EXPECT_EQ(line.First(), &c.waiter);
  line.Served(other, 30);
  EXPECT_EQ(line.First(), &b.waiter);
  line.Served(other, -30);  // the driver refused that copy
  EXPECT_EQ(line.First(), &c.waiter);
  line.Leave(&b.waiter);
  line.Leave(&c.waiter);
  EXPECT_TRUE(line.empty());
}

TEST(CopyLine, NothingIsSavedUpInAPause) {
  CopyLine line;
  CopyLine::Turn busy, idle;
  Copy a(busy), b(idle);
  for (int i = 0; i < 100; ++i) {
    line.Join(&a.waiter);
    line.Leave(&a.waiter);
    line.Served(busy, 10);
  }
  line.Join(&a.waiter);
  line.Join(&b.waiter);
  int first = 0;
  for (int i = 0; i < 100; ++i) {
    const bool idles = line.First() == &b.waiter;
    first += idles;
    line.Served(idles ? idle : busy, 10);
  }
  EXPECT_NEAR(first, 50, 1);
}

}  // namespace
}  // namespace gpushare::gate
