//! The kernel's stateful NAT44 by nftables: masquerade on the outside interface. With a tunnel of
//! the kernel's (RFC 2473) it is one end of a softwire: a B4 translates nothing, an AFTR with one B4
//! translates what comes out of its tunnel, and an lwB4 translates to its ports before it goes in.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tombolo_lab::{Lab, LabError, Namespace, Prefix, topology::SERVER_V4};

use super::running::{Options, Running};
use crate::gateway::addresses::Addresses;
use crate::gateway::kind::Kind;
use crate::gateway::technology::Technology;
use crate::machine;

/// The tunnel's device.
const SOFTWIRE: &str = "softwire";

pub(super) fn start(lab: &Lab, options: &Options) -> Result<Running, LabError> {
    let gateway = lab.node("gateway")?;
    let addresses = &options.addresses;
    let (customer, provider) = (addresses.inside_ipv6, addresses.softwire_concentrator);
    match options.technology {
        Technology::B4 => tunnel(gateway, customer, provider, addresses.outside_ipv4)?,
        Technology::Aftr => {
            tunnel(gateway, provider, customer, addresses.inside_ipv4)?;
            translate(gateway, "oifname outside0 masquerade")?;
        }
        Technology::Lwb4 => {
            tunnel(gateway, customer, provider, addresses.outside_ipv4)?;
            let (ipv4, ports) = contiguous_ports(addresses);
            translate(gateway, &format!("oifname {SOFTWIRE} meta l4proto udp snat to {ipv4}:{ports}"))?;
        }
        _ => translate(gateway, "oifname outside0 masquerade")?,
    }
    Ok(Running {
        kind: Kind::Nftables,
        version: machine::version_of("nft", &["--version"]),
        server_seen_by_client: SERVER_V4.into(),
        client_seen_by_server: None,
        started_in: Duration::ZERO,
        processes: Vec::new(),
    })
}

fn translate(gateway: &Namespace, rule: &str) -> Result<(), LabError> {
    let nft = |arguments: &[&str]| gateway.command("nft").args(arguments.iter().copied()).run()?.success().map(drop);
    nft(&["add", "table", "ip", "nat"])?;
    nft(&["add", "chain", "ip", "nat", "postrouting", "{ type nat hook postrouting priority srcnat; }"])?;
    nft(&["add", "rule", "ip", "nat", "postrouting", rule])
}

/// A softwire from one end to the other, with the hosts of the other end behind it.
fn tunnel(gateway: &Namespace, own: Ipv6Addr, other: Ipv6Addr, host: Ipv4Addr) -> Result<(), LabError> {
    let ip = |words: &str| gateway.command("ip").args(words.split(' ')).run()?.success().map(drop);
    // A start after a stop finds what the kernel still has.
    if gateway.command("ip").args(["link", "show", SOFTWIRE]).run()?.status.success() {
        ip(&format!("link delete {SOFTWIRE}"))?;
    }
    ip(&format!("-6 address replace {own}/128 dev lo"))?;
    gateway.set_up("lo")?;
    // Without the kernel's encapsulation limit, which is a header of its own (RFC 2473 section 4.1.1).
    ip(&format!("-6 tunnel add {SOFTWIRE} mode ipip6 local {own} remote {other} encaplimit none"))?;
    gateway.set_up(SOFTWIRE)?;
    gateway.add_interface_route(Prefix { address: host.into(), length: 32 }, SOFTWIRE)
}

/// The address of an lwB4, and its ports, which lie side by side.
fn contiguous_ports(addresses: &Addresses) -> (Ipv4Addr, String) {
    let rule = &addresses.rule;
    let (ipv4, psid) = rule.share(addresses.edge);
    let first = u32::from(psid) << rule.contiguous_bits();
    (ipv4, format!("{first}-{}", first + rule.ports_per_subscriber() - 1))
}
