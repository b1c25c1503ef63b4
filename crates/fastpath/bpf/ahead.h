/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Whether the next packet from inside is likely to make a binding, as the last ones did. What a binding takes
 * is then looked at ahead of everything else (look_ahead in bind.h); a packet that has a binding should not
 * pay for that.
 */
#ifndef TOMBOLO_AHEAD_H
#define TOMBOLO_AHEAD_H

#include "scratch.h"

#define ENOUGH_IN_A_ROW 2

static __always_inline bool expects_binding(const struct scratch *scratch)
{
	return scratch->made_in_a_row >= ENOUGH_IN_A_ROW;
}

static __always_inline void expect_another(struct scratch *scratch)
{
	if (!expects_binding(scratch))
		scratch->made_in_a_row++;
}

static __always_inline void expect_none(struct scratch *scratch)
{
	if (!scratch->made_in_a_row)
		return;
	scratch->made_in_a_row = 0;
	/* A port that was drawn is not for later, when there may be another plan. */
	scratch->ahead.address = 0;
}

#endif
