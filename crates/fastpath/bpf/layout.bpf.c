// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Tells where the fields of the shared records are, for the test that compares them with Rust's
 * (src/layout.rs).
 */
#include "lwaftr.h"
#include "map_rule.h"
#include "route.h"
#include "siit.h"
#include "interface.h"

#define PLACES 192

struct place {
	__u32 offset;
	__u32 size;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, struct place);
} places SEC(".maps");

#define FIELD(record, field) { offsetof(struct record, field), sizeof(((struct record *)0)->field) }
#define WHOLE(record) { 0, sizeof(struct record) }

/* Volatile: read where it is, not unrolled. */
static const volatile struct place all[PLACES] = {
	WHOLE(plan), FIELD(plan, hash_key), FIELD(plan, inside_buckets), FIELD(plan, used_words), FIELD(plan, lifetimes),
	FIELD(plan, reuse_after), FIELD(plan, reuse_port_after), FIELD(plan, report_sessions), FIELD(plan, secret),
	FIELD(plan, steps), FIELD(plan, own6), FIELD(plan, own4), FIELD(plan, softwire_first_block), FIELD(plan, explicit_rows), FIELD(plan, through_stack),
	FIELD(plan, explicit_ipv4), FIELD(plan, map_ipv4), FIELD(plan, explicit_ipv6_first), FIELD(plan, explicit_ipv6_last),
	FIELD(plan, non_global), FIELD(plan, services),
	WHOLE(service), FIELD(service, kind), FIELD(service, pool_ranges), FIELD(service, untranslated_ranges),
	FIELD(service, flags), FIELD(service, traffic_class_4to6), FIELD(service, traffic_class_6to4),
	FIELD(service, inside_mtu), FIELD(service, outside_mtu), FIELD(service, lowest_ipv6_mtu),
	FIELD(service, bindings_per_subscriber), FIELD(service, prefix), FIELD(service, pool), FIELD(service, inside),
	FIELD(service, untranslated), FIELD(service, b4_networks), FIELD(service, mesh_ranges), FIELD(service, tunnel),
	FIELD(service, b4s), FIELD(service, mesh), FIELD(service, locals), FIELD(service, local), FIELD(service, number), FIELD(service, claims),
	WHOLE(tunnel), FIELD(tunnel, remote), FIELD(tunnel, mtu), FIELD(tunnel, traffic_class), FIELD(tunnel, hop_limit),
	WHOLE(network), FIELD(network, mask),
	WHOLE(pool_range), FIELD(pool_range, addresses), FIELD(pool_range, first_slot), FIELD(pool_range, span),
	FIELD(pool_range, handed_out),
	WHOLE(prefix), FIELD(prefix, bits), FIELD(prefix, mask), FIELD(prefix, shift), FIELD(prefix, gap),
	FIELD(prefix, present),
	WHOLE(explicit_row), FIELD(explicit_row, ipv6), FIELD(explicit_row, ipv4), FIELD(explicit_row, suffix),
	FIELD(explicit_row, shift),
	WHOLE(softwire_share), FIELD(softwire_share, first), FIELD(softwire_share, last),
	FIELD(softwire_share, offset_bits), FIELD(softwire_share, psid_bits),
	WHOLE(softwire_row), WHOLE(softwire_blocks), WHOLE(softwire_locals),
	WHOLE(map_rule), FIELD(map_rule, ipv6), FIELD(map_rule, behind), FIELD(map_rule, ipv4), FIELD(map_rule, ipv4_mask),
	FIELD(map_rule, given_psid), FIELD(map_rule, suffix_bits), FIELD(map_rule, embedded_psid_bits),
	FIELD(map_rule, shift), FIELD(map_rule, host_bits), FIELD(map_rule, offset_bits), FIELD(map_rule, psid_bits),
	WHOLE(map_group), FIELD(map_group, offset_bits), FIELD(map_group, psid_bits),
	WHOLE(scratch), FIELD(scratch, counters), FIELD(scratch, used_word), FIELD(scratch, identifications),
	WHOLE(counters), FIELD(counters, forwarded), FIELD(counters, forwarded_bytes), FIELD(counters, bindings_made),
	FIELD(counters, sessions_made), FIELD(counters, reports_lost), FIELD(counters, to_stack),
	FIELD(counters, passed), FIELD(counters, dropped),
	WHOLE(interface), FIELD(interface, number), FIELD(interface, mac), FIELD(interface, xdp_sends),
	WHOLE(report), WHOLE(route_watch), FIELD(route_watch, until), FIELD(route_watch, generation),
	/* Those of the tables, in the order of what the test stores in them. */
	FIELD(binding, inside), FIELD(binding, inside4), FIELD(binding, outside4), FIELD(binding, inside_port),
	FIELD(binding, outside_port), FIELD(binding, protocol), FIELD(binding, service), FIELD(binding, flags),
	FIELD(binding, subscriber), FIELD(binding, outside_slot), FIELD(binding, created),
	FIELD(subscriber, inside), FIELD(subscriber, inside4), FIELD(subscriber, outside4), FIELD(subscriber, service),
	FIELD(subscriber, pool_address),
	WHOLE(binding), WHOLE(subscriber), WHOLE(index_bucket), WHOLE(session_line), WHOLE(slot_line),
};

SEC("xdp")
int tell(struct xdp_md *ctx)
{
	(void)ctx;
#pragma nounroll
	for (__u32 n = 0; n < PLACES; n++) {
		/* A copy: what a helper has seen, the verifier knows nothing of any more. */
		__u32 key = n;
		struct place *place = bpf_map_lookup_elem(&places, &key);

		if (!place)
			break;
		place->offset = all[n].offset;
		place->size = all[n].size;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
