//! A softwire of the kernel's (RFC 2473), as an interface of its own.
//!
//! Where the kernel has tunnels of IPv4 in IPv6, it is one. Where it has segment routing instead,
//! the same frames come of that: reduced encapsulation to one segment has no routing header (RFC
//! 8986 section 5.2), and `End.DX4` takes off what came. Packets that a route encapsulates do not
//! pass the hooks of nftables (unless by a setting of the whole machine that the kernel does not take
//! back), so these routes stand behind a cable of their own, whose near end is the interface:
//!
//! ```text
//!   nftables, routes -- softwire ====== softwire6 -- table 6: encapsulated -- outside0 or inside0
//!                                           \------------ End.DX4 ---------/
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tombolo_lab::{LabError, Namespace, Prefix};

/// The interface.
pub(super) const SOFTWIRE: &str = "softwire";
/// The other end of the cable, its table of routes, and who is behind it.
const FAR_END: &str = "softwire6";
const TABLE: &str = "6";
const NEXT_HOP: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
/// Of both ends of the cable, which so need no ARP.
const LINK_ADDRESS: &str = "02:00:00:00:00:06";

/// Lays it from one end to the other, with a host of the other end behind it.
pub(super) fn lay(gateway: &Namespace, own: Ipv6Addr, other: Ipv6Addr, host: Ipv4Addr) -> Result<(), LabError> {
    clear(gateway)?;
    gateway.set_up("lo")?;
    // Without the kernel's encapsulation limit, which is a header of its own (RFC 2473 section 4.1.1).
    let words = format!("-6 tunnel add {SOFTWIRE} mode ipip6 local {own} remote {other} encaplimit none");
    if gateway.command("ip").args(words.split(' ')).run()?.status.success() {
        ip(gateway, &format!("-6 address replace {own}/128 dev lo"))?;
    } else {
        by_segment_routing(gateway, own, other)?;
    }
    gateway.set_up(SOFTWIRE)?;
    gateway.add_interface_route(Prefix { address: IpAddr::V4(host), length: 32 }, SOFTWIRE)
}

fn by_segment_routing(gateway: &Namespace, own: Ipv6Addr, other: Ipv6Addr) -> Result<(), LabError> {
    let cable = format!(
        "link add {SOFTWIRE} address {LINK_ADDRESS} arp off type veth peer name {FAR_END} address {LINK_ADDRESS} arp off"
    );
    for words in [
        cable.as_str(),
        &format!("link set {SOFTWIRE} up"),
        &format!("link set {FAR_END} up"),
        &format!("sr tunsrc set {own}"),
        &format!("rule add iif {FAR_END} lookup {TABLE}"),
        &format!("route add default encap seg6 mode encap.red segs {other} dev {FAR_END} table {TABLE}"),
        &format!("route add {NEXT_HOP}/32 dev {FAR_END}"),
        &format!("-6 route add {own}/128 encap seg6local action End.DX4 nh4 {NEXT_HOP} dev {FAR_END}"),
    ] {
        ip(gateway, words)?;
    }
    // Connections are tracked at the near end, once.
    let rules = format!(
        "add table ip softwire; add chain ip softwire prerouting {{ type filter hook prerouting priority raw; }}; \
         add rule ip softwire prerouting iifname {FAR_END} notrack;"
    );
    gateway.command("nft").arg(rules).run()?.success().map(drop)
}

/// A start after a stop finds what the kernel still has.
fn clear(gateway: &Namespace) -> Result<(), LabError> {
    if gateway.command("ip").args(["link", "show", SOFTWIRE]).run()?.status.success() {
        ip(gateway, &format!("link delete {SOFTWIRE}"))?;
        // Of a tunnel there is none.
        gateway.command("ip").args(["rule", "delete", "iif", FAR_END, "lookup", TABLE]).run()?;
    }
    Ok(())
}

fn ip(gateway: &Namespace, words: &str) -> Result<(), LabError> {
    gateway.command("ip").args(words.split(' ')).run()?.success().map(drop)
}
