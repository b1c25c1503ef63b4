//! Slices that go round between three nodes, while bindings are made, used and ended, and connections between the nodes break.
//!
//! Each node hears what etcd says in order, and late. A ledger that no node sees has all bindings that live, and where they are outside: none
//! is ever missing at its slice's owner, nor where a copy counts as whole that was there when the copy began; and when everything has
//! arrived, each copy is what its owner has.
//!
//! ```text
//! TOMBOLO_COURSES=20000 cargo test --release -p tombolo-cluster --test copy slices_that_go_round
//! TOMBOLO_COURSES=1 TOMBOLO_SEED=4711 ...        one of them
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tombolo_cluster::replica::{Applier, Purpose, Refused, Sender, To, View};
use tombolo_engine::cluster::{Assigned, Granting, Holders};
use tombolo_engine::{Now, adoption};
use tombolo_tables::audit;
use tombolo_tables::blocks::Holder;
use tombolo_tables::tables::Removal;

use super::random::Random;
use super::{NOW, Node, plan, tables};

const NODES: usize = 3;
const SLICES: u16 = 4;
/// Hosts, and ports inside of each.
const HOSTS: usize = 24;
const PORTS: usize = 20;
/// Courses that `make test` runs, and steps of each.
const COURSES: u64 = 100;
const STEPS: usize = 500;
/// Rounds in which everything arrives.
const ROUNDS: usize = 100;

impl Random {
    fn byte_below(&mut self, bound: usize) -> u8 {
        u8::try_from(self.below(bound)).unwrap()
    }
}

/// Says which course it was that failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the course with TOMBOLO_SEED={}", self.0);
        }
    }
}

/// What a node has handed over, until the successor's copy has taken its place.
struct Kept {
    successor: usize,
    epoch: u32,
    is_replaced: bool,
}

struct Member {
    node: Node,
    sender: Sender,
    /// Copies of what each other node has.
    appliers: BTreeMap<usize, Applier>,
    kept: BTreeMap<u16, Kept>,
    /// So much of what etcd has said it has heard.
    heard: usize,
}

impl Member {
    fn view(&self) -> View<'_> {
        self.node.view()
    }

    fn assigned(&self, slice: u16) -> Assigned {
        self.view().cluster().assigned(slice)
    }

    /// Whether there is a whole copy here of a slice of `owner`'s.
    fn holds(&self, slice: u16, owner: usize, epoch: u32) -> bool {
        let has_it = |applier: &Applier| applier.is_complete() && applier.has(slice, epoch);
        self.appliers.get(&owner).is_some_and(has_it) || self.kept.get(&slice).is_some_and(|kept| kept.epoch == epoch)
    }
}

/// From one node to another.
#[derive(Default)]
struct Way {
    batches: VecDeque<Vec<u8>>,
    acknowledgements: VecDeque<u64>,
}

/// A binding that lives.
struct Life {
    slice: u16,
    outside: ([u8; 4], [u8; 2]),
    /// It was there when the slice's copy began.
    is_copied: bool,
}

struct World {
    random: Random,
    members: Vec<Member>,
    ways: BTreeMap<(usize, usize), Way>,
    /// What etcd has said, and says.
    said: Vec<(u16, Assigned)>,
    slices: Vec<Assigned>,
    /// Slices that are being handed over: nothing begins or ends there.
    handing: BTreeSet<u16>,
    /// By host and port inside.
    live: BTreeMap<(u8, u8), Life>,
    handovers: usize,
    breaks: usize,
}

fn number(node: usize) -> u8 {
    u8::try_from(node).unwrap()
}

fn member(own: usize) -> Member {
    let services = if own == 1 { ["four", "wide"] } else { ["wide", "four"] };
    let mut plan = plan(["n1", "n2", "n3"][own], services);
    let cluster = plan.cluster.take().and_then(Arc::into_inner).unwrap();
    plan.cluster = Some(Arc::new(cluster.with_agreement().with_epoch(1)));
    let tables = tables(&plan, 80, 1500);
    let node = Node { plan, tables: Arc::clone(&tables) };
    let capacity = (tables.subscribers.capacity(), tables.bindings.capacity());
    let applier = |other| Applier::new(Arc::clone(&tables), Purpose::Copy, number(other), capacity);
    let others = (0..NODES).filter(|other| *other != own);
    let appliers = others.map(|other| (other, applier(other))).collect();
    Member { node, sender: Sender::new(tables), appliers, kept: BTreeMap::new(), heard: 0 }
}

