//! Blocks of ports in the log: who got which, and when it was given back (RFC 6888 REQ-14 and
//! section 4, RFC 7422 sections 2 and 4). With them in the log single bindings need not be there.
//!
//! They are found by a walk over the subscribers, as bindings are: what was not there at the last
//! walk was granted since then, and the time that is logged is the last walk's, so that nobody has
//! used a port before it. When a block was given back stands in the block index.
//!
//! In a cluster the backup of a slice finds what it copies, and logs it as well, so that no log is the only one. When the slice becomes
//! its own, it logs each block as adopted, with the time at which it was granted: from then on this node answers for it.

use std::collections::HashMap;

use tombolo_config::LogDetail;
use tombolo_engine::Plan;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::block_ports;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, Origin};
use tombolo_tables::blocks::Holder;
use tombolo_tables::subscriber::Subscriber;

use super::event::BlockEvent;
use super::in_cluster::InCluster;
use crate::table_rows::service_name;
use crate::utc::{Moment, Utc};

/// The blocks that were there at the last walk, by number of the subscriber.
#[derive(Debug)]
pub(crate) struct BlockWalk {
    known: HashMap<u32, Known>,
    last: Utc,
    is_first: bool,
}

#[derive(Debug)]
struct Known {
    subscriber: Subscriber,
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    /// Which one of its address.
    number: u16,
    /// Ports in it, as the plan was when it was logged.
    size: u32,
    /// Its word in the block index.
    word: u32,
    since: Utc,
    /// It is no copy of what another node has.
    is_own: bool,
    /// In a cluster, the epoch of its slice when it was seen last: by the time that it is found to be gone, the slice may be another node's.
    epoch: u32,
}

impl BlockWalk {
    /// Nothing is known yet. Blocks that the first walk finds count as an earlier process's.
    pub(crate) fn new(began: Utc) -> Self {
        Self { known: HashMap::new(), last: began, is_first: true }
    }

