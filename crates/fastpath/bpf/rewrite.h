/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What was decided about a packet. */
#ifndef TOMBOLO_REWRITE_H
#define TOMBOLO_REWRITE_H

#include "base.h"

enum direction {
	TO4 = 0,  /* IPv6 to IPv4 */
	TO6 = 1,  /* IPv4 to IPv6 */
	SAME4 = 2 /* IPv4 with other addresses and ports */
};

struct rewrite {
	__u8 direction;
	/* Where the packet came from: SIDE_INSIDE or SIDE_OUTSIDE. */
	__u8 side;
	/* The number of the service. */
	__u8 service;
	/* TOS or traffic class. */
	__u8 traffic_class;
	/* IPv4, as on the wire. */
	__u16 identification;
	__u16 fragment_word;
	/* An echo gets its identifier from the source port. */
	__u16 source_port;
	__u16 destination_port;
	union {
		__u64 source[2];
		__u32 source4;
	};
	union {
		__u64 destination[2];
		__u32 destination4;
	};
	/* Bytes of the packet as it leaves, and of the largest segment of it, without the header of
	 * a softwire.
	 */
	__u32 length;
	__u32 size_on_wire;
	/* Nothing behind the IP header changes. */
	bool keeps_transport;
	/* It enters a softwire. */
	bool encapsulate;
	__u8 outer_class;
	__u8 outer_hop_limit;
	__u64 outer_source[2];
	__u64 outer_destination[2];
	/* In a cluster: it goes to another node as it is, and how (enum means); to which, and its flow
	 * label.
	 */
	__u8 redirected;
	__u8 node;
	__u32 flow_label;
};

#endif
