#!/usr/bin/env python3
"""Writes the golden cases beside this file: python3 tests/cases/make.py

Every expected packet is put together here from the RFCs, field by field, with checksums in full. Nothing is taken from the
engine, and nothing here is used by it. Standard library only.
"""

import ipaddress
import pathlib
import shutil
import struct

HERE = pathlib.Path(__file__).parent

# ---------------------------------------------------------------------------------------------------------- packets


def a4(text):
    return ipaddress.IPv4Address(text).packed


def a6(text):
    return ipaddress.IPv6Address(text).packed


def ones_complement(data):
    """RFC 1071: the folded sum of 16-bit words."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def pseudo(source, destination, protocol, length):
    """The pseudo-header of either family, as bytes whose sum counts."""
    return source + destination + struct.pack("!IHH", length, 0, protocol)


def packed(text):
    return ipaddress.ip_address(text).packed


def family(text):
    return ipaddress.ip_address(text).version


def ipv4(source, destination, protocol, payload, *, tos=0, ident=0, df=0, mf=0, offset=0, ttl=64, options=b"",
         total=None):
    """`total` overrides the length field, for packets that were cut. `offset` in units of 8 bytes."""
    assert len(options) % 4 == 0
    ihl = 5 + len(options) // 4
    total = ihl * 4 + len(payload) if total is None else total
    word = df << 14 | mf << 13 | offset
    header = struct.pack("!BBHHHBBH4s4s", 0x40 | ihl, tos, total, ident, word, ttl, protocol, 0, a4(source),
                         a4(destination)) + options
    checksum = 0xFFFF - ones_complement(header)
    return header[:10] + struct.pack("!H", checksum) + header[12:] + payload


def ipv6(source, destination, next_header, payload, *, tc=0, flow=0, hops=64, length=None):
    length = len(payload) if length is None else length
    word = 6 << 28 | tc << 20 | flow
    return struct.pack("!IHBB16s16s", word, length, next_header, hops, a6(source), a6(destination)) + payload


def fragment(next_header, offset, more, ident):
    return struct.pack("!BBHI", next_header, 0, offset << 3 | more, ident)


def udp(source, destination, sport, dport, payload, *, checksum=None):
    length = 8 + len(payload)
    datagram = struct.pack("!HHHH", sport, dport, length, 0) + payload
    if checksum is None:
        checksum = 0xFFFF - ones_complement(pseudo(packed(source), packed(destination), 17, length) + datagram)
        checksum = checksum or 0xFFFF
    return datagram[:6] + struct.pack("!H", checksum) + payload


def tcp(source, destination, sport, dport, payload, *, flags=0x10, options=b"", checksum=None):
    segment = struct.pack("!HHIIBBHHH", sport, dport, 1, 2, (5 + len(options) // 4) << 4, flags, 8192, 0, 0)
    segment += options + payload
    if checksum is None:
        checksum = 0xFFFF - ones_complement(pseudo(packed(source), packed(destination), 6, len(segment)) + segment)
    return segment[:16] + struct.pack("!H", checksum) + segment[18:]


def crc32c(data):
    """RFC 9260 appendix A, bit by bit, in the order of bytes of the checksum's field."""
    register = 0xFFFFFFFF
    for octet in data:
        register ^= octet
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return struct.pack("<I", register ^ 0xFFFFFFFF)


def sctp(sport, dport, payload, *, tag=0x12345678):
    """RFC 9260 section 3.1: no pseudo-header, and a CRC over all of the packet."""
    header = struct.pack("!HHI", sport, dport, tag)
    return header + crc32c(header + bytes(4) + payload) + payload


def dccp(source, destination, sport, dport, payload, *, kind=2, covered=None):
    """RFC 4340 section 5.1, with a short sequence number, and section 9.1: all of it is covered, or the header and
    `covered` words of the payload."""
    coverage = 0 if covered is None else covered + 1
    message = struct.pack("!HHBBHI", sport, dport, 3, coverage, 0, kind << 25 | 1) + payload
    summed = pseudo(packed(source), packed(destination), 33, len(message))
    summed += message if covered is None else message[:12 + 4 * covered]
    return message[:6] + struct.pack("!H", 0xFFFF - ones_complement(summed)) + message[8:]


def udp_lite(source, destination, sport, dport, payload, *, coverage=8, checksum=None):
    """RFC 3828 section 3.1: the header is covered, and all of the pseudo-header."""
    message = struct.pack("!HHHH", sport, dport, coverage, 0) + payload
    if checksum is None:
        covered = pseudo(packed(source), packed(destination), 136, len(message)) + message[:coverage]
        checksum = (0xFFFF - ones_complement(covered)) or 0xFFFF
    return message[:6] + struct.pack("!H", checksum) + payload


def icmp4(kind, code, rest, body):
    message = struct.pack("!BBH4s", kind, code, 0, rest) + body
    return message[:2] + struct.pack("!H", 0xFFFF - ones_complement(message)) + message[4:]


def icmp6(source, destination, kind, code, rest, body):
    message = struct.pack("!BBH4s", kind, code, 0, rest) + body
    checksum = 0xFFFF - ones_complement(pseudo(a6(source), a6(destination), 58, len(message)) + message)
    return message[:2] + struct.pack("!H", checksum) + message[4:]


def echo_rest(ident, sequence):
    return struct.pack("!HH", ident, sequence)


def u32(number):
    return struct.pack("!I", number)


def data(length):
    return bytes((7 * n + 3) & 0xFF for n in range(length))


# ------------------------------------------------------------------------------------------------------------ cases

CASES = {}
# Services whose hosts inside have IPv4.
IPV4_INSIDE = {"clat", "map-t-ce", "map-e-ce", "b4", "lwb4"}


def packet(given, verdict, out=(), *, any_identification=False, at_ms=0, side=None):
    """`side`: where it counts as received, if its family and the service do not say."""
    if isinstance(out, bytes):
        out = [out]
    return {"in": given, "verdict": verdict, "out": list(out), "any_identification": any_identification,
            "at_ms": at_ms, "side": side}


def case(name, clause, what, why, packets, *, config="eam", service="siit"):
    """A case of one packet or several. What the counters must say follows from the verdicts."""
    if isinstance(packets, dict):
        packets = [packets]
    assert (service, name) not in CASES, name
    counters = {}

    def count(key, amount=1):
        counters[key] = counters.get(key, 0) + amount

    for step in packets:
        is_v4 = step["in"][:1] and step["in"][0] >> 4 == 4
        kind, _, reason = step["verdict"].partition(" ")
        # What is not the service's counts by family; a CLAT has IPv4 inside.
        early = reason in ("malformed", "not-ip") or reason == "bad-checksum" and is_v4
        clat = service in IPV4_INSIDE and kind != "to-host" and not early
        side = "inside" if is_v4 == clat else "outside"
        if service == "nat44":
            side = "inside" if step["in"][12] == 10 else "outside"
        side = step["side"] or side
        count(f"received-{side}")
        count(f"received-bytes-{side}", len(step["in"]))
        if kind == "forward":
            count(f"forwarded-{side}")
        elif kind == "to-host":
            count("to-host")
        elif kind == "reply":
            count("replied")
            count(f"drop-{reason}")
        elif kind == "echo-reply" or kind.startswith("pcp-"):
            count("replied")
        elif kind == "drop":
            count(f"drop-{reason}")
        elif kind == "hold":
            count("held")
        else:
            raise ValueError(kind)
    CASES[service, name] = (clause, what, why, config, packets, counters)


PROTOCOLS = {1: "ICMP", 4: "IPv4", 6: "TCP", 17: "UDP", 33: "DCCP", 41: "IPv6", 47: "GRE", 50: "ESP", 58: "ICMPv6",
             132: "SCTP", 136: "UDP-Lite"}
ICMP = {(4, 0): "echo reply", (4, 8): "echo request", (6, 128): "echo request", (6, 129): "echo reply"}


def described(frame):
    """What a packet is, in a line, for whoever reads a case; the bytes decide."""
    version = frame[0] >> 4 if frame else 0
    if version == 4 and len(frame) >= 20:
        ends = [str(ipaddress.IPv4Address(frame[at:at + 4])) for at in (12, 16)]
        word, protocol, header = struct.unpack("!H", frame[6:8])[0], frame[9], 4 * (frame[0] & 15)
        marks = (" DF" if word & 0x4000 else "") + (f" at {8 * (word & 0x1FFF)}" if word & 0x1FFF else "")
        marks += (" more" if word & 0x2000 else "") + f" TTL {frame[8]}"
        first = not word & 0x1FFF
    elif version == 6 and len(frame) >= 40:
        ends = [str(ipaddress.IPv6Address(frame[at:at + 16])) for at in (8, 24)]
        protocol, header, marks, first = frame[6], 40, f" hop limit {frame[7]}", True
        while protocol in (0, 43, 44, 60) and len(frame) >= header + 8:
            names = {0: "hop-by-hop", 43: "routing", 44: "fragment", 60: "destination options"}
            marks += f", {names[protocol]}"
            if protocol == 44:
                word = struct.unpack("!H", frame[header + 2:header + 4])[0]
                marks += f" at {word & 0xFFF8}" + (" more" if word & 1 else "")
                first = first and not word & 0xFFF8
            length = 8 if protocol == 44 else 8 * (frame[header + 1] + 1)
            protocol, header = frame[header], header + length
    else:
        return f"{len(frame)} bytes, no IP packet"
    rest = frame[header:]
    words = PROTOCOLS.get(protocol, f"protocol {protocol}")
    if first and protocol in (6, 17, 33, 132, 136) and len(rest) >= 4:
        ends = [f"{end} port {port}" for end, port in zip(ends, struct.unpack("!HH", rest[:4]))]
        if protocol == 6 and len(rest) >= 14:
            names = [name for bit, name in ((2, "SYN"), (16, "ACK"), (1, "FIN"), (4, "RST")) if rest[13] & bit]
            words += " " + "+".join(names)
    elif first and protocol in (1, 58) and len(rest) >= 8:
        kind = ICMP.get((version, rest[0]))
        words += f" {kind} {struct.unpack('!H', rest[4:6])[0]}" if kind else f" {rest[0]}/{rest[1]}"
        is_error = rest[0] in (3, 4, 5, 11, 12) if protocol == 1 else rest[0] < 128
        if is_error and len(rest) > 28:
            words += f" about [{described(rest[8:])}]"
    elif first and protocol in (4, 41) and rest:
        words = f"around [{described(rest)}]"
    return f"IPv{version} {ends[0]} to {ends[1]}: {words},{marks}, {len(frame)} bytes"


def quoted(text):
    assert '"' not in text and "\\" not in text, text
    return f'"{text}"'


def write():
    for (service, name), (clause, what, why, config, packets, counters) in CASES.items():
        lines = ["# Made by tests/cases/make.py.", f"what = {quoted(what)}", f"why = {quoted(why)}",
                 f"clause = {quoted(clause)}", f"config = {quoted(config + '.toml')}", ""]
        for step in packets:
            lines.append("[[packet]]")
            if step["at_ms"]:
                lines.append(f"at_ms = {step['at_ms']}")
            lines.append(f"# in: {described(step['in'])}")
            lines += [f"# out: {described(one)}" for one in step["out"]]
            lines += [f"in = {quoted(step['in'].hex())}", f"verdict = {quoted(step['verdict'])}"]
            if step["out"]:
                lines.append("out = [" + ", ".join(quoted(one.hex()) for one in step["out"]) + "]")
            if step["any_identification"]:
                lines.append("any_identification = true")
            lines.append("")
        lines.append("[counters]")
        lines += [f"{key} = {value}" for key, value in sorted(counters.items())]
        folder = HERE / service / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "case.toml").write_text("\n".join(lines) + "\n")


def clean():
    for service in HERE.iterdir():
        if service.is_dir():
            for folder in service.iterdir():
                if folder.is_dir():
                    shutil.rmtree(folder)


# Hosts. A is inside, with an explicit mapping; B is in the IPv4 Internet; R4 and R6 are routers.
A4, A6 = "192.0.2.1", "2001:db8:aaaa::"
B4, B6 = "198.51.100.2", "64:ff9b::c633:6402"
R4, R4_6 = "203.0.113.7", "64:ff9b::cb00:7107"
R6, R6_4 = "2001:db8:bbbb::b", "192.0.2.2"      # a router with an explicit mapping
X6, POOL4 = "2001:db8:1234::1", "198.51.100.1"  # a router without, and where its errors come from
GW4, GW6 = "192.0.2.254", "2001:db8:ffff::1"


def udp4(source, destination, payload=b"payload!", **fields):
    return ipv4(source, destination, 17, udp(source, destination, 40000, 53, payload), **fields)


def udp6(source, destination, payload=b"payload!", **fields):
    return ipv6(source, destination, 17, udp(source, destination, 40000, 53, payload), **fields)


