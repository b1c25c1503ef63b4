//! What a plan needs of the host, and the host's limits to a plan: routes to the device, sources
//! that are diverted to it, the addresses of ICMP errors, the MTU.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Net};
use tombolo_config::{Host as HostSettings, Provision};
use tombolo_engine::Plan;
use tombolo_engine::cluster::REDIRECTS_LENGTH;
use tombolo_engine::mapping::pool::PortRanges;
use tombolo_engine::plan::{AnsweredBy, Routed, ServiceKind, Standby};
use tombolo_io::host::{Announcement, Family, Host, HostError, Rank, Setting, SharedAddress};

use crate::own_address;

/// Prefixes that have to be routed to the device: from inside the services' IPv6 prefixes, from
/// outside the pools.
pub(crate) fn routes(plan: &Plan) -> Vec<IpNet> {
    let mut routes = Vec::new();
    for service in &plan.services {
        let routed = service.routed();
        routes.extend(
            routed.ipv6.iter().filter_map(|&(address, length)| Ipv6Net::new(address, length).ok().map(IpNet::from)),
        );
        // The host's own addresses are not routed away from it.
        let ipv4 = routed.unshared_ipv4().flat_map(|(first, last)| Ipv4Subnets::new(first, last, 0));
        match service.standby {
            Standby::Never => routes.extend(ipv4.map(IpNet::from)),
            _ => routes.extend(ipv4.flat_map(beside_default).map(IpNet::from)),
        }
    }
    let own = match plan.own.answered_by {
        AnsweredBy::Gateway => [plan.own.ipv4.map(IpAddr::from), plan.own.ipv6.map(IpAddr::from)],
        AnsweredBy::Host => [None, None],
    };
    let asked_at = plan.pcp.ipv4.iter().map(|at| IpAddr::V4(*at)).chain(plan.pcp.ipv6.iter().map(|at| IpAddr::V6(*at)));
    for address in own.into_iter().flatten().chain(asked_at) {
        if !routes.iter().any(|route| route.contains(&address)) {
            routes.push(address.into());
        }
    }
    routes.extend(plan.cluster.as_deref().and_then(|cluster| redirects(cluster.locator())));
    routes
}

/// What packets go to that are redirected to the node with this locator.
pub(crate) fn redirects(locator: Ipv6Addr) -> Option<IpNet> {
    Ipv6Net::new(locator, REDIRECTS_LENGTH).ok().map(IpNet::from)
}

/// What routers are to bring here, unless the gateway could not send it on. One that is drained, by itself or by the cluster, is the entrance of
/// nothing, but what it owns nobody else can serve.
fn announced(settings: &HostSettings, plan: &Plan) -> Option<Announcement> {
    let cluster = plan.cluster.as_deref().filter(|cluster| cluster.is_connected())?;
    let mut prefixes: Vec<(IpNet, Rank)> = of_slices(plan, |slice| {
        let epoch = cluster.epoch_of(slice);
        let copied = (cluster.has_copies() && cluster.backs_up(slice)).then_some(Rank::Backup { epoch });
        if cluster.owns(slice) { Some(Rank::Owner { epoch }) } else { copied }
    })
    .collect();
    if plan.times.draining_since.is_none() && cluster.is_entrance() {
        let own: Vec<IpNet> = prefixes.iter().map(|(prefix, _)| *prefix).collect();
        let others = routes(plan).into_iter().filter(|prefix| !own.contains(prefix));
        let entrance = if cluster.is_in_doubt() { Rank::LastEntrance } else { Rank::Entrance };
        prefixes.extend(others.map(|prefix| (prefix, rank(plan, prefix, entrance))));
        // Hosts inside a NAT44 send to everywhere.
        if plan.services.iter().any(|service| !service.routed().sources.is_empty()) {
            prefixes.push((IpNet::from(Ipv4Net::default()), entrance));
        }
    } else if !prefixes.is_empty() {
        prefixes.extend(redirects(cluster.locator()).map(|prefix| (prefix, Rank::Entrance)));
    }
    let table = settings.cluster.as_ref().filter(|_| !prefixes.is_empty())?.table;
    Some(Announcement { table, prefixes })
}

/// The outside addresses of the slices that have a rank, with that; those of each slice by themselves, so that owner and
/// backup announce the same.
fn of_slices(plan: &Plan, rank: impl Fn(u16) -> Option<Rank>) -> impl Iterator<Item = (IpNet, Rank)> {
    let pools = plan.services.iter().filter_map(|service| service.kind.pool()?.slices());
    let runs = pools.flat_map(move |slices| {
        let ranked: Vec<(u16, Rank)> =
            (0..slices.slicing().count()).filter_map(|slice| Some((slice, rank(slice)?))).collect();
        ranked.into_iter().flat_map(move |(slice, rank)| slices.runs(slice).map(move |run| (run, rank)))
    });
    runs.flat_map(|((first, last), rank)| Ipv4Subnets::new(first, last, 0).map(move |net| (IpNet::from(net), rank)))
}

/// What a route of the plan is in the cluster: the pools are their owners', slice by slice, and all else is an `entrance`.
fn rank(plan: &Plan, prefix: IpNet, entrance: Rank) -> Rank {
    let IpAddr::V4(address) = prefix.addr() else { return entrance };
    let is_divided = plan
        .services
        .iter()
        .any(|service| service.kind.pool().is_some_and(|pool| pool.slice_of_address(address).is_some()));
    if is_divided { Rank::LastResort } else { entrance }
}