impl World {
    /// Each node owns slices of which the next one has the copies, as all have heard.
    fn new(seed: u64) -> Self {
        let members: Vec<Member> = (0..NODES).map(member).collect();
        let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        let ways = pairs.filter(|(from, to)| from != to).map(|pair| (pair, Way::default())).collect();
        let mut world = Self {
            random: Random::new(seed),
            members,
            ways,
            said: Vec::new(),
            slices: vec![Assigned::NOBODY; SLICES.into()],
            handing: BTreeSet::new(),
            live: BTreeMap::new(),
            handovers: 0,
            breaks: 0,
        };
        for slice in 0..SLICES {
            let owner = usize::from(slice) % NODES;
            let holders = Holders { owner: number(owner), backup: Some(number((owner + 1) % NODES)) };
            let assigned = Assigned { holders, epoch: 1, is_protected: false, granting: Granting::Nothing };
            for node in &world.members {
                node.view().cluster().assign(slice, Assigned::NOBODY);
            }
            world.say(slice, assigned);
        }
        (0..NODES).for_each(|node| world.hear_all(node));
        let pairs: Vec<_> = world.ways.keys().copied().collect();
        pairs.into_iter().for_each(|(from, to)| world.connect(from, to));
        world
    }

    /// It begins with copies that are whole.
    fn protected(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.arrive_all();
        (0..SLICES).for_each(|slice| world.move_on(slice));
        world.arrive_all();
        assert!(world.slices.iter().all(|slice| slice.is_protected));
        world
    }

    fn say(&mut self, slice: u16, assigned: Assigned) {
        self.slices[usize::from(slice)] = assigned;
        self.said.push((slice, assigned));
    }

    /// The next of what etcd has said, as the daemon does it: tables, then the slice table, then copies.
    fn hear(&mut self, node: usize) {
        let Some(&(slice, is)) = self.said.get(self.members[node].heard) else { return };
        let own = number(node);
        let Member { node, sender, appliers, kept, heard } = &mut self.members[node];
        *heard += 1;
        // A copy that was to be elsewhere for a while, within one ownership, is nothing to a node that hears late: it hears all at once.
        if self.said[*heard..].iter().any(|(other, next)| *other == slice && next.epoch == is.epoch) {
            return;
        }
        let Holders { owner, backup } = is.holders;
        let granting = if owner == own { Granting::ByOffers } else { Granting::Nothing };
        let is = Assigned { granting, ..is };
        let view = node.view();
        let was = view.cluster().assigned(slice);
        let is_it = |other: u16| other == slice;
        if owner == own && was.holders.owner != own {
            adoption::take_over(&node.tables, &node.plan, is_it, Now(u64::from(NOW.0) << 30));
        }
        if was.holders.owner == own && owner != own && backup == Some(own) {
            kept.insert(slice, Kept { successor: owner.into(), epoch: is.epoch, is_replaced: false });
        }
        view.cluster().assign(slice, is);
        let has_it = |Holders { owner, backup }: Holders| owner == own || backup == Some(own);
        if owner == own && (was.holders, was.epoch) != (is.holders, is.epoch) {
            backup.into_iter().for_each(|backup| sender.take_up(backup, is_it, view));
            backup.into_iter().for_each(|backup| sender.mark(backup, view));
            let its = self.live.values_mut().filter(|life| life.slice == slice);
            its.for_each(|life| life.is_copied = true);
        }
        if !has_it(is.holders) && has_it(was.holders) {
            adoption::forget(&node.tables, &node.plan, is_it, Now(u64::from(NOW.0) << 30));
            kept.remove(&slice);
            appliers.values_mut().for_each(|applier| applier.lose(is_it));
        }
    }

    fn hear_all(&mut self, node: usize) {
        while self.members[node].heard < self.said.len() {
            self.hear(node);
        }
    }

