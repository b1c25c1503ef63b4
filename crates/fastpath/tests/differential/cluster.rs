//! Clusters: tables of slices that change all the time, nodes that come and go, and packets that other nodes have
//! redirected. The plans of other cases, their pools cut into slices; and the way to the engine with its two hops.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_engine::cluster::{Assigned, Cluster, Granting, Holders, Node};
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::{PoolRange, PortSpace};
use tombolo_engine::mapping::slices::{PoolSlices, Slicing};
use tombolo_engine::mechanism::napt::{Nat, Policy};
use tombolo_engine::{Now, Plan};
use tombolo_fastpath::Settings;
use tombolo_tables::binding::flags;
use tombolo_tables::subscriber::SubscriberKey;
use tombolo_tables::tick::Tick;

use crate::compare::{verifies, write_ipv4_checksum};
use crate::packets::{self, Numbers};
use crate::plans::{self, Case};
use crate::portions;
use crate::softwires::{self, REMOTE};
use crate::world::{World, tick};

const SECRET: [u64; 4] = [0x0123_4567_89ab_cdef, 0x1357_9bdf_0246_8ace, 0xdead_beef_cafe_f00d, 42];
const SLICES: u16 = 8;
/// The number of the node that the programs are of, and how many there are.
const OWN: u8 = 1;
const NODES: u8 = 4;
/// Addresses of each range: those of a slice are two, but where ranges are of another length.
const ADDRESSES: u32 = 16;

pub(crate) fn cases() -> Vec<Case> {
    let plain = Policy::default();
    let (shares, prefixes, turns) = ("nat44, shares", "nat64, shares of prefixes", "nat44, shares in turn");
    let portioned = |name: &str| portions::cases().into_iter().find(|case| case.0 == name).unwrap();
    let softwire = |name: &str| softwires::cases().into_iter().find(|case| case.0 == name).unwrap();
    vec![
        divided("cluster: nat64 and nat44", plans::both_case("", [3, 1], plain), ADDRESSES),
        divided("cluster: nat64, uneven runs", plans::round_case(""), 11),
        divided("cluster: nat64, subscribers are prefixes", portioned("nat64, subscribers are prefixes"), ADDRESSES),
        divided("cluster: nat44, blocks", portioned("nat44, blocks"), ADDRESSES),
        shared("cluster: nat44, shares", portioned(shares)),
        shared("cluster: nat44, shares in turn", portioned(turns)),
        shared("cluster: nat64, shares of prefixes", portioned(prefixes)),
        divided("cluster: aftr", softwire("aftr"), ADDRESSES),
        divided("cluster: aftr, blocks", softwire("aftr, blocks"), ADDRESSES),
        // Nobody says by which interfaces nodes redirect.
        divided("cluster: softwires in headers", softwire("aftr"), ADDRESSES),
    ]
}

/// The same case, the pools of which have `addresses` in each range and are cut into slices.
fn divided(name: &'static str, (_, mut plan, build): Case, addresses: u32) -> Case {
    let mut first_slot = 0;
    for service in &mut plan.services {
        let Some(nat) = service.kind.nat_mut() else { continue };
        let ranges: Vec<PoolRange> = nat
            .pool
            .ranges()
            .iter()
            .map(|range| {
                let last = Ipv4Addr::from_bits(range.first.to_bits() + addresses - 1);
                let range = PoolRange { last, first_slot, ..range.clone() };
                first_slot += range.slots().unwrap();
                range
            })
            .collect();
        nat.pool = nat.pool.with_ranges(ranges);
        cut(nat);
    }
    plan.capacity.outside_slots = plan.outside_slots().unwrap();
    with_cluster(name, plan, build)
}

/// The same of computed shares, which stay as they are.
fn shared(name: &'static str, (_, mut plan, build): Case) -> Case {
    cut(plan.services[0].kind.nat_mut().unwrap());
    with_cluster(name, plan, build)
}

/// Cuts a pool into slices. Who has a static binding has that address's; and some have one that they were given.
fn cut(nat: &mut Nat) {
    let ranges = nat.pool.ranges().iter().map(|range| (range.first, range.last));
    let mut slices = PoolSlices::new(Slicing::new(SECRET, SLICES).unwrap(), ranges);
    for binding in &nat.static_bindings {
        let slice = slices.of_address(binding.outside.address).unwrap();
        slices.pin(&nat.policy.subscriber.key(&binding.key(0)), slice).unwrap();
    }
    if !matches!(nat.pool.allocation(), Allocation::Deterministic(_)) {
        let given: [(&str, [u8; 4]); 3] =
            [("::", [10, 0, 0, 3]), ("2001:db8:1::4", [0; 4]), ("2001:db8:1000:100::", [0; 4])];
        for (slice, (ipv6, ipv4)) in (4..).zip(given) {
            let ipv6 = ipv6.parse::<Ipv6Addr>().unwrap().octets();
            slices.pin(&SubscriberKey { ipv6, ipv4, service: 0 }, slice).unwrap();
        }
    }
    nat.pool = nat.pool.clone().with_slices(slices);
}

