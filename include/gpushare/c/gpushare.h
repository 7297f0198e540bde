/* SPDX-License-Identifier: Apache-2.0 */
/* gpushare's C ABI: the only binary boundary of libgpushare.so. The C++ headers beside it are
 * inline wrappers over these functions.
 *
 *   gpushare_runtime runtime;
 *   gpushare_runtime_options options = {.struct_size = sizeof(options), .driver = "sim"};
 *   if (gpushare_runtime_create(&options, &runtime) != GPUSHARE_OK) {
 *     fprintf(stderr, "%s\n", gpushare_last_message());
 *     return 1;
 *   }
 *
 * Errors. Every function that can fail returns a gpushare_status: one of the canonical codes, which
 * say what to do about it (docs/errors.md). gpushare_last_message() and gpushare_last_detail() tell
 * the rest about the calling thread's latest failure. A failed call changes nothing and sets no out
 * parameter, unless its comment says otherwise. Every function with a handle answers
 * INVALID_ARGUMENT for a null, a destroyed or a wrong handle; the comments do not repeat it. No
 * exception leaves this library.
 *
 * Handles. Opaque words, never dereferenced by the caller. Objects below keep what they stand on
 * alive: a stream keeps its virtual device's share, so destroying the parents first is allowed; the
 * share returns when the last of them is gone. A handle may be destroyed from any thread, once,
 * while no other call on it is running.
 *
 * Structs. The caller sets struct_size = sizeof(the struct) and the rest to zero; a library that
 * knows more fields takes zero for those, one that knows fewer refuses (INVALID_ARGUMENT) when an
 * unknown field is not zero. Of out structs the library fills what both know.
 *
 * Units. Sizes in bytes, bandwidths in bytes a second, durations in nanoseconds (GPUSHARE_FOREVER:
 * no limit), shares as parts of the device in [0, 1].
 *
 * Threading. Every function may be called from any thread at any time, except where a comment says
 * so. Calls that reach the driver make the GPU's primary context current on a thread that has no
 * context, and leave it current; a thread that has another one gets it back after the call.
 */
#ifndef GPUSHARE_C_GPUSHARE_H_
#define GPUSHARE_C_GPUSHARE_H_

#include <stddef.h>
#include <stdint.h>

#ifndef GPUSHARE_API
#define GPUSHARE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with every addition; a program built for n runs with every library that answers n or more. */
#define GPUSHARE_ABI_VERSION 3

#define GPUSHARE_FOREVER INT64_MAX

/* CUDA's own handles, as cuda.h declares them. */
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUfunc_st;
struct CUgraphExec_st;

typedef struct gpushare_runtime_s* gpushare_runtime;
typedef struct gpushare_gpu_s* gpushare_gpu;
typedef struct gpushare_tenant_s* gpushare_tenant;
typedef struct gpushare_vdev_s* gpushare_vdev; /* a virtual device */
typedef struct gpushare_allocator_s* gpushare_allocator;
typedef struct gpushare_stream_s* gpushare_stream;
typedef struct gpushare_event_s* gpushare_event;
typedef struct gpushare_graph_s* gpushare_graph;
typedef struct gpushare_module_s* gpushare_module;
typedef struct gpushare_lease_s* gpushare_lease;
typedef struct gpushare_lease_request_s* gpushare_lease_request;
typedef struct gpushare_gang_s* gpushare_gang;
typedef struct gpushare_watchdog_s* gpushare_watchdog;
typedef struct gpushare_snapshot_s* gpushare_snapshot;
typedef struct gpushare_thread_s* gpushare_thread;
typedef struct gpushare_trace_s* gpushare_trace;
typedef unsigned long long gpushare_device_ptr; /* CUdeviceptr */

/* ---- Errors ---- */

/* The canonical codes of absl::StatusCode, by number. */
typedef enum gpushare_status {
  GPUSHARE_OK = 0,
  GPUSHARE_CANCELLED = 1,
  GPUSHARE_UNKNOWN = 2,
  GPUSHARE_INVALID_ARGUMENT = 3,
  GPUSHARE_DEADLINE_EXCEEDED = 4,
  GPUSHARE_NOT_FOUND = 5,
  GPUSHARE_ALREADY_EXISTS = 6,
  GPUSHARE_PERMISSION_DENIED = 7,
  GPUSHARE_RESOURCE_EXHAUSTED = 8,
  GPUSHARE_FAILED_PRECONDITION = 9,
  GPUSHARE_ABORTED = 10,
  GPUSHARE_OUT_OF_RANGE = 11,
  GPUSHARE_UNIMPLEMENTED = 12,
  GPUSHARE_INTERNAL = 13,
  GPUSHARE_UNAVAILABLE = 14,
  GPUSHARE_DATA_LOSS = 15,
  GPUSHARE_UNAUTHENTICATED = 16
} gpushare_status;

/* "RESOURCE_EXHAUSTED"; never null. */
GPUSHARE_API const char* gpushare_status_name(gpushare_status status);

/* What went wrong in the calling thread's latest call that failed: what was asked, what was left,
 * which setting changes it. Never null; valid until the thread's next failing call. */
GPUSHARE_API const char* gpushare_last_message(void);

typedef struct gpushare_error_detail {
  uint32_t struct_size;
  int32_t driver_result; /* the driver's own code (CUresult) when it refused; else 0 */
  char tenant[64];       /* whose limit it was; empty when no limit was hit */
  char limit[32];        /* which limit: a key of the spec ("memory", "guarantee"), or "device" */
  uint64_t asked;        /* in the limit's unit; shares in parts per million */
  uint64_t left;
  uint64_t total; /* the limit itself */
} gpushare_error_detail;

/* The same failure, for programs. */
GPUSHARE_API gpushare_status gpushare_last_detail(gpushare_error_detail* detail);

/* GPUSHARE_ABI_VERSION and GPUSHARE_VERSION_STRING of the library that is loaded. */
GPUSHARE_API uint32_t gpushare_abi_version(void);
GPUSHARE_API const char* gpushare_version(void);

/* ---- Runtime ---- */

typedef struct gpushare_runtime_options {
  uint32_t struct_size;
  uint32_t reserved;
  /* Path or soname of the driver, or "sim" for the simulated GPU. Null or "": the environment's
   * GPUSHARE_DRIVER, else libcuda.so.1. */
  const char* driver;
  /* Configuration of the simulated GPU (gpushare/testing/sim.h), e.g. "memory=8GiB,clock=wall".
   * Null: the environment's GPUSHARE_SIM. An error with a real driver. */
  const char* simulation;
  /* Device memory of each GPU that is never promised to a tenant: contexts, modules, libraries. 0:
   * the larger of 256 MiB and 1 % of the memory, at most half of it; GPUSHARE_MEMORY_RESERVE when set. */
  uint64_t memory_reserve;
  int32_t no_memory_reserve; /* not 0: the reserve is 0 bytes */
  int32_t reserved2;
  /* Socket of the node's broker, which divides each GPU among this process and others
   * (docs/processes.md): the runtime's virtual devices together have what this process's tenant is
   * granted there. Null: the environment's GPUSHARE_BROKER, when set. "" or "none": none, whatever
   * the environment says. */
  const char* broker;
  /* Which tenant this process is to the broker. Null: GPUSHARE_TENANT, else who its user is. */
  const char* broker_tenant;
  /* The share that it asks for, where the broker lets its tenants ask. Null: GPUSHARE_SPEC. */
  const char* broker_spec;
} gpushare_runtime_options;

/* Loads the driver. One runtime a process is the rule; tests may have several, one after the other
 * on the simulated GPU. UNAVAILABLE: no driver, and the message says how to get the simulated GPU; or
 * a broker that is asked for is not there, or does not answer. What the broker refuses comes with its
 * own code (NOT_FOUND: it has no such tenant; PERMISSION_DENIED: not for this user). */
GPUSHARE_API gpushare_status gpushare_runtime_create(const gpushare_runtime_options* options,
                                                     gpushare_runtime* runtime);
