//! Subscribers, routers, and what a node does with a packet: the six steps of the slice, and three rights.
//!
//! ```text
//! 1  own, and "serving until" has not passed     translate (right 3 before the deadline)
//! 2  a route to its owner                        redirect
//! 3  backup, with a copy that is fresh enough    translate
//! 4  a route to its backup                       redirect
//! 5  own, nobody else is reached, and "alone until" has not passed     translate
//! 6                                              drop
//! ```

use tombolo_cluster::ownership::{Epoch, Event, Node, Role};

use crate::flaw::Flaw;
use crate::judge::Invariant;
use crate::replication::By;
use crate::tables::{BLOCKS, COPY_LASTS, State};
use crate::world::{What, World};

/// Subscribers of a slice, of whom so many are busy at one time.
const SUBSCRIBERS: u64 = 12;
const BUSY: usize = 5;
/// How long the same ones are busy, in microseconds.
const SHIFT: u64 = 3_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    slice: u16,
    direction: Direction,
    /// How often it was redirected.
    hops: u8,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    /// From a subscriber.
    Out { subscriber: u8 },
    /// To a block, as an answer to what a subscriber had sent by way of an owner's tables, or a copy of them.
    In { block: usize, meant: u8, epoch: Epoch },
}

/// How a node comes to translate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    Owner,
    Acting,
}

impl World {
    /// A subscriber sends a packet, which comes to any node that announces the entrance.
    pub(crate) fn demand(&mut self) {
        let next = self.random.between(4_000, 36_000);
        self.later(next, What::Demand);
        let slice = self.random.below(usize::from(self.slices)) as u16;
        let subscriber = ((self.now / SHIFT + self.random.below(BUSY) as u64) % SUBSCRIBERS) as u8;
        let Self { hosts, random, now, .. } = self;
        let announces = |host: usize| {
            let host = &hosts[host];
            host.no_inside == 0
                && host.is_announced(*now)
                && host.process.as_ref().is_some_and(|process| process.is_entrance)
        };
        let Some(entrance) = random.choose(hosts.len(), announces) else { return };
        self.receive(entrance, Packet { slice, direction: Direction::Out { subscriber }, hops: 0 });
    }

    /// A packet from outside comes to whom the router prefers, or, while routes change, to another one.
    pub(crate) fn reply(&mut self, packet: Packet) {
        let Self { hosts, random, now, .. } = self;
        let metric = |host: usize| {
            let host = &hosts[host];
            let process = host.process.as_ref().filter(|_| host.has_routes(*now) && host.is_announced(*now))?;
            process.metrics[usize::from(packet.slice)].or(process.is_entrance.then_some(u32::MAX - 1))
        };
        let best = (0..hosts.len()).filter_map(|host| Some((metric(host)?, host))).min();
        let any = random.choose(hosts.len(), |host| metric(host).is_some());
        let is_changing = random.chance(50);
        let Some(to) = any.filter(|_| is_changing).or(best.map(|(_, host)| host)) else { return };
        self.receive(to, packet);
    }

    /// A node has a packet.
    pub(crate) fn receive(&mut self, at: usize, packet: Packet) {
        let own = &self.hosts[at];
        let Some(process) = own.process.as_ref().filter(|_| own.frozen == 0) else { return };
        let (role, moment) = (own.role(packet.slice), own.moment(self.now));
        let is_own = matches!(role, Role::Owner { .. } | Role::Handing { .. } | Role::Former { .. });
        let is_fresh = moment.since(process.heard[usize::from(packet.slice)]) < COPY_LASTS;
        let [owner, backup] = others(role).map(|other| other.filter(|other| self.sees(at, *other)));
        match (owner, backup) {
            _ if is_own && moment < process.serve_until => self.translate(at, packet, As::Owner),
            (Some(owner), _) => self.redirect(owner, packet),
            _ if matches!(role, Role::Backup { .. }) && is_fresh => self.translate(at, packet, As::Acting),
            (_, Some(backup)) => self.redirect(backup, packet),
            _ if is_own && moment < process.alone_until => self.translate(at, packet, As::Owner),
            _ => {}
        }
    }

    /// There is a route to another node's locator.
    pub(crate) fn sees(&self, at: usize, other: Node) -> bool {
        let other = usize::from(other.0);
        other != at && self.are_linked(at, other) && self.hosts[other].is_announced(self.now)
    }

    fn redirect(&mut self, to: Node, packet: Packet) {
        if packet.hops == 2 {
            return;
        }
        self.judge.seen.redirected += 1;
        let delay = self.latency();
        self.later(delay, What::Packet(to.0.into(), Packet { hops: packet.hops + 1, ..packet }));
    }

