// SPDX-License-Identifier: Apache-2.0
// A file that all processes of one user find by name, with its locks.
//
// They are open file description locks on the file's bytes. The kernel drops them when the last process that has the file open
// dies, however it dies: no process can die and leave the mutex locked, and a process is alive while its byte is locked. Reused
// pids, PID namespaces, and other code in the process that opens and closes the file make no difference. A forked child also
// has the file open, and has to close it.
#ifndef GPUSHARE_SIM_PROCESSES_FILE_H_
#define GPUSHARE_SIM_PROCESSES_FILE_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace gpushare::sim {

class SharedFile {
 public:
  SharedFile() = default;
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  // Opens or creates the file in the user's own folder and takes the lock. Empty on success, else what went wrong.
  std::string OpenLocked(const std::string& name);
  // Maps the file, which gets this size if it is empty. Null if it has another size.
  void* Map(uint64_t bytes);

  // A forked child does this: it has no part in the file.
  void Close();

  // Locks against other processes and threads. Not recursive. If the kernel refuses, because some code closed our descriptor,
  // the file is lost: its contents can no longer be relied on.
  void Lock();
  void Unlock();

  // Locks byte `number` until this process ends. False if another process has it.
  bool Claim(uint32_t number);
  void Disclaim(uint32_t number);
  // Whether another process has one of the bytes.
  bool IsClaimed(uint32_t number, uint32_t count = 1) const;
  static constexpr uint32_t kClaims = 1024;  // more than are ever claimed

  bool lost() const { return lost_.load(std::memory_order_relaxed); }

  bool Is(const struct stat& other) const;
  bool Look(struct stat* own) const;

  // Removes the name, so that no other process finds the file. Call with the lock held.
  void Remove();
  // Removes what killed processes left. False if a process uses the file, or there is none.
  static bool RemoveUnused(const std::string& name);

 private:
  bool LockBytes(uint64_t from, uint64_t count, short type, bool wait) const;

  std::mutex threads_;  // the file locks do not exclude threads of one process
  std::string path_;
  int descriptor_ = -1;
  std::atomic<bool> lost_{false};
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_FILE_H_