GPUSHARE_API gpushare_status gpushare_runtime_destroy(gpushare_runtime runtime);

typedef struct gpushare_runtime_info {
  uint32_t struct_size;
  int32_t gpu_count;
  int32_t driver_version; /* 13000 is CUDA 13.0 */
  int32_t simulated;
  char driver_path[256];
  char broker_tenant[128]; /* who this process is to its broker; empty: there is none */
} gpushare_runtime_info;
GPUSHARE_API gpushare_status gpushare_runtime_get_info(gpushare_runtime runtime,
                                                       gpushare_runtime_info* info);

/* A function of the loaded driver by name, e.g. of gpushare/testing/sim.h; NOT_FOUND when absent. */
GPUSHARE_API gpushare_status gpushare_runtime_symbol(gpushare_runtime runtime, const char* name,
                                                     void** symbol);

/* The clock on which all deadlines and statistics run: the simulated GPU's virtual clock, else
 * CLOCK_MONOTONIC. */
GPUSHARE_API gpushare_status gpushare_runtime_now(gpushare_runtime runtime, int64_t* ns);
GPUSHARE_API gpushare_status gpushare_runtime_sleep_until(gpushare_runtime runtime, int64_t ns);

/* Runs `body(argument)` on a new thread that belongs to that clock: on the virtual clock one such
 * thread runs at a time and every run is the same. With a real GPU it is an ordinary thread. No
 * exception may leave `body`; in C++, declare it noexcept. */
GPUSHARE_API gpushare_status gpushare_thread_start(gpushare_runtime runtime, const char* name,
                                                   void (*body)(void* argument), void* argument,
                                                   gpushare_thread* thread);
/* Waits for its end (from a thread of the same clock) and destroys the handle. FAILED_PRECONDITION: from itself. */
GPUSHARE_API gpushare_status gpushare_thread_join(gpushare_thread thread);

/* For programs that have to look up from a wait, for signals or because nobody wants its outcome any more: not in short
 * timeouts, each of which begins at the end of the line. */
typedef struct gpushare_interrupt {
  uint32_t struct_size;
  uint32_t reserved;
  /* Called each 50 ms of the runtime's clock on a thread that waits for its turn (a launch, a graph, a lease, a gang), for
   * bandwidth (a copy) or for memory, with no lock held. Not 0: the wait ends, CANCELLED, and nothing was launched, acquired or
   * allocated; pieces of a copy may have been made. It may call this library, where it is not asked again. Null: nobody is asked. */
  int (*interrupted)(void* context);
  void* context;
} gpushare_interrupt;

/* Sets the calling thread's and writes what it had before to `interrupt`, to be put back the same way. Costs
 * nanoseconds: it is made for a scope around each call that may wait. */
GPUSHARE_API gpushare_status gpushare_thread_exchange_interrupt(gpushare_interrupt* interrupt);

/* ---- GPUs ---- */

typedef enum gpushare_gpu_state {
  GPUSHARE_GPU_HEALTHY = 0,
  GPUSHARE_GPU_BUSY = 1,   /* another process or a limit keeps us out; trying later may help */
  GPUSHARE_GPU_ABSENT = 2, /* no driver, no such GPU */
  GPUSHARE_GPU_FAILED = 3  /* it is there and does not work */
} gpushare_gpu_state;

typedef struct gpushare_gpu_probe {
  uint32_t struct_size;
  int32_t state;    /* gpushare_gpu_state */
  char reason[256]; /* why it is not healthy; empty when it is */
  int32_t ordinal;
  int32_t sm_count;
  char name[128];
  char uuid[64];   /* "GPU-..." or "MIG-..." */
  char pci_id[32]; /* "00000000:65:00.0" */
  int32_t compute_major, compute_minor;
  int32_t mig;            /* a MIG instance */
  int32_t mps;            /* an MPS server is in use */
  int32_t mps_percentage; /* CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, 0: none */
  int32_t reserved;
  uint64_t memory_total;
  uint64_t memory_free;       /* now, by the driver */
  uint64_t mps_memory_limit;  /* CUDA_MPS_PINNED_DEVICE_MEM_LIMIT for this GPU, 0: none */
  uint64_t dmem_limit;        /* cgroup v2 dmem.max that applies to this process, 0: none */
  uint64_t memory_promised;   /* by this runtime: sum of the quotas */
  double guarantees_promised; /* by this runtime: sum of the guarantees */
} gpushare_gpu_probe;

/* What is known about the GPU called `name` ("0", a UUID or a PCI id); null: "0". OK also for a GPU
 * that is absent: the struct's state and reason say so. Creates a context when there is none. */
GPUSHARE_API gpushare_status gpushare_runtime_probe(gpushare_runtime runtime, const char* name,
                                                    gpushare_gpu_probe* probe);

/* Bits of gpushare_scheduler_options.zero: which fields are meant to be 0. */
#define GPUSHARE_SCHEDULER_MIN_COMMANDS (1u << 0)
#define GPUSHARE_SCHEDULER_WINDOW (1u << 1)
#define GPUSHARE_SCHEDULER_GRANT (1u << 2)
#define GPUSHARE_SCHEDULER_ANTICIPATION (1u << 3)
#define GPUSHARE_SCHEDULER_SPIN (1u << 4)
#define GPUSHARE_SCHEDULER_IDLE_BUDGET (1u << 5)
#define GPUSHARE_SCHEDULER_LOW_BAND_FLOOR (1u << 6)
#define GPUSHARE_SCHEDULER_HIGH_GRACE (1u << 7)
#define GPUSHARE_SCHEDULER_HIGH_BAND_MIN_COMMANDS (1u << 8)
#define GPUSHARE_SCHEDULER_HIGH_BAND_WINDOW (1u << 9)

/* How launches are arbitrated (docs/tuning.md has the ranges). A field that is 0 keeps its default,
 * unless its bit is in `zero`; only idle_budget and low_band_floor can be 0. */
typedef struct gpushare_scheduler_options {
  uint32_t struct_size;
  int32_t min_commands;    /* commands always let through; default 2, 8 for throughput */
  int64_t window_ns;       /* device time that may be outstanding; 240 us */
  int64_t grant_ns;        /* longest grant while tenants contend; 50 us */
  int64_t anticipation_ns; /* how long a tenant's next launch is waited for; 15 us */
  int64_t spin_ns;         /* a held thread stays on its processor so long; 200 us */
  double idle_budget;      /* part of the time that may be idled on purpose; 0.015 */
  double low_band_floor;   /* part of the device for bands that a higher one closes; 0 */
  int64_t high_grace_ns;   /* lower bands stay closed so long after a higher one's work; 30 us */
  int32_t high_band_min_commands; /* min_commands while a high-priority tenant is there; 1 */
  uint32_t zero;                  /* GPUSHARE_SCHEDULER_*: fields that are 0, not left out */
  int64_t high_band_window_ns;    /* window while a high-priority tenant is there; 80 us */
} gpushare_scheduler_options;

#define GPUSHARE_CLOSE_GRACE_NS 5000000000

/* Opens a GPU by ordinal ("0"), UUID or PCI id. The scheduler's options (null: defaults) count at
 * the first opening in a runtime; later they must be null or equal. NOT_FOUND: no such GPU, the
 * message lists those there are. */
GPUSHARE_API gpushare_status gpushare_gpu_open(gpushare_runtime runtime, const char* name,
                                               const gpushare_scheduler_options* options,
                                               gpushare_gpu* gpu);
/* The GPU goes with the last object on it; whichever destroying call ends that one waits for the work of
 * streams that were destroyed while they were busy, for GPUSHARE_CLOSE_GRACE_NS at most.
 * DEADLINE_EXCEEDED: closed, and some of it still runs; the message says whose. The context and the
 * memory that nobody freed are then left to the driver, until the process ends. */
