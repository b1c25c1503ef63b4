//! The kernel's stateful NAT44 by nftables: masquerade on the outside interface. With a softwire of
//! the kernel's it is one end of one: a B4 translates nothing, an AFTR with one B4 translates what
//! comes out of its softwire, and an lwB4 and a customer's edge of MAP-E translate to their ports
//! before it goes in.

use std::time::Duration;

use tombolo_lab::{Lab, LabError, topology::SERVER_V4};

use super::napt;
use super::running::{Options, Running};
use super::softwire::{self, SOFTWIRE};
use crate::gateway::kind::Kind;
use crate::gateway::technology::Technology;
use crate::machine;

pub(super) fn start(lab: &Lab, options: &Options) -> Result<Running, LabError> {
    let gateway = lab.node("gateway")?;
    let addresses = &options.addresses;
    let (customer, provider) = (addresses.inside_ipv6, addresses.softwire_concentrator);
    match options.technology {
        Technology::B4 => softwire::lay(gateway, customer, provider, addresses.outside_ipv4)?,
        Technology::Aftr => {
            softwire::lay(gateway, provider, customer, addresses.inside_ipv4)?;
            napt::masquerade(gateway, "outside0")?;
        }
        Technology::Lwb4 => {
            softwire::lay(gateway, customer, provider, addresses.outside_ipv4)?;
            napt::to_ports_of_customer(gateway, SOFTWIRE, addresses)?;
        }
        Technology::MapECe => {
            softwire::lay(gateway, addresses.map_address(), provider, addresses.outside_ipv4)?;
            napt::to_ports_of_customer(gateway, SOFTWIRE, addresses)?;
        }
        _ => napt::masquerade(gateway, "outside0")?,
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
