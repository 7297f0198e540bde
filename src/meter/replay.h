// SPDX-License-Identifier: Apache-2.0
// Attribution: whose commands held the device between two markers.
//
// A marker tells when a batch of commands on one stream had ended, but not who held the device in between. With
// commands of several tenants in flight, giving the interval to the tenant that completes is wrong by tens of
// percentage points as soon as kernels overlap. The replay runs the commands that are known to be in flight
// through a small model of the device, with the learnt costs. (Streams are FIFO; the oldest head of the highest
// priority takes free SMs, later ones what it leaves; groups of blocks are not preempted.) It pins the model to
// every marker: a batch whose marker is not stamped yet still runs, a batch whose marker is stamped has ended.
// Between two pins, device time is split among the streams in proportion to the SMs that they hold
// (docs/meter.md).
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
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/time.h"
#include "meter/graph_shape.h"
#include "meter/outlook.h"

namespace gpushare::meter {

class Replay {
 public:
  // Commands of one key may differ by this part of their cost.
  static constexpr double kVaries = 0.3;

  explicit Replay(int sm_count);

  using StreamId = uint32_t;
  struct Command {
    uint32_t entry = 0;   // chosen by the caller; returned with the batch
    float cost_ns = 0;    // predicted duration when alone
    float footprint = 1;  // SMs that it can hold ÷ SMs of the device; above 1 it runs in waves
    // Work whose launches are not seen (a lease): from its turn on its stream to its marker it has whatever the
    // known commands of others leave; several opaque commands split that in proportion to their costs.
    bool opaque : 1 = false;
    // Bound by the memory (sets, copies within the device): it holds no SM. One such command runs at a time, the
    // oldest first, beside the other commands.
    bool memory : 1 = false;
    // Its cost was never measured or varies by more than kVaries, or its tenant has a cap. All its lateness counts as its own.
    bool guess : 1 = false;
    // One kernel whose cost was measured in its context and varies by at most kVaries.
    bool sure : 1 = false;
    bool beside : 1 = false;   // it was let in beside work of a higher band
    bool studied : 1 = false;  // it is of the graph that is studied: see meter/graph_study.h
    uint32_t parts = 1;        // this many adjacent commands are one command of the caller
    int level = 0;             // CUDA priorities by which it goes before its stream's own priority
    // By what part of its cost it makes its graph longer when that is alone; 1 unless others of its kernels run at the same time.
    float alone = 1;
    double alone_ns() const { return static_cast<double>(cost_ns) * static_cast<double>(alone); }
  };

  StreamId AddStream(uint32_t tenant, int priority);  // as in CUDA: a lesser one goes first
  void RemoveStream(StreamId stream);

  // A command was handed to the device, not before `not_before` (device time).
  void Append(StreamId stream, const Command& command, Nanos not_before);
  // A graph with branches was. `whole` is all of it, of the cost that it has alone. Without host memory nothing changes.
  void AppendGraph(StreamId stream, const Command& whole,
                   std::shared_ptr<const BranchedShape> shape, Nanos not_before);
  // The driver refused the last command of `entry` on the stream, so it takes no time.
  void Refuse(StreamId stream, uint32_t entry);
  // A marker was recorded behind what was appended. The marker of an empty batch is a start marker.
  // `holds`: as if Holds() were called for it.
  void Boundary(StreamId stream, bool holds = true);
  // The batch of the oldest boundary is known to run until its marker. Until this is known, as long as the marker would not
  // have been seen on an idle stream either, the batch ends in the model as predicted; otherwise work on other streams would
  // seem to have waited for it. A batch that has ended in the model and is found to hold on runs on from now on.
  void Holds(StreamId stream);
  // What was appended since the last boundary will never have a marker, so it ends by prediction.
  void Abandon(StreamId stream);
  // The marker of the last boundary could not be recorded after all; its batch is abandoned.
  void DropBoundary(StreamId stream);

  // The marker of the oldest boundary for which this was not called yet has a stamp, and Complete() will follow. `found_idle`:
  // the marker found its stream idle. Then its batch had ended earlier, and the model does not keep SMs for it until the stamp,
  // since commands of other streams have had these meanwhile. Otherwise the batch holds: see Holds(). Call it for all stamps
  // before the first Complete().
  void Stamped(StreamId stream, bool found_idle);

