"""Golden cases of PCP (RFC 6887): requests for ports, what comes in through them, and what they are told."""

import struct

from make import A4, A6, B4, B6, a6, case, ipv4, ipv6, packet, udp

SERVER4, SERVER6 = "192.0.0.9", "2001:1::1"
NONCE = b"twelve bytes"
UDP = 17


def in_ipv6(address):
    return a6(address if ":" in address else "::ffff:" + address)


def request(opcode, client, lifetime=0, body=b""):
    """RFC 6887 section 7.1."""
    return struct.pack("!BBHI", 2, opcode, 0, lifetime) + in_ipv6(client) + body


def response(opcode, lifetime, epoch, body=b"", code=0, client=None):
    """Section 7.2: of a request that was not parsed the last 96 bits of the client's address come back."""
    reserved = in_ipv6(client)[4:] if client else bytes(12)
    return struct.pack("!BBBBII", 2, 0x80 | opcode, 0, code, lifetime, epoch) + reserved + body


def mapping(internal, external, address):
    """Section 11.1."""
    return NONCE + struct.pack("!BxxxHH", UDP, internal, external) + in_ipv6(address)


def both(host, server, message, reply, at_ms, verdict="pcp-success"):
    """A request and its response."""
    def around(source, destination, ports, payload):
        datagram = udp(source, destination, *ports, payload)
        if ":" in source:
            return ipv6(source, destination, 17, datagram)
        return ipv4(source, destination, 17, datagram, df=1)
    asked = around(host, server, (40000, 5351), message)
    return packet(asked, verdict, around(server, host, (5351, 40000), reply), at_ms=at_ms, side="inside")


def knocks(host, remote, at_ms):
    """A datagram from outside to the port, as the host gets it."""
    given = ipv4(B4, A4, 17, udp(B4, A4, 53, 5000, b"knock"), df=1)
    inside = udp(remote, host, 53, 8080, b"knock")
    if ":" in host:
        return packet(given, "forward", ipv6(remote, host, 17, inside, hops=63), at_ms=at_ms)
    return packet(given, "forward", ipv4(remote, host, 17, inside, df=1, ttl=63), at_ms=at_ms)


def add_all():
    for service, host, other, server, remote in (("nat44", "10.0.0.2", "10.0.0.3", SERVER4, B4),
                                                 ("nat64", A6, A6 + "3", SERVER6, B6)):
        shut = ipv4(B4, A4, 17, udp(B4, A4, 53, 5000, b"knock"), df=1)
        asked = mapping(8080, 0, "::ffff:0:0")
        given = mapping(8080, 5000, A4)
        case("pcp", "RFC 6887 sections 11, 14.1, 15.1", "a port is asked for, renewed, and given back",
             "it is open meanwhile, and nobody else's; the epoch counts", [
                 both(host, server, request(1, host, 3600, asked), response(1, 3600, 0, given), 0),
                 knocks(host, remote, 1000),
                 both(host, server, request(0, host), response(0, 0, 2), 2000),
                 both(other, server, request(1, other, 60, asked), response(1, 30, 2, asked, code=8), 2500,
                      "pcp-no-resources"),
                 both(host, server, request(1, host, 60, given), response(1, 120, 3, given), 3000),
                 both(host, server, request(1, host, 0, given), response(1, 0, 4, given), 4000),
                 packet(shut, "drop no-binding", at_ms=5000),
             ], config="pcp", service=service)
        filtered = request(1, host, 60, asked + struct.pack("!BBH", 3, 0, 20) + struct.pack("!BBH", 0, 128, 0) + in_ipv6(B4))
        padded = filtered[24:]
        case("pcp-refused", "RFC 6887 sections 7.3, 13.3", "a port for one remote alone: FILTER, which must be understood",
             "it is not: nothing is opened, and the request comes back with the code",
             [both(host, server, filtered, response(1, 1800, 0, padded, code=5, client=host), 0, "pcp-unsupp-option"),
              packet(shut, "drop no-binding", at_ms=1000)], config="pcp", service=service)
