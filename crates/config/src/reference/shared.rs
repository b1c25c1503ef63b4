//! Keys that several sections have, in groups: each is written once, and stands where a section
//! names its group. Above each: what has it.

use super::Key;

/// Every service.
pub(super) const GUARDED: &[Key] = keys! {
    "inside_interfaces": "\"by-route\", \"any\" or names", "the gateway's", "[\"lan0\"]",
        "Interfaces that packets from inside may come in through to this service, where that is not what `[gateway]` says of all (RFC 3704). A reload takes it.";
};

/// The customer's ends.
pub(super) const NATIVE_IPV4: &[Key] = keys! {
    "native_ipv4": "\"ignored\" or \"preferred\"", "\"ignored\"", "\"preferred\"",
        "What becomes of the service while the host has IPv4 of its own: a default route of the main table, by another interface whose link is up. `preferred` has the service stand by meanwhile: its hosts' packets go there as they are, so that the host's firewall has to masquerade them. It takes over as soon as the route or the link is gone, and stands by again once they have been back for a second. For the customer's end only. A reload takes it.";
};

/// What has outside addresses to hand out.
pub(super) const POOLED: &[Key] = keys! {
    "pool": "array of tables", "required without `masquerade`", "[{ addresses = \"192.0.2.0/28\", ports = \"1024-65535\" }]",
        "Outside addresses and ports; see below.";
    "masquerade": "switch or interface", "false", "\"eth0\"",
        "Share the host's own address: that of the interface, or, with `true`, of the one that the default route leaves by. Short for an item of `pool` with `interface` and nothing else.";
};

/// NAT64 and NAT44.
pub(super) const BINDINGS_OF_ADDRESS: &[Key] = keys! {
    "bindings_per_subscriber": "number", "no limit", "1000", "Bindings that one inside address may have at a time (RFC 6888 REQ-4).";
};

/// AFTR and lwB4.
pub(super) const BINDINGS_OF_SUBSCRIBER: &[Key] = keys! {
    "bindings_per_subscriber": "number", "no limit", "1000", "Bindings that one subscriber may have at a time (RFC 6888 REQ-4).";
};

/// NAT64, NAT44 and AFTR.
pub(super) const FURTHER_PROTOCOLS: &[Key] = keys! {
    "further_protocols": "array of strings", "[\"sctp\", \"dccp\", \"udp-lite\"]; none where an address of the host is shared", "[\"sctp\", \"dccp\", \"udp-lite\", \"esp\", \"gre\"]",
        "What is translated besides TCP, UDP and ICMP. `sctp`, `dccp` and `udp-lite` go by their ports, the first two among those of TCP, the last among those of UDP. `esp` and `gre` have none: of each, one host has an outside address until it has been silent for `timeouts.udp`, whoever comes first, and others on the same address are refused; they want port-by-port allocation. What is none of these is refused.";
};

/// NAT64, NAT44 and AFTR.
pub(super) const HELPERS: &[Key] = keys! {
    "helpers": "array of strings", "[]", "[\"ftp\"]",
        "What applications say of addresses that is rewritten on its way. `ftp`: in control connections from inside to TCP port 21, `PORT` and `EPRT` get an outside port that leads to the host's, so that active mode works, and through a NAT64 `EPSV` becomes `PASV`, and its reply one to `EPSV` (RFC 6384). These connections are left to the engine. What is encrypted stays as it is.";
};

/// What filters as RFC 4787 recommends unless told otherwise.
pub(super) const FILTERED: &[Key] = keys! {
    "filtering": "\"endpoint-independent\", \"address-dependent\" or table", "\"endpoint-independent\"", "\"address-dependent\"",
        "Who may send to a binding from outside: anybody, or remote addresses that the inside has sent to (RFC 4787 REQ-8). A table has one for each protocol; see below.";
};

/// What has bindings.
pub(super) const INBOUND_TCP: &[Key] = keys! {
    "inbound_tcp": "\"filtered\" or \"denied\"", "\"filtered\"", "\"denied\"",
        "Whether connections of TCP, SCTP and DCCP may be opened from outside: where filtering lets them in, or only through static bindings.";
};

/// What has bindings.
pub(super) const SESSIONS: &[Key] = keys! {
    "sessions": "\"where-they-decide\" or \"kept\"", "\"where-they-decide\"", "\"kept\"",
        "Which packets make sessions (a binding and a remote address and port). TCP, SCTP and DCCP always do. Others do where filtering is by address, or `limits.sessions` counts them; elsewhere a session would decide nothing, and their bindings keep their own time. `kept` makes them all the same, to be shown and counted, at about 21 bytes and a fifth to a half of the speed.";
};

