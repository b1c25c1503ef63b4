//! A node is gone, and its backup serves in its place: what was known goes on at the same outside endpoints, and
//! nobody gets what only the owner may grant.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_cluster::replica::{Applied, Applier, Lacking, Purpose, Sender, To, View};
use tombolo_engine::cluster::Place;
use tombolo_engine::mechanism::napt::session_state::ESTABLISHED;
use tombolo_engine::packet::Offload;
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{DropReason, Verdict, adoption};
use tombolo_tables::audit;
use tombolo_tables::binding::{InsideKey, flags};
use tombolo_tables::sweep::Sweeper;
use tombolo_tables::tick::Tick;
use tombolo_wire::{Sum, ipv4};

#[path = "../../config/tests/nodes/mod.rs"]
mod nodes;
#[path = "../../config/tests/reading/mod.rs"]
mod reading;

use nodes::{Gateway, NOW, Nodes, datagram, datagram_ipv6, in_ipv6};

const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 2), 53);
const AFTR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xaf, 0, 0, 0, 0, 1);
const OWNER: usize = 0;
const BACKUP: usize = 1;
const THIRD: usize = 2;
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// All slices are the first node's, and the second one's copies.
fn file(node: usize, allocation: &str) -> String {
    format!(
        r#"
[cluster]
node = "n{}"
nodes = {{ n1 = "2001:db8:c1:1::/64", n2 = "2001:db8:c1:2::/64", n3 = "2001:db8:c1:3::/64" }}

[cluster.slices]
count  = 4
secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
owners = [{{ slices = "0-3", owner = "n1", backup = "n2" }}]

[[service]]
kind   = "nat64"
prefix = "2001:db8:64::/96"
pool   = [{{ addresses = "192.0.2.0/28", ports = "1024-5119" }}]
{allocation}

[[service]]
kind   = "nat44"
inside = ["100.64.0.0/10"]
pool   = [{{ addresses = "198.18.7.0/28", ports = "1024-5119" }}]
{allocation}

[[service]]
kind    = "aftr"
address = "2001:db8:af::1"
b4s     = ["2001:db8:b4::/48"]
subscriber_prefix = 64
pool    = [{{ addresses = "203.0.113.0/28", ports = "1024-5119" }}]
{allocation}
"#,
        node + 1
    )
}

const BLOCKS: &str = "allocation = { mode = \"blocks\", block_size = 64, blocks = 2 }\n";
const PORTS: &str = "";

/// The services, by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nat64,
    Nat44,
    Aftr,
}
use Kind::{Aftr, Nat44, Nat64};

const KINDS: [Kind; 3] = [Nat64, Nat44, Aftr];

/// A host inside.
#[derive(Debug, Clone, Copy)]
struct Host(Kind, u16);

impl Host {
    fn ipv6(self) -> Ipv6Addr {
        match self.0 {
            Nat64 => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, self.1),
            Nat44 => Ipv6Addr::UNSPECIFIED,
            Aftr => Ipv6Addr::new(0x2001, 0xdb8, 0xb4, self.1, 0, 0, 0, 4),
        }
    }

    fn ipv4(self) -> Ipv4Addr {
        match self.0 {
            Nat64 => Ipv4Addr::UNSPECIFIED,
            Nat44 => Ipv4Addr::from_bits(Ipv4Addr::new(100, 64, 0, 0).to_bits() + u32::from(self.1)),
            Aftr => Ipv4Addr::new(10, 0, 0, 2),
        }
    }

    fn through_softwire(self, packet: &[u8]) -> Vec<u8> {
        in_ipv6((self.ipv6(), AFTR), 4, packet)
    }

    fn datagram(self, port: u16) -> Vec<u8> {
        match self.0 {
            Nat64 => datagram_ipv6((self.ipv6(), port), (shown(SERVER.0), SERVER.1), 100),
            Nat44 => datagram((self.ipv4(), port), SERVER, 100, 77),
            Aftr => self.through_softwire(&datagram((self.ipv4(), port), SERVER, 100, 77)),
        }
    }

    fn segment(self, port: u16, flags: u8) -> Vec<u8> {
        match self.0 {
            Nat64 => {
                let ends = (self.ipv6(), shown(SERVER.0));
                let pseudo = Sum::ZERO.bytes(&ends.0.octets()).bytes(&ends.1.octets());
                in_ipv6(ends, 6, &tcp((port, SERVER.1), flags, pseudo))
            }
            Nat44 => segment_ipv4((self.ipv4(), port), SERVER, flags),
            Aftr => self.through_softwire(&segment_ipv4((self.ipv4(), port), SERVER, flags)),
        }
    }

    fn key(self, node: &Gateway, port: u16, protocol: u8) -> InsideKey {
        let service = node.plan.services[KINDS.iter().position(|kind| *kind == self.0).unwrap()].number;
        let port = port.to_be_bytes();
        InsideKey { ipv6: self.ipv6().octets(), ipv4: self.ipv4().octets(), port, protocol, service }
    }
}

