//! Every key that a file may have: the one list behind the check for unknown keys and
//! `docs/configuration.md`.

use std::fmt::Write;

/// A table of the file.
#[derive(Debug)]
pub struct Section {
    /// Where it stands, as `[gateway]`.
    pub path: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Its keys. What several sections have alike is a group that they share.
    pub groups: &'static [&'static [Key]],
}

/// A key of a table.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value is.
    pub kind: &'static str,
    /// What holds without it; empty if the key has to be there.
    pub default: &'static str,
    /// A value as it may stand in a file.
    pub example: &'static str,
    /// What it decides, units included.
    pub about: &'static str,
}

impl Section {
    /// Its keys, in the order of the documentation.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> {
        self.groups.iter().copied().flatten()
    }

    /// The key of this name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }
}

/// Name, kind, default, example and meaning of keys.
macro_rules! keys {
    ($($name:literal: $kind:literal, $default:literal, $example:literal, $about:literal;)+) => {
        &[$(Key { name: $name, kind: $kind, default: $default, example: $example, about: $about },)+]
    };
}

/// The groups of a section: `..GROUP;` is one that it shares, a key is one of its own.
macro_rules! groups {
    ($($(..$group:ident)? $($name:literal: $kind:literal, $default:literal, $example:literal, $about:literal)?;)+) => {
        &[$($(shared::$group,)? $(keys! { $name: $kind, $default, $example, $about; },)?)+]
    };
}

// Here, because it uses the macros.
mod shared;

/// The outermost table.
pub static FILE: Section = Section {
    path: "the file",
    about: "",
    groups: groups! {
        "gateway": "table", "see below", "", "The gateway's place in its host.";
        "interface": "tables", "none", "", "What holds for one interface of the host: one `[[interface]]` for each.";
        "capacity": "table", "see below", "", "Room in the tables.";
        "timeouts": "table", "see below", "", "How long state outlives its last packet.";
        "cluster": "table", "none", "", "The other gateways that serve the same services.";
        "service": "tables", "", "", "What the gateway does: one `[[service]]` for each service.";
    },
};

/// `[cluster]`.
pub static CLUSTER: Section = Section {
    path: "[cluster]",
    about: "Other gateways that serve the same services, for networks that outgrow one machine or may not lose it: see docs/cluster.md. Each node announces the same prefixes by a routing daemon, which learns them from a routing table of their own, and the routers spread the packets. Services without state (`siit`, `lwaftr`, the relays of `map-e` and `map-t`) any node serves; of those with bindings (`nat64`, `nat44`, `aftr`) each node has the slices that `slices` gives it, and nodes redirect to each other what is of others' slices. A change takes a restart.",
    groups: groups! {
        "node": "string", "", "\"n1\"", "Which of the nodes this gateway is.";
        "nodes": "table of prefixes", "", "{ n1 = \"2001:db8:c1:1::/64\", n2 = \"2001:db8:c1:2::/64\" }",
            "All nodes, the same on each: their names, and the locator of each, a /64 that its routing daemon announces to the others. The first 256 addresses of a locator are the gateway's: there nodes send each other what has to meet, fragments of one datagram, and what another one has the bindings of. 1 to 16 nodes.";
        "needs": "array of prefixes", "none", "[\"0.0.0.0/0\", \"2001:db8:4600::/40\"]",
            "Prefixes that the host must have routes for, each exactly as routers announce it: one of the outside and one of the inside, so that what comes can go on. While one is missing, the gateway announces nothing.";
        "table": "number", "8464", "8464",
            "Routing table with the routes that a routing daemon is to announce: those of the services, and the part of the locator. No packet is forwarded by it. The metric is for the daemon to make a MED of: 100 of what any node serves, 2147483646 of the outside addresses of the node's own slices, 4294967294 of whole pools, in case that the owner of a slice announces none. All of them go with the process. For a `nat44` there is a default route, for the hosts inside alone.";
        "core": "\"by-route\", \"any\" or names", "\"by-route\"", "[\"core0\"]",
            "Interfaces between the nodes, through which redirected packets may come in: the one that the sending node's locator is routed to, all, or those of the list. With a list packets of the softwires of an `aftr` are redirected without a header more (40 bytes), if there is one `aftr` alone.";
        "core_mtu": "bytes", "1580", "1580",
            "Size of the largest packet that the network between the nodes has to carry: that of the services' packets, and 80 bytes; 1320 to 65535. Nodes try it with each other, every two seconds. A node with slices that is cut off from others by this announces nothing when it starts; one that serves already says so in `show status`.";
        "slices": "path or table", "none", "\"slices.toml\"",
            "Who has the subscribers and outside addresses of services with bindings: a table of its own, or a file with the same keys, relative to this one. It must be the same on all nodes.";
        "etcd": "table", "none", "see below",
            "Where nodes agree on who has which slice, instead of `slices`: each slice's owner, and who takes it over when that is gone.";
        "replication": "table", "none", "see below",
            "How the backups of slices get copies of their bindings, so that they can serve in the owner's place.";
    },
};

/// `[cluster.slices]`.
pub static SLICES: Section = Section {
    path: "[cluster.slices]",
    about: "Subscribers and outside addresses of all services with bindings in equal parts, each of which one node owns. The slice of a subscriber is a hash of its address or prefix, but that of its outside address where a static binding or a computed share says which that is. Each range of a pool is cut into as many runs of whole addresses as there are slices. A file with these keys, named by `cluster.slices`, has them without a header.",
    groups: groups! {
        "count": "number", "", "256", "How many slices there are: a power of two, at most 256, and at most as many as the smallest range of a pool has addresses. Another number is another address for nearly every subscriber.";
        "secret": "64 hexadecimal digits", "", "\"what openssl rand -hex 32 prints\"", "Key of the hash, so that subscribers cannot choose their slice.";
        "epoch": "number", "1", "2", "How many owners the slices have had: to be raised with each change of `owners`. A node takes no copies as of an earlier epoch than its own, and the routes of a later one win.";
        "owners": "array of tables", "", "[{ slices = \"0-127\", owner = \"n1\", backup = \"n2\" }, { slices = \"128-255\", owner = \"n2\", backup = \"n1\" }]", "Who has which slices. Each slice has an owner.";
    },
};

/// `[[cluster.slices.owners]]`.
pub static SLICE_OWNER: Section = Section {
    path: "[[cluster.slices.owners]]",
    about: "Slices of one owner.",
    groups: groups! {
        "slices": "string", "", "\"0-127\"", "The slices, counted from 0: one, or the first and the last.";
        "owner": "name of a node", "", "\"n1\"", "The node that serves them. While it does not serve, its backup does what it can, or nobody.";
        "backup": "name of a node", "none", "\"n2\"", "The node by which those reach the owner that do not see it themselves. With `replication` it has a copy of their bindings, and serves known hosts while the owner does not.";
    },
};

