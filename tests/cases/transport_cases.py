"""The golden cases of stateful services about protocols besides TCP, UDP and ICMP; make.py writes them.

The checksums of both sides are computed here in full: what the gateway changes by difference has to be the same.
"""

import struct

from make import (case, data, dccp, error4, error6, fragment, icmp4, ipv4, ipv6, packet, reply6, sctp, u32, udp,
                  udp_lite)

ZERO = bytes(4)
SCTP, DCCP, UDP_LITE, ESP, GRE = 132, 33, 136, 50, 47
# The pools have one port, so that it is known which is given.
PORT = 5000
FAR4, FAR6 = "203.0.113.9", "64:ff9b::cb00:7109"
POOL4, POOL6 = "192.0.2.1", "64:ff9b::c000:201"
HOST4, HOST6, OTHER4, OTHER6 = "10.0.0.2", "2001:db8:aaaa::", "10.0.0.3", "2001:db8:aaaa::3"
ROUTER4 = "203.0.113.1"


def reply4(given, kind, code, rest, destination):
    """An ICMPv4 error of the gateway."""
    return error4("198.51.100.1", destination, kind, code, rest, given[:548], tos=0xC0)


def chunk(kind, body=b""):
    return struct.pack("!BBH", kind, 0, 4 + len(body)) + body + bytes(-len(body) % 4)


INIT = chunk(1, struct.pack("!IIHHI", 77, 65536, 1, 1, 7))
INIT_ACK = chunk(2, struct.pack("!IIHHI", 78, 65536, 1, 1, 8) + chunk(7, data(24)))
COOKIE = chunk(10, data(24))
SACK, SHUTDOWN, ABORT = chunk(3, data(12)), chunk(7, u32(9)), chunk(6)


def user_data(length):
    return chunk(0, struct.pack("!IHHI", 7, 0, 0, 0) + data(length))


class Side:
    """What stands around the transport on one side of a service: addresses, and the port of the host."""

    def __init__(self, host, far, port):
        self.host, self.far, self.port = host, far, port

    def out(self, protocol, body, hops=64):
        return self.around(self.host, self.far, protocol, body, hops)

    def back(self, protocol, body, hops=64):
        return self.around(self.far, self.host, protocol, body, hops)

    @staticmethod
    def around(source, destination, protocol, body, hops):
        if ":" in source:
            return ipv6(source, destination, protocol, body, hops=hops)
        return ipv4(source, destination, protocol, body, df=1, ttl=hops)


OUTSIDE = Side(POOL4, FAR4, PORT)
INSIDE = {"nat44": Side(HOST4, FAR4, 40001), "nat64": Side(HOST6, FAR6, 40001)}


def ends(side, way):
    """Source and destination address and port of a packet: `out` or `back`."""
    return (side.host, side.far, side.port, 53) if way == "out" else (side.far, side.host, 53, side.port)


def crossing(service, protocol, way, body):
    """A packet that goes through: `body` makes its transport from addresses and ports."""
    inside = INSIDE[service]
    one, other = (inside, OUTSIDE) if way == "out" else (OUTSIDE, inside)
    given = getattr(one, way)(protocol, body(*ends(one, way)))
    sent = getattr(other, way)(protocol, body(*ends(other, way)), 63)
    if service == "nat64" and way == "out":
        # RFC 7915 section 5.1: packets of up to 1260 bytes get no DF.
        sent = ipv4(POOL4, FAR4, protocol, body(*ends(other, way)), ttl=63)
    return packet(given, "forward", sent, any_identification=service == "nat64" and way == "out")


def of_sctp(payload):
    return lambda source, destination, sport, dport: sctp(sport, dport, payload)


def of_dccp(kind, covered=None):
    return lambda *ends: dccp(*ends, data(41), kind=kind, covered=covered)


def of_udp_lite(coverage):
    return lambda *ends: udp_lite(*ends, data(41), coverage=coverage)


def whole(*_):
    """A packet without ports."""
    return u32(0x2000) + data(60)


