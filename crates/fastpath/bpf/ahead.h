/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Whether the next packet from inside is likely to make a binding, as the last ones did. What a binding takes
 * is then looked at ahead of everything else (look_ahead in bind.h); a packet that has a binding should not
 * pay for that.
 *
 *	expected    31            30     0
 *	            | drawn ahead |  made |
 *
 * made: bindings that packets made one after the other, up to two.
 */
#ifndef TOMBOLO_AHEAD_H
#define TOMBOLO_AHEAD_H

#include "scratch.h"

/* scratch.drawn was drawn for the next binding and looked at. */
#define DRAWN_AHEAD (1U << 31)
#define MADE_IN_A_ROW 2

static __always_inline bool expects_binding(const struct scratch *scratch)
{
	return (scratch->expected & ~DRAWN_AHEAD) >= MADE_IN_A_ROW;
}

static __always_inline void expect_another(struct scratch *scratch)
{
	if (!expects_binding(scratch))
		scratch->expected++;
}

static __always_inline void expect_none(struct scratch *scratch)
{
	if (scratch->expected & ~DRAWN_AHEAD)
		scratch->expected &= DRAWN_AHEAD;
}

#endif
