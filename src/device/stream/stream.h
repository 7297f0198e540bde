// SPDX-License-Identifier: Apache-2.0
// A CUDA stream of a virtual device, behind gpushare_stream.
//
// Everything that occupies the device goes through the gate: launches, sets and copies within the device
// by Admit and Complete, copies between host and device by Copy. Exempt is what is recorded into a
// graph (the graph's launches are charged), and what a lease covers.
#ifndef GPUSHARE_DEVICE_STREAM_STREAM_H_
#define GPUSHARE_DEVICE_STREAM_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "base/time.h"
#include "device/gpu/context_scope.h"
#include "device/gpu/gpu.h"
#include "device/share/virtual_device.h"
#include "driver/driver.h"
#include "gate/engine.h"
#include "gate/host_copy.h"
#include "gate/lane.h"

namespace gpushare::device {

class Graph;
class MemoryPool;
class StreamOrder;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static absl::StatusOr<std::shared_ptr<Stream>> Create(std::shared_ptr<VirtualDevice> device);
  static absl::StatusOr<std::shared_ptr<Stream>> Bind(std::shared_ptr<VirtualDevice> device,
                                                      driver::Stream native);
  ~Stream();

  VirtualDevice& device() const { return *device_; }
  const std::shared_ptr<VirtualDevice>& shared_device() const { return device_; }
  gate::StreamGate* stream_gate() const { return stream_gate_; }
  uint64_t id() const { return id_; }  // of no other stream, ever; not 0
  // For memory that follows it, also when it is gone.
  const std::shared_ptr<StreamOrder>& order() const { return order_; }
  driver::Stream native() const { return native_; }
  // From now on others may use it, for instance begin a capture.
  driver::Stream Expose() {
    uncommon_.fetch_or(kExposed, std::memory_order_relaxed);
    return native_;
  }
  // From now on what it is given passes the virtual device's work_door(), whose memory may be swapped out.
  void UseDoor() { uncommon_.fetch_or(kUsesDoor, std::memory_order_relaxed); }

  // As nearly every launch goes: of a settled cost, with credit in hand, under no lease, in no capture, in the context that was
  // current the last time. It does what Launch() would do and makes no status of it.
  enum class AtOnce {
    kNot,
    kDone,
    kRefused
  };  // kNot: nothing has happened; kRefused: see LaunchedInVain()
  struct Paid {
    uint32_t launch = 0;
    driver::Result result = driver::Result::kSuccess;
  };
  AtOnce LaunchAtOnce(driver::Function function, const driver::LaunchShape& shape, void** params,
                      Paid* paid) const;
  // The driver refused it: tried once more where the context may be to blame, else the charge goes back.
  absl::Status LaunchedInVain(driver::Function function, const driver::LaunchShape& shape,
                              void** params, const Paid& paid) const;
  // `timeout_ns` as in the C ABI.
  absl::Status Launch(driver::Function function, const driver::LaunchShape& shape, void** params,
                      bool cooperative, int64_t timeout_ns);
  absl::Status LaunchHost(void (*function)(void*), void* argument);
  absl::Status LaunchGraph(driver::GraphExec graph, int64_t timeout_ns);

  enum class Direction { kToDevice, kToHost, kOnDevice };
  // One of the two addresses of each side counts, by direction.
  absl::Status CopyAsync(Direction direction, void* host, driver::DevicePtr to,
                         driver::DevicePtr from, uint64_t bytes);
  absl::Status SetAsync(driver::DevicePtr to, unsigned char value, uint64_t bytes);

  absl::Status Synchronize();
  void Yield();
  absl::Status Record(driver::Event event);
  absl::Status Wait(driver::Event event);
  absl::Status BeginCapture();
  absl::StatusOr<std::shared_ptr<Graph>> EndCapture();
  // Whether what is submitted now goes into a graph.
  absl::StatusOr<bool> Capturing() const;

  // Whether all it was given is over, or its context lost; false also when the driver must not be asked. The context is
  // current.
  bool Idle() const;
  // `pool` is told of this stream's end. Nearly free when it was the last that was named.
  void EndsFor(MemoryPool* pool) {
    if (last_pool_.load(std::memory_order_relaxed) != pool) AddPool(pool);
  }

