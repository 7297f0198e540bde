// SPDX-License-Identifier: Apache-2.0
// Programs that the harness starts, waits for and, if they do not end, ends.
//
//   Children children(&interrupted);
//   GPUSHARE_RETURN_IF_ERROR(children.Start(broker));
//   GPUSHARE_RETURN_IF_ERROR(children.WaitUntil([&] { return Listens(socket); }, limit));
//   GPUSHARE_RETURN_IF_ERROR(children.Start(program));
//   GPUSHARE_RETURN_IF_ERROR(children.Wait(limit));
#ifndef GPUSHARE_HARNESS_CHILDREN_H_
#define GPUSHARE_HARNESS_CHILDREN_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "harness/environment.h"

namespace gpushare::harness {

struct Program {
  std::string name;  // for messages
  std::vector<std::string> command;
  Variables environment;       // all of it, but for the mark by which orphans are known
  std::string log;             // a file for what it writes to standard output and standard error
  bool may_be_killed = false;  // its end by SIGKILL is no failure: it does so itself
  bool serves = false;         // it ends with the others, and is not waited for
  bool stays =
      false;  // of one that serves: its end before the others' is a failure, however it ends
};

// Each is a process group of its own. What it starts is in that, and ends with it.
class Children {
 public:
  // Whoever waits gives up when `interrupted`, unless null, is not 0 any more: a signal handler may set it.
  explicit Children(const std::atomic<int>* interrupted = nullptr) : interrupted_(interrupted) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();  // ends what has not ended, and orphans (orphans.h)

  absl::Status Start(const Program& program);
  // Until all have ended but those that serve. One that fails ends the others: Internal, with its name and the end of what it wrote.
  // DeadlineExceeded: they had not ended after `limit` of the machine's time. Cancelled: interrupted. All are ended then.
  absl::Status Wait(Nanos limit);
  // The same until `there` says so; Internal where one of them ends before.
  absl::Status WaitUntil(const std::function<bool()>& there, Nanos limit);
  // Asks those that stay to end, by SIGTERM, so that they may take away what is theirs, and waits so long for it.
  void Dismiss(Nanos limit);

 private:
  struct Child {
    std::string name, log;
    pid_t pid;
    bool may_be_killed = false, serves = false, stays = false;
    base::UniqueFd end = {};  // readable when it has ended; none where the kernel has no such thing
    bool ended = false;
  };
  // Ends the others where one has failed, or, unless `may_end`, has ended at all. `all`: all have ended.
  absl::Status Look(bool may_end, bool* all);
  void Rest() const;  // a while, or until one of them ends
  absl::Status WaitFor(const std::function<bool()>* there, Nanos limit);
  void End();

  const std::atomic<int>* const interrupted_;
  std::vector<Child> children_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CHILDREN_H_
