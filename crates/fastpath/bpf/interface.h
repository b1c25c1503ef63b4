/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The interfaces that the fast path is attached to. A frame for another station (a bridge, a
 * listener) is not the gateway's, and XDP sends only through interfaces that are known to take what
 * it sends.
 */
#ifndef TOMBOLO_INTERFACE_H
#define TOMBOLO_INTERFACE_H

#include "base.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct interface);
} interfaces SEC(".maps");

/* An interface that is attached; none if it is not. */
static __always_inline struct interface *interface_of(__u32 number)
{
	struct interface *interface = RECORD(interfaces, number % INTERFACES);

	return interface && interface->number == number ? interface : 0;
}

static __always_inline bool is_same_mac(const __u8 a[6], const __u8 b[6])
{
	return *(const __u16 *)a == *(const __u16 *)b &&
	       *(const __u16 *)(a + 2) == *(const __u16 *)(b + 2) &&
	       *(const __u16 *)(a + 4) == *(const __u16 *)(b + 4);
}

#endif
