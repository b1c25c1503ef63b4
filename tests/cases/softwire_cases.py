"""Golden cases of DS-Lite and Lightweight 4over6. Run make.py, which takes them from here."""

from make import (case, data, echo_rest, fragment, icmp6, ipv4, ipv6, obstacles_in_fragments, packed, packet, sctp, tcp,
                  u32, udp)
from make import error4 as icmp_in_ipv4

ZERO = u32(0)
AFTR, AFTR2 = "2001:db8:ffff::1", "2001:db8:ffff::2"
B4, OTHER_B4 = "2001:db8:1000:100::b4", "2001:db8:1000:200::b4"
CORE = "2001:db8:5::1"                  # a router between the ends
STRANGER = "2001:db8:9::1"
HOST, FAR, ROUTER = "10.0.0.2", "198.51.100.2", "203.0.113.7"
POOL, SHARED, WHOLE = "192.0.2.1", "192.0.2.10", "192.0.2.11"
GW4 = "198.51.100.254"


def around(source, destination, inner, *, tc=None, hops=64, next_header=4):
    """RFC 2473 section 3.1; the traffic class of the packet inside unless another is given."""
    tc = inner[1] if tc is None else tc
    return ipv6(source, destination, next_header, inner, tc=tc, hops=hops)


def udp4(source, destination, sport=40000, dport=53, payload=b"payload!", **fields):
    return ipv4(source, destination, 17, udp(source, destination, sport, dport, payload), **fields)


def told4(source, destination, kind, code, rest, about):
    """An ICMPv4 error of the gateway's own: at most 576 bytes, internetwork control."""
    return icmp_in_ipv4(source, destination, kind, code, rest, about[:548], tos=0xC0)


def told6(source, destination, kind, code, about, rest=ZERO):
    return ipv6(source, destination, 58, icmp6(source, destination, kind, code, rest, about[:1232]))


def error6(source, destination, kind, code, rest, about):
    return ipv6(source, destination, 58, icmp6(source, destination, kind, code, rest, about))


