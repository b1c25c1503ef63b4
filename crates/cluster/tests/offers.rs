//! Whatever an owner has granted when it dies, its successor grants nobody else: not before it has rested.
//!
//! An owner that grants, in any order with batches and acknowledgements that arrive, or are lost with the connection; subscribers that go,
//! and come again; a backup that is restarted with its tables. Then the owner is gone, with whatever was on its way, and the backup takes
//! over and grants all that it has. A ledger that both do not see knows whose each block was, and when.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use proptest::prelude::*;
use tombolo_cluster::replica::{Applier, Purpose, Sender, To, View};
use tombolo_engine::cluster::{Assigned, Granting, Holders};
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{DropReason, Now, Verdict, adoption};
use tombolo_tables::audit;
use tombolo_tables::sweep::Sweeper;

#[path = "../../config/tests/nodes/mod.rs"]
mod nodes;
#[path = "../../config/tests/reading/mod.rs"]
mod reading;

use nodes::{Gateway, NOW, datagram};

const OWNER: usize = 0;
const BACKUP: usize = 1;
const TO: To = To::Backup(1);
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 2), 53);
const SECOND: u64 = 1_000_000_000;
/// For so long a block that one subscriber had is nobody else's, whatever becomes of nodes.
const PORT_REUSE: u64 = 120 * SECOND;
/// Ports of a block; there are 16 of each of two addresses.
const BLOCK: u16 = 64;

fn file(node: usize) -> String {
    format!(
        r#"
[cluster]
node = "n{}"
nodes = {{ n1 = "2001:db8:c1:1::/64", n2 = "2001:db8:c1:2::/64" }}

[cluster.slices]
count  = 2
secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
owners = [{{ slices = "0-1", owner = "n1", backup = "n2" }}]

[[service]]
kind   = "nat44"
inside = ["10.0.0.0/8"]
pool   = [{{ addresses = "198.18.7.0/31", ports = "1024-2047" }}]
allocation = {{ mode = "blocks", block_size = 64, blocks = 1 }}
"#,
        node + 1
    )
}

/// A node whose slices etcd would give it.
fn node(number: usize) -> Gateway {
    let mut node = Gateway::of(&file(number));
    let cluster = Arc::into_inner(node.plan.cluster.take().unwrap()).unwrap().with_agreement();
    cluster.set_grants_until(u64::MAX);
    cluster.set_serves_until(u64::MAX);
    cluster.set_alone_until(u64::MAX);
    cluster.set_serving(|_| true);
    node.plan.cluster = Some(Arc::new(cluster));
    node.plan.times = node.plan.times.with_copies();
    node
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A host sends, through the owner.
    Send(u8),
    /// The owner writes a batch.
    Write,
    /// The oldest batch arrives.
    Arrive,
    /// The oldest acknowledgement arrives.
    Acknowledge,
    /// The connection breaks, and there is another one.
    Cut,
    /// The backup's process is started again, with its tables.
    Restart,
    /// So many seconds pass.
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u8..60).prop_map(Step::Send),
        4 => Just(Step::Write),
        4 => Just(Step::Arrive),
        4 => Just(Step::Acknowledge),
        1 => Just(Step::Cut),
        1 => Just(Step::Restart),
        1 => (0_u16..400).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..150)
}

struct World {
    nodes: [Gateway; 2],
    sender: Sender,
    applier: Applier,
    batches: VecDeque<Vec<u8>>,
    acknowledgements: VecDeque<u64>,
    now: Now,
    /// What the owner grants by once the backup may take over.
    granting: Granting,
    /// The backup may take over, as etcd would say.
    is_protected: bool,
    /// Who had each block last, and until when.
    ledger: BTreeMap<(Ipv4Addr, u16), (u8, u64)>,
    /// Whoever got a block that was another's just now.
    conflicts: Vec<String>,
    refused: usize,
}

impl World {
    /// A backup that takes everything over, when the owner has granted to nobody yet.
    fn new(granting: Granting) -> Self {
        let nodes = [OWNER, BACKUP].map(node);
        let sender = Sender::new(Arc::clone(&nodes[OWNER].tables));
        let applier = applier(&nodes);
        let mut world = Self {
            nodes,
            sender,
            applier,
            batches: VecDeque::new(),
            acknowledgements: VecDeque::new(),
            now: NOW,
            granting,
            is_protected: false,
            ledger: BTreeMap::new(),
            conflicts: Vec::new(),
            refused: 0,
        };
        world.assign(Holders { owner: 0, backup: Some(1) }, 1, Granting::Freely);
        world.connect();
        world
    }