GPUSHARE_API gpushare_status gpushare_gpu_close(gpushare_gpu gpu);
GPUSHARE_API gpushare_status gpushare_gpu_get_probe(gpushare_gpu gpu, gpushare_gpu_probe* probe);

typedef struct gpushare_overhead {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t by_driver; /* bytes that this process holds, by the driver's count */
  uint64_t charged;   /* of them, charged to virtual devices */
  uint64_t overhead;  /* the others: contexts, modules, what libraries took past gpushare */
  uint64_t reserve;   /* what is never promised, so that there is room for it */
} gpushare_overhead;

/* An estimate, by NVML, which takes milliseconds: for monitoring. It is in nobody's quota; where it is more than the
 * reserve, allocations can fail below the quotas. UNAVAILABLE: there is no NVML, or it does not tell of this process (in a
 * PID namespace of its own; started with gpushare run, where `gpushare list` shows it). */
GPUSHARE_API gpushare_status gpushare_gpu_get_overhead(gpushare_gpu gpu,
                                                       gpushare_overhead* overhead);
/* The scheduler's options in force. */
GPUSHARE_API gpushare_status gpushare_gpu_get_scheduler(gpushare_gpu gpu,
                                                        gpushare_scheduler_options* options);

/* ---- Tenants ---- */

typedef enum gpushare_priority {
  GPUSHARE_PRIORITY_UNSET = 0,
  GPUSHARE_PRIORITY_HIGH = 1,
  GPUSHARE_PRIORITY_NORMAL = 2,
  GPUSHARE_PRIORITY_LOW = 3
} gpushare_priority;

typedef struct gpushare_label {
  const char* key;
  const char* value;
} gpushare_label;

typedef struct gpushare_tenant_options {
  uint32_t struct_size;
  int32_t priority;       /* of virtual devices whose spec does not say; gpushare_priority */
  const char* name;       /* 1 to 63 bytes of UTF-8, unique in the runtime */
  gpushare_tenant parent; /* budgets inside budgets: see below; null: none */
  const gpushare_label* labels;
  size_t label_count;
} gpushare_tenant_options;

/* ALREADY_EXISTS: the name is taken.
 *
 * With a `parent` the tenant's virtual devices are within the parent's on the same GPU, which has to be there first, with a memory
 * quota: what it allocates is charged to both quotas; weights are among siblings, who divide what the parent is entitled to;
 * the parent's guarantee, cap and copy rates are those of all of them together, what it launches itself included. No guarantee
 * or priority is above the parent's. UNIMPLEMENTED: the parent has a parent; or, for a virtual device, an isolation
 * other than shared and context, or `memory_cap` for a child. Under a broker they divide what the process is granted. */
GPUSHARE_API gpushare_status gpushare_tenant_create(gpushare_runtime runtime,
                                                    const gpushare_tenant_options* options,
                                                    gpushare_tenant* tenant);
/* FAILED_PRECONDITION: it is the parent of tenants that are there, which the message names. They are as long as their handle, or
 * a virtual device of theirs. The handle stays valid then. */
GPUSHARE_API gpushare_status gpushare_tenant_destroy(gpushare_tenant tenant);
/* The tenant "default", to whom unattributed work goes; visible in every snapshot once it has any. */
GPUSHARE_API gpushare_status gpushare_runtime_default_tenant(gpushare_runtime runtime,
                                                             gpushare_tenant* tenant);
/* The name and the value of a label (NOT_FOUND: none); valid while the tenant is. */
GPUSHARE_API gpushare_status gpushare_tenant_name(gpushare_tenant tenant, const char** name);
GPUSHARE_API gpushare_status gpushare_tenant_label(gpushare_tenant tenant, const char* key,
                                                   const char** value);

/* The calling thread works for `tenant` from here to the matching leave; scopes nest. Leave on the
 * same thread in reverse order (FAILED_PRECONDITION else), before the thread ends: a scope that is open then keeps its
 * tenant for ever. */
GPUSHARE_API gpushare_status gpushare_scope_enter(gpushare_tenant tenant, uint64_t* scope);
GPUSHARE_API gpushare_status gpushare_scope_leave(uint64_t scope);
/* The handle of the tenant for whom the calling thread works (null: none), for a pool to hand to a
 * worker, which enters it. Not a new handle: it is not destroyed by whoever receives it. */
GPUSHARE_API gpushare_status gpushare_scope_current(gpushare_tenant* tenant);

/* ---- Specs ---- */

typedef enum gpushare_isolation {
  GPUSHARE_ISOLATION_SHARED = 0,  /* one context, one fault domain */
  GPUSHARE_ISOLATION_CONTEXT = 1, /* a context of its own */
  GPUSHARE_ISOLATION_GREEN = 2,   /* SMs of its own */
  GPUSHARE_ISOLATION_PROCESS = 3  /* no other tenant in the process; takes a broker */
} gpushare_isolation;

typedef enum gpushare_oversubscription {
  GPUSHARE_OVERSUBSCRIPTION_OFF = 0,
  GPUSHARE_OVERSUBSCRIPTION_SWAP = 1 /* UNIMPLEMENTED; see GPUSHARE_STRATEGY_SWAPPABLE */
} gpushare_oversubscription;

/* Bits of gpushare_spec.set: which fields were given. */
#define GPUSHARE_SPEC_MEMORY (1u << 0)
#define GPUSHARE_SPEC_MEMORY_SHARE (1u << 1)
#define GPUSHARE_SPEC_COMPUTE (1u << 2)
#define GPUSHARE_SPEC_WEIGHT (1u << 3)
#define GPUSHARE_SPEC_GUARANTEE (1u << 4)
#define GPUSHARE_SPEC_CAP (1u << 5)
#define GPUSHARE_SPEC_BURST (1u << 6)
#define GPUSHARE_SPEC_PRIORITY (1u << 7)
#define GPUSHARE_SPEC_H2D (1u << 8)
#define GPUSHARE_SPEC_D2H (1u << 9)
#define GPUSHARE_SPEC_ISOLATION (1u << 10)
#define GPUSHARE_SPEC_OVERSUBSCRIPTION (1u << 11)
#define GPUSHARE_SPEC_POLICY (1u << 12)
#define GPUSHARE_SPEC_MEMORY_CAP (1u << 13)
#define GPUSHARE_SPEC_MEMORY_CAP_SHARE (1u << 14)
#define GPUSHARE_SPEC_DELAY (1u << 15)

/* What a virtual device is to have. Its text form is `memory=8GiB,compute=30%,priority=high`; the
 * keys and ranges stand in gpushare/spec.h. */
typedef struct gpushare_spec {
  uint32_t struct_size;
  uint32_t set;
  uint64_t memory;     /* bytes; at most one of memory and memory_share */
  double memory_share; /* of the device's memory less the reserve */
  double compute;
  double weight;
  double guarantee;
  double cap;
  int64_t burst_ns;
  int32_t priority;
  int32_t isolation;
  uint64_t h2d; /* bytes a second, host to device; 0 with its bit set: no limit */
  uint64_t d2h;
  int32_t oversubscription;
  char policy[28]; /* a name of gpushare_policy_name(), zero-terminated */
  /* The most that may be held, `memory` of it guaranteed and the rest borrowed from what others leave unused; at
   * most one of the two. */
  uint64_t memory_cap;
  double memory_cap_share;
  /* Of priority high: the part of the time that its work takes alone by which kernels of lower ones, let in beside it,
   * may make it later; 0 to 0.2. */
  double delay;
} gpushare_spec;

/* Parses `length` bytes of text. INVALID_ARGUMENT names the field and its range. The text may be a
 * change: what its policy needs beside it (compute, weight) may be missing, which
 * gpushare_spec_validate() and whoever takes it as a whole then say. */
GPUSHARE_API gpushare_status gpushare_spec_parse(const char* text, size_t length,
                                                 gpushare_spec* spec);