def b4():
    def b4_case(*arguments, config="b4"):
        case(*arguments, config=config, service="b4")

    b4_case("out", "RFC 6333 section 5.1", "a packet from inside", "whole, in one IPv6 packet to the AFTR; one hop less",
            packet(udp4(HOST, FAR, df=1), "forward", around(B4, AFTR, udp4(HOST, FAR, df=1, ttl=63))))
    b4_case("in", "RFC 6333 section 5.1", "a packet from the AFTR", "the packet inside, one hop less",
            packet(around(AFTR, B4, udp4(FAR, HOST)), "forward", udp4(FAR, HOST, ttl=63)))
    b4_case("class-out", "RFC 6333 section 7.1", "DSCP and congestion", "copied to the traffic class",
            packet(udp4(HOST, FAR, tos=0xBB), "forward", around(B4, AFTR, udp4(HOST, FAR, tos=0xBB, ttl=63))))
    b4_case("class-in", "RFC 6333 section 7.1, RFC 6040", "DSCP of the tunnel header, congestion on the way",
            "both reach the packet inside",
            packet(around(AFTR, B4, udp4(FAR, HOST, tos=0x02), tc=0x2B), "forward", udp4(FAR, HOST, tos=0x2B, ttl=63)))
    b4_case("congestion-not-understood", "RFC 6040 section 4.2", "congestion on the way of a packet without ECN",
            "dropped: loss is what its sender understands",
            packet(around(AFTR, B4, udp4(FAR, HOST), tc=3), "drop congestion-not-ect"))
    b4_case("pipe", "RFC 2983 section 3.1", "a fixed DSCP and hop limit", "of the outer header only, congestion apart",
            [packet(udp4(HOST, FAR, tos=0x29), "forward",
                    around(B4, AFTR, udp4(HOST, FAR, tos=0x29, ttl=63), tc=0xB9, hops=255)),
             packet(around(AFTR, B4, udp4(FAR, HOST, tos=0x29), tc=0xB8), "forward", udp4(FAR, HOST, tos=0x29, ttl=63))],
            config="pipe")
    first = ipv4(HOST, FAR, 17, udp(HOST, FAR, 1, 2, data(1292))[:1216], ident=7, mf=1, ttl=63)
    rest = ipv4(HOST, FAR, 17, udp(HOST, FAR, 1, 2, data(1292))[1216:], ident=7, offset=152, ttl=63)
    b4_case("fragments-inside", "RFC 7597 section 8.3", "1320 bytes without DF through 1240, to be fragmented inside",
            "two fragments of 8-byte units, each in a packet of its own",
            packet(ipv4(HOST, FAR, 17, udp(HOST, FAR, 1, 2, data(1292)), ident=7), "forward",
                   [around(B4, AFTR, first, tc=0xB8, hops=255), around(B4, AFTR, rest, tc=0xB8, hops=255)]),
            config="pipe")
    given = udp4(HOST, FAR, payload=data(1433), df=1)
    b4_case("too-big", "RFC 2473 section 7.2", "1461 bytes with DF through a path of 1500",
            "fragmentation needed with 1460, from 192.0.0.2 (RFC 6333 section 5.7)",
            packet(given, "reply packet-too-big", told4("192.0.0.2", HOST, 3, 4, u32(1460), given),
                   any_identification=True))
    b4_case("just-fits", "RFC 2473 section 7.2", "1460 bytes with DF", "1500 bytes outside",
            packet(udp4(HOST, FAR, payload=data(1432), df=1), "forward",
                   around(B4, AFTR, udp4(HOST, FAR, payload=data(1432), df=1, ttl=63))))
    given = udp4(HOST, FAR, ttl=1)
    b4_case("ttl", "RFC 1812 section 5.3.1", "the last hop, from inside", "time exceeded",
            packet(given, "reply hop-limit-exceeded", told4("192.0.0.2", HOST, 11, 0, ZERO, given),
                   any_identification=True))
    given = udp4(FAR, HOST, ttl=1)
    b4_case("ttl-in", "RFC 1812 section 5.3.1", "the last hop, out of the softwire", "told through the softwire",
            packet(around(AFTR, B4, given), "reply hop-limit-exceeded",
                   around(B4, AFTR, told4("192.0.0.2", FAR, 11, 0, ZERO, given)), any_identification=True))
    b4_case("encapsulation-limit", "RFC 2473 section 4.1.1", "an encapsulation limit before the packet inside",
            "passed over",
            packet(around(AFTR, B4, b"\x04\0\x04\x01\x04\x01\x01\0" + udp4(FAR, HOST), tc=0, next_header=60), "forward",
                   udp4(FAR, HOST, ttl=63)))
    b4_case("stranger", "RFC 6333 section 5.1", "from another than the AFTR", "dropped",
            packet(around(STRANGER, B4, udp4(FAR, HOST)), "drop unknown-softwire"))
    b4_case("not-inside", "RFC 6333 section 5.1", "a packet inside for nobody here", "dropped, or it would go round",
            packet(around(AFTR, B4, udp4(FAR, "192.168.7.7")), "drop not-ours"))
    b4_case("empty", "RFC 2473 section 3.1", "nothing inside", "dropped",
            packet(ipv6(AFTR, B4, 4, b""), "drop no-packet-inside"))
    b4_case("wrong-version", "RFC 2473 section 3.1", "an IPv6 packet where IPv4 is announced", "dropped",
            packet(ipv6(AFTR, B4, 4, ipv6(AFTR, B4, 59, b"")), "drop no-packet-inside"))
    b4_case("tunnel-in-tunnel", "RFC 2473 section 4", "an IPv6 tunnel's packet", "dropped",
            packet(ipv6(AFTR, B4, 41, ipv6(AFTR, B4, 4, udp4(FAR, HOST))), "drop tunnel-in-tunnel"))
    inner = udp4(FAR, HOST)
    b4_case("damaged", "RFC 791 section 3.1", "a wrong header checksum inside", "dropped",
            packet(ipv6(AFTR, B4, 4, inner[:8] + b"\x09" + inner[9:]), "drop bad-checksum"))
    b4_case("outer-fragments", "RFC 2473 section 7.1", "two IPv6 fragments, the second first", "put together, then opened",
            [packet(ipv6(AFTR, B4, 44, fragment(4, 3, 0, 9) + inner[24:]), "hold"),
             packet(ipv6(AFTR, B4, 44, fragment(4, 0, 1, 9) + inner[:24]), "forward", udp4(FAR, HOST, ttl=63))])
    obstacles_in_fragments(b4_case, AFTR, B4, 4, inner, B4)
    piece = ipv4(HOST, FAR, 17, data(16), ident=5, offset=100, mf=1)
    b4_case("inner-fragment", "RFC 6333 section 5.3", "a fragment from inside", "carried like any packet",
            packet(piece, "forward", around(B4, AFTR, ipv4(HOST, FAR, 17, data(16), ident=5, offset=100, mf=1, ttl=63))))
    for name, kind, code, rest, expected, mtu in [
            ("path-too-big", 2, 0, 1400, 4, 1360), ("path-unreachable", 1, 0, 0, 1, 0),
            ("path-hop-limit", 3, 0, 0, 1, 0), ("path-parameter", 4, 1, 6, 1, 0)]:
        sent = udp4(HOST, FAR, payload=data(1400), df=1, ttl=63)
        b4_case(name, "RFC 2473 section 8", f"ICMPv6 {kind}/{code} from the path to the AFTR",
                f"ICMPv4 3/{expected} to the host whose packet it was",
                packet(error6(CORE, B4, kind, code, u32(rest), around(B4, AFTR, sent)[:1232]), "forward",
                       told4("192.0.0.2", HOST, 3, expected, u32(mtu), sent), any_identification=True))
    sent = udp4(HOST, FAR, payload=data(1400), ttl=63)
    b4_case("path-too-big-without-df", "RFC 2473 section 8.3", "packet too big about a packet without DF",
            "nothing: its sender could do nothing",
            packet(error6(CORE, B4, 2, 0, u32(1400), around(B4, AFTR, sent)[:1232]), "drop packet-too-big"))
    b4_case("path-mtu-below-1280", "RFC 8201 section 4", "packet too big with 1279", "no path has that",
            packet(error6(CORE, B4, 2, 0, u32(1279), around(B4, AFTR, udp4(HOST, FAR, df=1))),
                   "drop icmp-error-unusable"))
    b4_case("ping", "RFC 4443 section 4.2", "an echo request to the tunnel address", "answered, as no interface would",
            packet(ipv6(CORE, B4, 58, icmp6(CORE, B4, 128, 0, echo_rest(1, 2), data(8))), "echo-reply",
                   ipv6(B4, CORE, 58, icmp6(B4, CORE, 129, 0, echo_rest(1, 2), data(8)))))
    given = ipv6(AFTR, B4, 17, udp(AFTR, B4, 1, 2, b"x"))
    b4_case("udp-to-the-tunnel", "RFC 2473 section 3.1", "something else for the tunnel address", "port unreachable",
            packet(given, "reply no-packet-inside", told6(B4, AFTR, 1, 4, given)))
    given = ipv6(AFTR, B4, 47, bytes(8))
    b4_case("gre-to-the-tunnel", "RFC 8200 section 4", "a next header that the end of a tunnel does not know",
            "parameter problem 4/1 that points to its number",
            packet(given, "reply no-packet-inside", told6(B4, AFTR, 4, 1, given, u32(6))))
    b4_case("no-next-header", "RFC 8200 section 4.7", "next header 59", "nothing to complain about",
            packet(ipv6(AFTR, B4, 59, b""), "drop no-packet-inside"))
    b4_case("among-themselves", "RFC 6333 section 5.1", "from host to host inside", "left to the host's routes",
            packet(udp4(HOST, "10.0.0.3"), "to-host"))


