// SPDX-License-Identifier: Apache-2.0
// Attribution: whose commands held the device between two markers.
//
// Markers say when a batch of commands on one stream had ended; they do not say who held the device in
// between. With commands of several tenants in flight, giving the interval to whoever completes is wrong
// by tens of percentage points as soon as kernels overlap. The replay runs the commands that are known
// to be in flight through a small model of the device (streams are FIFO; the oldest head of the highest
// priority takes free SMs, later ones what it leaves; groups of blocks are not preempted) with the costs
// that were learnt, and pins that model to every marker: a batch whose marker is not stamped yet still
// runs, one whose marker is stamped does not run any more. Between two pins, device time is split among
// the streams in proportion to the SMs they hold (docs/meter.md).
//
//   Replay replay(132);
//   auto a = replay.AddStream(/*tenant=*/0, /*priority=*/0);
//   replay.Append(a, {.entry = 7, .cost_ns = 14e3f, .footprint = 1}, not_before);
//   replay.Boundary(a);                        // an event was recorded here
//   ...
//   Replay::Batch batch = replay.Complete(a, stamp);   // in the order of stamps
//
// Pure: device time is an argument. Not thread-safe.
#ifndef GPUSHARE_METER_REPLAY_H_
#define GPUSHARE_METER_REPLAY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/time.h"
#include "meter/outlook.h"

namespace gpushare::meter {

class Replay {
 public:
  // By this part of what they take commands of one key differ.
  static constexpr double kVaries = 0.3;

  explicit Replay(int sm_count);

  using StreamId = uint32_t;
  struct Command {
    uint32_t entry = 0;   // the caller's; comes back with the batch
    float cost_ns = 0;    // predicted duration when alone
    float footprint = 1;  // SMs that it can hold ÷ SMs of the device; above 1 it runs in waves
    // Work that is launched by somebody else (a lease): from its turn on its stream to its marker it has
    // whatever the known commands of others leave it; several split that in proportion to their costs.
    bool opaque : 1 = false;
    // Bound by the memory (sets, copies within the device): it holds no SM, and one runs at a time, the
    // oldest first, beside the others.
    bool memory : 1 = false;
    // Its cost was never measured, varies by more than kVaries, or its tenant has a cap: what is late is its own.
    bool guess : 1 = false;
    // One kernel whose cost is known where it stands, and varies by no more than that.
    bool sure : 1 = false;
    bool beside : 1 = false;   // it was let in beside work of a higher band
    bool studied : 1 = false;  // of the graph that is studied: see meter/graph_study.h
    uint32_t parts = 1;        // so many such commands in a row are one of the caller's
    int level = 0;  // it goes before others by so many more priorities than its stream does
  };

  StreamId AddStream(uint32_t tenant, int priority);  // CUDA's: a lesser one goes first
  void RemoveStream(StreamId stream);

  // A command was handed to the device, not before `not_before` (device time).
  void Append(StreamId stream, const Command& command, Nanos not_before);
  // The driver refused the last command of `entry` on the stream: it takes no time.
  void Refuse(StreamId stream, uint32_t entry);
  // A marker was recorded behind what was appended. A batch may be empty: that is a start marker.
  void Boundary(StreamId stream);
  // What was appended since the last boundary will never have a marker; it ends by prediction.
  void Abandon(StreamId stream);
  // The marker of the last boundary could not be recorded after all: as if abandoned in its place.
  void DropBoundary(StreamId stream);

  // The marker of the oldest boundary that was not told of yet has a stamp, and Complete() will come with it: did it find
  // its stream idle? Then what is before it had ended before, and the model keeps no SMs for it until then, which others'
  // commands, and the tenant's on other streams, have had meanwhile. To be told of all stamps before the first is completed.
  void Stamped(StreamId stream, bool found_idle);