/// NAT64, NAT44 and AFTR.
pub(super) const GRANTS: &[Key] = keys! {
    "limits": "table", "no limits", "{ sessions = 4000 }", "What a subscriber may have and do at most; see below.";
    "allocation": "table", "port by port", "{ mode = \"blocks\", block_size = 512 }",
        "In which portions subscribers get outside ports; see below.";
    "pcp": "switch or table", "false", "{ mappings_per_subscriber = 16 }", "Hosts inside may ask for ports with PCP (RFC 6887); see below.";
    "unsolicited_syn": "\"drop\" or \"hold\"", "\"drop\"", "\"hold\"",
        "What becomes of a TCP SYN from outside that may not come in. `hold` keeps it for `tcp_incoming_syn` seconds, so that both sides may open at once, and then sends an ICMP error (RFC 5382 REQ-4, RFC 6146 section 3.5.2.2); at most 512 for each worker. `drop` leaves scans unanswered.";
};

/// What draws ports.
pub(super) const PORT_PARITY: &[Key] = keys! {
    "port_parity": "switch", "true", "true",
        "Map even UDP ports to even ones and odd ones to odd ones while there are any (RFC 4787 REQ-4). `false` makes ports harder to guess (RFC 7857 section 8).";
};

/// IPv4 inside.
pub(super) const INSIDE_LINKS: &[Key] = keys! {
    "inside_mtu": "bytes", "1500", "1500", "MTU of the links inside, 68 to 65535.";
};

/// IPv4 outside.
pub(super) const OUTSIDE_LINKS: &[Key] = keys! {
    "outside_mtu": "bytes", "1500", "1500", "MTU of the links outside, 68 to 65535.";
};

/// What translates by a prefix.
pub(super) const WELL_KNOWN_PREFIX: &[Key] = keys! {
    "well_known_prefix_strict": "switch", "true", "true",
        "Drop packets that combine 64:ff9b::/96 with an IPv4 address that is not global, as RFC 6052 section 3.1 demands. `false` for labs and private networks.";
};

/// A translation.
pub(super) const TRAFFIC_CLASSES: &[Key] = keys! {
    "traffic_class_4to6": "\"copy\" or 0 to 255", "\"copy\"", "0", "Traffic class of packets that were IPv4 (RFC 7915 section 4.1): copied, or with the DSCP of this octet. ECN is copied in either case.";
    "traffic_class_6to4": "\"copy\" or 0 to 255", "\"copy\"", "0", "TOS of packets that were IPv6 (RFC 7915 section 5.1): copied, or with the DSCP of this octet. ECN is copied in either case.";
};

/// NAT64 and MAP-T.
pub(super) const ZERO_CHECKSUM_4TO6: &[Key] = keys! {
    "udp_zero_checksum": "\"compute\", \"drop\" or \"forward\"", "\"compute\"", "\"drop\"",
        "What becomes of IPv4 datagrams without a checksum. `forward` breaks RFC 8200 except for the tunnels of RFC 6935.";
};

/// A translation.
pub(super) const ZERO_CHECKSUM_6TO4: &[Key] = keys! {
    "udp_zero_checksum_6to4": "\"compute\", \"drop\" or \"forward\"", "\"drop\"", "\"forward\"",
        "What becomes of IPv6 datagrams without a checksum, which only certain tunnels may send (RFC 6935).";
};

/// A translation.
pub(super) const TRANSLATED_MSS: &[Key] = keys! {
    "tcp_mss": "\"auto\", \"off\" or bytes", "\"auto\"", "1360",
        "Largest TCP segment that a SYN may announce through the service; larger announcements are lowered to it, and none is raised. `auto` is what the MTUs below leave behind both families' headers, so that connections need no path MTU discovery here.";
};

/// A translation.
pub(super) const PLATEAUS: &[Key] = keys! {
    "mtu_plateaus": "array of numbers", "those of RFC 7915", "[1492, 1006, 508]",
        "Path MTUs, from large to small, of which the next below the packet's size is taken where an IPv4 router does not give its own (RFC 7915 section 4.2).";
};

/// A translation.
pub(super) const LOWEST_MTU: &[Key] = keys! {
    "lowest_ipv6_mtu": "bytes", "1280", "1280",
        "IPv4 packets without DF become IPv6 packets of at most this many bytes, 1280 to 65535 (RFC 7915 section 4).";
};

/// SIIT, CLAT and MAP-T.
pub(super) const LINKS_BY_FAMILY: &[Key] = keys! {
    "ipv6_mtu": "bytes", "1500", "1500", "MTU of the IPv6 links, 1280 to 65535.";
    "ipv4_mtu": "bytes", "1500", "1500", "MTU of the IPv4 links, 68 to 65535.";
};

/// The customer's end of a softwire.
pub(super) const BEHIND_SOFTWIRE: &[Key] = keys! {
    "inside": "array of strings", "", "[\"10.0.0.0/24\"]",
        "IPv4 addresses of the hosts inside: prefixes, addresses or ranges. What they send to each other stays as it is; what they send elsewhere enters the softwire.";
};

