// SPDX-License-Identifier: Apache-2.0
// The C ABI: modules, streams, events, graphs.
#include "device/stream/stream.h"

#include <algorithm>

#include "device/abi/c_abi.h"
#include "device/gpu/gpu.h"
#include "device/share/virtual_device.h"
#include "device/stream/module.h"

using namespace gpushare;
using namespace gpushare::device;

namespace {

driver::LaunchShape ToShape(const gpushare_shape& shape) {
  return {{shape.grid[0], shape.grid[1], shape.grid[2]},
          {shape.block[0], shape.block[1], shape.block[2]},
          shape.shared_bytes};
}

// These two are not inline, so that gpushare_stream_launch() puts nothing on the stack for them.
[[gnu::noinline]] gpushare_status Launch(gpushare_stream stream, struct CUfunc_st* function,
                                         const gpushare_shape* shape, void** params,
                                         bool cooperative, int64_t timeout_ns) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(to, stream);
    GPUSHARE_NOT_NULL(shape);
    return to->Launch(function, ToShape(*shape), params, cooperative, timeout_ns);
  });
}
[[gnu::noinline, gnu::cold]] gpushare_status LaunchedInVain(const Stream* stream,
                                                            struct CUfunc_st* function,
                                                            const gpushare_shape* shape,
                                                            void** params, Stream::Paid paid) {
  return Guard([&] { return stream->LaunchedInVain(function, ToShape(*shape), params, paid); });
}

gpushare_status Copy(gpushare_stream stream, Stream::Direction direction, void* host,
                     gpushare_device_ptr to, gpushare_device_ptr from, uint64_t bytes, bool wait) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    GPUSHARE_RETURN_IF_ERROR(on->CopyAsync(direction, host, to, from, bytes));
    return wait ? on->Synchronize() : absl::OkStatus();
  });
}

}  // namespace

// ---- Code ----

gpushare_status gpushare_module_load(gpushare_gpu gpu, const void* image, gpushare_module* module) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_NOT_NULL(module);
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Module> loaded, Module::Load(opened, image));
    return NewHandle(module, std::move(loaded));
  });
}

gpushare_status gpushare_module_load_on(gpushare_vdev vdev, const void* image,
                                        gpushare_module* module) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(module);
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Module> loaded,
                              Module::Load(device->shared_gpu(), image, device));
    return NewHandle(module, std::move(loaded));
  });
}

gpushare_status gpushare_module_unload(gpushare_module module) { return Destroy(module); }

gpushare_status gpushare_module_function(gpushare_module module, const char* name,
                                         struct CUfunc_st** function) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(loaded, module);
    GPUSHARE_NOT_NULL(function);
    GPUSHARE_ASSIGN_OR_RETURN(*function, loaded->GetFunction(name));
    return absl::OkStatus();
  });
}

gpushare_status gpushare_function_set_max_shared(gpushare_gpu gpu, struct CUfunc_st* function,
                                                 uint32_t bytes) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_NOT_NULL(function);
    const ContextScope current(*opened);
    GPUSHARE_RETURN_IF_ERROR(current.status());
    if (bytes > INT32_MAX) return absl::InvalidArgumentError("'bytes' is over 2147483647");
    return driver::ToStatus(opened->driver().SetMaxDynamicShared(function, static_cast<int>(bytes)),
                            "cuFuncSetAttribute");
  });
}

gpushare_status gpushare_function_footprint(gpushare_gpu gpu, struct CUfunc_st* function,
                                            const gpushare_shape* shape, double* footprint) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_NOT_NULL(function);
    GPUSHARE_NOT_NULL(shape);
    GPUSHARE_NOT_NULL(footprint);
    const ContextScope current(*opened);
    GPUSHARE_RETURN_IF_ERROR(current.status());
    const driver::LaunchShape launch = ToShape(*shape);
    float found = 1;
    GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(
        opened->FindFootprint(function, launch, gate::KernelKey(function, launch), &found),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
    // The part of the SMs, however many waves the launch takes.
    *footprint = std::min(static_cast<double>(found), 1.0);
    return absl::OkStatus();
  });
}

// ---- Streams ----

gpushare_status gpushare_stream_create(gpushare_vdev vdev, gpushare_stream* stream) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(stream);
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Stream> made, Stream::Create(device));
    return NewHandle(stream, std::move(made));
  });
}

gpushare_status gpushare_stream_bind(gpushare_vdev vdev, struct CUstream_st* native,
                                     gpushare_stream* stream) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(stream);
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Stream> bound, Stream::Bind(device, native));
    return NewHandle(stream, std::move(bound));
  });
}

gpushare_status gpushare_stream_destroy(gpushare_stream stream) { return Destroy(stream); }

gpushare_status gpushare_stream_native(gpushare_stream stream, struct CUstream_st** native) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(owner, stream);
    GPUSHARE_NOT_NULL(native);
    *native = owner->Expose();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_stream_launch(gpushare_stream stream, struct CUfunc_st* function,
                                       const gpushare_shape* shape, void** params,
                                       int64_t timeout_ns) {
  // The fast path neither allocates nor throws, so it needs no Guard().
  const Stream* const to = Handles::Borrow(stream);
  if (to != nullptr && shape != nullptr && timeout_ns >= 0) [[likely]] {
    const driver::LaunchShape launch = ToShape(*shape);
    Stream::Paid paid;
    const Stream::AtOnce at_once = to->LaunchAtOnce(function, launch, params, &paid);
    if (at_once == Stream::AtOnce::kDone) [[likely]]
      return GPUSHARE_OK;
    if (at_once == Stream::AtOnce::kRefused) {
      return LaunchedInVain(to, function, shape, params, paid);
    }
  }
  return Launch(stream, function, shape, params, /*cooperative=*/false, timeout_ns);
}

