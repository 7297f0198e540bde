// SPDX-License-Identifier: Apache-2.0
// Programs that the harness starts, waits for and, if they do not end, ends.
#ifndef GPUSHARE_HARNESS_CHILDREN_H_
#define GPUSHARE_HARNESS_CHILDREN_H_

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/time.h"

namespace gpushare::harness {

struct Program {
  std::string name;  // for messages
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;  // over this process's
  std::string log;  // a file for what it writes to standard output and standard error
};

// Each is a process group of its own, so that what it starts ends with it.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();  // ends what has not ended

  absl::Status Start(const Program& program);
  // Until all have ended. One that fails ends the others: Internal, with its name and the end of what it wrote.
  // DeadlineExceeded: they had not ended after `limit` of the machine's time.
  absl::Status Wait(Nanos limit);

 private:
  struct Child {
    std::string name, log;
    pid_t pid;
    bool ended = false;
  };
  void End();

  std::vector<Child> children_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CHILDREN_H_