/* Checks a spec as a whole. UNIMPLEMENTED for what is valid and not offered yet. */
GPUSHARE_API gpushare_status gpushare_spec_validate(const gpushare_spec* spec);
/* Writes the text form with its terminating zero; parsing it gives the same spec to the bit.
 * `needed` (may be null) receives the size with the zero, also when OUT_OF_RANGE says that `size`
 * is too small. */
GPUSHARE_API gpushare_status gpushare_spec_format(const gpushare_spec* spec, char* text,
                                                  size_t size, size_t* needed);
/* The i-th policy by name; null past the last. docs/api-and-abi.md says what each sets. */
GPUSHARE_API const char* gpushare_policy_name(size_t i);

/* ---- Virtual devices ---- */

/* A share of `gpu` for `tenant`; at most one a tenant and GPU (ALREADY_EXISTS). RESOURCE_EXHAUSTED:
 * the guarantees would exceed the device or the quotas its memory; the message says what would fit. */
GPUSHARE_API gpushare_status gpushare_vdev_create(gpushare_gpu gpu, gpushare_tenant tenant,
                                                  const gpushare_spec* spec, gpushare_vdev* vdev);
/* What a GPU could still promise to virtual devices. */
typedef struct gpushare_room {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t memory_total; /* of the GPU, less the runtime's reserve */
  uint64_t memory_left;  /* neither promised as a quota nor in use without one */
  double guarantee_left; /* 0 to 1 of the device's time */
  uint64_t virtual_devices;
} gpushare_room;

GPUSHARE_API gpushare_status gpushare_gpu_get_room(gpushare_gpu gpu, gpushare_room* room);

enum {
  GPUSHARE_PLACE_BEST_FIT = 0, /* where least is left over of what the spec asks for */
  GPUSHARE_PLACE_BINPACK = 1,  /* on the GPU of which most is promised, so that others stay empty */
  GPUSHARE_PLACE_SPREAD = 2    /* on the GPU of which least is promised */
};

/* Creates a virtual device on one of `gpus`, which are of one runtime and all different. GPUs that have
 * no room are passed over; equals are taken in the order given. `index` (may be null) is the chosen GPU's
 * place in `gpus`. RESOURCE_EXHAUSTED: none has room; the message says of each why, the detail names
 * the limit of which none has enough and the most that is left of it. ALREADY_EXISTS: the tenant has a
 * virtual device on each of them. */
GPUSHARE_API gpushare_status gpushare_vdev_place(const gpushare_gpu* gpus, size_t gpu_count,
                                                 gpushare_tenant tenant, const gpushare_spec* spec,
                                                 int32_t placement, gpushare_vdev* vdev,
                                                 size_t* index);

/* Memory allocated through it stays allocated and charged until it is freed. */
GPUSHARE_API gpushare_status gpushare_vdev_destroy(gpushare_vdev vdev);

/* Changes limits at once; the keys not set in `spec` keep their value. Memory below what is in use:
 * nothing is taken away; allocations are refused until use has fallen below the new limit.
 * Isolation cannot change. */
GPUSHARE_API gpushare_status gpushare_vdev_resize(gpushare_vdev vdev, const gpushare_spec* spec);
/* The spec in force, as given at creation and changed since. */
GPUSHARE_API gpushare_status gpushare_vdev_get_spec(gpushare_vdev vdev, gpushare_spec* spec);

/* The CUcontext in which streams are made that can be bound to `vdev`: of isolation `shared` the GPU's primary
 * one, of `context` its own, of `green` that of its SMs as it is now. For cuCtxPushCurrent(); not for
 * cuCtxDestroy(). Valid while `vdev` is, of `green` until it is resized. */
GPUSHARE_API gpushare_status gpushare_vdev_context(gpushare_vdev vdev, struct CUctx_st** context);

/* Holds every launch, lease, set and copy of the virtual device at the gate until resume; what the device has already
 * been given runs on.
 *
 * With memory of the strategy `swappable` it also waits until that is over and leases are released,
 * GPUSHARE_CLOSE_GRACE_NS at most, and copies that memory to pinned memory of the host and gives it back to the device and
 * the quota. Its addresses stay, and nobody may use them until resume. An error: the virtual device is suspended all
 * the same, and of each allocation every byte is there, on the device or out; calling it again tries again.
 * FAILED_PRECONDITION: the calling thread holds a lease of it. DEADLINE_EXCEEDED: its work goes on, or, where it had
 * some on streams that gpushare does not know (a lease without `streams`), anything in its context.
 * RESOURCE_EXHAUSTED: the host has no room. Any other: the driver's answer. */
GPUSHARE_API gpushare_status gpushare_vdev_suspend(gpushare_vdev vdev);
/* Swappable memory comes back first, at the same addresses. RESOURCE_EXHAUSTED: the quota or the device has no room for
 * it; DEADLINE_EXCEEDED: nor was there any in time. It waits for room as long as the most patient allocation of what is
 * out would have (GPUSHARE_OVER_QUOTA_WAIT, GPUSHARE_ALLOC_TIMEOUT). After an error all of that memory is the host's, and
 * the virtual device stays suspended. */
GPUSHARE_API gpushare_status gpushare_vdev_resume(gpushare_vdev vdev);

/* Asked, with a number of bytes, when others want back what the virtual device has borrowed beyond `memory`: frees
 * memory of its own and returns not 0 if it did, after which it may be asked again, at most 16 times for one
 * allocation. Runs on the thread of whoever wants it, several at a time, and no lock of gpushare is held. What it allocates
 * itself does not call it again. No exception may leave it; in C++, declare it noexcept. `release` (may be null) is called with `context` when nothing calls
 * `reclaim` any more: after another was set, null for one, or the virtual device is gone. */
GPUSHARE_API gpushare_status
gpushare_vdev_set_reclaim(gpushare_vdev vdev, int (*reclaim)(void* context, uint64_t bytes),
                          void* context, void (*release)(void* context));

/* Free and total memory as the tenant is to see them: of its quota, or of what it may hold at most. */
GPUSHARE_API gpushare_status gpushare_vdev_memory(gpushare_vdev vdev, uint64_t* free_bytes,
                                                  uint64_t* total_bytes);

/* Whose work is it: the first there is of `argument` (null: not given), the virtual device to which
 * `stream` (null: none) is bound, the thread's scope, the current context's, the default tenant's.
 * A new handle. */
GPUSHARE_API gpushare_status gpushare_gpu_resolve(gpushare_gpu gpu, gpushare_vdev argument,
                                                  struct CUstream_st* stream, gpushare_vdev* vdev);
/* Work that nothing else attributes, on threads whose current context is `context`, is this virtual
 * device's. Null `vdev` ends it. */
GPUSHARE_API gpushare_status gpushare_gpu_bind_context(gpushare_gpu gpu, struct CUctx_st* context,
                                                       gpushare_vdev vdev);

#define GPUSHARE_WAIT_BUCKETS 24

