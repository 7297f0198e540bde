/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated GPU's own C interface: what its libcuda.so.1 exports beside the driver API.
 *
 * The simulated GPU is a shared object named libcuda.so.1 that any driver-API program can load. These
 * functions configure it, drive its clock, inject faults and read the ground truth. Look them up with
 * dlsym() on the handle of the loaded driver: a real driver has none of them. Every name below is
 * exported from the simulated libcuda.so.1 as `gpushare_sim_<name>`.
 *
 * Configuration (text form): comma- or newline-separated `key=value`; also read from the environment
 * variable GPUSHARE_SIM, over which gpushare_sim_configure() wins key by key; of a key given twice the
 * last counts. Durations take ns/us/ms/s, sizes B/KiB/MiB/GiB, rates GB/s (10^9 bytes). Keys and defaults:
 *
 *   profile=             a file: the settings of a device profile (docs/profiles.md) stand here.
 *                        What comes after counts more. Its path has no comma
 *   clock=virtual        wall | virtual
 *   name=Simulated H200  printable ASCII without comma
 *   devices=1            number of GPUs
 *   sms=132  memory=141GiB  compute_capability=9.0  max_threads_per_sm=2048  shared_per_sm=228KiB
 *   overlap=footprint    footprint: kernels share the device by SM footprint; serial: one at a time
 *   h2d=50GB/s d2h=50GB/s d2d=2000GB/s   copy bandwidths; each direction is one engine
 *   noise=0              relative standard deviation of kernel durations (lognormal, seeded)
 *   seed=1
 *   launch_host=3us      host time that a launch costs its caller
 *   call_host=300ns      the same of every other call that reaches the device
 *   query_host=300ns     cuEventQuery, cuStreamQuery
 *   record_host=1us      cuEventRecord
 *   record_device=1us    time an event record with timing occupies its stream (and no SM)
 *   launch_latency=2us   from launch call to earliest start on an idle stream
 *   first_launch_host=0  host time that the first launch of each function costs its caller more, since
 *                        modules are loaded lazily
 *   first_launch_device=0  and how much longer that kernel takes
 *   sync_return=3us      from completion to return of a blocking call
 *   wake_spin=500ns      wake-up of a thread that waits within its spin time
 *   wake_sleep=20us      wake-up of a thread that sleeps
 *   timer_late=0ns       how late a thread goes on that waits for a word until a deadline, unless it spins
 *   queue_depth=1024     launches that a stream takes before the launch call blocks
 *   pool_granule=32MiB   what a pool of stream-ordered memory grows and shrinks by, as on current GPUs
 *   page=0B              0B: the device hands out memory to the byte. 2MiB, as H100s do: what is larger than half
 *                        of it takes whole pages, and smaller allocations share pages
 *   context_memory=0B    what each primary and created context takes of the device's memory
 *   module_memory=0B     what each loaded module takes of it
 *   watchdog=20s         wall time without progress of the virtual clock before the stalling thread is
 *                        named on the log callback (0: off)
 *   pin=1                registered threads share one processor, which makes handing over the turn 8
 *                        times cheaper (0: they stay where the machine puts them)
 *   cancellable=0        1: on the wall clock a call that waits is a cancellation point (pthread_cancel), as in a
 *                        driver that waits in poll(): the thread ends there, and the call has not happened
 *
 *   shared=              name of the GPUs, at most 8, that this process shares with all of this user that give the
 *                        same (letters, digits, '-', '_', '.'); without: its own. These keys, devices, memory, sms,
 *                        overlap, clock, h2d, d2h and d2d must be the same in all of them, but for `place`.
 *   place=               0 to 63, which process this is: the lower comes first at one time. Without: the
 *                        first that is free
 *   processes=1          how many must be there before the virtual clock goes
 *   slice=2ms            how long one process has the SMs while others want them
 *   slice_switch=100us   what it takes to change to another
 *   teardown=100ms       how long after its end the memory of a process is free again
 *
 * On the wall clock the host costs and wake-up times are whatever the machine takes; the device's keys
 * hold as they are.
 *
 * Kernels. A module's PTX declares what each kernel costs in a comment line directly before `.entry`
 * (blanks after the slashes do not matter):
 *
 *   //gpushare.sim cost=14us blocks_per_sm=1
 *   //gpushare.sim cost=param:0            duration in ns is the kernel's parameter 0 (.u64)
 *   //gpushare.sim cost=10us/wave          per wave of ceil(footprint / SMs)
 *   //gpushare.sim cost=14us stamps=param:2   it writes when it ran to the address that is its parameter 2 (.u64; 0:
 *                                          nowhere), four words of 8 bytes: the least of what is there and its begin in
 *                                          ns of the device's clock, the greatest of that and its end, and the sum to
 *                                          which it adds how long its groups held their SMs; the fourth it leaves
 *   //gpushare.sim stamps=param:2 away=yes  the fifth word there is 0 or the address of a log: a word that grows to when
 *                                          the device came back from another process, how many entries there are, for
 *                                          how many there is room, and the entries: when it was gone, and came back
 *
 * Without a declaration, as in every cubin, a kernel costs 5 us per wave. `cost` is the duration when the kernel has the
 * device alone. Footprint in SMs = ceil(blocks / blocks_per_sm); blocks_per_sm defaults to what
 * threads and shared memory per SM allow. A footprint larger than the device runs in waves.
 *
 * Device model. Each kernel is `footprint` groups of duration cost / ceil(footprint / SMs); free SMs
 * go to the oldest head-of-stream kernel of the highest priority; groups are not preempted.
 *
 * Ground truth. At each instant the device's time is split among the accounts with resident kernels in
 * proportion to the SMs they hold. An account is a number that tests give to streams.
 */
