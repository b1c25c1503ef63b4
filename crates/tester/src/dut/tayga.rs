//! Tayga 0.9.2, as Debian ships it: a stateless NAT64, so the client gets an IPv4 address of its
//! own (`map`), through which the server reaches it as well.
//!
//! The prefix is not 64:ff9b::/96: Tayga follows RFC 6052 section 3.1 to the letter and refuses to
//! represent non-global IPv4 addresses under the well-known prefix, and documentation addresses are
//! such.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV4},
    time::Duration,
};

use tombolo_lab::{Lab, LabError, Prefix, topology::CLIENT_V6, topology::SERVER_V4};

use super::{Dut, Gateway, STATIC_PORT};
use crate::machine;

const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 0);
/// Tayga's own address, from which it sends ICMP errors.
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 14);

pub(super) fn start(lab: &Lab) -> Result<Gateway, LabError> {
    let directory = lab.directory()?;
    let file = directory.join("tayga.conf");
    let data = directory.display();
    let configuration =
        format!("tun-device nat64\nipv4-addr {OWN}\nprefix {PREFIX}/96\nmap {CLIENT} {CLIENT_V6}\ndata-dir {data}\n");
    let action = || format!("write {}", file.display());
    fs::write(&file, configuration).map_err(|source| LabError::System { action: action(), source })?;

    let gateway = lab.node("gateway")?;
    let tayga = || gateway.command("tayga").arg("-c").arg(file.display().to_string());
    tayga().arg("--mktun").run()?.success()?;
    gateway.set_up("nat64")?;
    gateway.add_interface_route(Prefix { address: POOL.into(), length: 28 }, "nat64")?;
    gateway.add_interface_route(Prefix { address: PREFIX.into(), length: 96 }, "nat64")?;
    Ok(Gateway {
        dut: Dut::Tayga,
        version: format!("tayga {}", machine::package_version("tayga")),
        server_seen_by_client: embed(SERVER_V4).into(),
        client_seen_by_server: Some(SocketAddrV4::new(CLIENT, STATIC_PORT)),
        started_in: Duration::ZERO,
        processes: vec![tayga().arg("--nodetach").spawn()?],
    })
}

/// The IPv6 address that stands for an IPv4 address under [`PREFIX`], a /96 (RFC 6052 section 2.2).
pub(super) fn embed(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(PREFIX) | u128::from(u32::from(address)))
}
