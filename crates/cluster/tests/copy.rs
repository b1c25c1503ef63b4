//! A copy becomes what the table is, whatever happens to the table and to the connection meanwhile.
//!
//! Random operations at the owner; batches and acknowledgements that arrive, or are lost with the connection,
//! at any place; a backup that is restarted with its tables. Once nothing is pending, the copy equals the
//! owner's table, and every invariant of the tables holds at both.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "copy/moves.rs"]
mod moves;
#[path = "simulation/random.rs"]
#[allow(dead_code, clippy::cast_possible_truncation, reason = "the simulation uses more of it")]
mod random;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use tombolo_cluster::replica::{Applier, Purpose, Sender, Start, To, View};
use tombolo_engine::Plan;
use tombolo_engine::cluster::{Assigned, Holders};
use tombolo_engine::mapping::pool::{Pool, PortSpace};
use tombolo_engine::mechanism::napt::session_state::ESTABLISHED;
use tombolo_tables::binding::{Binding, BindingId, InsideKey, flags};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::session::{Lifetimes, SessionKey};
use tombolo_tables::subscriber::{Subscriber, SubscriberId, SubscriberKey};
use tombolo_tables::tables::{Candidate, Capacity, Opener, Tables};
use tombolo_tables::tick::Tick;
use tombolo_tables::{audit, outside};

/// Number of the owner among the nodes, and of the backup.
const OWNER: u8 = 0;
const BACKUP: u8 = 1;
const EPOCH: u32 = 3;
const NOW: Tick = Tick(10_000);
/// Of what has ended a port is free again at once: so that records meet.
const REUSE_AFTER: u32 = 0;

/// n1 owns slices 0 and 1, of which n2 has the copies, and 2, whose copy is n3's.
fn plan(node: &str, services: [&str; 2]) -> Plan {
    let service = |name: &&str| match *name {
        "wide" => {
            "[[service]]\nname = \"wide\"\nkind = \"nat64\"\nprefix = \"2001:db8:6464::/96\"\n\
             pool = [{ addresses = \"203.0.113.64/30\", ports = \"1024-2047\" }]\n\
             allocation = { mode = \"blocks\", block_size = 64, blocks = 3 }\n"
        }
        _ => {
            "[[service]]\nname = \"four\"\nkind = \"nat44\"\ninside = [\"10.0.0.0/8\"]\n\
             pool = [{ addresses = \"203.0.113.80/30\", ports = \"1024-1279\" }]\n"
        }
    };
    let services: String = services.iter().map(service).collect();
    let text = format!(
        "[cluster]\nnode = \"{node}\"\n\
         nodes = {{ n1 = \"2001:db8:c1:1::/64\", n2 = \"2001:db8:c1:2::/64\", n3 = \"2001:db8:c1:3::/64\" }}\n\
         slices = {{ count = 4, secret = \"{}\", owners = [\n\
         {{ slices = \"0-1\", owner = \"n1\", backup = \"n2\" }}, {{ slices = \"2\", owner = \"n1\", backup = \"n3\" }},\n\
         {{ slices = \"3\", owner = \"n2\", backup = \"n1\" }}] }}\n{services}",
        "8f3b1d5c7e9a20416385a7c9ebfd0f213547698bacdef0021436587a9cbedff1"
    );
    tombolo_config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}")).plan
}

fn tables(plan: &Plan, subscribers: u32, bindings: u32) -> Arc<Tables> {
    let capacity = Capacity { subscribers, bindings, sessions: 64, ..plan.capacity };
    Arc::new(Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])).unwrap().noting_changes())
}

/// A node: its plan and its tables.
struct Node {
    plan: Plan,
    tables: Arc<Tables>,
}

