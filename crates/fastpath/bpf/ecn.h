/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The two parts of TOS and traffic class, and what becomes of marks of congestion (RFC 6040). */
#ifndef TOMBOLO_ECN_H
#define TOMBOLO_ECN_H

#include "base.h"

#define DSCP 0xfc
#define ECN 0x03

#define ECN_ECT_1 1
#define ECN_ECT_0 2
#define ECN_CE 3

/* Marks of a packet that comes out of another one (section 4.2); negative if it has to be dropped. */
static __always_inline int emerging_ecn(__u8 outer, __u8 inner)
{
	outer &= ECN;
	inner &= ECN;
	if (outer == ECN_CE)
		return inner ? ECN_CE : -1;
	return inner == ECN_ECT_0 && outer == ECN_ECT_1 ? ECN_ECT_1 : inner;
}

#endif