def in_either_service():
    for service in ("nat44", "nat64"):
        def add(name, clause, what, why, steps, config="transports"):
            case(name, clause, what, why, steps, config=config, service=service)

        def cross(protocol, *steps):
            return [crossing(service, protocol, way, body) for way, body in steps]

        add("sctp", "RFC 9260 section 5", "an association, data of odd length, and its end",
            "the port is bound, and the CRC32c is that of the packet with the new port",
            cross(SCTP, ("out", of_sctp(INIT)), ("back", of_sctp(INIT_ACK)), ("out", of_sctp(COOKIE)),
                  ("back", of_sctp(chunk(11))), ("out", of_sctp(SACK + user_data(1))), ("back", of_sctp(user_data(1200))),
                  ("out", of_sctp(SACK + SHUTDOWN)), ("back", of_sctp(chunk(8))), ("out", of_sctp(chunk(14)))))
        add("dccp", "RFC 5597, RFC 4340 section 9", "a connection, data of which all, nothing and a word is covered",
            "the checksum covers the ports in any case",
            cross(DCCP, ("out", of_dccp(0)), ("back", of_dccp(1)), ("out", of_dccp(2)), ("back", of_dccp(2, 0)),
                  ("out", of_dccp(2, 1)), ("back", of_dccp(6)), ("out", of_dccp(7))))
        add("udp-lite", "RFC 3828 section 3.1", "datagrams of which the header, a part and all is covered",
            "the checksum covers the ports in any case",
            cross(UDP_LITE, ("out", of_udp_lite(8)), ("back", of_udp_lite(20)), ("out", of_udp_lite(49))))
        inside, other = INSIDE[service], OTHER4 if service == "nat44" else OTHER6
        for name, protocol, clause in (("esp", ESP, "RFC 4303, RFC 6092 section 3.2.4"), ("gre", GRE, "RFC 2784")):
            refused = Side(other, inside.far, 0).out(protocol, whole())
            told = reply4(refused, 3, 1, ZERO, other) if service == "nat44" else reply6(refused, 1, 3, ZERO, other)
            add(name, clause, f"{name.upper()} of a host, the answer, and that of another host",
                "one host has the address, whatever its port; the other is told that it is not reached",
                cross(protocol, ("out", whole), ("back", whole))
                + [packet(refused, "reply pool-exhausted", told, any_identification=service == "nat44")])
            refused = inside.out(protocol, whole())
            # RFC 6146 section 3.5: port unreachable, in IPv6.
            told = reply4(refused, 3, 2, ZERO, HOST4) if service == "nat44" else reply6(refused, 1, 4, ZERO, HOST6)
            add(f"{name}-refused", clause, f"{name.upper()} where the file does not have it", "protocol unreachable",
                packet(refused, "reply unsupported-protocol", told, any_identification=service == "nat44"),
                config="static")
        later = inside.out(SCTP, sctp(40001, 53, user_data(8)))
        add("sctp-of-no-association", "RFC 6146 section 3.5.2.2", "data of an association that nobody knows", "as TCP's",
            packet(later, "drop tcp-not-syn"))
        add("sctp-from-outside", "RFC 4787 REQ-8", "an INIT for a port of nobody", "dropped",
            packet(OUTSIDE.back(SCTP, sctp(53, PORT, INIT)), "drop no-binding"))
        opened = crossing(service, SCTP, "out", of_sctp(INIT))
        taken = inside.out(DCCP, dccp(inside.host, inside.far, 40001, 53, b"", kind=0))
        told = reply4(taken, 3, 1, ZERO, HOST4) if service == "nat44" else reply6(taken, 1, 3, ZERO, HOST6)
        add("one-port-for-each", "RFC 6888 REQ-11", "SCTP and DCCP of a host, where there is one port",
            "both have theirs among those of TCP; UDP-Lite has another",
            [opened, packet(taken, "reply pool-exhausted", told, any_identification=service == "nat44"),
             crossing(service, UDP_LITE, "out", of_udp_lite(8))])
        add("in-fragments", "RFC 9260 section 6.9", "an SCTP packet in two fragments, either way",
            "the CRC32c is that of the whole packet", [opened] + in_fragments(service))
        errors(service, add, opened)


def in_fragments(service):
    inside = INSIDE[service]
    going, coming = (sctp(inside.port, 53, user_data(72)), sctp(PORT, 53, user_data(72)))
    sent = ipv4(POOL4, FAR4, SCTP, coming, ttl=63)
    if service == "nat44":
        first = ipv4(inside.host, FAR4, SCTP, going[:48], ident=5, mf=1)
        last = ipv4(inside.host, FAR4, SCTP, going[48:], ident=5, offset=6)
    else:
        first = ipv6(inside.host, inside.far, 44, fragment(SCTP, 0, 1, 5) + going[:48])
        last = ipv6(inside.host, inside.far, 44, fragment(SCTP, 6, 0, 5) + going[48:])
    steps = [packet(first, "hold"), packet(last, "forward", sent, any_identification=True)]
    coming, going = sctp(53, PORT, user_data(72)), sctp(53, inside.port, user_data(72))
    first = ipv4(FAR4, POOL4, SCTP, coming[:48], ident=6, mf=1)
    last = ipv4(FAR4, POOL4, SCTP, coming[48:], ident=6, offset=6)
    if service == "nat44":
        sent = ipv4(FAR4, inside.host, SCTP, going, ident=6, ttl=63)
    else:
        sent = ipv6(FAR6, inside.host, SCTP, going, hops=63)
    return steps + [packet(first, "hold"), packet(last, "forward", sent)]