    fn connect(&mut self, from: usize, to: usize) {
        let services = self.members[from].view().services();
        let Member { node, appliers, .. } = &mut self.members[to];
        let applier = appliers.get_mut(&from).unwrap();
        assert!(applier.connect(&services, node.view()).is_empty());
        let has_copy = applier.is_complete();
        let Member { node, sender, .. } = &mut self.members[from];
        sender.connect(number(to), has_copy, node.view());
    }

    /// The connection breaks, with what is on its way, and there is another one.
    fn cut(&mut self, from: usize, to: usize) {
        *self.ways.get_mut(&(from, to)).unwrap() = Way::default();
        self.members[from].sender.disconnect(To::Backup(number(to)));
        self.breaks += 1;
        self.connect(from, to);
    }

    /// Where a node has heard too late that a copy of its was to be elsewhere for a while, everything is copied anew. True if so.
    fn begin_lost_anew(&mut self, from: usize, to: usize) -> bool {
        let Member { node, appliers, .. } = &mut self.members[to];
        let (view, applier) = (node.view(), appliers.get_mut(&from).unwrap());
        let is_lacking = applier.lacks_beginning(view, &|slice| view.cluster().epoch_of(slice));
        if is_lacking {
            applier.begin_anew();
            self.cut(from, to);
        }
        is_lacking
    }

    /// A batch with what has changed goes on its way; false if there is nothing to be said.
    fn send(&mut self, from: usize, to: usize) -> bool {
        let Member { node, sender, .. } = &mut self.members[from];
        let view = node.view();
        sender.collect(view);
        sender.classify(self.random.below(8) + 1, NOW);
        let epochs = |slice| view.cluster().epoch_of(slice);
        let mut batch = Vec::new();
        let has_sent = sender.fill(To::Backup(number(to)), view, &epochs, NOW, &mut batch);
        self.ways.get_mut(&(from, to)).unwrap().batches.extend(has_sent.then_some(batch));
        has_sent
    }

    /// The next batch arrives. What the node must have heard for it, it hears; or nobody will ever say it, and the connection breaks.
    fn arrive(&mut self, from: usize, to: usize) -> bool {
        let Some(batch) = self.ways.get_mut(&(from, to)).unwrap().batches.pop_front() else { return false };
        loop {
            match self.apply(from, to, &batch) {
                Ok(number) => self.ways.get_mut(&(from, to)).unwrap().acknowledgements.push_back(number),
                Err(Refused::Slice(_)) if self.members[to].heard < self.said.len() => {
                    self.hear(to);
                    continue;
                }
                Err(Refused::Slice(_)) => self.cut(from, to),
                Err(refused) => panic!("{refused}"),
            }
            return true;
        }
    }

    fn apply(&mut self, from: usize, to: usize, batch: &[u8]) -> Result<u64, Refused> {
        let Member { node, appliers, kept, .. } = &mut self.members[to];
        let view = node.view();
        let applier = appliers.get_mut(&from).unwrap();
        let epochs = |slice| view.cluster().epoch_of(slice);
        let has_served = kept.values().any(|kept| kept.successor == from && !kept.is_replaced);
        let applied = applier.apply(batch, view, &epochs, NOW, has_served);
        let mut reached = BTreeSet::new();
        kept.retain(|slice, kept| {
            let has_begun = kept.successor == from && applier.has_begun(*slice, kept.epoch);
            let is_whole = kept.successor == from && applier.has(*slice, kept.epoch);
            reached.extend((has_begun && !kept.is_replaced || is_whole).then_some(*slice));
            kept.is_replaced |= has_begun;
            !is_whole
        });
        if !reached.is_empty() {
            applier.end_serving(|slice| reached.contains(&slice), view, NOW);
        }
        applied
    }

    fn acknowledge(&mut self, from: usize, to: usize) -> bool {
        let Some(applied) = self.ways.get_mut(&(from, to)).unwrap().acknowledgements.pop_front() else { return false };
        assert!(self.members[from].sender.acknowledge(To::Backup(number(to)), applied));
        true
    }

    /// A slice's owner, where it knows that it is, and of the slice's backup.
    fn owner_of(&self, slice: u16) -> Option<usize> {
        let is = self.slices[usize::from(slice)];
        let owner = usize::from(is.holders.owner);
        let known = self.members[owner].assigned(slice);
        ((known.holders, known.epoch) == (is.holders, is.epoch)).then_some(owner)
    }

