// SPDX-License-Identifier: Apache-2.0
#include "base/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushare::base {
namespace {

TEST(Program, IsItsFileAndWhatItRuns) {
  EXPECT_EQ(ProgramOf("/usr/bin/python3.11", {"python3", "train.py", "--token", "secret"}),
            "/usr/bin/python3.11 train.py");
  EXPECT_EQ(ProgramOf("/usr/bin/python3.11", {"python3", "-u", "-X", "dev", "/home/a b/train.py"}),
            "/usr/bin/python3.11 /home/a b/train.py");
  EXPECT_EQ(ProgramOf("/usr/bin/python3", {"python3", "-m", "torch.distributed.run", "train.py"}),
            "/usr/bin/python3 -m torch.distributed.run");
  EXPECT_EQ(ProgramOf("/bin/bash", {"bash", "job.sh"}), "/bin/bash job.sh");
  // Code without a name, and programs whose arguments have no known meaning.
  EXPECT_EQ(ProgramOf("/usr/bin/python3", {"python3", "-c", "import torch"}), "/usr/bin/python3");
  EXPECT_EQ(ProgramOf("/usr/bin/python3", {"python3"}), "/usr/bin/python3");
  EXPECT_EQ(ProgramOf("/usr/bin/python3", {"python3", "-m"}), "/usr/bin/python3");
  EXPECT_EQ(ProgramOf("/usr/bin/python3", {}), "/usr/bin/python3");
  EXPECT_EQ(ProgramOf("/opt/pythonic", {"pythonic", "secret"}), "/opt/pythonic");
  EXPECT_EQ(ProgramOf("serve", {"serve", "secret"}), "serve");
  EXPECT_EQ(ProgramOf("", {}), "");
}

TEST(Program, OfThisProcess) { EXPECT_THAT(ThisProgram(), ::testing::EndsWith("base_test")); }

}  // namespace
}  // namespace gpushare::base
