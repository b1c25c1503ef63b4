// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The tester's generator and receiver.
 *
 * generate0..15: run by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, one program a sending
 * core. The kernel calls the program once a frame, in batches; the first call of a batch waits for
 * the burst's due time, the others follow at once, and the kernel flushes the batch to the device
 * that the program redirected it to. A batch that is not due within a few microseconds is dropped,
 * so that the kernel lets softirqs run between. make_burst: run once a burst, without live frames;
 * it makes the frames for user space, which sends them. receive_right, receive_left: XDP programs
 * on the two ports. They check every frame and count; everything that is not a test frame goes on
 * to the kernel (ARP, neighbour discovery). A frame may lie in several buffers: its headers and the
 * tag are in the first one, and the rest is read by bpf_xdp_load_bytes. count_refused: what drivers
 * did not take of the live frames, which their statistics need not say.
 *
 * All maps are flat arrays that user space maps; one CPU writes each of stream_state and counters;
 * bitmap, arrived and recent are atomic, for a direction may arrive on several CPUs.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "layout.h"
#include "permutation.h"
#include "checksum.h"
#include "tuple.h"
#include "build.h"
#include "check.h"

#define ARRAY(name_, type_, entries_)              \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, entries_);     \
		__type(key, __u32);                \
		__type(value, type_);              \
	} name_ SEC(".maps")

/* Sizes that depend on the machine or the trial are set by the loader. */
ARRAY(control, struct control, 1);
ARRAY(streams, struct stream, STREAMS);
ARRAY(stream_states, struct stream_state, STREAMS);
ARRAY(lane_states, struct lane_state, LANES);
ARRAY(pauses, struct pause, STREAMS *PAUSES_MAX);
ARRAY(expectations, struct expectation, 2);
ARRAY(endpoints_a, struct endpoint, 1);
ARRAY(endpoints_b, struct endpoint, 1);
ARRAY(counters, struct counters, 2);	 /* direction * cpus + cpu */
ARRAY(delays, struct histogram, 2);	 /* the same */
ARRAY(variations, struct histogram, 4);	 /* (direction * cpus + cpu) * 2 + (1 if negative) */
ARRAY(arrived, struct arrived, STREAMS); /* direction * LANES + lane */
ARRAY(recent, __u64, 2 * RECENT);	 /* number << 32 | delay plus one << 1 | pair was counted */
ARRAY(bitmap, __u64, 1);		 /* frame numbers that arrived; both directions */
ARRAY(records, struct record, 1);
ARRAY(timed, __u64, 2 * TAGGED_MAX); /* delay plus one of each timed frame */
ARRAY(made, struct made, LANES *MADE_FRAMES);

#define PIECE 512 /* the most that bpf_csum_diff takes */
#define PIECES 18 /* of a frame of 9216 bytes */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[PIECE + 8]);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps"); /* where a direction leaves: 0 the left port, 1 the right port */

/* ---- sending
 * ----------------------------------------------------------------------------------------------------
 */

#define WAIT_READS 400 /* about 8 us of waiting with softirqs held off, at most */

static __always_inline void advance(const struct stream *s, struct stream_state *st)
{
	__u64 period = st->sent >= s->second_from ? s->second_period : s->period;
	__u64 fraction = (__u64)st->due_fraction + (__u32)period;
	st->due_fraction = (__u32)fraction;
	st->due_ns += (period >> 32) + (fraction >> 32);
}

static __always_inline __u64 time_of(const struct stream_state *st)
{
	return st->due_ns > st->earliest_ns ? st->due_ns : st->earliest_ns;
}

/* Which direction's burst comes next: the earlier one of those that have not finished. A lane with
 * one direction has no frames in the other.
 */
static __always_inline __u32 next_stream(__u32 lane)
{
	__u32 forward = 2 * lane, reverse = 2 * lane + 1;
	struct stream *sf = bpf_map_lookup_elem(&streams, &forward),
		      *sr = bpf_map_lookup_elem(&streams, &reverse);
	struct stream_state *f = bpf_map_lookup_elem(&stream_states, &forward);
	struct stream_state *r = bpf_map_lookup_elem(&stream_states, &reverse);
	if (!sf || !sr || !f || !r || r->sent >= sr->frames)
		return forward;
	if (f->sent >= sf->frames)
		return reverse;
	return time_of(f) <= time_of(r) ? forward : reverse;
}