/// `[cluster.replication]`.
pub static REPLICATION: Section = Section {
    path: "[cluster.replication]",
    about: "Copies of the bindings of slices at their backups: over TCP, in TLS 1.3, where each node shows a certificate for its name, signed by an authority of the cluster's own. The copy is some milliseconds behind. While the backup does not see the owner serve, it goes on with known connections, and makes new bindings in the blocks of ports, and computed shares, that subscribers have; it admits nobody. Files are relative to this one.",
    groups: groups! {
        "addresses": "table of addresses", "", "{ n1 = \"2001:db8:c::1\", n2 = \"2001:db8:c::2\" }", "An address of each node in the network between them. The node listens at its own.";
        "port": "number", "8464", "8464", "TCP port that they listen on.";
        "ca": "path", "", "\"ca.pem\"", "Certificates of those who may certify nodes, in PEM. Whoever has one of theirs for a node's name can change that node's copies.";
        "certificate": "path", "", "\"node.pem\"", "This node's certificate, for its name as a subject alternative name, and those between it and the authority, in PEM.";
        "key": "path", "", "\"node.key\"", "Its key, in PEM.";
    },
};

/// `[cluster.etcd]`.
pub static ETCD: Section = Section {
    path: "[cluster.etcd]",
    about: "An etcd (3.4 or later) in which nodes agree on who has which slice. `tombolo cluster init` writes there once how many slices there are, and their secret; the nodes do the rest. A node's lease there lasts 2 s and is renewed every 500 ms: when a node is gone, the backups of its slices take them over within 2.6 s. It needs `replication`. Small builds (`--no-default-features`) refuse it.",
    groups: groups! {
        "endpoints": "array of addresses", "", "[\"https://[2001:db8:c::e1]:2379\", \"https://[2001:db8:c::e2]:2379\", \"https://[2001:db8:c::e3]:2379\"]",
            "All its members. One that does not answer in time is asked no more before the others.";
        "name": "string", "\"gateways\"", "\"gateways\"",
            "What the cluster is called there: its keys begin with `/tombolo/NAME/`.";
        "ca": "path", "that of `replication`", "\"ca.pem\"", "Certificates of those who may certify members, in PEM, for endpoints with `https`.";
        "certificate": "path", "that of `replication`", "\"node.pem\"", "The certificate that is shown to members, in PEM.";
        "key": "path", "that of `replication`", "\"node.key\"", "Its key, in PEM.";
    },
};

/// `[gateway]`.
pub static GATEWAY: Section = Section {
    path: "[gateway]",
    about: "The gateway's place in its host. A reload takes changes of `mtu`, `table`, `inside_interfaces`, `proxy_neighbours`, `fastpath_netfilter`, `metrics`, what begins with `binding_log`, `log_level`, the addresses, `pcp_addresses`, and what begins with `icmp_`; and of `fastpath` unless the gateway has started with `off`. A change of anything else takes a restart, which keeps the state.",
    groups: groups! {
        "device": "string", "\"tombolo\"", "\"tombolo\"",
            "Name of the TUN device that the gateway makes, 1 to 15 bytes. The prefixes and pools of the services are routed to it.";
        "queues": "number", "one for each processor", "2", "Queues of the device, each with a worker of its own; 1 to 256.";
        "pin": "switch", "true", "true", "Pin each worker to a processor.";
        "mtu": "bytes", "65535", "65535",
            "MTU of the device, 1280 to 65535. The default leaves path MTU discovery to the links.";
        "run_directory": "path", "none", "\"/run/tombolo\"",
            "Directory for the tables, so that a restart loses no session. Without it they are memory of the process. It must be absolute, of the user that the gateway runs as, and not to be written by others. Space for all tables is reserved there at the start.";
        "table": "number", "84", "84",
            "Routing table for packets from the hosts inside a `nat44`: rules of the host send them there, and from there they go to the device. The table behind it is for the ports of a pool with `interface`. Two gateways on one host need different ones.";
        "fastpath": "\"auto\", \"xdp\", \"tc\" or \"off\"", "\"auto\"", "\"off\"",
            "What the kernel takes by itself: known connections pass without this process, even while it restarts. `auto`: XDP and TC on network cards, TC on virtual interfaces; without it where the kernel cannot, and as long as netfilter has rules that would not see these packets (see `fastpath_netfilter`). The tables are then the kernel's, in `/sys/fs/bpf/tombolo`. See docs/fastpath.md.";
        "inside_interfaces": "\"by-route\", \"any\" or names", "\"by-route\"", "[\"lan0\", \"lan1\"]",
            "Interfaces that packets from inside may come in through (RFC 3704): the one that their source is routed to, all, or those of the list. Others are dropped before they make any state, by a table of nftables that belongs to the process (`nft list table inet tombolo-DEVICE`), and counted as `inside-spoofed`; the fast path takes none of them. Needs nf_tables in the kernel (Linux 5.12); without it the gateway is degraded and says so.";
        "proxy_neighbours": "switch", "true", "false",
            "Where what is routed to the device (a pool, a CLAT's or a tunnel's address) lies in the network of an Ethernet link, answer in its place when neighbours there ask who has it: proxy ARP, and NDP (RFC 1027, RFC 4861 section 7.2.8), as `ip neigh show proxy` lists it; at most 4096 addresses. The kernel takes its time for the first answer (`proxy_delay`, up to 0.8 seconds). Links and networks that come and go are followed.";
        "fastpath_netfilter": "switch", "false", "true",
            "Packets that the fast path has translated pass the kernel's stack, so that netfilter (nftables, iptables: the chains behind the routing) and routing rules by source see them. Slower, and without XDP. By default they leave by the interface that their route names.";
        "metrics": "address and port, or path", "none", "\"127.0.0.1:9464\"",
            "Where metrics are served over HTTP in the format of Prometheus, at `/metrics`, and a status page at `/`. A path is a Unix socket.";
        "binding_log": "path", "none", "\"/var/log/tombolo/bindings.jsonl\"",
            "File to which each binding is logged when it is made and when it goes, as JSON Lines, without destinations (RFC 6888 REQ-12). It must be absolute.";
        "binding_log_rate": "number", "10000", "10000",
            "Lines a second that are written to it, at most; more wait for their turn. 1 to 1000000.";
        "binding_log_detail": "\"bindings\", \"blocks\" or \"sessions\"", "\"bindings\"", "\"blocks\"",
            "What is logged of services that hand out ports in blocks or by computation: each binding as well, or blocks alone (RFC 6888 REQ-14, RFC 7422): a line when a subscriber gets a block and one when it is given back. Static bindings, and services that hand ports out one by one, are logged by binding in any case. `sessions`: also with whom bindings are used, a line when a session begins and one when it ends; RFC 6888 REQ-12 says that destinations should not be logged unless that is required, so ask for it only where a law does. All services then have `sessions = \"kept\"`.";
        "binding_log_collectors": "collectors", "none", "[\"ipfix+udp://192.0.2.9:4739\", \"syslog+tcp://[2001:db8::9]:601\"]",
            "Who gets the log of bindings over the network as well, by address: `syslog+udp` and `syslog+tcp` (RFC 5424; RFC 6587 with counted octets), `syslog+tls` (RFC 5425; more about it below), `ipfix+udp` and `ipfix+tcp` (RFC 7011, events of RFC 8158). A collector that is slow or gone delays nothing: what does not fit into its queue is counted, and told it later. See docs/control.md.";
        "user": "string", "none: it stays what it is", "\"tombolo\"",
            "User to become once the start is complete, by name or number, with its groups. The run directory, what is pinned in the kernel, the control socket and the log of bindings become its own. It must be able to read this file, for a reload, and to write to the directory of the log, for its rotation. See docs/security.md.";
        "sandbox": "switch", "true", "true",
            "Once the start is complete, leave the process the system calls (seccomp) and files (Landlock) that a running gateway needs, and no others. What the kernel lacks of that is said in the log. Capabilities that are not needed are given up in any case. See docs/security.md.";
        "log_level": "\"error\", \"warn\", \"info\", \"debug\" or \"trace\"", "\"info\"", "\"debug\"",
            "What is logged, to the standard error: what is as grave as this, or graver. A reload follows a change. The environment variable `RUST_LOG` wins.";
        "log_format": "\"auto\", \"text\", \"json\" or \"journal\"", "\"auto\"", "\"json\"",
            "Lines of words with the time, a JSON object a line, or lines that begin with their priority (`<4>` for a warning), for systemd's journal. `auto`: `journal` where the journal reads them, else `text`.";
        "ipv4": "address", "a global address of the host", "\"192.0.2.254\"", "Source of ICMPv4 errors of the gateway's own.";
        "ipv6": "address", "a global address of the host", "\"2001:db8::1\"", "Source of ICMPv6 errors of the gateway's own.";
        "answered_by": "\"host\" or \"gateway\"", "\"host\"", "\"gateway\"",
            "Who answers pings to these two addresses: the host, which has them on an interface, or the gateway, which then needs addresses that no interface has; they are routed to the device.";
        "pcp_addresses": "array of addresses", "[\"192.0.0.9\", \"2001:1::1\"]", "[\"192.0.0.9\", \"2001:db8::5351\"]",
            "Where hosts inside ask for ports with PCP, if a service has `pcp`: addresses that no interface has; they are routed to the device. By default those that every host may ask at without being told (RFC 7723), of the families that the hosts have. At most 4 of a family.";
        "icmp_errors_per_second": "number", "100", "1000", "ICMP errors of its own that each worker sends a second at most, 0 to 1000000 (RFC 4443 section 2.4 (f)): so many of those that path MTU discovery needs, and so many others; of each a quarter, or ten if that is more, to one IPv4 host or IPv6 prefix of 64 bits. 100 a second is what a LAN can bear, and traceroute needs few. Echo replies do not count.";
        "icmp_errors_at_once": "number", "50", "200", "ICMP errors of its own that each worker may send at once, 1 to 1000000.";
        "icmp_refusals": "switch", "true", "false",
            "Tell senders of packets that have no mapping or are denied: \"administratively prohibited\", the default of RFC 7915 sections 4.4 and 5.4. The first ten of a second and worker are logged, with addresses and ports. `false` drops them in silence.";
    },
};