gpushare_status gpushare_stream_launch_cooperative(gpushare_stream stream,
                                                   struct CUfunc_st* function,
                                                   const gpushare_shape* shape, void** params,
                                                   int64_t timeout_ns) {
  return Launch(stream, function, shape, params, /*cooperative=*/true, timeout_ns);
}

gpushare_status gpushare_stream_launch_graph(gpushare_stream stream, struct CUgraphExec_st* graph,
                                             int64_t timeout_ns) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(to, stream);
    return to->LaunchGraph(graph, timeout_ns);
  });
}

gpushare_status gpushare_stream_copy_h2d(gpushare_stream stream, gpushare_device_ptr to,
                                         const void* from, uint64_t bytes) {
  return Copy(stream, Stream::Direction::kToDevice, const_cast<void*>(from), to, 0, bytes, true);
}

gpushare_status gpushare_stream_copy_d2h(gpushare_stream stream, void* to, gpushare_device_ptr from,
                                         uint64_t bytes) {
  return Copy(stream, Stream::Direction::kToHost, to, 0, from, bytes, true);
}

gpushare_status gpushare_stream_copy_d2d(gpushare_stream stream, gpushare_device_ptr to,
                                         gpushare_device_ptr from, uint64_t bytes) {
  return Copy(stream, Stream::Direction::kOnDevice, nullptr, to, from, bytes, true);
}

gpushare_status gpushare_stream_copy_h2d_async(gpushare_stream stream, gpushare_device_ptr to,
                                               const void* from, uint64_t bytes) {
  return Copy(stream, Stream::Direction::kToDevice, const_cast<void*>(from), to, 0, bytes, false);
}

gpushare_status gpushare_stream_copy_d2h_async(gpushare_stream stream, void* to,
                                               gpushare_device_ptr from, uint64_t bytes) {
  return Copy(stream, Stream::Direction::kToHost, to, 0, from, bytes, false);
}

gpushare_status gpushare_stream_copy_d2d_async(gpushare_stream stream, gpushare_device_ptr to,
                                               gpushare_device_ptr from, uint64_t bytes) {
  return Copy(stream, Stream::Direction::kOnDevice, nullptr, to, from, bytes, false);
}

gpushare_status gpushare_stream_set_async(gpushare_stream stream, gpushare_device_ptr to,
                                          uint8_t value, uint64_t bytes) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    return on->SetAsync(to, value, bytes);
  });
}

gpushare_status gpushare_stream_synchronize(gpushare_stream stream) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    return on->Synchronize();
  });
}

gpushare_status gpushare_stream_launch_host(gpushare_stream stream, void (*function)(void*),
                                            void* argument) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    return on->LaunchHost(function, argument);
  });
}

gpushare_status gpushare_stream_yield(gpushare_stream stream) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    on->Yield();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_stream_record(gpushare_stream stream, struct CUevent_st* event) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    return on->Record(event);
  });
}

gpushare_status gpushare_stream_wait(gpushare_stream stream, struct CUevent_st* event) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    return on->Wait(event);
  });
}

gpushare_status gpushare_stream_begin_capture(gpushare_stream stream) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    return on->BeginCapture();
  });
}

gpushare_status gpushare_stream_end_capture(gpushare_stream stream, gpushare_graph* graph) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(on, stream);
    GPUSHARE_NOT_NULL(graph);
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Graph> captured, on->EndCapture());
    return NewHandle(graph, std::move(captured));
  });
}

// ---- Events and graphs ----

gpushare_status gpushare_event_create(gpushare_vdev vdev, int timing, gpushare_event* event) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(event);
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Event> made, Event::Create(device, timing != 0));
    return NewHandle(event, std::move(made));
  });
}

gpushare_status gpushare_event_destroy(gpushare_event event) { return Destroy(event); }

gpushare_status gpushare_event_native(gpushare_event event, struct CUevent_st** native) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(owner, event);
    GPUSHARE_NOT_NULL(native);
    *native = owner->native();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_event_query(gpushare_event event, int* done) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(asked, event);
    GPUSHARE_NOT_NULL(done);
    GPUSHARE_ASSIGN_OR_RETURN(const bool is_done, asked->Done());
    *done = is_done ? 1 : 0;
    return absl::OkStatus();
  });
}

gpushare_status gpushare_event_synchronize(gpushare_event event) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(awaited, event);
    return awaited->Synchronize();
  });
}

gpushare_status gpushare_event_elapsed(gpushare_event start, gpushare_event end, int64_t* ns) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(first, start);
    GPUSHARE_BORROW(second, end);
    GPUSHARE_NOT_NULL(ns);
    GPUSHARE_ASSIGN_OR_RETURN(const Nanos elapsed, second->Since(*first));
    *ns = elapsed.count();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_graph_destroy(gpushare_graph graph) { return Destroy(graph); }

gpushare_status gpushare_graph_native(gpushare_graph graph, struct CUgraphExec_st** native) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(owner, graph);
    GPUSHARE_NOT_NULL(native);
    *native = owner->native();
    return absl::OkStatus();
  });
}
