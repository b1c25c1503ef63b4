"""Golden cases of MAP-E (RFC 7597) and MAP-T (RFC 7599), both ends. Called by make.py, whose packets they are made of.

Addresses are put together here from the RFCs' figures, not taken from the engine.
"""

import ipaddress

import make as m

RELAY = "2001:db8:ffff::1"
BR4, BR6 = "192.0.2.254", "2001:db8:ffff::ffff"     # the relay's own, for its errors
CE4, CE6 = "10.0.0.1", "2001:db8:12:3400::1"        # the edge's own, for its errors
REMOTE = "198.51.100.2"
ROUTER4 = "198.51.100.9"
ROUTER6 = "2001:db8:1::77"
HOST, OTHER = "10.0.0.2", "10.0.0.3"


def in_dmr(ipv4):
    """RFC 6052 section 2.2 for a /64: the u octet, then the address, then three zero octets."""
    packed = ipaddress.IPv6Address("2001:db8:ffff::").packed[:8] + b"\0" + m.a4(ipv4) + b"\0\0\0"
    return str(ipaddress.IPv6Address(packed))


def map_address(end_user, ipv4, psid=0):
    """RFC 7597 section 6: 16 zero bits, IPv4 address, PSID."""
    identifier = b"\0\0" + m.a4(ipv4) + psid.to_bytes(2, "big")
    return str(ipaddress.IPv6Address(ipaddress.IPv6Address(end_user).packed[:8] + identifier))


# By the rule 2001:db8::/40 = 192.0.2.0/24 with 16 EA bits: the edge of appendix A, and its neighbour.
PUBLIC, EDGE = "192.0.2.18", map_address("2001:db8:12:3400::", "192.0.2.18", 0x34)
PUBLIC2, EDGE2 = "192.0.2.19", map_address("2001:db8:13:3500::", "192.0.2.19", 0x35)
assert EDGE == "2001:db8:12:3400:0:c000:212:34" and in_dmr("10.2.3.4") == "2001:db8:ffff:0:a:203:400:0"
# By the rule 2001:db8:5000::/36 = 203.0.113.0/24 with 8: a whole address.
WHOLE, WHOLE6 = "203.0.113.9", map_address("2001:db8:5090::", "203.0.113.9")
# By the rule 2001:db8:6000::/36 = 198.18.0.0/24 with 4: hosts of 198.18.0.80/28.
NET_HOST = "198.18.0.83"
NET_HOST6, NET6 = map_address("2001:db8:6500::", NET_HOST), map_address("2001:db8:6500::", "198.18.0.80")
# Two subscribers with given PSIDs on one address.
GIVEN, GIVEN34, GIVEN35 = "198.18.1.1", map_address("2001:db8:7000:1::", "198.18.1.1", 0x34), map_address(
    "2001:db8:7000:2::", "198.18.1.1", 0x35)


def udp4(source, destination, sport, dport, payload=b"payload!", **fields):
    return m.ipv4(source, destination, 17, m.udp(source, destination, sport, dport, payload), **fields)


def udp6(source, destination, sport, dport, payload=b"payload!", **fields):
    return m.ipv6(source, destination, 17, m.udp(source, destination, sport, dport, payload), **fields)


def tcp4(source, destination, sport, dport, payload=b"payload!", **fields):
    flags = fields.pop("flags", 0x10)
    return m.ipv4(source, destination, 6, m.tcp(source, destination, sport, dport, payload, flags=flags), **fields)


def tcp6(source, destination, sport, dport, payload=b"payload!", **fields):
    flags = fields.pop("flags", 0x10)
    return m.ipv6(source, destination, 6, m.tcp(source, destination, sport, dport, payload, flags=flags), **fields)


def echo4(source, destination, kind, ident, **fields):
    return m.ipv4(source, destination, 1, m.icmp4(kind, 0, m.echo_rest(ident, 1), b"ping"), **fields)


def echo6(source, destination, kind, ident, **fields):
    message = m.icmp6(source, destination, kind, 0, m.echo_rest(ident, 1), b"ping")
    return m.ipv6(source, destination, 58, message, **fields)


def softwire(source, destination, inner, **fields):
    """RFC 2473 section 3.1; the traffic class is that of the packet inside."""
    return m.ipv6(source, destination, 4, inner, tc=inner[1], **fields)


def told4(given, kind, code, rest, source, destination):
    """An ICMPv4 error about `given` as a gateway sends it."""
    return m.error4(source, destination, kind, code, rest, given[:548], tos=0xC0)


def told6(given, kind, code, rest, source, destination):
    return m.error6(source, destination, kind, code, rest, given[:1232])


def adder(service, config=None):
    def add(name, clause, what, why, packets):
        m.case(name, clause, what, why, packets, config=config or service, service=service)
    return add


