// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What the kernel does not send of what XDP has redirected. A program that redirects a frame never
 * learns what became of it; the kernel tells at these two points.
 *
 * 	tombolo_xdp --redirect--> xdp_redirect_err    the interface takes none, or not this one
 * 	                 |
 * 	                 +-------> xdp_devmap_xmit     of a bulk that it was given, some found no room
 *
 * An interface that cannot take any, such as a veth whose other end does not poll, is taken out of
 * those that XDP sends through: then TC has its packets.
 */
#include "base.h"
#include "interface.h"

/* Of the kernel's own types what is needed here; the loader finds out where it is. */
struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

/* The gateway's network namespace: numbers of interfaces are unique in one only. */
const volatile __u32 network_namespace;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

#define NO_SUCH_DEVICE_OR_ADDRESS (-6) /* -ENXIO */

static __always_inline bool is_ours(const struct net_device *device)
{
	return device->nd_net.net->ns.inum == network_namespace && interface_of(device->ifindex);
}

static __always_inline void count(__u64 frames)
{
	__u64 *counter = RECORD(lost, 0);

	if (counter)
		*counter += frames;
}

static __always_inline void stop_sending(__u32 number)
{
	struct interface *interface = interface_of(number);

	if (interface)
		interface->xdp_sends = 0;
}

/* const struct net_device *from, *to, int sent, int drops, int error */
SEC("tp_btf/xdp_devmap_xmit")
int tombolo_bulk(__u64 *ctx)
{
	const struct net_device *from = (void *)ctx[0], *to = (void *)ctx[1];
	int drops = ctx[3], error = ctx[4];

	if (drops <= 0 || !from || !to || !is_ours(from))
		return 0;
	count(drops);
	if (error == NO_SUCH_DEVICE_OR_ADDRESS)
		stop_sending(to->ifindex);
	return 0;
}

/* const struct net_device *from, const struct bpf_prog *, const void *, int error, ... */
SEC("tp_btf/xdp_redirect_err")
int tombolo_refused(__u64 *ctx)
{
	const struct net_device *from = (void *)ctx[0];

	if (from && is_ours(from))
		count(1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