fn with_cluster(name: &'static str, mut plan: Plan, build: Build) -> Case {
    let cluster = cluster(&[Holders { owner: OWN, backup: None }; SLICES as usize], 0, name.contains("aftr"));
    plan.cluster = Some(Arc::new(cluster));
    // Half of them copy their tables.
    if name.len().is_multiple_of(2) {
        plan.times = plan.times.with_copies();
    }
    let build = move |numbers: &mut Numbers, world: &World| {
        let frame = build(numbers, world);
        redirected(numbers, frame)
    };
    (name, plan, Box::new(build))
}

type Build = Box<dyn Fn(&mut Numbers, &World) -> Vec<u8>>;

fn locator(node: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xc1, u16::from(node) + 1, 0, 0, 0, 0)
}

/// A cluster with these holders; `serving` has a bit for each node that serves.
fn cluster(holders: &[Holders], serving: u64, takes_softwires: bool) -> Cluster {
    let nodes = (0..NODES).map(|node| Node { name: format!("n{node}"), locator: locator(node) });
    let cluster = Cluster::new(nodes.collect(), OWN.into()).unwrap();
    let cluster = cluster.with_slices(holders.to_vec()).with_guarded_locators(takes_softwires);
    cluster.set_serving(|node| serving >> node & 1 == 1);
    cluster
}

/// Other owners, and other nodes that serve: now and then. The plan's other half, whether softwires go as they are,
/// is a constant of the programs.
pub(crate) fn disturb(world: &mut World, numbers: &mut Numbers) {
    let Some(current) = world.plan.cluster.clone() else { return };
    if !numbers.one_in(12) {
        return;
    }
    let holders: Vec<Holders> = (0..SLICES)
        .map(|_| {
            let node = |numbers: &mut Numbers| numbers.byte() % NODES;
            let owner = if numbers.one_in(2) { OWN } else { node(numbers) };
            let backup = (!numbers.one_in(4)).then(|| node(numbers)).filter(|backup| *backup != owner);
            Holders { owner, backup }
        })
        .collect();
    copy(world, numbers);
    close(world, numbers);
    // Mostly all.
    let serving = if numbers.one_in(3) { numbers.draw() } else { u64::MAX };
    let next = cluster(&holders, serving, current.takes_softwires());
    // Its lease is over, or lasts; or some slices are of a lease that is over.
    next.set_grants_until(if numbers.one_in(4) { numbers.pick(&[0, 1]) } else { u64::MAX });
    for slice in (0..SLICES).filter(|_| numbers.one_in(6)) {
        next.assign(slice, Assigned { granting: Granting::Nothing, ..next.assigned(slice) });
    }
    world.slices.as_ref().unwrap().publish(&next, Now::default());
    world.plan.cluster = Some(Arc::new(next));
}

/// Somebody is a copy of another node's, a connection was open there; or not any more.
fn copy(world: &World, numbers: &mut Numbers) {
    let tables = &world.tables;
    let nth = usize::from(numbers.byte());
    if let Some(id) = tables.bindings.iter().nth(nth)
        && let Some((binding, _)) = tables.bindings.read(id)
    {
        // Programs that know of no copies do not look whether a connection goes on.
        let was_open = if tables.changed_bindings.are_noted() { flags::RESUMED } else { 0 };
        let changed = if numbers.one_in(2) { flags::COPIED } else { was_open };
        let _ = tables.change_flags(id, &binding, binding.flags ^ changed);
    }
    if let Some(id) = tables.subscribers.iter().nth(nth) {
        tables.subscribers.set_copied(id, numbers.one_in(2));
    }
}

/// All free ports of an address were closed a while ago, some of them so long that they may be had again.
fn close(world: &World, numbers: &mut Numbers) {
    let nats: Vec<&Nat> = world.plan.services.iter().filter_map(|service| service.kind.nat()).collect();
    let nat = nats[numbers.below(nats.len())];
    let place = u32::try_from(numbers.below(nat.pool.addresses() as usize)).unwrap();
    let address = nat.pool.address(place).unwrap();
    for space in [PortSpace::Tcp, PortSpace::Udp, PortSpace::Icmp] {
        for (_, slot) in nat.pool.slots(address, space) {
            let age = u32::try_from(numbers.below(300)).unwrap();
            world.tables.outside.keep_back(slot, Tick(tick().saturating_sub(age).max(1)));
        }
    }
}

