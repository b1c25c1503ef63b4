/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The provider's end of Lightweight 4over6 (RFC 7596): crates/engine/src/service/lwaftr.rs,
 * mapping/softwire_table.rs. Hairpins and ICMP errors are the engine's.
 *
 * Softwires are indexed, not searched for. Blocks and shares are few enough to stay in the cache;
 * rows are not.
 *
 * 	address / 256 --> block of 256 shares (2 bytes)
 * 	address % 256     --> share of the address (8 bytes) --PSID--> row (16 bytes)
 *
 * Block 0 and row 0 are empty: addresses and PSIDs without softwires lead to row 0.
 */
#ifndef TOMBOLO_LWAFTR_H
#define TOMBOLO_LWAFTR_H

#include "port_set.h"
#include "softwire.h"

PLAN_ARRAY(softwire_blocks, struct softwire_blocks);
PLAN_ARRAY(softwire_shares, struct softwire_share);
PLAN_ARRAY(softwire_rows, struct softwire_row);
PLAN_ARRAY(softwire_locals, struct softwire_locals);

/* The softwire of a port (as on the wire) of an address, and its number; none if nobody has the
 * port.
 */
static __always_inline struct softwire_row *softwire_of(__u32 address, __u16 port, __u32 *number)
{
	/* Of addresses below the first block the difference is beyond every array. */
	__u32 block = bpf_ntohl(address) / SHARES_OF_A_BLOCK - plan.softwire_first_block, psid;
	struct softwire_blocks *blocks = RECORD(softwire_blocks, block / BLOCKS_OF_A_LINE);
	struct softwire_share *share;
	struct softwire_row *row;

	if (!blocks)
		return 0;
	block = blocks->number[block % BLOCKS_OF_A_LINE];
	share = RECORD(softwire_shares,
		       block * SHARES_OF_A_BLOCK + bpf_ntohl(address) % SHARES_OF_A_BLOCK);
	if (!share)
		return 0;
	/* NO_PSID is beyond the last one, too. */
	psid = psid_of(share->offset_bits, share->psid_bits, bpf_ntohs(port));
	if (psid > share->last)
		return 0;
	*number = share->first + psid;
	row = RECORD(softwire_rows, *number);
	return row && (row->remote[0] || row->remote[1]) ? row : 0;
}

/* Our end of the softwire with this number. */
static __always_inline void local_of(const volatile struct service *service, __u32 softwire,
				     __u64 address[2])
{
	struct softwire_locals *locals;
	__u32 number = 0;

	if (service->locals > 1) {
		locals = RECORD(softwire_locals, softwire / LOCALS_OF_A_LINE);
		number = locals ? locals->number[softwire % LOCALS_OF_A_LINE] % LOCALS_MAX : 0;
	}
	address[0] = service->local[number][0];
	address[1] = service->local[number][1];
}

static __always_inline bool is_among_locals(const volatile struct service *service,
					    const __u64 destination[2])
{
#pragma nounroll
	for (__u32 n = 0; n < LOCALS_MAX && n < service->locals; n++)
		if (destination[0] == service->local[n][0] &&
		    destination[1] == service->local[n][1])
			return true;
	return false;
}

/* Out of a softwire: source and port must belong to it, at both of its ends. */
static __always_inline struct outcome lwaftr_inside(const volatile struct service *service,
						    struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct softwire_row *row;
	__u64 local[2];
	__u32 number;

	if (is_among(service->inside, service->inside_ranges, bpf_ntohl(packet->destination4)))
		return PASSED(MISS_HAIRPIN);
	if (is_service_continuity(packet->destination4))
		return PASSED(MISS_SCREENED);
	row = softwire_of(packet->source4, packet->source_port, &number);
	if (!row)
		return PASSED(MISS_NO_MAPPING);
	local_of(service, number, local);
	if (!is_address(row->remote, packet->outer_source) ||
	    !is_address(local, packet->outer_destination))
		return PASSED(MISS_SPOOFED);
	return carry_out(service, scratch);
}

/* From outside, into the softwire that has the destination and its port. */
static __always_inline struct outcome lwaftr_outside(const volatile struct service *service,
						     struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	struct softwire_row *row;
	struct outcome outcome;
	__u32 number;

	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	if (packet->space == SPACE_ICMP && service->flags & SERVICE_NO_INBOUND_ICMP)
		return PASSED(MISS_POLICY);
	/* Subscribers come through their softwires. */
	if (is_among(service->inside, service->inside_ranges, bpf_ntohl(packet->source4)))
		return PASSED(MISS_SPOOFED);
	row = softwire_of(packet->destination4, packet->destination_port, &number);
	if (!row)
		return PASSED(MISS_NO_MAPPING);
	outcome = carry_in(service, scratch, row->remote);
	local_of(service, number, to->outer_source);
	return outcome;
}

#endif
