//! Starting a gateway in the `gateway` node of a lab with the standard client - gateway - server
//! topology: it stands between the client at 2001:db8:1::2 and 10.0.0.2 and the server at
//! 2001:db8:2::2 and 198.51.100.2. Pairs of gateways have a `cpe` node before that, and with it a
//! topology of their own ([`Kind::topology`]).
//!
//! One file a gateway. What differs between them is only how they start and under which addresses
//! the two sides see each other.

use std::time::Instant;

use tombolo_lab::{Lab, LabError};

mod ends;
mod iptables;
pub(super) mod jool;
mod napt;
mod nftables;
mod pair;
mod plain;
mod running;
mod softwire;
mod tayga;
mod tombolo;

pub use running::{Options, Running, STATIC_PORT, StartError};

use super::kind::Kind;

/// What this machine lacks of a gateway that not every machine has, and where it is to be had.
#[must_use]
pub fn missing(kind: Kind) -> Option<String> {
    match kind {
        Kind::Jool | Kind::JoolSiit => jool::missing(kind),
        _ => None,
    }
}

/// Starts the gateway in a lab and waits until it passes packets.
///
/// # Errors
/// [`StartError`], with the gateway's own words where it has said any.
pub fn start(kind: Kind, lab: &Lab, options: &Options) -> Result<Running, StartError> {
    let begun = Instant::now();
    let started = match kind {
        Kind::Plain => Ok(plain::ipv6()),
        Kind::Plain4 | Kind::PlainPair => Ok(plain::ipv4(kind)),
        Kind::Tombolo => tombolo::start(lab, options),
        Kind::Tayga => tayga::start(lab, options),
        Kind::TaygaNat => tayga::start_with_nat(lab, options),
        Kind::Iptables => iptables::start(lab),
        Kind::Nftables => nftables::start(lab, options),
        Kind::Jool | Kind::JoolSiit => jool::start(kind, lab),
        Kind::Xlat464 | Kind::DsLite | Kind::Lw4o6 | Kind::MapE | Kind::MapT => match kind.scenario() {
            Some(scenario) => pair::start(kind, &scenario, lab, options),
            None => Err(LabError::BadTopology { reason: format!("there is no scenario {kind}") }),
        },
    };
    let mut running = started.map_err(|source| StartError::Lab { kind, source })?;
    // Nobody but the other end understands what one end sends; the tester's own probe does.
    if !options.technology.is_one_end() {
        running.probe(lab)?;
    }
    running.started_in = begun.elapsed();
    Ok(running)
}