impl Node {
    fn view(&self) -> View<'_> {
        View::of(&self.plan).unwrap()
    }

    fn number(&self, service: &str) -> u8 {
        self.plan.numbered().find(|(_, found)| found.name == service).unwrap().0
    }

    fn pool(&self, service: u8) -> &Pool {
        self.plan.service(service).unwrap().kind.pool().unwrap()
    }

    fn key(&self, host: u8) -> SubscriberKey {
        let of_nat44 = host.is_multiple_of(3);
        if of_nat44 {
            SubscriberKey { ipv4: [10, 0, 0, host], service: self.number("four"), ..SubscriberKey::default() }
        } else {
            let ipv6 = [0x20, 1, 0xd, 0xb8, host, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            SubscriberKey { ipv6, service: self.number("wide"), ..SubscriberKey::default() }
        }
    }

    fn address(&self, key: &SubscriberKey) -> [u8; 4] {
        self.pool(key.service).address_for(key, 0).unwrap().octets()
    }

    /// The subscriber, admitted if it is not.
    fn subscriber(&self, host: u8) -> Option<(SubscriberId, Subscriber)> {
        let key = self.key(host);
        let grant = Subscriber { key, outside_ipv4: self.address(&key) };
        self.tables.find_subscriber(&key).or_else(|| self.tables.admit(&grant, NOW))
    }

    /// TCP where the port is even.
    fn inside(&self, host: u8, inside_port: u8) -> InsideKey {
        let SubscriberKey { ipv6, ipv4, service } = self.key(host);
        let protocol = if inside_port.is_multiple_of(2) { 6 } else { 17 };
        InsideKey { ipv6, ipv4, port: [40, inside_port], protocol, service }
    }

    fn bind(&self, host: u8, inside_port: u8, port: u16) {
        let Some((id, subscriber)) = self.subscriber(host) else { return };
        let (key, inside) = (subscriber.key, self.inside(host, inside_port));
        let space = PortSpace::of_protocol(inside.protocol).unwrap();
        let address = subscriber.outside_ipv4;
        let port = 1024 + port % 256;
        let pool = self.pool(key.service);
        if let Some(size) = pool.allocation().block_size() {
            let (first, _) = pool.blocks(address.into(), size).unwrap();
            let place = u16::try_from(u32::from(port) / size).unwrap();
            let has_it = self.tables.subscribers.blocks(id).any(|held| held == place);
            if !has_it && !self.tables.grant_block(id, first, place, 3, REUSE_AFTER, NOW) {
                return;
            }
        }
        let slot = pool.slot(address.into(), space, port).unwrap();
        let template = Binding { inside, subscriber: id.get(), ..Binding::default() };
        let candidate = Candidate { slot, ipv4: address, port: port.to_be_bytes() };
        let _ = self.tables.bind(&template, [candidate], REUSE_AFTER, NOW);
    }

    fn nth_binding(&self, nth: u8) -> Option<(BindingId, Binding, Tick)> {
        let all: Vec<BindingId> = self.tables.bindings.iter().collect();
        let id = *all.get(usize::from(nth) % all.len().max(1))?;
        let (binding, seen) = self.tables.bindings.read(id)?;
        Some((id, binding, seen))
    }

    fn unbind(&self, nth: u8) {
        if let Some((id, _, _)) = self.nth_binding(nth) {
            assert!(self.tables.drop_binding(id, None, NOW).is_some());
        }
    }

    fn open(&self, nth: u8) {
        let Some((id, binding, _)) = self.nth_binding(nth).filter(|(_, binding, _)| binding.inside.protocol == 6)
        else {
            return;
        };
        self.open_with(id, &binding, 1);
    }

    /// A connection with one of the hosts outside is open.
    fn open_with(&self, id: BindingId, binding: &Binding, remote: u8) {
        let key = SessionKey { binding: id, remote_ipv4: [198, 51, 100, remote], remote_port: [1, 187] };
        let opener = Opener::Inside { limit: None };
        let _ = self.tables.open(&key, binding, ESTABLISHED, opener, &Lifetimes([u32::MAX; 16]), NOW);
    }

    fn dismiss(&self, host: u8) {
        if let Some((id, _)) = self.tables.find_subscriber(&self.key(host)) {
            let _ = self.tables.drop_subscriber(id, NOW);
        }
    }

    /// What there is in slices 0 and 1, without numbers that are the node's own.
    fn content(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        self.content_of(|slice| slice < 2)
    }

    /// What there is in some slices.
    fn content_of(&self, is_meant: impl Fn(u16) -> bool) -> (BTreeSet<String>, BTreeSet<String>) {
        let is_copied =
            |service: u8, address: [u8; 4]| self.pool(service).slice_of_address(address.into()).is_some_and(&is_meant);
        let name = |service: u8| self.plan.service(service).unwrap().name.clone();
        let subscriber = |id: u32| {
            let id = SubscriberId::new(id).unwrap();
            let (found, _) = self.tables.subscribers.read(id).unwrap();
            let blocks: BTreeSet<u16> = self.tables.subscribers.blocks(id).collect();
            let SubscriberKey { ipv6, ipv4, service } = found.key;
            format!("{} {ipv6:?} {ipv4:?} {:?} {blocks:?}", name(service), found.outside_ipv4)
        };
        let subscribers = self.tables.subscribers.iter().filter_map(|id| {
            let (found, _) = self.tables.subscribers.read(id).unwrap();
            is_copied(found.key.service, found.outside_ipv4).then(|| subscriber(id.get()))
        });
        let bindings = self.tables.bindings.iter().filter_map(|id| {
            let (found, _) = self.tables.bindings.read(id).unwrap();
            let InsideKey { ipv6, ipv4, port, protocol, service } = found.inside;
            let outside = (found.outside_ipv4, found.outside_port, found.created);
            let is_open = self.tables.bindings.first_session(id).is_some() || found.flags & flags::RESUMED != 0;
            is_copied(service, found.outside_ipv4).then(|| {
                let inside = format!("{} {ipv6:?} {ipv4:?} {port:?} {protocol}", name(service));
                format!("{inside} {outside:?} open {is_open} of {}", subscriber(found.subscriber))
            })
        });
        (subscribers.collect(), bindings.collect())
    }
}