    /// The node at which something begins or ends in a slice.
    fn server_of(&self, slice: u16) -> Option<usize> {
        self.owner_of(slice).filter(|_| !self.handing.contains(&slice))
    }

    fn slice_of(&self, host: u8) -> u16 {
        let node = &self.members[0].node;
        let key = node.key(host);
        node.pool(key.service).slice_of(&key).unwrap()
    }

    /// Some bindings of a host are made.
    fn bind(&mut self) {
        let host = self.random.byte_below(HOSTS);
        let slice = self.slice_of(host);
        let Some(owner) = self.server_of(slice) else { return };
        for _ in 0..self.random.below(12) + 1 {
            let (inside_port, port) = (self.random.byte_below(PORTS), u16::from(self.random.byte_below(256)));
            let node = &self.members[owner].node;
            node.bind(host, inside_port, port);
            if let Some((_, made)) = node.tables.find_inside(&node.inside(host, inside_port)) {
                let outside = (made.outside_ipv4, made.outside_port);
                self.live.entry((host, inside_port)).or_insert(Life { slice, outside, is_copied: false });
            }
        }
    }

    /// Something that lives, where somebody serves it.
    fn choose(&mut self) -> Option<(u8, u8, usize)> {
        let nth = self.random.below(self.live.len().max(1));
        let (&(host, inside_port), life) = self.live.iter().nth(nth)?;
        Some((host, inside_port, self.server_of(life.slice)?))
    }

    fn unbind(&mut self) {
        let Some((host, inside_port, owner)) = self.choose() else { return };
        let Node { tables, .. } = &self.members[owner].node;
        let (id, _) = tables.find_inside(&self.members[owner].node.inside(host, inside_port)).unwrap();
        let mut removal = Removal::new(tables);
        assert!(removal.unbind_if(id, |_| true, NOW).is_some());
        removal.finish();
        self.live.remove(&(host, inside_port));
    }

    fn open(&mut self) {
        let Some((host, inside_port, owner)) = self.choose() else { return };
        let remote = self.random.byte_below(2) + 1;
        let node = &self.members[owner].node;
        let (id, binding) = node.tables.find_inside(&node.inside(host, inside_port)).unwrap();
        if binding.inside.protocol == 6 {
            node.open_with(id, &binding, remote);
        }
    }

    fn dismiss(&mut self) {
        let host = self.random.byte_below(HOSTS);
        if let Some(owner) = self.server_of(self.slice_of(host)) {
            self.members[owner].node.dismiss(host);
        }
    }

    /// The owner of a slice goes on with what is to be done for it: its copy counts as whole; it ceases to grant; it asks etcd to have the
    /// backup own it.
    fn move_on(&mut self, slice: u16) {
        let Some(owner) = self.owner_of(slice) else { return };
        let is = self.slices[usize::from(slice)];
        let Some(backup) = is.holders.backup else { return };
        let (to, Member { node, sender, .. }) = (To::Backup(backup), &mut self.members[owner]);
        if !sender.is_held(to) {
            return;
        }
        if !is.is_protected {
            self.say(slice, Assigned { is_protected: true, ..is });
        } else if self.handing.insert(slice) {
            sender.settle(to, node.view(), NOW);
        } else if sender.is_settled(to) {
            self.handing.remove(&slice);
            self.handovers += 1;
            let holders = Holders { owner: backup, backup: Some(number(owner)) };
            self.say(slice, Assigned { holders, epoch: is.epoch + 1, ..is });
        }
    }

    /// The third node is to have the copy.
    fn change_backup(&mut self, slice: u16) {
        let Some(owner) = self.server_of(slice) else { return };
        let is = self.slices[usize::from(slice)];
        let Some(backup) = is.holders.backup else { return };
        let third = number(NODES) - number(owner) - backup;
        let holders = Holders { backup: Some(third), ..is.holders };
        self.say(slice, Assigned { holders, is_protected: false, ..is });
    }

