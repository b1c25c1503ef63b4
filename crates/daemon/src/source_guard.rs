//! Packets from inside come in where their senders are: `inside_interfaces` of the gateway and of single
//! services, as the kernel's rules have it ([`tombolo_io::netfilter`]).

use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::net::if_::if_nametoindex;
use tombolo_config::{Host as HostSettings, InsideInterfaces, Provision};
use tombolo_engine::Plan;
use tombolo_engine::mechanism::napt::KnownBy;
use tombolo_engine::plan::{Routed, Service};
use tombolo_engine::side::Side;
use tombolo_io::netfilter::{Entrance, Entrances, InsidePackets, ServicePackets, SourceGuard};
use tombolo_io::netlink::egress;

use crate::health::Health;
use crate::provision::redirects;

/// The part of the gateway, in its health.
const PART: &str = "inside";
/// Stands for what nodes of the cluster redirect here; no service can have this name.
const NODES: &str = "NODES";

/// The guard of a running gateway; none where the kernel cannot, or nobody asked for it.
#[derive(Debug)]
pub struct Guard {
    raised: Mutex<Option<SourceGuard>>,
    /// By which it goes, also where the kernel cannot.
    entrances: Mutex<Entrances>,
}

impl Guard {
    /// Has the kernel look at what is routed to `device`. A kernel that cannot is a fault of the
    /// gateway's health: it serves as before.
    pub(crate) fn raise(settings: &HostSettings, device: &str, plan: &Plan, health: &Health) -> Self {
        let guard = Self { raised: Mutex::new(None), entrances: Mutex::default() };
        guard.follow(settings, device, plan, health);
        guard
    }

    /// Goes by another plan, and other settings.
    pub(crate) fn follow(&self, settings: &HostSettings, device: &str, plan: &Plan, health: &Health) {
        let mut guard = self.lock();
        let entrances = entrances(settings);
        let own = entrances.clone();
        let packets = from_inside(plan, &entrances);
        let done = match guard.as_mut() {
            _ if entrances.are_open() => {
                *guard = None;
                Ok(())
            }
            Some(guard) => guard.follow(packets, entrances),
            None => SourceGuard::raise(device, packets, entrances).map(|raised| *guard = Some(raised)),
        };
        let faults = done.map_err(|error| fault(&error)).err();
        health.set(PART, faults.into_iter().collect());
        *self.entrances() = own;
    }

    /// Packets that were dropped; `None` where nobody looks.
    pub fn dropped(&self) -> Option<u64> {
        self.lock().as_mut().and_then(|guard| guard.dropped().ok())
    }

