//! The presets.

use super::description::{ByForm, Frames, Lookup, Over, Preset, Step, Streams};
use crate::procedure::packet::Procedure;
use crate::procedure::tcp::Protocol;
use crate::scale::Rates;

/// All of them, in the order in which they are listed and run.
pub const ALL: &[Preset] = &[
    Preset {
        name: "draft-figure-2",
        title: "stateful NAT44 against the number of cores",
        asks: "How do the rate of connections and the throughput of a stateful NAT44 grow with its cores, beside plain IPv4 forwarding?",
        published: "draft-figure-2",
        steps: &[Step::Frames(Frames { over: Over::Cores, ..NAT44 })],
        deviations: &[NO_RESERVED_CORES],
    },
    Preset {
        name: "draft-figure-4",
        title: "stateful NAT44 against the number of connections",
        asks: "What do ever more connections, with constant load of the hash table, take from connection rate and throughput?",
        published: "draft-figure-4",
        steps: &[Step::Frames(Frames { ports: IPTABLES_POINTS, over: Over::Connections(Rates::Forwarding), ..NAT44 })],
        deviations: &[NO_RESERVED_CORES, CONSTANT_LOAD],
    },
    Preset {
        name: "draft-figure-5",
        title: "stateful NAT44: connection tear-down",
        asks: "How fast does a NAT44 delete all its connections at once?",
        published: "draft-figure-5",
        steps: &[Step::Frames(Frames {
            gateways: &["iptables", "tombolo:tc", "nftables"],
            ports: IPTABLES_POINTS,
            over: Over::Connections(Rates::Teardown),
            ..NAT44
        })],
        deviations: &[NO_RESERVED_CORES, CONSTANT_LOAD, EMPTY_MEDIAN],
    },
    Preset {
        name: "draft-figure-7",
        title: "stateful NAT64 against the number of cores",
        asks: "How do the rate of connections and the throughput of a stateful NAT64 grow with its cores?",
        published: "draft-figure-7",
        steps: &[Step::Frames(Frames {
            gateways: &["plain", "tombolo:tc", "tombolo:off", "tayga", "jool"],
            over: Over::Cores,
            ..NAT64
        })],
        deviations: &[NO_RESERVED_CORES, TAYGA],
    },
    Preset {
        name: "draft-figure-8",
        title: "stateful NAT64 against the number of connections",
        asks: "What do ever more connections take from connection rate and throughput of a stateful NAT64?",
        published: "draft-figure-8",
        steps: &[Step::Frames(Frames { ports: JOOL_POINTS, over: Over::Connections(Rates::Forwarding), ..NAT64 })],
        deviations: &[NO_RESERVED_CORES, TAYGA],
    },
    Preset {
        name: "draft-figure-9",
        title: "stateful NAT64: connection tear-down",
        asks: "How fast does a NAT64 delete all its sessions at once?",
        published: "draft-figure-9",
        steps: &[Step::Frames(Frames {
            gateways: &["tombolo:tc", "tombolo:off", "jool"],
            ports: JOOL_POINTS,
            over: Over::Connections(Rates::Teardown),
            ..NAT64
        })],
        deviations: &[NO_RESERVED_CORES, JOOL_TEARDOWN, EMPTY_MEDIAN],
    },
    Preset {
        name: "dns-over-nat64",
        title: "name service through NAT64 and by DNS64",
        asks: "How many queries a second, each from another port to port 53, does a NAT64 carry, and how many does a DNS64 resolver answer?",
        published: "nsd",
        steps: &[
            Step::Frames(Frames {
                procedure: Procedure::ConnectionRate,
                ports: ByForm { full: &[(60_000, 1)], quick: &[(20_000, 1)] },
                outside_first: 53,
                gateways: &["plain", "tombolo:tc", "tombolo:off"],
                ..NAT64
            }),
            Step::Dns64,
        ],
        deviations: &[
            "the published figures are of an authority's own answers, on one core and on sixteen; here a query and its answer pass a translator as the first and second packet of a connection, and a resolver asks an authority twice for each answer",
            NO_RESERVED_CORES,
        ],
    },
    Preset {
        name: "route-table-size",
        title: "route lookup against the size of the table",
        asks: "How long does a longest-prefix match take, in tables of ever more routes?",
        published: "route-lookup",
        steps: &[Step::Lookup(Lookup {
            routes: ByForm { full: &[1, 10, 100, 1000, 10_000, 100_000], quick: &[1, 10, 100, 1000, 10_000, 100_000] },
            threads: &[1],
            thread_routes: &[],
        })],
        deviations: &[LOOKUP_IN_TURNS],
    },
    Preset {
        name: "route-threads",
        title: "route lookup against the number of threads",
        asks: "What do other processors that look up at the same time take from a lookup?",
        published: "route-lookup",
        steps: &[Step::Lookup(Lookup {
            routes: ByForm { full: &[1, 100_000], quick: &[1, 100_000] },
            threads: &[1, 2, 4, 8, 16, 24],
            thread_routes: &[1, 100_000],
        })],
        deviations: &[
            LOOKUP_IN_TURNS,
            "no more threads than processors are measured: more would take turns, not contend",
        ],
    },
    Preset {
        name: "thesis-tcp",
        title: "TCP through NAT64: 1, 10, 20 and 50 connections, both directions",
        asks: "What does TCP lose behind a NAT64, and how much of the processors does it take?",
        published: "thesis-tcp",
        steps: &[Step::Streams(Streams { protocol: Protocol::Tcp, ..STREAMS })],
        deviations: &[VIRTUAL_LINKS],
    },
    Preset {
        name: "thesis-udp",
        title: "UDP through NAT64: 1, 10, 20 and 50 streams, both directions",
        asks: "How much of what is sent as fast as it goes arrives behind a NAT64, and how much of the processors does it take?",
        published: "thesis-udp",
        steps: &[Step::Streams(Streams { protocol: Protocol::Udp, ..STREAMS })],
        deviations: &[VIRTUAL_LINKS],
    },
    Preset {
        name: "thesis-features",
        title: "what a NAT64 does, feature by feature",
        asks: "Which features of the thesis' list, and of what else a NAT64 has to do, does each gateway have?",
        published: "thesis-features",
        steps: &[Step::Features(&["tombolo:tc", "tombolo:off", "tayga", "jool"])],
        deviations: &[
            "each feature is tried by an exchange of packets, written by hand at both ends and looked at byte by byte; the published list is the author's own statement",
            "neighbours and pings of the gateway's own addresses are answered by the host's kernel: a gateway on Linux is a host, a P4 program has to be one",
            "explicit mappings are those of the stateless service, or module, of each gateway",
            "Tayga has mappings of one address to one, so that it has no sessions",
        ],
    },
    Preset {
        name: "jool-issue",
        title: "packets a second through gateways of all kinds, one flow and many",
        asks: "How far below plain forwarding are NAT64, SIIT and NAT44, in and out of the kernel, with one flow and with a thousand?",
        published: "jool-issue",
        steps: &[
            Step::Frames(Frames { ports: ByForm { full: &[(1, 1)], quick: &[(1, 1)] }, ..MIXED }),
            Step::Frames(Frames { ports: ByForm { full: &[(1000, 1)], quick: &[(1000, 1)] }, ..MIXED }),
        ],
        deviations: &[LOAD_OF_CORES, "NAT44 is measured with IPv4 frames beside plain forwarding of IPv6"],
    },
];