    fn view(&self, node: usize) -> View<'_> {
        View::of(&self.nodes[node].plan).unwrap()
    }

    fn assign(&self, holders: Holders, epoch: u32, granting: Granting) {
        for node in &self.nodes {
            let cluster = node.plan.cluster.as_deref().unwrap();
            let is_its = cluster.own() == usize::from(holders.owner);
            let granting = if is_its { granting } else { Granting::Nothing };
            let assigned = Assigned { holders, epoch, is_protected: true, granting };
            cluster.slices().for_each(|slice| cluster.assign(slice, assigned));
        }
    }

    fn connect(&mut self) {
        let services = self.view(OWNER).services();
        let backup = View::of(&self.nodes[BACKUP].plan).unwrap();
        assert!(self.applier.connect(&services, backup).is_empty());
        let owner = View::of(&self.nodes[OWNER].plan).unwrap();
        self.sender.connect(1, self.applier.is_complete(), owner);
    }

    fn cut(&mut self) {
        self.batches.clear();
        self.acknowledgements.clear();
        self.sender.disconnect(TO);
        self.connect();
    }

    fn write(&mut self) {
        let view = View::of(&self.nodes[OWNER].plan).unwrap();
        self.sender.collect(view);
        self.sender.offer(1, view, self.now.tick());
        let mut batch = Vec::new();
        if self.sender.fill(TO, view, &|_| 1, self.now.tick(), &mut batch) {
            self.batches.push_back(batch);
        }
        self.protect();
    }

    /// What the agent does: it grants by offers once the copy is near, and lets the backup take over once that is whole.
    fn protect(&mut self) {
        let owner = self.nodes[OWNER].plan.cluster.clone().unwrap();
        if owner.assigned(0).granting == Granting::Freely && self.granting != Granting::Freely {
            if self.sender.is_whole(TO) {
                self.assign(Holders { owner: 0, backup: Some(1) }, 1, self.granting);
                self.sender.mark(1, View::of(&self.nodes[OWNER].plan).unwrap());
            }
        } else {
            self.is_protected |= self.sender.is_held(TO);
        }
    }

    fn arrive(&mut self) {
        let Some(batch) = self.batches.pop_front() else { return };
        let view = View::of(&self.nodes[BACKUP].plan).unwrap();
        let number = self.applier.apply(&batch, view, &|_| 1, self.now.tick(), false).unwrap();
        self.acknowledgements.push_back(number);
    }

    fn acknowledge(&mut self) {
        let Some(number) = self.acknowledgements.pop_front() else { return };
        assert!(self.sender.acknowledge(TO, number));
        self.protect();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(host) => self.send(OWNER, host),
            Step::Write => self.write(),
            Step::Arrive => self.arrive(),
            Step::Acknowledge => self.acknowledge(),
            Step::Cut => self.cut(),
            Step::Restart => {
                self.applier = applier(&self.nodes);
                self.cut();
            }
            Step::Wait(seconds) => self.wait(OWNER, seconds.into()),
        }
    }

    /// Everything arrives.
    fn catch_up(&mut self) {
        for _ in 0..4 {
            self.write();
            while !self.batches.is_empty() {
                self.arrive();
                self.write();
            }
            while !self.acknowledgements.is_empty() {
                self.acknowledge();
            }
        }
    }

    fn wait(&mut self, node: usize, seconds: u64) {
        self.now = Now(self.now.0 + seconds * SECOND);
        let Gateway { tables, plan, .. } = &self.nodes[node];
        for id in tables.subscribers.iter() {
            let address = Ipv4Addr::from(tables.subscribers.read(id).unwrap().0.outside_ipv4);
            for place in tables.subscribers.blocks(id) {
                self.ledger.entry((address, place)).and_modify(|(_, last)| *last = self.now.0);
            }
        }
        let mut sweeper = Sweeper::new(tables, self.now.tick());
        let mut expiry = Expiry::new(plan);
        for _ in 0..2 {
            assert!(sweeper.advance(tables, usize::MAX, self.now.tick(), &mut expiry));
        }
    }

    /// A host sends through a node: what it was granted goes into the ledger.
    fn send(&mut self, at: usize, host: u8) {
        let packet = datagram((Ipv4Addr::new(10, 0, 0, host), 5000), SERVER, 10, 7);
        let Gateway { engine, plan, .. } = &mut self.nodes[at];
        let mut buffer = vec![0; HEADROOM + packet.len() + 64];
        buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(&packet);
        let mut packet = Packet::new(&mut buffer, HEADROOM, packet.len(), Offload::default()).unwrap();
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        match engine.process(plan, &mut packet, self.now, &mut outbox) {
            Verdict::Forward => {}
            Verdict::Drop(reason) | Verdict::Reply(reason) => {
                assert!(matches!(reason, DropReason::NotGranting | DropReason::PoolExhausted), "{reason:?}");
                self.refused += usize::from(reason == DropReason::NotGranting);
                return;
            }
            other => panic!("{other:?}"),
        }
        let address = Ipv4Addr::new(sent[0][12], sent[0][13], sent[0][14], sent[0][15]);
        let port = u16::from_be_bytes([sent[0][20], sent[0][21]]);
        let block = (address, port / BLOCK);
        if let Some((other, last)) = self.ledger.insert(block, (host, self.now.0))
            && other != host
            && self.now.0 - last < PORT_REUSE
        {
            self.conflicts.push(format!(
                "{block:?} was host {other}'s {} s ago, and is host {host}'s",
                (self.now.0 - last) / SECOND
            ));
        }
    }

    /// The owner is gone, and the backup takes over, if it may. Then it grants whatever it has.
    fn take_over(&mut self) -> bool {
        if !self.is_protected || !self.applier.is_complete() {
            return false;
        }
        self.assign(Holders { owner: 1, backup: None }, 2, Granting::Freely);
        let Gateway { tables, plan, .. } = &self.nodes[BACKUP];
        adoption::take_over(tables, plan, |_| true, self.now);
        // Those that the owner knew among them; some have gone by the next round, and what they had rests.
        for round in 0..3 {
            (0..100).for_each(|host| self.send(BACKUP, host + 50 * round));
            self.wait(BACKUP, 100);
        }
        assert_eq!(audit::check(&self.nodes[BACKUP].tables), Vec::<String>::new());
        true
    }
}

