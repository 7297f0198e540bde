// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of processes that share a simulated GPU: a name for each test's GPU, and its processes.
#ifndef GPUSHARE_TESTS_SIM_PROCESS_TEST_H_
#define GPUSHARE_TESTS_SIM_PROCESS_TEST_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace gpushare::sim_test {

inline constexpr uint64_t kMiB = 1 << 20;
inline std::string MiB(uint64_t count) { return std::to_string(count * kMiB); }
// A time of the virtual clock, which starts at 1 s.
inline std::string At(uint64_t ns) { return "at " + std::to_string(1'000'000'000 + ns); }

// A child process that follows orders (process_child.cc).
class Child {
 public:
  explicit Child(const std::string& config) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<std::string> environment;
    for (char** at = environ; *at != nullptr; ++at) {
      if (std::string(*at).rfind("GPUSHARE_SIM=", 0) != 0) environment.emplace_back(*at);
    }
    environment.push_back("GPUSHARE_SIM=" + config);
    std::vector<char*> pointers;
    for (std::string& one : environment) pointers.push_back(one.data());
    pointers.push_back(nullptr);
    char path[] = GPUSHARE_SIM_PROCESS_CHILD;
    char* const arguments[] = {path, nullptr};
    if (posix_spawn(&pid_, path, &actions, nullptr, arguments, pointers.data()) != 0) std::abort();
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  Child(Child&& from) noexcept
      : pid_(std::exchange(from.pid_, -1)),
        in_(std::exchange(from.in_, -1)),
        out_(std::exchange(from.out_, -1)),
        read_(std::move(from.read_)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ >= 0) Kill();
  }

  // Sends order lines to the child without waiting.
  void Tell(const std::string& lines) {
    const std::string text = lines + "\n";
    ASSERT_EQ(static_cast<ssize_t>(text.size()), write(in_, text.data(), text.size()));
  }
  // The child's next answer line; "(nothing)" if the child has ended or is silent for half a minute.
  std::string Answer() {
    for (;;) {
      const size_t end = read_.find('\n');
      if (end != read_.npos) {
        const std::string line = read_.substr(0, end);
        read_.erase(0, end + 1);
        return line;
      }
      pollfd ready{out_, POLLIN, 0};
      char buffer[4096];
      if (poll(&ready, 1, 30'000) != 1) return "(nothing)";
      const ssize_t size = read(out_, buffer, sizeof(buffer));
      if (size <= 0) return "(nothing)";
      read_.append(buffer, static_cast<size_t>(size));
    }
  }
  std::string Ask(const std::string& line) {
    Tell(line);
    return Answer();
  }
  // All answers until the child ends.
  std::string Rest() {
    std::string all;
    for (std::string line = Answer(); line != "(nothing)"; line = Answer()) all += line + "; ";
    return all;
  }
  void Kill() {
    kill(pid_, SIGKILL);
    Reap();
  }
  // Waits for the child to end by itself, and returns its wait status.
  int Reap() {
    int status = 0;
    close(in_);
    waitpid(pid_, &status, 0);
    close(out_);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string read_;
};

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() { signal(SIGPIPE, SIG_IGN); }

  // Removes the files of devices, which killed processes leave behind.
  void TearDown() override {
    for (const char* base : {"/dev/shm", "/tmp"}) {
      const std::string folder = base + ("/gpushare-sim-" + std::to_string(geteuid()));
      unlink((folder + "/" + Name()).c_str());
    }
  }

  static std::string Name() {
    return "test-" + std::to_string(getpid()) + "-" +
           testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  // A configuration without host costs. Every test has its own device.
  static std::string Config(const std::string& more) {
    return "shared=" + Name() +
           ",sms=100,memory=1GiB,launch_host=0,call_host=0,query_host=0,record_host=0,"
           "record_device=0,launch_latency=0,sync_return=0," +
           more;
  }
};

}  // namespace gpushare::sim_test

#endif  // GPUSHARE_TESTS_SIM_PROCESS_TEST_H_