/// What happens.
#[derive(Debug, Clone)]
enum Step {
    Bind {
        host: u8,
        inside_port: u8,
        port: u16,
    },
    Unbind(u8),
    Open(u8),
    Dismiss(u8),
    /// The sender looks what has changed, and sends a batch.
    Send,
    /// The first batch that is on its way arrives.
    Arrive,
    /// The first acknowledgement that is on its way arrives.
    Acknowledge,
    /// The connection breaks, with what is on its way.
    Cut,
    /// And the backup is started anew, with its tables.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bind =
        (0..12_u8, 0..6_u8, 0..256_u16).prop_map(|(host, inside_port, port)| Step::Bind { host, inside_port, port });
    let step = prop_oneof![
        8 => bind,
        5 => any::<u8>().prop_map(Step::Unbind),
        2 => any::<u8>().prop_map(Step::Open),
        3 => (0..12_u8).prop_map(Step::Dismiss),
        4 => Just(Step::Send),
        4 => Just(Step::Arrive),
        3 => Just(Step::Acknowledge),
        1 => Just(Step::Cut),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..200)
}

struct World {
    owner: Node,
    backup: Node,
    sender: Sender,
    applier: Applier,
    batches: Vec<Vec<u8>>,
    acknowledgements: Vec<u64>,
    starts: Vec<Start>,
}

impl World {
    fn new() -> Self {
        let (owner, backup) = (plan("n1", ["wide", "four"]), plan("n2", ["four", "wide"]));
        let (of_owner, of_backup) = (tables(&owner, 9, 20), tables(&backup, 30, 60));
        let owner = Node { plan: owner, tables: of_owner };
        let backup = Node { plan: backup, tables: of_backup };
        assert_ne!(owner.number("wide"), backup.number("wide"));
        let sender = Sender::new(Arc::clone(&owner.tables));
        let applier = applier(&owner, &backup);
        let (batches, acknowledgements, starts) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = Self { owner, backup, sender, applier, batches, acknowledgements, starts };
        // Slice 3 is the backup's own: whatever is copied does not touch it.
        let own = (0..=255).filter(|host| {
            let key = world.backup.key(*host);
            world.backup.pool(key.service).slice_of(&key) == Some(3)
        });
        own.take(3).for_each(|host| world.backup.bind(host, 3, u16::from(host)));
        world.connect();
        world
    }