def errors(service, add, opened):
    """Errors from outside about packets that left: whole, and cut behind the ports."""
    inside = INSIDE[service]
    makers = {"sctp": (SCTP, of_sctp(user_data(30)), opened),
              "dccp": (DCCP, of_dccp(2), crossing(service, DCCP, "out", of_dccp(0))),
              "udp-lite": (UDP_LITE, of_udp_lite(8), crossing(service, UDP_LITE, "out", of_udp_lite(8))),
              "esp": (ESP, whole, crossing(service, ESP, "out", whole))}
    for name, (protocol, body, opening) in makers.items():
        steps = [opening]
        for cut in (None, 8):
            left, was = body(*ends(OUTSIDE, "out")), body(*ends(inside, "out"))
            about = ipv4(POOL4, FAR4, protocol, left[:cut], ttl=9, df=1, total=20 + len(left))
            given = ipv4(ROUTER4, POOL4, 1, icmp4(3, 3, ZERO, about))
            if service == "nat44":
                back = ipv4(inside.host, FAR4, protocol, was[:cut], ttl=9, df=1, total=20 + len(was))
                sent = ipv4(ROUTER4, inside.host, 1, icmp4(3, 3, ZERO, back), ttl=63)
            else:
                back = ipv6(inside.host, FAR6, protocol, was[:cut], hops=9, length=len(was))
                sent = error6("64:ff9b::cb00:7101", inside.host, 1, 4, ZERO, back, hops=63)
            steps.append(packet(given, "forward", sent))
        add(f"error-about-{name}", "RFC 5508 REQ-4, RFC 5597", "an error from outside, and one that quotes 8 bytes",
            "to the host, about its own packet", steps)
        about = getattr(inside, "back")(protocol, body(*ends(inside, "back")), 9)
        outer = getattr(OUTSIDE, "back")(protocol, body(*ends(OUTSIDE, "back")), 9)
        if service == "nat44":
            given = ipv4(inside.host, FAR4, 1, icmp4(3, 3, ZERO, about), df=1)
            sent = ipv4(POOL4, FAR4, 1, icmp4(3, 3, ZERO, outer), df=1, ttl=63)
        else:
            given = error6(inside.host, FAR6, 1, 4, ZERO, about)
            outer = ipv4(FAR4, POOL4, protocol, body(*ends(OUTSIDE, "back")), ttl=9)
            sent = error4(POOL4, FAR4, 3, 3, ZERO, outer, ttl=63)
        add(f"error-from-inside-about-{name}", "RFC 5508 REQ-5", "an error of the host about what came in",
            "from the address that the remote has sent to",
            [opening, packet(given, "forward", sent, any_identification=True)])


def static():
    inside = INSIDE["nat64"]
    given = ipv4(FAR4, POOL4, SCTP, sctp(53, 80, INIT), df=1)
    answer = ipv6(HOST6, FAR6, SCTP, sctp(8080, 53, INIT_ACK))
    case("sctp-static", "RFC 6888 REQ-8", "an association to a server inside, and ESP to a gateway", "bound by the file",
         [packet(given, "forward", ipv6(FAR6, HOST6, SCTP, sctp(53, 8080, INIT), hops=63)),
          packet(answer, "forward", ipv4(POOL4, FAR4, SCTP, sctp(80, 53, INIT_ACK), ttl=63), any_identification=True),
          packet(ipv4(FAR4, POOL4, ESP, whole(), df=1), "forward", ipv6(FAR6, inside.host, ESP, whole(), hops=63))],
         config="transports-static", service="nat64")


def in_softwires():
    far, shared, pool, b4, aftr = "198.51.100.9", "192.0.2.10", "192.0.2.1", "2001:db8:1000:100::b4", "2001:db8:ffff::1"

    def around(source, destination, inner):
        return ipv6(source, destination, 4, inner)

    def sent(source, destination, sport, dport, payload, hops=64):
        return ipv4(source, destination, SCTP, sctp(sport, dport, payload), df=1, ttl=hops)

    case("sctp", "RFC 6333 section 8.3", "SCTP of a host behind a B4, and the answer", "bound like TCP",
         [packet(around(b4, aftr, sent(HOST4, far, 40001, 53, INIT)), "forward", sent(pool, far, PORT, 53, INIT, 63)),
          packet(sent(far, pool, 53, PORT, INIT_ACK), "forward",
                 around(aftr, b4, sent(far, HOST4, 53, 40001, INIT_ACK, 63)))], config="aftr", service="aftr")
    case("sctp", "RFC 7596 section 5.2", "SCTP of a host, and the answer", "bound to the port set",
         [packet(sent(HOST4, far, 40001, 53, INIT), "forward", around(b4, aftr, sent(shared, far, PORT, 53, INIT, 63))),
          packet(around(aftr, b4, sent(far, shared, 53, PORT, INIT_ACK)), "forward",
                 sent(far, HOST4, 53, 40001, INIT_ACK, 63))], config="lwb4", service="lwb4")


def add_all():
    in_either_service()
    static()
    in_softwires()