#ifndef GPUSHARE_TESTING_SIM_H_
#define GPUSHARE_TESTING_SIM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSHARE_SIM_ABI_VERSION 1

struct CUstream_st;
struct CUfunc_st;

/* Present only in the simulated driver; returns GPUSHARE_SIM_ABI_VERSION. */
uint32_t gpushare_sim_abi_version(void);

/* Sets the configuration for the next cuInit(); 0, or -1 with a message in `error`. Not after cuInit()
 * without gpushare_sim_reset(). */
int gpushare_sim_configure(const char* text, char* error, size_t error_size);

/* Whether gpushare_sim_configure() would take the text, without setting anything; 0, or -1 with a message. */
int gpushare_sim_check(const char* text, char* error, size_t error_size);

/* Processes that are killed leave the file of the GPUs that they shared as `name`: removes it, unless a process has
 * them still. 0, or -1: one has, or there is no such file. */
int gpushare_sim_forget_shared(const char* name);

/* Destroys every context and returns to the state before cuInit(): no faults, no call counts, no
 * configuration but the environment's. The caller is the only thread in the driver. The virtual clock
 * goes on from where it was. 0, or -1 while other threads are registered, or in a forked child. */
int gpushare_sim_reset(void);

/* ---- Clock ---- */

/* 1 on the virtual clock, 0 on the wall clock (then the calls below use CLOCK_MONOTONIC). */
int gpushare_sim_clock_is_virtual(void);

/* Nanoseconds; the virtual clock starts at 1 s. Callable from any thread. */
uint64_t gpushare_sim_now(void);

/* Registers the calling thread with the clock and waits for its turn: from here to thread_leave() one
 * registered thread runs at a time, and time passes only in driver calls, spend() and waits. A thread
 * that is not registered is registered for the length of each driver call; while only such threads are
 * about, the device goes no further than their calls let it. A thread that ends leaves. 0, or -1 when
 * the thread is registered already (enter) or not (leave). */
int gpushare_sim_thread_enter(const char* name);
int gpushare_sim_thread_leave(void);

/* Announces a thread that the caller is about to create, so that the clock does not run ahead of its
 * birth; the new thread calls thread_enter_announced() with the number (-1: none such). */
uint64_t gpushare_sim_thread_announce(const char* name);
/* The same for a thread that serves others, such as a limiter's own: time does not pass for its sake, so
 * that a program whose threads are not registered finds the clock where it left it. A wait of its own with
 * a deadline ends when others have brought the clock there. */
uint64_t gpushare_sim_thread_announce_service(const char* name);
int gpushare_sim_thread_enter_announced(uint64_t announced);
/* It could not be started and is not waited for any more (-1: none such). By the thread that announced it,
 * before that gives its turn away. */
int gpushare_sim_thread_withdraw(uint64_t announced);

/* The calling thread computes for `ns` of virtual time. */
void gpushare_sim_spend(uint64_t ns);

/* Waits while *word == expected until woken or `deadline_ns` (UINT64_MAX: never). A wake within
 * `spin_ns` of the call costs wake_spin, a later one wake_sleep; a later deadline than that is late by
 * timer_late. 0 woken or changed, 1 deadline. */
int gpushare_sim_wait_word(const uint32_t* word, uint32_t expected, uint64_t deadline_ns,
                           uint64_t spin_ns);
void gpushare_sim_wake_word(const uint32_t* word, int count);

/* Around blocking that the clock cannot see (joining a thread, reading a pipe): gives up the turn, and
 * takes it again. Other threads' time goes on meanwhile, and the caller comes back at whatever time it is
 * then. For runs that repeat, wait for a word instead, and join a thread that has left. */
void gpushare_sim_external_begin(void);
void gpushare_sim_external_end(void);

/* Called with a line of text when the watchdog fires, and with what is wrong with a module's PTX or with
 * GPUSHARE_SIM. The callback must not call the driver. Default: none. */