    fn translate(&mut self, at: usize, packet: Packet, by: As) {
        self.judge.seen.acting += u64::from(by == As::Acting);
        let slice = packet.slice;
        let moment = self.hosts[at].moment(self.now);
        let is_void = self.hosts[at].is_excused(self.now);
        match packet.direction {
            Direction::Out { subscriber } if self.hosts[at].has_routes(self.now) => {
                let known = self.hosts[at].table(slice).block_of(subscriber);
                let Some(block) = known.or_else(|| self.grant(at, slice, subscriber, by)) else { return };
                let table = self.hosts[at].table(slice);
                table.touch(block, moment);
                let epoch = table.epoch;
                self.note(Some(slice), || {
                    format!("n{at} sends for subscriber {subscriber} from block {block} ({by:?})")
                });
                if is_void {
                    return;
                }
                self.judge.leave(self.now, slice, epoch, block, subscriber, Node(at as u8));
                if self.random.chance(400) {
                    let direction = Direction::In { block, meant: subscriber, epoch };
                    let delay = if self.random.chance(100) { 8_000_000 } else { 200_000 };
                    let delay = self.random.between(1000, delay);
                    self.later(delay, What::Reply(Packet { slice, direction, hops: 0 }));
                }
            }
            Direction::In { block, meant, epoch } if !is_void && !self.judge.is_void(slice, epoch) => {
                let table = self.hosts[at].table(slice);
                let (epoch, reached) = (table.epoch, table.subscriber_of(block));
                if let Some(reached) = reached.filter(|_| !self.judge.is_void(slice, epoch)) {
                    self.note(Some(slice), || {
                        format!("n{at} receives for subscriber {meant} at block {block} ({by:?})")
                    });
                    self.judge.arrive(slice, block, meant, reached, Node(at as u8));
                }
            }
            Direction::Out { .. } | Direction::In { .. } => {}
        }
    }

    /// Right 3: a block for a subscriber that has none.
    fn grant(&mut self, at: usize, slice: u16, subscriber: u8, by: As) -> Option<usize> {
        let own = &self.hosts[at];
        let process = own.process.as_ref()?;
        let (epoch, by_offers) = match own.role(slice) {
            Role::Owner { epoch, by_offers, .. } => (epoch, by_offers),
            Role::Handing { epoch, .. } if self.flaw == Some(Flaw::NotFrozen) => (epoch, true),
            _ => return None,
        };
        let is_in_time = own.moment(self.now) < process.grant_until || self.flaw == Some(Flaw::DeadlineIgnored);
        if by == As::Acting || !is_in_time {
            return None;
        }
        let by_offers = by_offers && self.flaw != Some(Flaw::NoOffers);
        let place = usize::from(slice);
        let (blocks, copying) = (&own.tables[place].blocks, &process.copies[place]);
        let may = |block: usize| match blocks[block].state {
            State::Offered if by_offers => {
                copying.as_ref().is_some_and(|copying| copying.has(block, blocks[block].version))
            }
            State::Offered => true,
            State::Free => !by_offers,
            State::Granted { .. } | State::Resting { .. } => false,
        };
        let Some(block) = self.random.choose(BLOCKS, may) else {
            self.judge.seen.full += 1;
            return None;
        };
        let used = own.moment(self.now);
        let is_by_grace = process.agent.grace(used).is_some();
        let assigned = self.etcd.assignment(slice);
        if !own.is_excused(self.now)
            && assigned.map(|assigned| (assigned.owner, assigned.epoch)) != Some((own.node, epoch))
        {
            let what = || format!("n{at} grants in {epoch:?}; etcd has {assigned:?}");
            self.judge.accuse(Invariant::Granting, slice, what);
        }
        let since = self.now;
        self.hosts[at].table(slice).set(block, State::Granted { subscriber, since, used });
        self.judge.seen.grants += 1;
        self.judge.seen.graced += u64::from(is_by_grace);
        self.judge.log(slice, epoch, block, subscriber, since);
        self.note(Some(slice), || {
            format!("n{at} grants block {block} of slice {slice} to subscriber {subscriber} in {epoch:?}")
        });
        self.copy(at, slice, By::Change);
        Some(block)
    }

    /// The routers outside say who announces slices besides: with a metric of a newer owner, it has one.
    pub(crate) fn hear_routes(&mut self, host: usize) {
        let has_routes = self.hosts[host].has_routes(self.now);
        let reached =
            self.hosts[host].process.as_mut().map(|process| std::mem::replace(&mut process.reaches, has_routes));
        if reached != Some(has_routes) {
            self.tell(host, Event::Reaches(has_routes));
        }
        if !has_routes {
            return;
        }
        for slice in 0..self.slices {
            let place = usize::from(slice);
            let Some(own) = self.hosts[host].process.as_ref().and_then(|process| process.metrics[place]) else {
                continue;
            };
            let announced =
                self.hosts.iter().filter(|other| other.has_routes(self.now) && other.is_announced(self.now));
            let metrics = announced.filter_map(|other| other.process.as_ref()?.metrics[place]);
            let best = metrics.min().filter(|best| *best < own && *best <= Epoch(0).owner_metric());
            if let Some(best) = best {
                let epoch = Epoch(Epoch(0).owner_metric() - best);
                let role = self.hosts[host].role(slice);
                let is_owner = matches!(role, Role::Owner { .. } | Role::Handing { .. } | Role::Former { .. });
                if is_owner {
                    self.tell(host, Event::Deposed(slice, epoch, None));
                }
            }
        }
    }
}

/// The owner and the backup of a slice, as far as they are known and others.
fn others(role: Role) -> [Option<Node>; 2] {
    match role {
        Role::Nobody => [None, None],
        Role::Owner { backup, .. } | Role::Former { backup, .. } => [None, backup],
        Role::Handing { backup, .. } => [None, Some(backup)],
        Role::Learner { owner, .. } | Role::Backup { owner, .. } => [Some(owner), None],
        Role::Others { owner, backup, .. } => [owner, backup],
    }
}