fn applier(nodes: &[Gateway; 2]) -> Applier {
    let owner = &nodes[OWNER].tables;
    let capacity = (owner.subscribers.capacity(), owner.bindings.capacity());
    Applier::new(Arc::clone(&nodes[BACKUP].tables), Purpose::Copy, 0, capacity)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_block_is_granted_twice_whenever_the_owner_dies(steps in steps()) {
        let mut world = World::new(Granting::ByOffers);
        world.catch_up();
        for step in steps {
            world.step(step);
        }
        world.take_over();
        prop_assert_eq!(world.conflicts, Vec::<String>::new());
    }
}

/// The owner dies before anything of what it has granted has left.
fn dies_at_once(granting: Granting) -> World {
    let mut world = World::new(granting);
    world.catch_up();
    assert!(world.is_protected);
    // Not the first ones that the successor will hear of: both draw the same numbers.
    (40..48).for_each(|host| world.send(OWNER, host));
    assert!(world.take_over());
    world
}

#[test]
fn without_offers_a_successor_grants_what_the_owner_had_just_granted() {
    assert!(!dies_at_once(Granting::Freely).conflicts.is_empty(), "nothing would be noticed");
}

#[test]
fn a_successor_lets_rest_what_was_offered() {
    let world = dies_at_once(Granting::ByOffers);
    assert_eq!(world.conflicts, Vec::<String>::new());
    assert!(world.ledger.len() > 8, "it grants others");
}

#[test]
fn what_was_not_acknowledged_is_not_granted() {
    let mut world = World::new(Granting::ByOffers);
    world.catch_up();
    // Two addresses, four offers of each, and nothing arrives any more.
    (0..60).for_each(|host| world.send(OWNER, host));
    assert_eq!((world.ledger.len(), world.refused), (8, 52));
    world.catch_up();
    (0..60).for_each(|host| world.send(OWNER, host));
    assert_eq!(world.ledger.len(), 16);
    // Another backup knows nothing yet.
    world.applier = applier(&world.nodes);
    world.cut();
    let before = world.refused;
    (60..70).for_each(|host| world.send(OWNER, host));
    assert_eq!((world.ledger.len(), world.refused - before), (16, 10));
    world.catch_up();
    (60..70).for_each(|host| world.send(OWNER, host));
    assert!(world.ledger.len() > 16);
    assert_eq!(audit::check(&world.nodes[OWNER].tables), Vec::<String>::new());
}

#[test]
fn a_copy_that_begins_later_knows_what_rests() {
    let mut world = World::new(Granting::ByOffers);
    // Granted and given back before anybody had a copy.
    (0..60).for_each(|host| world.send(OWNER, host));
    assert_eq!(world.ledger.len(), 32);
    world.wait(OWNER, 310);
    world.wait(OWNER, 100);
    assert_eq!(world.nodes[OWNER].tables.subscribers.count(), 0);
    // They are other hosts' 20 seconds later, at the owner; its successor knows that they are not before.
    world.catch_up();
    assert!(world.is_protected && world.take_over());
    assert_eq!(world.conflicts, Vec::<String>::new());
}

#[test]
fn a_block_is_offered_that_somebody_still_has_at_a_backup_that_has_heard_nothing() {
    let mut world = World::new(Granting::ByOffers);
    // All blocks, as the backup knows.
    for _ in 0..4 {
        (0..60).for_each(|host| world.send(OWNER, host));
        world.catch_up();
    }
    assert_eq!(world.ledger.len(), 32);
    // All of them are given back, and have rested, before it hears of anything: some are offered by then.
    world.wait(OWNER, 310);
    world.wait(OWNER, 200);
    world.applier = applier(&world.nodes);
    world.cut();
    world.catch_up();
    world.wait(OWNER, 400);
    (100..160).for_each(|host| world.send(OWNER, host));
    assert!(world.take_over());
    assert_eq!(world.conflicts, Vec::<String>::new());
}

#[test]
fn what_is_given_back_before_its_subscriber_was_sent_rests() {
    let mut world = World::new(Granting::ByOffers);
    world.catch_up();
    (40..48).for_each(|host| world.send(OWNER, host));
    // Another copy begins, and they go before a word is said of them.
    world.applier = applier(&world.nodes);
    world.cut();
    world.wait(OWNER, 310);
    world.catch_up();
    assert!(world.take_over());
    assert_eq!(world.conflicts, Vec::<String>::new());
}