/// A route that leaves the place of the default route to native IPv4, which may come at any time, or stay when its link
/// is down: everything in two halves.
fn beside_default(prefix: Ipv4Net) -> impl Iterator<Item = Ipv4Net> {
    let length = prefix.prefix_len().max(1);
    prefix.subnets(length).into_iter().flatten()
}

/// What a plan needs of the host that the gateway sets up; nothing where the administrator does.
pub(crate) fn setting(settings: &HostSettings, plan: &Plan) -> Option<Setting> {
    if !matches!(settings.provision, Provision::Gateway) {
        return None;
    }
    let Diversion { sources, exempt } = diversions(plan).unwrap_or_default();
    let addresses = settings.addresses.iter().copied().map(IpAddr::from).collect();
    let reserved = own_address::reserved(&settings.shared_pools);
    let returns = plan.services.iter().any(|service| service.routed().returns);
    let (routes, shared, answers) = (routes(plan), shared(plan), settings.proxy_neighbours);
    let announced = announced(settings, plan);
    Some(Setting { addresses, routes, sources, exempt, shared, returns, reserved, answers, announced })
}

/// The host's own addresses, as far as their ports are the gateway's.
fn shared(plan: &Plan) -> Vec<SharedAddress> {
    let shared = plan.services.iter().flat_map(|service| service.routed().shared);
    let ports = |(address, [tcp, udp, _]): (Ipv4Addr, [PortRanges; 3])| SharedAddress {
        address,
        tcp: tcp.ranges().to_vec(),
        udp: udp.ranges().to_vec(),
    };
    shared.map(ports).collect()
}

/// What the device does not take is not sent: it stands for the links on both sides.
pub(crate) fn limit_to(plan: &mut Plan, mtu: u32) {
    for service in &mut plan.services {
        if let ServiceKind::Siit(siit) = &mut service.kind {
            siit.translate.ipv4_mtu = mtu;
            siit.translate.ipv6_mtu = mtu.max(1280);
        }
    }
}

/// Packets that have to reach the device for their sources.
#[derive(Default)]
pub(crate) struct Diversion {
    pub(crate) sources: Vec<IpNet>,
    pub(crate) exempt: Vec<IpNet>,
}

/// The hosts inside of all services that have IPv4 there; `None` if no service has.
pub(crate) fn diversions(plan: &Plan) -> Option<Diversion> {
    let subnets = |ranges: Vec<(Ipv4Addr, Ipv4Addr)>| {
        ranges.into_iter().flat_map(|(first, last)| Ipv4Subnets::new(first, last, 0)).map(IpNet::from)
    };
    let mut diversion = Diversion { sources: Vec::new(), exempt: Vec::new() };
    for service in &plan.services {
        let Routed { sources, exempt, .. } = service.routed();
        diversion.sources.extend(subnets(sources));
        diversion.exempt.extend(subnets(exempt));
    }
    (!diversion.sources.is_empty()).then_some(diversion)
}

/// Gives the plan the addresses that errors are sent from, where the configuration names none.
pub(crate) fn with_own_addresses(plan: &mut Plan, host: &mut Host, device: &str) -> Result<(), HostError> {
    if plan.own.ipv4.is_none()
        && let Some(IpAddr::V4(address)) = host.icmp_source(Family::Ipv4, device)?
        && !address.is_loopback()
    {
        plan.own.ipv4 = Some(address);
    }
    if plan.own.ipv6.is_none()
        && let Some(IpAddr::V6(address)) = host.icmp_source(Family::Ipv6, device)?
    {
        plan.own.ipv6 = Some(address);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// n1 owns slice 0, n2 slice 1; nobody has copies.
    const TWO_NODES: &str = r#"
[cluster]
node = "n1"
nodes = { n1 = "2001:db8:c1:1::/64", n2 = "2001:db8:c1:2::/64" }

[cluster.slices]
count  = 2
secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
owners = [{ slices = "0", owner = "n1" }, { slices = "1", owner = "n2" }]

[[service]]
kind   = "nat44"
inside = ["10.0.0.0/8"]
pool   = [{ addresses = "198.51.100.0/31", ports = "1024-2047" }]
allocation = { mode = "blocks", block_size = 64, blocks = 1 }
"#;

    #[test]
    fn a_node_that_is_no_entrance_announces_what_it_owns_and_how_it_is_reached() {
        let configuration = tombolo_config::parse("test.toml", TWO_NODES).unwrap();
        let mut plan = configuration.plan;
        let cluster = Arc::into_inner(plan.cluster.take().unwrap()).unwrap().with_agreement();
        let cluster = Arc::new(cluster);
        plan.cluster = Some(Arc::clone(&cluster));
        let told = || announced(&configuration.host, &plan).map(|announcement| announcement.prefixes);
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        cluster.set_entrance(true);
        assert_eq!(told(), None, "what comes could not go on");
        cluster.set_connected(true);
        let own = (net("198.51.100.0/32"), Rank::Owner { epoch: cluster.epoch_of(0) });
        let reached = (redirects(cluster.locator()).unwrap(), Rank::Entrance);
        let everywhere = (net("0.0.0.0/0"), Rank::Entrance);
        let all = told().unwrap();
        assert!([own, reached, everywhere].iter().all(|prefix| all.contains(prefix)), "{all:?}");
        cluster.set_entrance(false);
        assert_eq!(told(), Some(vec![own, reached]));
        cluster.assign(0, cluster.assigned(1));
        assert_eq!(told(), None, "it owns nothing any more");
    }
}