/// An item of `gateway.binding_log_collectors`, where it takes more than an address.
pub static COLLECTOR: Section = Section {
    path: "binding_log_collectors",
    about: "In `[gateway]`: who gets the log of bindings over the network: an address, or a table with it. `syslog+tls` is RFC 5425: what makes the collector credible is a list of authorities, and its name, or its certificate's fingerprint. Files are relative to this one, read with it, and again with each reload.",
    groups: groups! {
        "to": "address", "", "\"syslog+tls://192.0.2.9:6514\"", "Its kind, address and port.";
        "name": "string", "its address", "\"logs.example.net\"", "The name that its certificate is for.";
        "ca": "path", "the host's list", "\"/etc/tombolo/ca.pem\"", "Certificates of the authorities that may have signed it, in PEM.";
        "fingerprint": "string", "none", "\"5D:7B:...\"", "SHA-256 of its certificate, instead of name and authority, as `openssl x509 -noout -fingerprint -sha256` says it. The certificate's name and times do not count then.";
        "certificate": "path", "none", "\"/etc/tombolo/gateway.pem\"", "The gateway's own certificate, with those that have signed it, in PEM.";
        "key": "path", "none", "\"/etc/tombolo/gateway.key\"", "Its key, in PEM. The gateway's `user` must be able to read it, for reloads.";
    },
};

/// An item of `interface`.
pub static INTERFACE: Section = Section {
    path: "[[interface]]",
    about: "What holds for one interface of the host. A change takes a restart where the gateway has started without a fast path.",
    groups: groups! {
        "name": "string", "", "\"eth0\"", "Its name.";
        "fastpath": "\"auto\", \"xdp\", \"tc\" or \"off\"", "", "\"off\"", "As `gateway.fastpath`, for this interface. Without effect if that is `off`.";
    },
};

/// `[capacity]`.
pub static CAPACITY: Section = Section {
    path: "[capacity]",
    about: "Room in the tables. A change takes a restart, which carries the state over. The outside index has room for as many addresses again as the pools have, at least 16 more, so that a reload may add some (on a host with less than 1.6 GB one for each 100 MB, at least one).",
    groups: groups! {
        "bindings": "number", "see below", "1048576", "Bindings (inside address and port to outside address and port), about 76 bytes each. By default as many as the pools hand out ports, of each of the three protocols, and 4096 at least, but at most what a 32nd of the host's memory (or of what its control group may use) has room for, with sessions; `tombolo check` says how many that is.";
        "subscribers": "number", "see below", "65536", "Subscribers (inside addresses) with state at a time, about 76 bytes each. By default 65536, or one for 16 bindings if that is more; at most as many as bindings.";
        "sessions": "number", "four for each binding", "4194304", "Sessions (binding and remote address and port), about 21 bytes each. The first of a TCP binding does not count, nor do UDP and ICMP where they have none.";
        "leases": "number", "4096", "65536", "Bindings that hosts have asked for with PCP, at a time, 64 bytes each; by default no more than there is room for bindings.";
        "memory": "\"as-needed\" or \"at-start\"", "\"as-needed\"", "\"at-start\"",
            "When memory is taken: as the tables fill, so that now and then a packet waits a tenth of a millisecond for it, or all of it at the start, by all processors at once (100 million sessions: 0.1 s), so that none does and what is missing shows at once. The kernel's fast path has its own at the start in any case.";
    },
};