/* Notes which frames a pause of this core makes late: from the first burst that is later than
 * PAUSE_NS to the last one before a burst is on time again. A loss elsewhere is not the pause's.
 */
static __always_inline void note_pause(__u32 index, const struct stream *s, struct stream_state *st,
				       __u64 late, __u64 now)
{
	if (late <= (st->in_pause ? s->late_ns : PAUSE_NS)) {
		st->in_pause = 0;
		return;
	}
	if (!st->in_pause)
		st->pauses++;
	__u32 last = st->pauses < PAUSES_MAX ? st->pauses : PAUSES_MAX;
	__u32 slot = index * PAUSES_MAX + (last - 1) % PAUSES_MAX;
	struct pause *pause = bpf_map_lookup_elem(&pauses, &slot);
	if (!pause)
		return;
	if (!pause->at_ns) {
		pause->at_ns = now;
		pause->first = s->index_offset + st->sent * s->index_stride;
	}
	st->in_pause = 1;
	pause->end = s->index_offset + (st->sent + s->burst) * s->index_stride;
	if (late > pause->late_max_ns)
		pause->late_max_ns = late;
}

/* Whether the stream's next burst is due; waits a little for it. Late bursts are sent at once, but
 * not back to back: a gateway must not be charged for the burst that a pause of this machine
 * caused.
 */
static __always_inline int burst_is_due(__u32 index, const struct stream *s,
					struct stream_state *st, const struct control *c)
{
	if (st->sent >= s->frames)
		return 0;
	if (*(volatile const __u32 *)&c->stop) {
		st->stopped = 1;
		return 0;
	}
	__u64 due = time_of(st);
	for (int i = 0; i < WAIT_READS; i++) {
		__u64 now = bpf_ktime_get_ns();
		if (now < due)
			continue;
		/* As fast as possible has no due time: there a burst is late when it does not follow
		 * the one before.
		 */
		__u64 late = s->period ? now - st->due_ns : st->sent ? now - st->last_ns : 0;
		if (late > st->late_max_ns)
			st->late_max_ns = late;
		if (late > s->late_ns)
			st->late_bursts++;
		note_pause(index, s, st, late, now);
		st->bursts++;
		st->burst_ns = now;
		/* From the slot, not from now: else what each burst is late by slows the catching up
		 * down, at low rates to nothing.
		 */
		st->earliest_ns = (now - due < s->late_ns ? due : now) + s->batch_gap_ns;
		return 1;
	}
	return 0;
}

/* How many tuples have begun by frame `number`: one at first, then one more at a time. */
static __always_inline __u32 begun(const struct stream *s, __u32 number)
{
	__u32 all = s->permutation.size;
	return number < s->all_begun ? 1 + (__u32)((__u64)number * all / s->all_begun) : all;
}

/* Which tuple or record frame `number` of a direction has. */
static __always_inline __u32 choose(const struct stream *s, __u32 number)
{
	__u32 x = number;
	if (s->order == ORDER_RANDOM || s->order == ORDER_RECORDS_RANDOM) {
		x = scatter(begun(s, number), s->seed, number);
		if (!s->all_begun)
			return x;
	}
	return permute(&s->permutation, x);
}

#define HOSTS_CACHED 1024 /* so many stay in the cache */

/* The functions that are not static are verified on their own: their branches do not multiply with
 * their callers'.
 */

/* Loads the host of the frame so many ahead of the next one. */
__noinline int load_host(__u32 index, __u32 ahead)
{
	struct stream *s = bpf_map_lookup_elem(&streams, &index);
	struct stream_state *st = bpf_map_lookup_elem(&stream_states, &index);
	struct tuple t;
	if (!s || !st)
		return 0;
	decompose(&s->shape, choose(s, s->index_offset + (st->sent + ahead) * s->index_stride), &t);
	struct endpoint *a = bpf_map_lookup_elem(&endpoints_a, &t.a_host);
	if (a)
		(void)*(volatile __u8 *)a->left;
	return 0;
}

/* Loads the hosts of a burst all at once. One by one, each frame would wait for memory, and what
 * the tester waits the gateway is charged for where both run on one core.
 */