  struct Batch {
    uint32_t tenant = 0;
    double used_ns = 0;       // device time by share of SMs held
    double predicted_ns = 0;  // sum of the commands' costs
    double ratio = 1;         // alone duration observed ÷ predicted
    bool alone = false;       // nobody else was resident for most of it
    bool learnable = false;   // the ratio means something
    double beside_ns =
        0;  // so long one of another's that was let in beside it had begun and not ended
    bool guessed = false;  // charged by prediction, since the model saw next to nothing of it
    double late_ns = 0;    // so much later than in the model it ended; negative: before
    std::vector<Command> commands;
  };
  enum class End {
    kStamped,  // the marker began when the batch ended
    kBefore,  // it found its stream idle: the batch ended at some time before, which the model tells
    kUnknown,  // the driver does not say when: by now it is over
  };
  // The oldest boundary of `stream` that was not completed ended at `at`, and what follows it on the
  // stream starts not before `after` (the marker itself takes time in between). Calls come in the order of
  // stamps; an earlier one counts as simultaneous with the last.
  Batch Complete(StreamId stream, Nanos at, Nanos after, End end);
  Batch Complete(StreamId stream, Nanos at) { return Complete(stream, at, at, End::kStamped); }

  // Device time that the oldest batch of `stream` has used up to `now`, though its marker is not stamped.
  // No stamp before `now` may come after: for work that is long overdue.
  double UsedSoFar(StreamId stream, Nanos now);
  // The same up to now(), which is the last completion or the last time that was asked about.
  double used_ns(StreamId stream) const { return streams_[stream].used_ns; }
  // How long the last command of that batch has run on past its prediction, up to now().
  Nanos Overrun(StreamId stream) const;

  // Opaque work is in flight: of this tenant, of others.
  struct OpaqueWork {
    bool own = false, others = false;
  };
  OpaqueWork FindOpaque(uint32_t tenant) const;

  // What is to come, as far as it is known: of the streams that have anything in flight, and of `own`, which is the first
  // line. Of a stream the next `most` commands at most; of tenants of which `kept` is true up to the first that is not sure.
  // A marker takes `marker_ns` of its stream. False: there is something in flight of which nobody knows what it holds, or too
  // much.
  bool Look(StreamId own, absl::FunctionRef<bool(uint32_t tenant)> kept, size_t most,
            double marker_ns, Outlook& outlook) const;

  // One of the calls above. A copy that is told the same from there on says the same; one that is told something a little
  // different says what would have come of that: see meter/graph_study.h.
  struct Call {
    enum class Kind : uint8_t {
      kAddStream,
      kRemoveStream,
      kAppend,
      kRefuse,
      kBoundary,
      kAbandon,
      kDropBoundary,
      kStamped,
      kComplete,
      kUsedSoFar,
    };
    Kind kind = Kind::kAppend;
    StreamId stream = 0;
    uint32_t tenant = 0, entry = 0;
    int priority = 0;
    Command command{};
    Nanos at{0}, after{0};
    End end = End::kStamped;
    bool found_idle = false;
  };
  // From now on its calls go to `calls`, as many as there is room for; null: to nobody.
  void Record(std::vector<Call>* calls) { calls_ = calls; }
  Replay Copy() const;  // which is not recorded
  std::optional<Batch> Repeat(const Call& call);

  // Unfinished boundaries of a stream.
  int pending(StreamId stream) const { return streams_[stream].boundaries; }
  Nanos now() const { return Nanos(static_cast<int64_t>(now_)); }