/// `[timeouts]`.
pub static TIMEOUTS: Section = Section {
    path: "[timeouts]",
    about: "How long state outlives its last packet, in seconds. Below what the RFCs ask for, a warning says so.",
    groups: groups! {
        "udp": "seconds", "300", "300", "UDP, UDP-Lite, ESP and GRE: bindings, or sessions where there are any. At least 120 (RFC 4787 REQ-5, RFC 6092 section 3.2).";
        "udp_ports": "table", "none", "{ 53 = 30, 123 = 60 }",
            "UDP ports of remotes that have times of their own, up to 8, none longer than `udp` (RFC 4787 REQ-5 (a)): a binding that is used with such ports alone ends so soon after its last packet. With another port it has the usual time, from the last packet to or from that one.";
        "icmp": "seconds", "60", "60", "ICMP echo: bindings, or sessions where there are any. At least 60 (RFC 5508 REQ-2).";
        "tcp_established": "seconds", "7200", "7200", "Open sessions of TCP, SCTP and DCCP. At least 7200, and with `tcp_transitory` 7440 (RFC 5382 REQ-5, RFC 5597 REQ-5).";
        "tcp_opening": "seconds", "240", "240", "Sessions of TCP, SCTP and DCCP that open. At least 240 (RFC 5382 REQ-5; RFC 7857 section 2.1 allows less).";
        "tcp_transitory": "seconds", "240", "240", "Sessions of TCP, SCTP and DCCP that close, and silent ones after `tcp_established`. At least 240 (RFC 5382 REQ-5; RFC 7857 section 2.1 allows less).";
        "tcp_incoming_syn": "seconds", "6", "6", "A SYN from outside that waits for the inside to open. At least 6 (RFC 5382 REQ-4).";
        "port_reuse": "seconds", "120", "120", "A closed outside port is kept back for so long. At least 120 (RFC 6888 REQ-8). With `cluster.replication`, what one subscriber has had rests 60 seconds and 2 % longer before it is another's: blocks, and ports of all protocols that are handed out one by one.";
        "ports_kept_back": "number", "no limit", "16384",
            "Closed ports of an outside address and protocol that are kept back at a time, 0 to 65535 (RFC 6888 REQ-8). Where there are more, and no other port is free, the oldest are given out again. With `cluster.replication` that holds for the ports of blocks and shares alone.";
    },
};

/// `[[service]]`.
pub static SERVICE: Section = Section {
    path: "[[service]]",
    about: "A service. `kind = \"nat64\"` is a stateful NAT64 (RFC 6146), which is also the PLAT of 464XLAT.",
    groups: groups! {
        "kind": "`\"nat64\"`, or one of the kinds below", "", "\"nat64\"", "What the service does.";
        "name": "string", "its kind", "\"plat\"", "Name in logs and metrics: 1 to 32 lower-case letters, digits and hyphens.";
        ..GUARDED;
        "prefix": "prefix", "", "\"64:ff9b::/96\"",
            "IPv6 prefix in which the inside sees IPv4 addresses, of 32, 40, 48, 56, 64 or 96 bits (RFC 6052). Those of services may lie in each other: the longest counts.";
        "inside": "array of strings", "anybody", "[\"2001:db8::/32\"]",
            "IPv6 prefixes of the hosts that may use the service. What others send is dropped and counted (`not-inside`), and answered with \"administratively prohibited\"; ICMP errors may come from any router. To be said wherever the prefix is reached from the Internet: without it the gateway is an open relay, and `tombolo check` says so.";
        ..WELL_KNOWN_PREFIX;
        ..POOLED;
        "static": "array of tables", "none", "[{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" }]",
            "Bindings that are always there; see below.";
        ..FURTHER_PROTOCOLS;
        ..HELPERS;
        ..FILTERED;
        ..INBOUND_TCP;
        ..SESSIONS;
        ..BINDINGS_OF_ADDRESS;
        "subscriber_prefix": "bits", "128", "64",
            "Leading bits of an IPv6 address that tell subscribers apart, 32 to 128: with 64 all hosts of a /64 share one outside address and its limits.";
        ..GRANTS;
        ..PORT_PARITY;
        ..TRAFFIC_CLASSES;
        ..ZERO_CHECKSUM_4TO6;
        ..ZERO_CHECKSUM_6TO4;
        ..TRANSLATED_MSS;
        ..PLATEAUS;
        ..LOWEST_MTU;
        "ipv6_mtu": "bytes", "1500", "1500", "MTU of the links inside, 1280 to 65535.";
        "ipv4_mtu": "bytes", "1500", "1500", "MTU of the links outside, 68 to 65535.";
    },
};

/// `[[service]]` of the kind `nat44`.
pub static NAT44: Section = Section {
    path: "[[service]] kind = \"nat44\"",
    about: "A stateful NAT44 for IPv4 hosts, up to carrier grade (RFC 6888).",
    groups: groups! {
        "kind": "\"nat44\"", "", "\"nat44\"", "What the service does.";
        "name": "string", "its kind", "\"cgn\"", "Name in logs and metrics: 1 to 32 lower-case letters, digits and hyphens.";
        ..GUARDED;
        "inside": "array of strings", "", "[\"10.0.0.0/24\"]",
            "IPv4 addresses of the hosts inside: prefixes, addresses or ranges. What they send to each other is not translated.";
        "untranslated": "array", "none", "[\"192.0.2.0/24\"]",
            "IPv4 destinations that the hosts reach with their own addresses (RFC 6888 REQ-6): prefixes, addresses or ranges, or tables that name some of their ports; see below.";
        ..POOLED;
        "static": "array of tables", "none", "[{ inside = \"10.0.0.2:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" }]",
            "Bindings that are always there; see below.";
        ..FURTHER_PROTOCOLS;
        ..HELPERS;
        "filtering": "\"endpoint-independent\", \"address-dependent\" or table", "\"endpoint-independent\"", "\"address-dependent\"",
            "Who may send to a binding from outside: anybody, or remote addresses that the inside has sent to (RFC 4787 REQ-8, RFC 6888 REQ-7). A table has one for each protocol; see below.";
        ..INBOUND_TCP;
        ..SESSIONS;
        ..BINDINGS_OF_ADDRESS;
        ..GRANTS;
        ..PORT_PARITY;
        "tcp_mss": "\"auto\", \"off\" or bytes", "\"auto\"", "1360",
            "Largest TCP segment that a SYN may announce through the service; larger announcements are lowered to it, and none is raised. `auto` is what the smaller of the MTUs below leaves behind the headers, so that connections need no path MTU discovery here.";
        ..INSIDE_LINKS;
        ..OUTSIDE_LINKS;
    },
};

