/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Rules of a MAP domain (RFC 7597 sections 5 and 6): crates/engine/src/mapping/map_rule.rs, which
 * draws the addresses, and map_domain.rs. All numbers are in the processor's byte order.
 */
#ifndef TOMBOLO_MAP_RULE_H
#define TOMBOLO_MAP_RULE_H

#include "lpm.h"
#include "plan.h"
#include "port_set.h"

/* What belongs to a subscriber. */
struct map_share {
	__u32 ipv4;
	__u32 psid;
};

PLAN_ARRAY(map_ipv4, struct lpm_line);
PLAN_ARRAY(map_ipv6, struct lpm_line);
PLAN_ARRAY(map_rules, struct map_rule);
PLAN_ARRAY(map_groups, struct map_group);

/* Rules, plus one; 0 where a group has none. */
PLAN_ARRAY(map_members, __u64);

__noinline __u32 look_up_map_ipv4(__u32 address)
{
	struct lpm_key key = { .first = (__u64)address << 32 };

	return lpm_lookup(&map_ipv4, key);
}

/* The entry of an IPv4 address (as on the wire); LPM_NONE if it is not in the domain, which of most
 * the bounds tell.
 */
static __always_inline __u32 map_entry_of_ipv4(__u32 address)
{
	__u32 number = bpf_ntohl(address);

	if (number < plan.map_ipv4.first || number > plan.map_ipv4.last)
		return LPM_NONE;
	return look_up_map_ipv4(number);
}

__noinline __u32 map_entry_of_ipv6(__u64 first, __u64 second)
{
	struct lpm_key key = { .first = bpf_be64_to_cpu(first), .second = bpf_be64_to_cpu(second) };

	return lpm_lookup(&map_ipv6, key);
}

/* The rule of an entry; none if there are several. */
static __always_inline struct map_rule *map_rule_of(__u32 entry)
{
	if (entry == LPM_NONE || lpm_next_hop(entry) & MAP_BY_PSID)
		return 0;
	return RECORD(map_rules, lpm_next_hop(entry));
}

/* The rule of an entry that has the port. */
static __always_inline struct map_rule *map_rule_with(__u32 entry, __u16 port)
{
	struct map_group *group;
	__u64 *member;
	__u32 psid;

	if (entry == LPM_NONE || !(lpm_next_hop(entry) & MAP_BY_PSID))
		return map_rule_of(entry);
	group = RECORD(map_groups, lpm_next_hop(entry) & ~MAP_BY_PSID);
	if (!group || !group->psid_bits)
		return 0;
	psid = psid_of(group->offset_bits, group->psid_bits, port);
	if (psid == NO_PSID)
		return 0;
	member = RECORD(map_members, group->first + psid);
	return member && *member ? RECORD(map_rules, *member - 1) : 0;
}

static __always_inline __u64 low_bits(__u64 value, __u8 count)
{
	return value & ((1ULL << (count & 63)) - 1);
}

/* The address that stands for `host` of a subscriber: the MAP address, if that is the share's own
 * (RFC 7597 section 6).
 */
static __always_inline void map_address(const struct map_rule *rule, const struct map_share *share,
					__u32 host, __u64 address[2])
{
	__u64 suffix = low_bits((__u64)share->ipv4 >> (rule->host_bits & 63), rule->suffix_bits);
	__u64 ea = suffix << (rule->embedded_psid_bits & 63) |
		   low_bits(share->psid, rule->embedded_psid_bits);
	__u64 identifier = ((__u64)host << 16 | (rule->psid_bits ? share->psid : 0))
			   << (rule->behind_psid & 63);
	__u8 shift = rule->shift;

	address[0] = rule->ipv6[0];
	address[1] = rule->ipv6[1] | (identifier & rule->behind);
	if (shift >= 64) {
		address[0] |= ea << (shift & 63);
	} else {
		address[0] |= shift ? ea >> ((64 - shift) & 63) : 0;
		address[1] |= ea << shift;
	}
}

/* What belongs to the subscriber with `address` in its End-user prefix, by the embedded bits alone.
 */
static __always_inline void map_share_in(const struct map_rule *rule, const __u64 address[2],
					 struct map_share *share)
{
	__u8 shift = rule->shift;
	__u64 ea;

	if (shift >= 64)
		ea = address[0] >> (shift & 63);
	else
		ea = address[1] >> shift | (shift ? address[0] << ((64 - shift) & 63) : 0);
	ea = low_bits(ea, rule->suffix_bits + rule->embedded_psid_bits);
	share->ipv4 = rule->ipv4 |
		      (__u32)((ea >> (rule->embedded_psid_bits & 63)) << (rule->host_bits & 63));
	share->psid = rule->given_psid ? rule->given_psid - 1 :
					 low_bits(ea, rule->embedded_psid_bits);
}

static __always_inline __u32 host_mask(const struct map_rule *rule)
{
	return (1ULL << (rule->host_bits & 63)) - 1;
}

/* Whose port of an address it is; false if nobody's, or if the rule does not have the address. */
static __always_inline bool map_share_of(const struct map_rule *rule, __u32 address, __u16 port,
					 struct map_share *share)
{
	__u32 psid = psid_of(rule->offset_bits, rule->psid_bits, port);

	if ((address ^ rule->ipv4) & rule->ipv4_mask || psid == NO_PSID)
		return false;
	if (rule->psid_bits && rule->given_psid && rule->given_psid - 1 != psid)
		return false;
	share->ipv4 = address & ~host_mask(rule);
	share->psid = psid;
	return true;
}

static __always_inline bool map_owns(const struct map_rule *rule, const struct map_share *share,
				     __u32 address, __u16 port)
{
	struct map_share found;

	return map_share_of(rule, address, port, &found) && found.ipv4 == share->ipv4 &&
	       found.psid == share->psid;
}

/* Which host of which subscriber it stands for in translation; the whole of it counts. */
static __always_inline bool map_host_at(const struct map_rule *rule, const __u64 address[2],
					struct map_share *share, __u32 *host)
{
	__u64 expected[2];

	map_share_in(rule, address, share);
	*host = share->ipv4 |
		((__u32)(address[1] >> ((16 + rule->behind_psid) & 63)) & host_mask(rule));
	map_address(rule, share, *host, expected);
	return address[0] == expected[0] && address[1] == expected[1];
}

#endif
