// SPDX-License-Identifier: Apache-2.0
#include "groups.h"

namespace gpushare::facts {
namespace {

constexpr FactInfo kMachine[] = {
    {"driver_init", "ms", "cuInit in a fresh process"},
    {"context_create", "ms", "cuDevicePrimaryCtxRetain and cuCtxSetCurrent in a fresh process"},
    {"module_load", "ms",
     "cuModuleLoadData of six small kernels as PTX, compiled by the driver or cached"},
};
constexpr FactInfo kClocks[] = {
    {"sm_clock", "MHz",
     "cycles of one SM's clock in a 4 ms kernel on every SM after 150 ms of work"},
    {"globaltimer_mean_step", "ns", "time between changes of %globaltimer in a loop that reads it"},
    {"globaltimer_least_step", "ns", "least change of %globaltimer in that loop"},
    {"kernel_length_50us", "ns",
     "first start to last end of 400 kernels of 50 us in a row, by %globaltimer"},
};
constexpr FactInfo kCalls[] = {
    {"record_timing", "ns", "cuEventRecord with timing on an idle stream, batches of 64"},
    {"record_plain", "ns", "cuEventRecord of an event without timing, likewise"},
    {"record_timing_busy", "ns", "cuEventRecord with timing behind a running kernel"},
    {"query_not_ready", "ns", "cuEventQuery that answers not ready"},
    {"query_ready", "ns", "cuEventQuery of a completed event"},
    {"elapsed_time", "ns", "cuEventElapsedTime of completed events"},
    {"stream_query", "ns", "cuStreamQuery of an idle stream"},
    {"stream_is_capturing", "ns", "cuStreamIsCapturing"},
    {"stream_sync_idle", "ns", "cuStreamSynchronize of an idle stream"},
    {"event_create", "ns", "cuEventCreate with timing"},
    {"event_destroy", "ns", "cuEventDestroy"},
    {"mem_get_info", "ns", "cuMemGetInfo"},
    {"alloc_free_1mib", "ns", "cuMemAlloc of 1 MiB and its cuMemFree, together"},
};
constexpr FactInfo kLaunches[] = {
    {"launch", "ns",
     "cuLaunchKernel of an empty kernel, batches of 64 from an idle stream, host time each"},
    {"launch_busy", "ns", "the same behind a kernel of 2 ms"},
    {"launch_record_1", "ns", "launch with a timing record after each, host time per launch"},
    {"launch_record_4", "ns", "the same with a record after every 4th launch"},
    {"launch_record_8", "ns", "the same with a record after every 8th launch"},
    {"launch_record_64", "ns", "the same with a record after every 64th launch"},
    {"launch_record_1_busy", "ns", "launch and record behind a kernel of 2 ms"},
    {"launch_queue_depth", "launches",
     "launches that a stream took behind a long kernel before the call waited"},
    {"empty_kernel_interval", "ns",
     "device time of one of 400 empty kernels in a row, all queued before"},
    {"graph_launch_1", "ns", "cuGraphLaunch of one empty kernel, batches of 8"},
    {"graph_launch_20", "ns", "cuGraphLaunch of 20 empty kernels in a row, batches of 8"},
};
constexpr FactInfo kLatency[] = {
    {"launch_sync_round_trip", "ns",
     "launch of an empty kernel on an idle stream and cuStreamSynchronize"},
    {"launch_to_start", "ns",
     "from the launch call until the kernel's first write to mapped host memory is seen"},
    {"sync_return", "ns",
     "from the kernel's last write to mapped host memory until cuStreamSynchronize returns"},
    {"query_sees_end", "ns", "the same until cuEventQuery in a loop says success"},
};
constexpr FactInfo kRecordBubble[] = {
    {"record_bubble_timing", "ns",
     "device time that a timing record adds after each of 200 kernels of 10 us in a row"},
    {"record_bubble_plain", "ns", "the same for events without timing"},
    {"kernel_overhead_in_row", "ns",
     "device time of a kernel in that row beyond its 10 us of spinning"},
};
constexpr FactInfo kMarkerBias[] = {
    {"event_pair_bias_1", "ns",
     "elapsed between records around one 50 us kernel minus its own time by %globaltimer"},
    {"event_pair_bias_10", "ns", "the same around 10 kernels in a row"},
    {"marker_lag_one_stream", "ns",
     "record after each 4th of 14 us kernels, later than the kernel's end, one backlogged stream"},
    {"marker_lag_two_streams", "ns",
     "the same with two backlogged streams that fill the device in turn"},
    {"serial_attribution_error", "percentage points",
     "share of 14 us kernels (a marker each 8) beside 200 us kernels (a marker each): by intervals "
     "between markers minus by the kernels' own time"},
};
constexpr FactInfo kPriority[] = {
    {"probe_alone", "ns", "launch to completion of a 50 us kernel on half of the SMs, idle device"},
    {"probe_beside_1ms_blocks_equal", "ns",
     "the same beside four streams of queued one-wave kernels of 1 ms, equal priority"},
    {"probe_beside_1ms_blocks_high", "ns", "the same at the greatest priority"},
    {"probe_beside_50us_blocks_equal", "ns",
     "beside four streams of 1 ms kernels of 20 waves of 50 us, equal priority"},
    {"probe_beside_50us_blocks_high", "ns", "the same at the greatest priority"},
};
constexpr FactInfo kConcurrency[] = {
    {"overlap_half_half", "fraction",
     "(twice a 2 ms kernel alone minus two at once on two streams) by one alone: 1 together, 0 in "
     "turn; each on half of the SMs, one block an SM"},
    {"overlap_three_quarters", "fraction", "the same, each on three quarters of the SMs"},
    {"overlap_full_full", "fraction", "the same, each on all SMs"},
    {"overlap_small_blocks", "fraction",
     "the same, each with a block of 32 threads for every SM and no shared memory"},
};
constexpr FactInfo kGreen[] = {
    {"green_split", "list",
     "cuDevSmResourceSplitByCount of the whole device for each count asked: groups, SMs of each, "
     "SMs left"},
    {"green_create", "ms", "descriptor and cuGreenCtxCreate of half of the device"},
    {"green_destroy", "ms", "cuGreenCtxDestroy"},
};
constexpr FactInfo kContextSlice[] = {
    {"context_alone_off", "ms",
     "time that a 400 ms kernel alone on the device did not run (jumps of %globaltimer above 20 "
     "us)"},
    {"context_turn", "ms", "uninterrupted runs of a kernel beside another process's, no MPS"},
    {"context_off", "ms", "interruptions of that kernel"},
    {"context_share", "fraction",
     "part of the time between first and last interruption that each of the two ran"},
    {"context_turn_one_process", "ms",
     "uninterrupted runs beside another context of the same process"},
    {"context_off_one_process", "ms", "interruptions of that kernel"},
};
constexpr FactInfo kTeardown[] = {
    {"kill_gone_64mib", "ms", "from kill -9 of a process with 64 MiB until it could be reaped"},
    {"kill_freed_64mib", "ms",
     "until cuMemGetInfo of another process showed its memory free again"},
    {"kill_gone_16gib", "ms", "the same with 16 GiB (or a quarter of the memory) written"},
    {"kill_freed_16gib", "ms", "likewise until free"},
    {"kill_gone_16gib_busy", "ms", "the same with a kernel running on every SM"},
    {"kill_freed_16gib_busy", "ms", "likewise until free"},
    {"context_memory", "MiB", "device memory that another process's context and module take"},
};
constexpr FactInfo kCopies[] = {
    {"copy_h2d", "GB/s", "256 MiB from pinned memory, by events"},
    {"copy_d2h", "GB/s", "256 MiB to pinned memory"},
    {"copy_d2d", "GB/s", "256 MiB within the device, bytes copied (each is read and written)"},
    {"copy_both_ways", "GB/s", "256 MiB each way at once, bytes of both"},
    {"copy_h2d_1mib_chunks", "GB/s", "the 256 MiB as copies of 1 MiB in a row"},
    {"copy_h2d_4mib_chunks", "GB/s", "as copies of 4 MiB"},
    {"copy_h2d_8mib_chunks", "GB/s", "as copies of 8 MiB"},
};
constexpr FactInfo kWake[] = {
    {"futex_wake", "ns",
     "from the waker's store until a thread asleep in a futex for 300 us has seen it"},
    {"futex_wake_call", "ns", "store and FUTEX_WAKE, cost to the waker"},
    {"spin_wake", "ns", "from the store until a thread that reads the word in a loop has seen it"},
};
constexpr FactInfo kElapsedError[] = {
    {"elapsed_error_start", "ns",
     "greatest error of the distance of two records, within 1 ms or so, taken as a difference of "
     "elapsed times "
     "counted from an event just before"},
    {"elapsed_error_4s", "ns", "the same counted from an event 4.2 s before"},
    {"elapsed_error_8s", "ns", "the same counted from an event 8.4 s before"},
};

constexpr Group kGroups[] = {
    {"machine", 20, MeasureMachine, kMachine},
    {"clocks", 20, MeasureClocks, kClocks},
    {"calls", 20, MeasureCalls, kCalls},
    {"launches", 20, MeasureLaunches, kLaunches},
    {"latency", 20, MeasureLatency, kLatency},
    {"record_bubble", 20, MeasureRecordBubble, kRecordBubble},
    {"marker_bias", 20, MeasureMarkerBias, kMarkerBias},
    {"priority", 30, MeasurePriority, kPriority},
    {"concurrency", 20, MeasureConcurrency, kConcurrency},
    {"green_contexts", 20, MeasureGreenContexts, kGreen},
    {"copies", 20, MeasureCopies, kCopies},
    {"wake", 20, MeasureWake, kWake},
    {"elapsed_error", 30, MeasureElapsedError, kElapsedError},
    {"context_slice", 30, MeasureContextSlice, kContextSlice},
    {"teardown", 60, MeasureTeardown, kTeardown},
};

}  // namespace

std::span<const Group> Groups() { return kGroups; }

}  // namespace gpushare::facts