/// `[[service]]` of the kinds `siit` and `clat`.
pub static STATELESS: Section = Section {
    path: "[[service]] kind = \"siit\" or \"clat\"",
    about: concat!(
        "A stateless translator (RFC 7915). With `siit` the hosts inside have IPv6 addresses and the outside is IPv4; with ",
        "`clat` (RFC 6877) the hosts inside have IPv4 addresses and the outside is an IPv6-only network.",
    ),
    groups: groups! {
        "kind": "\"siit\" or \"clat\"", "", "\"siit\"", "What the service does.";
        "name": "string", "its kind", "\"dc\"", "Name in logs and metrics: 1 to 32 lower-case letters, digits and hyphens.";
        ..GUARDED;
        ..NATIVE_IPV4;
        "prefix": "prefix", "none; a CLAT needs one", "\"64:ff9b::/96\"",
            "IPv6 prefix that embeds IPv4 addresses without explicit mapping, of 32, 40, 48, 56, 64 or 96 bits (RFC 6052). For a CLAT the prefix of the PLAT; `auto` asks routers (RFC 8781) and then the resolver (RFC 7050) for it at start and at a reload, follows what routers advertise, and waits as long as there is none.";
        "host": "address", "none", "\"192.0.0.1\"",
            "IPv4 address of the CLAT's own host, from 192.0.0.0/29 (RFC 7335), so that the host's programs have IPv4, too. An explicit mapping must have it. CLAT only.";
        "eam": "array of tables", "none", "[{ ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8::1\" }]",
            "Explicit address mappings (RFC 7757), which win over the prefix; the longest match counts. For a CLAT the addresses that stand for its hosts. See below.";
        "embedded_hosts": "array of strings", "none", "[\"192.0.2.0/24\"]",
            "IPv4 prefixes of hosts inside whose IPv6 addresses are embedded in `prefix`, so that packets to them are this service's. Not for a CLAT.";
        "dynamic_pool": "prefix", "none", "\"192.168.255.0/24\"",
            "IPv4 prefix of 12 to 31 bits whose addresses are lent, one each, to hosts inside without explicit mapping and without embedded address. An address stays a host's for 124 minutes behind its last packet, and is kept for it for two weeks if it can be. Not for a CLAT.";
        "dynamic_map": "path", "none", "\"/var/spool/tayga/dynamic.map\"",
            "File that remembers what is lent across restarts, in Tayga's format. It must be absolute.";
        "deny": "array of strings", "none", "[\"192.0.2.0/24\"]",
            "IPv4 prefixes that are not embedded in `prefix`. Explicit mappings are not concerned.";
        "hairpinning": "\"intrinsic\", \"simple\" or \"off\"", "\"intrinsic\"", "\"simple\"",
            "Packets between two hosts inside by their IPv4 addresses: hairpinned here, or sent back by the IPv4 network (RFC 7757 section 4). Not for a CLAT.";
        ..WELL_KNOWN_PREFIX;
        "icmp_sources": "array of strings", "`gateway.ipv4`", "[\"198.51.100.0/28\"]",
            "Public IPv4 addresses, prefixes or ranges, one of which at random is the source of a translated ICMPv6 error whose sender has no IPv4 address (RFC 6791).";
        "identify_nodes": "switch", "false", "true",
            "Tell the IPv6 address of that sender in an extension of the error (RFC 6791 section 3, RFC 5837).";
        ..TRAFFIC_CLASSES;
        "udp_zero_checksum": "\"compute\", \"drop\" or \"forward\"", "\"compute\"", "\"drop\"",
            "What becomes of IPv4 datagrams without a checksum (RFC 7915 section 4.5). `compute`, because voice over Wi-Fi and some tunnels send them; it costs a pass over the payload of these datagrams only. Fragments of them are dropped in any case but `forward`, which breaks RFC 8200 except for the tunnels of RFC 6935.";
        ..ZERO_CHECKSUM_6TO4;
        ..TRANSLATED_MSS;
        ..PLATEAUS;
        ..LOWEST_MTU;
        ..LINKS_BY_FAMILY;
    },
};

/// `[[service]]` of the kind `map-t`.
pub static MAP_T: Section = Section {
    path: "[[service]] kind = \"map-t\"",
    about: concat!(
        "Either end of MAP-T (RFC 7599): IPv4 carried over an IPv6-only network by translation, with ports shared by rule ",
        "and no state in the provider's network.",
    ),
    groups: groups! {
        "kind": "\"map-t\"", "", "\"map-t\"", "What the service does.";
        ..MAP_DOMAIN;
        ..GUARDED;
        ..NATIVE_IPV4;
        "dmr": "prefix", "", "\"2001:db8:ffff::/64\"",
            "Default Mapping Rule: the IPv6 prefix in which the domain sees the IPv4 Internet, of 32, 40, 48, 56, 64 or 96 bits (RFC 6052). Should be 64 (RFC 7599 section 5.1).";
        ..WELL_KNOWN_PREFIX;
        ..MAP_EDGE;
        "icmp_sources": "array of strings", "`gateway.ipv4`", "[\"198.51.100.0/28\"]",
            "IPv4 addresses, prefixes or ranges, one of which at random is the source of a translated ICMPv6 error whose sender has no IPv4 address (RFC 6791).";
        ..TRAFFIC_CLASSES;
        ..ZERO_CHECKSUM_4TO6;
        ..LOWEST_MTU;
        ..LINKS_BY_FAMILY;
        ..ZERO_CHECKSUM_6TO4;
        ..PLATEAUS;
        ..TRANSLATED_MSS;
    },
};

/// `[[service]]` of the kind `map-e`.
pub static MAP_E: Section = Section {
    path: "[[service]] kind = \"map-e\"",
    about: concat!(
        "Either end of MAP-E (RFC 7597): IPv4 carried over an IPv6-only network inside IPv6 packets, with ports shared by ",
        "rule and no state in the provider's network.",
    ),
    groups: groups! {
        "kind": "\"map-e\"", "", "\"map-e\"", "What the service does.";
        ..MAP_DOMAIN;
        ..GUARDED;
        ..NATIVE_IPV4;
        "br": "address", "", "\"2001:db8:ffff::1\"",
            "IPv6 address of the border relay. Several relays may have the same one (anycast); use `fragments = \"inner\"` then.";
        "draft": "number", "none: RFC 7597", "3",
            "3 for a domain whose MAP addresses are those of draft-ietf-softwire-map-03, as with v6plus and OCN in Japan: IPv4 address and PSID stand eight bits further to the left in the interface identifier. Both ends have to agree.";
        ..MAP_EDGE;
        "ipv6_mtu": "bytes", "1500", "1500", "MTU of the path between edge and relay, 1280 to 65535. The tunnel's is 40 less. A path that a router says is smaller is kept to for ten minutes (RFC 8201).";
        "ipv4_mtu": "bytes", "1500", "1500", "MTU of the IPv4 links inside an edge, 68 to 65535.";
        "hop_limit": "number", "64", "64", "Hop limit of the packets that go into the tunnel, 1 to 255.";
        "traffic_class": "\"copy\" or 0 to 255", "\"copy\"", "0",
            "DSCP of the packets that go into the tunnel: that of the packet inside, both ways, or a fixed one. Congestion marks cross in any case (RFC 6040).";
        "dont_fragment": "\"obey\" or \"override\"", "\"obey\"", "\"override\"",
            "What becomes of a packet with DF that does not fit: an ICMP error is sent, or the packet around it is fragmented.";
        "fragments": "\"outer\" or \"inner\"", "\"outer\"", "\"inner\"",
            "Where a packet without DF is fragmented that does not fit: outside, for the other end to reassemble, or inside, for its destination.";
        ..SOFTWIRE_MSS;
    },
};