__noinline int load_hosts(__u32 index, __u32 burst)
{
	for (__u32 i = 0; i < 256 && i < burst; i++)
		load_host(index, i);
	return 0;
}

/* The fields of frame `number` of a direction. Returns 0, or -1 where the tuple does not exist. */
static __always_inline int choose_fields(const struct stream *s, __u32 number, struct fields *f)
{
	struct record *record = 0;
	__u32 x = choose(s, number);
	if (x >= s->permutation.size)
		return -1;
	f->tuple = x;
	if (s->order >= ORDER_RECORDS_ONCE) {
		record = bpf_map_lookup_elem(&records, &x);
		if (!record || !record->tuple_plus_one)
			return -1;
		f->tuple = record->tuple_plus_one - 1;
	}
	struct tuple t;
	decompose(&s->shape, f->tuple, &t);
	struct endpoint *a = bpf_map_lookup_elem(&endpoints_a, &t.a_host);
	struct endpoint *b = bpf_map_lookup_elem(&endpoints_b, &t.b_host);
	if (!a || !b)
		return -1;
	if (record) {
		/* An answer to what the responder saw. IPv6 addresses on its side never depend on
		 * the gateway's state.
		 */
		f->source = b->right;
		f->destination = a->right;
		f->inner_source_be = record->destination;
		f->inner_destination_be = record->source;
		f->source_port_be = record->destination_port;
		f->destination_port_be = record->source_port;
		if (s->foreground.kind == KIND_IPV4) {
			f->learned[0] = record->destination;
			f->learned[2] = record->source;
			f->source = (__u8 *)&f->learned[0];
			f->destination = (__u8 *)&f->learned[2];
		}
		return 0;
	}
	__u16 port = a_port(&s->shape, a, t.a_index);
	if (s->direction == 0) {
		f->source = a->left;
		f->destination = b->left;
		f->inner_source_be = a->left_inner;
		f->inner_destination_be = b->left_inner;
		f->source_port_be = bpf_htons(port);
		f->destination_port_be = bpf_htons(t.b_port);
	} else {
		f->source = b->right;
		f->destination = a->right;
		f->inner_source_be = b->right_inner;
		f->inner_destination_be = a->right_inner;
		f->source_port_be = bpf_htons(t.b_port);
		f->destination_port_be = bpf_htons(port);
	}
	return 0;
}

/* Background frames are native IPv6 between two fixed addresses of the template; their ports vary
 * like the others'.
 */
static __always_inline void background_fields(const struct stream *s, __u32 number,
					      struct fields *f)
{
	f->source = (__u8 *)s->background.bytes + 22;
	f->destination = (__u8 *)s->background.bytes + 38;
	__u64 r = mix64((__u64)s->seed << 32 | number);
	f->source_port_be = bpf_htons(1024 + (__u16)((r >> 48) % 64512));
	f->destination_port_be = bpf_htons(1 + (__u16)((r >> 16 & 0xffff) % 49151));
	f->tuple = 0;
}

/* Who sends the frame: the kernel, by the port that the program redirects it to, or user space. */
enum exit { EXIT_KERNEL, EXIT_USER };

/* Leaves the frame, of so many bytes, for user space. */
static __always_inline int hand_over(struct xdp_md *ctx, __u32 lane, const struct lane_state *l,
				     __u32 length, __u32 port)
{
	__u32 place = l->burst - l->position - 1;
	__u32 slot = lane * MADE_FRAMES + place % MADE_FRAMES;
	struct made *m = bpf_map_lookup_elem(&made, &slot);
	if (!m || bpf_xdp_load_bytes(ctx, 0, m->bytes, TEMPLATE_BYTES))
		return XDP_ABORTED;
	m->length = length;
	m->port = port;
	return XDP_TX;
}