    fn lock(&self) -> MutexGuard<'_, Option<SourceGuard>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entrances(&self) -> MutexGuard<'_, Entrances> {
        self.entrances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a packet from `source`, which is inside `service`, may come in by interface number `interface`: for packets
    /// that are not routed to the device, where the kernel looks.
    pub(crate) fn admits(&self, service: &str, source: IpAddr, interface: u32) -> bool {
        match self.entrances().of(service) {
            None => true,
            Some(Entrance::ByRoute) => egress(source).is_ok_and(|way| way == Some(interface)),
            Some(Entrance::Listed(names)) => {
                names.iter().any(|name| if_nametoindex(name.as_str()).is_ok_and(|index| index == interface))
            }
        }
    }

    /// The interfaces that packets from inside come in by, where they are listed.
    pub(crate) fn listed(&self) -> Option<Vec<String>> {
        let entrances = self.entrances();
        let of_services = entrances.own.iter().filter(|(name, _)| *name != NODES).filter_map(|(_, own)| own.as_ref());
        let all = entrances.others.iter().chain(of_services);
        let listed = all.filter_map(|entrance| match entrance {
            Entrance::Listed(names) => Some(names.clone()),
            Entrance::ByRoute => None,
        });
        let listed: Vec<String> = listed.flatten().collect();
        (!listed.is_empty()).then_some(listed)
    }
}

/// Where packets from inside come in. It does not matter on a host that its administrator sets up.
pub(crate) fn entrances(settings: &HostSettings) -> Entrances {
    match settings.provision {
        Provision::Administrator { .. } => Entrances::default(),
        Provision::Gateway => {
            let services = settings.service_interfaces.iter().map(|(name, said)| (name.clone(), entrance(said)));
            let nodes = settings.cluster.iter().map(|cluster| (NODES.to_owned(), entrance(&cluster.core)));
            Entrances { others: entrance(&settings.inside_interfaces), own: services.chain(nodes).collect() }
        }
    }
}

/// Where packets come in that other nodes of the cluster redirect; likewise.
pub(crate) fn core(settings: &HostSettings) -> Option<Entrance> {
    entrances(settings).of(NODES).cloned()
}

fn entrance(said: &InsideInterfaces) -> Option<Entrance> {
    match said {
        InsideInterfaces::Any => None,
        InsideInterfaces::ByRoute => Some(Entrance::ByRoute),
        InsideInterfaces::Listed(names) => Some(Entrance::Listed(names.clone())),
    }
}

fn fault(error: &io::Error) -> String {
    format!(
        "nobody sees where packets from inside come in, so that others can send in their hosts' names: nf_tables: {error} (the kernel needs NF_TABLES_INET and NFT_FIB_INET; inside_interfaces = \"any\" does without)"
    )
}

/// Which packets the plan takes for packets from inside.
fn from_inside(plan: &Plan, entrances: &Entrances) -> InsidePackets {
    let mut packets = InsidePackets::default();
    if let Some(IpNet::V6(redirects)) = plan.cluster.as_deref().and_then(|cluster| redirects(cluster.locator())) {
        packets.apart.push(ServicePackets { service: NODES.to_owned(), ipv6: vec![redirects], ipv4: Vec::new() });
    }
    for service in &plan.services {
        let Routed { ipv6, sources, .. } = service.kind.routed();
        let ipv6 = ipv6.into_iter().filter_map(|(at, length)| Ipv6Net::new(at, length).ok());
        let mut inside = ServicePackets { service: service.name.clone(), ipv6: Vec::new(), ipv4: sources };
        match service.kind.shape().ipv4 {
            Side::Outside => inside.ipv6.extend(ipv6.chain(asked_at(plan, service))),
            Side::Inside => {
                packets.outside_ipv6.extend(ipv6);
                if inside.ipv4.is_empty() {
                    let all = Ipv4Net::default();
                    inside.ipv4.push((all.network(), all.broadcast()));
                }
            }
        }
        if entrances.own.contains_key(&service.name) {
            packets.apart.push(inside);
        } else {
            packets.ipv6 |= !inside.ipv6.is_empty();
            packets.ipv4.extend(inside.ipv4);
            packets.apart.extend(within_others(service).filter(|_| !entrances.own.is_empty()));
        }
    }
    packets
}

/// Where hosts inside a service ask for ports.
fn asked_at(plan: &Plan, service: &Service) -> Vec<Ipv6Net> {
    let takes = service.kind.hosts_known_by() == KnownBy::Ipv6
        && service.kind.nat().is_some_and(|nat| nat.policy.pcp.is_some());
    if takes { plan.pcp.ipv6.iter().copied().map(Ipv6Net::from).collect() } else { Vec::new() }
}

/// What a service without an entrance of its own may have in the prefix of one that has one, which stands behind it.
fn within_others(service: &Service) -> Option<ServicePackets> {
    let prefix = service.kind.pref64().and_then(|prefix| Ipv6Net::new(prefix.address(), prefix.length()).ok())?;
    let is_inside = service.kind.shape().ipv4 == Side::Outside;
    is_inside.then(|| ServicePackets { service: service.name.clone(), ipv6: vec![prefix], ipv4: Vec::new() })
}
