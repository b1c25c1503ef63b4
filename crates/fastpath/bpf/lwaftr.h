/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The provider's end of Lightweight 4over6 (RFC 7596): crates/engine/src/service/lwaftr.rs, mapping/softwire_table.rs.
 * Packets that turn round and errors are the engine's.
 *
 * The table of softwires is a hash of address and port set: two rows share a cache line, and a row is in one of two lines,
 * so that a packet touches one or two of them however many softwires there are.
 */
#ifndef TOMBOLO_LWAFTR_H
#define TOMBOLO_LWAFTR_H

#include "hash.h"
#include "lpm.h"
#include "port_set.h"
#include "softwire.h"

#define SOFTWIRE_USED (1ULL << 63)
#define SOFTWIRE_KEY (SOFTWIRE_USED | ((1ULL << 48) - 1))
#define SOFTWIRE_LOCAL_SHIFT 48
#define ROWS_OF_A_BUCKET 2

/* src/softwires.rs has the same record; src/layout.rs compares them. */
struct softwire_row {
	/* 63: used. 48 to 55: which of the service's own addresses. 16 to 47: IPv4 address. 0 to 15: port set. */
	__u64 key;
	/* Address of the lwB4, as on the wire. */
	__u64 remote[2];
	__u64 unused;
};

struct softwire_bucket {
	struct softwire_row row[ROWS_OF_A_BUCKET];
};

/* Made anew with each plan. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct softwire_bucket);
} softwires SEC(".maps");

/* How the ports of each address are divided, where they are not divided alike: the next hop is offset bits, PSID bits. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lpm_line);
} softwire_divisions SEC(".maps");

/* The entry of an address (as on the wire) in the table of divisions. */
__noinline __u32 division_of(__u32 address)
{
	struct lpm_key key = { .first = (__u64)bpf_ntohl(address) << 32 };

	return lpm_lookup(&softwire_divisions, key);
}

static __always_inline struct softwire_row *softwire_in(__u32 bucket_number, __u64 key)
{
	struct softwire_bucket *bucket = RECORD(softwires, bucket_number);

	if (!bucket)
		return 0;
	if ((bucket->row[0].key & SOFTWIRE_KEY) == key)
		return &bucket->row[0];
	return (bucket->row[1].key & SOFTWIRE_KEY) == key ? &bucket->row[1] : 0;
}

/* The softwire that a port (as on the wire) of an address belongs to. */
static __always_inline struct softwire_row *softwire_of(const volatile struct service *service, __u32 address, __u16 port)
{
	__u8 offset_bits = service->offset_bits, psid_bits = service->psid_bits;
	struct softwire_row *row;
	struct buckets buckets;
	__u32 psid, entry;
	__u64 key;

	if (service->flags & SERVICE_DIVISIONS_DIFFER) {
		entry = division_of(address);
		if (entry == LPM_NONE)
			return 0;
		offset_bits = lpm_next_hop(entry) >> 8;
		psid_bits = lpm_next_hop(entry);
	}
	psid = psid_of(offset_bits, psid_bits, bpf_ntohs(port));
	if (psid == NO_PSID)
		return 0;
	key = (__u64)bpf_ntohl(address) << 16 | psid;
	buckets = buckets_of(hash(key, 0, 0), plan.softwire_buckets);
	row = softwire_in(buckets.first, SOFTWIRE_USED | key);
	return row ? row : softwire_in(buckets.second, SOFTWIRE_USED | key);
}

/* Our end of a softwire. */
static __always_inline void local_of(const volatile struct service *service, const struct softwire_row *row,
				     __u64 address[2])
{
	__u32 number = row->key >> SOFTWIRE_LOCAL_SHIFT & (LOCALS_MAX - 1);

	address[0] = service->local[number].half[0];
	address[1] = service->local[number].half[1];
}

static __always_inline bool lwaftr_claims(const volatile struct service *service, const __u64 destination[2])
{
#pragma nounroll
	for (__u32 n = 0; n < LOCALS_MAX && n < service->locals; n++)
		if (destination[0] == service->local[n].half[0] && destination[1] == service->local[n].half[1])
			return true;
	return false;
}

/* Out of a softwire: source and port must belong to it, at both of its ends. */
static __always_inline struct outcome lwaftr_inside(const volatile struct service *service,
						    const struct packet *packet, __u32 gso_size, struct rewrite *to)
{
	struct softwire_row *row;
	__u64 local[2];

	if (is_among(service->inside, service->inside_ranges, bpf_ntohl(packet->destination4)))
		return PASSED(MISS_HAIRPIN);
	row = softwire_of(service, packet->source4, packet->source_port);
	if (!row)
		return PASSED(MISS_NO_MAPPING);
	local_of(service, row, local);
	if (!is_address(row->remote, packet->outer_source) || !is_address(local, packet->outer_destination))
		return PASSED(MISS_SPOOFED);
	return carry_out(service, packet, gso_size, to);
}

/* From outside, into the softwire that has the destination and its port. */
static __always_inline struct outcome lwaftr_outside(const volatile struct service *service,
						     const struct packet *packet, __u32 gso_size, struct rewrite *to)
{
	struct softwire_row *row;
	struct outcome outcome;

	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	row = softwire_of(service, packet->destination4, packet->destination_port);
	if (!row)
		return PASSED(MISS_NO_MAPPING);
	outcome = carry_in(service, packet, gso_size, row->remote, to);
	local_of(service, row, to->outer_source);
	return outcome;
}

#endif
