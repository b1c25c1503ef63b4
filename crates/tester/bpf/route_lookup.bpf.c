// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Route lookups inside the kernel, many to one system call.
 *
 * BPF_PROG_TEST_RUN runs `lookups` in the caller's network namespace. The packet's payload is the
 * request; the program runs the loop that the user-space contenders run, with the same key
 * generator, and calls bpf_fib_lookup where they call theirs. What remains of the time after the
 * dry run is the kernel's lookup.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Since Linux 6.3; older headers lack it. Without it the neighbour table would be measured too. */
#define FIB_LOOKUP_SKIP_NEIGH (1U << 3)
/* The main table without policy rules: the fastest that the kernel offers. */
#define FIB_LOOKUP_FLAGS (BPF_FIB_LOOKUP_DIRECT | FIB_LOOKUP_SKIP_NEIGH)

#define AF_INET 2
#define AF_INET6 10

#define KEYS 32768

struct key {
	__u64 first;
	__u64 second;
};

/* Covered keys, filled by user space: IPv4 in the upper half of `first`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KEYS);
	__type(key, __u32);
	__type(value, struct key);
} keys SEC(".maps");

/* All in the host's byte order. */
struct request {
	__u64 seed;
	__u32 count;
	__u32 ifindex;
	__u8 family;  /* 4 or 6 */
	__u8 covered; /* 0: keys from the generator, 1: from the map */
	__u8 dry;     /* 1: no lookup */
	__u8 pad[5];
	/* Answers. */
	__u64 found;
	__u64 sum;
};

struct state {
	struct xdp_md *ctx;
	__u64 random;
	__u64 found;
	__u64 sum;
	__u32 ifindex;
	__u8 family;
	__u8 covered;
	__u8 dry;
};

static __always_inline __u64 draw(__u64 *state)
{
	__u64 x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x;
}

static long one(__u32 index, struct state *state)
{
	struct bpf_fib_lookup lookup = {};
	struct key key = {};
	long result;

	if (state->covered) {
		__u32 place = index & (KEYS - 1);
		struct key *covered = bpf_map_lookup_elem(&keys, &place);

		if (!covered)
			return 1; /* cannot be: the place is masked */
		key = *covered;
	} else {
		key.first = draw(&state->random);
		key.second = key.first * 0x9e3779b97f4a7c15ULL;
	}
	lookup.ifindex = state->ifindex;
	if (state->family == 4) {
		lookup.family = AF_INET;
		lookup.ipv4_dst = bpf_htonl(key.first >> 32);
	} else {
		lookup.family = AF_INET6;
		lookup.ipv6_dst[0] = bpf_htonl(key.first >> 32);
		lookup.ipv6_dst[1] = bpf_htonl(key.first);
		lookup.ipv6_dst[2] = bpf_htonl(key.second >> 32);
		lookup.ipv6_dst[3] = bpf_htonl(key.second);
	}
	if (state->dry) {
		state->sum += lookup.ipv4_dst ^ lookup.ipv6_dst[3];
		return 0;
	}
	result = bpf_fib_lookup(state->ctx, &lookup, sizeof(lookup), FIB_LOOKUP_FLAGS);
	if (result == BPF_FIB_LKUP_RET_SUCCESS)
		state->found++;
	state->sum += result;
	return 0;
}

static __always_inline struct request *payload(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	if (data + ETH_HLEN + sizeof(struct request) > end)
		return 0;
	return data + ETH_HLEN;
}

SEC("xdp")
int lookups(struct xdp_md *ctx)
{
	struct request *request = payload(ctx);
	struct state state = {};

	if (!request)
		return XDP_ABORTED; /* the payload is shorter than a request */
	state.ctx = ctx;
	state.random = request->seed;
	state.ifindex = request->ifindex;
	state.family = request->family;
	state.covered = request->covered;
	state.dry = request->dry;
	bpf_loop(request->count, one, &state, 0);
	request->found = state.found;
	request->sum = state.sum;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