    /// Logs what has changed since the last walk.
    pub(crate) fn walk(&mut self, tables: &Tables, plan: &Plan, moment: Moment, log: &mut impl FnMut(&BlockEvent<'_>)) {
        let event = if std::mem::take(&mut self.is_first) { "block-adopted" } else { "block-allocated" };
        let mut before = std::mem::take(&mut self.known);
        let released = |subscriber: &Subscriber, block: &Block, log: &mut dyn FnMut(&BlockEvent<'_>)| {
            let end = match tables.blocks.read(block.word) {
                Holder::Closed(tick) => Utc::of_tick(tick, moment),
                _ => moment.utc,
            };
            log(&block.released(plan, subscriber, end));
        };
        for id in tables.subscribers.iter() {
            let Some((subscriber, _)) = tables.subscribers.read(id) else { continue };
            let held = tables.subscribers.blocks(id).zip(tables.subscribers.block_words(id));
            let Some(size) = block_size(plan, subscriber.key.service) else { continue };
            let (since, is_own) = (self.last, !tables.subscribers.is_copied(id));
            let in_cluster = InCluster::of(plan, subscriber.key.service, subscriber.outside_ipv4);
            let epoch = in_cluster.map_or(0, |found| found.epoch);
            let mut blocks: Vec<Block> =
                held.map(|(number, word)| Block { number, size, word, since, is_own, epoch }).collect();
            if tables.subscribers.read(id).is_none_or(|(again, _)| again != subscriber) {
                continue;
            }
            // The record may have been another subscriber's meanwhile; that one stays in `before`,
            // and has ended.
            let known = before.remove(&id.get());
            if let Some(other) = known.as_ref().filter(|known| known.subscriber != subscriber) {
                other.blocks.iter().for_each(|block| released(&other.subscriber, block, log));
            }
            let known = known.filter(|known| known.subscriber == subscriber).map_or(Vec::new(), |known| known.blocks);
            for block in &mut blocks {
                match known.iter().find(|known| known.word == block.word) {
                    Some(known) => {
                        *block = Block { is_own, epoch, ..*known };
                        if is_own && !known.is_own {
                            log(&block.begun(plan, "block-adopted", &subscriber));
                        }
                    }
                    None => log(&block.begun(plan, event, &subscriber)),
                }
            }
            let has_gone = |block: &&Block| !blocks.iter().any(|held| held.word == block.word);
            known.iter().filter(has_gone).for_each(|block| released(&subscriber, block, log));
            if !blocks.is_empty() {
                self.known.insert(id.get(), Known { subscriber, blocks });
            }
        }
        for Known { subscriber, blocks } in before.values() {
            blocks.iter().for_each(|block| released(subscriber, block, log));
        }
        self.last = moment.utc;
    }

    /// Logs the end of all blocks that the last walk has seen: the tables go.
    pub(crate) fn end(&mut self, plan: &Plan, moment: Moment, log: &mut impl FnMut(&BlockEvent<'_>)) {
        for Known { subscriber, blocks } in std::mem::take(&mut self.known).values() {
            for block in blocks {
                log(&block.released(plan, subscriber, moment.utc));
            }
        }
    }
}

impl Block {
    fn ports(&self) -> (u16, u16) {
        let ports = block_ports(self.size, self.number);
        (*ports.start(), *ports.end())
    }

    fn begun<'p>(&self, plan: &'p Plan, event: &'static str, subscriber: &Subscriber) -> BlockEvent<'p> {
        let service = service_name(plan, subscriber.key.service);
        let in_cluster = self.in_cluster(plan, subscriber);
        BlockEvent { in_cluster, ..BlockEvent::begun(service, event, subscriber, self.ports(), self.since) }
    }

    fn released<'p>(&self, plan: &'p Plan, subscriber: &Subscriber, time: Utc) -> BlockEvent<'p> {
        let service = service_name(plan, subscriber.key.service);
        let in_cluster = self.in_cluster(plan, subscriber);
        BlockEvent { in_cluster, ..BlockEvent::released(service, subscriber, self.ports(), time, Some(self.since)) }
    }

    fn in_cluster<'p>(&self, plan: &'p Plan, subscriber: &Subscriber) -> Option<InCluster<'p>> {
        let found = InCluster::of(plan, subscriber.key.service, subscriber.outside_ipv4)?;
        Some(InCluster { epoch: self.epoch, ..found })
    }
}

/// True if `binding` has a line of its own in the log, besides that of the block that its port is
/// in.
pub(crate) fn is_logged(plan: &Plan, binding: &Binding, detail: LogDetail) -> bool {
    let is_fixed = matches!(binding.origin(), Origin::Configured | Origin::Operator);
    detail != LogDetail::Blocks || is_fixed || !is_covered(plan, binding)
}

/// True if the port is in a block of its subscriber's, or in the share that is computed for it.
fn is_covered(plan: &Plan, binding: &Binding) -> bool {
    let port = u16::from_be_bytes(binding.outside_port);
    let service = plan.service_ever(binding.inside.service);
    match service.and_then(|service| service.kind.pool()).map(|pool| pool.allocation()) {
        None | Some(Allocation::Ports) => false,
        Some(Allocation::Blocks(_)) => true,
        Some(Allocation::Deterministic(shares)) => match shares.dynamic_ports() {
            Some((first, last)) if (first..=last).contains(&port) => shares.blocks.is_some(),
            _ => true,
        },
    }
}