    fn connect(&mut self) {
        self.batches.clear();
        self.acknowledgements.clear();
        assert!(self.applier.connect(&self.owner.view().services(), self.backup.view()).is_empty());
        let start = self.sender.connect(BACKUP, self.applier.is_complete(), self.owner.view());
        self.starts.push(start);
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Bind { host, inside_port, port } => self.owner.bind(host, inside_port, port),
            Step::Unbind(nth) => self.owner.unbind(nth),
            Step::Open(nth) => self.owner.open(nth),
            Step::Dismiss(host) => self.owner.dismiss(host),
            Step::Send => drop(self.send()),
            Step::Arrive => drop(self.arrive()),
            Step::Acknowledge => {
                if !self.acknowledgements.is_empty() {
                    let number = self.acknowledgements.remove(0);
                    assert!(self.sender.acknowledge(To::Backup(BACKUP), number));
                }
            }
            Step::Cut => {
                self.sender.disconnect(To::Backup(BACKUP));
                self.connect();
            }
            Step::Restart => {
                self.sender.disconnect(To::Backup(BACKUP));
                self.applier = applier(&self.owner, &self.backup);
                self.connect();
            }
        }
    }

    fn send(&mut self) -> bool {
        self.sender.classify(1, NOW);
        self.send_changes()
    }

    /// The same, but that nobody looks which connections are open.
    fn send_changes(&mut self) -> bool {
        self.sender.collect(self.owner.view());
        let mut batch = Vec::new();
        let has_sent = self.sender.fill(To::Backup(BACKUP), self.owner.view(), &|_| EPOCH, NOW, &mut batch);
        self.batches.extend(has_sent.then_some(batch));
        has_sent
    }

    fn arrive(&mut self) -> bool {
        if self.batches.is_empty() {
            return false;
        }
        let batch = self.batches.remove(0);
        let number = self.applier.apply(&batch, self.backup.view(), &|_| EPOCH, NOW, false).unwrap();
        self.acknowledgements.push(number);
        true
    }

    /// Until nothing is on its way.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let is_at_rest = !self.send() && !self.arrive() && self.acknowledgements.is_empty();
            if is_at_rest && self.sender.pending(To::Backup(BACKUP)) == 0 {
                return;
            }
            self.take(&Step::Acknowledge);
        }
        panic!("{} records are pending for ever", self.sender.pending(To::Backup(BACKUP)));
    }

    fn check(&self) {
        assert_eq!(self.owner.content(), self.backup.content());
        for node in [&self.owner, &self.backup] {
            assert_eq!(audit::check(&node.tables), Vec::<String>::new());
        }
        let applied = self.applier.applied();
        assert_eq!(applied.unplaced, 0, "{applied:?}");
        assert_eq!(self.sender.in_flight(To::Backup(BACKUP)), 0);
        assert!(self.applier.is_complete());
    }
}

fn applier(owner: &Node, backup: &Node) -> Applier {
    let capacity = (owner.tables.subscribers.capacity(), owner.tables.bindings.capacity());
    Applier::new(Arc::clone(&backup.tables), Purpose::Copy, OWNER, capacity)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_copy_is_what_the_table_is(steps in steps()) {
        let mut world = World::new();
        let own = world.backup.tables.bindings.count();
        for step in &steps {
            world.take(step);
        }
        world.settle();
        world.check();
        let copied = world.owner.content().1.len();
        prop_assert_eq!(world.backup.tables.bindings.count() as usize, own as usize + copied);
    }
}

