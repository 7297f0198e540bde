// SPDX-License-Identifier: Apache-2.0
// What a broker leaves for the next one at its socket: who has been granted how much memory, and what an operator has
// changed.
//
// A broker can be killed at any instruction, and its processes go on. The next one must not grant what they hold, though
// none of them has come back yet. So it is written before a process learns of a grant, and read at the start:
//
//   RemainsFile file("/run/gpushare/broker.sock.books");
//   GPUSHARE_ASSIGN_OR_RETURN(std::optional<Remains> before, file.Read());
//   GPUSHARE_RETURN_IF_ERROR(file.Write(remains));
//   if (!file.Add(grown)) GPUSHARE_RETURN_IF_ERROR(file.Write(remains));
//
// The first line of the file is the whole; each line after it says what has been granted since, so that a grant costs a
// line however many processes there are.
//
// What is read may be anybody's idea: it is checked here as far as its form goes, and by Registry::Restore() for the rest.
#ifndef GPUSHARE_BROKER_REMAINS_H_
#define GPUSHARE_BROKER_REMAINS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace gpushare::broker {

struct Remains {
  struct Holding {
    std::string gpu;  // UUID
    uint64_t granted = 0;
    bool operator==(const Holding&) const = default;
  };
  // A session with a process. Numbers of processes count in the namespace and since the start of the machine that are
  // named below.
  struct Process {
    uint64_t session = 0;  // its number, by which later lines of the file find it
    int32_t pid = 0;       // 0: the broker does not see it
    uint64_t began = 0;    // as /proc has it; 0: not known
    uint32_t uid = 0, gid = 0;
    std::string asked, tenant, program;  // the tenant that it wanted to be, and the one that it is
    bool returns = true;                 // it looks for the next broker
    bool evicted = false;
    std::vector<Holding> holds;
    bool operator==(const Process&) const = default;
  };
  struct Tenant {
    std::string name;
    bool listed = false;
    uint32_t owner = 0;  // of one that is not listed
    std::string spec;    // the same
    bool suspended = false, draining = false;
    bool operator==(const Tenant&) const = default;
  };
  // A share that an operator has changed.
  struct Change {
    std::string gpu, tenant;
    std::string configured, spec;  // by the configuration, and in force
    bool operator==(const Change&) const = default;
  };
  struct Gpu {
    std::string uuid;
    uint64_t memory = 0;
    int32_t sm_count = 0;
    bool draining = false;
    bool operator==(const Gpu&) const = default;
  };
  // What has been granted since, and to whom: these are new, or as they are now.
  struct Growth {
    std::vector<Gpu> gpus;
    std::vector<Tenant> tenants;
    std::vector<Process> processes;
    std::vector<uint64_t> gone;  // sessions of which nothing is left
  };
  bool draining = false;  // everything is
  std::vector<Gpu> gpus;
  std::vector<Tenant> tenants;
  std::vector<Change> changes;
  std::vector<Process> processes;

  // Whether the next broker would do the same without it.
  bool empty() const { return !draining && processes.empty() && changes.empty() && !any_state(); }
  bool operator==(const Remains&) const = default;

 private:
  bool any_state() const {
    for (const Gpu& gpu : gpus) {
      if (gpu.draining) return true;
    }
    for (const Tenant& tenant : tenants) {
      if (tenant.suspended || tenant.draining) return true;
    }
    return false;
  }
};

// Where numbers of processes mean something.
struct Where {
  std::string boot;            // the kernel's number of this start of the machine
  uint64_t pid_namespace = 0;  // its inode
  bool operator==(const Where&) const = default;
};
Where WhereThisIs();

// When it began, as the kernel counts; 0: that cannot be seen.
uint64_t BeganAt(int32_t pid);

// Of the program that it runs now: another after an exec. 0: that cannot be seen, as of another user's by one that is not
// root, or is not there yet.
uint64_t ImageOf(int32_t pid);

std::string ToJson(const Remains& remains, const Where& where);
std::string ToJson(const Remains::Growth& growth);  // a line after it
// With what the lines after it say; a last one that is not whole nobody has been told of. InvalidArgument: it is none, or
// of another version.
absl::StatusOr<Remains> RemainsFromJson(std::string_view json, Where* where);

class RemainsFile {
 public:
  explicit RemainsFile(std::string path) : path_(std::move(path)), where_(WhereThisIs()) {}

  // Nothing: there is no file, or it is of another start of the machine. Processes whose numbers mean nothing here have
  // none. FailedPrecondition, InvalidArgument: why the file is not to be believed.
  absl::StatusOr<std::optional<Remains>> Read() const;
  // The file as a whole, or as it was. Where there is nothing to say there is none.
  absl::Status Write(const Remains& remains);
  // A line more. False: it is not known what stands there, or it has become long; then it is to be written as a whole.
  bool Add(const Remains::Growth& growth);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const Where where_;
  std::optional<std::string> written_;  // what it has, where this has written it
  base::UniqueFd lines_;  // to which lines may be added; none: there is no file to add to
  size_t added_ = 0;      // bytes of lines after the first
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_REMAINS_H_