/// What another node makes of a frame's packet, of a third of them; and what only looks so.
fn redirected(numbers: &mut Numbers, frame: Vec<u8>) -> Vec<u8> {
    if !numbers.one_in(3) {
        return frame;
    }
    let packet = trimmed(&frame[14..]);
    let mut packet = if numbers.one_in(30) { frame[14..].to_vec() } else { packet.to_vec() };
    let place = if numbers.one_in(20) { numbers.pick(&[0, 3, 0xa, 0x100]) } else { numbers.pick(&[1, 1, 2]) };
    let is_softwire = packet[0] >> 4 == 6 && packet[6] == 4 && packet[24..40] == REMOTE.octets();
    if is_softwire && !numbers.one_in(3) {
        let end = locator(OWN).to_bits() | if numbers.one_in(2) { 0xa } else { 0xb };
        packet[24..40].copy_from_slice(&end.to_be_bytes());
        return packets::frame(numbers, [0x86, 0xdd], &packet);
    }
    let next_header = match packet[0] >> 4 {
        _ if numbers.one_in(60) => numbers.pick(&[4, 41, 17, 44]),
        4 => 4,
        _ => 41,
    };
    let source = match numbers.below(30) {
        0 => Ipv6Addr::new(0x2001, 0xdb8, 9, 9, 0, 0, 0, 0),
        1 => locator(OWN),
        2 => Ipv6Addr::from_bits(locator(0).to_bits() | 1),
        _ => locator(numbers.pick(&[0, 2, 3])),
    };
    let class = if numbers.one_in(3) { numbers.byte() } else { inner_class(&packet) };
    let mut outer = vec![0x60 | class >> 4, class << 4 | numbers.byte() & 15, numbers.byte(), numbers.byte()];
    outer.extend(u16::try_from(packet.len()).unwrap().to_be_bytes());
    outer.extend([next_header, if numbers.one_in(40) { numbers.byte() % 4 } else { 63 }]);
    outer.extend(source.octets());
    outer.extend((locator(OWN).to_bits() | place).to_be_bytes());
    outer.extend(&packet);
    packets::frame(numbers, [0x86, 0xdd], &outer)
}

fn inner_class(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[1] } else { packet[0] << 4 | packet[1] >> 4 }
}

/// The same plan with something about its slices that the programs would have wrong.
pub(crate) fn wrong(plan: &Plan) -> Vec<(&'static str, Plan)> {
    let with = |secret: [u64; 4], has_pins: bool, run: u32| {
        let mut plan = plan.clone();
        for service in &mut plan.services {
            let Some(nat) = service.kind.nat_mut() else { continue };
            let ranges = nat.pool.ranges().iter();
            let ranges = ranges.map(|range| (range.first, Ipv4Addr::from_bits(range.last.to_bits() + run)));
            let mut slices = PoolSlices::new(Slicing::new(secret, SLICES).unwrap(), ranges);
            for ((ipv6, ipv4), slice) in nat.pool.slices().unwrap().pins().filter(|_| has_pins) {
                slices.pin(&SubscriberKey { ipv6, ipv4, service: 0 }, slice).unwrap();
            }
            nat.pool = nat.pool.clone().with_slices(slices);
        }
        plan
    };
    vec![
        ("the hash", with([9, 9, 9, 9], true, 0)),
        ("the exceptions", with(SECRET, false, 0)),
        ("the runs of addresses", with(SECRET, true, 9)),
    ]
}

/// The programs are told that the node may grant what it may not.
pub(crate) fn mislead(world: &World) {
    let current = world.plan.cluster.as_deref().unwrap();
    let holders: Vec<Holders> = (0..SLICES).map(|slice| current.holders(slice)).collect();
    let serving = (0..NODES).filter(|node| current.serves((*node).into())).fold(0, |bits, node| bits | 1 << node);
    world.slices.as_ref().unwrap().publish(&cluster(&holders, serving, current.takes_softwires()), Now::default());
}

/// What the programs are told beside the plan, where the kernel stands on both sides of the engine.
pub(crate) fn settings() -> Settings {
    Settings { hops_beside: 2, ..Settings::default() }
}

/// What the kernel makes of a packet that it forwards: without padding, and with a hop less. None if it ends here.
pub(crate) fn forwarded(packet: &[u8]) -> Option<Vec<u8>> {
    let mut packet = trimmed(packet).to_vec();
    if packet[0] >> 4 == 4 {
        let was_right = verifies(packet.get(..20)?);
        packet[8] = packet[8].checked_sub(1).filter(|left| *left > 0)?;
        // It drops what has a wrong checksum.
        if was_right && packet[0] & 15 == 5 {
            write_ipv4_checksum(&mut packet);
        }
    } else {
        packet[7] = packet[7].checked_sub(1).filter(|left| *left > 0)?;
    }
    Some(packet)
}

/// Without what the frame has behind the packet.
fn trimmed(packet: &[u8]) -> &[u8] {
    let length = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (header, length) = if packet[0] >> 4 == 4 { (20, length(2)) } else { (40, 40 + length(4)) };
    packet.get(..length).filter(|packet| packet.len() >= header).unwrap_or(packet)
}
