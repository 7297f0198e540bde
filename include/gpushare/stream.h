// SPDX-License-Identifier: Apache-2.0
// A CUDA stream whose launches, graphs and copies pass the gate.
//
//   absl::StatusOr<Stream> stream = Stream::Create(*device);
//   stream->CopyToDevice(x.pointer(), host.data(), x.size());
//   stream->Launch(kernel, {.grid = {1024}, .block = {256}}, x.pointer(), n);
//   stream->Synchronize();
//
//   absl::StatusOr<Stream> adopted = Stream::Bind(*device, framework_stream);   // made elsewhere
//
// A launch waits if it is not the tenant's turn (never with high priority); otherwise it costs some
// nanoseconds more than the driver's own call. While a stream is being captured, nothing is held or
// charged; the launches of the graph are.
//
// Errors: the driver's, with its code in ErrorDetail; DeadlineExceeded when a launch's timeout
// passes; Cancelled when the virtual device goes away. Threading: thread-safe, like CUDA streams:
// calls from several threads on one stream take effect in the order in which they come.
#ifndef GPUSHARE_STREAM_H_
#define GPUSHARE_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/handle.h"
#include "gpushare/module.h"
#include "gpushare/units.h"
#include "gpushare/virtual_device.h"

struct CUevent_st;
struct CUgraphExec_st;
struct CUstream_st;

namespace gpushare {

// A CUDA event.
class Event {
 public:
  static absl::StatusOr<Event> Create(const VirtualDevice& device, bool timing = false) {
    gpushare_event event = nullptr;
    const gpushare_status code = gpushare_event_create(device.handle(), timing ? 1 : 0, &event);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Event(event);
  }

  absl::StatusOr<bool> Done() const {
    int done = 0;
    const gpushare_status code = gpushare_event_query(handle_.get(), &done);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return done != 0;
  }
  absl::Status Synchronize() const {
    return internal::ToStatus(gpushare_event_synchronize(handle_.get()));
  }
  // The time from `start` to this event. Both must have been made with timing, and be done.
  absl::StatusOr<absl::Duration> Since(const Event& start) const {
    int64_t ns = 0;
    const gpushare_status code = gpushare_event_elapsed(start.handle_.get(), handle_.get(), &ns);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return absl::Nanoseconds(ns);
  }
  // Null if moved from.
  CUevent_st* native() const {
    CUevent_st* native = nullptr;
    static_cast<void>(gpushare_event_native(handle_.get(), &native));
    return native;
  }
  gpushare_event handle() const { return handle_.get(); }

 private:
  explicit Event(gpushare_event handle) : handle_(handle) {}
  internal::Handle<gpushare_event, gpushare_event_destroy> handle_;
};

// A captured graph, ready to launch. The gate treats a launch of it as one command.
class Graph {
 public:
  CUgraphExec_st* native() const {
    CUgraphExec_st* native = nullptr;
    static_cast<void>(gpushare_graph_native(handle_.get(), &native));
    return native;
  }
  gpushare_graph handle() const { return handle_.get(); }

 private:
  friend class Stream;
  explicit Graph(gpushare_graph handle) : handle_(handle) {}
  internal::Handle<gpushare_graph, gpushare_graph_destroy> handle_;
};

class Stream {
 public:
  static absl::StatusOr<Stream> Create(const VirtualDevice& device) {
    gpushare_stream stream = nullptr;
    const gpushare_status code = gpushare_stream_create(device.handle(), &stream);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Stream(stream);
  }
  // Adopts a stream that was made elsewhere (null: the legacy default stream). Destroying this object
  // unbinds the stream, and must come before the stream itself ends. AlreadyExists: it is bound already.
  static absl::StatusOr<Stream> Bind(const VirtualDevice& device, CUstream_st* native) {
    gpushare_stream stream = nullptr;
    const gpushare_status code = gpushare_stream_bind(device.handle(), native, &stream);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Stream(stream);
  }

