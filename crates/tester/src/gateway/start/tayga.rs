//! Tayga 0.9.2, as Debian ships it: a stateless NAT64, so the client gets an IPv4 address of its
//! own (`map`), through which the server reaches it as well. Or a CLAT, which is the same the other
//! way round: the client's IPv4 address gets an IPv6 one, and the IPv4 Internet is the device's.
//!
//! With the kernel's NAPT beside it (`tayga-nat`) it is what it is mostly run as, a stateful NAT64:
//! hosts get addresses of a private pool, and the kernel hides these. Or a customer's edge of MAP-T:
//! the kernel translates to the customer's ports, Tayga to IPv6.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use tombolo_lab::{Lab, LabError, Prefix, topology::CLIENT_V6, topology::SERVER_V4};

use super::napt;
use super::running::{Options, Running, STATIC_PORT};
use crate::gateway::addresses::{SIIT_PREFIX, embed};
use crate::gateway::kind::Kind;
use crate::gateway::technology::Technology;
use crate::machine;

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 0);
/// Tayga's own address, from which it sends ICMP errors.
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 14);
const DEVICE: &str = "nat64";
/// What hosts get that the kernel hides, and Tayga's own address there.
const HIDDEN: (Ipv4Addr, u8) = (Ipv4Addr::new(100, 127, 0, 0), 16);
const HIDDEN_OWN: Ipv4Addr = Ipv4Addr::new(100, 127, 0, 1);

/// Without state.
pub(super) fn start(lab: &Lab, options: &Options) -> Result<Running, LabError> {
    let (prefix, length) = SIIT_PREFIX;
    let is_clat = options.technology == Technology::Clat;
    let (own, seen) = match is_clat {
        true => (options.addresses.inside_ipv4, options.addresses.inside_ipv6),
        false => (CLIENT, CLIENT_V6),
    };
    let its_own = match is_clat {
        true => [(options.addresses.outside_ipv4.into(), 32), (seen.into(), 128)],
        false => [(POOL.into(), 28), (prefix.into(), length)],
    };
    let configuration = format!("ipv4-addr {OWN}\nprefix {prefix}/{length}\nmap {own} {seen}\n");
    let running = run(lab, Kind::Tayga, &configuration, &its_own)?;
    Ok(Running { client_seen_by_server: Some(SocketAddrV4::new(CLIENT, STATIC_PORT)), ..running })
}

/// With the kernel's NAPT.
pub(super) fn start_with_nat(lab: &Lab, options: &Options) -> Result<Running, LabError> {
    let gateway = lab.node("gateway")?;
    let addresses = &options.addresses;
    if options.technology == Technology::MapTCe {
        let ((prefix, length), seen) = (addresses.translation_prefix, addresses.map_address());
        let (shared, _) = addresses.rule.share(addresses.edge);
        napt::to_ports_of_customer(gateway, DEVICE, addresses)?;
        let configuration = format!("ipv4-addr {HIDDEN_OWN}\nprefix {prefix}/{length}\nmap {shared} {seen}\n");
        return run(lab, Kind::TaygaNat, &configuration, &[(addresses.outside_ipv4.into(), 32), (seen.into(), 128)]);
    }
    let ((prefix, length), (hidden, bits)) = (SIIT_PREFIX, HIDDEN);
    napt::masquerade(gateway, "outside0")?;
    let configuration = format!("ipv4-addr {HIDDEN_OWN}\nprefix {prefix}/{length}\ndynamic-pool {hidden}/{bits}\n");
    run(lab, Kind::TaygaNat, &configuration, &[(hidden.into(), bits), (prefix.into(), length)])
}

/// Starts it with what is its own routed to it.
fn run(lab: &Lab, kind: Kind, configuration: &str, its_own: &[(IpAddr, u8)]) -> Result<Running, LabError> {
    let directory = lab.directory()?;
    let file = directory.join("tayga.conf");
    let text = format!("tun-device {DEVICE}\ndata-dir {}\n{configuration}", directory.display());
    let action = || format!("write {}", file.display());
    fs::write(&file, text).map_err(|source| LabError::System { action: action(), source })?;

    let gateway = lab.node("gateway")?;
    let tayga = || gateway.command("tayga").arg("-c").arg(file.display().to_string());
    tayga().arg("--mktun").run()?.success()?;
    gateway.set_up(DEVICE)?;
    for (address, length) in its_own {
        gateway.add_interface_route(Prefix { address: *address, length: *length }, DEVICE)?;
    }
    Ok(Running {
        kind,
        version: format!("tayga {}", machine::package_version("tayga")),
        server_seen_by_client: embed(SIIT_PREFIX, SERVER_V4).into(),
        client_seen_by_server: None,
        started_in: Duration::ZERO,
        processes: vec![tayga().arg("--nodetach").spawn()?],
    })
}