static __always_inline int generate(struct xdp_md *ctx, __u32 lane, enum exit exit)
{
	__u32 zero = 0;
	struct lane_state *l = bpf_map_lookup_elem(&lane_states, &lane);
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	if (!l || !c)
		return XDP_DROP;
	int starts = l->position == 0;
	if (starts) {
		l->position = l->burst;
		l->stream = next_stream(lane);
	}
	l->position--;
	__u32 index = l->stream;
	struct stream *s = bpf_map_lookup_elem(&streams, &index);
	struct stream_state *st = bpf_map_lookup_elem(&stream_states, &index);
	if (!s || !st)
		return XDP_DROP;
	if (starts) {
		l->sending = burst_is_due(index, s, st, c);
		if (l->sending && s->shape.a_hosts > HOSTS_CACHED && s->order < ORDER_RECORDS_ONCE)
			load_hosts(index, l->burst);
	}
	if (!l->sending || st->sent >= s->frames)
		return XDP_DROP;

	struct fields f = {};
	f.number = s->index_offset + st->sent * s->index_stride;
	int is_background = s->mix_n && (__u64)f.number * s->mix_m % s->mix_n >= s->mix_m;
	f.kind = (s->direction ? TAG_REVERSE : 0) | (is_background ? TAG_BACKGROUND : 0);
	if (s->timed_every && f.number >= s->timed_from &&
	    (f.number - s->timed_from) % s->timed_every == 0)
		f.kind |= TAG_TIMED;
	const struct frame_template *t = is_background ? &s->background : &s->foreground;
	if (s->flags & STREAM_IMIX)
		t = &s->foreground + imix_template(f.number);
	int shorter = (int)t->length - (int)((void *)(long)ctx->data_end - (void *)(long)ctx->data);
	if (exit == EXIT_KERNEL && shorter && bpf_xdp_adjust_tail(ctx, shorter))
		goto failed;
	if (is_background)
		background_fields(s, f.number, &f);
	else if (choose_fields(s, f.number, &f))
		goto failed;

	__u64 now = s->flags & STREAM_UNTIMED ? st->burst_ns : bpf_ktime_get_ns();
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (build(data, end, t, &f, now))
		goto failed;
	if (s->flags & STREAM_MIXED)
		restore_filler(data, end, t);
	if (!st->sent)
		st->first_ns = now;
	st->last_ns = now;
	st->sent++;
	st->background += is_background;
	advance(s, st);
	__u32 port = s->direction ? 1 : 0;
	if (exit == EXIT_USER)
		return hand_over(ctx, lane, l, t->length, port);
	return bpf_redirect_map(&ports, port, 0);
failed:
	st->failed++;
	st->sent++;
	advance(s, st);
	return XDP_DROP;
}

#define GENERATOR(n)                                   \
	SEC("xdp") int generate##n(struct xdp_md *ctx) \
	{                                              \
		return generate(ctx, n, EXIT_KERNEL);  \
	}
GENERATOR(0)
GENERATOR(1)
GENERATOR(2)
GENERATOR(3)
GENERATOR(4)
GENERATOR(5)
GENERATOR(6)
GENERATOR(7)
GENERATOR(8)
GENERATOR(9)
GENERATOR(10)
GENERATOR(11)
GENERATOR(12)
GENERATOR(13)
GENERATOR(14)
GENERATOR(15)

/* The next frame of the lane's burst. Returns how many the burst has left, or -1 where no frame was
 * made: none is due, or there are no more. Verified once, not in each round of the loop below.
 */
__noinline int make_one(struct xdp_md *ctx, __u32 lane)
{
	struct lane_state *l = bpf_map_lookup_elem(&lane_states, &lane);
	if (!l)
		return -1;
	if (generate(ctx, lane, EXIT_USER) == XDP_TX)
		return l->position;
	l->position = 0;
	return -1;
}

/* Makes a burst, or MADE_FRAMES of it, and returns how many frames these are. The first word of
 * what the program is run on is the number of the lane; it is long enough for every frame's
 * headers.
 */
SEC("xdp") int make_burst(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + sizeof(__u32) > end)
		return 0;
	__u32 lane = *(__u32 *)data;
	for (int made_now = 0; made_now < MADE_FRAMES; made_now++) {
		int left = make_one(ctx, lane);
		if (left < 0)
			return made_now;
		if (!left)
			return made_now + 1;
	}
	return MADE_FRAMES;
}

/* What a driver does not take of a batch of live frames it says only here: to the tracepoint
 * xdp_devmap_xmit(from, to, sent, drops, error).
 */
SEC("raw_tracepoint/xdp_devmap_xmit")
int count_refused(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0;
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	int drops = (int)ctx->args[3];
	if (c && drops > 0 && bpf_get_current_pid_tgid() >> 32 == c->process)
		__sync_fetch_and_add(&c->refused, drops);
	return 0;
}