  struct Batch {
    uint32_t tenant = 0;
    double used_ns = 0;       // device time by share of SMs held
    double predicted_ns = 0;  // sum of the commands' costs
    double ratio = 1;         // alone duration observed ÷ predicted
    bool shared = false;      // another tenant was resident for part of it
    bool alone = false;  // the model has seen it, and no other tenant was resident for most of it
    bool learnable = false;  // the ratio is meaningful
    bool in_time = false;    // all that is known: it need not have taken longer than predicted
    // For how long a command of another tenant that was let in beside it had begun and not ended.
    double beside_ns = 0;
    bool guessed = false;  // charged by prediction, since the model saw next to nothing of it
    double late_ns = 0;    // by how much it ended later than in the model; negative: earlier
    std::span<const Command> commands;  // until the stream's next batch is completed
  };
  enum class End {
    kStamped,  // the marker began when the batch ended
    kBefore,   // the marker found its stream idle; the batch ended earlier, as the model tells
    kUnknown,  // the driver does not say when the batch ended, but it is over now
  };
  // The oldest boundary of `stream` that was not completed ended at `at`, and what follows it on the stream
  // does not start before `after` (the marker itself takes time in between). Calls come in the order of stamps;
  // an earlier stamp counts as simultaneous with the last one.
  Batch Complete(StreamId stream, Nanos at, Nanos after, End end);
  Batch Complete(StreamId stream, Nanos at) { return Complete(stream, at, at, End::kStamped); }

  // Device time that the oldest batch of `stream` has used up to `now`, although its marker is not stamped.
  // No stamp before `now` may follow, so this is for work that is long overdue.
  double UsedSoFar(StreamId stream, Nanos now);
  // The same up to now(), the latest time that was passed to Complete() or UsedSoFar().
  double used_ns(StreamId stream) const { return streams_[stream].used_ns; }
  // How long the last command of that batch has run on past its prediction, up to now().
  Nanos Overrun(StreamId stream) const;

  // Whether opaque work is in flight: of this tenant, and of others.
  struct OpaqueWork {
    bool own = false, others = false;
  };
  OpaqueWork FindOpaque(uint32_t tenant) const;

  // Fills `outlook` with what is known to come on the streams that have anything in flight, and on `own`, which is the first
  // line. Takes at most the next `most` commands of a stream, and for tenants for which `kept` is true only those before the
  // first command that is not sure. A marker takes `marker_ns` of its stream. False: opaque work is in flight, or too many
  // streams are.
  bool Look(StreamId own, absl::FunctionRef<bool(uint32_t tenant)> kept, size_t most,
            double marker_ns, Outlook& outlook) const;

  // One of the calls above. A copy of a replay that repeats the same calls gives the same results. With slightly different
  // calls it gives the results that these would have had: see meter/graph_study.h.
  struct Call {
    enum class Kind : uint8_t {
      kAddStream,
      kRemoveStream,
      kAppend,
      kAppendGraph,
      kRefuse,
      kBoundary,
      kHolds,
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
    bool found_idle = false, holds = true;
    std::shared_ptr<const BranchedShape> shape = nullptr;
  };
  // From now on adds its calls to `calls`, up to its capacity; null: stops recording. The parts of a launch of the studied graph
  // are one call, with the cost of all.
  void Record(std::vector<Call>* calls) {
    calls_ = calls;
    parts_to_keep_ = 0;
  }
  Replay Copy() const;  // calls of the copy are not recorded
  std::optional<Batch> Repeat(const Call& call);

  // Number of boundaries of a stream that are not completed.
  int pending(StreamId stream) const { return streams_[stream].boundaries; }
  Nanos now() const { return Nanos(static_cast<int64_t>(now_)); }

 private:
  struct Item {
    Command command{};
    double not_before = 0;
    bool boundary = false;
    bool abandoned = false;
    bool found_idle = false;  // a boundary whose marker found its stream idle: see Stamped()
    bool holds = false;       // a boundary: see Holds()
    // Of a graph with branches. It stands for the graph on its stream, and the kernels are on the stream's branches. It begins
    // and ends with them.
    std::shared_ptr<const Branches> branches = nullptr;
    uint64_t graph = 0;  // which of the graphs with branches of its stream it is, or is a kernel of
    uint32_t kernel = 0;  // its place in the graph
  };
  struct Stream {
    bool live = false;
    uint32_t tenant = 0;
    int priority = 0;
    std::deque<Item> items;
    // A branch: the stream of its graphs. What its kernels use and hold is accounted there, as are priorities and boundaries.
    std::optional<StreamId> owner;
    bool blocked = false;  // its head waits for other kernels of the graph
    size_t ended = 0;      // how many of these have, the first ones
    std::vector<StreamId> branches;
    uint64_t graphs = 0;  // with branches that were appended
    double begun = 0;     // when the graph at the head began
    int boundaries = 0;
    int stamped = 0;     // for how many of them, the oldest ones, Stamped() was called
    bool holds = false;  // see Holds()
    // The head command.
    bool started = false;
    int waiting = 0;  // groups not placed yet; for a pinned command, further SMs that it wants
    int running = 0;  // groups placed and not ended
    double unit_ns = 0;
    double ready = 0;
    double marked = 0;     // the end of the last marker
    double unclaimed = 0;  // unclaimed_ns_ at that time
    // When the batch in progress could first run; valid once a command of it has ended.
    double launched = 0;
    int held = 0;         // SMs that it holds
    bool pinned = false;  // ended in the model, but its marker is not stamped, so it keeps its SMs
    // Pinned beside another tenant's graph: it still holds only the SMs of its last wave.
    bool kept = false;
    bool beside_opaque = false;  // the batch in progress ran beside opaque work; it is not learnt
    StreamId opaque = 0;         // if so, the stream of that work
    // For opaque work: time that turned out, after its marker, to have been its own.
    double owed_ns = 0;
    // The batch in progress.
    double used_ns = 0, shared_ns = 0, resident_ns = 0, beside_ns = 0;
    double resident_at = -1;        // when resident_ns was last counted
    double group_ns = 0;            // SM time observed
    double group_predicted_ns = 0;  // SM time predicted of the commands that started
    double pinned_used_ns = 0, pinned_group_ns = 0;  // parts of the above while pinned
    double pinned_since = 0;
    double pinned_fill = 1;  // the command's mean width over its waves ÷ its full width
    int gave = 0;            // for a pinned graph: SMs that it gave up to very late commands
    std::optional<double> alone_ns;  // see AloneNs()
    double patience_ns = 0;  // how much of its lateness may still be given to others' graphs
    // The commands of the batch in progress that are done, and those of the last batch. Both have room for all of `items` too.
    std::vector<Command> done, last;
  };
  struct Running {
    double end;
    StreamId stream;
    int groups;
  };