    /// True if some node's tables may have lost something by it.
    fn step(&mut self) -> bool {
        let slice = u16::from(self.random.byte_below(SLICES.into()));
        let nth = self.random.below(self.ways.len());
        let (from, to) = *self.ways.keys().nth(nth).unwrap();
        let step = self.random.below(100);
        match step {
            0..10 => self.bind(),
            10..16 => self.unbind(),
            16..20 => self.open(),
            20..22 => self.dismiss(),
            22..42 => drop(self.send(from, to)),
            42..62 => (0..self.random.below(3) + 1).for_each(|_| {
                self.arrive(from, to);
            }),
            62..78 => while self.acknowledge(from, to) {},
            78..79 => self.cut(from, to),
            79..87 => self.hear(from),
            87..99 => self.move_on(slice),
            _ => self.change_backup(slice),
        }
        (42..87).contains(&step)
    }

    /// What lives is where it was outside, at each node that has to know; and of each protected slice where there is a whole copy, as far as
    /// that began with it.
    fn check_ledger(&self) {
        for (&(host, inside_port), life) in &self.live {
            let is = self.slices[usize::from(life.slice)];
            let owner = usize::from(is.holders.owner);
            let has_it = |node: usize| {
                let Node { tables, .. } = &self.members[node].node;
                let found = tables.find_inside(&self.members[node].node.inside(host, inside_port));
                found.map(|(_, found)| (found.outside_ipv4, found.outside_port)) == Some(life.outside)
            };
            let of = format!("host {host}, port {inside_port}, slice {} as of {}", life.slice, is.epoch);
            assert!(has_it(owner), "{of}: not at its owner, node {owner}");
            let backup = is.holders.backup.map(usize::from).filter(|_| is.is_protected && life.is_copied);
            let backup = backup.filter(|backup| self.members[*backup].holds(life.slice, owner, is.epoch));
            assert!(backup.is_none_or(has_it), "{of}: not at its backup, node {backup:?}");
        }
    }

    /// Everything is heard, and arrives.
    fn arrive_all(&mut self) {
        let pairs: Vec<_> = self.ways.keys().copied().collect();
        for _ in 0..ROUNDS {
            (0..NODES).for_each(|node| self.hear_all(node));
            let mut is_at_rest = true;
            for &(from, to) in &pairs {
                let member = &mut self.members[from];
                member.sender.classify(1, NOW);
                while self.send(from, to) {
                    is_at_rest = false;
                }
                while self.arrive(from, to) {
                    is_at_rest = false;
                }
                while self.acknowledge(from, to) {}
            }
            for &(from, to) in pairs.iter().filter(|_| is_at_rest).collect::<Vec<_>>() {
                is_at_rest &= !self.begin_lost_anew(from, to);
            }
            let pending = |(from, to): &(usize, usize)| self.members[*from].sender.pending(To::Backup(number(*to)));
            if is_at_rest && pairs.iter().map(pending).sum::<usize>() == 0 {
                return;
            }
        }
        panic!("records are pending for ever");
    }