/* ---- receiving
 * --------------------------------------------------------------------------------------------------
 */

/* Log-linear: the position of the highest bit gives the octave, the next bits the bucket in it. */
__noinline int bucket_of(__u64 ns)
{
	if (ns < 1 << HISTOGRAM_SUB_BITS)
		return (int)ns;
	__u32 high = 0;
	__u64 x = ns;
	if (x >> 32) {
		high += 32;
		x >>= 32;
	}
	if (x >> 16) {
		high += 16;
		x >>= 16;
	}
	if (x >> 8) {
		high += 8;
		x >>= 8;
	}
	if (x >> 4) {
		high += 4;
		x >>= 4;
	}
	if (x >> 2) {
		high += 2;
		x >>= 2;
	}
	if (x >> 1)
		high += 1;
	__u32 shift = high - HISTOGRAM_SUB_BITS;
	return (shift + 1) * (1 << HISTOGRAM_SUB_BITS) +
	       ((ns >> (shift & 63)) & ((1 << HISTOGRAM_SUB_BITS) - 1));
}

/* Sum of the `bytes` after the tag, folded; -1 where the frame is shorter. Copied out in pieces,
 * because the verifier follows a loop over the packet once for each length.
 */
__noinline int filler_sum(struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
	__u32 zero = 0;
	__u8 *piece = bpf_map_lookup_elem(&scratch, &zero);
	__s64 sum = 0;
	if (!piece)
		return -1;
	for (int i = 0; i < PIECES && bytes; i++) {
		__u32 n = bytes < PIECE ? bytes : PIECE;
		/* It is 1 to PIECE, said so that the verifier of Linux 6.1 sees it as well. */
		barrier_var(n);
		n = ((n - 1) & (PIECE - 1)) + 1;
		if (bpf_xdp_load_bytes(ctx, offset, piece, n))
			return -1;
		piece[n] = 0;
		piece[n + 1] = 0;
		piece[n + 2] = 0;
		sum = bpf_csum_diff(0, 0, (__be32 *)piece, (n + 3) & ~3u, (__u32)sum);
		offset += n;
		bytes -= n;
	}
	return fold((__u32)sum);
}

/* Whether the frame has so many bytes or more, in however many buffers. */
__noinline int has_bytes(struct xdp_md *ctx, __u32 bytes)
{
	__u32 linear = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	return linear >= bytes || bpf_xdp_get_buff_len(ctx) >= bytes;
}

static __always_inline void count_in(struct histogram *h, __u64 ns)
{
	__u32 bucket = bucket_of(ns);
	if (!h)
		return;
	if (bucket >= HISTOGRAM_BUCKETS)
		bucket = HISTOGRAM_BUCKETS - 1;
	h->buckets[bucket]++;
}

static __always_inline void count_delay(struct counters *n, __u32 slot, __u64 delay)
{
	n->delay_sum_ns += delay;
	if (delay < n->delay_min_ns || !n->delay_min_ns)
		n->delay_min_ns = delay;
	if (delay > n->delay_max_ns)
		n->delay_max_ns = delay;
	count_in(bpf_map_lookup_elem(&delays, &slot), delay);
}

/* D(i) - D(i - 1) of two frames that follow each other (RFC 8219 section 7.3.2): once for each pair,
 * by whichever of the two finds that both are there. `claim` is the later frame's place.
 */
static __always_inline void count_pair(__u64 *claim, __u64 before, __u64 after, __u32 slot)
{
	if (__sync_fetch_and_or(claim, 1) & 1)
		return;
	__u32 d = (__u32)before >> 1, e = (__u32)after >> 1;
	__u32 index = slot * 2 + (e < d);
	count_in(bpf_map_lookup_elem(&variations, &index), e < d ? d - e : e - d);
}

static __always_inline __u64 *recent_of(__u32 direction, __u32 number)
{
	__u32 index = direction * RECENT + (number & (RECENT - 1));
	return bpf_map_lookup_elem(&recent, &index);
}