  // -- Launches -- Arguments are given in the order in which the kernel declares them, as trivially
  // copyable values such as DevicePtr, int, float.
  template <typename... Arguments>
  absl::Status Launch(const Function& function, const LaunchShape& shape,
                      Arguments... arguments) const {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...),
                  "pass kernel arguments by value");
    void* params[sizeof...(arguments) + 1] = {&arguments..., nullptr};
    return LaunchRaw(function.native(), shape, params);
  }
  // `params` points to each argument. The shorter of `timeout` and the shape's timeout applies.
  absl::Status LaunchRaw(CUfunc_st* function, const LaunchShape& shape, void** params,
                         absl::Duration timeout = absl::InfiniteDuration()) const {
    const gpushare_shape c = internal::ToC(shape);
    return internal::ToStatus(gpushare_stream_launch(handle_.get(), function, &c, params,
                                                     TimeoutNs(std::min(timeout, shape.timeout))));
  }
  // All blocks are resident at once, and the launch has the device to itself.
  template <typename... Arguments>
  absl::Status LaunchCooperative(const Function& function, const LaunchShape& shape,
                                 Arguments... arguments) const {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...),
                  "pass kernel arguments by value");
    void* params[sizeof...(arguments) + 1] = {&arguments..., nullptr};
    const gpushare_shape c = internal::ToC(shape);
    return internal::ToStatus(gpushare_stream_launch_cooperative(
        handle_.get(), function.native(), &c, params, TimeoutNs(shape.timeout)));
  }
  absl::Status LaunchGraph(CUgraphExec_st* graph,
                           absl::Duration timeout = absl::InfiniteDuration()) const {
    return internal::ToStatus(
        gpushare_stream_launch_graph(handle_.get(), graph, TimeoutNs(timeout)));
  }
  absl::Status LaunchGraph(const Graph& graph) const { return LaunchGraph(graph.native()); }
  // Calls `function` on a thread of the driver when the stream reaches it; later work of the stream waits for its end.
  // It must call neither the driver nor gpushare. The call is not held at the gate and not charged as device time.
  absl::Status LaunchHost(void (*function)(void*), void* argument) const {
    return internal::ToStatus(gpushare_stream_launch_host(handle_.get(), function, argument));
  }

  // -- Copies; those between host and device keep to the virtual device's bandwidth --
  absl::Status CopyToDevice(DevicePtr to, const void* from, Bytes size) const {
    return internal::ToStatus(
        gpushare_stream_copy_h2d(handle_.get(), to.value(), from, size.count()));
  }
  absl::Status CopyToHost(void* to, DevicePtr from, Bytes size) const {
    return internal::ToStatus(
        gpushare_stream_copy_d2h(handle_.get(), to, from.value(), size.count()));
  }
  absl::Status CopyOnDevice(DevicePtr to, DevicePtr from, Bytes size) const {
    return internal::ToStatus(
        gpushare_stream_copy_d2d(handle_.get(), to.value(), from.value(), size.count()));
  }
  // The following return when the copy has been handed to the device.
  absl::Status CopyToDeviceAsync(DevicePtr to, const void* from, Bytes size) const {
    return internal::ToStatus(
        gpushare_stream_copy_h2d_async(handle_.get(), to.value(), from, size.count()));
  }
  absl::Status CopyToHostAsync(void* to, DevicePtr from, Bytes size) const {
    return internal::ToStatus(
        gpushare_stream_copy_d2h_async(handle_.get(), to, from.value(), size.count()));
  }
  absl::Status CopyOnDeviceAsync(DevicePtr to, DevicePtr from, Bytes size) const {
    return internal::ToStatus(
        gpushare_stream_copy_d2d_async(handle_.get(), to.value(), from.value(), size.count()));
  }
  absl::Status SetAsync(DevicePtr to, uint8_t value, Bytes size) const {
    return internal::ToStatus(
        gpushare_stream_set_async(handle_.get(), to.value(), value, size.count()));
  }

  // -- Order --
  absl::Status Synchronize() const {
    return internal::ToStatus(gpushare_stream_synchronize(handle_.get()));
  }
  // Gives unused granted time to others. Call it before the host computes for long.
  absl::Status Yield() const { return internal::ToStatus(gpushare_stream_yield(handle_.get())); }
  absl::Status Record(const Event& event) const { return Record(event.native()); }
  absl::Status Record(CUevent_st* event) const {
    return internal::ToStatus(gpushare_stream_record(handle_.get(), event));
  }
  absl::Status Wait(const Event& event) const { return Wait(event.native()); }
  absl::Status Wait(CUevent_st* event) const {
    return internal::ToStatus(gpushare_stream_wait(handle_.get(), event));
  }

  // -- Capture --
  absl::Status BeginCapture() const {
    return internal::ToStatus(gpushare_stream_begin_capture(handle_.get()));
  }
  absl::StatusOr<Graph> EndCapture() const {
    gpushare_graph graph = nullptr;
    const gpushare_status code = gpushare_stream_end_capture(handle_.get(), &graph);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Graph(graph);
  }

  // For calls that gpushare does not offer. Work launched past gpushare is neither held nor charged,
  // unless a lease covers it.
  absl::StatusOr<CUstream_st*> native() const {
    CUstream_st* native = nullptr;
    const gpushare_status code = gpushare_stream_native(handle_.get(), &native);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return native;
  }
  gpushare_stream handle() const { return handle_.get(); }

 private:
  explicit Stream(gpushare_stream handle) : handle_(handle) {}
  // Most launches have no timeout, and converting a duration takes longer than admitting a launch.
  static int64_t TimeoutNs(absl::Duration timeout) {
    return timeout == absl::InfiniteDuration() ? GPUSHARE_FOREVER
                                               : absl::ToInt64Nanoseconds(timeout);
  }
  internal::Handle<gpushare_stream, gpushare_stream_destroy> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_STREAM_H_
