// SPDX-License-Identifier: Apache-2.0
// A look ahead: by how much would one more command, launched now, delay the streams that are to be kept from delay?
//
// A tenant that launches a whole request at once has its kernels in the books long before they run: their order, their
// predicted lengths, and how many SMs each can hold. So it is known for some time what they leave of the device. The outlook
// runs what is known to come through the replay's model of the device (lines are FIFO; the oldest head of the highest priority
// takes free SMs, later ones what it leaves; groups of blocks are not preempted), once with the command and once without.
//
//   Outlook outlook(132, now);
//   outlook.Add() = {.ahead = {...}};                                // the command is launched on the first line
//   outlook.Add() = {.kept = true, .priority = -1, .ahead = {...}};  // a stream that is not to be delayed
//   const Outlook::Delay delay = outlook.Of({.length = 40e3, .groups = 60, .not_before = now + 4e3});
//
// The course without the command is computed once, as far as it is needed. An object that is used again after Reset()
// allocates nothing until it needs more room than before.
//
// Times are device time, in ns. Not thread-safe.
#ifndef GPUSHARE_METER_OUTLOOK_H_
#define GPUSHARE_METER_OUTLOOK_H_

#include <cstddef>
#include <vector>

namespace gpushare::meter {

class Outlook {
 public:
  struct Command {
    double length = 0;  // duration when alone
    // Groups of blocks, one per SM; more groups than SMs run in waves. 0: it holds no SM (a marker).
    int groups = 0;
    double not_before = 0;  // when the device gets it
  };
  struct Group {
    double end = 0;
    int count = 0;
  };
  struct Line {
    bool kept = false;  // it is to be kept from delay
    int priority = 0;   // as in CUDA: the lesser goes first
    double ready = 0;   // since when its head may run
    // If the head has begun: its running groups, the number of groups that wait for SMs, and how long a group takes.
    std::vector<Group> running = {};
    int waiting = 0;
    double unit = 0;
    std::vector<Command> ahead = {};  // the commands behind that
    bool ends = true;                 // false: unknown commands follow behind these
  };

  Outlook() = default;
  // The lines that are added describe the state at `now`.
  Outlook(int sms, double now) { Reset(sms, now); }
  void Reset(int sms, double now);
  // Adds an empty line. The reference is valid until the next Add().
  Line& Add();

  struct Delay {
    // False: the command would run beside work of unknown length, or no kept line has any known work.
    bool known = false;
    // By how much later the kept lines are done with what they have begun by the end of the command. What they launch behind all
    // their known work may come at once and want the whole device, so time that the command runs beyond that work counts too.
    double kept = 0;
    double starts = 0, ends = 0;
  };
  // The delay by a command that is launched behind everything on the first line.
  Delay Of(const Command& command);

  // The times after `after` at which commands of kept lines end if the command is not launched, at most `most` of them. The
  // result is valid until the next call.
  const std::vector<double>& KeptEnds(double after, size_t most);

 private:
  // How the lines go on from `now`.
  struct Course {
    struct State {
      double ready = 0;
      std::vector<Group> running;
      int waiting = 0;
      double unit = 0;
      bool started = false;
      size_t next = 0;     // index in `ahead` of the next command to start
      size_t done = 0;     // number of commands that have ended
      double done_at = 0;  // when the last of them ended
    };
    double now = 0;
    int free = 0;
    const Command* extra = nullptr;  // the command behind everything on the first line
    bool extra_started = false, extra_done = false;
    double extra_starts = 0;
    std::vector<State> states;  // by line; there may be more elements than lines
  };

  void Begin(Course& course, const Command* extra) const;
  const Command* Head(const Course& course, size_t line) const;
  double NextEvent(const Course& course) const;
  bool Step(Course& course) const;
  void Place(Course& course) const;
  void Start(Course& course, size_t line, const Command& head) const;
  bool Over(const Course& course, size_t line) const;
  bool Lost(const Course& course) const;
  bool StepAlone();
  double AloneDoneAt(size_t line, size_t commands);

  std::vector<Line> lines_;  // the first `count_` are in use; the others keep their memory
  size_t count_ = 0;
  int sms_ = 0;
  double now_ = 0;
  Course with_, alone_;  // with the command, and without it
  bool alone_begun_ = false;
  // Ends of the commands of each kept line without the command, as far as computed.
  std::vector<std::vector<double>> alone_ends_;
  std::vector<double> kept_ends_;  // the same for all kept lines together
  std::vector<double> answer_;     // the result of KeptEnds()
  std::vector<size_t> upto_;       // scratch of Of()
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_OUTLOOK_H_
