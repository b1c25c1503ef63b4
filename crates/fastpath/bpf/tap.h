/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What a trace sees: packets that are asked for, as they come and as they leave, for user space.
 *
 * Only the programs of traced.bpf.c have any of this; they stand in for the ordinary ones while
 * somebody traces. A packet is shown if one of its addresses, before or after, lies in one of the
 * prefixes; which end of what it is, user space finds out. What finds no room in the ring is counted.
 *
 * Its records are in src/record/tap.rs.
 */
#ifndef TOMBOLO_TAP_H
#define TOMBOLO_TAP_H

#include "translate.h"

#ifdef IS_TRACED

const volatile struct tap tap;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TAP_RING_BYTES);
} tap_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tap_state);
} tap_states SEC(".maps");

static __always_inline bool tap_has(const __u64 address[2], bool is_ipv4)
{
	for (__u32 n = 0; n < TAP_PREFIXES; n++) {
		const volatile struct tap_prefix *prefix = &tap.any[n];

		if (n >= tap.prefixes)
			break;
		if (prefix->is_ipv4 == is_ipv4 &&
		    !((address[0] & prefix->mask[0]) ^ prefix->bits[0]) &&
		    !((address[1] & prefix->mask[1]) ^ prefix->bits[1]))
			return true;
	}
	return false;
}

static __always_inline bool tap_has_port(const struct scratch *scratch, bool is_sent)
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;

	if (!tap.port || packet->source_port == tap.port || packet->destination_port == tap.port)
		return true;
	return is_sent && !to->keeps_transport &&
	       (to->source_port == tap.port || to->destination_port == tap.port);
}

/* `is_sent`: it is known how it leaves. */
static __always_inline bool tap_wants(const struct scratch *scratch, bool is_sent)
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;

	if (tap.space != TAP_ANY && packet->space != tap.space)
		return false;
	if (!tap_has_port(scratch, is_sent))
		return false;
	if (!tap.prefixes || tap_has(packet->source, packet->is_ipv4) ||
	    tap_has(packet->destination, packet->is_ipv4))
		return true;
	if (packet->is_tunnelled &&
	    (tap_has(packet->outer_source, false) || tap_has(packet->outer_destination, false)))
		return true;
	if (!is_sent)
		return false;
	if (to->encapsulate &&
	    (tap_has(to->outer_source, false) || tap_has(to->outer_destination, false)))
		return true;
	return tap_has(to->source, to->direction != TO6) ||
	       tap_has(to->destination, to->direction != TO6);
}

/* The first bytes of a packet, of which there is at least a header. */
static __always_inline void tap_copy(void *ctx, __u8 stage, __u8 *bytes, __u32 length)
{
	/* The verifier sees the bounds of what is compared, so the compiler may compare nothing else. */
	barrier_var(length);
	if (length > TAP_BYTES)
		length = TAP_BYTES;
	barrier_var(length);
	if (length < sizeof(struct iphdr))
		return;
	if (stage == TAP_XDP)
		bpf_xdp_load_bytes(ctx, ETH_HLEN, bytes, length);
	else
		bpf_skb_load_bytes(ctx, ETH_HLEN, bytes, length);
}

static __always_inline void tap_send(struct tap_state *state)
{
	if (bpf_ringbuf_output(&tap_events, &state->event, sizeof(state->event), BPF_RB_NO_WAKEUP))
		state->lost++;
}

/* Whether a packet is wanted and there is room for it; then it is in this core's state, as it came.
 *
 * A function: before Linux 6.13 all that calls one another has 512 bytes of stack, and the deepest
 * calls of the ordinary programs leave little of that. Its caller copies the bytes, by the means of
 * its stage.
 */
static __noinline bool tap_take(__u8 stage, __u32 interface, const struct scratch *scratch,
				bool is_sent)
{
	const __u64 most = TAP_RING_BYTES - 2 * sizeof(struct tap_event);
	struct tap_state *state = RECORD(tap_states, 0);
	__u32 outer = (scratch->packet.is_tunnelled ? sizeof(struct ipv6hdr) : 0) +
		      (came_in_header(&scratch->packet) ? sizeof(struct ipv6hdr) : 0);

	if (!state || !tap_wants(scratch, is_sent))
		return false;
	if (bpf_ringbuf_query(&tap_events, BPF_RB_AVAIL_DATA) > most) {
		state->lost++;
		return false;
	}
	state->event.time = bpf_ktime_get_ns();
	state->event.interface = interface;
	state->event.stage = stage;
	state->event.received_length = scratch->packet.length + outer;
	return true;
}

/* It is passed on. What is nobody's here is not shown. */
static __always_inline void tap_passed(void *ctx, __u8 stage, __u32 interface,
				       const struct scratch *scratch, __u8 miss)
{
	struct tap_state *state = RECORD(tap_states, 0);

	if (!state || miss == MISS_NOT_OURS)
		return;
	if (!tap_take(stage, interface, scratch, false))
		return;
	tap_copy(ctx, stage, state->event.received, state->event.received_length);
	state->event.fate = TAP_PASSED;
	state->event.miss = miss;
	state->event.sent_length = 0;
	tap_send(state);
}

/* It is about to be written, */
static __always_inline void tap_received(void *ctx, __u8 stage, __u32 interface,
					 const struct scratch *scratch)
{
	struct tap_state *state = RECORD(tap_states, 0);

	if (!state)
		return;
	state->event.is_open = tap_take(stage, interface, scratch, true);
	if (state->event.is_open)
		tap_copy(ctx, stage, state->event.received, state->event.received_length);
}

/* and was. */
static __always_inline void tap_sent(void *ctx, __u8 stage, const struct scratch *scratch)
{
	struct tap_state *state = RECORD(tap_states, 0);
	const struct rewrite *to = &scratch->rewrite;
	__u32 length = to->length + (to->encapsulate ? sizeof(struct ipv6hdr) : 0);

	if (!state || !state->event.is_open)
		return;
	state->event.fate = TAP_FORWARDED;
	state->event.side = to->side & 1;
	state->event.service = to->service;
	state->event.sent_length = length;
	tap_copy(ctx, stage, state->event.sent, length);
	tap_send(state);
}

#else

#define tap_passed(...) ((void)0)
#define tap_received(...) ((void)0)
#define tap_sent(...) ((void)0)

#endif

#endif
