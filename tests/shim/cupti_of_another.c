// SPDX-License-Identifier: Apache-2.0
// Stands in for CUPTI: reports the kernels that are listed in the file CUPTI_OF_ANOTHER, in that order, CUPTI_AT_ONCE with each
// flush (all of them, if unset). Of two buffers it delivers the second one first. A line of the file is
//
//   NAME BLOCKS THREADS SHARED START END
//
// With CUPTI_REFUSES it behaves as if another client used CUPTI already.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

struct __attribute__((packed, aligned(8))) kernel {
  uint32_t kind;
  uint8_t cache, shared_memory;
  uint16_t registers;
  uint32_t cache_requested, cache_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_per_thread, local_total;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
  char newer[96];  // fields of newer versions
};

typedef void (*give)(uint8_t**, size_t*, size_t*);
typedef void (*take)(void*, uint32_t, uint8_t*, size_t, size_t);
static give give_buffer;
static take take_buffer;
static FILE* file;
static int enabled;

SHOWN int gpushare_cupti_of_simulated_gpu;

SHOWN int cuptiActivityRegisterCallbacks(give gives, take takes) {
  give_buffer = gives;
  take_buffer = takes;
  return getenv("CUPTI_REFUSES") != NULL ? 39 : 0;
}
SHOWN int cuptiActivityEnable(uint32_t kind) {
  enabled = kind == 10;
  return enabled ? 0 : 1;
}
SHOWN int cuptiActivityDisable(uint32_t kind) {
  (void)kind;
  enabled = 0;
  return 0;
}
SHOWN int cuptiGetResultString(int result, const char** text) {
  *text = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "another";
  return 0;
}
SHOWN int cuptiActivityGetNumDroppedRecords(void* context, uint32_t stream, size_t* dropped) {
  (void)context, (void)stream;
  const char* const lost = getenv("CUPTI_DROPS");
  *dropped = lost != NULL ? strtoul(lost, NULL, 10) : 0;
  return 0;
}
SHOWN int cuptiActivityGetNextRecord(uint8_t* buffer, size_t bytes, struct kernel** record) {
  struct kernel* const next = *record == NULL ? (struct kernel*)buffer : *record + 1;
  if ((uint8_t*)(next + 1) > buffer + bytes) return 15;
  *record = next;
  return 0;
}

static int read_one(struct kernel* into) {
  static char names[1000][64];
  static int used;
  unsigned long start, end;
  memset(into, 0, sizeof *into);
  into->kind = used % 7 == 3 ? 1 : 10;  // now and then a record of a copy
  if (into->kind == 1) {
    ++used;
    return 1;
  }
  char* const name = names[used++ % 1000];
  if (fscanf(file, "%63s %d %d %d %lu %lu", name, &into->grid[0], &into->block[0],
             &into->dynamic_shared, &start, &end) != 6)
    return 0;
  into->name = name;
  into->start = start;
  into->end = end;
  return 1;
}

SHOWN int cuptiActivityFlushAll(uint32_t flags) {
  (void)flags;
  if (!enabled) return 0;
  if (file == NULL) file = fopen(getenv("CUPTI_OF_ANOTHER"), "r");
  const char* const limit = getenv("CUPTI_AT_ONCE");
  const long most = limit != NULL ? strtol(limit, NULL, 10) : 1000;
  uint8_t* buffers[2];
  size_t valid[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    size_t bytes, records;
    give_buffer(&buffers[i], &bytes, &records);
    struct kernel* at = (struct kernel*)buffers[i];
    for (long left = i == 0 ? most / 2 : most - most / 2; left > 0 && read_one(at); ++at) {
      left -= at->kind == 10;
      valid[i] += sizeof *at;
    }
  }
  for (int i = 1; i >= 0; --i) take_buffer(NULL, 0, buffers[i], 1 << 20, valid[i]);
  return 0;
}