def to6(payload=b"payload!", **fields):
    """A datagram from B to A as it leaves on the IPv6 side."""
    return udp6(B6, A6, payload, hops=63, **fields)


def to4(payload=b"payload!", *, df=0, **fields):
    """A datagram from A to B as it leaves on the IPv4 side."""
    return udp4(A4, B4, payload, ttl=63, df=df, **fields)


def error4(source, destination, kind, code, rest, body, **fields):
    return ipv4(source, destination, 1, icmp4(kind, code, rest, body), **fields)


def error6(source, destination, kind, code, rest, body, **fields):
    return ipv6(source, destination, 58, icmp6(source, destination, kind, code, rest, body), **fields)


def reply4(given, kind, code, rest, destination):
    """An ICMPv4 error of the gateway about `given` (RFC 1812 section 4.3: 576 bytes, precedence 6)."""
    return error4(GW4, destination, kind, code, rest, given[:548], tos=0xC0)


def reply6(given, kind, code, rest, destination):
    """An ICMPv6 error of the gateway about `given` (RFC 4443 section 2.4: 1280 bytes)."""
    return error6(GW6, destination, kind, code, rest, given[:1232])


def obstacles_in_fragments(add, source, destination, protocol, whole, teller):
    """What must not pass passes in fragments neither: their extension headers are gone when these are put together.
    `whole` is what `protocol` stands for, `teller` who says so. `add` takes name, clause, what, why and packets."""
    route, options = bytes([44, 0, 0, 1, 0, 0, 0, 0]), bytes([protocol, 0, 1, 4, 0, 0, 0, 0])
    given = ipv6(source, destination, 43, route + fragment(protocol, 0, 1, 5) + whole[:24])
    add("segments-left-in-fragments", "RFC 7915 section 5.1, RFC 8200 section 4.4",
        "two fragments with a routing header, segments left", "as in a whole packet: parameter problem at byte 43",
        [packet(given, "reply routing-header", error6(teller, source, 4, 0, u32(43), given)),
         packet(ipv6(source, destination, 43, route + fragment(protocol, 3, 0, 5) + whole[24:]), "drop routing-header")])
    given = ipv6(source, destination, 44, fragment(60, 0, 1, 5) + options + whole[:24])
    add("header-after-fragment-in-fragments", "RFC 7915 section 5.1.1",
        "two fragments with destination options behind the Fragment header", "as in a whole packet: 1/1",
        [packet(given, "reply header-after-fragment", error6(teller, source, 1, 1, ZERO, given)),
         packet(ipv6(source, destination, 44, fragment(60, 4, 0, 5) + whole[24:]), "drop header-after-fragment")])


# The packet that errors from the IPv4 side are about: A to B, as it left the translator; and what A had sent.
LOST4 = udp4(A4, B4, b"lost data", ttl=60, df=1, ident=0x4321)
LOST6 = udp6(A6, B6, b"lost data", hops=60)
# The same the other way: B to A.
GONE6 = udp6(B6, A6, b"lost data", hops=60)
GONE4 = udp4(B4, A4, b"lost data", ttl=60)


def mapped4to6(name, kind, code, rest, new_kind, new_code, new_rest, what, *, about=LOST4, about6=LOST6, config="eam",
               why="every row of the tables of types and codes"):
    case(name, "RFC 7915 section 4.2", what, why,
         packet(error4(R4, A4, kind, code, rest, about), "forward",
                error6(R4_6, A6, new_kind, new_code, new_rest, about6, hops=63)), config=config)


def unmapped4to6(name, kind, code, rest, what, body=LOST4):
    case(name, "RFC 7915 section 4.2", what, "messages without counterpart are dropped without an answer",
         packet(error4(R4, A4, kind, code, rest, body), "drop icmp-untranslatable"))


def mapped6to4(name, kind, code, rest, new_kind, new_code, new_rest, what, *, about=GONE6, about4=GONE4, config="eam",
               why="every row of the tables of types and codes"):
    case(name, "RFC 7915 section 5.2", what, why,
         packet(error6(R6, B6, kind, code, rest, about), "forward",
                error4(R6_4, B4, new_kind, new_code, new_rest, about4, ttl=63), any_identification=True),
         config=config)


def unmapped6to4(name, kind, code, rest, what, body=GONE6):
    case(name, "RFC 7915 section 5.2", what, "messages without counterpart are dropped without an answer",
         packet(error6(R6, B6, kind, code, rest, body), "drop icmp-untranslatable"))


ZERO = u32(0)


def icmp_4to6():
    for code, (new_kind, new_code, new_rest, name) in {
            0: (1, 0, 0, "net unreachable"), 1: (1, 0, 0, "host unreachable"),
            2: (4, 1, 6, "protocol unreachable becomes a parameter problem of the next header field"),
            3: (1, 4, 0, "port unreachable"), 5: (1, 0, 0, "source route failed"),
            6: (1, 0, 0, "destination network unknown"), 7: (1, 0, 0, "destination host unknown"),
            8: (1, 0, 0, "source host isolated"), 9: (1, 1, 0, "network administratively prohibited"),
            10: (1, 1, 0, "host administratively prohibited"), 11: (1, 0, 0, "network unreachable for TOS"),
            12: (1, 0, 0, "host unreachable for TOS"), 13: (1, 1, 0, "communication administratively prohibited"),
            15: (1, 1, 0, "precedence cutoff in effect")}.items():
        mapped4to6(f"icmp4-3-{code}", 3, code, ZERO, new_kind, new_code, u32(new_rest), name)
    unmapped4to6("icmp4-3-14", 3, 14, ZERO, "host precedence violation has no counterpart")
    unmapped4to6("icmp4-3-16", 3, 16, ZERO, "an unknown code of destination unreachable")
    mapped4to6("icmp4-11-0", 11, 0, ZERO, 3, 0, ZERO, "time to live exceeded in transit")
    mapped4to6("icmp4-11-1", 11, 1, ZERO, 3, 1, ZERO, "reassembly time exceeded")
    pointers = {0: 0, 1: 1, 2: 4, 3: 4, 8: 7, 9: 6, 12: 8, 13: 8, 14: 8, 15: 8, 16: 24, 17: 24, 18: 24, 19: 24}
    for pointer in range(22):
        rest = bytes([pointer, 0, 0, 0])
        if pointer in pointers:
            mapped4to6(f"icmp4-12-0-pointer-{pointer:02}", 12, 0, rest, 4, 0, u32(pointers[pointer]),
                       f"parameter problem with pointer {pointer}")
        else:
            unmapped4to6(f"icmp4-12-0-pointer-{pointer:02}", 12, 0, rest,
                         f"parameter problem with pointer {pointer}, a field that IPv6 has not")
    mapped4to6("icmp4-12-2-pointer-08", 12, 2, bytes([8, 0, 0, 0]), 4, 0, u32(7), "bad length counts as code 0")
    unmapped4to6("icmp4-12-1", 12, 1, ZERO, "a missing option has no counterpart")
    unmapped4to6("icmp4-12-3", 12, 3, ZERO, "an unknown code of parameter problem")
    for kind, name in {4: "source quench", 5: "redirect", 6: "alternative host address", 9: "router advertisement",
                       10: "router solicitation", 13: "timestamp", 14: "timestamp reply", 15: "information request",
                       16: "information reply", 17: "address mask request", 18: "address mask reply",
                       40: "an unknown type"}.items():
        unmapped4to6(f"icmp4-{kind}", kind, 0, ZERO, f"{name} is single-hop or obsolete")


def icmp_6to4():
    for code, (new_kind, new_code, name) in {
            0: (3, 1, "no route to destination"), 1: (3, 10, "administratively prohibited"),
            2: (3, 1, "beyond scope of source address"), 3: (3, 1, "address unreachable"),
            4: (3, 3, "port unreachable")}.items():
        mapped6to4(f"icmp6-1-{code}", 1, code, ZERO, new_kind, new_code, ZERO, name)
    for code in (5, 6, 7):
        unmapped6to4(f"icmp6-1-{code}", 1, code, ZERO, "a code of destination unreachable that RFC 7915 does not list")
    mapped6to4("icmp6-2-0-mtu-1400", 2, 0, u32(1400), 3, 4, u32(1380), "packet too big becomes fragmentation needed")
    mapped6to4("icmp6-3-0", 3, 0, ZERO, 11, 0, ZERO, "hop limit exceeded in transit")
    mapped6to4("icmp6-3-1", 3, 1, ZERO, 11, 1, ZERO, "fragment reassembly time exceeded")
    pointers = {0: 0, 1: 1, 4: 2, 5: 2, 6: 9, 7: 8, 8: 12, 15: 12, 23: 12, 24: 16, 31: 16, 39: 16}
    for pointer in (0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 23, 24, 31, 39, 40, 41, 256, 264):
        if pointer in pointers:
            mapped6to4(f"icmp6-4-0-pointer-{pointer:03}", 4, 0, u32(pointer), 12, 0,
                       bytes([pointers[pointer], 0, 0, 0]), f"erroneous header field with pointer {pointer}")
        else:
            unmapped6to4(f"icmp6-4-0-pointer-{pointer:03}", 4, 0, u32(pointer),
                         f"erroneous header field with pointer {pointer}, a field that IPv4 has not")
    mapped6to4("icmp6-4-1", 4, 1, u32(6), 3, 2, ZERO, "unrecognized next header becomes protocol unreachable")
    unmapped6to4("icmp6-4-2", 4, 2, u32(40), "an unrecognized option has no counterpart")
    unmapped6to4("icmp6-4-3", 4, 3, u32(40), "an unknown code of parameter problem")
    for kind, name in {130: "multicast listener query", 131: "multicast listener report",
                       132: "multicast listener done", 133: "router solicitation", 134: "router advertisement",
                       135: "neighbor solicitation", 136: "neighbor advertisement", 137: "redirect",
                       138: "router renumbering", 200: "private experimentation", 100: "an unknown error"}.items():
        unmapped6to4(f"icmp6-{kind}", kind, 0, ZERO, f"{name} is single-hop or unknown")


def echoes():
    rest, body = echo_rest(0x1234, 7), data(32)
    for name, kind4, kind6 in (("request", 8, 128), ("reply", 0, 129)):
        case(f"echo-{name}-4to6", "RFC 7915 sections 4.2, 4.5", f"an echo {name} to an inside host",
             "T37: identifier and sequence stay, the checksum gains the pseudo-header",
             packet(error4(B4, A4, kind4, 0, rest, body), "forward", error6(B6, A6, kind6, 0, rest, body, hops=63)))
        case(f"echo-{name}-6to4", "RFC 7915 sections 5.2, 5.5", f"an echo {name} from an inside host",
             "T37: identifier and sequence stay, the checksum loses the pseudo-header",
             packet(error6(A6, B6, kind6, 0, rest, body), "forward",
                    error4(A4, B4, kind4, 0, rest, body, ttl=63), any_identification=True))
    odd = data(33)
    message = icmp6(A6, B6, 129, 0, ZERO, bytes(12))
    case("echo-reply-of-zeros-6to4", "RFC 7915 section 5.5, RFC 1071", "an echo reply with nothing but zeros",
         "the sum of nothing but zeros is zero, and its checksum 0xffff; a difference alone would leave 0",
         packet(ipv6(A6, B6, 58, message), "forward", ipv4(A4, B4, 1, icmp4(0, 0, ZERO, bytes(12)), ttl=63),
                any_identification=True))
    case("echo-odd-length", "RFC 7915 section 4.5", "an echo request of odd length",
         "the last byte of the message is the high half of a word",
         packet(error4(B4, A4, 8, 0, rest, odd), "forward", error6(B6, A6, 128, 0, rest, odd, hops=63)))
    good = error4(B4, A4, 8, 0, rest, body)
    wrong = good[:22] + struct.pack("!H", 0xFFFF & (struct.unpack("!H", good[22:24])[0] + 5)) + good[24:]
    right6 = error6(B6, A6, 128, 0, rest, body, hops=63)
    # The error of a sum stays: both are five too high, in one's complement.
    field = struct.unpack("!H", right6[42:44])[0] + 5
    field = (field & 0xFFFF) + (field >> 16)
    case("t24-echo-with-wrong-checksum", "RFC 7915 section 4.5, RFC 1624", "an echo request with a wrong checksum",
         "T24: updated by difference, so it stays wrong and the receiver sees it",
         packet(wrong, "forward", right6[:42] + struct.pack("!H", field) + right6[44:]))


