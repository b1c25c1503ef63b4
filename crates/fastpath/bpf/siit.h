/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Stateless translation (RFC 7915) with explicit mappings (RFC 7757), and the CLAT:
 * crates/engine/src/service/siit.rs, mapping/stateless.rs, mapping/eam.rs. Hairpins, ICMP errors,
 * and what has no mapping are the engine's.
 */
#ifndef TOMBOLO_SIIT_H
#define TOMBOLO_SIIT_H

#include "lpm.h"
#include "nat44.h"
#include "nat64.h"

/* Both columns as longest-prefix tables; the next hop is the row. */
PLAN_ARRAY(explicit_ipv4, struct lpm_line);
PLAN_ARRAY(explicit_ipv6, struct lpm_line);

PLAN_ARRAY(explicit_rows, struct explicit_row);

/* The row that has an address, plus one; 0 if none has. */
__noinline __u32 look_up_ipv4_row(__u32 address)
{
	struct lpm_key key = { .first = (__u64)address << 32 };
	__u32 entry = lpm_lookup(&explicit_ipv4, key);

	return entry == LPM_NONE ? 0 : lpm_next_hop(entry) + 1;
}

__noinline __u32 look_up_ipv6_row(__u64 first, __u64 second)
{
	struct lpm_key key = { .first = first, .second = second };
	__u32 entry = lpm_lookup(&explicit_ipv6, key);

	return entry == LPM_NONE ? 0 : lpm_next_hop(entry) + 1;
}

/* The same for an address as on the wire, without a look-up if it lies below or above all rows. */
static __always_inline __u32 row_of_ipv4(__u32 address)
{
	__u32 number = bpf_ntohl(address);

	if (!plan.explicit_rows || number < plan.explicit_ipv4.first ||
	    number > plan.explicit_ipv4.last)
		return 0;
	return look_up_ipv4_row(number);
}

static __always_inline __u32 row_of_ipv6(__u64 first, __u64 second)
{
	if (!plan.explicit_rows)
		return 0;
	first = bpf_be64_to_cpu(first);
	second = bpf_be64_to_cpu(second);
	if (first < plan.explicit_ipv6_first || first > plan.explicit_ipv6_last)
		return 0;
	return look_up_ipv6_row(first, second);
}

/* The IPv4 address that stands for an IPv6 address; `by_prefix` says that no row did. */
static __always_inline bool mapped_to_ipv4(const volatile struct service *service,
					   const __u64 address[2], __u32 *mapped, bool *by_prefix)
{
	__u32 number = row_of_ipv6(address[0], address[1]);
	struct explicit_row *row = number ? RECORD(explicit_rows, number - 1) : 0;
	__u64 high = bpf_be64_to_cpu(address[0]), low = bpf_be64_to_cpu(address[1]);
	__u32 suffix;

	*by_prefix = !row;
	if (row) {
		if (row->shift >= 64)
			suffix = high >> (row->shift & 63);
		else
			suffix = row->shift ? high << (64 - row->shift) | low >> row->shift : low;
		*mapped = bpf_htonl(row->ipv4 | (suffix & row->suffix));
		return true;
	}
	*mapped = extract(&service->prefix, address);
	return is_in_prefix(&service->prefix, address) && !is_forbidden(service, *mapped);
}

static __always_inline bool embedded(const volatile struct service *service, __u32 address4,
				     __u64 address[2])
{
	embed(&service->prefix, address4, address);
	return service->prefix.present && !is_forbidden(service, address4);
}

/* The IPv6 address that stands for an IPv4 address. */
static __always_inline bool mapped_to_ipv6(const volatile struct service *service, __u32 address4,
					   __u64 address[2])
{
	__u32 number = row_of_ipv4(address4);
	struct explicit_row *row = number ? RECORD(explicit_rows, number - 1) : 0;
	__u64 suffix, high, low;

	if (!row)
		return embedded(service, address4, address);
	suffix = bpf_ntohl(address4) & row->suffix;
	if (row->shift >= 64) {
		high = suffix << (row->shift & 63);
		low = 0;
	} else {
		high = row->shift ? suffix >> (64 - row->shift) : 0;
		low = suffix << row->shift;
	}
	address[0] = bpf_cpu_to_be64(row->ipv6[0] | high);
	address[1] = bpf_cpu_to_be64(row->ipv6[1] | low);
	return true;
}

static __always_inline struct outcome siit_from_ipv6(const volatile struct service *service,
						     struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	bool by_prefix;
	__u8 miss;

	if (is_illegal_source_ipv6(packet->source))
		return PASSED(MISS_SCREENED);
	miss = untranslated(service, scratch);
	if (miss)
		return PASSED(miss);
	if (!mapped_to_ipv4(service, packet->source, &to->source4, &by_prefix) ||
	    !mapped_to_ipv4(service, packet->destination, &to->destination4, &by_prefix))
		return PASSED(MISS_NO_MAPPING);
	if (is_illegal_ipv4(to->source4) || is_illegal_ipv4(to->destination4))
		return PASSED(MISS_SCREENED);
	/* RFC 7757 section 4.2.2, condition set A. */
	if (by_prefix && service->flags & SERVICE_HAIRPIN_INTRINSIC &&
	    row_of_ipv4(to->destination4))
		return PASSED(MISS_HAIRPIN);
	if (!fit_to4(service, scratch))
		return PASSED(MISS_SIZE);
	become_ipv4(service, scratch,
		    service->flags & SERVICE_AT_CUSTOMER ? SIDE_OUTSIDE : SIDE_INSIDE);
	to->source_port = packet->source_port;
	to->destination_port = packet->destination_port;
	to->identification = next_identification(scratch, to->source4, to->destination4);
	return FORWARDED;
}

static __always_inline struct outcome siit_from_ipv4(const volatile struct service *service,
						     struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	bool is_mapped;
	__u8 miss;

	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	miss = untranslated(service, scratch);
	if (miss)
		return PASSED(miss);
	if (!fit_to6(service, scratch))
		return PASSED(MISS_SIZE);
	/* Rule 1 of RFC 7757 section 4.2.1. */
	is_mapped = service->flags & SERVICE_HAIRPIN_SIMPLE ?
			    embedded(service, packet->source4, to->source) :
			    mapped_to_ipv6(service, packet->source4, to->source);
	if (!is_mapped || !mapped_to_ipv6(service, packet->destination4, to->destination))
		return PASSED(MISS_NO_MAPPING);
	if (is_illegal_source_ipv6(to->source))
		return PASSED(MISS_SCREENED);
	become_ipv6(service, scratch,
		    service->flags & SERVICE_AT_CUSTOMER ? SIDE_INSIDE : SIDE_OUTSIDE);
	to->source_port = packet->source_port;
	to->destination_port = packet->destination_port;
	return FORWARDED;
}

#endif