/* The two may arrive on different CPUs, in either order. */
__noinline int count_variation(__u32 slot, __u32 direction, __u32 number, __u64 delay)
{
	__u64 *own = recent_of(direction, number), *previous = recent_of(direction, number - 1),
	      *next = recent_of(direction, number + 1);
	if (!own || !previous || !next)
		return 0;
	__u64 entry = (__u64)number << 32 | (delay < 0x7ffffffe ? delay + 1 : 0x7fffffff) << 1;
	/* An exchange is a full barrier: of two frames at once, at least one sees the other. */
	__sync_lock_test_and_set(own, entry);
	__u64 p = *(volatile __u64 *)previous, n = *(volatile __u64 *)next;
	if (p && number && (__u32)(p >> 32) == number - 1)
		count_pair(own, p, entry, slot);
	if (n && (__u32)(n >> 32) == number + 1)
		count_pair(next, entry, n, slot);
	return 0;
}

/* Everything that is counted of the delay of frame `number`. */
static __always_inline void count_times(struct counters *n, const struct expectation *e, __u32 slot,
					__u32 number, __u8 kind, __u64 delay)
{
	__u32 direction = kind & TAG_REVERSE ? 1 : 0;
	count_delay(n, slot, delay);
	if (e->flags & EXPECT_IPDV)
		count_variation(slot, direction, number, delay);
	if (!(kind & TAG_TIMED) || !e->timed_every)
		return;
	__u32 index = (number - e->timed_from) / e->timed_every;
	if (index >= TAGGED_MAX)
		return;
	index += direction * TAGGED_MAX;
	__u64 *place = bpf_map_lookup_elem(&timed, &index);
	if (place)
		*place = delay + 1;
}

/* Whether a frame of the same sending core with a higher number has arrived, on whichever CPU (RFC
 * 4737 section 3.3).
 */
__noinline int is_overtaken(__u32 direction, __u32 lane, __u32 number)
{
	__u32 index = direction * LANES + (lane & (LANES - 1));
	struct arrived *own = bpf_map_lookup_elem(&arrived, &index);
	if (!own)
		return 0;
	__u32 *highest = &own->highest;
	__u32 known = *(volatile __u32 *)highest;
	for (int i = 0; i < 4 && known <= number; i++) {
		__u32 found = __sync_val_compare_and_swap(highest, known, number);
		if (found == known)
			return 0;
		known = found;
	}
	return known > number;
}

/* Marks the number as arrived, the `index`-th of its lane; returns 1 if it had been before, -1 if
 * there is no such number. Each lane has words of its own: two cores that set bits in turn in one
 * line would wait for each other.
 */
static __always_inline int mark(const struct expectation *e, __u32 number, __u32 lane, __u32 index)
{
	if (number >= e->frames)
		return -1;
	__u32 word = (__u32)e->bitmap_first + lane * e->lane_words + (index >> 6);
	__u64 *w = bpf_map_lookup_elem(&bitmap, &word);
	if (!w)
		return -1;
	__u64 bit = 1ull << (index & 63);
	return (__sync_fetch_and_or(w, bit) & bit) ? 1 : 0;
}

static __always_inline void remember(const struct arrival *a, __u32 number, __u32 tuple)
{
	struct record *r = bpf_map_lookup_elem(&records, &number);
	if (!r)
		return;
	const __u32 *w = a->inner;
	const __u16 *u = (const __u16 *)a->transport;
	if (w) {
		r->source = w[3];
		r->destination = w[4];
	}
	r->source_port = u[0];
	r->destination_port = u[1];
	r->tuple_plus_one = tuple + 1;
}

static __always_inline void count_errors(struct counters *n, __u32 errors)
{
#pragma unroll
	for (int i = 0; i < ERRORS; i++)
		if (errors & (1u << i))
			n->errors[i]++;
}