def fragment_header_and_df():
    case("t01-whole-without-df", "RFC 7915 section 4.1", "a whole packet without DF that fits",
         "T1: no Fragment header",
         packet(udp4(B4, A4, df=0, ident=0x77), "forward", to6()))
    whole = udp(B4, A4, 40000, 53, data(24))
    whole6 = udp(B6, A6, 40000, 53, data(24))
    for df in (0, 1):
        case(f"t02-fragments-with-df-{df}", "RFC 7915 section 4.1", "both fragments of a datagram",
             "T2, T93: DF has no influence, the identification gains 16 zero bits, the first checksum is adjusted",
             [packet(ipv4(B4, A4, 17, whole[:16], df=df, mf=1, ident=0x8123), "forward",
                     ipv6(B6, A6, 44, fragment(17, 0, 1, 0x8123) + whole6[:16], hops=63)),
              packet(ipv4(B4, A4, 17, whole[16:], df=df, offset=2, ident=0x8123), "forward",
                     ipv6(B6, A6, 44, fragment(17, 2, 0, 0x8123) + whole6[16:], hops=63))])
    segment, segment6 = tcp(B4, A4, 80, 1000, data(1221)), tcp(B6, A6, 80, 1000, data(1221))
    assert len(segment) == 1241
    case("t03-1261-bytes-without-df", "RFC 7915 section 4", "one byte more than an IPv6 packet of 1280 may carry",
         "T3: two fragments of 1280 and 57 bytes with one identification, the checksum of the whole in the first",
         packet(ipv4(B4, A4, 6, segment, ident=0x1234), "forward",
                [ipv6(B6, A6, 44, fragment(6, 0, 1, 0x1234) + segment6[:1232], hops=63),
                 ipv6(B6, A6, 44, fragment(6, 154, 0, 0x1234) + segment6[1232:], hops=63)]))
    given = ipv4(B4, A4, 6, segment, df=1, ident=0x1234)
    case("t04-1261-bytes-with-df", "RFC 7915 section 4", "the same with DF, and an IPv6 link of 1280",
         "T4: fragmentation needed with MTU 1260, 576 bytes in all",
         packet(given, "reply packet-too-big", reply4(given, 3, 4, u32(1260), B4), any_identification=True),
         config="ipv6-1280")
    case("t03-1260-bytes-without-df", "RFC 7915 section 4", "the largest packet that fits 1280 bytes",
         "boundary of T3: no Fragment header",
         packet(ipv4(B4, A4, 6, tcp(B4, A4, 80, 1000, data(1220))), "forward",
                ipv6(B6, A6, 6, tcp(B6, A6, 80, 1000, data(1220)), hops=63)))
    piece = data(1248)
    case("t05-fragment-of-1268-bytes", "RFC 7915 section 4.1", "a fragment that must be fragmented again",
         "T5: both pieces have more to come, offsets add up",
         packet(ipv4(B4, A4, 253, piece, mf=1, offset=100, ident=9), "forward",
                [ipv6(B6, A6, 44, fragment(253, 100, 1, 9) + piece[:1232], hops=63),
                 ipv6(B6, A6, 44, fragment(253, 254, 1, 9) + piece[1232:], hops=63)]))
    payload = data(1480)
    case("t06-limit-1402", "RFC 7915 section 4, RFC 8200 section 4.5", "lowest-ipv6-mtu is not a multiple of eight",
         "T6: the payload of a fragment is rounded down to 1352",
         packet(ipv4(B4, A4, 253, payload, ident=9), "forward",
                [ipv6(B6, A6, 44, fragment(253, 0, 1, 9) + payload[:1352], hops=63),
                 ipv6(B6, A6, 44, fragment(253, 169, 0, 9) + payload[1352:], hops=63)]), config="lowest-1402")
    case("t07-limit-spares-df", "RFC 7915 section 4", "a packet with DF of 1480 bytes",
         "T7: lowest-ipv6-mtu is for packets without DF",
         packet(ipv4(B4, A4, 253, data(1460), df=1), "forward", ipv6(B6, A6, 253, data(1460), hops=63)))
    for size, df in ((1240, 0), (1241, 1)):
        case(f"t08-ipv6-{size + 40}-bytes", "RFC 7915 section 5.1", f"an IPv6 packet of {size + 40} bytes",
             "T8: DF up to a total length of 1260 is clear, above it is set",
             packet(ipv6(A6, B6, 253, data(size)), "forward",
                    ipv4(A4, B4, 253, data(size), df=df, ttl=63), any_identification=True))
    case("t08-fragment-header-clears-df", "RFC 7915 section 5.1.1", "a large piece with a Fragment header",
         "T8: with a Fragment header DF is never set",
         packet(ipv6(A6, B6, 44, fragment(253, 0, 1, 0x12345678) + data(1400)), "forward",
                ipv4(A4, B4, 253, data(1400), mf=1, ident=0x5678, ttl=63)))
    given = ipv6(A6, B6, 253, data(1381))
    case("t09-ipv6-1421-bytes", "RFC 7915 section 5.1", "one byte too much for an IPv4 link of 1400",
         "T9: packet too big with MTU 1420, 1280 bytes in all",
         packet(given, "reply packet-too-big", reply6(given, 2, 0, u32(1420), A6)), config="ipv4-1400")
    case("t09-ipv6-1420-bytes", "RFC 7915 section 5.1", "the largest packet for an IPv4 link of 1400", "boundary of T9",
         packet(ipv6(A6, B6, 253, data(1380)), "forward", ipv4(A4, B4, 253, data(1380), df=1, ttl=63),
                any_identification=True), config="ipv4-1400")
    given = ipv6(A6, B6, 253, data(1460))
    case("t10-ipv4-link-of-1000", "RFC 7915 sections 1.4, 5.1; RFC 8021", "a large packet to an IPv4 link of 1000",
         "T10: packet too big with 1280 and never less",
         packet(given, "reply packet-too-big", reply6(given, 2, 0, u32(1280), A6)), config="ipv4-1000")
    payload = data(1240)
    case("t10-ipv4-link-of-1000-fragments", "RFC 7915 sections 1.4, 5.1.1", "a packet of 1280 bytes to such a link",
         "T10: it is fragmented in IPv4",
         packet(ipv6(A6, B6, 44, fragment(253, 0, 0, 0x55) + payload[:1232]), "forward",
                [ipv4(A4, B4, 253, payload[:976], mf=1, ident=0x55, ttl=63),
                 ipv4(A4, B4, 253, payload[976:1232], offset=122, ident=0x55, ttl=63)]), config="ipv4-1000")
    case("t11-atomic-fragment", "RFC 7915 section 5.1.1, RFC 6946, RFC 8021", "an atomic fragment",
         "T11: a plain packet, DF clear, the low 16 bits of the identification",
         packet(ipv6(A6, B6, 44, fragment(17, 0, 0, 0xABCD1234) + udp(A6, B6, 40000, 53, b"payload!")), "forward",
                to4(ident=0x1234)))
    error = error6(R6, B6, 1, 3, ZERO, GONE6)
    case("atomic-fragment-with-an-error", "RFC 7915 section 5.1.1", "an ICMPv6 error in an atomic fragment",
         "the low 16 bits of the identification, as of any packet",
         packet(ipv6(R6, B6, 44, fragment(58, 0, 0, 0xABCD1234) + error[40:]), "forward",
                error4(R6_4, B4, 3, 1, ZERO, GONE4, ident=0x1234, ttl=63)))
    case("t12-identification-with-high-bit", "RFC 7915 section 5.1.1", "a piece with identification 0xffff8001",
         "T12: no signed arithmetic",
         packet(ipv6(A6, B6, 44, fragment(253, 3, 0, 0xFFFF8001) + data(16)), "forward",
                ipv4(A4, B4, 253, data(16), offset=3, ident=0x8001, ttl=63)))
    case("t13-fragments-in-reverse-order", "RFC 7915 section 4.1", "the second fragment comes first",
         "T13: a stateless translator takes each as it comes",
         [packet(ipv4(B4, A4, 17, whole[16:], offset=2, ident=1), "forward",
                 ipv6(B6, A6, 44, fragment(17, 2, 0, 1) + whole6[16:], hops=63)),
          packet(ipv4(B4, A4, 17, whole[:16], mf=1, ident=1), "forward",
                 ipv6(B6, A6, 44, fragment(17, 0, 1, 1) + whole6[:16], hops=63))])
    source, changed = udp(A6, B6, 40000, 53, data(24)), udp(A4, B4, 40000, 53, data(24))
    case("fragments-6to4", "RFC 7915 section 5.1.1", "both fragments of an IPv6 datagram",
         "offset and M are copied, the identification is cut to 16 bits",
         [packet(ipv6(A6, B6, 44, fragment(17, 0, 1, 0x99998888) + source[:16]), "forward",
                 ipv4(A4, B4, 17, changed[:16], mf=1, ident=0x8888, ttl=63)),
          packet(ipv6(A6, B6, 44, fragment(17, 2, 0, 0x99998888) + source[16:]), "forward",
                 ipv4(A4, B4, 17, changed[16:], offset=2, ident=0x8888, ttl=63))])
    message = icmp4(8, 0, echo_rest(1, 1), data(24))
    case("fragmented-icmp-4to6", "RFC 7915 section 1.2", "the first fragment of an echo request",
         "A9: the checksum of ICMPv6 covers the length of the whole, which a fragment does not tell",
         packet(ipv4(B4, A4, 1, message[:16], mf=1, ident=1), "drop fragment-untranslatable"))
    message = icmp6(A6, B6, 128, 0, echo_rest(1, 1), data(24))
    case("fragmented-icmp-6to4", "RFC 7915 section 1.2", "the first fragment of an ICMPv6 echo request",
         "A9: as in the other direction",
         packet(ipv6(A6, B6, 44, fragment(58, 0, 1, 7) + message[:16]), "drop fragment-untranslatable"))
    case("tiny-fragment-of-tcp", "RFC 3128", "a first fragment with eight bytes of TCP",
         "it would carry the flags past a filter in the second",
         packet(ipv4(B4, A4, 6, data(8), mf=1, ident=1), "drop fragment-invalid"))