 private:
  struct Item {
    Command command;
    double not_before = 0;
    bool boundary = false;
    bool abandoned = false;
    bool found_idle = false;  // a boundary whose marker did: see Stamped()
  };
  struct Stream {
    bool live = false;
    uint32_t tenant = 0;
    int priority = 0;
    std::deque<Item> items;
    int boundaries = 0;
    int stamped = 0;  // so many of them, the oldest, were told of: see Stamped()
    // The head command.
    bool started = false;
    int waiting = 0;  // groups not placed yet; of a pinned command, SMs that it would hold besides
    int running = 0;  // groups placed and not ended
    double unit_ns = 0;
    double ready = 0;
    double marked = 0;     // the last marker's end
    double unclaimed = 0;  // unclaimed_ns_ as it was then
    double launched = 0;   // from when on the batch in progress could run, once a command of it has
    int held = 0;          // SMs
    bool pinned = false;   // ended in the model, its marker not stamped: goes on holding its SMs
    bool kept =
        false;  // pinned beside another's graph: so far it holds no more than its last wave did
    bool beside_opaque = false;  // the batch in progress ran beside opaque work: it teaches nothing
    StreamId opaque = 0;         // if so, whose that was
    double owed_ns =
        0;  // of opaque work: time that turned out to have been its own after its marker
    // The batch in progress.
    double used_ns = 0, shared_ns = 0, resident_ns = 0, beside_ns = 0;
    double group_ns = 0;            // SM time observed
    double group_predicted_ns = 0;  // SM time predicted of the commands that started
    double pinned_used_ns = 0, pinned_group_ns = 0;  // parts of the above while pinned
    double pinned_since = 0;
    double pinned_fill = 1;          // the command's mean width over its waves ÷ its full width
    int gave = 0;                    // pinned, of a graph: SMs that it left to what is very late
    std::optional<double> alone_ns;  // see AloneNs()
    double patience_ns = 0;          // so much of its lateness may still be others' graphs'
    std::vector<Command> done;
  };
  struct Running {
    double end;
    StreamId stream;
    int groups;
  };

  void Note(const Call& call) {
    if (calls_ != nullptr) [[unlikely]]
      Keep(call);
  }
  void Keep(const Call& call);

  static constexpr double kMostWaves = 64;  // into which the groups of a command are divided
  // Of a batch of which the model has run at most this part, and could have run no more, it has seen nothing.
  static constexpr double kUnseen = 0.25;

  void Advance(double to);
  void Place();
  void PlaceMemory();
  static int PriorityOf(const Stream& stream);
  bool Waits(const Stream& stream, int priority) const;
  bool MakesWay(int priority) const;
  void MakeWay(int priority, int wanted);
  bool AccumulateMemory(double dt);
  void AccumulateBeside(double dt);
  void Accumulate(double dt);
  void AccumulateBesideOpaque(double dt, double weight);
  double OpaqueWeight() const;
  void ReleasePinned();
  void EndGroups(size_t index);
  // The first two streams in live_ with a head that is part of a graph and in its turn, of two tenants.
  struct Graphs {
    Stream* first = nullptr;
    Stream* second = nullptr;
    Stream* Beside(const Stream& stream) const {
      return first != nullptr && first->tenant != stream.tenant ? first : second;
    }
  };
  Graphs FindGraphs();
  static double VeryLateFrom(const Stream& stream);
  bool VeryLate(const Stream& stream) const;
  double Widen();
  double ToGraph(Stream& stream, const Graphs& graphs, double used);
  static double AloneNs(Stream& stream);
  double LateNs(StreamId id) const;
  void PopCommand(Stream& stream);
  static bool LastOfBatch(const Stream& stream);
  double SmsOf(const Command& command) const;
  int Width(const Command& command) const;
  static bool AtMemory(const Stream& stream);
  double GroupTime(const Command& command) const;
  void TakeOver(Stream& stream);
  void Finish(Stream& stream, StreamId id);
  static void TakeBackPinned(Stream& stream);
  void ChargeUnseen(Stream& stream, double at, Batch& batch);

  std::vector<Call>* calls_ = nullptr;  // where they go
  int sm_count_, free_;
  double now_ = 0;
  int besides_ = 0;  // commands that were let in beside others, in items
  std::optional<int> first_priority_;
  bool several_priorities_ = false;  // not all that was ever appended had that
  double unclaimed_ns_ = 0;          // time that nobody has been charged for
  std::vector<Stream> streams_;
  std::vector<StreamId> free_streams_;  // those that are not live
  std::vector<StreamId> live_;          // streams with items
  std::vector<Running> running_;
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_REPLAY_H_