  // Branches are told apart from streams by this bit.
  static constexpr StreamId kBranch = StreamId{1} << 31;
  Stream& At(StreamId id) { return (id & kBranch) != 0 ? branches_[id & ~kBranch] : streams_[id]; }
  const Stream& At(StreamId id) const { return const_cast<Replay*>(this)->At(id); }
  // Whose batch the commands of a stream or branch are in.
  Stream& OwnerOf(Stream& stream) { return stream.owner ? At(*stream.owner) : stream; }

  void Note(const Call& call) {
    if (calls_ != nullptr) [[unlikely]]
      Keep(call);
  }
  void Keep(const Call& call);

  // The groups of a command are divided into at most this many waves.
  static constexpr double kMostWaves = 64;
  // If the model has run at most this part of a batch, and could not have run more, the batch counts as not seen.
  static constexpr double kUnseen = 0.25;

  void Advance(double to);
  void Place();
  static bool IsBefore(const Stream& a, const Stream& b);
  void PlaceMemory();
  void AddRunning(StreamId id, int groups);
  static int PriorityOf(const Stream& stream);
  bool Waits(const Stream& stream, int priority) const;
  bool MakesWay(int priority) const;
  void MakeWay(int priority, int wanted);
  bool AccumulateMemory(double dt);
  void AccumulateBeside(double dt);
  void Accumulate(double dt);
  void AccumulateBesideOpaque(double dt, double weight);
  void CountResident(Stream& owner, double dt, bool shared) const;
  double OpaqueWeight() const;
  void ReleasePinned();
  void EndGroups(size_t index);
  // The first two streams in live_, of different tenants, whose head is part of a graph and has been launched.
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
  double AloneNs(Stream& stream) const;
  double LateNs(StreamId id) const;
  void PopCommand(Stream& stream);
  void MakeRoomFor(Stream& stream, size_t commands);
  void AppendItem(StreamId id, Item item);
  // replay_branches.cc
  void AddBranches(StreamId id, uint32_t count);
  void Begin(Stream& stream);
  static void Block(Stream& branch);
  bool MayBegin(Stream& branch) const;
  void Unblock(Stream& stream, double at);
  bool EndsGraph(const Stream& branch) const;
  void EndKernel(Stream& branch);
  void BecomeLast(StreamId owner, size_t index);
  void PopGraph(Stream& stream);
  void ForKernels(const Stream& stream, uint64_t graph, absl::FunctionRef<void(Item&)> f);
  double LeftNs(const Stream& stream, const Item& item) const;
  double WaitingNs(const Stream& stream) const;
  void AbandonItem(Stream& stream, Item& item);
  void Pin(Stream& stream);
  void RunOn(Stream& stream);
  static bool LastOfBatch(const Stream& stream);
  double SmsOf(const Command& command) const;
  int Width(const Command& command) const;
  static bool AtMemory(const Stream& stream);
  double GroupTime(const Command& command) const;
  void TakeOver(Stream& stream);
  void Finish(Stream& stream, StreamId id);
  static void Empty(Stream& stream);
  static void TakeBackPinned(Stream& stream);
  void ChargeUnseen(Stream& stream, double at, Batch& batch);

  std::vector<Call>* calls_ = nullptr;  // where calls are recorded; null: nowhere
  uint32_t parts_to_keep_ =
      0;  // parts of the studied graph that are still to be added to the last call
  int sm_count_, free_;
  double now_ = 0;
  int besides_ = 0;  // number of commands with `beside` in `items`
  std::optional<int> first_priority_;
  bool several_priorities_ = false;  // some command was appended with another priority
  double unclaimed_ns_ = 0;          // time that no stream has been charged for
  std::vector<Stream> streams_, branches_;
  std::vector<StreamId> free_streams_;  // streams that are not live
  std::vector<StreamId> free_branches_;
  std::vector<StreamId> live_;  // streams and branches with items
  std::vector<Running> running_;
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_REPLAY_H_