const NAT44: Frames = Frames {
    procedure: Procedure::Scalability,
    gateways: &["plain", "tombolo:tc", "iptables"],
    ports: ByForm { full: &[(4000, 1000)], quick: &[(4000, 10)] },
    outside_first: 1,
    over: Over::Nothing,
    is_one_way: false,
};

const NAT64: Frames = Frames {
    gateways: &["plain", "tombolo:tc", "tayga", "jool"],
    ports: ByForm { full: &[(2000, 500)], quick: &[(2000, 5)] },
    ..NAT44
};

/// Numbers as published, and a thousandth of the first four.
const IPTABLES_POINTS: ByForm<&[(u32, u32)]> = ByForm {
    full: &[(2500, 625), (5000, 1250), (10_000, 2500), (20_000, 5000), (40_000, 10_000), (40_000, 20_000)],
    quick: QUICK_POINTS,
};

const JOOL_POINTS: ByForm<&[(u32, u32)]> = ByForm {
    full: &[(2500, 625), (5000, 1250), (10_000, 2500), (20_000, 5000), (40_000, 10_000), (40_000, 40_000)],
    quick: QUICK_POINTS,
};

const QUICK_POINTS: &[(u32, u32)] = &[(1563, 1), (3125, 2), (6250, 4)];

const STREAMS: Streams =
    Streams { protocol: Protocol::Tcp, gateways: &["plain", "tombolo", "tayga", "jool"], flows: &[1, 10, 20, 50] };

const MIXED: Frames = Frames {
    procedure: Procedure::ReceivedRate,
    gateways: &["plain", "tombolo:tc", "tombolo:off", "tayga", "jool", "jool_siit", "iptables", "nftables"],
    is_one_way: true,
    ..NAT44
};

const NO_RESERVED_CORES: &str = "the gateway has the cores that the tester leaves, one thread of each; the published ones had machines of their own";
const CONSTANT_LOAD: &str =
    "connection tracking is sized for each point, to at most three connections for four buckets";
const EMPTY_MEDIAN: &str = "the time of deleting an empty table is the median of five deletions in the same run";
const JOOL_TEARDOWN: &str = "Jool's table is deleted with its instance, which is then made anew";
const LOAD_OF_CORES: &str = "the load is the time that the gateway's threads and those of its ports took of its cores, the receiver's included, at the highest rate and at half of what was received then";
const TAYGA: &str = "Tayga is stateless: it has a throughput and no connections";
const LOOKUP_IN_TURNS: &str =
    "rounds of all tables alternate, in user space and, of the running kernel's, in a BPF program; medians, not means";
const VIRTUAL_LINKS: &str = "client, gateway and server are namespaces of one machine; veth pairs carry segments of up to 64 KiB, and no link limits the rate";
