// SPDX-License-Identifier: Apache-2.0
// A file that the processes of one user find by name, with its locks.
//
// They are locks of the open file on its bytes, which the kernel drops when the last process that has it open
// dies, of whatever it dies and wherever it is: who holds the mutex never takes it to the grave, and whether
// a process lives is whether its byte is locked. Numbers of processes, which are given out again, and
// namespaces of them do not matter, nor does who else in the process opens and closes the file. A forked child
// has it open too, and has to close it.
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

  // Opens or creates it in the user's own folder and takes the lock. Empty, or what went wrong.
  std::string OpenLocked(const std::string& name);
  // Maps it at this size, which it is given if it is empty. Null when it has another.
  void* Map(uint64_t bytes);

  // A forked child has no part in it.
  void Close();

  // Between processes and threads. A thread that has it does not ask again. When the kernel refuses, since
  // somebody closed our descriptor, the file is lost: nobody may rely on what it says.
  void Lock();
  void Unlock();

  // Byte `number` is this process's until it ends. False: another's.
  bool Claim(uint32_t number);
  void Disclaim(uint32_t number);
  // Whether another process has one of the bytes.
  bool IsClaimed(uint32_t number, uint32_t count = 1) const;
  static constexpr uint32_t kClaims = 1024;  // more than are ever claimed

  bool lost() const { return lost_.load(std::memory_order_relaxed); }

  bool Is(const struct stat& other) const;
  bool Look(struct stat* own) const;

  // Nobody finds it any more. With the lock held.
  void Remove();
  // What killed processes left. False: a process has it, or it is not there.
  static bool RemoveUnused(const std::string& name);

 private:
  bool LockBytes(uint64_t from, uint64_t count, short type, bool wait) const;

  std::mutex threads_;  // the locks are the process's
  std::string path_;
  int descriptor_ = -1;
  std::atomic<bool> lost_{false};
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_FILE_H_