void gpushare_sim_set_log(void (*log)(const char* line, void* context), void* context);

/* ---- Ground truth ---- */

typedef struct gpushare_sim_truth {
  double used_ns; /* device time by share of SMs held */
  double
      work_ns; /* sum of the alone durations of the kernels that completed, pro rata when running */
  uint64_t kernels; /* kernels completed */
  uint64_t queued;  /* commands submitted and not completed (kernels, copies, sets) */
  uint64_t h2d_bytes, d2h_bytes, d2d_bytes; /* completed */
} gpushare_sim_truth;

/* Puts a stream (NULL: the legacy stream of the current context) on an account; streams start on
 * account 0. */
int gpushare_sim_set_account(struct CUstream_st* stream, uint32_t account);
int gpushare_sim_account_truth(int device, uint32_t account, gpushare_sim_truth* truth);

/* The integral of the SMs that the account's kernels held / SMs: what SMs of its own were used for. Unlike `used_ns` it
 * knows nothing of others: SMs that nobody holds are nobody's. */
int gpushare_sim_account_sm_time(int device, uint32_t account, double* sm_ns);

/* Time during which at least one kernel was resident, and the integral of SMs held / SMs. */
int gpushare_sim_device_busy(int device, double* busy_ns, double* sm_ns);

/* How often an entry point was called, by its exported name ("cuEventRecord"); UINT64_MAX: no such. */
uint64_t gpushare_sim_calls(const char* name);

/* Bytes of device memory that this process uses now. */
uint64_t gpushare_sim_memory_used(int device);

/* The pages in which the device hands out memory, as the key `page` says, and the bytes that no allocation has of the
 * pages that small allocations share. Either may be null. 0, or -1: there is no such device. */
int gpushare_sim_pages(int device, uint64_t* page, uint64_t* unused);

typedef struct gpushare_sim_holding {
  uint64_t memory_bytes;
  uint64_t freed_at_ns; /* UINT64_MAX: it lives; else it is over, and its memory is freed then */
  int32_t pid;          /* in its own namespace */
  int32_t place;        /* -1: it is over */
} gpushare_sim_holding;

/* Who holds memory of the device: the processes that share it, and those that are over and whose memory is
 * not free yet. How many there are (the first `size` of them are written), or -1. */
int gpushare_sim_holdings(int device, gpushare_sim_holding* holdings, int size);

/* Whether what the processes of a shared device have in common makes sense: 0, or -1 with what does not.
 * They are not protected from each other: any of them can write there. */
int gpushare_sim_check_shared(char* error, size_t error_size);

/* ---- What a management library shows ----
 * libnvidia-ml.so.1 beside this library asks these; before cuInit() they tell of idle devices. */

typedef struct gpushare_sim_device_info {
  char name[96];
  uint8_t uuid[16];
  uint32_t pci_bus; /* in domain 0; it is the device 0 of that bus */
  int32_t compute_major, compute_minor;
  uint64_t memory_total, memory_used; /* bytes */
  /* Share of the last whole 200 ms of the clock in which a kernel, and in which a copy or set was running. */
  uint32_t kernels_percent, copies_percent;
} gpushare_sim_device_info;

typedef struct gpushare_sim_process {
  uint32_t pid;
  uint64_t memory_used;
} gpushare_sim_process;

/* -1 when the configuration cannot be read; what is wrong goes to the log callback. */
int gpushare_sim_device_count(void);
/* 0, or -1: no such device. */
int gpushare_sim_get_device_info(int device, gpushare_sim_device_info* info);
/* How many processes have a context on the device; the first `most` of them in `list`. */
int gpushare_sim_device_processes(int device, gpushare_sim_process* list, uint32_t most);

typedef struct gpushare_sim_process_sample {
  uint32_t pid;
  uint64_t end_ns; /* of the clock */
  uint32_t kernels_percent, copies_percent;
} gpushare_sim_process_sample;

/* What the processes on the device used of it, each of the last whole 200 ms of the clock that it knows of, none of
 * longer ago than a second: how many there are, the first `most` of them in `list`. */
int gpushare_sim_process_samples(int device, gpushare_sim_process_sample* list, uint32_t most);

/* ---- Faults ----
 *   oom after=3                   the 4th and later allocations fail, also what a launch takes for a graph (clear: off)
 *   error call=cuMemcpyHtoD_v2 code=719 nth=2     (without nth: every call)
 *   illegal_address kernel=NAME   the kernel faults when it completes; the context is lost
 *   hang kernel=NAME              the kernel never ends
 *   slow call=cuLaunchKernel host=1ms
 *   clear                         all of these; kernels that hang end as if they began now
 * 0, or -1 with a message. */
int gpushare_sim_inject(const char* text, char* error, size_t error_size);

#ifdef __cplusplus
}
#endif

#endif /* GPUSHARE_TESTING_SIM_H_ */