/// An item of `service.rules`.
pub static MAP_RULE: Section = Section {
    path: "service.rules",
    about: "A mapping rule of MAP (RFC 7597 section 5). `tombolo map calc` shows what a rule does. No IPv6 prefix may be in two items; an IPv4 address may, with different PSIDs.",
    groups: groups! {
        "ipv6": "prefix", "", "\"2001:db8::/40\"", "Rule IPv6 prefix.";
        "ipv4": "address or prefix", "", "\"192.0.2.0/24\"", "Rule IPv4 prefix.";
        "ea_bits": "number", "", "16", "Bits of IPv4 suffix and PSID behind the Rule IPv6 prefix, 0 to 48.";
        "psid_offset": "number", "6", "6", "Bits of a port in front of the PSID, 0 to 15. With 6, ports 0 to 1023 belong to nobody.";
        "psid_length": "number", "none", "8", "Without EA bits: bits of the PSID of the one subscriber, 0 to 16.";
        "psid": "number", "none", "0x34", "Without EA bits: the PSID of the one subscriber.";
        "forwarding": "switch", "false", "true",
            "A Forwarding Mapping Rule: the edge sends to these subscribers directly and not through the relay (mesh). CE only; a relay uses all rules.";
    },
};

/// An item of `service.eam`.
pub static EAM: Section = Section {
    path: "service.eam",
    about: "Two prefixes that stand for each other (RFC 7757). The IPv6 prefix has at least as many bits behind it as the IPv4 prefix. No prefix may be in two items.",
    groups: groups! {
        "ipv4": "address or prefix", "", "\"192.0.2.1\"", "IPv4 side.";
        "ipv6": "address or prefix", "", "\"2001:db8::1\"", "IPv6 side.";
    },
};

/// `[[service]]` of the kind `b4`.
pub static B4: Section = Section {
    path: "[[service]] kind = \"b4\"",
    about: "The customer's end of DS-Lite (RFC 6333): what IPv4 hosts inside send is carried over IPv6 to the provider's AFTR, which translates it.",
    groups: groups! {
        "kind": "\"b4\"", "", "\"b4\"", "What the service does.";
        "name": "string", "its kind", "\"b4\"", "Name in logs and metrics: 1 to 32 lower-case letters, digits and hyphens.";
        ..GUARDED;
        ..NATIVE_IPV4;
        ..BEHIND_SOFTWIRE;
        "address": "address", "", "\"2001:db8:1::b4\"",
            "Tunnel address of this end. It must be routed to this host, and no interface may have it.";
        "aftr": "address or name", "", "\"2001:db8:ffff::1\"", "The AFTR: its tunnel address, or its name, as DHCPv6 tells it (RFC 6334). A name is asked for every few seconds, and followed when it moves; until it has an address the service waits.";
        "icmp_source": "address", "\"192.0.0.2\"", "\"192.0.0.2\"", "Source of ICMP errors to hosts inside (RFC 6333 section 5.7).";
        ..CROSSING;
        ..SOFTWIRE_MSS;
    },
};

/// `[[service]]` of the kind `aftr`.
pub static AFTR: Section = Section {
    path: "[[service]] kind = \"aftr\"",
    about: "The provider's end of DS-Lite (RFC 6333): a carrier-grade NAT44 for hosts behind B4s. All B4s may have the same private addresses behind them.",
    groups: groups! {
        "kind": "\"aftr\"", "", "\"aftr\"", "What the service does.";
        "name": "string", "its kind", "\"aftr\"", "Name in logs and metrics: 1 to 32 lower-case letters, digits and hyphens.";
        ..GUARDED;
        "address": "address", "", "\"2001:db8:ffff::1\"",
            "Tunnel address. It must be routed to this host, and no interface may have it.";
        "b4s": "array of strings", "", "[\"2001:db8:1000::/36\"]", "IPv6 prefixes that B4s may have; others are not served.";
        "inside": "array of strings", "[\"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\", \"192.0.0.0/29\", \"100.64.0.0/10\"]", "[\"10.0.0.0/8\"]",
            "IPv4 sources that are accepted from B4s (RFC 6333 section 11).";
        ..POOLED;
        "subscriber_prefix": "bits", "56", "64",
            "B4s whose addresses begin with the same bits are one subscriber: they get one outside address and share one limit (RFC 7785).";
        ..FURTHER_PROTOCOLS;
        ..HELPERS;
        ..FILTERED;
        ..INBOUND_TCP;
        ..SESSIONS;
        ..BINDINGS_OF_SUBSCRIBER;
        ..PORT_PARITY;
        ..GRANTS;
        "static": "array of tables", "none", "[{ softwire = \"2001:db8:1000::b4\", inside = \"10.0.0.2:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" }]",
            "Bindings that are always there; see below.";
        "untranslated": "array", "none", "[\"198.51.100.0/24\"]",
            "IPv4 destinations that the hosts of `untranslated_hosts` reach with their own addresses (RFC 6888 REQ-6): prefixes, addresses or ranges, or tables that name some of their ports; see below.";
        "untranslated_hosts": "array of tables", "none", "[{ address = \"203.0.113.5\", softwire = \"2001:db8:1000::b4\" }]",
            "Hosts behind B4s whose IPv4 addresses are theirs alone, so that packets from `untranslated` find their softwire; see below. Such a service is left to the engine.";
        ..OUTSIDE_LINKS;
        "icmp_source": "address", "\"192.0.0.1\"", "\"192.0.0.1\"", "Source of ICMP errors to hosts behind B4s (RFC 6333 section 6.5).";
        "tell_unknown": "switch", "true", "false", "Tell a B4 that is not served so, with ICMPv6 1/5 at a bounded rate.";
        ..CROSSING;
        ..SOFTWIRE_MSS;
    },
};

/// `[[service]]` of the kind `lwb4`.
pub static LWB4: Section = Section {
    path: "[[service]] kind = \"lwb4\"",
    about: "The customer's end of Lightweight 4over6 (RFC 7596): a NAT44 inside its own port set of a public address, in front of a softwire.",
    groups: groups! {
        "kind": "\"lwb4\"", "", "\"lwb4\"", "What the service does.";
        "name": "string", "its kind", "\"lwb4\"", "Name in logs and metrics: 1 to 32 lower-case letters, digits and hyphens.";
        ..GUARDED;
        ..NATIVE_IPV4;
        ..BEHIND_SOFTWIRE;
        "ipv4": "address", "", "\"192.0.2.10\"", "The public IPv4 address, whole or shared.";
        ..PORT_SET;
        "address": "address", "**required**, or `bind_prefix`", "\"2001:db8:1::10\"",
            "Tunnel address of this end. It must be routed to this host, and no interface may have it.";
        "bind_prefix": "prefix", "none", "\"2001:db8:12:3400::/56\"",
            "Prefix of at most 64 bits from which the tunnel address follows with the IPv4 address and the PSID (RFC 7596 section 5.1).";
        "aftr": "address or name", "", "\"2001:db8:ffff::1\"", "The lwAFTR: its tunnel address, or its name, which is followed as that of an AFTR is.";
        "static": "array of tables", "none", "[{ inside = \"10.0.0.2:80\", outside = \"192.0.2.10:4100\", protocol = \"tcp\" }]",
            "Bindings that are always there, on ports of the set; see below.";
        ..FILTERED;
        ..INBOUND_TCP;
        ..SESSIONS;
        ..BINDINGS_OF_SUBSCRIBER;
        ..PORT_PARITY;
        ..INSIDE_LINKS;
        "tell_not_ours": "switch", "false", "true",
            "Tell the sender of a packet for a port outside the set so, with ICMPv4 3/13 (RFC 7596 section 5.2).";
        ..CROSSING;
        ..SOFTWIRE_MSS;
    },
};