def aftr():
    def aftr_case(*arguments, config="aftr"):
        case(*arguments, config=config, service="aftr")

    opened = packet(around(B4, AFTR, udp4(HOST, FAR, df=1)), "forward", udp4(POOL, FAR, 5000, 53, df=1, ttl=63))
    aftr_case("out-and-in", "RFC 6333 section 8.3", "a packet and its answer",
              "the source is bound to the pool; the answer goes to the B4 that the packet came from",
              [opened, packet(udp4(FAR, POOL, 53, 5000), "forward", around(AFTR, B4, udp4(FAR, HOST, 53, 40000, ttl=63)))])
    aftr_case("same-address-elsewhere", "RFC 6333 section 8.2", "the same address and port behind another B4",
              "another host: the pool's one port is taken, 3/1 through its softwire (RFC 6888 REQ-11)",
              [opened,
               packet(around(OTHER_B4, AFTR, udp4(HOST, FAR, df=1)), "reply pool-exhausted",
                      around(AFTR, OTHER_B4, told4("192.0.0.1", HOST, 3, 1, ZERO, udp4(HOST, FAR, df=1))),
                      any_identification=True)])
    syn = ipv4(HOST, FAR, 6, tcp(HOST, FAR, 40000, 80, b"", flags=2), df=1)
    aftr_case("tcp", "RFC 6333 section 8.3", "a SYN", "bound like any other",
              packet(around(B4, AFTR, syn), "forward",
                     ipv4(POOL, FAR, 6, tcp(POOL, FAR, 5000, 80, b"", flags=2), df=1, ttl=63)))
    aftr_case("echo", "RFC 6333 section 8.3", "an echo request", "its identifier is bound",
              packet(around(B4, AFTR, icmp_in_ipv4(HOST, FAR, 8, 0, echo_rest(7, 1), data(8), df=1)), "forward",
                     icmp_in_ipv4(POOL, FAR, 8, 0, echo_rest(5000, 1), data(8), df=1, ttl=63)))
    given = around(STRANGER, AFTR, udp4(HOST, FAR))
    aftr_case("stranger", "RFC 6333 section 11", "from outside of the customers' prefixes", "1/5 from the tunnel address",
              packet(given, "reply unknown-softwire", told6(AFTR, STRANGER, 1, 5, given)))
    aftr_case("stranger-silent", "RFC 6333 section 11", "the same where policy says nothing", "dropped",
              packet(given, "drop unknown-softwire"), config="silent")
    aftr_case("public-source", "RFC 6333 section 11", "a public source inside", "dropped",
              packet(around(B4, AFTR, udp4("8.8.8.8", FAR)), "drop inner-source-spoofed"))
    obstacles_in_fragments(aftr_case, B4, AFTR, 4, udp4(HOST, FAR), AFTR)
    b4_own = udp4("192.0.0.2", FAR, df=1)
    aftr_case("b4-itself", "RFC 6333 section 5.7", "the B4's own address", "accepted",
              packet(around(B4, AFTR, b4_own), "forward", udp4(POOL, FAR, 5000, 53, df=1, ttl=63)))
    given = ipv4(HOST, FAR, 47, data(20))
    aftr_case("gre", "RFC 6333 section 8.3", "a protocol without ports", "protocol unreachable through the softwire",
              packet(around(B4, AFTR, given), "reply unsupported-protocol",
                     around(AFTR, B4, told4("192.0.0.1", HOST, 3, 2, ZERO, given)), any_identification=True))
    given = udp4(HOST, FAR, ttl=1)
    aftr_case("ttl", "RFC 6333 section 6.5", "the last hop", "time exceeded from 192.0.0.1",
              packet(around(B4, AFTR, given), "reply hop-limit-exceeded",
                     around(AFTR, B4, told4("192.0.0.1", HOST, 11, 0, ZERO, given)), any_identification=True))
    aftr_case("scan", "RFC 5508 REQ-4", "from outside to a port of nobody", "dropped",
              packet(udp4(FAR, POOL, 53, 5000), "drop no-binding"))
    big = udp4(FAR, POOL, 53, 5000, payload=data(1433), df=1)
    aftr_case("too-big-in", "RFC 2473 section 7.2", "1461 bytes with DF from outside", "fragmentation needed with 1460",
              [opened, packet(big, "reply packet-too-big", told4(GW4, FAR, 3, 4, u32(1460), big),
                              any_identification=True)])
    about = udp4(POOL, FAR, 5000, 53, df=1, ttl=9)
    about_inside = udp4(HOST, FAR, 40000, 53, df=1, ttl=9)
    aftr_case("error-in", "RFC 5508 REQ-4", "time exceeded from a router outside", "to the host, about its own packet",
              [opened, packet(icmp_in_ipv4(ROUTER, POOL, 11, 0, ZERO, about), "forward",
                              around(AFTR, B4, icmp_in_ipv4(ROUTER, HOST, 11, 0, ZERO, about_inside, ttl=63)))])
    came = udp4(FAR, HOST, 53, 40000, payload=data(1400), df=1, ttl=63)
    came_outside = udp4(FAR, POOL, 53, 5000, payload=data(1400), df=1, ttl=63)
    aftr_case("path-too-big", "RFC 2473 section 8.3", "packet too big from the path to the B4",
              "to the remote, about the packet as it knows it, 40 bytes less",
              [opened, packet(error6(CORE, AFTR, 2, 0, u32(1400), around(AFTR, B4, came)[:1232]), "forward",
                              icmp_in_ipv4(POOL, FAR, 3, 4, u32(1360), came_outside[:548], tos=0xC0, ttl=63),
                              any_identification=True)])
    aftr_case("path-error-of-nobody", "RFC 2473 section 8", "the same about a packet that was never sent", "dropped",
              packet(error6(CORE, AFTR, 2, 0, u32(1400), around(AFTR, B4, came)[:1232]), "drop no-session"))
    other_host = udp4("10.0.0.3", FAR, df=1)
    aftr_case("blocks", "RFC 6888 REQ-14", "two hosts behind a B4 and one behind another, one block with one port",
              "the block is the first B4's, all of it; 3/1 to the others through their softwires",
              [opened,
               packet(around(B4, AFTR, other_host), "reply subscriber-limit",
                      around(AFTR, B4, told4("192.0.0.1", "10.0.0.3", 3, 1, ZERO, other_host)),
                      any_identification=True),
               packet(around(OTHER_B4, AFTR, udp4(HOST, FAR, df=1)), "reply pool-exhausted",
                      around(AFTR, OTHER_B4, told4("192.0.0.1", HOST, 3, 1, ZERO, udp4(HOST, FAR, df=1))),
                      any_identification=True)], config="blocks")
    aftr_case("deterministic", "RFC 7422 section 2", "the same private endpoint behind two B4s",
              "each has the port that is computed from its prefix; a second binding finds none",
              [packet(around(B4, AFTR, udp4(HOST, FAR, df=1)), "forward", udp4(POOL, FAR, 5001, 53, df=1, ttl=63)),
               packet(around(OTHER_B4, AFTR, udp4(HOST, FAR, df=1)), "forward",
                      udp4(POOL, FAR, 5002, 53, df=1, ttl=63)),
               packet(udp4(FAR, POOL, 53, 5002), "forward", around(AFTR, OTHER_B4, udp4(FAR, HOST, 53, 40000, ttl=63))),
               packet(around(B4, AFTR, other_host), "reply subscriber-limit",
                      around(AFTR, B4, told4("192.0.0.1", "10.0.0.3", 3, 1, ZERO, other_host)),
                      any_identification=True)], config="deterministic")
    beyond = "2001:db8:1001:100::b4"
    given = udp4(HOST, FAR, df=1)
    aftr_case("deterministic-stranger", "RFC 7422 section 2", "a B4 that is served, but has no share",
              "3/13 through its softwire",
              packet(around(beyond, AFTR, given), "reply denied",
                     around(AFTR, beyond, told4("192.0.0.1", HOST, 3, 13, ZERO, given)), any_identification=True),
              config="deterministic")
    opening = ipv4(FAR, POOL, 6, tcp(FAR, POOL, 50000, 5200, b"", flags=2), df=1)
    answer = ipv4(HOST, FAR, 6, tcp(HOST, FAR, 80, 50000, b"", flags=0x12), df=1)
    aftr_case("static", "RFC 6888 REQ-8", "a SYN from outside for a server behind a B4, and its answer",
              "the configured binding takes both",
              [packet(opening, "forward",
                      around(AFTR, B4, ipv4(FAR, HOST, 6, tcp(FAR, HOST, 50000, 80, b"", flags=2), df=1, ttl=63))),
               packet(around(B4, AFTR, answer), "forward",
                      ipv4(POOL, FAR, 6, tcp(POOL, FAR, 5200, 50000, b"", flags=0x12), df=1, ttl=63))],
              config="blocks")
    aftr_case("static-of-another", "RFC 6333 section 11", "the server's endpoint behind another B4",
              "another host: it has no binding to answer from",
              packet(around(OTHER_B4, AFTR, ipv4(HOST, FAR, 6, tcp(HOST, FAR, 80, 50000, b"", flags=0x10), df=1)),
                     "drop tcp-not-syn"), config="blocks")
    own, near = "203.0.113.5", "198.51.100.200"
    aftr_case("untranslated", "RFC 6888 REQ-6", "between a host that has an address of its own and its network",
              "not translated either way",
              [packet(around(B4, AFTR, udp4(own, near, df=1)), "forward", udp4(own, near, df=1, ttl=63)),
               packet(udp4(near, own, 53, 40000), "forward", around(AFTR, B4, udp4(near, own, 53, 40000, ttl=63)))],
              config="blocks")
    aftr_case("untranslated-elsewhere", "RFC 6888 REQ-6", "the same host to and from another network",
              "translated as ever; nothing comes in",
              [packet(around(B4, AFTR, udp4(own, FAR, df=1)), "forward", udp4(POOL, FAR, 5000, 53, df=1, ttl=63)),
               packet(udp4(FAR, own), "drop no-binding")], config="blocks")
    aftr_case("untranslated-error", "RFC 5508 REQ-4", "time exceeded about such a packet, from any router",
              "to the host, unchanged but for the TTL",
              packet(icmp_in_ipv4(ROUTER, own, 11, 0, ZERO, udp4(own, near, df=1, ttl=9)), "forward",
                     around(AFTR, B4, icmp_in_ipv4(ROUTER, own, 11, 0, ZERO, udp4(own, near, df=1, ttl=9), ttl=63))),
              config="blocks")
    second = udp4(HOST, ROUTER, df=1)
    aftr_case("session-limit", "RFC 6888 REQ-5", "a second session where one is allowed", "3/1 through the softwire",
              [opened, packet(around(B4, AFTR, second), "reply subscriber-limit",
                              around(AFTR, B4, told4("192.0.0.1", HOST, 3, 1, ZERO, second)),
                              any_identification=True)], config="limits")
    syn_in = ipv4(FAR, POOL, 6, tcp(FAR, POOL, 80, 5000, b"", flags=2), df=1)
    aftr_case("syn-held", "RFC 5382 REQ-4", "a SYN from outside for a port of nobody, where SYNs wait", "held",
              packet(syn_in, "hold"), config="limits")
    aftr_case("ping", "RFC 4443 section 4.2", "an echo request to the tunnel address", "answered",
              packet(ipv6(B4, AFTR, 58, icmp6(B4, AFTR, 128, 0, echo_rest(1, 2), data(8))), "echo-reply",
                     ipv6(AFTR, B4, 58, icmp6(AFTR, B4, 129, 0, echo_rest(1, 2), data(8)))))
    pinged = packet(ipv6(B4, AFTR, 58, icmp6(B4, AFTR, 128, 0, echo_rest(1, 2), data(8))), "echo-reply",
                    ipv6(AFTR, B4, 58, icmp6(AFTR, B4, 129, 0, echo_rest(1, 2), data(8))))
    expired = udp4(HOST, FAR, ttl=1)
    aftr_case("ping-without-errors", "RFC 4443 section 4.2", "pings where no ICMP errors are sent",
              "echo requests must be answered; errors are not sent",
              [pinged, pinged, packet(around(B4, AFTR, expired), "drop hop-limit-exceeded")], config="no-errors")
    aftr_case("ping-and-error", "RFC 4443 section 2.4 (f)", "pings, then the last hop, where one error may be sent",
              "echo replies do not use up what errors have",
              [pinged, pinged, pinged,
               packet(around(B4, AFTR, expired), "reply hop-limit-exceeded",
                      around(AFTR, B4, told4("192.0.0.1", HOST, 11, 0, ZERO, expired)), any_identification=True)],
              config="one-error")
    big = ipv4(HOST, POOL, 6, tcp(HOST, POOL, 40000, 5200, data(1421), flags=2), df=1)
    aftr_case("hairpin-too-big", "RFC 2473 section 7.2", "1461 bytes with DF to a server behind another B4",
              "fragmentation needed with 1460 through the sender's softwire",
              packet(around(OTHER_B4, AFTR, big, tc=0), "reply packet-too-big",
                     around(AFTR, OTHER_B4, told4("192.0.0.1", HOST, 3, 4, u32(1460), big)), any_identification=True),
              config="blocks")
    ping = icmp_in_ipv4(HOST, "192.0.0.1", 8, 0, echo_rest(7, 1), data(8), ttl=1)
    aftr_case("ping-192.0.0.1", "RFC 6333 sections 5.7 and 6.5", "an echo request to the AFTR's address in the softwire",
              "answered through the softwire",
              packet(around(B4, AFTR, ping), "echo-reply",
                     around(AFTR, B4, icmp_in_ipv4("192.0.0.1", HOST, 0, 0, echo_rest(7, 1), data(8), df=1))))
    given = udp4(HOST, "192.0.0.1")
    aftr_case("udp-to-192.0.0.1", "RFC 6333 section 5.7", "a datagram to the same address", "3/3; it is never sent outside",
              packet(around(B4, AFTR, given), "reply unsupported-protocol",
                     around(AFTR, B4, told4("192.0.0.1", HOST, 3, 3, ZERO, given)), any_identification=True))
    given = udp4(HOST, "192.0.0.2")
    aftr_case("udp-to-192.0.0.2", "RFC 6333 section 5.7", "to the address that every B4 has", "3/1; it is never sent outside",
              packet(around(B4, AFTR, given), "reply illegal-destination",
                     around(AFTR, B4, told4("192.0.0.1", HOST, 3, 1, ZERO, given)), any_identification=True))
    about = udp4(POOL, FAR, 5000, 53, df=1, ttl=9)
    aftr_case("redirect", "RFC 5508 REQ-10", "a source quench and a redirect from a router outside", "dropped",
              [opened, packet(icmp_in_ipv4(ROUTER, POOL, 4, 0, ZERO, about), "drop icmp-untranslatable"),
               packet(icmp_in_ipv4(ROUTER, POOL, 5, 1, packed(FAR), about), "drop icmp-untranslatable")])


