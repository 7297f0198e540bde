// SPDX-License-Identifier: Apache-2.0
// A process's session with the broker: the connection, and a GpuSession for each GPU that it uses.
//
//   GPUSHARE_ASSIGN_OR_RETURN(auto session, Session::Connect(path, hello, clock, {}));
//   GPUSHARE_ASSIGN_OR_RETURN(auto gpu, session->OpenGpu(uuid, memory, sm_count));
//
// One thread watches the connection, and one per GPU watches its pages. When the broker goes, each GpuSession is told, and
// the session looks for the next broker: it registers again and gets new pages. If a broker is named and not there when the
// process begins, that is an error: nothing runs without its limits.
//
// A forked child has no session: it closes the connection, and its GpuSessions refuse everything.
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
#include "base/host_fd.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "client/fork_mark.h"
#include "client/gpu_session.h"
#include "ipc/message.h"

namespace gpushare::client {

struct SessionOptions {
  // GPUSHARE_ON_BROKER_LOSS: after the loss of the broker the process goes on at its guarantee (true), or only until its
  // grants end (false).
  bool open_on_loss = true;
  Nanos answer_within = Seconds(5);  // for connecting and registering, and for each later question
  Nanos first_retry = Millis(10), longest_retry = Seconds(1);
};

class Session {
 public:
  // A refusal has the broker's own code. Unavailable: the broker is not there, or does not answer.
  static absl::StatusOr<std::unique_ptr<Session>> Connect(std::string path, ipc::Hello hello,
                                                          base::Clock& clock,
                                                          const SessionOptions& options);
  // Ends the session; its GPUs get no more time or memory.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The tenant that this process belongs to.
  const std::string& tenant() const { return tenant_; }

  // `memory` is the device's memory less the reserve. `spec` is what to ask for on this GPU if it differs from the Hello.
  // Each GPU is opened once; later calls return the same session.
  absl::StatusOr<std::shared_ptr<GpuSession>> OpenGpu(const std::string& uuid, uint64_t memory,
                                                      uint32_t sm_count,
                                                      std::optional<std::string> spec = {});

 private:
  struct Opened {
    std::shared_ptr<const Pages> pages;
    std::string spec;
  };
  struct Gpu {
    ipc::Message open;  // an OpenGpu or OpenGpuAs
    std::string uuid;
    std::shared_ptr<GpuSession> session;
    std::unique_ptr<base::ClockThread> thread;
  };

  Session(std::string path, ipc::Hello hello, base::Clock& clock, const SessionOptions& options,
          std::shared_ptr<const ForkMark> fork_mark, base::HostFd stop);
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
  void Begin(base::UniqueFd connection);
  void EndConnection();
  bool Await(int connection, Time deadline);
  void DrainStop();
  Time LookAgain();
  void Pause(Nanos time);
  bool stopping() const { return stopping_.load() != 0; }

  const std::string path_;
  const ipc::Hello hello_;
  base::Clock& clock_;
  const SessionOptions options_;
  const std::shared_ptr<const ForkMark> fork_mark_;
  std::string tenant_;

  std::atomic<uint32_t> talking_{0};  // a ClockLock for the connection and the list of GPUs
  base::HostFd connection_;
  std::vector<Gpu> gpus_;

  std::atomic<bool> evicted_{false};  // the broker has said so in any message
  std::atomic<uint32_t> stopping_{0};
  base::HostFd stop_;  // readable once stopping_ is set
  std::unique_ptr<base::ClockThread> thread_;
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_SESSION_H_