def extension_headers_and_options():
    hop, dest, route = bytes([43, 0, 1, 4, 0, 0, 0, 0]), bytes([17, 1] + [0] * 14), bytes([60, 0, 0, 0, 0, 0, 0, 0])
    datagram = udp(A6, B6, 40000, 53, b"payload!")
    case("t15-headers-are-skipped", "RFC 7915 section 5.1",
         "hop-by-hop options, a used-up routing header, destination options",
         "T15: skipped without notice, the total length shrinks",
         packet(ipv6(A6, B6, 0, hop + route + dest + datagram), "forward", to4(), any_identification=True))
    for number, name in ((0, "hop-by-hop options"), (43, "a routing header"), (60, "destination options"),
                         (51, "an authentication header")):
        after = bytes([17, 0, 0, 0, 0, 0, 0, 0])
        given = ipv6(A6, B6, 44, fragment(number, 0, 1, 5) + after + datagram)
        case(f"t16-{number}-behind-fragment-header", "RFC 7915 section 5.1.1", f"{name} behind a Fragment header",
             "T16: dropped, with the default error 1/1",
             packet(given, "reply header-after-fragment", reply6(given, 1, 1, ZERO, A6)))
    for number in (0, 43, 44, 60):
        about = ipv4(A4, B4, number, data(16), ttl=60, df=1)
        case(f"error-about-protocol-{number}", "RFC 7915 sections 4.1, 4.3",
             f"an ICMPv4 error about a packet of protocol {number}",
             "in IPv6 that number is an extension header; no packet with it was sent by the translator",
             packet(error4(R4, A4, 3, 1, ZERO, about), "drop icmp-error-unusable"))
    # An echo that the translator has cut: an error about the first piece. Its checksum is that of the whole message,
    # of which the piece does not tell the length: the pseudo-header that goes has that of the piece.
    message, ident = icmp6(B6, A6, 128, 0, echo_rest(0x1234, 7), data(1992)), 0x4321
    piece = message[:1232]
    total = 0xFFFF - struct.unpack("!H", message[2:4])[0]
    total += 0xFFFF - ones_complement(pseudo(a6(B6), a6(A6), 58, len(piece))) + 0x0800 + 0xFFFF - 0x8000
    field = 0xFFFF - ones_complement(u32(total))
    about6 = ipv6(B6, A6, 44, fragment(58, 0, 1, ident) + piece, hops=60)
    about4 = ipv4(B4, A4, 1, bytes([8, 0]) + struct.pack("!H", field) + piece[4:], mf=1, ident=ident, ttl=60)
    case("error-about-a-cut-echo-6to4", "RFC 7915 sections 4, 5.3",
         "packet too big about the first fragment of an echo request of 2000 bytes",
         "the translator has cut it itself: its sender has to hear of it",
         packet(error6(R6, B6, 3, 0, ZERO, about6[:1232]), "forward",
                error4(R6_4, B4, 11, 0, ZERO, about4[:548], ttl=63), any_identification=True))
    message = icmp4(8, 0, echo_rest(0x1234, 7), data(1192))
    piece = message[:976]
    total = 0xFFFF - struct.unpack("!H", message[2:4])[0]
    total += ones_complement(pseudo(a6(A6), a6(B6), 58, len(piece))) + 0x8000 + 0xFFFF - 0x0800
    field = 0xFFFF - ones_complement(u32(total))
    about4 = ipv4(A4, B4, 1, piece, mf=1, ident=ident, ttl=60)[:548]
    piece = (bytes([128, 0]) + struct.pack("!H", field) + piece[4:])
    about6 = ipv6(A6, B6, 44, fragment(58, 0, 1, ident) + piece, hops=60)[:548 + 28]
    case("error-about-a-cut-echo-4to6", "RFC 7915 sections 4.3, 5.1",
         "time exceeded about the first fragment of an echo request of 1220 bytes, for an IPv4 link of 1000",
         "the other direction",
         packet(error4(R4, A4, 11, 0, ZERO, about4), "forward", error6(R4_6, A6, 3, 0, ZERO, about6, hops=63)))
    case("t17-no-next-header", "RFC 7915 section 5.1", "next header 59", "T17: an IPv4 packet of 20 bytes",
         packet(ipv6(A6, B6, 59, b""), "forward", ipv4(A4, B4, 59, b"", ttl=63), any_identification=True))
    route = bytes([17, 0, 0, 1, 0, 0, 0, 0])
    given = ipv6(A6, B6, 43, route + datagram)
    case("t18-segments-left", "RFC 7915 section 5.1", "a routing header with segments left",
         "T18: parameter problem that points to the field, byte 43",
         packet(given, "reply routing-header", reply6(given, 4, 0, u32(43), A6)))
    given = ipv6(A6, B6, 0, bytes([43, 0, 1, 4, 0, 0, 0, 0]) + route + datagram)
    case("t18-segments-left-behind-another", "RFC 7915 section 5.1", "the same behind hop-by-hop options",
         "T18: the pointer moves to 51",
         packet(given, "reply routing-header", reply6(given, 4, 0, u32(51), A6)))
    case("esp-behind-fragment-header", "RFC 7915 section 5.1.1", "ESP in a first fragment",
         "ESP is the one header that may stand there",
         packet(ipv6(A6, B6, 44, fragment(50, 0, 1, 5) + data(16)), "forward",
                ipv4(A4, B4, 50, data(16), mf=1, ident=5, ttl=63)))
    loose = bytes([131, 7, 4, 198, 51, 100, 9, 0])
    given = udp4(B4, A4, options=loose)
    case("t19-source-route", "RFC 7915 section 4.1", "a loose source route that is not used up",
         "T19: source route failed",
         packet(given, "reply source-route", reply4(given, 3, 5, ZERO, B4), any_identification=True))
    given = udp4(B4, A4, options=bytes([1, 1, 1]) + bytes([137, 7, 7, 198, 51, 100, 9, 0, 0]))
    case("t19-source-route-behind-others", "RFC 7915 section 4.1", "a strict source route at an odd offset, pointer 7",
         "T19: the pointer is not beyond the length of 7, so one address is left",
         packet(given, "reply source-route", reply4(given, 3, 5, ZERO, B4), any_identification=True))
    case("t19-source-route-used-up", "RFC 7915 section 4.1", "a source route whose pointer is beyond its length",
         "T19: options are dropped without notice",
         packet(udp4(B4, A4, options=bytes([131, 7, 8, 198, 51, 100, 9, 0])), "forward", to6()))
    case("options-without-padding", "RFC 7915 section 4.1", "a record route option and the end of options",
         "T19: other options are dropped without notice",
         packet(udp4(B4, A4, options=bytes([7, 7, 4, 0, 0, 0, 0, 0])), "forward", to6()))
    for length in (0, 1):
        case(f"t20-option-of-length-{length}", "RFC 791 section 3.1", f"an option that says it is {length} bytes long",
             "T20: no endless loop",
             packet(udp4(B4, A4, options=bytes([7, length, 0, 0])), "drop malformed"))
    case("t21-forty-bytes-of-options", "RFC 7915 section 4", "1500 bytes with DF, 40 of them options",
         "T21, A32: what counts is the size of the IPv6 packet, 1480 bytes",
         packet(ipv4(B4, A4, 253, data(1440), df=1, options=bytes([1] * 40)), "forward",
                ipv6(B6, A6, 253, data(1440), hops=63)))


def icmp_details():
    case("t25-error-from-loopback", "RFC 7915 section 4.1", "an ICMPv4 error from 127.0.0.1",
         "T25: translated all the same, for traceroute",
         packet(error4("127.0.0.1", A4, 11, 0, ZERO, LOST4), "forward",
                error6("64:ff9b::7f00:1", A6, 3, 0, ZERO, LOST6, hops=63)))
    for name, source in (("loopback", "127.0.0.1"), ("this-network", "0.0.0.0"), ("multicast", "224.0.0.5"),
                         ("class-e", "240.0.0.1"), ("broadcast", "255.255.255.255")):
        case(f"t25-illegal-source-{name}", "RFC 7915 section 4.1, RFC 1812 section 5.3.7",
             f"a datagram from {source}", "T25: dropped silently",
             packet(udp4(source, A4), "drop illegal-source"))
    for name, source in (("loopback", "::1"), ("unspecified", "::"), ("multicast", "ff02::1"),
                         ("link-local", "fe80::1"), ("ipv4-mapped", "::ffff:192.0.2.1")):
        case(f"illegal-source-{name}-ipv6", "RFC 7915 section 5.1", f"a datagram from {source}", "dropped silently",
             packet(udp6(source, B6), "drop illegal-source"))
    for mtu, result in ((1259, 1280), (1260, 1280), (1261, 1281), (1400, 1420), (1500, 1500), (65535, 1500),
                        (19, 1280)):
        mapped4to6(f"t29-fragmentation-needed-{mtu:05}", 3, 4, u32(mtu), 2, 0, u32(result),
                   f"fragmentation needed with MTU {mtu}", why="T29: 20 more, at least 1280, at most what the links do")
    for size, result in ((1500, 1500), (1492, 1280), (1493, 1500)):
        about = ipv4(A4, B4, 17, udp(A4, B4, 40000, 53, data(size - 28))[:40], ttl=60, df=1, total=size)
        whole = udp(A6, B6, 40000, 53, data(size - 28))
        about6 = ipv6(A6, B6, 17, whole[:40], hops=60, length=size - 20)
        mapped4to6(f"t30-mtu-zero-embedded-{size}", 3, 4, ZERO, 2, 0, u32(result),
                   f"fragmentation needed without MTU about a packet of {size} bytes", about=about, about6=about6,
                   why="T30, T31, A6: the next plateau below the embedded total length, and 20 more")
    for mtu, result in ((1280, 1260), (1281, 1261), (1500, 1480), (9000, 1480), (0xFFFFFFFF, 1480)):
        mapped6to4(f"t32-packet-too-big-{mtu}", 2, 0, u32(mtu), 3, 4, u32(result), f"packet too big with MTU {mtu}",
                   why="T29, T32: 20 less, at most what the links do, 32 bits clamped before they become 16")
    for mtu in (0, 19, 20, 68, 1279):
        case(f"t32-packet-too-big-{mtu}", "RFC 8021, RFC 8201 section 4", f"packet too big with MTU {mtu}",
             "T32, A34: no IPv6 link is that small; it would only make hosts send atomic fragments",
             packet(error6(R6, B6, 2, 0, u32(mtu), GONE6), "drop icmp-untranslatable"))
    about6 = ipv6(B6, A6, 44, fragment(253, 0, 1, 0x4321) + data(1400), hops=60)[:1232]
    about4 = ipv4(B4, A4, 253, data(1400), mf=1, ident=0x4321, ttl=60)[:548]
    for mtu, result in ((1280, 1252), (1400, 1372), (1500, 1472)):
        mapped6to4(f"packet-too-big-{mtu}-about-a-fragment", 2, 0, u32(mtu), 3, 4, u32(result),
                   f"packet too big with MTU {mtu} about a fragment", about=about6, about4=about4,
                   why="A7: the next fragment gets a Fragment header too: 28 less, or it would be too big for ever")
    segment, segment6 = tcp(A4, B4, 1000, 80, b"")[:8], tcp(A6, B6, 1000, 80, b"")[:8]
    mapped4to6("t38-eight-bytes-of-tcp", 3, 1, ZERO, 1, 0, ZERO, "an error that quotes eight bytes of TCP",
               about=ipv4(A4, B4, 6, segment, ttl=60, df=1, total=40),
               about6=ipv6(A6, B6, 6, segment6, hops=60, length=20),
               why="T38, T23: no checksum where none is, and the length of the original stays")
    mapped4to6("t39-embedded-udp-without-checksum", 3, 3, ZERO, 1, 4, ZERO,
               "an error about a datagram without checksum",
               about=ipv4(A4, B4, 17, udp(A4, B4, 40000, 53, b"lost", checksum=0), ttl=60),
               about6=ipv6(A6, B6, 17, udp(A6, B6, 40000, 53, b"lost", checksum=0), hops=60),
               why="T39: the error is never dropped for it")
    echo4 = ipv4(A4, B4, 1, icmp4(8, 0, echo_rest(5, 6), data(16)), ttl=1)
    echo6 = ipv6(A6, B6, 58, icmp6(A6, B6, 128, 0, echo_rest(5, 6), data(16)), hops=1)
    mapped4to6("traceroute-with-echo", 11, 0, ZERO, 3, 0, ZERO, "time exceeded about an echo request",
               about=echo4, about6=echo6, why="T22: the hop limit inside stays; types and checksum inside are translated")
    back6 = ipv6(B6, A6, 58, icmp6(B6, A6, 128, 0, echo_rest(5, 6), data(16)), hops=1)
    back4 = ipv4(B4, A4, 1, icmp4(8, 0, echo_rest(5, 6), data(16)), ttl=1)
    mapped6to4("traceroute-with-echo-6to4", 3, 0, ZERO, 11, 0, ZERO, "hop limit exceeded about an echo request",
               about=back6, about4=back4, why="T22: the TTL inside stays; types and checksum inside are translated")
    piece4 = ipv4(A4, B4, 253, data(32), ttl=60, offset=5, mf=1, ident=0x99)
    piece6 = ipv6(A6, B6, 44, fragment(253, 5, 1, 0x99) + data(32), hops=60)
    mapped4to6("embedded-fragment-4to6", 11, 1, ZERO, 3, 1, ZERO, "an error about a fragment", about=piece4,
               about6=piece6, why="RFC 7915 section 4.3: the embedded packet gets a Fragment header too")
    piece6 = ipv6(B6, A6, 44, fragment(253, 5, 1, 0x12340099) + data(32), hops=60)
    piece4 = ipv4(B4, A4, 253, data(32), ttl=60, offset=5, mf=1, ident=0x99)
    mapped6to4("embedded-fragment-6to4", 3, 1, ZERO, 11, 1, ZERO, "an error about a fragment", about=piece6,
               about4=piece4, why="RFC 7915 section 5.3: the embedded Fragment header goes")
    inner = error4(B4, A4, 3, 1, ZERO, GONE4)
    case("error-about-an-error-4to6", "RFC 7915 section 4.3", "an ICMPv4 error about an ICMPv4 error",
         "one level only", packet(error4(R4, A4, 11, 0, ZERO, error4(A4, B4, 3, 1, ZERO, inner)),
                                  "drop icmp-error-unusable"))
    inner = error6(B6, A6, 1, 0, ZERO, LOST6)
    case("error-about-an-error-6to4", "RFC 7915 section 5.3", "an ICMPv6 error about an ICMPv6 error",
         "one level only", packet(error6(R6, B6, 3, 0, ZERO, inner), "drop icmp-error-unusable"))
    good = error4(R4, A4, 3, 1, ZERO, LOST4)
    case("t24-damaged-error-4to6", "RFC 7915 section 4.2", "an ICMPv4 error with a wrong checksum",
         "T24: it must not become a right one", packet(good[:-1] + bytes([good[-1] ^ 1]), "drop bad-checksum"))
    good = error6(R6, B6, 1, 0, ZERO, GONE6)
    case("t24-damaged-error-6to4", "RFC 7915 section 5.2", "an ICMPv6 error with a wrong checksum",
         "T24: it must not become a right one", packet(good[:-1] + bytes([good[-1] ^ 1]), "drop bad-checksum"))
    # Sizes: errors are cut, lengths inside are not.
    about4 = udp4(A4, B4, data(1400), ttl=60, df=1)
    about6 = udp6(A6, B6, data(1400), hops=60)
    mapped4to6("t23-long-error-4to6", 3, 1, ZERO, 1, 0, ZERO, "an error of 1456 bytes", about=about4,
               about6=about6[:1232], why="T23: 1280 bytes in all, the length inside stays")
    about6, about4 = udp6(B6, A6, data(1150), hops=60), udp4(B4, A4, data(1150), ttl=60)
    mapped6to4("t23-long-error-6to4", 1, 0, ZERO, 3, 1, ZERO, "an error of 1246 bytes", about=about6,
               about4=about4[:548], why="T23: 576 bytes in all, the length inside stays")