def lwb4():
    def lwb4_case(*arguments, config="lwb4"):
        case(*arguments, config=config, service="lwb4")

    opened = packet(udp4(HOST, FAR, df=1), "forward", around(B4, AFTR, udp4(SHARED, FAR, 5000, 53, df=1, ttl=63)))
    lwb4_case("out-and-in", "RFC 7596 section 5.2", "a packet and its answer", "translated into the port set, and back",
              [opened, packet(around(AFTR, B4, udp4(FAR, SHARED, 53, 5000)), "forward",
                              udp4(FAR, HOST, 53, 40000, ttl=63))])
    lwb4_case("no-port-left", "RFC 6888 REQ-11", "a second host when the set is used up", "3/1",
              [opened, packet(udp4("10.0.0.3", FAR, df=1), "reply pool-exhausted",
                              told4(GW4, "10.0.0.3", 3, 1, ZERO, udp4("10.0.0.3", FAR, df=1)),
                              any_identification=True)])
    lwb4_case("echo", "RFC 7596 section 8.1", "an echo request", "its identifier is one of the set",
              packet(icmp_in_ipv4(HOST, FAR, 8, 0, echo_rest(7, 1), data(8), df=1), "forward",
                     around(B4, AFTR, icmp_in_ipv4(SHARED, FAR, 8, 0, echo_rest(5000, 1), data(8), df=1, ttl=63))))
    lwb4_case("stranger", "RFC 7596 section 5.2", "from another than the lwAFTR", "dropped",
              packet(around(STRANGER, B4, udp4(FAR, SHARED, 53, 5000)), "drop unknown-softwire"))
    obstacles_in_fragments(lwb4_case, AFTR, B4, 4, udp4(FAR, SHARED, 53, 5000), B4)
    lwb4_case("port-of-another", "RFC 7596 section 5.2", "for a port outside the set", "dropped",
              packet(around(AFTR, B4, udp4(FAR, SHARED, 53, 5001)), "drop not-ours"))
    given = udp4(FAR, SHARED, 53, 5001)
    lwb4_case("port-of-another-told", "RFC 7596 section 5.2", "the same where policy allows", "3/13 to its sender",
              packet(around(AFTR, B4, given), "reply not-ours",
                     around(B4, AFTR, told4(SHARED, FAR, 3, 13, ZERO, given)), any_identification=True), config="tell")
    lwb4_case("unbound", "RFC 7596 section 5.2", "for the set, with no binding", "dropped",
              packet(around(AFTR, B4, udp4(FAR, SHARED, 53, 5000)), "drop no-binding"))
    lwb4_case("to-the-neighbour", "RFC 7596 section 6.2", "to another subscriber of the same address",
              "the lwAFTR turns it round",
              packet(udp4(HOST, SHARED, 40000, 7000, df=1), "forward",
                     around(B4, AFTR, udp4(SHARED, SHARED, 5000, 7000, df=1, ttl=63))))
    given = udp4(HOST, FAR, payload=data(1433), df=1)
    lwb4_case("too-big", "RFC 2473 section 7.2", "1461 bytes with DF", "fragmentation needed with 1460",
              packet(given, "reply packet-too-big", told4(GW4, HOST, 3, 4, u32(1460), given), any_identification=True))
    given = udp4(HOST, SHARED, 40000, 5000, payload=data(1473), df=1)
    lwb4_case("hairpin-too-big", "RFC 4787 REQ-13", "1501 bytes with DF to a port of its own set",
              "fragmentation needed with the inside link's 1500",
              packet(given, "reply packet-too-big", told4(GW4, HOST, 3, 4, u32(1500), given), any_identification=True))
    sent = around(B4, AFTR, udp4(SHARED, FAR, 5000, 53, df=1, ttl=63))
    inside = icmp_in_ipv4(SHARED, HOST, 3, 1, ZERO, udp4(HOST, FAR, df=1, ttl=63), tos=0xC0, ttl=63)
    lwb4_case("path-unreachable", "RFC 2473 section 8", "no route to the lwAFTR", "the host is told 3/1",
              [opened, packet(error6(CORE, B4, 1, 0, ZERO, sent), "forward", inside, any_identification=True)])
    lwb4_case("refused", "RFC 7596 section 8.1", "1/5 from the lwAFTR", "counted apart; the host is told",
              [opened, packet(error6(AFTR, B4, 1, 5, ZERO, sent), "reply softwire-refused", inside,
                              any_identification=True)])
    lwb4_case("refused-by-another", "RFC 7596 section 8.1", "1/5 from elsewhere", "must be ignored",
              [opened, packet(error6(CORE, B4, 1, 5, ZERO, sent), "drop icmp-error-unusable")])
    about = udp4(SHARED, FAR, 5000, 53, df=1, ttl=9)
    lwb4_case("error-in", "RFC 5508 REQ-4", "time exceeded from a router outside", "to the host, about its own packet",
              [opened, packet(around(AFTR, B4, icmp_in_ipv4(ROUTER, SHARED, 11, 0, ZERO, about)), "forward",
                              icmp_in_ipv4(ROUTER, HOST, 11, 0, ZERO, udp4(HOST, FAR, df=1, ttl=9), ttl=63))])