typedef struct gpushare_vdev_stats {
  uint32_t struct_size;
  int32_t gpu;     /* ordinal */
  int64_t time_ns; /* of the runtime's clock, when it was taken */
  char tenant[64];
  int32_t suspended;
  int32_t priority;              /* gpushare_priority in force */
  double weight, guarantee, cap; /* in force */

  uint64_t memory_limit;
  uint64_t memory_used; /* held; not what the driver is being asked for */
  uint64_t memory_peak; /* the most held; at least memory_used */
  uint64_t
      memory_denied; /* times that the quota had no room, also before a wait or a reclaim that made some */
  uint64_t memory_denied_bytes;
  uint64_t allocations; /* live; of a pool, its segments */

  uint64_t
      launches; /* kernels, graphs, sets and copies within the device that were handed to it, not
                        those under a lease */
  uint64_t graph_launches;
  uint64_t waits;                   /* launches that were held */
  int64_t throttled_ns;             /* host time that they were held */
  int64_t wait_p50_ns, wait_p99_ns; /* of the waits: upper edge of the bucket */
  uint64_t
      wait_histogram[GPUSHARE_WAIT_BUCKETS]; /* [2^i, 2^(i+1)) us; the first also shorter ones */
  int64_t predicted_ns;                      /* device time of the settled work, as predicted */
  int64_t measured_ns;                       /* the same work, as measured */
  int64_t charged_ns;       /* device time charged in all, corrected by measurement */
  uint64_t markers;         /* timing events recorded */
  uint64_t held_past_bound; /* let through since another might be waiting for it */

  uint64_t h2d_bytes, d2h_bytes;
  int64_t h2d_throttled_ns, d2h_throttled_ns;

  uint64_t
      markers_failed; /* timing events that the driver refused: that work is charged as predicted
                              and not measured */
  char driver_error
      [128]; /* the latest of these refusals, as "cuEventQuery: CUDA_ERROR_..."; or "" */

  uint64_t memory_borrowed; /* of memory_used and what is on its way, what is beyond `memory` */
  uint64_t memory_lent;     /* of `memory`, what others have borrowed */

  /* The tenant's parent; empty: it has none. A parent's memory is that of its children as well; its work and copies are its
   * own. */
  char parent[64];
  /* Of swappable memory. What is out is pinned memory of the host, and not in memory_used. The bytes moved so far are in
   * d2h_bytes and h2d_bytes as well; how often something moved, and the host time that this took. */
  uint64_t memory_swapped;
  uint64_t swapped_out_bytes, swapped_in_bytes;
  uint64_t swaps_out, swaps_in;
  int64_t swap_ns;
} gpushare_vdev_stats;

GPUSHARE_API gpushare_status gpushare_vdev_get_stats(gpushare_vdev vdev,
                                                     gpushare_vdev_stats* stats);

/* Every counter of every virtual device of the runtime, at one instant. Counters only grow; times
 * charged may fall when a prediction is corrected; limits, memory used and allocations are states. */
GPUSHARE_API gpushare_status gpushare_snapshot_take(gpushare_runtime runtime,
                                                    gpushare_snapshot* snapshot);
GPUSHARE_API gpushare_status gpushare_snapshot_size(gpushare_snapshot snapshot, size_t* count);
GPUSHARE_API gpushare_status gpushare_snapshot_get(gpushare_snapshot snapshot, size_t i,
                                                   gpushare_vdev_stats* stats);
GPUSHARE_API gpushare_status gpushare_snapshot_destroy(gpushare_snapshot snapshot);

/* ---- Memory ---- */

typedef enum gpushare_strategy {
  GPUSHARE_STRATEGY_DIRECT = 0, /* each allocation is one of the driver's */
  /* The driver's stream-ordered pool, one for each virtual device: the quota is charged with what it has
   * reserved of the device, which is more than what is used. FAILED_PRECONDITION on a stream that captures.
   * UNIMPLEMENTED where the driver has none, and with isolation=context. */
  GPUSHARE_STRATEGY_POOL = 1,
  /* Allocations are cut from segments of the driver's, in the order of streams: the quota is charged
   * with the segments, and most allocations and frees ask neither the quota nor the driver. */
  GPUSHARE_STRATEGY_SUBALLOCATING = 2,
  /* Each allocation has addresses of its own, and its memory leaves the device while the virtual device is suspended
   * (gpushare_vdev_suspend). The quota is charged in multiples of the driver's granularity, 2 MiB on most. For what is
   * used for long: it costs several calls of the driver. UNIMPLEMENTED where the driver has no virtual memory management. */
  GPUSHARE_STRATEGY_SWAPPABLE = 3
} gpushare_strategy;

typedef enum gpushare_over_quota {
  GPUSHARE_OVER_QUOTA_FAIL = 0,
  GPUSHARE_OVER_QUOTA_WAIT = 1,   /* for a free or a resize, until the deadline */
  GPUSHARE_OVER_QUOTA_RECLAIM = 2 /* asks the callback to free something */
} gpushare_over_quota;

/* What `reclaim` answers to give up for good: whatever timeout the allocation has, it does not wait. */
#define GPUSHARE_RECLAIM_STOP (-1)

typedef struct gpushare_allocator_options {
  uint32_t struct_size;
  int32_t strategy;
  int32_t over_quota;
  int32_t reserved;
  int64_t timeout_ns; /* of WAIT; 0: as FAIL, but for the code */
  /* For RECLAIM, on the allocating thread, which holds no lock of gpushare: frees memory of the
   * same virtual device and returns 1 to try again, 0 to give up, after which an allocation that has a
   * timeout waits, or GPUSHARE_RECLAIM_STOP. Called at most 16 times an allocation, and not for one that is larger than
   * all that the virtual device may hold. It may allocate; an allocation that it makes from this allocator does not call
   * it again. No exception may leave it; in C++, declare it noexcept. */
  int (*reclaim)(void* context, uint64_t asked, uint64_t left);
  void* reclaim_context;
} gpushare_allocator_options;

GPUSHARE_API gpushare_status gpushare_allocator_create(gpushare_vdev vdev,
                                                       const gpushare_allocator_options* options,
                                                       gpushare_allocator* allocator);
GPUSHARE_API gpushare_status gpushare_allocator_destroy(gpushare_allocator allocator);

/* Charges the quota (direct: to the byte), then allocates. INVALID_ARGUMENT: 0 bytes. RESOURCE_EXHAUSTED:
 * over the quota (detail.limit "memory"), or the device itself is full (driver_result 2).
 * DEADLINE_EXCEEDED: WAIT timed out. CANCELLED: gpushare_allocator_cancel_waits() ended the wait. */
GPUSHARE_API gpushare_status gpushare_alloc(gpushare_allocator allocator, uint64_t bytes,
                                            gpushare_device_ptr* pointer);
/* Frees `pointer` and credits the virtual device that allocated it, whoever frees. One that
 * gpushare did not allocate goes to the driver unchanged, and its answer comes back: a double free is an error. ABORTED: the
 * GPU's context is lost and the memory with it, which is credited; with isolation `context`, when the virtual device is closed:
 * until then the device has it. Null: OK. */
GPUSHARE_API gpushare_status gpushare_free(gpushare_allocator allocator,
                                           gpushare_device_ptr pointer);

/* The same in the order of a stream of the same GPU. Suballocating: the memory may be used by what is
 * launched on `stream` from now on; what was freed on it is used again by the stream's own work at once,
 * and by other streams' only when the stream's work until then is over. gpushare_free() frees in the order
 * of the stream that the memory was allocated for, gpushare_free_on() in that of another, which must have
 * been made to follow the first (an event). Of memory that was allocated for no stream (gpushare_alloc())
 * the caller sees to it that nothing uses it any more when it is freed. A captured graph keeps using what
 * was allocated for it: free that when the graph is gone. Pool: the same by the driver, but for streams that
 * capture. Direct: as without a stream. */
GPUSHARE_API gpushare_status gpushare_alloc_on(gpushare_allocator allocator, uint64_t bytes,
                                               gpushare_stream stream,
                                               gpushare_device_ptr* pointer);
GPUSHARE_API gpushare_status gpushare_free_on(gpushare_allocator allocator,
                                              gpushare_device_ptr pointer, gpushare_stream stream);

/* Bits of gpushare_alloc_options.set: fields that are given, whatever they hold. */
#define GPUSHARE_ALLOC_NATIVE (1u << 0)
#define GPUSHARE_ALLOC_TIMEOUT (1u << 1)

typedef struct gpushare_alloc_options {
  uint32_t struct_size;
  uint32_t set;           /* GPUSHARE_ALLOC_* */
  gpushare_stream stream; /* in the order of this stream; null: of none */
  /* With GPUSHARE_ALLOC_NATIVE: in the order of this stream of CUDA's, of the GPU's primary context, also one
   * that gpushare does not know; null: the legacy default stream. */
  struct CUstream_st* native;
  /* With GPUSHARE_ALLOC_TIMEOUT, whatever the allocator does over the quota: after its callback has given up,
   * if it has one, waits for so long. 0: does not wait. */
  int64_t timeout_ns;
  uint64_t alignment; /* of the address, a power of two up to 256; 0: 256, which all have */
} gpushare_alloc_options;

