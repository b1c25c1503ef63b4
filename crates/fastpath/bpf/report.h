/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What was made here is reported to the gateway's log through a ring buffer. Nobody is woken: the
 * gateway looks once in a while. What finds no room is counted and lost; the tables have it all the
 * same.
 */
#ifndef TOMBOLO_REPORT_H
#define TOMBOLO_REPORT_H

#include "binding.h"
#include "session.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} reports SEC(".maps");

static __always_inline void report(__u8 kind, const struct bound *bound,
				   const struct session_key *session, struct scratch *scratch)
{
	struct report *report = bpf_ringbuf_reserve(&reports, sizeof(*report), 0);
	struct binding *record;

	if (!report) {
		scratch->counters.reports_lost++;
		return;
	}
	record = bound->record;
	*report = (struct report){
		.inside = { READ(record->inside[0]), READ(record->inside[1]) },
		.inside4 = READ(record->inside4),
		.outside4 = READ(record->outside4),
		.inside_port = READ(record->inside_port),
		.outside_port = READ(record->outside_port),
		.protocol = READ(record->protocol),
		.service = READ(record->service),
		.kind = kind,
		.remote = session->remote,
		.remote_port = session->word >> 16,
		.binding = bound->id,
		.when = bpf_ktime_get_coarse_ns(),
	};
	bpf_ringbuf_submit(report, BPF_RB_NO_WAKEUP);
}

#endif