def lwaftr():
    first, second, whole, offset = (f"2001:db8:1::1{n}" for n in range(4))

    def lwaftr_case(*arguments, config="lwaftr"):
        case(*arguments, config=config, service="lwaftr")

    lwaftr_case("in", "RFC 7596 section 6.2", "from outside to a port of a softwire", "into it, one hop less",
                packet(udp4(FAR, SHARED, 53, 4096), "forward",
                       around(AFTR, first, udp4(FAR, SHARED, 53, 4096, ttl=63))))
    lwaftr_case("in-from-the-other-address", "RFC 7596 section 6.2", "to a softwire with another address of this end",
                "from that address",
                packet(udp4(FAR, SHARED, 53, 5120), "forward",
                       around(AFTR2, second, udp4(FAR, SHARED, 53, 5120, ttl=63))))
    lwaftr_case("out", "RFC 7596 section 6.2", "from a softwire", "the packet inside, one hop less",
                packet(around(first, AFTR, udp4(SHARED, FAR, 4097, 53)), "forward",
                       udp4(SHARED, FAR, 4097, 53, ttl=63)))
    lwaftr_case("in-offset", "RFC 7597 section 5.1", "to a port set with offset", "its own range",
                packet(udp4(FAR, "192.0.2.12", 53, 1235), "forward",
                       around(AFTR, offset, udp4(FAR, "192.0.2.12", 53, 1235, ttl=63))))
    given = udp4(FAR, "192.0.2.12", 53, 80)
    lwaftr_case("in-well-known", "RFC 7597 section 5.1", "to a well-known port below the offset", "nobody's: 3/1",
                packet(given, "reply no-binding", told4(GW4, FAR, 3, 1, ZERO, given), any_identification=True))
    given = udp4(FAR, SHARED, 53, 9999)
    lwaftr_case("in-nobody", "RFC 7596 section 6.2", "to a port of nobody", "3/1",
                packet(given, "reply no-binding", told4(GW4, FAR, 3, 1, ZERO, given), any_identification=True))
    lwaftr_case("in-nobody-silent", "RFC 7596 section 6.2", "the same where policy says nothing", "dropped",
                packet(given, "drop no-binding"), config="strict")
    lwaftr_case("in-echo", "RFC 7596 section 8.1", "an echo request", "its identifier counts as the port",
                packet(icmp_in_ipv4(FAR, SHARED, 8, 0, echo_rest(4100, 1), data(8)), "forward",
                       around(AFTR, first, icmp_in_ipv4(FAR, SHARED, 8, 0, echo_rest(4100, 1), data(8), ttl=63))))
    echo = icmp_in_ipv4(FAR, SHARED, 8, 0, echo_rest(4100, 1), data(8))
    lwaftr_case("in-echo-denied", "RFC 7596 section 8.1", "an echo request where policy lets no ICMP in", "dropped",
                packet(echo, "drop denied"), config="strict")
    lwaftr_case("in-error-denied", "RFC 7596 section 8.1", "an ICMP error there", "dropped",
                packet(icmp_in_ipv4(FAR, SHARED, 3, 3, ZERO, udp4(SHARED, FAR, 4096, 53, ttl=9)), "drop denied"),
                config="strict")
    lwaftr_case("in-echo-nobody", "RFC 7596 section 8.1", "an echo request with an identifier of nobody", "dropped",
                packet(icmp_in_ipv4(FAR, SHARED, 8, 0, echo_rest(1, 1), data(8)), "drop no-binding"))
    about = udp4(SHARED, FAR, 4096, 53, ttl=9)
    lwaftr_case("in-error", "RFC 7596 section 8.1", "an ICMP error", "the source port of the packet in it counts",
                packet(icmp_in_ipv4(ROUTER, SHARED, 11, 0, ZERO, about), "forward",
                       around(AFTR, first, icmp_in_ipv4(ROUTER, SHARED, 11, 0, ZERO, about, ttl=63))))
    lwaftr_case("in-error-of-another", "RFC 7596 section 8.1", "an error about a packet from another address", "dropped",
                packet(icmp_in_ipv4(ROUTER, SHARED, 11, 0, ZERO, udp4(WHOLE, FAR, 4096, 53)), "drop icmp-error-unusable"))
    gre = ipv4(FAR, WHOLE, 47, data(20))
    lwaftr_case("in-gre", "RFC 7596 section 4", "a protocol without ports to a whole address", "carried",
                packet(gre, "forward", around(AFTR, whole, ipv4(FAR, WHOLE, 47, data(20), ttl=63))))
    gre = ipv4(FAR, SHARED, 47, data(20))
    lwaftr_case("in-gre-shared", "RFC 7596 section 4", "the same to a shared address", "nobody's",
                packet(gre, "drop no-binding"), config="strict")
    for name, protocol in (("sctp", 132), ("dccp", 33), ("udp-lite", 136)):
        body = sctp(53, 4100, data(9))
        lwaftr_case(f"in-{name}-shared", "RFC 7596 section 6.2", f"protocol {protocol}, with ports, to a shared address",
                    "into the softwire of the port",
                    packet(ipv4(FAR, SHARED, protocol, body), "forward",
                           around(AFTR, first, ipv4(FAR, SHARED, protocol, body, ttl=63))))
        body = sctp(4100, 53, data(9))
        lwaftr_case(f"out-{name}-shared", "RFC 7596 section 6.2", f"protocol {protocol}, with ports, from a lwB4",
                    "its source and port are the softwire's",
                    packet(around(first, AFTR, ipv4(SHARED, FAR, protocol, body)), "forward",
                           ipv4(SHARED, FAR, protocol, body, ttl=63)))
    about = ipv4(SHARED, FAR, 132, sctp(4100, 53, data(9)), ttl=9)
    lwaftr_case("in-error-about-sctp", "RFC 7596 section 8.1", "an ICMP error about an SCTP packet",
                "the source port of the packet in it counts",
                packet(icmp_in_ipv4(ROUTER, SHARED, 11, 0, ZERO, about), "forward",
                       around(AFTR, first, icmp_in_ipv4(ROUTER, SHARED, 11, 0, ZERO, about, ttl=63))))
    given = around(first, AFTR, udp4(SHARED, FAR, 5120, 53))
    lwaftr_case("out-gre-shared", "RFC 7596 section 8.1", "a protocol without ports from a known lwB4",
                "dropped without 1/5, which would say that it has no softwire",
                packet(around(first, AFTR, ipv4(SHARED, FAR, 47, data(20))), "drop unsupported-protocol"))
    lwaftr_case("out-esp-shared", "RFC 7596 section 8.1", "ESP from a known lwB4", "the same",
                packet(around(first, AFTR, ipv4(SHARED, FAR, 50, data(20))), "drop unsupported-protocol"))
    obstacles_in_fragments(lwaftr_case, first, AFTR, 4, udp4(SHARED, FAR, 4097, 53), AFTR)
    lwaftr_case("in-forged", "RFC 7596 section 6.2", "from outside with the source of a subscriber",
                "forged: subscribers come through their softwires",
                packet(udp4(WHOLE, SHARED, 53, 4096), "drop inner-source-spoofed"))
    about = udp4(SHARED, FAR, 4096, 53, df=1, ttl=9)
    lwaftr_case("in-redirect", "RFC 5508 REQ-10", "a source quench and a redirect from outside", "dropped",
                [packet(icmp_in_ipv4(ROUTER, SHARED, 4, 0, ZERO, about), "drop icmp-untranslatable"),
                 packet(icmp_in_ipv4(ROUTER, SHARED, 5, 1, packed(FAR), about), "drop icmp-untranslatable")])
    lwaftr_case("path-fragment-lost", "RFC 2473 section 8", "3/1 about a softwire packet: a fragment was lost",
                "nothing: no host is unreachable for that",
                packet(error6(first, AFTR, 3, 1, ZERO, around(AFTR, first, udp4(FAR, SHARED, 53, 4096))),
                       "drop icmp-error-unusable"))
    leaked = udp4(SHARED, "192.0.0.2", 4097, 53)
    lwaftr_case("out-to-192.0.0.2", "RFC 6333 section 5.7", "to the address that every B4 has",
                "3/1; it is never sent outside",
                packet(around(first, AFTR, leaked), "reply illegal-destination",
                       around(AFTR, first, told4(GW4, SHARED, 3, 1, ZERO, leaked)), any_identification=True))
    lwaftr_case("out-port-of-another", "RFC 7596 section 6.2", "a source port of another softwire", "1/5",
                packet(given, "reply inner-source-spoofed", told6(AFTR, first, 1, 5, given)))
    given = around(first, AFTR, udp4(SHARED, FAR, 9999, 53))
    lwaftr_case("out-port-of-nobody", "RFC 7596 section 6.2", "a source port of nobody", "1/5",
                packet(given, "reply unknown-softwire", told6(AFTR, first, 1, 5, given)))
    lwaftr_case("out-silent", "RFC 7596 section 6.2", "the same where policy says nothing", "dropped",
                packet(given, "drop unknown-softwire"), config="strict")
    lwaftr_case("out-other-end", "RFC 7596 section 6.2", "to an address of this end that is not the softwire's", "dropped",
                packet(around(first, AFTR2, udp4(SHARED, FAR, 4097, 53)), "drop not-ours"))
    lwaftr_case("hairpin", "RFC 7596 section 6.2", "from a subscriber to another of the same address",
                "turned round into the other's softwire, unchanged but for the TTL",
                packet(around(first, AFTR, udp4(SHARED, SHARED, 4096, 5120)), "forward",
                       around(AFTR2, second, udp4(SHARED, SHARED, 4096, 5120, ttl=63))))
    lwaftr_case("hairpin-off", "RFC 7596 section 6.2", "the same with hairpinning off", "dropped, never sent round",
                packet(around(first, AFTR, udp4(SHARED, SHARED, 4096, 5120)), "drop hairpinning-off"), config="strict")
    given = udp4(SHARED, SHARED, 4096, 5120, ttl=1)
    lwaftr_case("hairpin-ttl", "RFC 1812 section 5.3.1", "the last hop", "told through the sender's softwire",
                packet(around(first, AFTR, given), "reply hop-limit-exceeded",
                       around(AFTR, first, told4(GW4, SHARED, 11, 0, ZERO, given)), any_identification=True))
    given = udp4(FAR, SHARED, 53, 4096, payload=data(1433), df=1)
    lwaftr_case("in-too-big", "RFC 2473 section 7.2", "1461 bytes with DF", "fragmentation needed with 1460",
                packet(given, "reply packet-too-big", told4(GW4, FAR, 3, 4, u32(1460), given), any_identification=True))
    segment = udp(SHARED, FAR, 4096, 53, data(32))
    pieces = [ipv4(SHARED, FAR, 17, segment[24:], ident=7, offset=3),
              ipv4(SHARED, FAR, 17, segment[:24], ident=7, mf=1)]
    lwaftr_case("out-fragments", "RFC 7596 section 8.3", "a fragmented packet, the last piece first",
                "put together, since only the first piece tells whose it is",
                [packet(around(first, AFTR, pieces[0]), "hold"),
                 packet(around(first, AFTR, pieces[1]), "forward", ipv4(SHARED, FAR, 17, segment, ident=7, ttl=63))])
    segment = udp(FAR, SHARED, 53, 4096, data(32))
    pieces = [ipv4(FAR, SHARED, 17, segment[24:], ident=7, offset=3), ipv4(FAR, SHARED, 17, segment[:24], ident=7, mf=1)]
    lwaftr_case("in-fragments", "RFC 7596 section 8.3", "the same from outside", "put together, then carried whole",
                [packet(pieces[0], "hold"),
                 packet(pieces[1], "forward", around(AFTR, first, ipv4(FAR, SHARED, 17, segment, ident=7, ttl=63)))])
    sent = udp4(FAR, SHARED, 53, 4096, payload=data(1400), df=1, ttl=63)
    lwaftr_case("path-too-big", "RFC 2473 section 8.3", "packet too big from the path to a lwB4",
                "to the sender outside, 40 bytes less",
                packet(error6(CORE, AFTR, 2, 0, u32(1400), around(AFTR, first, sent)[:1232]), "forward",
                       told4(GW4, FAR, 3, 4, u32(1360), sent), any_identification=True))
    sent = udp4(SHARED, SHARED, 5120, 4096, payload=data(1400), df=1, ttl=63)
    error = told4(GW4, SHARED, 3, 4, u32(1360), sent)
    error = icmp_in_ipv4(GW4, SHARED, 3, 4, u32(1360), sent[:548], tos=0xC0, ttl=63)
    lwaftr_case("path-too-big-hairpin", "RFC 2473 section 8.3", "the same about a packet from another subscriber",
                "into that one's softwire",
                packet(error6(CORE, AFTR, 2, 0, u32(1400), around(AFTR, first, sent)[:1232]), "forward",
                       around(AFTR2, second, error), any_identification=True))


def add_all():
    b4()
    aftr()
    lwb4()
    lwaftr()