  void EnterLease() { leases_.fetch_add(1, std::memory_order_relaxed); }
  void LeaveLease() { leases_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  Stream(std::shared_ptr<VirtualDevice> device, bool owned);
  absl::Status CreateNative();
  absl::Status Attach();
  void AddPool(MemoryPool* pool);
  // Those who have to know. Who could not be told for want of host memory does not know when it ends.
  void TellEnd() noexcept;

  // What its work enters before it goes to the driver; null: the virtual device has no memory that could leave meanwhile.
  Door* OwnDoor() const {
    return uncommon_.load(std::memory_order_relaxed) & kUsesDoor ? &device_->work_door() : nullptr;
  }
  // The same of what a lease may cover; null also while none does.
  Door* DoorUnderLease() const {
    return leases_.load(std::memory_order_relaxed) > 0 ? OwnDoor() : nullptr;
  }
  absl::Status Refused(gate::Verdict verdict) const;
  // Runs `call` (returning a driver::Result) with the GPU's context current, and again if it turns
  // out not to have been.
  template <typename Call>
  driver::Result InContext(const Call& call);
  // By so many priorities above its own.
  driver::Result LaunchAtLevel(driver::Function function, const driver::LaunchShape& shape,
                               void** params, int level) const;
  template <typename Call>
  absl::Status Submit(const gate::Work& work, int64_t timeout_ns, const char* name,
                      const Call& call);
  // `launch`, with what is left of the time, when both copy limits have let the bytes pass that it moves; they go back when it
  // is refused.
  absl::Status Crossing(const gate::CopyBytes& bytes, int64_t timeout_ns,
                        absl::FunctionRef<absl::Status(int64_t)> launch);
  Time Deadline(int64_t timeout_ns) const;

  const std::shared_ptr<VirtualDevice> device_;
  Gpu& gpu_;
  const uint64_t id_;
  const bool owned_;
  std::shared_ptr<Partition> partition_;  // whose SMs its kernels have; null: all
  float sms_ratio_ = 1;                   // the GPU's SMs by those
  driver::Stream native_ = nullptr;
  std::shared_ptr<StreamOrder> order_;
  gate::StreamGate* stream_gate_ = nullptr;
  const gate::Lane* lane_ = nullptr;  // its
  int priority_ = 0;                  // CUDA's, of a stream of our own
  int levels_ = 0;                    // by so many more its kernels may go before others'
  bool bound_ = false;
  std::atomic<int> leases_{0};
  // What keeps launches from LaunchAtOnce().
  static constexpr uint8_t kExposed = 1, kUsesDoor = 2;
  std::atomic<uint8_t> uncommon_{0};
  std::atomic<bool> begun_capture_{false};  // here, and counted in the GPU's captures()

  std::atomic<MemoryPool*> last_pool_{nullptr};  // compared, not used
  base::Mutex pools_mutex_;
  std::vector<std::weak_ptr<MemoryPool>> pools_ ABSL_GUARDED_BY(pools_mutex_);
};

class Event {
 public:
  static absl::StatusOr<std::shared_ptr<Event>> Create(std::shared_ptr<VirtualDevice> device,
                                                       bool timing);
  ~Event();
  driver::Event native() const { return native_; }
  absl::StatusOr<bool> Done() const;
  absl::Status Synchronize() const;
  absl::StatusOr<Nanos> Since(const Event& start) const;

 private:
  explicit Event(std::shared_ptr<VirtualDevice> device) : device_(std::move(device)) {}
  const std::shared_ptr<VirtualDevice> device_;
  driver::Event native_ = nullptr;
};

// A captured graph, instantiated.
class Graph {
 public:
  static absl::StatusOr<std::shared_ptr<Graph>> Instantiate(std::shared_ptr<VirtualDevice> device,
                                                            driver::Graph graph);
  ~Graph();
  driver::GraphExec native() const { return native_; }

 private:
  explicit Graph(std::shared_ptr<VirtualDevice> device) : device_(std::move(device)) {}
  const std::shared_ptr<VirtualDevice> device_;
  driver::GraphExec native_ = nullptr;
  uint64_t memory_ = 0;  // that its allocation nodes take; charged
};

inline driver::Result Stream::LaunchAtLevel(driver::Function function,
                                            const driver::LaunchShape& shape, void** params,
                                            int level) const {
  const driver::Driver& driver = gpu_.driver();
  return level > 0 ? driver.LaunchAt(priority_ - level, function, shape, native_, params)
                   : driver.Launch(function, shape, native_, params);
}

[[gnu::always_inline]] inline Stream::AtOnce Stream::LaunchAtOnce(driver::Function function,
                                                                  const driver::LaunchShape& shape,
                                                                  void** params, Paid* paid) const {
  // What others may capture is asked for each time, and work on the legacy stream goes to whatever context is current.
  if (function == nullptr || native_ == nullptr || uncommon_.load(std::memory_order_relaxed) != 0 ||
      leases_.load(std::memory_order_relaxed) > 0 ||
      gpu_.captures().load(std::memory_order_relaxed) != 0 ||
      !ContextScope::Trusts(device_->site()) ||
      !lane_->Take(gate::KernelKey(function, shape), &paid->launch)) {
    return AtOnce::kNot;
  }
  device_->SetBusy();
  paid->result = LaunchAtLevel(function, shape, params, lane_->Level());
  return paid->result == driver::Result::kSuccess ? AtOnce::kDone : AtOnce::kRefused;
}

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_STREAM_STREAM_H_
