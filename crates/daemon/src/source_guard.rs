//! Packets from inside come in where their senders are: `inside_interfaces` of the configuration, as
//! the kernel's rules have it ([`tombolo_io::netfilter`]).

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::{Ipv4Net, Ipv6Net};
use tombolo_config::{Host as HostSettings, InsideInterfaces, Provision};
use tombolo_engine::Plan;
use tombolo_engine::plan::Routed;
use tombolo_engine::side::Side;
use tombolo_io::netfilter::{Entrance, InsidePackets, SourceGuard};

use crate::health::Health;

/// The part of the gateway, in its health.
const PART: &str = "inside";

/// The guard of a running gateway; none where the kernel cannot, or nobody asked for it.
#[derive(Debug)]
pub struct Guard(Mutex<Option<SourceGuard>>);

impl Guard {
    /// Has the kernel look at what is routed to `device`. A kernel that cannot is a fault of the
    /// gateway's health: it serves as before.
    pub(crate) fn raise(settings: &HostSettings, device: &str, plan: &Plan, health: &Health) -> Self {
        let guard = Self(Mutex::new(None));
        guard.follow(settings, device, plan, health);
        guard
    }

    /// Goes by another plan, and other settings.
    pub(crate) fn follow(&self, settings: &HostSettings, device: &str, plan: &Plan, health: &Health) {
        let mut guard = self.lock();
        let done = match (guard.as_mut(), entrance(settings)) {
            (_, None) => {
                *guard = None;
                Ok(())
            }
            (Some(guard), Some(entrance)) => guard.follow(from_inside(plan), entrance),
            (None, Some(entrance)) => {
                SourceGuard::raise(device, from_inside(plan), entrance).map(|raised| *guard = Some(raised))
            }
        };
        let faults = done.map_err(|error| fault(&error)).err();
        health.set(PART, faults.into_iter().collect());
    }

    /// Packets that were dropped; `None` where nobody looks.
    pub fn dropped(&self) -> Option<u64> {
        self.lock().as_mut().and_then(|guard| guard.dropped().ok())
    }

    fn lock(&self) -> MutexGuard<'_, Option<SourceGuard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where packets from inside come in; `None` if it does not matter, as on a host that its administrator
/// sets up.
pub(crate) fn entrance(settings: &HostSettings) -> Option<Entrance> {
    match (&settings.inside_interfaces, &settings.provision) {
        (InsideInterfaces::Any, _) | (_, Provision::Administrator { .. }) => None,
        (InsideInterfaces::ByRoute, _) => Some(Entrance::ByRoute),
        (InsideInterfaces::Listed(names), _) => Some(Entrance::Listed(names.clone())),
    }
}

fn fault(error: &io::Error) -> String {
    format!(
        "nobody sees where packets from inside come in, so that others can send in their hosts' names: nf_tables: {error} (the kernel needs NF_TABLES_INET and NFT_FIB_INET; inside_interfaces = \"any\" does without)"
    )
}

/// Which packets the plan takes for packets from inside.
fn from_inside(plan: &Plan) -> InsidePackets {
    let mut packets = InsidePackets::default();
    for service in &plan.services {
        let Routed { ipv6, sources, .. } = service.kind.routed();
        packets.ipv4.extend(sources.iter().copied());
        match service.kind.shape().ipv4 {
            Side::Outside => packets.ipv6 |= !ipv6.is_empty(),
            Side::Inside => {
                packets.outside_ipv6.extend(ipv6.into_iter().filter_map(|(at, length)| Ipv6Net::new(at, length).ok()));
                if sources.is_empty() {
                    let all = Ipv4Net::default();
                    packets.ipv4.push((all.network(), all.broadcast()));
                }
            }
        }
    }
    packets
}
