// SPDX-License-Identifier: Apache-2.0
// A look ahead: by how much would one command more, launched now, delay those who are not to be delayed?
//
// Whoever launches a whole request at once has its kernels in the books long before they run: in which order, how long each
// is by prediction, how many SMs it can hold. So it is known what they leave of the device, and until when. This runs what
// is known to come through the replay's model of the device (lines are FIFO; the oldest head of the highest priority takes
// free SMs, later ones what it leaves; groups of blocks are not preempted), once with the command and once without.
//
//   Outlook outlook(132, now);
//   outlook.Add({.ahead = {...}});                                // line 0, on which the command is to be launched
//   outlook.Add({.kept = true, .priority = -1, .ahead = {...}});  // whoever is not to be delayed
//   const Outlook::Delay delay = outlook.Of({.length = 40e3, .groups = 60, .not_before = now + 4e3}, 0);
//
// Pure: a value. Times are device time, in ns. Thread-compatible.
#ifndef GPUSHARE_METER_OUTLOOK_H_
#define GPUSHARE_METER_OUTLOOK_H_

#include <cstddef>
#include <utility>
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

  // What is added says how things stand at `now`.
  Outlook(int sms, double now) : sms_(sms), now_(now) {}
  void Add(Line line) { lines_.push_back(std::move(line)); }

  struct Delay {
    // False: it would run beside something of which nobody knows how long it is, or beside nothing that is known.
    bool known = false;
    // By so much later the kept lines would be done with what they have begun by its end. What they launch behind all that
    // is known may come at once and want the whole device: what it runs on beyond that counts too.
    double kept = 0;
    double starts = 0, ends = 0;
  };
  // Of a command behind all that is on `line`.
  Delay Of(const Command& command, size_t line) const;

  // When the commands of kept lines that are in turn end, without any such: `most` of these times, beyond `after`.
  std::vector<double> KeptEnds(double after, size_t most) const;

 private:
  struct Course;  // outlook.cc

  std::vector<Line> lines_;
  int sms_;
  double now_;
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_OUTLOOK_H_
