/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What every header here builds on: kernel types, atomics, the generated records and numbers.
 *
 * The programs read and write the same memory as the engine's process (crates/tables). Two rules
 * follow: every access to a table is one load or store of a whole word (READ, WRITE), and every
 * change that another writer could make at the same time is a compare-and-swap. Where the order of
 * plain loads and stores counts, it is asked for (ORDER_READS and so on), as the Rust side asks
 * with Acquire and Release. litmus/ has each of these protocols for a model checker.
 *
 * Addresses and ports stand as on the wire wherever a name does not say otherwise.
 */
#ifndef TOMBOLO_BASE_H
#define TOMBOLO_BASE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "generated.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "records are words of a little-endian processor");

#define READ(place) (*(volatile typeof(place) *)&(place))
/* Loads a word for the sake of its cache line. */
#define LOOK_AT(place) ((void)READ(place))
#define WRITE(place, value) (*(volatile typeof(place) *)&(place) = (value))

/* Others see what is loaded, or stored, in front of these before what is behind them. ORDER_WORDS is
 * for READ and WRITE alone, which the compiler keeps in order by itself. SWAP orders everything on
 * every processor; and what is loaded from an address that was itself loaded comes after that.
 *
 * x86-64 keeps loads in order and stores in order, so nothing is left to do. BPF has no instruction
 * for a fence, nor, before Linux 6.15, loads that acquire and stores that release; but an atomic
 * exchange orders everything around it, so for other processors one is made with a word that nobody
 * else sees.
 */
#ifdef __TARGET_ARCH_x86
#define ORDER_WORDS() ((void)0)
#else
#define ORDER_WORDS()                                        \
	({                                                   \
		__u64 own_ = 0;                              \
		(void)__sync_lock_test_and_set(&own_, 1ULL); \
	})
#endif
#define ORDER_READS()                          \
	({                                     \
		ORDER_WORDS();                 \
		asm volatile("" ::: "memory"); \
	})
#define ORDER_WRITES() ORDER_READS()

#define SWAP(place, from, to) (__sync_val_compare_and_swap((place), (from), (to)) == (from))

/* An array that user space maps too. Its size is set when it is made; `more` are further
 * attributes.
 */
#define MAPPED_ARRAY(name, record, more)           \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1);            \
		more __type(key, __u32);           \
		__type(value, record);             \
	} name SEC(".maps")

/* One that stays from one set of programs to the next: the tables. */
#define SHARED_ARRAY(name, record) MAPPED_ARRAY(name, record, __uint(pinning, LIBBPF_PIN_BY_NAME);)

/* One that is made anew with each plan and goes with its programs; user space fills it before the
 * first packet.
 */
#define PLAN_ARRAY(name, record) MAPPED_ARRAY(name, record, )

/* The record at `index` of an array; none if the array is shorter. The kernel turns the call into a
 * bounds check and a multiplication.
 */
#define RECORD(array, index)                            \
	({                                              \
		__u32 index_ = (index);                 \
		bpf_map_lookup_elem(&(array), &index_); \
	})

/* Comparisons without a branch: 1 or 0. The verifier follows every branch, and eight of them in a
 * row are 256 ways; and the processor cannot foresee where in a line an entry is. Numbers have to
 * be below 2^63. What is shifted is hidden from the compiler: from version 15 on, clang would see
 * what it stands for, and branch.
 */
static __always_inline __u64 is_zero(__u64 number)
{
	__u64 below = number - 1;

	barrier_var(below);
	return below >> 63;
}

static __always_inline __u64 is_less(__u64 a, __u64 b)
{
	__u64 difference = a - b;

	barrier_var(difference);
	return difference >> 63;
}

/* What becomes of a packet in the fast path. What is passed on goes to the next stage, and at last
 * to the engine: passing is never wrong, only slow. Nothing is dropped here.
 */
struct outcome {
	__u8 verdict;
	/* PASS: why, one of the numbers of src/miss.rs. */
	__u8 miss;
};

enum verdict {
	FORWARD = 0,
	PASS = 1,
};

#define FORWARDED ((struct outcome){ .verdict = FORWARD })
#define PASSED(why) ((struct outcome){ .verdict = PASS, .miss = (why) })

#endif