/* As gpushare_alloc(), with what holds for this allocation alone. */
GPUSHARE_API gpushare_status gpushare_alloc_with(gpushare_allocator allocator, uint64_t bytes,
                                                 const gpushare_alloc_options* options,
                                                 gpushare_device_ptr* pointer);
/* As gpushare_free_on(), in the order of a stream by CUDA's handle. The library keeps no handle of a stream that it
 * does not know, since nobody tells it when that ends: an event behind each free says when the stream has come so
 * far (some microseconds; none with gpushare_stream_bind()). For the same reason gpushare_free() of what was allocated
 * for such a stream is as of memory of no stream: nothing may use it any more. */
GPUSHARE_API gpushare_status gpushare_free_native(gpushare_allocator allocator,
                                                  gpushare_device_ptr pointer,
                                                  struct CUstream_st* native);

/* Gives segments that nothing lives in back to the driver and the quota, or what the driver's pool does not use, until they are
 * `bytes` together (UINT64_MAX: all). May wait for the device, as freeing does. FAILED_PRECONDITION: the allocator keeps no
 * pool. ABORTED: as of gpushare_free(). Others are the driver's: what it would not take stays the pool's. */
GPUSHARE_API gpushare_status gpushare_allocator_trim(gpushare_allocator allocator, uint64_t bytes);
/* From any thread: who waits for memory in this allocator now (WAIT, or a timeout) is answered CANCELLED within a
 * millisecond, unless it is served meanwhile. Who comes later waits. */
GPUSHARE_API gpushare_status gpushare_allocator_cancel_waits(gpushare_allocator allocator);

typedef struct gpushare_allocator_stats {
  uint32_t struct_size;
  uint32_t reserved_field;
  uint64_t reserved; /* bytes of segments, or of the driver's pool: charged to the quota */
  uint64_t live;     /* bytes of allocations, each a multiple of 512 */
  uint64_t peak_reserved, peak_live;
  /* Up to `segments` 0 of the driver's pool, which does not tell. */
  uint64_t largest_free;          /* the largest allocation that one free piece would serve */
  uint64_t set_apart;             /* free bytes kept for requests of exactly their size */
  uint64_t segments, allocations; /* numbers, live */
  uint64_t waiting;               /* threads that wait for memory */
  uint64_t served;                /* allocations so far */
  uint64_t hits;                  /* of them, those for which the pool did not have to grow */
} gpushare_allocator_stats;

/* FAILED_PRECONDITION: the allocator keeps no pool. */
GPUSHARE_API gpushare_status gpushare_allocator_get_stats(gpushare_allocator allocator,
                                                          gpushare_allocator_stats* stats);

/* The same for the virtual device that gpushare_gpu_resolve() finds on the calling thread. */
GPUSHARE_API gpushare_status gpushare_gpu_alloc(gpushare_gpu gpu, uint64_t bytes,
                                                gpushare_device_ptr* pointer);
GPUSHARE_API gpushare_status gpushare_gpu_free(gpushare_gpu gpu, gpushare_device_ptr pointer);
/* Size of and virtual device (a new handle) behind a pointer of gpushare's; NOT_FOUND for others.
 * Either out parameter may be null. */
GPUSHARE_API gpushare_status gpushare_gpu_pointer(gpushare_gpu gpu, gpushare_device_ptr pointer,
                                                  uint64_t* bytes, gpushare_vdev* vdev);

/* ---- Code ---- */

/* Loads a PTX text (zero-terminated) or a cubin or fatbin image on `gpu`. INVALID_ARGUMENT: it is
 * broken. */
GPUSHARE_API gpushare_status gpushare_module_load(gpushare_gpu gpu, const void* image,
                                                  gpushare_module* module);
/* The same in the context of `vdev`, which with isolation `context` is the only one whose kernels its streams
 * take. Keeps the virtual device. */
GPUSHARE_API gpushare_status gpushare_module_load_on(gpushare_vdev vdev, const void* image,
                                                     gpushare_module* module);
/* Its functions must not be running. */
GPUSHARE_API gpushare_status gpushare_module_unload(gpushare_module module);
/* NOT_FOUND: no such kernel. Valid until the module is unloaded. */
GPUSHARE_API gpushare_status gpushare_module_function(gpushare_module module, const char* name,
                                                      struct CUfunc_st** function);
/* Raises the dynamic shared memory that launches of `function` may ask for. */
GPUSHARE_API gpushare_status gpushare_function_set_max_shared(gpushare_gpu gpu,
                                                              struct CUfunc_st* function,
                                                              uint32_t bytes);

typedef struct gpushare_shape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
} gpushare_shape;

/* Part of the device's SMs that one launch can hold, (0, 1]: ceil(blocks / blocks per SM) / SMs. 1 on a device that runs
 * one kernel at a time (CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS is 0). */
GPUSHARE_API gpushare_status gpushare_function_footprint(gpushare_gpu gpu,
                                                         struct CUfunc_st* function,
                                                         const gpushare_shape* shape,
                                                         double* footprint);

/* ---- Streams ---- */

/* A non-blocking stream of the virtual device. High-priority tenants get the device's highest
 * stream priority, others the lowest. */
GPUSHARE_API gpushare_status gpushare_stream_create(gpushare_vdev vdev, gpushare_stream* stream);
/* Adopts a stream that somebody else owns (null: the legacy default stream). ALREADY_EXISTS when it
 * is bound. It is unbound, not destroyed, by gpushare_stream_destroy(), which must come before its
 * own end. */
GPUSHARE_API gpushare_status gpushare_stream_bind(gpushare_vdev vdev, struct CUstream_st* native,
                                                  gpushare_stream* stream);
/* Waits for nothing: work in flight runs on. */
GPUSHARE_API gpushare_status gpushare_stream_destroy(gpushare_stream stream);
/* For calls of the driver that gpushare does not offer. Launches on it past gpushare are neither
 * held nor charged, unless a lease covers them. */
GPUSHARE_API gpushare_status gpushare_stream_native(gpushare_stream stream,
                                                    struct CUstream_st** native);

/* Launch a kernel. May wait at the gate, up to `timeout_ns` (DEADLINE_EXCEEDED; 0: only for the
 * scheduler's answer, some 10 us; below 0 INVALID_ARGUMENT), and waits while the virtual device is
 * suspended. Not held and not charged while the stream is
 * being captured: the graph's launches are. `params` points to each of the kernel's parameters.
 * CANCELLED: the virtual device went away meanwhile. */
GPUSHARE_API gpushare_status gpushare_stream_launch(gpushare_stream stream,
                                                    struct CUfunc_st* function,
                                                    const gpushare_shape* shape, void** params,
                                                    int64_t timeout_ns);
/* The same with all blocks resident at once; gets the device to itself. */
GPUSHARE_API gpushare_status gpushare_stream_launch_cooperative(gpushare_stream stream,
                                                                struct CUfunc_st* function,
                                                                const gpushare_shape* shape,
                                                                void** params, int64_t timeout_ns);
/* A graph is one command. */
GPUSHARE_API gpushare_status gpushare_stream_launch_graph(gpushare_stream stream,
                                                          struct CUgraphExec_st* graph,
                                                          int64_t timeout_ns);

/* Copies and sets. The asynchronous ones return when the copy is handed to the device; host memory
 * that is not pinned must stay valid until then and is not overlapped. The others return when it is
 * done. Copies between host and device wait for the virtual device's bandwidth (h2d, d2h), in
 * pieces of 4 MiB when it is limited. Sets, and copies within the device, wait at the gate without a
 * timeout and are charged, as launches are. */
GPUSHARE_API gpushare_status gpushare_stream_copy_h2d(gpushare_stream stream,
                                                      gpushare_device_ptr to, const void* from,
                                                      uint64_t bytes);
