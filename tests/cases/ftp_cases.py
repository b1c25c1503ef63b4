"""Golden cases of the helper for FTP (RFC 6384): control connections, with the numbers that each end must see.

The port that the client announces has a static binding, so that it is known which one the server is told.
"""

import struct

from make import A4, A6, B4, B6, case, ipv4, ipv6, ones_complement, packed, packet, pseudo

HOST, AFTR, EDGE = "10.0.0.2", "2001:db8:ffff::1", "2001:db8:1000:100::b4"
CLIENT, CONTROL, TOLD = 40000, 21, 51000      # the client's port, the server's, and the one for the data outside
SYN, ACK = 2, 16
PORT, OUT_PORT = b"PORT 10,0,0,2,160,40\r\n", b"PORT 192,0,2,1,199,56\r\n"
EPRT4, OUT_EPRT4 = b"EPRT |1|10.0.0.2|41000|\r\n", b"EPRT |1|192.0.2.1|51000|\r\n"
EPRT6 = b"EPRT |2|2001:db8:aaaa::|41000|\r\n"
EPSV, PASV = b"EPSV\r\n", b"PASV\r\n"
ENTERED, EXTENDED = b"227 Entering Passive Mode (198,51,100,2,200,1).\r\n", b"229 Entering Extended Passive Mode (|||51201|)\r\n"
ALGS, NOOP, DONE, STATUS = b"ALGS STATUS64\r\n", b"NOOP\r\n", b"200 NOOP ok.\r\n", b"216 EPSV EPRT\r\n"


def segment(source, destination, ports, sequence, acknowledgement, flags, text=b""):
    header = struct.pack("!HHIIBBHHH", *ports, sequence % 2**32, acknowledgement % 2**32, 0x50, flags, 8192, 0, 0)
    whole = header + text
    checksum = 0xFFFF - ones_complement(pseudo(packed(source), packed(destination), 6, len(whole)) + whole)
    return whole[:16] + struct.pack("!H", checksum) + whole[18:]


class Talk:
    """A connection through one service. `said` and `heard` count the bytes of each side as it has sent them, and as the
    other one has got them."""

    FIRST = 0xFFFFFFF0, 7000

    def __init__(self, service):
        self.service, self.packets = service, []
        self.said, self.heard = list(self.FIRST), list(self.FIRST)

    def inside(self, source, destination, *rest, hops):
        body = segment(source, destination, *rest)
        if self.service == "nat64":
            return ipv6(source, destination, 6, body, hops=hops)
        inner = ipv4(source, destination, 6, body, df=1, ttl=hops)
        if self.service == "nat44":
            return inner
        ends = (EDGE, AFTR) if source == HOST else (AFTR, EDGE)
        return ipv6(*ends, 4, inner)

    def sends(self, flags, text=b"", becomes=None):
        """From inside."""
        becomes = text if becomes is None else becomes
        host, server = (A6, B6) if self.service == "nat64" else (HOST, B4)
        acknowledged = self.heard[1] if flags & ACK else 0, self.said[1] if flags & ACK else 0
        given = self.inside(host, server, (CLIENT, CONTROL), self.said[0], acknowledged[0], flags, text, hops=64)
        body = segment(A4, B4, (5000, CONTROL), self.heard[0], acknowledged[1], flags, becomes)
        df = 0 if self.service == "nat64" else 1
        self.packets.append(packet(given, "forward", ipv4(A4, B4, 6, body, df=df, ttl=63),
                                   any_identification=self.service == "nat64", side="inside"))
        self.count(0, flags, text, becomes)

    def answers(self, flags, text=b"", becomes=None):
        """From outside."""
        becomes = text if becomes is None else becomes
        host, server = (A6, B6) if self.service == "nat64" else (HOST, B4)
        body = segment(B4, A4, (CONTROL, 5000), self.said[1], self.heard[0], flags, text)
        out = self.inside(server, host, (CONTROL, CLIENT), self.heard[1], self.said[0], flags, becomes, hops=63)
        self.packets.append(packet(ipv4(B4, A4, 6, body, df=1), "forward", out, side="outside"))
        self.count(1, flags, text, becomes)

    def count(self, side, flags, text, becomes):
        syn = 1 if flags & SYN else 0
        self.said[side] += syn + len(text)
        self.heard[side] += syn + len(becomes)

    def opened(self):
        self.sends(SYN)
        self.answers(SYN | ACK)
        self.sends(ACK)
        self.answers(ACK, b"220 ready\r\n")
        return self

    def opens_data(self):
        """The server comes to the port that it was told."""
        host, server = (A6, B6) if self.service == "nat64" else (HOST, B4)
        body = segment(B4, A4, (20, TOLD), 1, 0, SYN)
        out = self.inside(server, host, (20, 41000), 1, 0, SYN, hops=63)
        self.packets.append(packet(ipv4(B4, A4, 6, body, df=1), "forward", out, side="outside"))


def add_all():
    for service in "nat44", "aftr":
        talk = Talk(service).opened()
        for command, becomes in (PORT, OUT_PORT), (EPRT4, OUT_EPRT4):
            talk.sends(ACK, command, becomes)
            talk.answers(ACK, b"200 ok\r\n")
            talk.sends(ACK, b"LIST\r\n")
            talk.opens_data()
            talk.answers(ACK, b"150 here\r\n")
        talk.sends(ACK, b"PORT 10,0,0,3,160,40\r\n")
        talk.answers(ACK, b"500 no\r\n")
        case("ftp", "RFC 959 section 4.1.2", "PORT and EPRT of a client in active mode",
             "the server is told the outside endpoint; later numbers differ; another host's address stays", talk.packets,
             config="ftp", service=service)
    talk = Talk("nat64").opened()
    talk.sends(ACK, EPSV, PASV)
    talk.answers(ACK, ENTERED, EXTENDED)
    talk.sends(ACK, b"RETR file\r\n")
    talk.answers(ACK, b"226 done\r\n")
    talk.sends(ACK, EPRT6, OUT_PORT)
    talk.answers(ACK, b"200 ok\r\n")
    talk.opens_data()
    talk.sends(ACK, ALGS, NOOP)
    talk.answers(ACK, DONE, STATUS)
    talk.sends(ACK, b"AUTH TLS\r\n")
    talk.answers(ACK, b"234 go ahead\r\n")
    talk.sends(ACK, EPSV)
    case("ftp", "RFC 6384 sections 4, 6, 7.2, 11", "EPSV, EPRT, a question to the gateway, and TLS",
         "each becomes what the server knows; numbers differ from then on; under TLS nothing is touched", talk.packets,
         config="ftp", service="nat64")
