// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What the kernel allows: each frame goes on as it came. The benchmark measures it beside what
 * translates, on the same rig.
 */
#include "base.h"

/* Where to. */
const volatile __u32 exit_interface;

SEC("xdp")
int bare_redirect(struct xdp_md *ctx)
{
	(void)ctx;
	return bpf_redirect(exit_interface, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
