// SPDX-License-Identifier: Apache-2.0
// Starts programs, waits for them, and ends those that do not end by themselves.
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
  Variables environment;       // complete, except for the mark that identifies orphans
  std::string log;             // path of a file for its standard output and standard error
  bool may_be_killed = false;  // the program may kill itself with SIGKILL: no failure
  bool serves = false;         // a server: not waited for, ended after the others
  bool stays = false;  // a server whose end before the others' is a failure, however it ends
};

// Each child is the leader of a process group, which also holds what it starts and is ended as a whole.
class Children {
 public:
  // A wait ends when `*interrupted` becomes nonzero (it may be set by a signal handler). Null: waits are not interrupted.
  explicit Children(const std::atomic<int>* interrupted = nullptr) : interrupted_(interrupted) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();  // ends children that still run, and orphans (orphans.h)

  absl::Status Start(const Program& program);
  // Waits until all but the servers have ended. Internal: one failed; the message has its name and the end of its log.
  // DeadlineExceeded: they did not end within `limit` of the machine's time. Cancelled: interrupted. After an error all have
  // been ended.
  absl::Status Wait(Nanos limit);
  // Wait(), but until `there` returns true. Internal also if a child ends before.
  absl::Status WaitUntil(const std::function<bool()>& there, Nanos limit);
  // Asks the servers to end (SIGTERM), so that they can clean up, and waits for up to `limit`.
  void Dismiss(Nanos limit);

 private:
  struct Child {
    std::string name, log;
    pid_t pid;
    bool may_be_killed = false, serves = false, stays = false;
    base::UniqueFd end =
        {};  // a pidfd, readable when the child has ended; empty on kernels without pidfds
    bool ended = false;
  };
  // Ends the others if one has failed or, unless `may_end`, has ended at all. Sets `all` if all have ended.
  absl::Status Look(bool may_end, bool* all);
  void Rest() const;  // sleeps for a moment, or until a child ends
  absl::Status WaitFor(const std::function<bool()>* there, Nanos limit);
  void End();

  const std::atomic<int>* const interrupted_;
  std::vector<Child> children_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CHILDREN_H_
