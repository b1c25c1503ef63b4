//! Tayga 0.9.2, as Debian ships it: a stateless NAT64, so the client gets an IPv4 address of its
//! own (`map`), through which the server reaches it as well. Or a CLAT, which is the same the other
//! way round: the client's IPv4 address gets an IPv6 one, and the IPv4 Internet is the device's.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use tombolo_lab::{Lab, LabError, Prefix, topology::CLIENT_V6, topology::SERVER_V4};

use super::running::{Options, Running, STATIC_PORT};
use crate::gateway::addresses::{SIIT_PREFIX, embed};
use crate::gateway::kind::Kind;
use crate::gateway::technology::Technology;
use crate::machine;

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 0);
/// Tayga's own address, from which it sends ICMP errors.
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 14);

pub(super) fn start(lab: &Lab, options: &Options) -> Result<Running, LabError> {
    let directory = lab.directory()?;
    let file = directory.join("tayga.conf");
    let data = directory.display();
    let (prefix, length) = SIIT_PREFIX;
    let is_clat = options.technology == Technology::Clat;
    let (own, seen) = match is_clat {
        true => (options.addresses.inside_ipv4, options.addresses.inside_ipv6),
        false => (CLIENT, CLIENT_V6),
    };
    let configuration =
        format!("tun-device nat64\nipv4-addr {OWN}\nprefix {prefix}/{length}\nmap {own} {seen}\ndata-dir {data}\n");
    let action = || format!("write {}", file.display());
    fs::write(&file, configuration).map_err(|source| LabError::System { action: action(), source })?;

    let gateway = lab.node("gateway")?;
    let tayga = || gateway.command("tayga").arg("-c").arg(file.display().to_string());
    tayga().arg("--mktun").run()?.success()?;
    gateway.set_up("nat64")?;
    let its_own = match is_clat {
        true => [(options.addresses.outside_ipv4.into(), 32), (seen.into(), 128)],
        false => [(POOL.into(), 28), (prefix.into(), length)],
    };
    for (address, length) in its_own {
        gateway.add_interface_route(Prefix { address, length }, "nat64")?;
    }
    Ok(Running {
        kind: Kind::Tayga,
        version: format!("tayga {}", machine::package_version("tayga")),
        server_seen_by_client: embed(SIIT_PREFIX, SERVER_V4).into(),
        client_seen_by_server: Some(SocketAddrV4::new(CLIENT, STATIC_PORT)),
        started_in: Duration::ZERO,
        processes: vec![tayga().arg("--nodetach").spawn()?],
    })
}
