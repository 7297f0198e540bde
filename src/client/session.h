// SPDX-License-Identifier: Apache-2.0
// A process's session with the broker: the connection, and a GpuSession for each GPU that it uses.
//
//   GPUSHARE_ASSIGN_OR_RETURN(auto session, Session::Connect(path, hello, clock, {}));
//   GPUSHARE_ASSIGN_OR_RETURN(auto gpu, session->OpenGpu(uuid, memory, sm_count));
//
// A thread of its own watches the connection, and one the pages of each GPU. When the broker goes, each GpuSession is told,
// and the session looks for the next one: it says again who it is, and gets new pages. A broker that is named and not
// there when the process begins is an error: nothing runs without its limits.
//
// A forked child has no session: it closes the connection, and its GpuSessions answer no.
//
// Threading: thread-safe.
#ifndef GPUSHARE_CLIENT_SESSION_H_
#define GPUSHARE_CLIENT_SESSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "client/fork_mark.h"
#include "client/gpu_session.h"
#include "ipc/message.h"

namespace gpushare::client {

struct SessionOptions {
  // GPUSHARE_ON_BROKER_LOSS: whether the process goes on at its guarantee, or until its grants end.
  bool open_on_loss = true;
  Nanos answer_within = Seconds(5);  // from the first word on, and to each question after it
  Nanos first_retry = Millis(10), longest_retry = Seconds(1);
};

class Session {
 public:
  // What the broker refuses comes with its own code. Unavailable: it is not there, or does not answer.
  static absl::StatusOr<std::unique_ptr<Session>> Connect(std::string path, ipc::Hello hello,
                                                          base::Clock& clock,
                                                          const SessionOptions& options);
  // The end of the session, and of the time and memory that its GPUs get.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The tenant that this process belongs to.
  const std::string& tenant() const { return tenant_; }

  // `memory`: of the device, less what is never promised. `spec`: where it is not what the Hello asks for. Each GPU once,
  // later calls answer the same.
  absl::StatusOr<std::shared_ptr<GpuSession>> OpenGpu(const std::string& uuid, uint64_t memory,
                                                      uint32_t sm_count,
                                                      std::optional<std::string> spec = {});

 private:
  struct Opened {
    std::shared_ptr<const Pages> pages;
    std::string spec;
  };
  struct Gpu {
    ipc::Message open;  // an OpenGpu, or OpenGpuAs
    std::string uuid;
    std::shared_ptr<GpuSession> session;
    std::unique_ptr<base::ClockThread> thread;
  };

  Session(std::string path, ipc::Hello hello, base::Clock& clock, const SessionOptions& options,
          std::shared_ptr<const ForkMark> fork_mark, base::UniqueFd stop);
  Time AnswerBy() const { return After(clock_.Now(), options_.answer_within); }
  absl::StatusOr<ipc::Message> Exchange(int fd, const ipc::Message& question, Time deadline,
                                        std::vector<base::UniqueFd>* fds);
  absl::StatusOr<base::UniqueFd> Dial();
  absl::StatusOr<Opened> Open(int fd, const Gpu& gpu);
  void Run();
  bool BrokerIsGone();
  void FindBroker();
  bool TryAgain();
  void Serve(GpuSession& gpu);
  void EndConnection();
  void DrainStop();
  void Pause(Nanos time);
  bool stopping() const { return stopping_.load() != 0; }

  const std::string path_;
  const ipc::Hello hello_;
  base::Clock& clock_;
  const SessionOptions options_;
  const std::shared_ptr<const ForkMark> fork_mark_;
  std::string tenant_;

  std::atomic<uint32_t> talking_{0};  // a ClockLock's, for the connection and the list of GPUs
  base::UniqueFd connection_;
  std::vector<Gpu> gpus_;

  std::atomic<bool> evicted_{false};  // by any answer
  std::atomic<uint32_t> stopping_{0};
  base::UniqueFd stop_;  // readable when it is
  std::unique_ptr<base::ClockThread> thread_;
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_SESSION_H_