fn hosts() -> impl Iterator<Item = Host> {
    KINDS.into_iter().flat_map(|kind| (1..=20).map(move |number| Host(kind, number)))
}

fn shown(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets().map(u16::from);
    Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, a << 8 | b, c << 8 | d)
}

fn segment_ipv4(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), flags: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 7, 0x40, 0, 64, 6, 0, 0];
    packet.extend(source.0.octets());
    packet.extend(destination.0.octets());
    ipv4::write_checksum(&mut packet);
    let pseudo = Sum::ZERO.bytes(&packet[12..20]);
    packet.extend(tcp((source.1, destination.1), flags, pseudo));
    packet
}

fn tcp(ports: (u16, u16), flags: u8, pseudo: Sum) -> Vec<u8> {
    let mut bytes = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    bytes.extend([0, 0, 3, 232, 0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    let checksum = pseudo.word(6).word(20).bytes(&bytes).checksum();
    bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// The outside endpoint that the one packet comes from.
#[track_caller]
fn outside(sent: &[Vec<u8>]) -> (Ipv4Addr, u16) {
    let [packet] = sent else { panic!("one packet leaves: {sent:?}") };
    let address = <[u8; 4]>::try_from(&packet[12..16]).unwrap();
    (address.into(), u16::from_be_bytes([packet[20], packet[21]]))
}

/// Both ends of a connection that begins, with nothing copied yet.
fn connected(nodes: &Nodes) -> (Sender, Applier) {
    let [owner, backup] = [OWNER, BACKUP].map(|node| View::of(&nodes.0[node].plan).unwrap());
    let tables = Arc::clone(&nodes.0[OWNER].tables);
    let capacity = (tables.subscribers.capacity(), tables.bindings.capacity());
    let mut applier = Applier::new(Arc::clone(&nodes.0[BACKUP].tables), Purpose::Copy, 0, capacity);
    assert!(applier.connect(&owner.services(), backup).is_empty());
    let mut sender = Sender::new(tables);
    sender.connect(1, false, owner);
    (sender, applier)
}

/// Address and port outside.
type Endpoint = (Ipv4Addr, u16);

/// Nodes, the second of which has a copy of what the first one has.
struct World {
    nodes: Nodes,
    sender: Sender,
    applier: Applier,
}

impl World {
    fn new(allocation: &str) -> Self {
        let nodes = Nodes::of((0..3).map(|node| file(node, allocation)));
        let (sender, applier) = connected(&nodes);
        Self { nodes, sender, applier }
    }

    /// The copy catches up.
    fn copy(&mut self) {
        self.sender.classify(1, NOW.tick());
        self.copy_changes();
    }

    /// What has changed is copied, and nobody looks which connections are open.
    fn copy_changes(&mut self) {
        let [owner, backup] = [OWNER, BACKUP].map(|node| View::of(&self.nodes.0[node].plan).unwrap());
        let has_acted = backup.cluster().has_acted_for(0);
        self.sender.collect(owner);
        let mut batch = Vec::new();
        while self.sender.fill(To::Backup(1), owner, &|_| 1, NOW.tick(), &mut batch) {
            let number = self.applier.apply(&batch, backup, &|_| 1, NOW.tick(), has_acted).unwrap();
            assert!(self.sender.acknowledge(To::Backup(1), number));
            batch.clear();
        }
        assert_eq!((self.sender.pending(To::Backup(1)), self.applier.applied().unplaced), (0, 0));
    }

    /// The owner can be seen no more, by anybody.
    fn lose_owner(&mut self, has_copy: bool) {
        for (number, node) in self.nodes.0.iter().enumerate() {
            let cluster = node.plan.cluster.as_ref().unwrap();
            cluster.set_copied(|owner| number == BACKUP && has_copy && owner == OWNER, NOW.tick());
            cluster.set_serving(|node| node != OWNER);
            cluster.set_copied(|_| false, NOW.tick());
        }
    }

    /// The owner can be seen again.
    fn find_owner(&mut self) {
        for node in &self.nodes.0 {
            let cluster = node.plan.cluster.as_ref().unwrap();
            cluster.set_serving(|_| true);
            cluster.set_copied(|_| false, NOW.tick());
        }
    }

    /// The owner has lost its tables.
    fn empty_owner(&mut self) {
        let plan = self.nodes.0[OWNER].plan.clone();
        let allocation =
            if plan.services[0].kind.pool().unwrap().allocation().block_size().is_some() { BLOCKS } else { PORTS };
        self.nodes.0[OWNER] = Gateway::of(&file(OWNER, allocation));
    }

    /// The backup gives the owner back what it lacks.
    fn give_back(&mut self, lacking: Lacking) -> Applied {
        let [owner, backup] = [OWNER, BACKUP].map(|node| View::of(&self.nodes.0[node].plan).unwrap());
        let tables = Arc::clone(&self.nodes.0[BACKUP].tables);
        let capacity = (tables.subscribers.capacity(), tables.bindings.capacity());
        let mut applier = Applier::new(Arc::clone(&self.nodes.0[OWNER].tables), Purpose::Return, 1, capacity);
        assert!(applier.connect(&backup.services(), owner).is_empty());
        let mut sender = Sender::new(tables);
        sender.give_back(0, lacking, backup);
        let mut batch = Vec::new();
        while sender.fill(To::Owner(0), backup, &|_| 1, NOW.tick(), &mut batch) {
            let number = applier.apply(&batch, owner, &|_| 1, NOW.tick(), true).unwrap();
            assert!(sender.acknowledge(To::Owner(0), number));
            batch.clear();
        }
        assert!(applier.is_complete());
        assert_eq!(audit::check(&self.nodes.0[OWNER].tables), Vec::<String>::new());
        applier.applied()
    }

    /// Has a packet come to the owner, which sends one.
    #[track_caller]
    fn by_owner(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let (verdict, sent) = self.nodes.0[OWNER].process(packet, Offload::default());
        assert_eq!(verdict, Verdict::Forward);
        sent
    }

    /// A connection is opened through the owner: its outside endpoint.
    fn open(&mut self, host: Host, port: u16) -> Endpoint {
        let endpoint = outside(&self.by_owner(&host.segment(port, SYN)));
        self.by_owner(&segment_ipv4(SERVER, endpoint, SYN | ACK));
        self.by_owner(&host.segment(port, ACK));
        endpoint
    }

    /// Owner and backup know all hosts: the outside endpoints of their datagrams, and of a connection of each.
    fn know_hosts(&mut self) -> Vec<(Host, Endpoint, Endpoint)> {
        let known = hosts().map(|host| (host, outside(&self.by_owner(&host.datagram(5000))), self.open(host, 6000)));
        let known = known.collect();
        self.copy();
        known
    }
}

#[test]
fn what_is_known_goes_on_at_the_backup() {
    for allocation in [PORTS, BLOCKS] {
        let mut world = World::new(allocation);
        let known = world.know_hosts();
        world.lose_owner(true);
        for (host, datagrams, connection) in known {
            // Any node is an entrance.
            for (entrance, redirected) in [(BACKUP, &[][..]), (THIRD, &[BACKUP][..])] {
                let fate = world.nodes.pass(entrance, &host.datagram(5000));
                assert_eq!((outside(&fate.sent), &fate.redirected[..]), (datagrams, redirected), "{host:?}");
                let fate = world.nodes.pass(entrance, &host.segment(6000, ACK));
                assert_eq!(outside(&fate.sent), connection, "{host:?}");
            }
            let back = world.nodes.pass(THIRD, &datagram(SERVER, datagrams, 100, 9));
            assert_eq!((back.verdict, back.redirected), (Verdict::Forward, vec![BACKUP]));
            let back = world.nodes.pass(BACKUP, &segment_ipv4(SERVER, connection, ACK));
            assert_eq!(back.verdict, Verdict::Forward);
            // The connection has a session again.
            let backup = &world.nodes.0[BACKUP];
            let (id, _) = backup.tables.find_inside(&host.key(backup, 6000, 6)).unwrap();
            let session = backup.tables.bindings.first_session(id);
            assert_eq!(session.map(|session| session.state), Some(ESTABLISHED), "{host:?}");
        }
        assert_eq!(audit::check(&world.nodes.0[BACKUP].tables), Vec::<String>::new());
    }
}

#[test]
fn the_backup_grants_nothing_but_ports_of_blocks_that_a_subscriber_has() {
    for (allocation, new_port) in [(PORTS, None), (BLOCKS, Some(()))] {
        let mut world = World::new(allocation);
        let own = &mut world.nodes.0[BACKUP].plan.own;
        (own.ipv4, own.ipv6) =
            (Some(Ipv4Addr::new(198, 18, 0, 2)), Some(Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2)));
        hosts().for_each(|host| drop(world.by_owner(&host.datagram(5000))));
        world.copy();
        world.lose_owner(true);
        let [dropped, answered] = [Verdict::Drop, Verdict::Reply].map(|verdict| verdict(DropReason::NotGranting));
        for kind in KINDS {
            let fate = world.nodes.pass(BACKUP, &Host(kind, 500).datagram(5000));
            // RFC 6146 section 3.5.1.1, RFC 6888 REQ-11 (b).
            assert_eq!((fate.verdict, fate.sent.len()), (answered, 1), "{kind:?}");
        }
        for host in hosts() {
            let known = outside(&world.nodes.pass(BACKUP, &host.datagram(5000)).sent);
            let fate = world.nodes.pass(BACKUP, &host.datagram(5001));
            match new_port {
                // Errors are sent at a bounded rate.
                None => assert!([dropped, answered].contains(&fate.verdict), "{host:?}: {:?}", fate.verdict),
                Some(()) => {
                    let (address, port) = outside(&fate.sent);
                    assert_eq!((address, port / 64), (known.0, known.1 / 64), "in the same block");
                }
            }
        }
        assert_eq!(audit::check(&world.nodes.0[BACKUP].tables), Vec::<String>::new());
    }
}

#[test]
fn without_a_copy_nobody_acts() {
    let mut world = World::new(PORTS);
    let host = Host(Nat64, 1);
    world.by_owner(&host.datagram(5000));
    world.lose_owner(false);
    let fate = world.nodes.pass(BACKUP, &host.datagram(5000));
    assert_eq!(fate.verdict, Verdict::Drop(DropReason::SliceUnowned));
}

#[test]
fn who_sees_the_owner_leaves_it_to_the_owner() {
    let mut world = World::new(PORTS);
    let host = Host(Nat64, 1);
    world.by_owner(&host.datagram(5000));
    world.copy();
    world.lose_owner(true);
    let cluster = Arc::clone(world.nodes.0[BACKUP].plan.cluster.as_ref().unwrap());
    assert_eq!(cluster.place_of(0, NOW), Place::Acting(0));
    cluster.set_serving(|_| true);
    cluster.set_copied(|_| true, NOW.tick());
    let fate = world.nodes.pass(BACKUP, &host.datagram(5000));
    assert_eq!((fate.verdict, fate.redirected), (Verdict::Forward, vec![OWNER]));
}

#[test]
fn only_the_owner_lets_a_binding_expire_and_who_acts_begins_its_time_anew() {
    let mut world = World::new(PORTS);
    for host in hosts() {
        world.by_owner(&host.datagram(5000));
        world.open(host, 6000);
    }
    world.copy();
    let sweep = |world: &World, seconds: u32| {
        let backup = &world.nodes.0[BACKUP];
        let mut expiry = Expiry::new(&backup.plan);
        let later = Tick(NOW.tick().0 + seconds);
        let mut sweeper = Sweeper::new(&backup.tables, later);
        while !sweeper.advance(&backup.tables, usize::MAX, later, &mut expiry) {}
        (backup.tables.bindings.count(), backup.tables.subscribers.count())
    };
    assert_eq!(sweep(&world, 100_000), (120, 60), "copies stay");
    // It is gone 50,000 seconds later.
    for node in [BACKUP, THIRD] {
        let cluster = world.nodes.0[node].plan.cluster.as_ref().unwrap();
        cluster.set_copied(|owner| owner == OWNER, NOW.tick());
        cluster.set_serving(|node| node != OWNER);
        cluster.set_copied(|_| false, Tick(NOW.tick().0 + 50_000));
    }
    assert_eq!(sweep(&world, 50_200), (120, 60), "UDP has five minutes");
    assert_eq!(sweep(&world, 50_400), (60, 60), "connections have two hours");
    assert_eq!(sweep(&world, 58_000), (0, 0));
}

#[test]
fn a_connection_that_has_ended_at_the_owner_is_not_taken_over_as_an_open_one() {
    let mut world = World::new(PORTS);
    for host in KINDS.map(|kind| Host(kind, 1)) {
        let endpoint = world.open(host, 6000);
        world.copy();
        let is_open = |world: &World| {
            let backup = &world.nodes.0[BACKUP];
            let (_, found) = backup.tables.find_inside(&host.key(backup, 6000, 6)).unwrap();
            found.flags & flags::RESUMED != 0
        };
        assert!(is_open(&world), "{host:?}");
        world.by_owner(&host.segment(6000, FIN | ACK));
        world.copy();
        assert!(is_open(&world), "{host:?}: one side has closed it");
        world.by_owner(&segment_ipv4(SERVER, endpoint, FIN | ACK));
        world.copy();
        assert!(!is_open(&world), "{host:?}");
    }
}

#[test]
fn that_a_connection_is_open_is_copied_at_once() {
    for allocation in [PORTS, BLOCKS] {
        let mut world = World::new(allocation);
        for host in KINDS.map(|kind| Host(kind, 1)) {
            let is_open = |world: &World| {
                let backup = &world.nodes.0[BACKUP];
                let (_, found) = backup.tables.find_inside(&host.key(backup, 6000, 6)).unwrap();
                found.flags & flags::RESUMED != 0
            };
            let endpoint = outside(&world.by_owner(&host.segment(6000, SYN)));
            world.copy_changes();
            assert!(!is_open(&world), "{host:?}");
            world.by_owner(&segment_ipv4(SERVER, endpoint, SYN | ACK));
            world.copy_changes();
            assert!(is_open(&world), "{host:?}");
            // Nothing is sent for each segment.
            world.by_owner(&host.segment(6000, ACK));
            let owner = View::of(&world.nodes.0[OWNER].plan).unwrap();
            world.sender.collect(owner);
            assert_eq!(world.sender.pending(To::Backup(1)), 0, "{host:?}");
        }
    }
}

#[test]
fn an_owner_that_has_lost_its_tables_gets_them_back() {
    for allocation in [PORTS, BLOCKS] {
        let mut world = World::new(allocation);
        let known = world.know_hosts();
        world.lose_owner(true);
        // In blocks the backup makes bindings of its own; otherwise it says that it may not.
        let new: Vec<_> = hosts().map(|host| world.nodes.pass(BACKUP, &host.datagram(5001)).sent).collect();
        world.empty_owner();
        assert_eq!(world.give_back(Lacking::Everything).unplaced, 0);
        world.find_owner();
        for ((host, datagrams, connection), new) in known.into_iter().zip(new) {
            let fate = world.nodes.pass(THIRD, &host.datagram(5000));
            assert_eq!((outside(&fate.sent), &fate.redirected[..]), (datagrams, &[OWNER][..]), "{host:?}");
            assert_eq!(outside(&world.by_owner(&host.segment(6000, ACK))), connection, "{host:?}");
            let owner = &world.nodes.0[OWNER];
            let (id, _) = owner.tables.find_inside(&host.key(owner, 6000, 6)).unwrap();
            assert_eq!(owner.tables.bindings.first_session(id).map(|session| session.state), Some(ESTABLISHED));
            if allocation == BLOCKS {
                assert_eq!(outside(&world.by_owner(&host.datagram(5001))), outside(&new), "{host:?}");
            }
        }
        // It grants again, in blocks what is left of those that it gave, and nothing that it has is a copy.
        for host in hosts() {
            let [known, new] = [5000, 5002].map(|port| outside(&world.by_owner(&host.datagram(port))));
            assert!(allocation == PORTS || known.1 / 64 == new.1 / 64, "{host:?}: {known:?}, {new:?}");
            world.by_owner(&Host(host.0, host.1 + 100).datagram(5000));
        }
        let tables = &world.nodes.0[OWNER].tables;
        let is_copied = |id| tables.bindings.read(id).is_some_and(|(found, _)| found.flags & flags::COPIED != 0);
        assert!(
            !tables.bindings.iter().any(is_copied)
                && !tables.subscribers.iter().any(|id| tables.subscribers.is_copied(id))
        );
        assert_eq!(audit::check(tables), Vec::<String>::new());
    }
}

#[test]
fn what_the_backup_has_made_the_owner_takes_unless_it_is_in_the_way_of_its_own() {
    let mut world = World::new(BLOCKS);
    hosts().for_each(|host| drop(world.by_owner(&host.datagram(5000))));
    world.copy();
    world.lose_owner(true);
    let made: Vec<_> = hosts().map(|host| outside(&world.nodes.pass(BACKUP, &host.datagram(5001)).sent)).collect();
    // It was alive all the time, and only the network between them broken: it has made other bindings, and of every other
    // host so many that all ports of its block are taken.
    let mut in_the_way = Vec::new();
    for (host, made) in hosts().zip(&made).filter(|(host, _)| host.1 % 2 == 0) {
        let own = (6000..6063).map(|port| (port, outside(&world.by_owner(&host.datagram(port)))));
        in_the_way.extend(own.filter(|(_, own)| own == made).map(|(port, own)| (host, port, own)));
    }
    assert!(in_the_way.len() >= 30, "{in_the_way:?}");
    let applied = world.give_back(Lacking::New);
    assert_eq!((applied.bindings, applied.unplaced), (60, in_the_way.len() as u64));
    world.find_owner();
    for (host, port, own) in &in_the_way {
        assert_eq!(outside(&world.by_owner(&host.datagram(*port))), *own, "{host:?}");
    }
    for (host, made) in hosts().zip(&made).filter(|(_, made)| !in_the_way.iter().any(|(_, _, own)| own == *made)) {
        assert_eq!(outside(&world.by_owner(&host.datagram(5001))), *made, "{host:?}");
    }
    // What was made at the backup goes there, and what the owner has is copied.
    let backup = View::of(&world.nodes.0[BACKUP].plan).unwrap();
    world.applier.end_acting(backup, NOW.tick());
    let tables = &world.nodes.0[BACKUP].tables;
    let is_copied = |id| tables.bindings.read(id).is_some_and(|(found, _)| found.flags & flags::COPIED != 0);
    assert!(tables.bindings.iter().all(is_copied));
    world.copy();
    let [owner, backup] = [OWNER, BACKUP].map(|node| &world.nodes.0[node].tables);
    assert_eq!(backup.bindings.count(), owner.bindings.count());
    assert_eq!(audit::check(backup), Vec::<String>::new());
}

#[test]
fn a_block_that_the_owner_has_granted_anew_is_not_given_back() {
    let mut world = World::new(BLOCKS);
    let host = Host(Nat44, 1);
    let known = outside(&world.by_owner(&host.datagram(5000)));
    world.copy();
    world.empty_owner();
    // It did not wait, and another host has the block.
    let owner = &world.nodes.0[OWNER];
    let nat = owner.plan.services[1].kind.nat().unwrap();
    let key = |host: Host| nat.policy.subscriber.key(&host.key(owner, 5000, 17));
    let other = tombolo_tables::subscriber::Subscriber { key: key(Host(Nat44, 2)), outside_ipv4: known.0.octets() };
    let (id, _) = owner.tables.admit(&other, NOW.tick()).unwrap();
    let (first, _) = nat.pool.blocks(known.0, 64).unwrap();
    let place = known.1 / 64;
    owner.tables.give_blocks(id, first, &[place], NOW.tick());
    assert_eq!(world.give_back(Lacking::Everything).unplaced, 1, "a binding in it");
    let tables = &world.nodes.0[OWNER].tables;
    assert_eq!((tables.subscribers.blocks(id).collect::<Vec<_>>(), tables.bindings.count()), (vec![place], 0));
    assert_eq!(audit::check(tables), Vec::<String>::new());
}

#[test]
fn a_backup_that_is_started_again_may_have_acted() {
    let mut world = World::new(PORTS);
    let host = Host(Nat44, 1);
    world.open(host, 6000);
    world.copy();
    world.lose_owner(true);
    for server in [SERVER, (Ipv4Addr::new(198, 51, 100, 3), 80)] {
        let fate = world.nodes.pass(BACKUP, &segment_ipv4((host.ipv4(), 6000), server, SYN));
        assert_eq!(fate.verdict, Verdict::Forward);
    }
    // Its process is another one, with the same tables.
    let backup = &mut world.nodes.0[BACKUP];
    backup.plan = reading::accepted(&file(BACKUP, PORTS)).plan;
    assert_eq!(adoption::adopt(&backup.tables, &backup.plan, NOW), 0);
    // Meanwhile the owner has lost its own.
    world.empty_owner();
    (world.sender, world.applier) = connected(&world.nodes);
    world.copy();
    let tables = &world.nodes.0[BACKUP].tables;
    assert_eq!((tables.bindings.count(), tables.each_session().count()), (0, 0));
    assert_eq!(audit::check(tables), Vec::<String>::new());
}