#[test]
fn a_connection_that_breaks_resumes_and_a_restarted_backup_gets_a_whole_copy() {
    let mut world = World::new();
    (0..12).for_each(|host| world.owner.bind(host, 1, host.into()));
    world.settle();
    world.take(&Step::Cut);
    world.owner.unbind(3);
    world.settle();
    world.take(&Step::Restart);
    world.settle();
    world.check();
    assert_eq!(world.starts, [Start::Whole, Start::Resumed, Start::Whole]);
}

#[test]
fn an_owner_of_yesterday_is_refused() {
    let mut world = World::new();
    (0..12).for_each(|host| world.owner.bind(host, 1, host.into()));
    assert!(world.send());
    let refused = world.applier.apply(&world.batches[0], world.backup.view(), &|_| EPOCH + 1, NOW, false).unwrap_err();
    assert!(refused.to_string().contains("as of epoch 3, which is 4 here"), "{refused}");
    assert_eq!(world.backup.content().1.len(), 0);
}

#[test]
fn what_is_not_the_sender_s_to_say_is_refused() {
    let mut world = World::new();
    (0..12).for_each(|host| world.owner.bind(host, 1, host.into()));
    assert!(world.send());
    // The third node gets what the second was to get.
    let third = Node { plan: plan("n3", ["wide", "four"]), tables: tables(&world.backup.plan, 30, 60) };
    let mut applier = applier(&world.owner, &third);
    assert!(applier.connect(&world.owner.view().services(), third.view()).is_empty());
    let refused = applier.apply(&world.batches[0], third.view(), &|_| EPOCH, NOW, false).unwrap_err();
    assert!(refused.to_string().contains("which is not copied from it to this node"), "{refused}");
}

#[test]
fn a_service_that_the_backup_does_not_have_is_named_and_left_out() {
    let mut world = World::new();
    let mut services = world.owner.view().services();
    services[0].name = "other".into();
    assert_eq!(world.applier.connect(&services, world.backup.view()), ["other"]);
    (0..12).for_each(|host| world.owner.bind(host, 1, host.into()));
    assert!(world.send() && world.arrive());
    assert!(world.applier.applied().unplaced > 0);
    assert_eq!(audit::check(&world.backup.tables), Vec::<String>::new());
}

#[test]
fn a_port_that_is_in_the_way_at_the_backup_is_freed() {
    let mut world = World::new();
    let host = (0..12).find(|host| {
        let key = world.backup.key(*host);
        world.backup.pool(key.service).slice_of(&key) == Some(0)
    });
    let host = host.unwrap();
    // As while the backup served in the owner's place.
    world.backup.bind(host, 1, 7);
    world.owner.bind(host, 3, 7);
    world.settle();
    world.check();
    let taken = world.backup.tables.bindings.iter().filter_map(|id| world.backup.tables.bindings.read(id));
    for (binding, _) in taken {
        assert!(matches!(world.backup.tables.outside.read(binding.outside_slot), outside::Slot::Taken(_)));
    }
}

impl World {
    /// The same, whose nodes agree on who has which slice while they run.
    fn agreed() -> Self {
        let mut world = Self::new();
        for node in [&mut world.owner, &mut world.backup] {
            let cluster = node.plan.cluster.take().and_then(Arc::into_inner).unwrap();
            node.plan.cluster = Some(Arc::new(cluster.with_agreement().with_epoch(EPOCH)));
        }
        // Copies of slices begin by themselves then.
        world.connect();
        world
    }

    /// A node hears that slice 0 was handed over.
    fn hand_over(node: &Node) {
        let cluster = node.plan.cluster.as_deref().unwrap();
        let holders = Holders { owner: BACKUP, backup: Some(OWNER) };
        cluster.assign(0, Assigned { holders, epoch: EPOCH + 1, ..cluster.assigned(0) });
    }