GPUSHARE_API gpushare_status gpushare_stream_copy_d2h(gpushare_stream stream, void* to,
                                                      gpushare_device_ptr from, uint64_t bytes);
GPUSHARE_API gpushare_status gpushare_stream_copy_d2d(gpushare_stream stream,
                                                      gpushare_device_ptr to,
                                                      gpushare_device_ptr from, uint64_t bytes);
GPUSHARE_API gpushare_status gpushare_stream_copy_h2d_async(gpushare_stream stream,
                                                            gpushare_device_ptr to,
                                                            const void* from, uint64_t bytes);
GPUSHARE_API gpushare_status gpushare_stream_copy_d2h_async(gpushare_stream stream, void* to,
                                                            gpushare_device_ptr from,
                                                            uint64_t bytes);
GPUSHARE_API gpushare_status gpushare_stream_copy_d2d_async(gpushare_stream stream,
                                                            gpushare_device_ptr to,
                                                            gpushare_device_ptr from,
                                                            uint64_t bytes);
GPUSHARE_API gpushare_status gpushare_stream_set_async(gpushare_stream stream,
                                                       gpushare_device_ptr to, uint8_t value,
                                                       uint64_t bytes);

/* Calls `function` with `argument` on a thread of the driver's when the stream comes to it; what follows on the
 * stream waits for its end. It must call neither the driver (CUDA_ERROR_NOT_PERMITTED) nor gpushare. Not held, and its time is
 * not charged: a host function that is put on the stream past gpushare is, as if the device had worked. */
GPUSHARE_API gpushare_status gpushare_stream_launch_host(gpushare_stream stream,
                                                         void (*function)(void*), void* argument);

/* Waits for all work of the stream; lends the tenant's unused time to others meanwhile. */
GPUSHARE_API gpushare_status gpushare_stream_synchronize(gpushare_stream stream);
/* A yield point: time that the tenant was granted and has not used goes back, and its next launch
 * asks again. For programs that are about to compute on the host for long. */
GPUSHARE_API gpushare_status gpushare_stream_yield(gpushare_stream stream);

GPUSHARE_API gpushare_status gpushare_event_create(gpushare_vdev vdev, int timing,
                                                   gpushare_event* event);
GPUSHARE_API gpushare_status gpushare_event_destroy(gpushare_event event);
GPUSHARE_API gpushare_status gpushare_event_native(gpushare_event event,
                                                   struct CUevent_st** native);
/* `done` becomes 1 or 0. */
GPUSHARE_API gpushare_status gpushare_event_query(gpushare_event event, int* done);
GPUSHARE_API gpushare_status gpushare_event_synchronize(gpushare_event event);
GPUSHARE_API gpushare_status gpushare_event_elapsed(gpushare_event start, gpushare_event end,
                                                    int64_t* ns);
/* Native events, of gpushare or not. */
GPUSHARE_API gpushare_status gpushare_stream_record(gpushare_stream stream,
                                                    struct CUevent_st* event);
GPUSHARE_API gpushare_status gpushare_stream_wait(gpushare_stream stream, struct CUevent_st* event);

/* Captures the stream's work into a graph (thread-local mode). */
GPUSHARE_API gpushare_status gpushare_stream_begin_capture(gpushare_stream stream);
GPUSHARE_API gpushare_status gpushare_stream_end_capture(gpushare_stream stream,
                                                         gpushare_graph* graph);
GPUSHARE_API gpushare_status gpushare_graph_destroy(gpushare_graph graph);
GPUSHARE_API gpushare_status gpushare_graph_native(gpushare_graph graph,
                                                   struct CUgraphExec_st** native);

/* ---- Leases ---- */

typedef struct gpushare_lease_options {
  uint32_t struct_size;
  int32_t exclusive;  /* not 0: nobody else's of the same or a lower priority */
  int64_t hint_ns;    /* device time expected, to 60 s; 0: 100 us */
  int64_t maximum_ns; /* more becomes debt; the hint or more; 0: the larger of 1 s and the hint */
  int64_t timeout_ns; /* of acquiring; 0: only for the scheduler's answer, some 10 us */
  /* Where the work will go, streams of this virtual device. Measured by markers on them; launches
   * through gpushare on them are covered while the lease is held. None: the time that it is held
   * is charged. */
  const gpushare_stream* streams;
  size_t stream_count;
  /* Not 0: the lease belongs to no thread. It is neither one with nor refused beside others that the
   * calling thread holds; for callers whose work changes threads, such as coroutines. */
  int32_t any_thread;
  int32_t reserved;
} gpushare_lease_options;

typedef struct gpushare_lease_result {
  uint32_t struct_size;
  int32_t overrun; /* it took more than the maximum */
  int64_t held_ns; /* host time from acquire to release */
} gpushare_lease_result;

/* A permit for code that launches on its own. On a thread that holds one of the same virtual device
 * it waits for nothing, and both are one, on the streams of both (if the first has any), until the
 * last is released, in whichever order; of another on the same GPU: FAILED_PRECONDITION.
 * DEADLINE_EXCEEDED: timed out. */
GPUSHARE_API gpushare_status gpushare_lease_acquire(gpushare_vdev vdev,
                                                    const gpushare_lease_options* options,
                                                    gpushare_lease* lease);
/* From any thread. Waits for nothing. `result` may be null. */
GPUSHARE_API gpushare_status gpushare_lease_release(gpushare_lease lease,
                                                    gpushare_lease_result* result);

/* A lease that is asked for and not waited for: for event loops and executors. As gpushare_lease_acquire() with
 * `any_thread`, but that it returns at once, and the timeout counts from now. The requests of a virtual device are served one
 * after the other, as they came, by a thread of gpushare's; whose timeout is over behind another is told within 50 ms.
 *
 *   void ready(void* loop) { wake((struct loop*)loop); }
 *   ...
 *   gpushare_lease_request_create(vdev, &options, ready, loop, &request);
 *   ...                                                    // in the loop, once it was woken
 *   if (gpushare_lease_request_take(request, &lease) == GPUSHARE_OK) run(lease);
 *   gpushare_lease_request_destroy(request);
 *
 * `done` (may be null) is called with `context` once, when there is something to take, on that thread: it should return
 * soon, and may call everything. Not when it is called off before. No exception may leave it. The request keeps the virtual
 * device. */
GPUSHARE_API gpushare_status gpushare_lease_request_create(gpushare_vdev vdev,
                                                           const gpushare_lease_options* options,
                                                           void (*done)(void* context),
                                                           void* context,
                                                           gpushare_lease_request* request);
/* A descriptor that is readable when there is something to take, for poll(), select() and epoll. It is the request's:
 * neither read nor close it, and forget it before the request is destroyed. */
GPUSHARE_API gpushare_status gpushare_lease_request_descriptor(gpushare_lease_request request,
                                                               int* descriptor);
/* What has come of it, once: a lease, which is the caller's; or why there is none, as gpushare_lease_acquire() would say it.
 * UNAVAILABLE: nothing yet. CANCELLED: it was called off. FAILED_PRECONDITION: it was taken. */
GPUSHARE_API gpushare_status gpushare_lease_request_take(gpushare_lease_request request,
                                                         gpushare_lease* lease);
/* Calls it off: nothing is acquired for it any more, and a lease that nobody has taken goes back. One that was taken stays.
 * Waits for nothing; `done` may be running, or about to. */
GPUSHARE_API gpushare_status gpushare_lease_request_cancel(gpushare_lease_request request);
/* Calls it off, and waits for `done` if that is running; none runs after. From the `done` of a request of the same virtual
 * device, its own too, it does not wait: the handle is gone, and the request ends soon after that `done` has returned.
 * RESOURCE_EXHAUSTED, there alone: the host has no thread left to end it on, and the handle stays. */
GPUSHARE_API gpushare_status gpushare_lease_request_destroy(gpushare_lease_request request);

