// SPDX-License-Identifier: Apache-2.0
// A look ahead: by how much would one command more, launched now, delay those who are not to be delayed?
//
// Whoever launches a whole request at once has its kernels in the books long before they run: in which order, how long each
// is by prediction, how many SMs it can hold. So it is known what they leave of the device, and until when. This runs what
// is known to come through the replay's model of the device (lines are FIFO; the oldest head of the highest priority takes
// free SMs, later ones what it leaves; groups of blocks are not preempted), once with the command and once without.
//
//   Outlook outlook(132, now);
//   outlook.Add() = {.ahead = {...}};                                // the command is launched on the first line
//   outlook.Add() = {.kept = true, .priority = -1, .ahead = {...}};  // whoever is not to be delayed
//   const Outlook::Delay delay = outlook.Of({.length = 40e3, .groups = 60, .not_before = now + 4e3});
//
// How things go on without the command is run once, as far as it is asked for. One Outlook after another in the same
// object (Reset) allocates nothing once it has held as much.
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
    double length = 0;  // alone
    int groups =
        0;  // of blocks, one a SM; more than there are run in waves. 0: it holds none (a marker)
    double not_before = 0;  // from then on the device has it
  };
  struct Group {
    double end = 0;
    int count = 0;
  };
  struct Line {
    bool kept = false;  // nothing is to delay it
    int priority = 0;   // CUDA's: the lesser goes first
    double ready = 0;   // since when its head may run
    // Of the head, if it has begun: what runs of it, what waits for SMs, how long a group takes.
    std::vector<Group> running = {};
    int waiting = 0;
    double unit = 0;
    std::vector<Command> ahead = {};  // behind that
    bool ends = true;  // false: something comes behind these of which nobody knows what it does
  };

  Outlook() = default;
  // What is added says how things stand at `now`.
  Outlook(int sms, double now) { Reset(sms, now); }
  void Reset(int sms, double now);
  // An empty line more, which is valid until the next one.
  Line& Add();

  struct Delay {
    // False: it would run beside something of which nobody knows how long it is, or beside nothing that is known.
    bool known = false;
    // By so much later the kept lines would be done with what they have begun by its end. What they launch behind all that
    // is known may come at once and want the whole device: what it runs on beyond that counts too.
    double kept = 0;
    double starts = 0, ends = 0;
  };
  // Of a command behind all that is on the first line.
  Delay Of(const Command& command);

  // When the commands of kept lines that are in turn end, without any such: `most` of these times, beyond `after`. They are
  // valid until the next call.
  const std::vector<double>& KeptEnds(double after, size_t most);

 private:
  // How things go on from now.
  struct Course {
    struct State {
      double ready = 0;
      std::vector<Group> running;
      int waiting = 0;
      double unit = 0;
      bool started = false;
      size_t next = 0;     // of `ahead`: the head, or what comes behind it
      size_t done = 0;     // commands
      double done_at = 0;  // the last of them
    };
    double now = 0;
    int free = 0;
    const Command* extra = nullptr;  // behind what is on the first line
    bool extra_started = false, extra_done = false;
    double extra_starts = 0;
    std::vector<State> states;  // of the lines; there may be more
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

  std::vector<Line> lines_;  // the first `count_`; the others are kept for their room
  size_t count_ = 0;
  int sms_ = 0;
  double now_ = 0;
  Course with_, alone_;  // with the command, and without it
  bool alone_begun_ = false;
  std::vector<std::vector<double>>
      alone_ends_;                 // of the commands of each kept line, as far as that has run
  std::vector<double> kept_ends_;  // of all of these together
  std::vector<double> answer_;     // of KeptEnds()
  std::vector<size_t> upto_;       // of Of()
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_OUTLOOK_H_