    /// All that is on its way arrives, by the epochs that the nodes know.
    fn settle_as_agreed(&mut self) {
        let (owner, backup) = (self.owner.view(), self.backup.view());
        let mut batch = Vec::new();
        self.sender.collect(owner);
        let epochs = |slice| owner.cluster().epoch_of(slice);
        while self.sender.fill(To::Backup(BACKUP), owner, &epochs, NOW, &mut batch) {
            let epochs = |slice| backup.cluster().epoch_of(slice);
            let number = self.applier.apply(&batch, backup, &epochs, NOW, false).unwrap();
            assert!(self.sender.acknowledge(To::Backup(BACKUP), number));
            batch.clear();
        }
    }

    /// Binds three hosts of each of the slices 0 and 1.
    fn bind_both(&self, inside_port: u8) {
        for wanted in [0, 1] {
            let is_its = |host: &u8| {
                let key = self.owner.key(*host);
                self.owner.pool(key.service).slice_of(&key) == Some(wanted)
            };
            let hosts = (0..=255).filter(is_its).take(3);
            hosts.for_each(|host| self.owner.bind(host, inside_port, u16::from(host)));
        }
    }

    /// The numbers of a node's bindings of a slice.
    fn of_slice(node: &Node, slice: u16) -> BTreeSet<u32> {
        let is_its = |id: &BindingId| {
            let (found, _) = node.tables.bindings.read(*id).unwrap();
            node.pool(found.inside.service).slice_of_address(found.outside_ipv4.into()) == Some(slice)
        };
        node.tables.bindings.iter().filter(is_its).map(BindingId::get).collect()
    }

    /// The owner's bindings of a slice end.
    fn end(&self, slice: u16, most: usize) {
        for number in World::of_slice(&self.owner, slice).into_iter().take(most) {
            assert!(self.owner.tables.drop_binding(BindingId::new(number).unwrap(), None, NOW).is_some());
        }
    }
}

#[test]
fn of_a_slice_that_was_handed_over_its_former_owner_says_nothing_that_counts() {
    let mut world = World::agreed();
    world.bind_both(1);
    world.settle_as_agreed();
    let [first, second] = [0, 1].map(|slice| World::of_slice(&world.backup, slice));
    assert!(!first.is_empty() && !second.is_empty());
    World::hand_over(&world.backup);
    // Its former owner has not heard of it; then it has.
    for is_heard in [false, true] {
        if is_heard {
            World::hand_over(&world.owner);
        }
        [0, 1].into_iter().for_each(|slice| world.end(slice, usize::MAX));
        world.settle_as_agreed();
        assert_eq!(World::of_slice(&world.backup, 0), first, "{is_heard}");
        assert!(World::of_slice(&world.backup, 1).is_empty());
        world.bind_both(3);
        world.settle_as_agreed();
        assert_eq!(World::of_slice(&world.backup, 0), first, "{is_heard}");
        assert_eq!(World::of_slice(&world.backup, 1).len(), second.len());
    }
}

#[test]
fn a_copy_is_settled_once_all_that_had_changed_is_acknowledged() {
    let mut world = World::new();
    world.bind_both(1);
    world.settle();
    let to = To::Backup(BACKUP);
    world.end(0, 1);
    world.sender.settle(to, world.owner.view(), NOW);
    assert!(!world.sender.is_settled(to));
    assert!(world.send() && !world.sender.is_settled(to));
    // What changes later does not count.
    world.end(1, 1);
    assert!(world.arrive() && world.send());
    world.take(&Step::Acknowledge);
    assert!(world.sender.is_settled(to));
    world.take(&Step::Cut);
    assert!(!world.sender.is_settled(to));
}

#[test]
fn a_copy_is_settled_once_open_connections_are_known_to_be_open() {
    let mut world = World::new();
    // TCP.
    world.bind_both(2);
    world.settle();
    let to = To::Backup(BACKUP);
    (0..6).for_each(|nth| world.owner.open(nth));
    world.sender.settle(to, world.owner.view(), NOW);
    while world.send_changes() || world.arrive() {}
    while !world.acknowledgements.is_empty() {
        world.take(&Step::Acknowledge);
    }
    assert!(world.sender.is_settled(to));
    assert!(world.owner.content().1.iter().any(|binding| binding.contains("open true")));
    world.check();
}