def extensions():
    clause = "RFC 7915 sections 4.2, 5.2; RFC 4884 section 5"
    extension = bytes([0x20, 0, 0, 0]) + data(8)
    about6, about4 = udp6(B6, A6, data(104), hops=60), udp4(B4, A4, data(104), ttl=60)
    assert (len(about6), len(about4)) == (152, 132)
    case("t33-extension-6to4", clause, "an ICMPv6 error of length 19 with an extension",
         "T33: 152 bytes in units of 8 become 132 bytes in units of 4",
         packet(error6(R6, B6, 3, 0, bytes([19, 0, 0, 0]), about6 + extension), "forward",
                error4(R6_4, B4, 11, 0, bytes([0, 33, 0, 0]), about4 + extension, ttl=63), any_identification=True))
    about4, about6 = udp4(A4, B4, data(104), ttl=60, df=1), udp6(A6, B6, data(104), hops=60)
    case("t33-extension-4to6", clause, "an ICMPv4 error of length 33 with an extension", "T33: the other way",
         packet(error4(R4, A4, 11, 0, bytes([0, 33, 0, 0]), about4 + extension), "forward",
                error6(R4_6, A6, 3, 0, bytes([19, 0, 0, 0]), about6 + extension, hops=63)))
    about4, about6 = udp4(A4, B4, data(100), ttl=60, df=1), udp6(A6, B6, data(100), hops=60)
    assert (len(about4), len(about6)) == (128, 148)
    case("extension-padded-4to6", clause, "an embedded packet that is no multiple of eight any more",
         "padded with zeros to 152 bytes",
         packet(error4(R4, A4, 3, 3, bytes([0, 32, 0, 0]), about4 + extension), "forward",
                error6(R4_6, A6, 1, 4, bytes([19, 0, 0, 0]), about6 + bytes(4) + extension, hops=63)))
    case("t27-extension-lost-4to6", clause, "protocol unreachable with an extension",
         "T27: a parameter problem of ICMPv6 has no length attribute, so the extension goes",
         packet(error4(R4, A4, 3, 2, bytes([0, 32, 0, 0]), about4 + extension), "forward",
                error6(R4_6, A6, 4, 1, u32(6), about6, hops=63)))
    # The shortest there is. It grows by 120 bytes, and a device wants some of the room in front of a packet for itself.
    about4, about6 = udp4(A4, B4, b"", ttl=60, df=1), udp6(A6, B6, b"", hops=60)
    short = bytes([0x20, 0, 0, 0, 0, 4, 1, 1])
    case("extension-behind-28-bytes-4to6", clause, "an ICMPv4 error of length 7 with an extension",
         "padded to 128 bytes; the message grows by almost all the room in front of it",
         packet(error4(R4, A4, 3, 3, bytes([0, 7, 0, 0]), about4 + short), "forward",
                error6(R4_6, A6, 1, 4, bytes([16, 0, 0, 0]), about6 + bytes(80) + short, hops=63)))
    short6, short4 = udp6(B6, A6, data(12), hops=60), udp4(B4, A4, data(12), ttl=60)
    case("t36-short-packet-with-extension", clause, "an embedded packet of 60 bytes, padded to 128, with an extension",
         "T36: padded to 128 on the other side too",
         packet(error6(R6, B6, 1, 4, bytes([16, 0, 0, 0]), short6 + bytes(128 - len(short6)) + extension), "forward",
                error4(R6_4, B4, 3, 3, bytes([0, 32, 0, 0]), short4 + bytes(128 - len(short4)) + extension, ttl=63),
                any_identification=True))
    long6, long4 = udp6(B6, A6, data(600), hops=60), udp4(B4, A4, data(600), ttl=60)
    forty = data(40)
    case("t34-extension-at-the-limit-of-576", clause, "a long embedded packet with an extension of 40 bytes",
         "T34: the embedded packet is cut to 508 bytes, length 127, and the extension stays",
         packet(error6(R6, B6, 1, 4, bytes([81, 0, 0, 0]), long6 + forty), "forward",
                error4(R6_4, B4, 3, 3, bytes([0, 127, 0, 0]), long4[:508] + forty, ttl=63), any_identification=True))
    given4, given6 = udp4(A4, B4, data(100), ttl=60, df=1), udp6(A6, B6, data(100), hops=60)
    room = data(1104)
    case("t35-extension-at-the-limit-of-1280", clause, "an extension of 1104 bytes",
         "T35: it leaves 128 bytes for the embedded packet, length 16",
         packet(error4(R4, A4, 3, 1, bytes([0, 32, 0, 0]), given4 + room), "forward",
                error6(R4_6, A6, 1, 0, bytes([16, 0, 0, 0]), given6[:128] + room, hops=63)))
    room = data(1105)
    case("t35-extension-too-long", clause, "an extension of 1105 bytes", "T35: it goes, length 0",
         packet(error4(R4, A4, 3, 1, bytes([0, 32, 0, 0]), given4 + room), "forward",
                error6(R4_6, A6, 1, 0, ZERO, given6, hops=63)))
    huge = data(421)
    case("t34-extension-too-long", clause, "an extension of 421 bytes",
         "T34: 128 bytes of the embedded packet would not fit beside it, so it goes, and length is 0",
         packet(error6(R6, B6, 1, 4, bytes([81, 0, 0, 0]), long6 + huge), "forward",
                error4(R6_4, B4, 3, 3, ZERO, long4[:548], ttl=63), any_identification=True))


def node_identification():
    clause = "RFC 6791 section 3"
    case("t42-router-without-ipv4-address", clause, "time exceeded from a router that has no IPv4 address",
         "T42: the source is one of the pool",
         packet(error6(X6, B6, 3, 0, ZERO, GONE6), "forward",
                error4(POOL4, B4, 11, 0, ZERO, GONE4, ttl=63), any_identification=True))
    case("router-without-ipv4-address-and-pool", clause, "the same without a pool",
         "the gateway's own address serves instead",
         packet(error6(X6, B6, 3, 0, ZERO, GONE6), "forward",
                error4(GW4, B4, 11, 0, ZERO, GONE4, ttl=63), any_identification=True), config="no-hairpin")
    given = udp6(X6, B6)
    case("host-without-ipv4-address", "RFC 7915 section 5.1", "a datagram from an address without mapping",
         "the pool is for errors only; default error 1/1",
         packet(given, "reply untranslatable-address", reply6(given, 1, 1, ZERO, X6)))
    node = bytes([0, 24, 2, 4, 0, 2, 0, 0]) + a6(X6)
    header = struct.pack("!BBH", 0x20, 0, 0)
    header = header[:2] + struct.pack("!H", 0xFFFF - ones_complement(header + node))
    padded = GONE4 + bytes(128 - len(GONE4))
    case("node-is-told", "RFC 6791 section 3, RFC 5837 section 4", "time exceeded from such a router, to be identified",
         "A13: an interface information object with the IPv6 address",
         packet(error6(X6, B6, 3, 0, ZERO, GONE6), "forward",
                error4(POOL4, B4, 11, 0, bytes([0, 32, 0, 0]), padded + header + node, ttl=63),
                any_identification=True), config="node")
    mapped6to4("node-with-ipv4-address-is-not-told", 3, 0, ZERO, 11, 0, ZERO, "time exceeded from a mapped router",
               config="node", why="its source address says it already")


def addresses():
    pairs = (("192.0.2.16", "2001:db8:cccc::"), ("192.0.2.24", "2001:db8:cccc::8"), ("192.0.2.31", "2001:db8:cccc::f"),
             ("192.0.2.128", "2001:db8:dddd::"), ("192.0.2.152", "2001:db8:dddd:0:6000::"),
             ("192.0.2.191", "2001:db8:dddd:0:fc00::"), ("192.0.2.195", "2001:db8:eeee:9:8000::"),
             ("192.0.2.225", "64:ff9b:1::1"))
    for host4, host6 in pairs:
        name = host4.replace(".", "-")
        case(f"eam-{name}-4to6", "RFC 7757 section 3.3.1, figure 7", f"to {host4}", "unequal suffix lengths",
             packet(udp4(B4, host4, df=1), "forward", udp6(B6, host6, hops=63)))
        case(f"eam-{name}-6to4", "RFC 7757 section 3.3.2, figure 7", f"from {host6}", "unequal suffix lengths",
             packet(udp6(host6, B6), "forward", udp4(host4, B4, ttl=63), any_identification=True))
    case("t47-bits-behind-the-suffix", "RFC 7757 section 3.3.2", "from 2001:db8:dddd:0:63ff::dead:beef",
         "T47: bits behind the suffix are ignored on receipt",
         packet(udp6("2001:db8:dddd:0:63ff::dead:beef", B6), "forward", udp4("192.0.2.152", B4, ttl=63),
                any_identification=True))
    case("t50-to-somebody-else-4", "RFC 7915 section 1", "an IPv4 packet to an address without explicit mapping",
         "T50: it is left to the host's routes", packet(udp4(B4, "192.0.2.3"), "to-host"))
    case("t50-to-somebody-else-6", "RFC 7915 section 1", "an IPv6 packet to an address outside the prefix",
         "T50: it is left to the host's routes", packet(udp6(A6, "2001:db8:5555::1"), "to-host"))
    case("t51-neighbour-solicitation", "RFC 7915 section 1", "a neighbour solicitation on the link",
         "T51: it is left to the host",
         packet(error6("fe80::1", "ff02::1:ff00:1", 135, 0, ZERO, a6("2001:db8::1"), hops=255), "to-host"))
    given = udp6(A6, "64:ff9b::cb00:71c8")
    case("denied-address-6to4", "RFC 7915 section 5.1", "to an embedded address of the deny list",
         "refused with 1/1", packet(given, "reply denied", reply6(given, 1, 1, ZERO, A6)))
    given = udp4("203.0.113.200", A4)
    case("denied-address-4to6", "RFC 7915 section 4.1", "from an address of the deny list", "refused with 3/13",
         packet(given, "reply denied", reply4(given, 3, 13, ZERO, "203.0.113.200"), any_identification=True))
    given = udp6(A6, "64:ff9b::a00:1")
    case("wkp-strict-6to4", "RFC 6052 section 3.1, RFC 7915 section 5.4", "64:ff9b::10.0.0.1, which must not exist",
         "the well-known prefix is for global addresses; refused with 1/1",
         packet(given, "reply private-in-well-known-prefix", reply6(given, 1, 1, ZERO, A6)), config="strict")
    given = udp4("10.0.0.1", A4)
    case("wkp-strict-4to6", "RFC 6052 section 3.1, RFC 7915 section 4.4", "from 10.0.0.1",
         "there is no address for it; refused with 3/13",
         packet(given, "reply private-in-well-known-prefix", reply4(given, 3, 13, ZERO, "10.0.0.1"),
                any_identification=True), config="strict")
    given = udp6(A6, "64:ff9b::a9fe:101")
    case("link-local-6to4", "RFC 3927 section 7", "to 169.254.1.1 in the prefix",
         "no router forwards to link-local addresses; refused with 1/1",
         packet(given, "reply link-local-address", reply6(given, 1, 1, ZERO, A6)))
    case("link-local-4to6", "RFC 3927 section 7", "from 169.254.1.1",
         "no router forwards from link-local addresses, or answers across them",
         packet(udp4("169.254.1.1", A4), "drop link-local-address"))
    lost4, lost6 = udp4(A4, "8.8.8.8", ttl=60, df=1), udp6(A6, "64:ff9b::808:808", hops=60)
    case("wkp-strict-error-of-a-private-router", "RFC 6052 section 3.1", "time exceeded from a router at 10.0.0.1",
         "its address cannot be embedded; the gateway's own serves, so that path MTU discovery works",
         packet(error4("10.0.0.1", A4, 11, 0, ZERO, lost4), "forward", error6(GW6, A6, 3, 0, ZERO, lost6, hops=63)),
         config="strict")
    lost4, lost6 = udp4(A4, "192.0.2.2", ttl=60, df=1), udp6(A6, "2001:db8:bbbb::b", hops=60)
    case("no-prefix-error-of-a-router", "RFC 7757 section 3.3", "an IPv4 router's error where there is no prefix",
         "no RFC names a source for it; the gateway's own serves",
         packet(error4(R4, A4, 3, 4, u32(1400), lost4), "forward", error6(GW6, A6, 2, 0, u32(1420), lost6, hops=63)),
         config="no-prefix")
    given = udp4(B4, A4)
    case("no-prefix-from-a-stranger", "RFC 7757 section 3.3", "a datagram from an address without mapping",
         "untranslatable, refused with 3/13",
         packet(given, "reply untranslatable-address", reply4(given, 3, 13, ZERO, B4), any_identification=True),
         config="no-prefix")
    case("wkp-strict-global", "RFC 6052 section 3.1", "from 8.8.8.8", "global addresses pass",
         packet(udp4("8.8.8.8", A4), "forward", udp6("64:ff9b::808:808", A6, hops=63)), config="strict")
    case("t49-local-use-prefix", "RFC 8215 section 5", "10.0.0.1 inside 64:ff9b:1::/96",
         "T49: the rule of the well-known prefix is not for the local-use prefix",
         packet(udp6("64:ff9b:1::c000:221", "64:ff9b:1::a00:1"), "forward",
                udp4("192.0.2.33", "10.0.0.1", ttl=63), any_identification=True), config="local-use")
    case("t48-overlapping-rows", "RFC 7757 section 5, figure 2", "there by the row of everything, back by a longer one",
         "T46, T48: the longest match in each column; the answer goes to another host",
         [packet(udp6("2001:db8:ffc6:3364:4000::", "64:ff9b::cb00:7107"), "forward",
                 udp4("198.51.100.64", R4, ttl=63), any_identification=True),
          packet(udp4(R4, "198.51.100.64", df=1), "forward",
                 udp6("2001:db8:ffcb:71:700::", "2001:db8::abcd", hops=63))], config="overlap")
    for destination in ("64:ff9b::7f00:1", "64:ff9b::e000:1", "64:ff9b::ffff:ffff", "64:ff9b::3"):
        case(f"illegal-destination-{destination.split('::')[1].replace(':', '-')}", "RFC 7915 section 1.2",
             f"to {destination}", "no unicast host has the embedded address",
             packet(udp6(A6, destination), "drop illegal-destination"))
    case("illegal-embedded-source", "RFC 7915 section 5.1", "from 64:ff9b::127.0.0.1",
         "an illegal IPv4 source is not to be made",
         packet(udp6("64:ff9b::7f00:1", B6), "drop illegal-source"))


