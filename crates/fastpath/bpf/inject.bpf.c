// SPDX-License-Identifier: GPL-2.0 OR MIT
/* A packet comes in by an interface as if it had been received there: for tombolo doctor, which shows
 * packets to all that the kernel does with those of others, and sees what becomes of them. The
 * program is run once for each (BPF_PROG_TEST_RUN) and is attached nowhere.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The interface's number. */
const volatile __u32 entrance;

SEC("classifier")
int tombolo_inject(struct __sk_buff *skb)
{
	/* Into the queue of what was received: XDP in drivers alone does not see it. */
	return bpf_clone_redirect(skb, entrance, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
