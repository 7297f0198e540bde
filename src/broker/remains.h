// SPDX-License-Identifier: Apache-2.0
// The state that a broker leaves for the next one at its socket: the grants of memory, and an operator's changes.
//
// A broker can be killed at any instruction, and its processes go on. The next broker must not grant what they hold, even
// before they have registered again. So the state is written before a process learns of a grant, and read at the start:
//
//   RemainsFile file("/run/gpushare/broker.sock.books");
//   GPUSHARE_ASSIGN_OR_RETURN(std::optional<Remains> before, file.Read());
//   GPUSHARE_RETURN_IF_ERROR(file.Write(remains));
//   if (!file.Add(grown)) GPUSHARE_RETURN_IF_ERROR(file.Write(remains));
//
// The first line of the file is the whole state. Each later line holds the grants since the line before, so that a grant
// costs one line however many processes there are.
//
// The file is not trusted: its form is checked here, and its content by Registry::Restore().
#ifndef GPUSHARE_BROKER_REMAINS_H_
#define GPUSHARE_BROKER_REMAINS_H_

#include <cstdint>
#include <map>
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
  // A session with a process. Pids are valid only in the PID namespace and the boot of the machine that Where names.
  struct Process {
    uint64_t session = 0;  // number of the session, by which later lines of the file find it
    int32_t pid = 0;       // 0: the broker cannot see the process
    uint64_t began = 0;    // start time from /proc; 0: not known
    uint32_t uid = 0, gid = 0;
    // `asked`: the tenant that it asked for; `tenant`: the one that it belongs to.
    std::string asked, tenant, program;
    uint64_t image = 0;   // of the program, ipc::Hello::image
    bool returns = true;  // it will register with the next broker
    bool evicted = false;
    std::vector<Holding> holds;
    bool operator==(const Process&) const = default;
  };
  struct Tenant {
    std::string name;
    bool listed = false;
    uint32_t owner = 0;  // only if not listed
    // Only if not listed; or for when it is not listed any more.
    std::string spec;
    std::map<std::string, std::string> on = {};  // by UUID, as in TenantConfig
    std::string parent = {};  // the tenant whose share its own is within; empty: none
    bool suspended = false, draining = false;
    bool operator==(const Tenant&) const = default;
  };
  // A share that an operator has changed.
  struct Change {
    std::string gpu, tenant;
    std::string configured, spec;  // the spec in the configuration, and the spec in force
    bool operator==(const Change&) const = default;
  };
  struct Gpu {
    std::string uuid;
    uint64_t memory = 0;
    int32_t sm_count = 0;
    bool draining = false;
    bool operator==(const Gpu&) const = default;
  };
  // The changes since the line before: entries that are new or replace the ones before.
  struct Growth {
    std::vector<Gpu> gpus;
    std::vector<Tenant> tenants;
    std::vector<Process> processes;
    std::vector<uint64_t> gone;  // sessions that hold nothing any more
  };
  bool draining = false;  // a drain of everything is in force
  std::vector<Gpu> gpus;
  std::vector<Tenant> tenants;
  std::vector<Change> changes;
  std::vector<Process> processes;

  // Whether the next broker would do the same without this.
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

// Where pids are valid.
struct Where {
  std::string boot;            // the kernel's boot id
  uint64_t pid_namespace = 0;  // its inode
  bool operator==(const Where&) const = default;
};
Where WhereThisIs();

// When the process began, in the kernel's clock ticks; 0: not visible.
uint64_t BeganAt(int32_t pid);

// A number that identifies the program image that the process runs; an exec changes it. 0: not visible, for instance
// another user's process if the caller is not root, or not there yet.
uint64_t ImageOf(int32_t pid);

std::string ToJson(const Remains& remains, const Where& where);
std::string ToJson(const Remains::Growth& growth);  // a later line
// Reads the whole state with the lines after it. An incomplete last line is ignored: no process has learned of its grants.
// InvalidArgument: the text is no such state, or of another version.
absl::StatusOr<Remains> RemainsFromJson(std::string_view json, Where* where);

class RemainsFile {
 public:
  explicit RemainsFile(std::string path) : path_(std::move(path)), where_(WhereThisIs()) {}

  // nullopt: there is no file, or it was written before the machine's last boot. If it was written in another PID namespace,
  // processes get pid 0. FailedPrecondition, InvalidArgument: the message says why the file cannot be trusted.
  absl::StatusOr<std::optional<Remains>> Read() const;
  // Replaces the file as a whole; on failure the former file stays. An empty state removes the file.
  absl::Status Write(const Remains& remains);
  // Appends a line. False: the file's content is unknown or has become long; then call Write().
  bool Add(const Remains::Growth& growth);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const Where where_;
  std::optional<std::string> written_;  // the first line, if this object has written it
  base::UniqueFd lines_;  // for appending lines; invalid: there is no file to append to
  size_t added_ = 0;      // bytes of the lines after the first
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_REMAINS_H_