def embedded_prefixes():
    """RFC 6052 section 2.4 and its shape for a second address; T43, T49."""
    table = {32: ("2001:db8:c000:221::", "2001:db8:c633:6402::"),
             40: ("2001:db8:1c0:2:21::", "2001:db8:1c6:3364:2::"),
             48: ("2001:db8:122:c000:2:2100::", "2001:db8:122:c633:64:200::"),
             56: ("2001:db8:122:3c0:0:221::", "2001:db8:122:3c6:33:6402::"),
             64: ("2001:db8:122:344:c0:2:2100::", "2001:db8:122:344:c6:3364:200:0"),
             96: ("2001:db8:122:344::c000:221", "2001:db8:122:344::c633:6402")}
    for length, (host, remote) in table.items():
        clause = "RFC 6052 section 2.2"
        case(f"t43-prefix-{length}-4to6", clause, f"to a host with an embedded address, prefix length {length}",
             "T43: the four bytes go round octet 8",
             packet(udp4(B4, "192.0.2.33", df=1), "forward", udp6(remote, host, hops=63)),
             config=f"embedded-{length}")
        case(f"t43-prefix-{length}-6to4", clause, f"from a host with an embedded address, prefix length {length}",
             "T43: the four bytes go round octet 8",
             packet(udp6(host, remote), "forward", udp4("192.0.2.33", B4, ttl=63), any_identification=True),
             config=f"embedded-{length}")
    case("t43-suffix-is-ignored", "RFC 6052 section 2.2", "a suffix that is not zero", "T43: ignored on receipt",
         packet(udp6("2001:db8:c000:221:0:1234:5678:9abc", "2001:db8:c633:6402::"), "forward",
                udp4("192.0.2.33", B4, ttl=63), any_identification=True), config="embedded-32")
    case("u-octet-is-not-zero", "RFC 6052 section 2.3", "an address whose octet 8 is not zero",
         "A12: it is removed whatever it says",
         packet(udp6("2001:db8:c000:221::", "2001:db8:c633:6402:ff00::"), "forward",
                udp4("192.0.2.33", B4, ttl=63), any_identification=True), config="embedded-32")


def hairpins():
    clause = "RFC 7757 section 4.2.2, figures 8 to 11"
    c4, c6 = "192.0.2.2", "2001:db8:bbbb::b"
    embedded_a, embedded_c = "64:ff9b::c000:201", "64:ff9b::c000:202"
    case("hairpin-intrinsic", clause, "A to the IPv4 address of another inside host",
         "figure 8: turned round, one decrement in total",
         packet(udp6(A6, embedded_c), "forward", udp6(embedded_a, c6, hops=63)))
    case("hairpin-intrinsic-back", clause, "the answer", "figure 11",
         packet(udp6(c6, embedded_a), "forward", udp6(embedded_c, A6, hops=63)))
    rest, body = echo_rest(3, 4), data(20)
    case("hairpin-echo", clause, "an echo request between inside hosts", "translated twice, checksum and type right",
         packet(error6(A6, embedded_c, 128, 0, rest, body), "forward",
                error6(embedded_a, c6, 128, 0, rest, body, hops=63)))
    lost = udp6(embedded_a, c6, b"lost data", hops=60)
    lost_back = udp6(A6, embedded_c, b"lost data", hops=60)
    case("t42-hairpin-error-of-a-router", clause, "a router's error about such a packet",
         "figure 9, T42: outer source from the pool, inner addresses as A sent them",
         packet(error6(X6, embedded_a, 3, 0, ZERO, lost), "forward",
                error6("64:ff9b::c633:6401", A6, 3, 0, ZERO, lost_back, hops=63)))
    case("hairpin-error-of-the-host", clause, "the destination's own error about such a packet",
         "figure 10: rule 3, the source is embedded",
         packet(error6(c6, embedded_a, 1, 4, ZERO, lost), "forward",
                error6(embedded_c, A6, 1, 4, ZERO, lost_back, hops=63)))
    case("t41-hairpin-packet-too-big", clause, "packet too big 1280 about such a packet",
         "T41: 1280 less 20 and 20 more",
         packet(error6(X6, embedded_a, 2, 0, u32(1280), lost), "forward",
                error6("64:ff9b::c633:6401", A6, 2, 0, u32(1280), lost_back, hops=63)))
    case("hairpin-simple", "RFC 7757 section 4.2.1", "simple: the IPv4 network sends it back",
         "rule 1: the source is embedded although it has an explicit mapping",
         [packet(udp6(A6, embedded_c), "forward", udp4(A4, c4, ttl=63), any_identification=True),
          packet(udp4(A4, c4, ttl=62), "forward", udp6(embedded_a, c6, hops=61))], config="simple")
    case("hairpin-off", "RFC 7757 section 4.1", "without hairpinning the same", "the answer would bypass the gateway",
         [packet(udp6(A6, embedded_c), "forward", udp4(A4, c4, ttl=63), any_identification=True),
          packet(udp4(A4, c4, ttl=62), "forward", udp6(A6, c6, hops=61))], config="no-hairpin")
    case("hairpin-not-for-explicit-destinations", "RFC 7757 section 4.2.2 (A2)",
         "A to the IPv6 address of another inside host", "condition A2 fails: it leaves as IPv4",
         packet(udp6(A6, c6), "forward", udp4(A4, c4, ttl=63), any_identification=True))
    case("t66-hairpin-to-oneself", clause, "A to its own IPv4 address", "T66: it comes back once and does not loop",
         packet(udp6(A6, embedded_a), "forward", udp6(embedded_a, A6, hops=63)))
    given = udp6(A6, embedded_c, hops=1)
    case("hairpin-hop-limit", clause, "a hairpinned packet with hop limit 1", "hop limit exceeded, once",
         packet(given, "reply hop-limit-exceeded", reply6(given, 3, 0, ZERO, A6)))
    given = ipv6(A6, embedded_c, 253, data(1300))
    case("hairpin-too-big", clause, "a hairpinned packet that is too big for its second link",
         "packet too big to the sender, who sent IPv6",
         packet(given, "reply packet-too-big", reply6(given, 2, 0, u32(1280), A6)), config="ipv6-1280")