/// Lightweight 4over6.
pub(super) const PORT_SET: &[Key] = keys! {
    "psid_offset": "number", "0", "6", "Offset bits of the port set, 0 to 15: RFC 7597's a. Without offset a set is one range.";
    "psid_length": "number", "0", "6", "Bits of the PSID, 0 to 16: the address is shared by 2 to that many softwires. 0 for a whole address.";
    "psid": "number", "0", "4", "Which of the port sets.";
};

/// The ends of DS-Lite and of Lightweight 4over6.
pub(super) const CROSSING: &[Key] = keys! {
    "ipv6_mtu": "bytes", "1500", "1540",
        "MTU of the IPv6 path between the ends, 1280 to 65535. IPv4 packets of 40 bytes less cross in one piece. Best is a network with 1540 or more (RFC 6333 section 5.3). A path that a router says is smaller is kept to for ten minutes (RFC 8201).";
    "hop_limit": "number", "64", "64", "Hop limit of the packets sent to the other end, 1 to 255.";
    "traffic_class": "\"copy\" or 0 to 255", "\"copy\"", "0",
        "Traffic class of the packets sent to the other end, and what becomes of it there: `copy` carries the DSCP over both ways (RFC 6333 section 7.1), a number sets it and leaves that of the inner packet alone. Congestion is told in either case (RFC 6040).";
    "dont_fragment": "\"obey\" or \"override\"", "\"obey\"", "\"override\"",
        "An IPv4 packet with DF that is too big: refused with \"fragmentation needed\" (RFC 2473 section 7.2), or fragmented outside all the same (RFC 6333 section 5.3).";
    "fragments": "\"outer\" or \"inner\"", "\"outer\"", "\"inner\"",
        "Where a packet without DF that is too big is fragmented: the IPv6 packet, which the other end reassembles, or the IPv4 packet, which its destination does.";
};

/// Every end of softwires.
pub(super) const SOFTWIRE_MSS: &[Key] = keys! {
    "tcp_mss": "\"auto\", \"off\" or bytes", "\"auto\"", "1360",
        "Largest TCP segment that a SYN may announce through the tunnel, either way; larger announcements are lowered to it, and none is raised. `auto` is what `ipv6_mtu` leaves behind all headers (80 bytes), so that connections need no path MTU discovery here.";
};

/// Either kind of MAP.
pub(super) const MAP_DOMAIN: &[Key] = keys! {
    "name": "string", "its kind", "\"ce\"", "Name in logs and metrics: 1 to 32 lower-case letters, digits and hyphens.";
    "role": "\"br\" or \"ce\"", "", "\"br\"", "Which end: the provider's border relay, or the customer's edge.";
    "rules": "array of tables", "", "[{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 }]",
        "Mapping rules; see below.";
};

/// The customer's edge of either kind of MAP.
pub(super) const MAP_EDGE: &[Key] = keys! {
    "end_user_prefix": "prefix", "of a CE **required**", "\"2001:db8:12:3400::/56\"",
        "The IPv6 prefix that the edge was given. The rule with the longest IPv6 prefix around it is its Basic Mapping Rule.";
    "inside": "array of strings", "of a CE with NAPT **required**", "[\"10.0.0.0/24\"]",
        "IPv4 addresses of the hosts inside: prefixes, addresses or ranges. CE only.";
    "napt": "switch", "true", "true",
        "Share the edge's address among the hosts inside, on all ranges of its port set. `false`: the hosts have the address or prefix themselves, or something in front of the edge translates; what is not from its own ports is dropped. CE only.";
    "static": "array of tables", "none", "[{ inside = \"10.0.0.2:80\", outside = \"192.0.2.18:1232\", protocol = \"tcp\" }]",
        "Bindings that are always there, on ports of the edge's own; see below. CE only.";
    "filtering": "\"endpoint-independent\", \"address-dependent\" or table", "\"address-dependent\"", "\"address-dependent\"",
        "Who may send to a binding from outside. Small port sets are easily guessed (RFC 7597 section 10). CE only.";
    "inbound_tcp": "\"filtered\" or \"denied\"", "\"filtered\"", "\"denied\"",
        "Whether TCP connections may be opened from outside: where filtering lets them in, or only through static bindings. CE only.";
    "sessions": "\"where-they-decide\" or \"kept\"", "\"where-they-decide\"", "\"kept\"",
        "Which packets make sessions: with the usual filtering all do; see `sessions` of a NAT44. CE only.";
    "bindings_per_subscriber": "number", "no limit", "100", "Bindings that one inside address may have at a time. CE only.";
    "port_parity": "switch", "true", "true",
        "Map even UDP ports to even ones and odd ones to odd ones while there are any (RFC 4787 REQ-4). CE only.";
};