/// `[[service]]` of the kind `lwaftr`.
pub static LWAFTR: Section = Section {
    path: "[[service]] kind = \"lwaftr\"",
    about: "The provider's end of Lightweight 4over6 (RFC 7596): one row for each softwire, and no state for flows. SIGHUP reads the rows again without losing a packet.",
    groups: groups! {
        "kind": "\"lwaftr\"", "", "\"lwaftr\"", "What the service does.";
        "name": "string", "its kind", "\"lwaftr\"", "Name in logs and metrics: 1 to 32 lower-case letters, digits and hyphens.";
        ..GUARDED;
        "addresses": "array of strings", "", "[\"2001:db8:ffff::1\"]",
            "Tunnel addresses. They must be routed to this host, and no interface may have them.";
        "ipv4": "array of strings", "", "[\"192.0.2.0/24\"]",
            "The subscribers' IPv4 addresses, whether or not a softwire has them now: prefixes, addresses or ranges. They are routed to the gateway.";
        "softwires": "array of tables", "none", "[{ b4 = \"2001:db8:1::10\", ipv4 = \"192.0.2.10\", psid_length = 6, psid = 4 }]",
            "The softwires; see below.";
        "softwires_file": "path", "none", "\"softwires.csv\"",
            "A file with a softwire a line, `b4,ipv4,psid_offset,psid_length,psid,aftr`; the last column may be left out. `#` begins a comment line. Replace the file by renaming a new one, so that nobody reads half of it. A path that is not absolute begins where the configuration file is.";
        "hairpinning": "switch", "true", "false", "Packets from one softwire to another are hairpinned; otherwise they are dropped (RFC 7596 section 6.2).";
        "tell_unknown": "switch", "true", "false", "Tell a lwB4 whose packet fits no softwire so, with ICMPv6 1/5 at a bounded rate (RFC 7596 section 6.2).";
        "tell_unreachable": "switch", "true", "false", "Tell a sender outside that nobody has the port, with ICMPv4 3/1 at a bounded rate (RFC 7596 section 6.2).";
        "inbound_icmp": "switch", "true", "false", "ICMP from outside enters the softwires: echoes by their identifiers, errors by the packets in them (RFC 7596 section 8.1). `false` drops it all, and path MTU discovery of subscribers with it.";
        ..CROSSING;
        ..SOFTWIRE_MSS;
    },
};

/// An item of `service.softwires`.
pub static SOFTWIRE: Section = Section {
    path: "service.softwires",
    about: "A softwire of a `lwaftr`. All softwires of one IPv4 address have the same `psid_offset` and `psid_length`.",
    groups: groups! {
        "b4": "address", "", "\"2001:db8:1::10\"", "Tunnel address of the lwB4.";
        "ipv4": "address", "", "\"192.0.2.10\"", "Its public IPv4 address, whole or shared.";
        ..PORT_SET;
        "aftr": "address", "the first of `addresses`", "\"2001:db8:ffff::1\"", "Tunnel address of this end for it.";
    },
};

/// An item of `service.pool`.
pub static POOL: Section = Section {
    path: "service.pool",
    about: "Outside addresses and ports. No address may be in two items, unless both have the same addresses and different protocols.",
    groups: groups! {
        "addresses": "string", "required without `interface`", "\"192.0.2.0/28\"", "IPv4 addresses: a prefix, one address, or a range as `192.0.2.1-192.0.2.9`.";
        "interface": "string", "none", "\"eth0\"",
            "Instead of `addresses`: the host's own address, which the gateway then shares with it. It is the first global one of this interface, or, with `\"auto\"`, of the interface that the default route leaves by; a change is followed, and what was bound to the address before ends. The gateway takes its ports alone, and of these none that a socket of the host has; what is for nobody inside is the host's. As long as it runs the ports are in `net.ipv4.ip_local_reserved_ports`, so that the host uses no such port for connections of its own.";
        "ports": "string", "\"1024-65535\"; \"10000-29999\" of an `interface`", "\"1024-65535\"",
            "Ports, and identifiers of ICMP echo, to hand out: numbers and ranges, with commas between them.";
        "protocols": "array of strings", "[\"tcp\", \"udp\", \"icmp\"]", "[\"tcp\"]", "What they are handed out for.";
        "for": "array of strings", "all others", "[\"2001:db8:1::/48\"]",
            "Prefixes of the hosts that these addresses are for: IPv6, of a `nat44` IPv4, of an `aftr` those of B4s, and none longer than `subscriber_prefix`. Who is in one of them gets an address from the items with the longest prefix around it, and no other; who is in none, from the items without this key. A subscriber that a reload gives other addresses loses what is open, as `tombolo plan` says before. Not with `interface`, nor with `deterministic`.";
    },
};

/// An item of `service.static`.
pub static STATIC: Section = Section {
    path: "service.static",
    about: "A binding that is always there, for servers inside. Its outside port need not be among those of the pool.",
    groups: groups! {
        "count": "number", "1", "100",
            "Ports from these on, up to this many: one binding each, outside port n more to inside port n more.";
        "softwire": "address", "none", "\"2001:db8:1000::b4\"", "Of an `aftr`, where it is required: the B4 that the host is behind.";
        "inside": "address and port", "", "\"[2001:db8::2]:80\"", "Endpoint inside; of all services but `nat64` an IPv4 endpoint, `10.0.0.2:80`.";
        "outside": "address and port", "", "\"192.0.2.1:80\"", "Endpoint outside; its address must be in the pool. At an interface of the pool: `\"eth0:80\"`.";
        "protocol": "\"tcp\", \"udp\", \"icmp\" or one of `further_protocols`", "", "\"tcp\"", "Protocol. For ICMP the ports are identifiers of echo messages; for ESP and GRE they are 0, and the host has the address for that protocol.";
    },
};

/// An item of `service.untranslated` that is a table.
pub static UNTRANSLATED: Section = Section {
    path: "service.untranslated",
    about: "Ports of destinations that hosts inside reach with their own addresses, as `untranslated = [\"198.51.100.0/24\", { addresses = \"203.0.113.7\", ports = \"53\" }]`. What is sent there goes by the engine, which sees the ports of fragments as well; ICMP errors about it are let through, echoes are translated. Where the interface that the answers come in by checks sources strictly (`rp_filter` 1), it drops them: set 2.",
    groups: groups! {
        "addresses": "string", "", "\"203.0.113.7\"", "IPv4 addresses: a prefix, one address, or a range.";
        "ports": "string", "", "\"53, 853\"", "Ports: numbers and ranges, with commas between them.";
        "protocols": "array of strings", "[\"tcp\", \"udp\"]", "[\"udp\"]", "Whose ports they are.";
    },
};

/// An item of `service.untranslated_hosts`.
pub static UNTRANSLATED_HOST: Section = Section {
    path: "service.untranslated_hosts",
    about: "A host behind a B4 that has an IPv4 address of its own.",
    groups: groups! {
        "address": "address", "", "\"203.0.113.5\"", "Its IPv4 address: inside, and not in the pool.";
        "softwire": "address", "", "\"2001:db8:1000::b4\"", "The B4 that it is behind.";
    },
};