def hop_limits_and_transport():
    for hops in (0, 1):
        given = udp4(B4, A4, ttl=hops)
        case(f"t67-ttl-{hops}", "RFC 7915 section 4.1", f"a packet with TTL {hops}",
             "T77: time exceeded to its source, the quote as received",
             packet(given, "reply hop-limit-exceeded", reply4(given, 11, 0, ZERO, B4), any_identification=True))
        given = udp6(A6, B6, hops=hops)
        case(f"t67-hop-limit-{hops}", "RFC 7915 section 5.1", f"a packet with hop limit {hops}",
             "T67: time exceeded to its source, the quote as received",
             packet(given, "reply hop-limit-exceeded", reply6(given, 3, 0, ZERO, A6)))
    case("ttl-2", "RFC 7915 section 4.1", "a packet with TTL 2", "boundary of T67",
         packet(udp4(B4, A4, ttl=2), "forward", udp6(B6, A6, hops=1)))
    case("error-with-ttl-1", "RFC 1122 section 3.2.2", "an ICMPv4 error with TTL 1", "no error about an error",
         packet(error4(R4, A4, 3, 1, ZERO, LOST4, ttl=1), "drop hop-limit-exceeded"))
    case("fragment-with-ttl-1", "RFC 1812 section 4.3.2.7", "a fragment other than the first with TTL 1",
         "no error about it", packet(ipv4(B4, A4, 253, data(16), ttl=1, offset=2), "drop hop-limit-exceeded"))
    padding = b"\xff" * 18
    case("t69-padding-behind-the-packet", "RFC 894", "a datagram with Ethernet padding behind it",
         "T69: it is neither carried nor counted into checksums",
         packet(udp4(B4, A4, b"") + padding, "forward", udp6(B6, A6, b"", hops=63)))
    lite = "only part of a UDP-Lite packet is covered by its checksum"
    for protocol, name, why, body in (
            (33, "dccp", "the checksum is right", lambda *ends: dccp(*ends, 5001, 5002, data(13))),
            (136, "udp-lite", lite, lambda *ends: udp_lite(*ends, 5001, 5002, data(13))),
            (136, "udp-lite-covered", "all of it is", lambda *ends: udp_lite(*ends, 5001, 5002, data(13), coverage=21))):
        case(f"{name}-4to6", "RFC 7915 section 4.5", f"protocol {protocol} with ports and a pseudo-header", why,
             packet(ipv4(B4, A4, protocol, body(B4, A4), df=1), "forward",
                    ipv6(B6, A6, protocol, body(B6, A6), hops=63)))
        case(f"{name}-6to4", "RFC 7915 section 5.5", f"protocol {protocol} with ports and a pseudo-header", why,
             packet(ipv6(A6, B6, protocol, body(A6, B6)), "forward", ipv4(A4, B4, protocol, body(A4, B4), ttl=63),
                    any_identification=True))
        mapped4to6(f"error-about-{name}", 3, 3, ZERO, 1, 4, ZERO, f"an error about protocol {protocol}",
                   about=ipv4(A4, B4, protocol, body(A4, B4), ttl=60, df=1),
                   about6=ipv6(A6, B6, protocol, body(A6, B6), hops=60))
    without = udp_lite(B4, A4, 5001, 5002, data(13), checksum=0)
    case("udp-lite-without-checksum", "RFC 3828 section 3.1", "a UDP-Lite packet without checksum",
         "there must not be any; it is not made right",
         packet(ipv4(B4, A4, 136, without, df=1), "forward", ipv6(B6, A6, 136, without, hops=63)))
    case("sctp-cut", "RFC 9260 section 3.1", "SCTP that ends within its first header", "dropped",
         packet(ipv4(B4, A4, 132, data(11), df=1), "drop malformed"))
    for protocol, name in ((132, "SCTP"), (47, "GRE"), (50, "ESP"), (41, "IPv6 in IPv4"),
                           (253, "an unknown protocol")):
        case(f"protocol-{protocol}-4to6", "RFC 7915 section 4.1", name, "the number is copied, the payload untouched",
             packet(ipv4(B4, A4, protocol, data(40), df=1), "forward", ipv6(B6, A6, protocol, data(40), hops=63)))
        case(f"protocol-{protocol}-6to4", "RFC 7915 section 5.1", name, "the number is copied, the payload untouched",
             packet(ipv6(A6, B6, protocol, data(40)), "forward", ipv4(A4, B4, protocol, data(40), ttl=63),
                    any_identification=True))
    case("t92-checksum-that-comes-out-zero", "RFC 768", "a datagram whose IPv6 checksum is zero by arithmetic",
         "T92: zero means none, so 0xffff is sent",
         packet(zero_sum_datagram("4"), "forward", zero_sum_datagram("6")))
    segment4, segment6 = tcp(B4, A4, 80, 1000, b"x", flags=0x18), tcp(B6, A6, 80, 1000, b"x", flags=0x18)
    case("tcp-4to6", "RFC 7915 section 4.5", "a TCP segment of odd length", "the checksum is right",
         packet(ipv4(B4, A4, 6, segment4, df=1), "forward", ipv6(B6, A6, 6, segment6, hops=63)))
    wrong = tcp(B4, A4, 80, 1000, b"xy", checksum=0x1234)
    right4 = struct.unpack("!H", tcp(B4, A4, 80, 1000, b"xy")[16:18])[0]
    right6 = struct.unpack("!H", tcp(B6, A6, 80, 1000, b"xy")[16:18])[0]
    # RFC 1624: HC' = ~(~HC + (sum of what is new - sum of what was)).
    field = (0x1234 - right4 + right6) % 0xFFFF
    case("t24-tcp-with-wrong-checksum", "RFC 7915 section 4.5, RFC 1624", "a TCP segment with a wrong checksum",
         "T24: it stays wrong by as much",
         packet(ipv4(B4, A4, 6, wrong, df=1), "forward",
                ipv6(B6, A6, 6, tcp(B6, A6, 80, 1000, b"xy", checksum=field), hops=63)))
    case("t94-neutral-prefix", "RFC 6052 section 4.1", "embedded in the well-known prefix on both sides",
         "T94: the bytes of the checksum stay the same",
         packet(udp6("64:ff9b::c000:3fa", B6), "forward",
                ipv4("192.0.3.250", B4, 17, udp("64:ff9b::c000:3fa", B6, 40000, 53, b"payload!"), ttl=63),
                any_identification=True))
    plain = udp(B4, A4, 40000, 53, b"payload!", checksum=0)
    case("udp-zero-computed", "RFC 7915 section 4.5", "a datagram without checksum",
         "the default: one is computed, since voice over Wi-Fi and tunnels send such datagrams",
         packet(ipv4(B4, A4, 17, plain), "forward", to6()))
    case("udp-zero-dropped", "RFC 7915 section 4.5", "the same where it is to be dropped", "by configuration",
         packet(ipv4(B4, A4, 17, plain), "reply udp-checksum-zero",
                reply4(ipv4(B4, A4, 17, plain), 3, 13, ZERO, B4), any_identification=True), config="zero-drop")
    case("udp-zero-forwarded", "RFC 6935, RFC 7915 section 4.5", "the same where it is to be forwarded",
         "by configuration, for tunnels",
         packet(ipv4(B4, A4, 17, plain), "forward",
                ipv6(B6, A6, 17, udp(B6, A6, 40000, 53, b"payload!", checksum=0), hops=63)), config="zero-forward")
    case("udp-zero-first-fragment", "RFC 7915 section 4.5", "a first fragment of a datagram without checksum",
         "it cannot be computed from a part",
         packet(ipv4(B4, A4, 17, plain, mf=1, ident=3), "reply udp-checksum-zero",
                reply4(ipv4(B4, A4, 17, plain, mf=1, ident=3), 3, 13, ZERO, B4), any_identification=True))
    given = ipv6(A6, B6, 17, udp(A6, B6, 40000, 53, b"payload!", checksum=0))
    case("udp-zero-6to4", "RFC 8200 section 8.1", "an IPv6 datagram without checksum", "A10: illegal, refused with 1/1",
         packet(given, "reply udp-checksum-zero", reply6(given, 1, 1, ZERO, A6)))
    case("traffic-class-copied-4to6", "RFC 7915 section 4.1", "TOS 0xb9", "T90: all eight bits",
         packet(udp4(B4, A4, tos=0xB9), "forward", to6(tc=0xB9)))
    case("traffic-class-copied-6to4", "RFC 7915 section 5.1", "traffic class 0xb9 and a flow label",
         "T90: all eight bits; the label has no place",
         packet(udp6(A6, B6, tc=0xB9, flow=0xABCDE), "forward", to4(tos=0xB9), any_identification=True))
    case("traffic-class-forced-4to6", "RFC 7915 section 4.1", "TOS 0xb9, DSCP to be replaced by 0",
         "by configuration; ECN is copied, or marks of congestion would be lost",
         packet(udp4(B4, A4, tos=0xB9), "forward", to6(tc=1)), config="traffic-class")
    case("traffic-class-forced-6to4", "RFC 7915 section 5.1", "traffic class 0xbb, DSCP to be replaced by 16",
         "by configuration; ECN is copied", packet(udp6(A6, B6, tc=0xBB), "forward", to4(tos=19), any_identification=True),
         config="traffic-class")
    good = udp4(B4, A4)
    case("header-checksum-wrong", "RFC 1812 section 5.2.2", "an IPv4 header with a wrong checksum", "dropped silently",
         packet(good[:10] + b"\0\1" + good[12:], "drop bad-checksum"))
    case("cut-short-ipv4", "RFC 1812 section 5.2.2", "an IPv4 packet shorter than it says", "dropped silently",
         packet(good[:-1], "drop malformed"))
    good = udp6(A6, B6)
    case("cut-short-ipv6", "RFC 8200 section 3", "an IPv6 packet shorter than it says", "dropped silently",
         packet(good[:-1], "drop malformed"))
    case("neither-version", "RFC 8200 section 3", "a packet of version 5", "dropped silently",
         packet(bytes([0x55]) + good[1:], "drop not-ip"))


def zero_sum_datagram(side):
    """A datagram whose checksum over the IPv6 pseudo-header is zero: its payload makes up for the rest."""
    rest = 0xFFFF - ones_complement(pseudo(a6(B6), a6(A6), 17, 10) + struct.pack("!HHHH", 40000, 53, 10, 0))
    payload = struct.pack("!H", rest)
    if side == "4":
        return ipv4(B4, A4, 17, udp(B4, A4, 40000, 53, payload))
    return ipv6(B6, A6, 17, udp(B6, A6, 40000, 53, payload, checksum=0xFFFF), hops=63)


def clat():
    """RFC 6877 figure 3: 192.168.1.2 talks to 198.51.100.1."""
    host4, host6 = "192.168.1.2", "2001:db8:aaaa::c0a8:102"
    far4, far6 = "198.51.100.1", "2001:db8:1234::c633:6401"

    def clat_case(name, clause, what, why, step):
        case(name, clause, what, why, step, config="clat", service="clat")

    clat_case("out", "RFC 6877 section 6.3", "from the host to the Internet",
              "source in the CLAT's prefix, destination in the PLAT's",
              packet(udp4(host4, far4, df=1), "forward", udp6(host6, far6, hops=63)))
    clat_case("in", "RFC 6877 section 6.3", "the answer", "the reverse",
              packet(udp6(far6, host6), "forward", udp4(far4, host4, ttl=63), any_identification=True))
    rest, body = echo_rest(1, 2), data(56)
    clat_case("ping", "RFC 6877 section 6.3", "an echo request", "as in SIIT",
              packet(error4(host4, far4, 8, 0, rest, body), "forward",
                     error6(host6, far6, 128, 0, rest, body, hops=63)))
    clat_case("to-the-lan-itself", "RFC 6877 section 6.3", "from host to host inside", "left to the host's routes",
              packet(udp4(host4, "192.168.1.3"), "to-host"))
    clat_case("to-somebody-else", "RFC 6877 section 6.3", "an IPv6 packet to another prefix", "left to the host",
              packet(udp6(far6, "2001:db8:5555::1"), "to-host"))
    given = udp6("2001:db8:9999::1", host6)
    clat_case("from-outside-the-plat", "RFC 7915 section 5.1", "an IPv6 packet from outside the PLAT's prefix",
              "its source has no IPv4 address: 1/1",
              packet(given, "reply untranslatable-address",
                     error6("2001:db8:aaaa::1", "2001:db8:9999::1", 1, 1, ZERO, given)))
    about6, about4 = udp6(host6, far6, b"lost", hops=9), udp4(host4, far4, b"lost", ttl=9)
    clat_case("error-of-the-plat", "RFC 7915 section 5.2, RFC 6791", "packet too big from an IPv6 router",
              "the gateway's own IPv4 address serves as source, 20 bytes less",
              packet(error6("2001:db8:9999::1", host6, 2, 0, u32(1400), about6), "forward",
                     error4("192.168.1.1", host4, 3, 4, u32(1380), about4, ttl=63), any_identification=True))
    given = udp4(host4, "169.254.1.1")
    clat_case("link-local-out", "RFC 3927 section 7", "to 169.254.1.1", "no router forwards to it; refused with 3/13",
              packet(given, "reply link-local-address", error4("192.168.1.1", host4, 3, 13, ZERO, given, tos=0xC0),
                     any_identification=True))
    given = udp6("2001:db8:1234::a9fe:101", host6)
    clat_case("link-local-in", "RFC 3927 section 7", "from 169.254.1.1 in the PLAT's prefix",
              "no router forwards from it; refused with 1/1",
              packet(given, "reply link-local-address",
                     error6("2001:db8:aaaa::1", "2001:db8:1234::a9fe:101", 1, 1, ZERO, given)))
    given = ipv4(host4, far4, 17, udp(host4, far4, 40000, 53, data(1472)), df=1)
    clat_case("too-big-for-the-line", "RFC 7915 section 4", "1500 bytes with DF into a line of 1500",
              "fragmentation needed with 1480",
              packet(given, "reply packet-too-big",
                     error4("192.168.1.1", host4, 3, 4, u32(1480), given[:548], tos=0xC0), any_identification=True))