    /// Each copy is what its owner has.
    fn check_copies(&self) {
        for slice in 0..SLICES {
            let Assigned { holders: Holders { owner, backup }, epoch, .. } = self.slices[usize::from(slice)];
            let (owner, backup) = (usize::from(owner), usize::from(backup.unwrap()));
            let content = |node: usize| self.members[node].node.content_of(|other| other == slice);
            assert_eq!(content(owner), content(backup), "slice {slice} of node {owner} at node {backup}");
            let count = self.live.values().filter(|life| life.slice == slice).count();
            assert_eq!(content(owner).1.len(), count, "slice {slice} at node {owner}: more than lives");
            assert!(self.members[backup].holds(slice, owner, epoch), "slice {slice} is not whole at node {backup}");
            assert!(!self.members[backup].kept.contains_key(&slice));
        }
        for Member { node, appliers, .. } in &self.members {
            assert_eq!(audit::check(&node.tables), Vec::<String>::new());
            assert!(appliers.values().all(|applier| applier.applied().unplaced == 0));
        }
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn slices_that_go_round_lose_nothing() {
    let first = from_environment("TOMBOLO_SEED").unwrap_or(1);
    let courses = from_environment("TOMBOLO_COURSES").unwrap_or(COURSES);
    let (mut handovers, mut breaks) = (0, 0);
    for seed in first..first + courses {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            if world.step() {
                world.check_ledger();
            }
        }
        world.arrive_all();
        world.check_ledger();
        world.check_copies();
        handovers += world.handovers;
        breaks += world.breaks;
    }
    println!("{courses} courses from {first}: {handovers} handovers, {breaks} connections broken");
    assert!(courses < COURSES || handovers > 200, "{handovers} handovers try nothing");
}

/// How much lives in a slice.
fn count(world: &World, slice: u16) -> usize {
    world.live.values().filter(|life| life.slice == slice).count()
}

/// How many bindings a node has of a slice.
fn count_at(world: &World, node: usize, slice: u16) -> usize {
    world.members[node].node.content_of(|other| other == slice).1.len()
}

/// One more binding of each host of a slice, as far as there are ports.
fn bind_hosts(world: &mut World, slice: u16, inside_port: u8) {
    let owner = world.owner_of(slice).unwrap();
    let hosts: Vec<u8> = (0..24).filter(|host| world.slice_of(*host) == slice).collect();
    for host in hosts {
        let node = &world.members[owner].node;
        let made = (0..256).find_map(|port| {
            node.bind(host, inside_port, port);
            node.tables.find_inside(&node.inside(host, inside_port))
        });
        if let Some((_, made)) = made {
            let outside = (made.outside_ipv4, made.outside_port);
            world.live.insert((host, inside_port), Life { slice, outside, is_copied: false });
        }
    }
    assert!(count(world, slice) > 0);
}

/// A slice's owner hands it over; who hears of it is another matter.
fn hand_over(world: &mut World, slice: u16) {
    let (from, handovers) = (world.owner_of(slice).unwrap(), world.handovers);
    let to = usize::from(world.slices[usize::from(slice)].holders.backup.unwrap());
    world.move_on(slice);
    while world.send(from, to) {}
    while world.arrive(from, to) {}
    while world.acknowledge(from, to) {}
    world.move_on(slice);
    assert_eq!(world.handovers, handovers + 1);
}

/// Everything arrives, and is as it should be.
fn end(world: &mut World) {
    world.arrive_all();
    world.check_ledger();
    world.check_copies();
}

#[test]
fn what_is_handed_over_stays_until_the_new_owner_has_named_it() {
    let mut world = World::protected(1);
    bind_hosts(&mut world, 0, 2);
    world.arrive_all();
    // The second node has no slice of which the first one has a copy. So it says, and that this is all, before it hears of another one.
    let tables = Arc::clone(&world.members[0].node.tables);
    let capacity = (tables.subscribers.capacity(), tables.bindings.capacity());
    world.members[0].appliers.insert(1, Applier::new(tables, Purpose::Copy, 1, capacity));
    world.cut(1, 0);
    assert!(world.send(1, 0));
    hand_over(&mut world, 0);
    world.hear_all(0);
    assert!(world.members[0].holds(0, 1, 2));
    assert!(world.arrive(1, 0) && world.members[0].appliers[&1].is_complete());
    assert_eq!(count_at(&world, 0, 0), count(&world, 0));
    assert!(world.members[0].holds(0, 1, 2));
    end(&mut world);
}

#[test]
fn a_copy_that_breaks_off_leaves_the_one_that_it_was_to_replace() {
    let mut world = World::protected(1);
    // More than a batch has.
    for inside_port in 0..=u8::MAX {
        if count(&world, 0) < 500 {
            bind_hosts(&mut world, 0, inside_port);
        }
    }
    world.arrive_all();
    hand_over(&mut world, 0);
    world.hear_all(0);
    world.hear_all(1);
    assert!(world.send(1, 0) && world.send(1, 0));
    assert!(world.arrive(1, 0) && world.members[0].holds(0, 1, 2), "nothing has gone yet");
    world.cut(1, 0);
    assert!(world.members[0].holds(0, 1, 2) && count_at(&world, 0, 0) == count(&world, 0));
    // It has nobody else to go by if its successor is gone for good.
    world.check_ledger();
    end(&mut world);
}

#[test]
fn a_backup_that_has_heard_that_it_is_one_no_more_goes_on_with_other_slices() {
    let mut world = World::protected(1);
    // Slices 0 and 3 are the first node's, and the second one has the copies.
    bind_hosts(&mut world, 0, 2);
    bind_hosts(&mut world, 3, 2);
    assert!(world.send(0, 1));
    world.change_backup(0);
    world.hear_all(1);
    let breaks = world.breaks;
    assert!(world.arrive(0, 1));
    assert_eq!((world.breaks, count_at(&world, 1, 0), count_at(&world, 1, 3)), (breaks, 0, count(&world, 3)));
    // It is the backup again before the owner has heard of the first change.
    let is = world.slices[0];
    world.say(0, Assigned { holders: Holders { backup: Some(1), ..is.holders }, ..is });
    end(&mut world);
}

#[test]
fn what_a_former_owner_had_said_does_not_count_and_breaks_nothing() {
    let mut world = World::protected(1);
    bind_hosts(&mut world, 0, 2);
    world.arrive_all();
    hand_over(&mut world, 0);
    // It has not heard, and says that a binding has ended; its successor has.
    let Node { tables, .. } = &world.members[0].node;
    let host = (0..24).find(|host| world.live.contains_key(&(*host, 2))).unwrap();
    let (id, _) = tables.find_inside(&world.members[0].node.inside(host, 2)).unwrap();
    assert!(tables.drop_binding(id, None, NOW).is_some());
    bind_hosts(&mut world, 3, 2);
    assert!(world.send(0, 1));
    world.hear_all(1);
    let breaks = world.breaks;
    assert!(world.arrive(0, 1));
    let counts = [0, 3].map(|slice| count(&world, slice));
    assert_eq!((world.breaks, [0, 3].map(|slice| count_at(&world, 1, slice))), (breaks, counts));
    // It hears of it, and has what the new owner has.
    bind_hosts(&mut world, 0, 4);
    end(&mut world);
}

/// How many blocks of a slice are offered, as a node has it.
fn count_offered(world: &World, node: usize, slice: u16) -> usize {
    let node = &world.members[node].node;
    let pool = node.pool(node.number("wide"));
    let addresses = (0..pool.addresses()).filter_map(|place| pool.address(place));
    let its = addresses.filter(|address| pool.slice_of_address(*address) == Some(slice));
    let words = its.flat_map(|address| pool.block_words(address, 64).map(|(_, word)| word).collect::<Vec<_>>());
    words.filter(|word| matches!(node.tables.blocks.read(*word), Holder::Offered { .. })).count()
}

#[test]
fn what_a_past_owner_offers_its_successor_does_not() {
    let mut world = World::protected(1);
    bind_hosts(&mut world, 0, 2);
    world.arrive_all();
    hand_over(&mut world, 0);
    // It has not heard; its successor has.
    let Member { node, sender, .. } = &mut world.members[0];
    sender.offer(1, node.view(), NOW);
    assert!(world.send(0, 1));
    world.hear_all(1);
    assert!(world.arrive(0, 1) && world.acknowledge(0, 1));
    assert!(count_offered(&world, 0, 0) > 0);
    assert_eq!(count_offered(&world, 1, 0), 0);
    end(&mut world);
}

/// Whoever serves has sessions, which are not to be found under numbers that other bindings have by then.
#[test]
fn what_was_served_leaves_no_sessions_behind() {
    let mut world = World::protected(1);
    bind_hosts(&mut world, 0, 2);
    for (host, _) in world.live.keys().copied().collect::<Vec<_>>() {
        let node = &world.members[0].node;
        let (id, binding) = node.tables.find_inside(&node.inside(host, 2)).unwrap();
        [1, 2].into_iter().for_each(|remote| node.open_with(id, &binding, remote));
    }
    assert!(world.members[0].node.tables.each_session().count() > count(&world, 0));
    world.arrive_all();
    hand_over(&mut world, 0);
    (0..2).for_each(|node| world.hear_all(node));
    // One ends before the successor's copy is whole.
    let host = (0..24).find(|host| world.live.contains_key(&(*host, 2))).unwrap();
    let node = &world.members[1].node;
    let (id, _) = node.tables.find_inside(&node.inside(host, 2)).unwrap();
    assert!(node.tables.drop_binding(id, None, NOW).is_some());
    world.live.remove(&(host, 2));
    end(&mut world);
    assert_eq!(world.members[0].node.tables.each_session().count(), 0);
}