static __always_inline int receive(struct xdp_md *ctx, __u32 direction)
{
	__u32 zero = 0;
	struct expectation *e = bpf_map_lookup_elem(&expectations, &direction);
	struct control *c = bpf_map_lookup_elem(&control, &zero);
	if (!e || !c || !e->active)
		return XDP_PASS;
	__u64 now = e->flags & EXPECT_UNTIMED ? bpf_ktime_get_coarse_ns() : bpf_ktime_get_ns();
	__u32 slot = direction * c->cpus + bpf_get_smp_processor_id();
	struct counters *n = bpf_map_lookup_elem(&counters, &slot);
	if (!n)
		return XDP_PASS;

	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct arrival a = {};
	enum arrival_kind what = parse(data, end, e, &a);
	if (what != ARRIVAL_TEST) {
		if (what == ARRIVAL_ICMP)
			n->icmp++;
		else
			n->foreign++;
		return XDP_PASS;
	}
	if (a.tag[2] != e->trial) {
		n->stray++;
		return XDP_DROP;
	}
	__u8 kind = a.tag[3];
	__u32 template = kind & TAG_BACKGROUND ? TEMPLATE_BACKGROUND : TEMPLATE_FOREGROUND;
	/* The number is not yet believed; if it is wrong, so is the checksum. */
	if (e->flags & EXPECT_IMIX)
		template = imix_template(read32(a.tag + 8));
	__u32 filler = e->filler_sums[template & 3];
	if (fold(head_sum(&a, e) + filler) != 0xffff) {
		n->unreadable++;
		n->errors[ERROR_UDP_CHECKSUM]++;
		return XDP_DROP;
	}
	__u32 number = read32(a.tag + 8), tuple = read32(a.tag + 4);
	__u64 sent = (__u64)read16(a.tag + 12) << 32 | read32(a.tag + 14);
	int background = kind & TAG_BACKGROUND;
	int reverse = kind & TAG_REVERSE;
	__u64 delay = (now - sent) & 0xffffffffffffull;
	volatile __u32 *wrong = &n->wrong;
	*wrong = is_set((e->timeout_ns - delay) >> 63) << ERROR_LATE;
	__u16 ip_bytes = e->ip_bytes[template & 3];
	check_headers(&a, e, background, ip_bytes, has_bytes(ctx, 14u + ip_bytes), wrong);
	if (!reverse != !direction)
		BAD(ERROR_DIRECTION);
	if (a.inner && !ipv4_header_is_sound(a.inner))
		BAD(ERROR_IP_CHECKSUM);
	__u32 after_tag = a.transport_offset + e->transport_bytes + TAG_BYTES;
	__u32 filler_bytes = 14u + a.ip_bytes - after_tag;
	if ((number & e->sample_mask) == 0 && !*wrong &&
	    filler_sum(ctx, after_tag, filler_bytes) != fold(filler))
		BAD(ERROR_FILLER);
	if (background) {
		check_background(&a, e, wrong);
	} else if (!(*wrong & (1u << ERROR_FAMILY))) {
		struct tuple t;
		decompose(&e->shape, tuple, &t);
		struct endpoint *host_a = bpf_map_lookup_elem(&endpoints_a, &t.a_host);
		struct endpoint *host_b = bpf_map_lookup_elem(&endpoints_b, &t.b_host);
		if (host_a && host_b)
			check_tuple(&a, e, direction, &t, host_a, host_b, wrong);
		else
			BAD(ERROR_NUMBER);
	}
	__u32 index = number, lane = take(&index, e->index_stride ? e->index_stride : 1);
	int seen = mark(e, number, lane, index);
	if (seen > 0) {
		n->duplicates++;
		return XDP_DROP;
	}
	if (seen < 0)
		BAD(ERROR_NUMBER);
	__u32 errors = *wrong;
	if (errors) {
		n->errored++;
		count_errors(n, errors);
	} else {
		n->received++;
		n->bytes += a.ip_bytes;
		n->background += background ? 1 : 0;
	}
	if (!background)
		n->ttl_seen = a.hop_limit;
	if (!n->first_ns)
		n->first_ns = now;
	else if (now - n->last_ns > n->gap_max_ns && n->last_ns) {
		n->gap_max_ns = now - n->last_ns;
		n->gap_max_at_ns = now;
	}
	n->last_ns = now;
	if (is_overtaken(direction, lane, number))
		n->reordered++;
	if (!(e->flags & EXPECT_UNTIMED))
		count_times(n, e, slot, number, kind, delay);
	if (e->flags & EXPECT_RECORD && !errors)
		remember(&a, number, tuple);
	return XDP_DROP;
}

SEC("xdp.frags") int receive_right(struct xdp_md *ctx)
{
	return receive(ctx, 0);
}

SEC("xdp.frags") int receive_left(struct xdp_md *ctx)
{
	return receive(ctx, 1);
}

char _license[] SEC("license") = "GPL";