def segment_sizes():
    """T88: a SYN's announcement is lowered to what crosses both links, and never raised."""
    clause = "RFC 9293 section 3.7.1, RFC 6691"

    def mss(size):
        return struct.pack("!BBH", 2, 4, size)

    def to6(options, flags=2):
        return ipv4(B4, A4, 6, tcp(B4, A4, 80, 1000, b"", flags=flags, options=options), df=1)

    def from4(options, flags=2):
        return ipv6(B6, A6, 6, tcp(B6, A6, 80, 1000, b"", flags=flags, options=options), hops=63)

    def to4(options, flags=18):
        return ipv6(A6, B6, 6, tcp(A6, B6, 1000, 80, b"", flags=flags, options=options))

    def from6(options, flags=18):
        return ipv4(A4, B4, 6, tcp(A4, B4, 1000, 80, b"", flags=flags, options=options), ttl=63)

    def up(name, what, before, after, config="eam", flags=2):
        case(f"t88-{name}", clause, what, "1500 bytes less both IPv6 headers are 1440, unless the file says otherwise",
             packet(to6(before, flags), "forward", from4(after, flags)), config=config)

    odd = b"\x01" + mss(1460) + b"\x01\x01\x01"
    up("syn-4to6", "a SYN that announces 1460", mss(1460), mss(1440))
    up("syn-odd-offset", "the option at an odd offset", odd, odd.replace(mss(1460), mss(1440)))
    up("syn-small", "a SYN that announces 536: nothing is raised", mss(536), mss(536))
    up("syn-without-options", "a SYN that announces nothing: nothing is added", b"", b"")
    up("ack-with-the-option", "no SYN: the option means nothing", mss(1460), mss(1460), flags=16)
    up("off", "clamping switched off", mss(9000), mss(9000), config="mss-off")
    up("given", "1200 by configuration", mss(1460), mss(1200), config="mss-1200")
    up("narrow", "an IPv6 link of 1280 bytes leaves 1220", mss(1460), mss(1220), config="mss-1280")
    case("t88-syn-ack-6to4", clause, "a SYN and ACK that announces 8940", "the answer is lowered too",
         packet(to4(mss(8940)), "forward", from6(mss(1440)), any_identification=True))

    # Fragments of what goes through a narrow link.
    record, alert = bytes([7, 7, 4, 0, 0, 0, 0]), bytes([148, 4, 0, 0])
    host, body = "10.0.0.2", data(1400)
    given = ipv4(B4, "192.0.2.1", 6, tcp(B4, "192.0.2.1", 1000, 80, body, flags=2), ident=0x77,
                 options=record + alert + b"\0")
    inside = tcp(B4, host, 1000, 80, body, flags=2)
    case("options-of-fragments", "RFC 791 section 3.1", "1452 bytes with two options through 1400",
         "the route is recorded in the first fragment only, the router alert has the copied flag",
         packet(given, "forward",
                [ipv4(B4, host, 6, inside[:1368], ident=0x77, mf=1, ttl=63, options=record + alert + b"\0"),
                 ipv4(B4, host, 6, inside[1368:], ident=0x77, offset=171, ttl=63, options=alert)]),
         config="static", service="nat44")
    obstacles_in_fragments(lambda *arguments: case(*arguments, config="static", service="nat64"), A6, B6, 6,
                           tcp(A6, B6, 80, 1000, data(28), flags=18), GW6)

    # The same through the services with state, by a binding that is always there.
    syn = ipv4(B4, A4, 6, tcp(B4, A4, 1000, 80, b"", flags=2, options=mss(1460)), df=1)
    answer = ipv6(A6, B6, 6, tcp(A6, B6, 80, 1000, b"", flags=18, options=mss(9000)))
    case("t88-both-ways", clause, "a SYN from outside, and its answer", "as in SIIT",
         [packet(syn, "forward", ipv6(B6, A6, 6, tcp(B6, A6, 1000, 80, b"", flags=2, options=mss(1440)), hops=63)),
          packet(answer, "forward",
                 ipv4(A4, B4, 6, tcp(A4, B4, 80, 1000, b"", flags=18, options=mss(1440)), ttl=63),
                 any_identification=True)], config="static", service="nat64")
    host = "10.0.0.2"
    answer = ipv4(host, B4, 6, tcp(host, B4, 80, 1000, b"", flags=18, options=mss(9000)), df=1)
    case("t88-both-ways", clause, "a SYN from outside, and its answer", "1400 bytes less both headers are 1360",
         [packet(syn, "forward", ipv4(B4, host, 6, tcp(B4, host, 1000, 80, b"", flags=2, options=mss(1360)), df=1, ttl=63)),
          packet(answer, "forward",
                 ipv4(A4, B4, 6, tcp(A4, B4, 80, 1000, b"", flags=18, options=mss(1360)), df=1, ttl=63))],
         config="static", service="nat44")

    # The kernel that the gateway runs on forwards what the NAT44 sends, and has an address inside.
    kernel, size, host_answer = "10.0.0.1", struct.pack("!HH", 0, 1300), tcp(host, B4, 80, 1000, data(1344))
    given, sent = ipv4(host, B4, 6, host_answer, df=1), ipv4(A4, B4, 6, tcp(A4, B4, 80, 1000, data(1344)), df=1, ttl=63)
    quoted_sent, quoted_given = sent[:548], ipv4(host, B4, 6, host_answer, df=1, ttl=63)[:548]
    question = ipv4(B4, A4, 6, tcp(B4, A4, 1000, 80, b"GET"), df=1)
    came = ipv4(B4, host, 6, tcp(B4, host, 1000, 80, b"GET"), df=1, ttl=63)
    case("error-of-the-own-kernel", "RFC 5508 REQ-4, REQ-5",
         "errors from the gateway's address inside, about a packet that has left and about one that has come in",
         "the one comes from outside whoever sends it, and goes to the host; the other leaves from the pool",
         [packet(syn, "forward", ipv4(B4, host, 6, tcp(B4, host, 1000, 80, b"", flags=2, options=mss(1360)), df=1, ttl=63)),
          packet(given, "forward", sent),
          packet(ipv4(kernel, A4, 1, icmp4(3, 4, size, quoted_sent), tos=0xC0), "forward",
                 ipv4(kernel, host, 1, icmp4(3, 4, size, quoted_given), tos=0xC0, ttl=63), side="outside"),
          packet(ipv4(kernel, A4, 1, icmp4(11, 0, ZERO, quoted_sent), tos=0xC0), "forward",
                 ipv4(kernel, host, 1, icmp4(11, 0, ZERO, quoted_given), tos=0xC0, ttl=63), side="outside"),
          packet(question, "forward", came),
          packet(ipv4(kernel, B4, 1, icmp4(11, 0, ZERO, came), tos=0xC0), "forward",
                 ipv4(A4, B4, 1, icmp4(11, 0, ZERO, ipv4(B4, A4, 6, tcp(B4, A4, 1000, 80, b"GET"), df=1, ttl=63)),
                      tos=0xC0, ttl=63), any_identification=True)],
         config="static", service="nat44")
    accepted = tcp(A4, B4, 80, 1000, b"", flags=18)
    case("error-of-the-own-kernel", "RFC 6146 section 3.5.3",
         "an error about a packet that has left, from the gateway's address inside the NAT44 beside",
         "it comes from outside whoever sends it",
         [packet(syn, "forward", ipv6(B6, A6, 6, tcp(B6, A6, 1000, 80, b"", flags=2, options=mss(1440)), hops=63)),
          packet(ipv4(kernel, A4, 1, icmp4(11, 0, ZERO, ipv4(A4, B4, 6, accepted, ttl=1)), tos=0xC0), "forward",
                 error6("64:ff9b::a00:1", A6, 3, 0, ZERO, ipv6(A6, B6, 6, tcp(A6, B6, 80, 1000, b"", flags=18), hops=1),
                        tc=0xC0, hops=63))], config="beside-nat44", service="nat64")

    # Too big for the host that a hairpinned packet is for.
    clause = "RFC 4787 REQ-13"
    other = "10.0.0.3"
    given = ipv4(other, A4, 6, tcp(other, A4, 40000, 80, data(1361), flags=2), df=1)
    case("hairpin-too-big", clause, "1401 bytes with DF from host to host by the outside address",
         "fragmentation needed with the inside link's 1400",
         packet(given, "reply packet-too-big",
                error4("198.51.100.1", other, 3, 4, u32(1400), given[:548], tos=0xC0), any_identification=True),
         config="static", service="nat44")
    other, server = "2001:db8:aaaa::2", "64:ff9b::c000:201"
    given = ipv6(other, server, 6, tcp(other, server, 40000, 80, data(1341), flags=2))
    case("hairpin-too-big", clause, "1401 bytes from host to host by the outside address",
         "packet too big with the inside link's 1400",
         packet(given, "reply packet-too-big", error6(GW6, other, 2, 0, u32(1400), given[:1232])),
         config="narrow", service="nat64")
    host = "10.0.0.3"
    query, answer = udp(host, B4, 40000, 53, b"query"), udp(B4, host, 53, 40000, b"answer")
    case("untranslated-port", "RFC 6888 REQ-6", "to a port that is not translated, and an error about the answer",
         "the host's own address",
         [packet(ipv4(host, B4, 17, query, df=1, ident=7), "forward", ipv4(host, B4, 17, query, df=1, ident=7, ttl=63)),
          packet(ipv4(host, B4, 1, icmp4(3, 3, ZERO, ipv4(B4, host, 17, answer, df=1))), "forward",
                 ipv4(host, B4, 1, icmp4(3, 3, ZERO, ipv4(B4, host, 17, answer, df=1)), ttl=63))],
         config="untranslated", service="nat44")
    stranger, remote = "2001:db8:bbbb::2", "64:ff9b::c633:6409"
    given = ipv6(stranger, remote, 17, udp(stranger, remote, 40000, 53, b"query"))
    case("not-inside", "RFC 4443 section 3.1", "from a host that is not one of those inside", "administratively prohibited",
         packet(given, "reply not-inside", error6(GW6, stranger, 1, 1, ZERO, given)),
         config="inside", service="nat64")


def policies():
    """What the file can change about errors."""
    about = ipv4(A4, B4, 17, udp(A4, B4, 40000, 53, data(1372))[:40], ttl=60, df=1, total=1400)
    about6 = ipv6(A6, B6, 17, udp(A6, B6, 40000, 53, data(1372))[:40], hops=60, length=1380)
    mapped4to6("plateaus-given", 3, 4, ZERO, 2, 0, u32(1320), "fragmentation needed from an old router",
               about=about, about6=about6, config="plateaus",
               why="the next of the given plateaus below 1400 is 1300, and 20 more")
    source = "2001:db8:9999::1"
    given = udp6(source, B6)
    case("refusal-silent", "RFC 7915 section 5.4", "an IPv6 host without IPv4 address, and nobody is told",
         "the file says that refusals are silent", packet(given, "drop untranslatable-address"), config="refusals-silent")
    expired = ipv4(B4, A4, 17, udp(B4, A4, 1, 2, b"x"), ttl=1)
    told = error4("192.0.2.254", B4, 11, 0, ZERO, expired, tos=0xC0)
    case("errors-limited", "RFC 4443 section 2.4 (f)", "three packets with TTL 1 at once, and one later",
         "two errors at once, ten a second",
         [packet(expired, "reply hop-limit-exceeded", told, any_identification=True),
          packet(expired, "reply hop-limit-exceeded", told, any_identification=True),
          packet(expired, "drop hop-limit-exceeded"),
          packet(expired, "reply hop-limit-exceeded", told, any_identification=True, at_ms=101)],
         config="refusals-silent")
    zero6 = ipv6(A6, B6, 17, udp(A6, B6, 4000, 5000, b"tunnel", checksum=0))
    zero4 = ipv4(A4, B4, 17, udp(A4, B4, 4000, 5000, b"tunnel", checksum=0), ttl=63)
    case("udp-zero-6to4-forward", "RFC 6935, RFC 7915", "an IPv6 datagram without checksum, where the file lets it pass",
         "as it is", packet(zero6, "forward", zero4, any_identification=True), config="zero-6to4")


def dynamic_pool():
    """A pool of 203.0.113.0/30: .0 is never lent, .1 is the gateway's, .2 is mapped, and so .3 is the one to lend."""
    clause = ""
    first, second, lent, own = "2001:db8:1::1", "2001:db8:1::2", "203.0.113.3", "203.0.113.1"
    hour = 3600 * 1000

    def out(host, verdict="forward"):
        step = udp6(host, B6)
        if verdict == "forward":
            return packet(step, verdict, udp4(lent, B4, ttl=63), any_identification=True)
        return packet(step, verdict, error6("2001:db8:ffff::1", host, 1, 3, ZERO, step))

    def back(host, at_ms=0):
        return packet(udp4(B4, lent), "forward", udp6(B6, host, hops=63), at_ms=at_ms)

    case("dynamic-pool", clause or "tayga.conf(5)", "two hosts and one address to lend",
         "the first has it; the second is told that there is none",
         [out(first), back(first), out(second, "reply pool-exhausted"), out(first), back(first)], config="dynamic")
    late = dict(out(second), at_ms=3 * hour)
    nobody = udp4(B4, lent)
    case("dynamic-pool-lease", clause or "tayga.conf(5)", "nobody uses the address for three hours",
         "packets from IPv4 are refused then, and another host may have it",
         [packet(nobody, "reply no-binding",
                 error4(own, B4, 3, 1, ZERO, nobody, tos=0xC0), any_identification=True),
          out(first), back(first),
          packet(nobody, "reply no-binding", error4(own, B4, 3, 1, ZERO, nobody, tos=0xC0), any_identification=True,
                 at_ms=3 * hour),
          late, back(second, 3 * hour)], config="dynamic")
    rest, body = echo_rest(3, 4), data(20)
    case("own-address-ping4", "RFC 1122 section 3.2.2.6", "an echo request to the gateway itself", "it answers",
         packet(error4(B4, own, 8, 0, rest, body), "echo-reply", error4(own, B4, 0, 0, rest, body, df=1),
                any_identification=True), config="dynamic")
    own6 = "2001:db8:ffff::1"
    case("own-address-ping6", "RFC 4443 section 4.2", "an ICMPv6 echo request to the gateway itself", "it answers",
         packet(error6(first, own6, 128, 0, rest, body), "echo-reply", error6(own6, first, 129, 0, rest, body)),
         config="dynamic")
    given = ipv6(first, own6, 60, bytes([47, 0, 1, 4, 0, 0, 0, 0]) + bytes(8))
    case("own-address-unknown-header", "RFC 8200 section 4", "GRE behind destination options to the gateway itself",
         "parameter problem 4/1 that points to the number, byte 40",
         packet(given, "reply unsupported-protocol", error6(own6, first, 4, 1, u32(40), given)), config="dynamic")
    given = udp6(first, own6)
    case("own-address-port", "RFC 4443 section 3.1", "a datagram to the gateway itself", "port unreachable",
         packet(given, "reply unsupported-protocol", error6(own6, first, 1, 4, ZERO, given)), config="dynamic")


def main():
    icmp_4to6()
    icmp_6to4()
    echoes()
    fragment_header_and_df()
    extension_headers_and_options()
    icmp_details()
    extensions()
    node_identification()
    addresses()
    embedded_prefixes()
    hairpins()
    hop_limits_and_transport()
    clat()
    segment_sizes()
    policies()
    dynamic_pool()
    map_cases.add_all()
    softwire_cases.add_all()
    transport_cases.add_all()
    pcp_cases.add_all()
    ftp_cases.add_all()
    clean()
    write()
    print(f"{len(CASES)} cases")


if __name__ == "__main__":
    # The cases of other files are made with this module's functions and kept in its list, so there must be one only.
    import make
    import map_cases
    make.map_cases = map_cases
    import softwire_cases
    make.softwire_cases = softwire_cases
    import transport_cases
    make.transport_cases = transport_cases
    import pcp_cases
    make.pcp_cases = pcp_cases
    import ftp_cases
    make.ftp_cases = ftp_cases
    make.main()