/// `service.filtering`.
pub static FILTERING: Section = Section {
    path: "service.filtering",
    about: "Who may send to a binding from outside, each protocol with its own (RFC 7857 section 6), as `filtering = { tcp = \"address-dependent\" }`. What is left out is as if there were no table.",
    groups: groups! {
        "tcp": "\"endpoint-independent\" or \"address-dependent\"", "that of the service", "\"address-dependent\"", "Connections of TCP, SCTP and DCCP that are opened from outside.";
        "udp": "\"endpoint-independent\" or \"address-dependent\"", "that of the service", "\"endpoint-independent\"", "UDP datagrams; UDP-Lite, ESP and GRE.";
        "icmp": "\"endpoint-independent\" or \"address-dependent\"", "that of the service", "\"address-dependent\"", "ICMP queries.";
    },
};

/// `service.limits`.
pub static LIMITS: Section = Section {
    path: "service.limits",
    about: "What a subscriber (an inside address, or a prefix as `subscriber_prefix` says) may have and do. What goes beyond is refused and counted; what is there stays.",
    groups: groups! {
        "sessions": "number", "no limit", "4000", "Sessions that a subscriber may have at a time (RFC 6888 REQ-5). With it UDP and ICMP make sessions (see `sessions` of the service).";
        "unanswered": "number", "1024", "4000",
            "Sessions of a subscriber that were opened from outside and that the inside has not answered. Beyond it UDP and ICMP come in without a session, and SYNs are refused. Those that were answered count as `sessions`. A binding without sessions that only the outside has used for its whole lifetime counts as one; beyond the number the outside does not keep it.";
        "unanswered_per_binding": "number", "256", "1000", "As `unanswered`, of one binding, static ones included; more than 4095 are taken as 4095.";
        "new_bindings_per_second": "number", "no limit", "100",
            "Bindings that a subscriber may make in a second, 1 to 32767, and twice as many after a pause (RFC 6888 REQ-4 (c)).";
        "new_subscribers_per_second": "number", "no limit", "1000",
            "Subscribers that the service admits in a second, all workers together: against floods from invented sources.";
    },
};

/// `service.pcp`.
pub static PCP: Section = Section {
    path: "service.pcp",
    about: "What hosts inside may ask for with PCP (RFC 6887, with the port sets of RFC 7753), at the addresses `pcp_addresses` of `[gateway]`; those behind a B4 also at 192.0.0.1, all others also at any address of the host, as that of their default router, if no other program there has UDP port 5351. A mapping is a binding that anybody may send to, whatever `filtering` and `inbound_tcp` say, as long as its host renews it. `pcp = true` is this table with nothing in it. A reload takes changes; mappings that are there stay until their time is over.",
    groups: groups! {
        "mappings_per_subscriber": "number", "32", "16", "Mappings that a subscriber may have at a time, 1 to 65535; they count as bindings, too.";
        "shortest_lifetime": "seconds", "120", "120", "The shortest time that a mapping is given for.";
        "longest_lifetime": "seconds", "86400", "7200", "The longest one.";
    },
};

/// `service.allocation`.
pub static ALLOCATION: Section = Section {
    path: "service.allocation",
    about: concat!(
        "In which portions subscribers get outside ports. With `blocks` a subscriber has blocks of consecutive ports, the same for ",
        "all protocols, and gets further ones as it needs them (RFC 6888 REQ-14). With `deterministic` its share is computed ",
        "(RFC 7422), so that no log is needed: `tombolo binding who` tells whose a port was. The reserved ports are those that ",
        "the pool does not have. A change of `block_size`, or to blocks or from them, ends what the service has.",
    ),
    groups: groups! {
        "mode": "\"ports\", \"blocks\" or \"deterministic\"", "", "\"blocks\"", "Port by port, in blocks, or by computation.";
        "block_size": "ports", "512", "512",
            "Ports in a block, 64 to 32768. With `deterministic` for the dynamic pool, which is handed out port by port without this key.";
        "blocks": "number", "4", "4", "Blocks that a subscriber may have at a time, 1 to 4.";
        "inside": "prefix", "`inside` of a `nat44`", "\"2001:db8::/48\"",
            "Of a `nat64` with `deterministic`: the prefix of the subscribers, who have `subscriber_prefix` bits each. Others get no state. It must lie in a prefix of the service's own `inside`, if that has any, or of the `b4s` of an `aftr`.";
        "dynamic_factor": "number", "0", "2",
            "Of `deterministic`: shares that each outside address keeps for its dynamic pool (RFC 7422's D), for subscribers who need more than theirs.";
        "order": "\"fill-address\" or \"rotate-addresses\"", "\"fill-address\"", "\"rotate-addresses\"",
            "Of `deterministic`: whether the first outside address is filled before the second, or subscriber i has address i modulo their number.";
    },
};

/// All tables, in the order of the documentation.
pub static SECTIONS: [&Section; 31] = [
    &FILE,
    &GATEWAY,
    &COLLECTOR,
    &INTERFACE,
    &CAPACITY,
    &TIMEOUTS,
    &CLUSTER,
    &SLICES,
    &SLICE_OWNER,
    &REPLICATION,
    &ETCD,
    &SERVICE,
    &NAT44,
    &POOL,
    &STATIC,
    &UNTRANSLATED,
    &UNTRANSLATED_HOST,
    &FILTERING,
    &LIMITS,
    &PCP,
    &ALLOCATION,
    &STATELESS,
    &EAM,
    &B4,
    &AFTR,
    &LWB4,
    &LWAFTR,
    &SOFTWIRE,
    &MAP_E,
    &MAP_T,
    &MAP_RULE,
];

/// The text of `docs/configuration.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(concat!(
        "# Configuration\n\n",
        "One TOML file. `tombolo check -c FILE` validates it and prints the plan; every mistake comes with file, line,\n",
        "key, value, reason and fix. Examples are in [`examples/`](../examples/). This page is made from\n",
        "`crates/config/src/reference.rs`; a test says when it is stale.\n",
    ));
    for section in SECTIONS.iter().skip(1) {
        let _ = write!(text, "\n## `{}`\n\n{}\n\n", section.path, section.about);
        text.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
        for key in section.keys() {
            let default = match key.default {
                "" => "**required**".to_owned(),
                value if value.starts_with(['"', '[']) || value.parse::<u64>().is_ok() || value == "true" => {
                    format!("`{value}`")
                }
                words => words.to_owned(),
            };
            let _ = writeln!(text, "| `{}` | {} | {default} | {} |", key.name, key.kind, key.about);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_documentation_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, markdown()).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(found == markdown(), "docs/configuration.md is stale: run UPDATE_DOCS=1 cargo test -p tombolo-config");
    }

    #[test]
    fn keys_are_unique_and_explained() {
        for section in SECTIONS {
            for (number, key) in section.keys().enumerate() {
                assert!(!key.about.is_empty(), "{}", key.name);
                assert!(section.keys().take(number).all(|other| other.name != key.name), "{}", key.name);
            }
        }
    }
}
