/* SPDX-License-Identifier: Apache-2.0 */
/* The offsets of the fields that a launch reads, for the fast path in assembly (shim/launch_kernel.S). streams.cc compares them
 * with the compiler's layout. */
#ifndef GPUSHARE_WORK_LAUNCH_LAYOUT_H_
#define GPUSHARE_WORK_LAUNCH_LAYOUT_H_

/* Streams::SeenByThread: its ThreadMark, then its Recent<Known>. */
#define GPUSHARE_MARK_EPOCH 0
#define GPUSHARE_MARK_INSIDE 128
#define GPUSHARE_MARK_KNOWN 256
/* The size of an entry of Recent<Known>, as a shift. Each of the two places of a handle is one of 16: see Recent::Hash(). */
#define GPUSHARE_KNOWN_SHIFT 7
#define GPUSHARE_PLACE_HASH -0x61c8864f
#define GPUSHARE_FIRST_PLACE 28
#define GPUSHARE_SECOND_PLACE 24
#define GPUSHARE_KNOWN_HANDLE 0
#define GPUSHARE_KNOWN_LAST 8
#define GPUSHARE_KNOWN_POCKET 16
#define GPUSHARE_KNOWN_PAGE 24
#define GPUSHARE_KNOWN_RING 32
#define GPUSHARE_KNOWN_KEYS 48
#define GPUSHARE_KNOWN_RECORD 56
#define GPUSHARE_KNOWN_STREAM 72
#define GPUSHARE_KNOWN_CONTEXT 88
/* gate::Habit. */
#define GPUSHARE_HABIT_FUNCTION 0
#define GPUSHARE_HABIT_GRID 8
#define GPUSHARE_HABIT_BLOCK 20
#define GPUSHARE_HABIT_SHARED 32
#define GPUSHARE_HABIT_CONTEXT 40
#define GPUSHARE_HABIT_NEXT 48
#define GPUSHARE_HABIT_CHARGED_AT 56
#define GPUSHARE_HABIT_CHARGE 64
#define GPUSHARE_HABIT_AFTER 72
#define GPUSHARE_HABIT_RECORD 80
#define GPUSHARE_HABIT_OTHER 88
#define GPUSHARE_HABIT_ENTRY 96
#define GPUSHARE_HABIT_ID 104
/* meter::CostModel::Entry. */
#define GPUSHARE_ENTRY_ID 0
#define GPUSHARE_ENTRY_SETTLED 12
/* gate::TenantPage, gate::LaunchRing, gate::LaunchRecord. */
#define GPUSHARE_PAGE_UNITS 8
#define GPUSHARE_LAUNCH_MASK 0xffffff
#define GPUSHARE_RING_MASK 0xfff
#define GPUSHARE_RECORD_LAUNCH 40
/* driver::KeptContext. */
#define GPUSHARE_KEPT_CONTEXT 0
#define GPUSHARE_KEPT_TURN 8
/* gate::Pocket. */
#define GPUSHARE_POCKET_SPENT 0
#define GPUSHARE_POCKET_LIMIT 8
#define GPUSHARE_POCKET_PRICES 16

#endif /* GPUSHARE_WORK_LAUNCH_LAYOUT_H_ */