def pieces4(whole, size, ident):
    """The two fragments of an IPv4 packet of which the first has `size` bytes of payload."""
    source, destination = (str(ipaddress.IPv4Address(whole[at:at + 4])) for at in (12, 16))
    return [m.ipv4(source, destination, whole[9], part, ident=ident, mf=mf, offset=offset, ttl=whole[8])
            for part, mf, offset in ((whole[20:20 + size], 1, 0), (whole[20 + size:], 0, size // 8))]


def pieces6(whole, size, ident):
    source, destination = (str(ipaddress.IPv6Address(whole[at:at + 16])) for at in (8, 24))
    return [m.ipv6(source, destination, 44, m.fragment(whole[6], offset, more, ident) + part, hops=whole[7])
            for part, more, offset in ((whole[40:40 + size], 1, 0), (whole[40 + size:], 0, size // 8))]


def forwarded(given, out):
    return m.packet(given, "forward", out, any_identification=True)


# ------------------------------------------------------------------------------------------------------ MAP-T, relay


def map_t_br():
    add = adder("map-t-br")
    send, receive = "RFC 7599 section 8.3", "RFC 7599 section 8.2"

    def inward(name, what, why, v4, v6, clause=send):
        add(name, clause, what, why, m.packet(v4, "forward", v6))

    def outward(name, what, why, v6, v4, clause=receive):
        add(name, clause, what, why, forwarded(v6, v4))

    far = in_dmr(REMOTE)
    inward("udp-in", "a datagram for a shared address", "the port says whose it is",
           udp4(REMOTE, PUBLIC, 53, 1232), udp6(far, EDGE, 53, 1232, hops=63))
    inward("example-2", "example 2 of the RFC", "published", udp4("10.2.3.4", PUBLIC, 80, 1232),
           udp6(in_dmr("10.2.3.4"), EDGE, 80, 1232, hops=63), "RFC 7599 appendix A")
    inward("last-port-in", "the last port of the last range", "every range of the set counts",
           tcp4(REMOTE, PUBLIC, 80, 64723), tcp6(far, EDGE, 80, 64723, hops=63))
    octets = bytearray(m.a6(far))
    octets[8] = 0x55
    any_u = str(ipaddress.IPv6Address(bytes(octets)))
    outward("u-octet-out", "to an address with a u octet that is not zero", "it is removed whatever it says",
            udp6(EDGE, any_u, 1232, 53), udp4(PUBLIC, REMOTE, 1232, 53, ttl=63), "RFC 6052 section 2.3")
    link_local = in_dmr("169.254.1.1")
    given = udp6(EDGE, link_local, 1232, 53)
    add("link-local-out", "RFC 3927 section 7", "to 169.254.1.1 in the prefix", "no router forwards to it; told with 1/1",
        m.packet(given, "reply link-local-address", told6(given, 1, 1, m.ZERO, BR6, EDGE)))
    add("link-local-in", "RFC 3927 section 7", "from 169.254.1.1", "no router forwards from it",
        m.packet(udp4("169.254.1.1", PUBLIC, 53, 1232), "drop link-local-address"))
    inward("next-port-in", "the port behind a range", "it is the next subscriber's",
           udp4(REMOTE, PUBLIC, 53, 1236),
           udp6(far, map_address("2001:db8:12:3500::", PUBLIC, 0x35), 53, 1236, hops=63))
    inward("ping-in", "an echo request", "its identifier counts as a port", echo4(REMOTE, PUBLIC, 8, 1232),
           echo6(far, EDGE, 128, 1232, hops=63), "RFC 7599 section 9")
    inward("pong-in", "an echo reply", "its identifier counts as a port", echo4(REMOTE, PUBLIC, 0, 64720),
           echo6(far, EDGE, 129, 64720, hops=63), "RFC 7599 section 9")
    outward("udp-out", "a datagram of a subscriber", "source and port are its own",
            udp6(EDGE, far, 1232, 53), udp4(PUBLIC, REMOTE, 1232, 53, ttl=63))
    outward("tcp-out", "a segment of a subscriber", "the last port of its set",
            tcp6(EDGE, far, 64723, 80), tcp4(PUBLIC, REMOTE, 64723, 80, ttl=63))
    outward("ping-out", "an echo request of a subscriber", "its identifier is in the port set",
            echo6(EDGE, far, 128, 2256), echo4(PUBLIC, REMOTE, 8, 2256, ttl=63), "RFC 7599 section 9")
    for name, port in {"http": 80, "last-reserved": 1023, "zero": 0}.items():
        add(f"port-of-nobody-{name}", "RFC 7597 section 5.1", f"port {port} of a shared address",
            "the block below 2^(16-a) belongs to nobody", m.packet(udp4(REMOTE, PUBLIC, 53, port), "drop no-binding"))
    add("identifier-of-nobody", "RFC 7599 section 9", "an echo request with identifier 80",
        "no subscriber has it", m.packet(echo4(REMOTE, PUBLIC, 8, 80), "drop no-binding"))
    for name, protocol, body in (("sctp", 132, lambda source, destination, *rest: m.sctp(*rest)),
                                 ("dccp", 33, m.dccp), ("udp-lite", 136, m.udp_lite)):
        inward(f"{name}-in", f"protocol {protocol} for a shared address", "the port says whose it is",
               m.ipv4(REMOTE, PUBLIC, protocol, body(REMOTE, PUBLIC, 53, 1232, b"data")),
               m.ipv6(far, EDGE, protocol, body(far, EDGE, 53, 1232, b"data"), hops=63), "RFC 7597 section 5.1")
        outward(f"{name}-out", f"protocol {protocol} of a subscriber", "source and port are its own",
                m.ipv6(EDGE, far, protocol, body(EDGE, far, 1232, 53, b"data")),
                m.ipv4(PUBLIC, REMOTE, protocol, body(PUBLIC, REMOTE, 1232, 53, b"data"), ttl=63),
                "RFC 7597 section 5.1")
    add("gre-to-a-shared-address", "RFC 7599 section 9", "GRE for a shared address", "nothing says whose it is",
        m.packet(m.ipv4(REMOTE, PUBLIC, 47, b"\0\0\x08\0data"), "drop unsupported-protocol"))
    inward("whole-address-in", "a well-known port of a whole address", "without sharing all ports are one's own",
           tcp4(REMOTE, WHOLE, 40000, 80), tcp6(far, WHOLE6, 40000, 80, hops=63), "RFC 7597 section 5.2")
    outward("whole-address-out", "from a well-known port of a whole address", "the reverse",
            tcp6(WHOLE6, far, 80, 40000), tcp4(WHOLE, REMOTE, 80, 40000, ttl=63), "RFC 7597 section 5.2")
    inward("gre-to-a-whole-address", "GRE for a whole address", "no port is needed",
           m.ipv4(REMOTE, WHOLE, 47, b"\0\0\x08\0data"), m.ipv6(far, WHOLE6, 47, b"\0\0\x08\0data", hops=63),
           "RFC 7597 section 5.2")
    inward("prefix-in", "for a host of an assigned prefix", "the interface identifier keeps the host",
           udp4(REMOTE, NET_HOST, 53, 5000), udp6(far, NET_HOST6, 53, 5000, hops=63), "RFC 7597 section 5.2")
    outward("prefix-out", "from a host of an assigned prefix", "the reverse",
            udp6(NET_HOST6, far, 5000, 53), udp4(NET_HOST, REMOTE, 5000, 53, ttl=63), "RFC 7597 section 5.2")
    inward("given-psid-34", "a port of a subscriber with a given PSID", "the port decides among rules of one address",
           udp4(REMOTE, GIVEN, 53, 1232), udp6(far, GIVEN34, 53, 1232, hops=63), "RFC 7597 section 5.2")
    inward("given-psid-35", "a port of the other one", "the port decides among rules of one address",
           udp4(REMOTE, GIVEN, 53, 1236), udp6(far, GIVEN35, 53, 1236, hops=63), "RFC 7597 section 5.2")
    add("given-psid-of-nobody", "RFC 7597 section 5.2", "a port that no rule of the address has", "dropped",
        m.packet(udp4(REMOTE, GIVEN, 53, 1240), "drop no-binding"))

    known = adder("map-t-br", "well-known-prefix")
    well_known, private = "RFC 6052 section 3.1", "10.1.2.3"
    given = udp6(EDGE, "64:ff9b::10.1.2.3", 1232, 53)
    known("well-known-private-out", well_known, "to a private address in 64:ff9b::/96", "dropped, and told with 1/1",
          m.packet(given, "reply private-in-well-known-prefix", told6(given, 1, 1, m.ZERO, BR6, EDGE)))
    given = udp4(private, PUBLIC, 53, 1232)
    known("well-known-private-in", well_known, "from a private address", "it has no address in 64:ff9b::/96: 3/13",
          m.packet(given, "reply private-in-well-known-prefix", told4(given, 3, 13, m.ZERO, BR4, private),
                   any_identification=True))
    known("well-known-global-out", "RFC 7599 section 8.2", "to a global address in 64:ff9b::/96", "as in any prefix",
          forwarded(udp6(EDGE, "64:ff9b::8.8.8.8", 1232, 53), udp4(PUBLIC, "8.8.8.8", 1232, 53, ttl=63)))
    known("well-known-global-in", "RFC 7599 section 8.3", "from a global address", "as in any prefix",
          m.packet(udp4("8.8.8.8", PUBLIC, 53, 1232), "forward", udp6("64:ff9b::8.8.8.8", EDGE, 53, 1232, hops=63)))
    known("well-known-private-router", "RFC 7915 section 4.1", "an error of a router with a private address",
          "path MTU discovery needs it: it is sent from the relay's own address",
          m.packet(m.error4(private, PUBLIC, 3, 4, m.u32(1400), udp4(PUBLIC, "8.8.8.8", 1232, 53, ttl=60, df=1)),
                   "forward", m.error6(BR6, EDGE, 2, 0, m.u32(1420), udp6(EDGE, "64:ff9b::8.8.8.8", 1232, 53, hops=60),
                                       hops=63)))

    def spoofed(name, what, why, source, sport):
        given = udp6(source, far, sport, 53)
        add(name, receive, what, why,
            m.packet(given, "reply spoofed-source", told6(given, 1, 5, m.ZERO, BR6, source)))

    spoofed("spoofed-port", "a port of another subscriber", "1/5: source address failed policy", EDGE, 1236)
    spoofed("spoofed-reserved-port", "a port that nobody has", "1/5", EDGE, 80)
    spoofed("spoofed-psid", "an interface identifier with another PSID", "the whole address counts",
            "2001:db8:12:3400:0:c000:212:35", 1236)
    spoofed("spoofed-address", "an interface identifier with another IPv4 address", "the whole address counts",
            "2001:db8:12:3400:0:c000:213:34", 1232)
    spoofed("no-map-address", "another address of the subscriber's prefix", "only its MAP address speaks IPv4",
            "2001:db8:12:3400::2", 1232)
    spoofed("from-nowhere", "a source outside every rule", "not of this domain", "2001:db9::1", 1232)
    given = udp6(WHOLE6.replace("5090", "5091"), far, 80, 53)
    add("spoofed-whole-address", receive, "EA bits and identifier contradict each other", "the whole address counts",
        m.packet(given, "reply spoofed-source", told6(given, 1, 5, m.ZERO, BR6, WHOLE6.replace("5090", "5091"))))
    add("forged-from-outside", "RFC 7597 section 11", "a subscriber's address as source, from outside",
        "subscribers' packets come from the domain", m.packet(udp4(PUBLIC2, PUBLIC, 1236, 1232), "drop spoofed-source"))
    add("multicast-in-the-dmr", "RFC 7915 section 5.1", "to a multicast address in the prefix", "unicast only",
        m.packet(udp6(EDGE, in_dmr("224.0.0.1"), 1232, 53), "drop illegal-destination"))
    add("to-somebody-else", send, "an IPv4 packet to another network", "left to the host",
        m.packet(udp4(REMOTE, "198.51.100.77", 53, 1232), "to-host"))
    add("hairpin", "RFC 7597 section 8.1", "from one subscriber to another by way of the relay",
        "one decrement of the hop limit; the source is embedded",
        m.packet(udp6(EDGE, in_dmr(PUBLIC2), 1232, 1236), "forward",
                 udp6(in_dmr(PUBLIC), EDGE2, 1232, 1236, hops=63)))
    given = udp6(EDGE, in_dmr(PUBLIC2), 1232, 1236, m.data(1453))
    add("hairpin-too-big", "RFC 4787 REQ-13", "1501 bytes from one subscriber to another", "packet too big with 1500",
        m.packet(given, "reply packet-too-big", told6(given, 2, 0, m.u32(1500), BR6, EDGE)))
    add("hairpin-to-nobody", "RFC 7597 section 8.1", "to a port of another subscriber's address that nobody has",
        "dropped", m.packet(udp6(EDGE, in_dmr(PUBLIC2), 1232, 80), "drop no-binding"))
    given = udp4(REMOTE, PUBLIC, 53, 1232, ttl=1)
    add("ttl-in", "RFC 1812 section 5.3.1", "TTL 1 from outside", "11/0",
        m.packet(given, "reply hop-limit-exceeded", told4(given, 11, 0, m.ZERO, BR4, REMOTE), any_identification=True))
    given = udp6(EDGE, far, 1232, 53, hops=1)
    add("hop-limit-out", "RFC 4443 section 3.3", "hop limit 1 from the domain", "3/0",
        m.packet(given, "reply hop-limit-exceeded", told6(given, 3, 0, m.ZERO, BR6, EDGE)))
    given = udp4(REMOTE, PUBLIC, 53, 1232, m.data(1472), df=1)
    add("too-big-in", "RFC 7915 section 4", "1500 bytes with DF into links of 1500", "fragmentation needed with 1480",
        m.packet(given, "reply packet-too-big", told4(given, 3, 4, m.u32(1480), BR4, REMOTE), any_identification=True))

    whole4, whole6 = udp4(REMOTE, PUBLIC, 53, 1232, m.data(1800)), udp6(far, EDGE, 53, 1232, m.data(1800), hops=63)
    first, second = pieces4(whole4, 1000, 0x1234)
    out = pieces6(whole6, 1232, 0x1234)
    for name, order in {"in-order": (first, second), "reversed": (second, first)}.items():
        add(f"fragments-in-{name}", "RFC 7599 section 10", "fragments for a shared address",
            "only the first has the port: they are put together",
            [m.packet(order[0], "hold"), m.packet(order[1], "forward", out)])
    whole6, whole4 = udp6(EDGE, far, 1232, 53, m.data(1800)), udp4(PUBLIC, REMOTE, 1232, 53, m.data(1800), ttl=63)
    first, second = pieces6(whole6, 1232, 0x00BE1232)
    add("fragments-out", "RFC 7599 section 10", "fragments of a subscriber",
        "put together for the sake of the port, and cut again; the identification stays",
        [m.packet(first, "hold"), m.packet(second, "forward", pieces4(whole4, 1480, 0x1232))])

    m.obstacles_in_fragments(add, EDGE, far, 17, m.udp(EDGE, far, 1232, 53, m.data(28)), BR6)

    lost4, lost6 = udp4(PUBLIC, REMOTE, 1232, 53, b"lost data", ttl=60), udp6(EDGE, far, 1232, 53, b"lost data", hops=60)
    router = in_dmr(ROUTER4)
    inward("port-unreachable-in", "an error about a subscriber's packet", "the port of the packet inside counts",
           m.error4(REMOTE, PUBLIC, 3, 3, m.ZERO, lost4), m.error6(far, EDGE, 1, 4, m.ZERO, lost6, hops=63),
           "RFC 7599 section 9")
    inward("time-exceeded-in", "an error of a router", "traceroute shows the router in the prefix",
           m.error4(ROUTER4, PUBLIC, 11, 0, m.ZERO, lost4), m.error6(router, EDGE, 3, 0, m.ZERO, lost6, hops=63),
           "RFC 7599 section 9")
    inward("fragmentation-needed-in", "a narrow link outside", "20 bytes more",
           m.error4(ROUTER4, PUBLIC, 3, 4, m.u32(1400), lost4), m.error6(router, EDGE, 2, 0, m.u32(1420), lost6, hops=63),
           "RFC 7915 section 4.2")
    foreign = udp4(PUBLIC, REMOTE, 80, 53, b"lost data", ttl=60)
    add("error-about-nobody", "RFC 7599 section 9", "an error about a port that nobody has", "dropped",
        m.packet(m.error4(ROUTER4, PUBLIC, 3, 3, m.ZERO, foreign), "drop no-session"))
    add("error-to-somebody-else", "RFC 5927 section 4.1", "an error whose packet had another source",
        "crafted", m.packet(m.error4(ROUTER4, PUBLIC2, 3, 3, m.ZERO, lost4), "drop icmp-error-unusable"))
    gone4, gone6 = udp4(REMOTE, PUBLIC, 53, 1232, b"lost data", ttl=60), udp6(far, EDGE, 53, 1232, b"lost data", hops=60)
    outward("port-unreachable-out", "an error of a subscriber", "about a packet that came by here",
            m.error6(EDGE, far, 1, 4, m.ZERO, gone6), m.error4(PUBLIC, REMOTE, 3, 3, m.ZERO, gone4, ttl=63),
            "RFC 7599 section 9")
    outward("too-big-in-the-domain", "a narrow link in the domain",
            "its router has no IPv4 address: the relay's own serves; 20 bytes less",
            m.error6(ROUTER6, far, 2, 0, m.u32(1400), gone6), m.error4(BR4, REMOTE, 3, 4, m.u32(1380), gone4, ttl=63),
            "RFC 7915 section 5.2, RFC 6791")
    # The subscriber of 203.0.113.9, with another interface identifier than RFC 7597 section 6 has it.
    odd = "2001:db8:5090::cb:7:109:0"
    outward("error-with-another-identifier", "an error that quotes another interface identifier",
            "other edges write other ones there; whose the packet was the End-user prefix and the port say",
            m.error6(WHOLE6, far, 1, 4, m.ZERO, udp6(far, odd, 53, 5000, b"lost data", hops=60)),
            m.error4(WHOLE, REMOTE, 3, 3, m.ZERO,
                     udp4(REMOTE, WHOLE, 53, 5000, b"lost data", ttl=60), ttl=63), "RFC 7599 section 9")
    foreign = udp6(far, EDGE, 53, 1236, b"lost data", hops=60)
    add("error-out-about-nobody", "RFC 7599 section 9", "an error about a packet that the subscriber cannot have had",
        "crafted", m.packet(m.error6(EDGE, far, 1, 4, m.ZERO, foreign), "drop icmp-error-unusable"))
    about = udp6(in_dmr(PUBLIC2), EDGE, 1236, 1232, b"lost data", hops=60)
    add("error-hairpin", "RFC 7599 section 9", "an error about another subscriber's packet", "it turns round, too",
        m.packet(m.error6(EDGE, in_dmr(PUBLIC2), 1, 4, m.ZERO, about), "forward",
                 m.error6(in_dmr(PUBLIC), EDGE2, 1, 4, m.ZERO,
                          udp6(EDGE2, in_dmr(PUBLIC), 1236, 1232, b"lost data", hops=60), hops=63)))


# ------------------------------------------------------------------------------------------------------- MAP-T, edge


def map_t_ce():
    add = adder("map-t-ce")
    far, out, back = in_dmr(REMOTE), "RFC 7599 section 8.1", "RFC 7599 section 8.1"

    def outward(name, what, why, v4, v6, clause=out):
        add(name, clause, what, why, m.packet(v4, "forward", v6))

    def inward(name, what, why, v6, v4, clause=back):
        add(name, clause, what, why, forwarded(v6, v4))

    opening = tcp4(HOST, REMOTE, 40000, 80, flags=2)
    outward("udp-out", "from a host to the Internet", "NAPT, then the Default Mapping Rule",
            udp4(HOST, REMOTE, 40000, 53), udp6(EDGE, far, 1232, 53, hops=63))
    add("tcp-out-and-in", out, "a connection", "a port of the last range, and back",
        [m.packet(opening, "forward", tcp6(EDGE, far, 64723, 80, flags=2, hops=63)),
         forwarded(tcp6(far, EDGE, 80, 64723, flags=18), tcp4(REMOTE, HOST, 80, 40000, flags=18, ttl=63))])
    add("ping-out-and-in", "RFC 7599 section 9", "an echo request and its reply", "the identifier is in the port set",
        [m.packet(echo4(HOST, REMOTE, 8, 7), "forward", echo6(EDGE, far, 128, 2256, hops=63)),
         forwarded(echo6(far, EDGE, 129, 2256), echo4(REMOTE, HOST, 0, 7, ttl=63))])
    inward("udp-in", "from the Internet to a static binding", "the reverse",
           udp6(far, EDGE, 53, 1232), udp4(REMOTE, HOST, 53, 40000, ttl=63))
    add("port-of-nobody", back, "to a port of the set that no host has", "dropped",
        m.packet(udp6(far, EDGE, 53, 1234), "drop no-binding"))
    add("port-of-another", back, "to a port of another subscriber", "dropped",
        m.packet(udp6(far, EDGE, 53, 1236), "drop no-binding"))
    given = udp6("2001:db9::1", EDGE, 53, 1232)
    add("from-nowhere", back, "from outside the Default Mapping Rule", "only its prefix and subscribers may send",
        m.packet(given, "reply spoofed-source", told6(given, 1, 5, m.ZERO, CE6, "2001:db9::1")))
    outward("mesh-out", "to another subscriber", "straight to its edge, by the Forwarding Mapping Rule",
            udp4(HOST, PUBLIC2, 40000, 1236), udp6(EDGE, EDGE2, 1232, 1236, hops=63), "RFC 7597 section 8.1")
    inward("mesh-in", "from another subscriber", "its address and port are its own",
           udp6(EDGE2, EDGE, 1236, 1232), udp4(PUBLIC2, HOST, 1236, 40000, ttl=63), "RFC 7597 section 8.1")
    given = udp6(EDGE2, EDGE, 1240, 1232)
    add("mesh-spoofed-port", "RFC 7599 section 8.1", "from another subscriber, with a port that is not its own", "1/5",
        m.packet(given, "reply spoofed-source", told6(given, 1, 5, m.ZERO, CE6, EDGE2)))
    add("mesh-to-nobody", "RFC 7597 section 8.1", "to a port that no subscriber has", "dropped",
        m.packet(udp4(HOST, PUBLIC2, 40000, 80), "drop no-binding"))
    outward("same-address-out", "to another subscriber of the same IPv4 address", "its ports are not the edge's own",
            udp4(HOST, PUBLIC, 40000, 1236),
            udp6(EDGE, map_address("2001:db8:12:3500::", PUBLIC, 0x35), 1232, 1236, hops=63), "RFC 7597 section 8.1")
    add("hairpin", "RFC 4787 REQ-9", "from host to host by the edge's own address", "turned round in the NAPT",
        m.packet(udp4(OTHER, PUBLIC, 40000, 1232), "forward", udp4(PUBLIC, HOST, 1233, 40000, ttl=63),
                 any_identification=True))
    add("to-the-lan-itself", out, "from host to host inside", "left to the host's routes",
        m.packet(udp4(HOST, OTHER, 40000, 53), "to-host"))
    given = udp4(HOST, REMOTE, 40000, 53, ttl=1)
    add("ttl-out", "RFC 1812 section 5.3.1", "TTL 1 from inside", "11/0",
        m.packet(given, "reply hop-limit-exceeded", told4(given, 11, 0, m.ZERO, CE4, HOST), any_identification=True))
    given = udp4(HOST, REMOTE, 40000, 53, m.data(1472), df=1)
    add("too-big-out", "RFC 7915 section 4", "1500 bytes with DF into a line of 1500", "fragmentation needed with 1480",
        m.packet(given, "reply packet-too-big", told4(given, 3, 4, m.u32(1480), CE4, HOST), any_identification=True))
    whole6, whole4 = udp6(far, EDGE, 53, 1232, m.data(1800)), udp4(REMOTE, HOST, 53, 40000, m.data(1800), ttl=63)
    first, second = pieces6(whole6, 1232, 0x4321)
    add("fragments-in", "RFC 7599 section 10", "fragments from the line, the last first",
        "only the first has the port: they are put together",
        [m.packet(second, "hold"), m.packet(first, "forward", pieces4(whole4, 1480, 0x4321))])

    m.obstacles_in_fragments(add, far, EDGE, 17, m.udp(far, EDGE, 53, 1232, m.data(28)), CE6)
    link_local = in_dmr("169.254.1.1")
    given = udp4(HOST, "169.254.1.1", 40000, 53)
    add("link-local-out", "RFC 3927 section 7", "to 169.254.1.1", "no router forwards to it; told with 3/13",
        m.packet(given, "reply link-local-address", told4(given, 3, 13, m.ZERO, CE4, HOST), any_identification=True))
    given = udp6(link_local, EDGE, 53, 1232)
    add("link-local-in", "RFC 3927 section 7", "from 169.254.1.1 in the prefix", "no router forwards from it; told with 1/1",
        m.packet(given, "reply link-local-address", told6(given, 1, 1, m.ZERO, CE6, link_local)))

    sent4, sent6 = udp4(HOST, REMOTE, 40000, 53), udp6(EDGE, far, 1232, 53, hops=63)
    lost4, lost6 = udp4(HOST, REMOTE, 40000, 53, ttl=60), udp6(EDGE, far, 1232, 53, hops=60)
    for name, router, router4 in (("of-the-internet", in_dmr(ROUTER4), ROUTER4), ("of-the-domain", ROUTER6, CE4)):
        add(f"error-{name}", "RFC 7599 section 9", "hop limit exceeded on the way",
            "the host is told; a router without IPv4 address speaks by the edge's",
            [m.packet(sent4, "forward", sent6),
             forwarded(m.error6(router, EDGE, 3, 0, m.ZERO, lost6), m.error4(router4, HOST, 11, 0, m.ZERO, lost4, ttl=63))])
    add("error-without-session", "RFC 5508 REQ-4", "an error about a packet that nobody has sent", "dropped",
        m.packet(m.error6(ROUTER6, EDGE, 3, 0, m.ZERO, lost6), "drop no-session"))
    came6, came4 = udp6(far, EDGE, 53, 1232), udp4(REMOTE, HOST, 53, 40000, ttl=63)
    add("error-of-a-host", "RFC 5508 REQ-5", "port unreachable from a host inside", "from the edge's own address",
        [forwarded(came6, came4),
         m.packet(m.error4(HOST, REMOTE, 3, 3, m.ZERO, came4), "forward",
                  m.error6(EDGE, far, 1, 4, m.ZERO, udp6(far, EDGE, 53, 1232, hops=63), hops=63))])

    known = adder("map-t-ce", "well-known-prefix")
    well_known = "RFC 6052 section 3.1"
    given = udp4(HOST, "172.16.0.1", 40000, 53)
    known("well-known-private-out", well_known, "to a private address, which 64:ff9b::/96 may not stand for",
          "dropped, and told with 3/13", m.packet(given, "reply private-in-well-known-prefix",
                                                  told4(given, 3, 13, m.ZERO, CE4, HOST), any_identification=True))
    known("well-known-global-out", out, "to a global address", "as in any prefix",
          m.packet(udp4(HOST, "8.8.8.8", 40000, 53), "forward", udp6(EDGE, "64:ff9b::8.8.8.8", 1232, 53, hops=63)))
    given = udp6("64:ff9b::10.1.2.3", EDGE, 53, 1232)
    known("well-known-private-in", well_known, "from a private address in 64:ff9b::/96", "dropped, and told with 1/1",
          m.packet(given, "reply private-in-well-known-prefix", told6(given, 1, 1, m.ZERO, CE6, "64:ff9b::10.1.2.3")))
    lost6 = udp6(EDGE, "64:ff9b::8.8.8.8", 1232, 53, hops=60)
    known("well-known-private-router", well_known, "an error of a private address in 64:ff9b::/96", "dropped",
          [m.packet(udp4(HOST, "8.8.8.8", 40000, 53), "forward", udp6(EDGE, "64:ff9b::8.8.8.8", 1232, 53, hops=63)),
           m.packet(m.error6("64:ff9b::10.1.2.3", EDGE, 3, 0, m.ZERO, lost6), "drop private-in-well-known-prefix")])

    own = adder("map-t-ce", "own-addresses")
    own("own-port-out", "RFC 7599 section 8.1", "a host with the edge's address and a port of its own", "forwarded as it is",
        m.packet(udp4(PUBLIC, REMOTE, 1235, 53), "forward", udp6(EDGE, far, 1235, 53, hops=63)))
    own("own-port-in", "RFC 7599 section 8.1", "the answer", "the reverse",
        forwarded(udp6(far, EDGE, 53, 1235), udp4(REMOTE, PUBLIC, 53, 1235, ttl=63)))
    given = udp4(PUBLIC, REMOTE, 1236, 53)
    own("foreign-port-out", "RFC 7599 section 8.1", "a port of another subscriber", "prohibited",
        m.packet(given, "reply spoofed-source", told4(given, 3, 13, m.ZERO, CE4, PUBLIC), any_identification=True))
    own("foreign-port-in", "RFC 7599 section 8.1", "to a port of another subscriber", "dropped",
        m.packet(udp6(far, EDGE, 53, 1236), "drop no-binding"))
    own("hub-and-spoke", "RFC 7597 section 5", "to another subscriber without a Forwarding Mapping Rule",
        "through the relay, as to anybody",
        m.packet(udp4(PUBLIC, PUBLIC2, 1232, 1236), "forward", udp6(EDGE, in_dmr(PUBLIC2), 1232, 1236, hops=63)))
    own("same-address", "RFC 7599 section 8.1", "to another subscriber of the same address",
        "the port says that it is not for here: through the relay",
        m.packet(udp4(PUBLIC, PUBLIC, 1232, 1236), "forward", udp6(EDGE, in_dmr(PUBLIC), 1232, 1236, hops=63)))
    own("same-address-in", "RFC 7599 section 8.1", "from another subscriber of the same address, by the relay",
        "as from anybody", forwarded(udp6(in_dmr(PUBLIC), EDGE, 1236, 1232), udp4(PUBLIC, PUBLIC, 1236, 1232, ttl=63)))
    own("own-port-stays", "RFC 7599 section 8.1", "to the edge's own address and port", "a host inside has them",
        m.packet(udp4(PUBLIC, PUBLIC, 1232, 1233), "to-host", side="inside"))
    lost = udp4(PUBLIC, PUBLIC, 1236, 1232, b"lost data")
    own("same-address-error", "RFC 7599 section 9", "an error for another subscriber of the same address",
        "the port of the packet in it counts", m.packet(
            m.error4(PUBLIC, PUBLIC, 3, 3, m.ZERO, lost), "forward",
            m.error6(EDGE, in_dmr(PUBLIC), 1, 4, m.ZERO, udp6(in_dmr(PUBLIC), EDGE, 1236, 1232, b"lost data"), hops=63)))


# ------------------------------------------------------------------------------------------------------ MAP-E, relay


def map_e_br():
    add = adder("map-e-br")
    clause = "RFC 7597 section 8.1"

    def inward(name, what, why, v4, edge, clause=clause):
        add(name, clause, what, why, m.packet(v4, "forward", softwire(RELAY, edge, stepped(v4))))

    def outward(name, what, why, inner, edge, clause=clause):
        add(name, clause, what, why, m.packet(softwire(edge, RELAY, inner), "forward", stepped(inner)))

    whole = softwire(EDGE, RELAY, udp4(PUBLIC, REMOTE, 1232, 53))[40:]
    m.obstacles_in_fragments(add, EDGE, RELAY, 4, whole, RELAY)
    for name, offset, more, size, pointer, what in (
            ("not-of-eight", 0, 1, 23, 4, "a fragment of 23 bytes that is not the last: the payload length is wrong"),
            ("not-of-eight-later", 3, 1, 23, 4, "the same, not the first"),
            ("beyond-the-end", 8191, 0, 16, 42, "a fragment that ends behind byte 65535: its offset is wrong")):
        given = m.ipv6(EDGE, RELAY, 44, m.fragment(4, offset, more, 5) + whole[:size])
        add(f"fragment-{name}", "RFC 8200 section 4.5", what, f"the end of the softwire reassembles, and tells: 4/0, byte {pointer}",
            m.packet(given, "reply fragment-invalid", told6(given, 4, 0, m.u32(pointer), RELAY, EDGE)))
    outward("host-of-a-prefix-out", "from a MAP address that names the host of an assigned prefix",
            "it should be padded with zeros; whose it is the End-user prefix says", udp4(NET_HOST, REMOTE, 5000, 53),
            NET_HOST6, "RFC 7597 section 6")
    inward("udp-in", "a datagram for a shared address", "the port says whose it is", udp4(REMOTE, PUBLIC, 53, 1232), EDGE)
    inward("example-2", "example 2 of the RFC", "published", udp4("1.2.3.4", PUBLIC, 80, 1232), EDGE,
           "RFC 7597 appendix A")
    outward("example-3", "example 3 of the RFC", "published", udp4(PUBLIC, "1.2.3.4", 1232, 80), EDGE,
            "RFC 7597 appendix A")
    inward("last-port-in", "the last port of the last range", "every range of the set counts",
           tcp4(REMOTE, PUBLIC, 80, 64723), EDGE)
    inward("ping-in", "an echo request", "its identifier counts as a port", echo4(REMOTE, PUBLIC, 8, 1232), EDGE)
    inward("traffic-class-in", "TOS 0xb8 with ECT(0)", "both are copied to the outer header",
           udp4(REMOTE, PUBLIC, 53, 1232, tos=0xBA), EDGE, "RFC 6040 section 4.1")
    outward("udp-out", "a datagram of a subscriber", "address and port are its own", udp4(PUBLIC, REMOTE, 1232, 53), EDGE)
    outward("ping-out", "an echo request of a subscriber", "its identifier is in the port set",
            echo4(PUBLIC, REMOTE, 8, 2256), EDGE)
    for name, port in {"http": 80, "last-reserved": 1023, "zero": 0}.items():
        add(f"port-of-nobody-{name}", "RFC 7597 section 5.1", f"port {port} of a shared address",
            "the block below 2^(16-a) belongs to nobody", m.packet(udp4(REMOTE, PUBLIC, 53, port), "drop no-binding"))
    for name, protocol, body in (("sctp", 132, m.sctp(53, 1232, b"data")),
                                 ("dccp", 33, m.dccp(REMOTE, PUBLIC, 53, 1232, b"data")),
                                 ("udp-lite", 136, m.udp_lite(REMOTE, PUBLIC, 53, 1232, b"data"))):
        inward(f"{name}-in", f"protocol {protocol} for a shared address", "the port says whose it is",
               m.ipv4(REMOTE, PUBLIC, protocol, body), EDGE, "RFC 7597 section 5.1")
    outward("sctp-out", "SCTP of a subscriber", "address and port are its own",
            m.ipv4(PUBLIC, REMOTE, 132, m.sctp(1232, 53, b"data")), EDGE, "RFC 7597 section 5.1")
    add("sctp-of-nobody", "RFC 7597 section 5.1", "SCTP for a port of nobody", "dropped",
        m.packet(m.ipv4(REMOTE, PUBLIC, 132, m.sctp(53, 80, b"data")), "drop no-binding"))
    add("gre-to-a-shared-address", clause, "GRE for a shared address", "nothing says whose it is",
        m.packet(m.ipv4(REMOTE, PUBLIC, 47, b"\0\0\x08\0data"), "drop unsupported-protocol"))
    inward("gre-to-a-whole-address", "GRE for a whole address", "no port is needed",
           m.ipv4(REMOTE, WHOLE, 47, b"\0\0\x08\0data"), WHOLE6)
    inward("prefix-in", "for a host of an assigned prefix", "the MAP address has no host bits",
           udp4(REMOTE, NET_HOST, 53, 5000), NET6, "RFC 7597 section 6")
    outward("prefix-out", "from a host of an assigned prefix", "any host of the prefix", udp4(NET_HOST, REMOTE, 5000, 53),
            NET6, "RFC 7597 section 6")
    inward("given-psid-35", "a port of a subscriber with a given PSID", "the port decides among rules of one address",
           udp4(REMOTE, GIVEN, 53, 1236), GIVEN35)

    def refused(name, what, why, inner, edge, reason):
        add(name, clause, what, why, m.packet(softwire(edge, RELAY, inner), f"drop {reason}"))

    refused("spoofed-port", "a port of another subscriber", "silent", udp4(PUBLIC, REMOTE, 1236, 53), EDGE,
            "inner-source-spoofed")
    refused("spoofed-identifier", "an echo identifier of another subscriber", "silent",
            echo4(PUBLIC, REMOTE, 8, 1236), EDGE, "inner-source-spoofed")
    refused("spoofed-address", "another subscriber's IPv4 address", "silent", udp4(PUBLIC2, REMOTE, 1232, 53), EDGE,
            "inner-source-spoofed")
    refused("private-address", "a private source", "no NAPT was there", udp4(HOST, REMOTE, 1232, 53), EDGE,
            "inner-source-spoofed")
    refused("no-map-address", "another address of the subscriber's prefix", "the whole address counts",
            udp4(PUBLIC, REMOTE, 1232, 53), "2001:db8:12:3400::2", "unknown-softwire")
    refused("from-nowhere", "a source outside every rule", "not of this domain", udp4(PUBLIC, REMOTE, 1232, 53),
            "2001:db9::1", "unknown-softwire")
    add("forged-from-outside", "RFC 7597 section 11", "a subscriber's address as source, from outside",
        "subscribers' packets come through softwires",
        m.packet(udp4(PUBLIC2, PUBLIC, 1236, 1232), "drop inner-source-spoofed"))
    inner = udp4(PUBLIC, "192.0.0.2", 1232, 53)
    add("out-to-192.0.0.2", "RFC 6333 section 5.7, RFC 7335", "to the address that ends of softwires have",
        "3/1; it is never sent outside",
        m.packet(softwire(EDGE, RELAY, inner), "reply illegal-destination",
                 softwire(RELAY, EDGE, told4(inner, 3, 1, m.ZERO, BR4, PUBLIC)), any_identification=True))
    inner = udp4(PUBLIC, PUBLIC2, 1232, 1236)
    add("hairpin", clause, "from one subscriber to another by way of the relay", "from softwire to softwire",
        m.packet(softwire(EDGE, RELAY, inner), "forward", softwire(RELAY, EDGE2, stepped(inner))))
    refused("hairpin-to-nobody", "to a port of another subscriber's address that nobody has", "dropped",
            udp4(PUBLIC, PUBLIC2, 1232, 80), EDGE, "no-binding")
    given = udp6(EDGE, RELAY, 1232, 53)
    add("not-ipv4", "RFC 2473 section 3.1", "a datagram for the relay's address", "nothing but IPv4 belongs there: 1/4",
        m.packet(given, "reply no-packet-inside", told6(given, 1, 4, m.ZERO, RELAY, EDGE)))
    add("ping-the-relay", "RFC 4443 section 4.2", "an echo request to the relay's address", "answered",
        m.packet(echo6(EDGE, RELAY, 128, 9), "echo-reply", echo6(RELAY, EDGE, 129, 9)))
    given = udp4(REMOTE, PUBLIC, 53, 1232, ttl=1)
    add("ttl-in", "RFC 2473 section 3.1", "TTL 1 from outside", "11/0",
        m.packet(given, "reply hop-limit-exceeded", told4(given, 11, 0, m.ZERO, BR4, REMOTE), any_identification=True))
    given = udp4(REMOTE, PUBLIC, 53, 1232, m.data(1472), df=1)
    add("too-big-in", "RFC 2473 section 7.2", "1500 bytes with DF into a path of 1500", "fragmentation needed with 1460",
        m.packet(given, "reply packet-too-big", told4(given, 3, 4, m.u32(1460), BR4, REMOTE), any_identification=True))
    inner = udp4(PUBLIC, REMOTE, 1232, 53, tos=0)
    add("congestion-not-understood", "RFC 6040 section 4.2", "congestion marked around a packet that does not know it",
        "dropped", m.packet(m.ipv6(EDGE, RELAY, 4, inner, tc=3), "drop congestion-not-ect"))

    whole = udp4(PUBLIC, REMOTE, 1232, 53, m.data(1800))
    first, second = pieces4(whole, 1000, 0x1234)
    together = m.ipv4(PUBLIC, REMOTE, 17, whole[20:], ident=0x1234, ttl=63)
    add("inner-fragments-out", "RFC 7597 section 8.3", "fragments inside the softwire, the last first",
        "only the first has the port: they are put together",
        [m.packet(softwire(EDGE, RELAY, second), "hold"), m.packet(softwire(EDGE, RELAY, first), "forward", together)])
    outer = pieces6(softwire(EDGE, RELAY, m.ipv4(PUBLIC, REMOTE, 17, whole[20:], ident=0x1234)), 1448, 77)
    add("outer-fragments-out", "RFC 7597 section 8.3", "a packet in fragments of the softwire",
        "put together before it is taken out", [m.packet(outer[0], "hold"), m.packet(outer[1], "forward", together)])

    lost = udp4(PUBLIC, REMOTE, 1232, 53, b"lost data", ttl=60)
    inward("error-in", "an error about a subscriber's packet", "the port of the packet inside counts",
           m.error4(ROUTER4, PUBLIC, 3, 3, m.ZERO, lost), EDGE)
    add("error-about-nobody", clause, "an error about a port that nobody has", "dropped",
        m.packet(m.error4(ROUTER4, PUBLIC, 3, 3, m.ZERO, udp4(PUBLIC, REMOTE, 80, 53)), "drop no-session"))
    gone = udp4(REMOTE, PUBLIC, 53, 1232, b"lost data", ttl=60)
    outward("error-out", "an error of a subscriber", "about a packet that came to its port",
            m.error4(PUBLIC, REMOTE, 3, 3, m.ZERO, gone), EDGE)
    refused("error-out-spoofed", "an error about a packet that came to another's port", "crafted",
            m.error4(PUBLIC, REMOTE, 3, 3, m.ZERO, udp4(REMOTE, PUBLIC, 53, 1236)), EDGE, "inner-source-spoofed")
    for name, df, kind, code, rest, verdict in (
            ("mtu", 1, 2, 0, m.u32(1400), (3, 4, m.u32(1360))), ("mtu-without-df", 0, 2, 0, m.u32(1400), None),
            ("hop-limit", 1, 3, 0, m.ZERO, (3, 1, m.ZERO)), ("unreachable", 0, 1, 0, m.ZERO, (3, 1, m.ZERO))):
        inner = udp4(REMOTE, PUBLIC, 53, 1232, m.data(200), ttl=63, df=df)
        given = m.error6(ROUTER6, RELAY, kind, code, rest, softwire(RELAY, EDGE, inner, hops=60))
        what = "an error of a router in the domain about a softwire packet"
        if verdict is None:
            add(f"path-error-{name}", "RFC 2473 section 8.1", what, "its sender cannot make it smaller",
                m.packet(given, "drop packet-too-big"))
        else:
            add(f"path-error-{name}", "RFC 2473 section 8.1", what, "the sender of the packet inside is told",
                m.packet(given, "forward", told4(inner, *verdict, BR4, REMOTE), any_identification=True))


def stepped(packet):
    """An IPv4 packet with one less in its TTL."""
    packet = bytearray(packet)
    header = (packet[0] & 15) * 4
    packet[8] -= 1
    packet[10:12] = b"\0\0"
    packet[10:12] = (0xFFFF - m.ones_complement(bytes(packet[:header]))).to_bytes(2, "big")
    return bytes(packet)


# ------------------------------------------------------------------------------------------------------- MAP-E, edge


def map_e_ce():
    add = adder("map-e-ce")
    clause = "RFC 7597 section 8.1"

    opening = tcp4(HOST, REMOTE, 40000, 80, flags=2, df=1)
    add("tcp-out-and-in", clause, "a connection", "NAPT, then the softwire to the relay; and back",
        [m.packet(opening, "forward", softwire(EDGE, RELAY, tcp4(PUBLIC, REMOTE, 64723, 80, flags=2, df=1, ttl=63))),
         m.packet(softwire(RELAY, EDGE, tcp4(REMOTE, PUBLIC, 80, 64723, flags=18, df=1)), "forward",
                  tcp4(REMOTE, HOST, 80, 40000, flags=18, df=1, ttl=63))])
    add("udp-out", clause, "a datagram to the Internet", "NAPT, then the softwire to the relay",
        m.packet(udp4(HOST, REMOTE, 40000, 53, df=1), "forward",
                 softwire(EDGE, RELAY, udp4(PUBLIC, REMOTE, 1232, 53, df=1, ttl=63))))
    add("ping-out-and-in", clause, "an echo request and its reply", "the identifier is in the port set",
        [m.packet(echo4(HOST, REMOTE, 8, 7, df=1), "forward", softwire(EDGE, RELAY, echo4(PUBLIC, REMOTE, 8, 2256, df=1, ttl=63))),
         m.packet(softwire(RELAY, EDGE, echo4(REMOTE, PUBLIC, 0, 2256)), "forward", echo4(REMOTE, HOST, 0, 7, ttl=63))])
    add("udp-in", clause, "from the Internet to a static binding", "the reverse",
        m.packet(softwire(RELAY, EDGE, udp4(REMOTE, PUBLIC, 53, 1232)), "forward", udp4(REMOTE, HOST, 53, 40000, ttl=63)))
    add("mesh-out", clause, "to another subscriber", "straight to its edge, by the Forwarding Mapping Rule",
        m.packet(udp4(HOST, PUBLIC2, 40000, 1236, df=1), "forward",
                 softwire(EDGE, EDGE2, udp4(PUBLIC, PUBLIC2, 1232, 1236, df=1, ttl=63))))
    add("mesh-in", clause, "from another subscriber", "its address and port are its own",
        m.packet(softwire(EDGE2, EDGE, udp4(PUBLIC2, PUBLIC, 1236, 1232)), "forward",
                 udp4(PUBLIC2, HOST, 1236, 40000, ttl=63)))
    add("mesh-to-nobody", clause, "to a port that no subscriber has", "dropped",
        m.packet(udp4(HOST, PUBLIC2, 40000, 80), "drop no-binding"))
    m.obstacles_in_fragments(add, RELAY, EDGE, 4, udp4(REMOTE, PUBLIC, 53, 1232), EDGE)

    def refused(name, what, why, inner, source, reason):
        add(name, clause, what, why, m.packet(softwire(source, EDGE, inner), f"drop {reason}"))

    refused("mesh-spoofed-port", "from another subscriber, with a port that is not its own", "silent",
            udp4(PUBLIC2, PUBLIC, 1240, 1232), EDGE2, "inner-source-spoofed")
    refused("from-nowhere", "from neither the relay nor a subscriber", "silent", udp4(REMOTE, PUBLIC, 53, 1232),
            "2001:db9::1", "unknown-softwire")
    refused("port-of-nobody", "to a port of the set that no host has", "dropped", udp4(REMOTE, PUBLIC, 53, 1234), RELAY,
            "no-binding")
    refused("port-of-another", "to a port of another subscriber", "dropped", udp4(REMOTE, PUBLIC, 53, 1236), RELAY,
            "not-ours")
    add("same-address-out", clause, "to another subscriber of the same IPv4 address", "its ports are not the edge's own",
        m.packet(udp4(HOST, PUBLIC, 40000, 1236, df=1), "forward",
                 softwire(EDGE, map_address("2001:db8:12:3500::", PUBLIC, 0x35),
                          udp4(PUBLIC, PUBLIC, 1232, 1236, df=1, ttl=63))))
    refused("address-of-another", "to another IPv4 address", "an edge takes only its own", udp4(REMOTE, PUBLIC2, 53, 1232),
            RELAY, "not-ours")
    add("hairpin", "RFC 4787 REQ-9", "from host to host by the edge's own address", "turned round in the NAPT",
        m.packet(udp4(OTHER, PUBLIC, 40000, 1232), "forward", udp4(PUBLIC, HOST, 1233, 40000, ttl=63),
                 any_identification=True))
    given = udp4(HOST, REMOTE, 40000, 53, ttl=1)
    add("ttl-out", "RFC 1812 section 5.3.1", "TTL 1 from inside", "11/0",
        m.packet(given, "reply hop-limit-exceeded", told4(given, 11, 0, m.ZERO, CE4, HOST), any_identification=True))
    given = udp4(HOST, REMOTE, 40000, 53, m.data(1472), df=1)
    add("too-big-out", "RFC 2473 section 7.2", "1500 bytes with DF into a line of 1500", "fragmentation needed with 1460",
        m.packet(given, "reply packet-too-big", told4(given, 3, 4, m.u32(1460), CE4, HOST), any_identification=True))
    sent = udp4(HOST, REMOTE, 40000, 53, m.data(200), df=1)
    inner = udp4(PUBLIC, REMOTE, 1232, 53, m.data(200), df=1, ttl=63)
    router = m.error6(ROUTER6, EDGE, 2, 0, m.u32(1400), softwire(EDGE, RELAY, inner, hops=60))
    quoted = udp4(HOST, REMOTE, 40000, 53, m.data(200), df=1, ttl=63)
    told = bytearray(told4(quoted, 3, 4, m.u32(1360), CE4, HOST))
    add("path-error", "RFC 2473 section 8.1", "a narrow link on the line", "the host is told, with its own address and port",
        [m.packet(sent, "forward", softwire(EDGE, RELAY, inner)),
         m.packet(router, "forward", stepped(bytes(told)), any_identification=True)])
    came = udp4(REMOTE, HOST, 53, 40000, ttl=63)
    add("error-of-a-host", "RFC 5508 REQ-5", "port unreachable from a host inside", "from the edge's own address",
        [m.packet(softwire(RELAY, EDGE, udp4(REMOTE, PUBLIC, 53, 1232)), "forward", came),
         m.packet(m.error4(HOST, REMOTE, 3, 3, m.ZERO, came, df=1), "forward",
                  softwire(EDGE, RELAY, m.error4(PUBLIC, REMOTE, 3, 3, m.ZERO, udp4(REMOTE, PUBLIC, 53, 1232, ttl=63),
                                                 df=1, ttl=63)))])
    add("ping-the-edge", "RFC 4443 section 4.2", "an echo request to the MAP address", "answered",
        m.packet(echo6(RELAY, EDGE, 128, 9), "echo-reply", echo6(EDGE, RELAY, 129, 9)))

    own = adder("map-e-ce", "own-addresses")
    inner = udp4(PUBLIC, PUBLIC, 1232, 1236, df=1)
    own("same-address", clause, "to another subscriber of the same address", "the port says that it is not for here: to the relay",
        m.packet(inner, "forward", softwire(EDGE, RELAY, stepped(inner))))
    own("own-port-stays", clause, "to the edge's own address and port", "a host inside has them",
        m.packet(udp4(PUBLIC, PUBLIC, 1232, 1233), "to-host", side="inside"))
    inner = udp4(PUBLIC, REMOTE, 1235, 53)
    own("own-port-out", clause, "a host with the edge's address and a port of its own", "encapsulated as it is",
        m.packet(inner, "forward", softwire(EDGE, RELAY, stepped(inner))))
    inner = udp4(REMOTE, PUBLIC, 53, 1235)
    own("own-port-in", clause, "the answer", "the reverse",
        m.packet(softwire(RELAY, EDGE, inner), "forward", stepped(inner)))
    given = udp4(PUBLIC, REMOTE, 1236, 53)
    own("foreign-port-out", clause, "a port of another subscriber", "prohibited",
        m.packet(given, "reply spoofed-source", told4(given, 3, 13, m.ZERO, CE4, PUBLIC), any_identification=True))
    own("foreign-port-in", clause, "to a port of another subscriber", "dropped",
        m.packet(softwire(RELAY, EDGE, udp4(REMOTE, PUBLIC, 53, 1236)), "drop not-ours"))


def add_all():
    map_t_br()
    map_t_ce()
    map_e_br()
    map_e_ce()
