// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What the kernel allows, and what a table allows: each frame goes on as it came, at once, or after
 * one entry of a table has been read, which the frame's source address and port choose. The benchmark
 * measures both beside what translates, on the same rig.
 */
#include "base.h"
#include "hash.h"

/* Where to. */
const volatile __u32 exit_interface;
/* What an entry takes, in words of 8 bytes, and how many there are. */
const volatile __u32 entry_words;
const volatile __u32 entry_count;

/* Zeros. Its size is set when it is made. */
MAPPED_ARRAY(words, __u64, );

SEC("xdp")
int bare_redirect(struct xdp_md *ctx)
{
	(void)ctx;
	return bpf_redirect(exit_interface, 0);
}

/* No field of the frame is looked at but these, none is changed, and no key is compared: a
 * translation does all this as well.
 */
SEC("xdp")
int redirect_by_entry(struct xdp_md *ctx)
{
	const __u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	bool is_ipv6 = frame + 56 <= end && frame[12] == 0x86;
	__u32 address, index;
	__u16 port;
	const __u64 *word;

	if (frame + 36 > end)
		return XDP_PASS;
	if (is_ipv6) {
		__builtin_memcpy(&address, frame + 34, sizeof(address));
		__builtin_memcpy(&port, frame + 54, sizeof(port));
	} else {
		__builtin_memcpy(&address, frame + 26, sizeof(address));
		__builtin_memcpy(&port, frame + 34, sizeof(port));
	}
	index = buckets_of(mix((__u64)address << 16 | port), entry_count).first * entry_words;
	word = bpf_map_lookup_elem(&words, &index);
	if (!word)
		return XDP_PASS;
	/* The frame waits for it. */
	return bpf_redirect(exit_interface + READ(*word), 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
