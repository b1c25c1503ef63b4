/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Port sets (RFC 7597 section 5.1): crates/engine/src/mapping/port_set.rs, which draws them. */
#ifndef TOMBOLO_PORT_SET_H
#define TOMBOLO_PORT_SET_H

#include "base.h"

#define NO_PSID 0xffffffffU

/* The set that has a port (in the processor's byte order): 0 for an address that is not shared,
 * NO_PSID if nobody has it.
 */
static __always_inline __u32 psid_of(__u8 offset_bits, __u8 psid_bits, __u16 port)
{
	if (!psid_bits)
		return 0;
	if (offset_bits && !((__u32)port >> ((16 - offset_bits) & 31)))
		return NO_PSID;
	return (__u32)port >> ((16 - offset_bits - psid_bits) & 31) &
	       ((1U << (psid_bits & 31)) - 1);
}

#endif
