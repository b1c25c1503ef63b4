// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Looks up a map full of keys, for the test that compares this reader with Rust's. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "lpm.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct lpm_line);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct lpm_key);
} keys SEC(".maps");

/* As many as keys. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u64);
} entries SEC(".maps");

static long one(__u32 index, void *unused)
{
	struct lpm_key *key = bpf_map_lookup_elem(&keys, &index);
	__u64 *entry = bpf_map_lookup_elem(&entries, &index);

	(void)unused;
	if (!key || !entry)
		return 1; /* the end of the maps */
	*entry = lpm_lookup(&routes, *key);
	return 0;
}

/* Returns the number of keys done. */
SEC("xdp")
int look_up_all(struct xdp_md *ctx)
{
	(void)ctx;
	return bpf_loop(1 << 23, one, 0, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