/* A part of a gang: a virtual device, and its streams on which the work will go. */
typedef struct gpushare_gang_member {
  uint32_t struct_size;
  uint32_t reserved;
  gpushare_vdev vdev;
  const gpushare_stream* streams;
  size_t stream_count;
} gpushare_gang_member;

/* Leases on several GPUs, all or none: for work of which each part waits for the others, as collective
 * kernels do. One member a GPU, all of one struct_size. They are acquired in the order of the GPUs' UUIDs,
 * whatever order they are given in, so that gangs which want some of the same GPUs cannot wait for each other in
 * a circle. `options` holds for each member, but for its `streams`, which must be empty; the timeout is that of
 * the whole, and `maximum` counts from when the gang is whole. While an exclusive member waits for the others it
 * keeps its GPU, and is charged for it; what has been kept so for `maximum` is given back, and all begins anew.
 * Members that are not exclusive are charged from when the gang is whole.
 *
 * On a thread that holds a lease of one of the virtual devices that member is a no-op. A thread that holds
 * one on a GPU whose UUID comes after one that is still to be acquired could wait in a circle:
 * FAILED_PRECONDITION. DEADLINE_EXCEEDED: timed out, and nothing is held. */
GPUSHARE_API gpushare_status gpushare_gang_acquire(const gpushare_gang_member* members,
                                                   size_t member_count,
                                                   const gpushare_lease_options* options,
                                                   gpushare_gang* gang);
/* From any thread. Waits for nothing. `result` may be null: held since the gang was whole; overrun if a
 * member took more than the maximum. */
GPUSHARE_API gpushare_status gpushare_gang_release(gpushare_gang gang,
                                                   gpushare_lease_result* result);

/* ---- Faults ---- */

enum {
  GPUSHARE_INCIDENT_STUCK = 1, /* work runs on for longer than the limit past what was predicted */
  /* The GPU's context is lost (ABORTED, for all of the process): one for each tenant that had work in
   * flight. Which of them did it the driver does not say. */
  GPUSHARE_INCIDENT_FAULT = 2
};

typedef struct gpushare_incident {
  uint32_t struct_size;
  int32_t kind;          /* GPUSHARE_INCIDENT_... */
  int32_t driver_result; /* fault: the driver's CUresult; else 0 */
  int32_t lease;         /* stuck: not 0 when it is the work of a lease */
  int64_t
      late_ns; /* stuck: how long it has run past what was predicted; of a lease, past its hint */
  struct CUstream_st* stream; /* one on which the tenant has work in flight */
  const char* tenant;         /* until the callback returns */
} gpushare_incident;

typedef struct gpushare_watchdog_options {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t limit_ns; /* 100 ms or more; 0: 10 s */
  /* Runs on a thread of the watchdog's, one at a time; once for each piece of work that is stuck. It may
   * call everything (suspend the tenant, say) but gpushare_watchdog_stop(). */
  void (*callback)(void* context, const gpushare_incident* incident);
  void* context;
} gpushare_watchdog_options;

/* Watches the work of a GPU's tenants. A kernel cannot be stopped on a GPU that is shared within one
 * process: what the callback can do is to warn, to suspend the tenant, or to end the process. What is not seen:
 * gpushare/watchdog.h. The watchdog keeps the GPU open. ALREADY_EXISTS: it has one. ABORTED: its context is lost
 * already. */
GPUSHARE_API gpushare_status gpushare_watchdog_start(gpushare_gpu gpu,
                                                     const gpushare_watchdog_options* options,
                                                     gpushare_watchdog* watchdog);
/* Waits for a callback that is running; none runs after. FAILED_PRECONDITION: from the callback. */
GPUSHARE_API gpushare_status gpushare_watchdog_stop(gpushare_watchdog watchdog);

/* ---- Traces ---- */

/* What happened when: waits, leases, device time, memory. The GPUs' flight recorders keep the latest
 * events in memory; off, which they are by default, they cost nothing that can be measured.
 *
 *   gpushare_trace trace;
 *   gpushare_trace_start(runtime, NULL, &trace);
 *   ...
 *   gpushare_trace_stop(trace);
 *   gpushare_trace_write(trace, "out.json");    for ui.perfetto.dev and chrome://tracing
 *   gpushare_trace_destroy(trace);
 */
typedef enum gpushare_trace_kind {
  GPUSHARE_TRACE_WAIT = 1,  /* at the gate; value: device time asked for, ns */
  GPUSHARE_TRACE_LEASE = 2, /* from acquire to release; value: the hint, ns */
  /* Work between two markers, when it is settled; value: device time charged, ns; `commands` */
  GPUSHARE_TRACE_DEVICE = 3,
  GPUSHARE_TRACE_COPY_WAIT = 4, /* for bandwidth; value: bytes, other: 0 to the device, 1 from it */
  GPUSHARE_TRACE_MEMORY = 5,    /* an instant; value: bytes held, other: the limit */
  GPUSHARE_TRACE_DENIED = 6,    /* an instant; value: bytes asked, other: bytes left */
  GPUSHARE_TRACE_SUSPEND = 7    /* an instant; value: 1 suspended, 0 resumed */
} gpushare_trace_kind;

/* Bits of gpushare_trace_event.flags. */
#define GPUSHARE_TRACE_GAVE_UP (1u << 0)     /* a wait that ended without a turn */
#define GPUSHARE_TRACE_FOR_LEASE (1u << 1)   /* a wait for a lease; device time of one */
#define GPUSHARE_TRACE_EXCLUSIVE (1u << 2)   /* an exclusive lease */
#define GPUSHARE_TRACE_OVERRUN (1u << 3)     /* a lease longer than its maximum */
#define GPUSHARE_TRACE_OVERDUE (1u << 4)     /* an instant: charged before the work has ended */
#define GPUSHARE_TRACE_DEVICE_FULL (1u << 5) /* refused by the driver, not by the quota */

typedef struct gpushare_trace_event {
  uint32_t struct_size;
  int32_t kind; /* gpushare_trace_kind; a program leaves out those that it does not know */
  int32_t gpu;  /* ordinal */
  uint32_t flags;
  int64_t begin_ns, end_ns; /* of the runtime's clock; equal for an instant */
  int64_t value;
  uint64_t other;
  uint32_t commands;
  uint32_t reserved;
  char tenant[64];
} gpushare_trace_event;

typedef struct gpushare_trace_options {
  uint32_t struct_size;
  /* Events kept for each GPU, the latest; 1 to 4194304, 128 bytes each; 0: 65536. */
  uint32_t capacity;
} gpushare_trace_options;

/* Records all GPUs that are open in the runtime, and those that are opened until it is stopped.
 * ALREADY_EXISTS: another trace of this runtime is recording. */
GPUSHARE_API gpushare_status gpushare_trace_start(gpushare_runtime runtime,
                                                  const gpushare_trace_options* options,
                                                  gpushare_trace* trace);
/* What was recorded can still be read and written. Once stopped, stopping does nothing. */
GPUSHARE_API gpushare_status gpushare_trace_stop(gpushare_trace trace);
/* Takes up to `count` events, of one GPU after the other, each one's oldest first: by when they were
 * recorded, which is when they ended. `got` is 0 when there are none left. The first element's
 * struct_size counts for all of the array. */
GPUSHARE_API gpushare_status gpushare_trace_read(gpushare_trace trace, gpushare_trace_event* events,
                                                 size_t count, size_t* got);
/* Events that were overwritten before they were read or written; more `capacity` keeps more. */
GPUSHARE_API gpushare_status gpushare_trace_lost(gpushare_trace trace, uint64_t* lost);
/* Writes the events that were not read, and takes them, as Chrome's trace JSON (docs/trace.md).
 * INVALID_ARGUMENT: `path` cannot be opened for writing. */
GPUSHARE_API gpushare_status gpushare_trace_write(gpushare_trace trace, const char* path);
/* Stops it, too. */
GPUSHARE_API gpushare_status gpushare_trace_destroy(gpushare_trace trace);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* GPUSHARE_C_GPUSHARE_H_ */