/// Ports in a block of this service's; none if it has no blocks.
fn block_size(plan: &Plan, service: u8) -> Option<u32> {
    plan.service_ever(service)?.kind.pool()?.allocation().block_size()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use tombolo_engine::Now;
    use tombolo_engine::cluster::{Assigned, Holders};
    use tombolo_tables::binding::flags::STATIC;
    use tombolo_tables::hash::HashKey;
    use tombolo_tables::memory::Heap;
    use tombolo_tables::subscriber::SubscriberKey;
    use tombolo_tables::tick::Tick;

    fn plan() -> Plan {
        let text = "[capacity]\nsubscribers = 10\nbindings = 100\nsessions = 100\n[[service]]\nkind = \"nat44\"\n\
                    name = \"cgn\"\ninside = [\"10.0.0.0/24\"]\npool = [{ addresses = \"192.0.2.1\" }]\n\
                    allocation = { mode = \"blocks\", block_size = 512 }\n";
        tombolo_config::parse("test.toml", text).unwrap().plan
    }

    #[test]
    fn a_block_is_logged_when_it_is_granted_and_when_it_is_given_back() {
        let plan = plan();
        let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap();
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let (first, _) = plan.services[0].kind.pool().unwrap().blocks(address, 512).unwrap();
        let now = Now(1000 << Tick::SHIFT);
        let mut walk = BlockWalk::new(Utc(5000));
        let events = |walk: &mut BlockWalk, moment| {
            let mut logged = Vec::new();
            walk.walk(&tables, &plan, Moment { now, utc: Utc(moment) }, &mut |event: &BlockEvent<'_>| {
                logged.push((event.event, event.inside.to_string(), event.first_port, event.last_port, event.time));
            });
            logged
        };
        let key = SubscriberKey { ipv4: [10, 0, 0, 7], ..SubscriberKey::default() };
        let subscriber = Subscriber { key, outside_ipv4: address.octets() };
        let (id, _) = tables.admit(&subscriber, Tick(900)).unwrap();
        assert!(events(&mut walk, 5001).is_empty(), "a subscriber without blocks");

        let of_seven = |event, first, last, seconds| (event, "10.0.0.7".to_owned(), first, last, Utc(seconds));
        assert!(tables.grant_block(id, first, 4, 4, 120, Tick(900)));
        assert_eq!(events(&mut walk, 5002), [of_seven("block-allocated", 2048, 2559, 5001)]);
        assert!(tables.grant_block(id, first, 127, 4, 120, Tick(901)));
        assert_eq!(events(&mut walk, 5003), [of_seven("block-allocated", 65_024, 65_535, 5002)]);
        assert!(events(&mut walk, 5004).is_empty());

        // The record goes to another subscriber between two walks.
        assert!(tables.dismiss(id, &subscriber, Tick(900), Tick(990)));
        let key = SubscriberKey { ipv4: [10, 0, 0, 8], ..SubscriberKey::default() };
        let other = Subscriber { key, ..subscriber };
        let (next, _) = tables.admit(&other, Tick(900)).unwrap();
        assert_eq!(next, id, "the test needs the same record");
        assert!(tables.grant_block(next, first, 5, 4, 120, Tick(990)));
        let end = Utc::of_tick(Tick(990), Moment { now, utc: Utc(5005) });
        let mut logged = events(&mut walk, 5005);
        logged.sort();
        let mut expected = vec![
            ("block-allocated", "10.0.0.8".to_owned(), 2560, 3071, Utc(5004)),
            ("block-released", "10.0.0.7".to_owned(), 2048, 2559, end),
            ("block-released", "10.0.0.7".to_owned(), 65_024, 65_535, end),
        ];
        expected.sort();
        assert_eq!(logged, expected);

        // A new process finds it there.
        let mut adopted = BlockWalk::new(Utc(6000));
        assert_eq!(events(&mut adopted, 6001), [("block-adopted", "10.0.0.8".to_owned(), 2560, 3071, Utc(6000))]);
    }

    #[test]
    fn a_block_of_a_slice_that_was_taken_over_is_adopted_with_its_own_time() {
        let text = "[cluster]\nnode = \"n2\"\nnodes = { n1 = \"2001:db8:c1:1::/64\", n2 = \"2001:db8:c1:2::/64\" }\n\
                    slices = { count = 1, epoch = 7, owners = [{ slices = \"0\", owner = \"n1\", backup = \"n2\" }], \
                    secret = \"8f3b1d5c7e9a20416385a7c9ebfd0f213547698bacdef0021436587a9cbedff1\" }\n\
                    [[service]]\nkind = \"nat44\"\nname = \"cgn\"\ninside = [\"10.0.0.0/24\"]\n\
                    pool = [{ addresses = \"192.0.2.1\" }]\nallocation = { mode = \"blocks\", block_size = 512 }\n";
        let plan = tombolo_config::parse("test.toml", text).unwrap().plan;
        let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap();
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let (first, _) = plan.services[0].kind.pool().unwrap().blocks(address, 512).unwrap();
        let mut walk = BlockWalk::new(Utc(5000));
        let mut lines = |utc| {
            let mut logged = Vec::new();
            let moment = Moment { now: Now(1000 << Tick::SHIFT), utc: Utc(utc) };
            walk.walk(&tables, &plan, moment, &mut |event: &BlockEvent<'_>| {
                logged.push(serde_json::to_string(event).unwrap());
            });
            logged
        };
        assert!(lines(5001).is_empty());
        let key = SubscriberKey { ipv4: [10, 0, 0, 7], ..SubscriberKey::default() };
        let (id, _) = tables.copy_subscriber(&Subscriber { key, outside_ipv4: address.octets() }, Tick(900)).unwrap();
        tables.give_blocks(id, first, &[4], Tick(900));
        let line = |event: &str, epoch: u32| {
            let time = serde_json::to_string(&Utc(5001)).unwrap();
            format!(
                "{{\"time\":{time},\"event\":\"{event}\",\"service\":\"cgn\",\"inside\":\"10.0.0.7\",\"outside\":\"192.0.2.1\",\
                 \"first_port\":2048,\"last_port\":2559,\"node\":\"n2\",\"slice\":0,\"epoch\":{epoch}}}"
            )
        };
        assert_eq!(lines(5002), [line("block-allocated", 7)]);
        assert!(lines(5003).is_empty());
        // The slice becomes this node's.
        let cluster = plan.cluster.as_deref().unwrap();
        let holders = Holders { owner: 1, backup: None };
        cluster.assign(0, Assigned { holders, epoch: 8, ..cluster.assigned(0) });
        tombolo_engine::adoption::take_over(&tables, &plan, |_| true, Now(1000 << Tick::SHIFT));
        assert_eq!(lines(5100), [line("block-adopted", 8)]);
        assert!(lines(5101).is_empty());
        // And another one's, which this node hears at once, and forgets what it had.
        cluster.assign(0, Assigned { holders: Holders { owner: 0, backup: None }, epoch: 9, ..cluster.assigned(0) });
        tombolo_engine::adoption::forget(&tables, &plan, |_| true, Now(1000 << Tick::SHIFT));
        let [released] = &lines(5102)[..] else { panic!("one line") };
        assert!(released.contains("\"event\":\"block-released\""), "{released}");
        assert!(released.contains("\"node\":\"n2\",\"slice\":0,\"epoch\":8}"), "as of its own epoch: {released}");
    }

    #[test]
    fn bindings_in_blocks_need_no_line_of_their_own() {
        let plan = plan();
        let binding = Binding { outside_port: 2048_u16.to_be_bytes(), ..Binding::default() };
        assert!(is_logged(&plan, &binding, LogDetail::Bindings) && !is_logged(&plan, &binding, LogDetail::Blocks));
        assert!(is_logged(&plan, &Binding { flags: STATIC, ..binding }, LogDetail::Blocks));
        let mut by_port = plan.clone();
        let tombolo_engine::plan::ServiceKind::Nat44(nat44) = &mut by_port.services[0].kind else { panic!() };
        nat44.nat.pool = nat44.nat.pool.clone().with_allocation(Allocation::Ports);
        assert!(is_logged(&by_port, &binding, LogDetail::Blocks));
    }
}
