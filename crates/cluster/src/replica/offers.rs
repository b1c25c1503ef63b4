//! Blocks of ports that an owner tells its backup of before it grants them, so that whatever it grants the backup knows.
//!
//! ```text
//!   free --offered--> told --acknowledged--> may be granted --> a subscriber's --> resting --> free
//!                      ^          |
//!                      +----------+ another backup, or another copy
//! ```
//!
//! An owner that dies takes with it what it granted in the milliseconds that its backup is behind. What it may have granted then are
//! the blocks that were offered: the new owner lets them rest ([`take_over`](tombolo_engine::adoption::take_over)), as it does with
//! what was given back, of which a copy therefore has the age.
//!
//! At the owner the block itself says how far it is ([`Holder::Offered`]); that a batch with it was acknowledged is known here.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher;

use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::{Pool, PortSpace, block_ports};
use tombolo_tables::Tables;
use tombolo_tables::blocks::Holder;
use tombolo_tables::tick::Tick;

use super::batch::{Section, Writer};
use super::record::{BlockRecord, BlockState, Record};
use super::view::{Block, View};

/// Blocks of an address that are offered at a time: so many subscribers may come to it in the milliseconds that an offer takes.
const OFFERS: usize = 4;

/// Blocks that a backup is told of, by their words in the block index.
#[derive(Debug, Default)]
pub(super) struct Told {
    pending: BTreeMap<u32, Block>,
    /// By the numbers of batches.
    flights: VecDeque<(u64, Vec<Said>)>,
}

/// What was said of a block.
#[derive(Debug)]
struct Said {
    word: u32,
    block: Block,
    /// That it is offered.
    is_offer: bool,
}

impl Told {
    /// It is to be told of a block.
    pub(super) fn tell(&mut self, word: u32, block: Block) {
        self.pending.insert(word, block);
    }

    /// How many it is to be told of.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whatever it has been told of some slices, its word counts no more.
    pub(super) fn forget(&mut self, is_meant: impl Fn(u16) -> bool) {
        self.pending.retain(|_, block| !is_meant(block.slice));
        self.flights.iter_mut().for_each(|(_, told)| told.retain(|said| !is_meant(said.block.slice)));
    }

    /// The connection is over.
    pub(super) fn tell_again(&mut self) {
        let said = std::mem::take(&mut self.flights).into_iter().flat_map(|(_, told)| told);
        self.pending.extend(said.map(|said| (said.word, said.block)));
    }

    /// Writes what there is to be said into batch `number`, until that is full.
    pub(super) fn write(
        &mut self,
        number: u64,
        writer: &mut Writer<'_>,
        is_full: &mut bool,
        say: impl Fn(u32, &Block) -> Option<(Section, Record)>,
    ) {
        let mut told = Vec::new();
        while !*is_full && let Some((word, block)) = self.pending.pop_first() {
            let Some((section, record)) = say(word, &block) else { continue };
            let is_offer = matches!(record, Record::Block(BlockRecord { state: BlockState::Offered, .. }));
            *is_full = !writer.add(section, &record);
            if *is_full {
                self.pending.insert(word, block);
            } else {
                told.push(Said { word, block, is_offer });
            }
        }
        if !told.is_empty() {
            self.flights.push_back((number, told));
        }
    }

    /// It has all batches up to `number`: the blocks of which it knows by that that they are offered.
    pub(super) fn known_by(&mut self, number: u64) -> impl Iterator<Item = u32> {
        let arrived = self.flights.partition_point(|(flight, _)| *flight <= number);
        let said = self.flights.drain(..arrived).flat_map(|(_, told)| told);
        said.filter(|said| said.is_offer).map(|said| said.word)
    }
}

/// An outside address of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Outside {
    pub(super) service: u8,
    pub(super) outside_ipv4: [u8; 4],
}

/// Where there may be too few offers.
#[derive(Debug, Default)]
pub(super) struct Offers {
    wanted: BTreeSet<Outside>,
    /// Where the round of all addresses goes on.
    next: usize,
    /// Source of places that cannot be guessed.
    secret: RandomState,
    drawn: u64,
}

impl Offers {
    /// An address may have too few.
    pub(super) fn look_at(&mut self, service: u8, outside_ipv4: [u8; 4]) {
        self.wanted.insert(Outside { service, outside_ipv4 });
    }

    /// The addresses to be looked at now: all of them come in `rounds`.
    pub(super) fn due(&mut self, rounds: usize, view: View<'_>) -> BTreeSet<Outside> {
        let mut due = std::mem::take(&mut self.wanted);
        let all: usize = view.block_pools().map(|(_, pool, _)| pool.addresses() as usize).sum();
        for _ in 0..all.div_ceil(rounds.max(1)) {
            self.next = (self.next + 1) % all;
            due.extend(nth(self.next, view));
        }
        due
    }

    /// Offers as many blocks of an address as are missing, and gives them to `tell`.
    pub(super) fn make(
        &mut self,
        Outside { service, outside_ipv4 }: Outside,
        tables: &Tables,
        view: View<'_>,
        now: Tick,
        tell: &mut dyn FnMut(u32, Block),
    ) {
        let Some((_, pool, size)) = view.block_pools().find(|(number, ..)| *number == service) else { return };
        let Some(slice) = pool.slice_of_address(outside_ipv4.into()) else { return };
        let all: Vec<(u16, u32)> = pool.block_words(outside_ipv4.into(), size).collect();
        let is_offered = |word| matches!(tables.blocks.read(word), Holder::Offered { .. });
        let missing = OFFERS.saturating_sub(all.iter().filter(|(_, word)| is_offered(*word)).count());
        if missing == 0 || all.is_empty() {
            return;
        }
        let (before, behind) = all.split_at(self.draw(all.len()));
        let free = behind.iter().chain(before).filter(|(place, word)| {
            is_granted(pool, outside_ipv4, size, *place) && tables.blocks.offer(*word, now, view.rest())
        });
        free.take(missing).for_each(|&(place, word)| tell(word, Block { service, outside_ipv4, place, slice }));
    }

    /// A number below `end` that cannot be guessed.
    fn draw(&mut self, end: usize) -> usize {
        self.drawn += 1;
        usize::try_from(self.secret.hash_one(self.drawn) % end as u64).unwrap_or(0)
    }
}

/// Address number `number` of all that have blocks.
fn nth(mut number: usize, view: View<'_>) -> Option<Outside> {
    for (service, pool, _) in view.block_pools() {
        let count = pool.addresses() as usize;
        if number < count {
            let address = pool.address(u32::try_from(number).ok()?)?;
            return Some(Outside { service, outside_ipv4: address.octets() });
        }
        number -= count;
    }
    None
}

/// Whether a block has ports that are handed out in blocks.
fn is_granted(pool: &Pool, outside_ipv4: [u8; 4], size: u32, place: u16) -> bool {
    let (lowest, highest) = match pool.allocation() {
        Allocation::Deterministic(shares) => shares.dynamic_ports().unwrap_or((1, 0)),
        Allocation::Ports | Allocation::Blocks(_) => (0, u16::MAX),
    };
    let ports = block_ports(size, place);
    let has_some = |space| pool.has_block(outside_ipv4.into(), space, size, place);
    lowest <= highest
        && *ports.start() <= highest
        && *ports.end() >= lowest
        && [PortSpace::Tcp, PortSpace::Udp, PortSpace::Icmp].into_iter().any(has_some)
}
