//! The cluster that a gateway is a node of: who the others are, which of them serve, and what they
//! redirect to each other.
//!
//! ```text
//! locator/64     a node's, announced by its routing daemon: the host lives
//! locator/120    announced by the gateway: its process serves
//! locator::      source of what it redirects
//! locator::1     a packet that another node has redirected: it may be redirected once more,
//! locator::2     and is served here
//! locator::a     the same of packets of softwires, which keep their source
//! locator::b
//! ```
//!
//! Nodes know of each other by the kernel's routes alone; whoever mirrors them says here who serves. Which
//! node has the state of whom is written in a file: each slice (`mapping/slices.rs`) has an owner, and a
//! backup by which others reach it that have no way of their own.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use tombolo_tables::hash::HashKey;
use tombolo_tables::tick::Tick;

use crate::now::Now;

/// Nodes of a cluster, at most.
pub const MOST_NODES: usize = 16;
/// Length of a locator, in bits.
pub const LOCATOR_LENGTH: u8 = 64;
/// Length of the part of a locator that is routed to the gateway, in bits.
pub const REDIRECTS_LENGTH: u8 = 120;

/// Seconds for which a copy is good, from when its owner was heard last.
pub const COPY_LASTS: u32 = 60;

/// The same on all nodes, of any version: by it they agree. The programs in the kernel make flow labels with it, too.
pub const KEY: HashKey = HashKey::new([0x746f, 0x6d62, 0x6f6c, 0x6f]);

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The first address of its locator.
    pub locator: Ipv6Addr,
}

/// Who has a slice, by the numbers of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holders {
    /// The node that serves it.
    pub owner: u8,
    /// The node that stands in.
    pub backup: Option<u8>,
}

impl Holders {
    /// The number of no node: nobody has the slice, as far as is known.
    pub const NOBODY: u8 = u8::MAX;
}

/// Where the packets of a slice are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At this node, which owns it.
    Here,
    /// At this node, in the place of its owner with this number, which cannot be seen: there is a copy of what the
    /// owner had.
    Acting(u8),
    /// At the node with this number: its owner, or its backup where the owner cannot be seen from here.
    At(u8),
    /// Nowhere: neither serves.
    Nowhere,
}

impl Place {
    /// It in a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Here => "own",
            Self::Acting(_) => "acting",
            Self::At(_) => "redirected",
            Self::Nowhere => "unowned",
        }
    }
}

/// The nodes, one of which this gateway is.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    own: usize,
    /// Who has each slice, as [`Assigned::to_word`] has it: one load finds out, and one store changes it under packets. None where
    /// no service has state.
    slices: Vec<AtomicU64>,
    /// Packets of softwires are redirected as they are: only other nodes can send to the locators.
    takes_softwires: bool,
    /// Backups have copies of the tables.
    has_copies: bool,
    /// Who has which slice the nodes agree on while they run, and no file says it.
    is_agreed: bool,
    /// This node may be an entrance: it has been heard of by those who agree, and is not to be drained.
    is_entrance: AtomicBool,
    /// A bit for each node of which slices were taken over by this one, as far as it may not know.
    deposed: AtomicU16,
    /// Of each slice the node from which it was taken over, as far as that may not know.
    taken_from: Vec<AtomicU8>,
    /// A bit for each node.
    serving: AtomicU16,
    /// A bit for each node whose host is there, as far as is known.
    reached: AtomicU16,
    /// A bit for each node whose slices this one has a copy of that is good enough to serve by.
    copied: AtomicU16,
    /// A bit for each node in whose place this one has served.
    acted: AtomicU16,
    /// Since when each node does not serve, in ticks; 0 while it does.
    gone_since: [AtomicU32; MOST_NODES],
    /// The host has the routes without which this node cannot serve.
    is_routed: AtomicBool,
    /// What comes here can go on from here.
    is_connected: AtomicBool,
    /// Others may be there that this node does not see.
    is_in_doubt: AtomicBool,
    /// Until when this node may admit subscribers and hand out addresses and ports of its slices, by the engine's clock.
    grants_until: AtomicU64,
    /// Until when it may serve its slices without looking for anybody else, by the engine's clock.
    serves_until: AtomicU64,
    /// Until when it may serve them where it reaches nobody else, by the engine's clock.
    alone_until: AtomicU64,
}

/// What a node may grant of a slice: subscribers, and with them addresses, blocks and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Granting {
    /// Nothing: it does not own the slice, or has lost the lease by which it did.
    Nothing = 0,
    /// Whatever is free, while its lease lasts.
    Freely = 1,
    /// The same, but of blocks only those that were offered, as the slice's backup knows: it may take the slice over.
    ByOffers = 2,
}

impl Granting {
    const fn of_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Freely,
            2 => Self::ByOffers,
            _ => Self::Nothing,
        }
    }
}

/// What a node knows of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assigned {
    /// Who has it.
    pub holders: Holders,
    /// How many owners it has had.
    pub epoch: u32,
    /// Its backup's copy was whole: the backup may serve by it in the owner's place.
    pub is_protected: bool,
    /// What its owner may grant, if that is this node.
    pub granting: Granting,
}

impl Assigned {
    /// Nobody has it.
    pub const NOBODY: Self = Self {
        holders: Holders { owner: Holders::NOBODY, backup: None },
        epoch: 0,
        is_protected: false,
        granting: Granting::Nothing,
    };

    const fn to_word(self) -> u64 {
        let Holders { owner, backup } = self.holders;
        let backup = if let Some(backup) = backup { backup } else { Holders::NOBODY };
        let [a, b, c, d] = self.epoch.to_le_bytes();
        u64::from_le_bytes([a, b, c, d, owner, backup, self.is_protected as u8, self.granting as u8])
    }

    fn of_word(word: u64) -> Self {
        let [a, b, c, d, owner, backup, is_protected, granting] = word.to_le_bytes();
        let backup = (backup != Holders::NOBODY).then_some(backup);
        let epoch = u32::from_le_bytes([a, b, c, d]);
        let granting = Granting::of_byte(granting);
        Self { holders: Holders { owner, backup }, epoch, is_protected: is_protected == 1, granting }
    }
}

/// How often nodes have redirected a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hops {
    /// It came from a network.
    None,
    /// It came to `locator::1`, or `::a`.
    One,
    /// It came to `locator::2`, or `::b`, and is not redirected again.
    Two,
}

/// How a packet is redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// In a header more.
    Header,
    /// With another destination: a packet of a softwire.
    Destination,
}

/// A gateway's place in its cluster, as a packet finds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing<'a> {
    pub(crate) cluster: &'a Cluster,
    /// How often the packet has been redirected.
    pub(crate) hops: Hops,
}

impl Cluster {
    /// The cluster of `nodes`, of which the gateway is number `own`; the others do not serve yet. Nodes
    /// beyond [`MOST_NODES`] are left out. `None` if there is no such node.
    #[must_use]
    pub fn new(mut nodes: Vec<Node>, own: usize) -> Option<Self> {
        nodes.truncate(MOST_NODES);
        let cluster = Self {
            nodes,
            own,
            slices: Vec::new(),
            takes_softwires: false,
            has_copies: false,
            is_agreed: false,
            is_entrance: AtomicBool::new(true),
            deposed: AtomicU16::default(),
            taken_from: Vec::new(),
            serving: AtomicU16::new(1 << own),
            reached: AtomicU16::new(u16::MAX),
            copied: AtomicU16::default(),
            acted: AtomicU16::default(),
            gone_since: Default::default(),
            is_routed: AtomicBool::new(true),
            is_connected: AtomicBool::default(),
            is_in_doubt: AtomicBool::default(),
            grants_until: AtomicU64::new(u64::MAX),
            serves_until: AtomicU64::new(u64::MAX),
            alone_until: AtomicU64::new(u64::MAX),
        };
        (own < cluster.nodes.len()).then_some(cluster)
    }

    /// The same cluster, whose slices have had so many owners.
    #[must_use]
    pub fn with_epoch(self, epoch: u32) -> Self {
        self.slices().for_each(|slice| self.assign(slice, Assigned { epoch, ..self.assigned(slice) }));
        self
    }

    /// The same cluster, whose nodes agree on who has its slices while they run: as yet this one may neither serve nor be an
    /// entrance.
    #[must_use]
    pub fn with_agreement(self) -> Self {
        let (is_entrance, until) = (AtomicBool::default(), || AtomicU64::new(0));
        let (grants_until, serves_until, alone_until) = (until(), until(), until());
        Self { is_agreed: true, is_entrance, grants_until, serves_until, alone_until, ..self }
    }

    /// Whether nodes agree on who has which slice while they run.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        self.is_agreed
    }

    /// Whether this node may be an entrance; one that may not serves what is its own all the same.
    #[must_use]
    pub fn is_entrance(&self) -> bool {
        self.is_entrance.load(Ordering::Relaxed)
    }

    /// Says whether it may.
    pub fn set_entrance(&self, is_entrance: bool) {
        self.is_entrance.store(is_entrance, Ordering::Relaxed);
    }

    /// Whether this node has taken over slices of another one, which may not know.
    #[must_use]
    pub fn has_deposed(&self, node: u8) -> bool {
        is_set(&self.deposed, node.into())
    }

    /// This node takes a slice over from another one, which may not know.
    pub fn depose(&self, slice: u16, node: u8) {
        if let Some(former) = self.taken_from.get(usize::from(slice)) {
            former.store(node, Ordering::Relaxed);
            self.deposed.fetch_or(bit_of(node), Ordering::Relaxed);
        }
    }

    /// A node has heard what became of its slices.
    pub fn forget_deposed(&self, node: u8) {
        self.deposed.fetch_and(!bit_of(node), Ordering::Relaxed);
        let its = self.taken_from.iter().filter(|former| former.load(Ordering::Relaxed) == node);
        its.for_each(|former| former.store(Holders::NOBODY, Ordering::Relaxed));
    }

    /// The slices that this node has taken over from another one, which may not know, and has: number and epoch, in order.
    pub fn taken_from(&self, node: u8) -> impl Iterator<Item = (u16, u32)> {
        let is_deposed = self.has_deposed(node);
        let taken = self.slices().zip(&self.taken_from);
        let taken = taken.filter(move |(_, former)| is_deposed && former.load(Ordering::Relaxed) == node);
        taken.filter_map(move |(slice, _)| {
            let Assigned { holders, epoch, .. } = self.assigned(slice);
            (usize::from(holders.owner) == self.own).then_some((slice, epoch))
        })
    }

    /// The same cluster, in which backups have copies of the tables.
    #[must_use]
    pub fn with_copies(self, has_copies: bool) -> Self {
        Self { has_copies, ..self }
    }

    /// Whether backups have copies of the tables.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        self.has_copies
    }

    /// How many owners a slice has had.
    #[must_use]
    pub fn epoch_of(&self, slice: u16) -> u32 {
        self.assigned(slice).epoch
    }

    /// Until when this node may grant, by the engine's clock in nanoseconds: for ever, unless somebody says otherwise.
    pub fn set_grants_until(&self, nanos: u64) {
        self.grants_until.store(nanos, Ordering::Relaxed);
    }

    /// Until when this node may serve its slices without looking for anybody else, by the same clock.
    pub fn set_serves_until(&self, nanos: u64) {
        self.serves_until.store(nanos, Ordering::Relaxed);
    }

    /// Until when this node may serve its slices where it reaches nobody else, by the same clock.
    pub fn set_alone_until(&self, nanos: u64) {
        self.alone_until.store(nanos, Ordering::Relaxed);
    }

    /// Until when this node may grant.
    #[must_use]
    pub fn grants_until(&self) -> u64 {
        self.grants_until.load(Ordering::Relaxed)
    }

    /// Until when it may serve without looking for anybody else.
    #[must_use]
    pub fn serves_until(&self) -> u64 {
        self.serves_until.load(Ordering::Relaxed)
    }

    /// Whether this node may admit subscribers and hand out addresses and ports, of slices that it may grant of.
    #[must_use]
    pub fn may_grant(&self, now: Now) -> bool {
        now.0 < self.grants_until()
    }

    /// Until when this node may grant of a slice, by the engine's clock in nanoseconds; 0 if it may not, at `now`: somebody else
    /// owns it, or this node serves it by a copy, or has lost the lease by which it owned it and has another one by now.
    #[must_use]
    pub fn grants_of_slice_until(&self, slice: u16, now: Now) -> u64 {
        let may_grant = self.place_of(slice, now) == Place::Here && self.assigned(slice).granting != Granting::Nothing;
        if may_grant { self.grants_until() } else { 0 }
    }

    /// The same cluster, whose slices have these holders, for the first time.
    #[must_use]
    pub fn with_slices(self, holders: Vec<Holders>) -> Self {
        let assigned = |holders| Assigned { holders, epoch: 1, is_protected: true, granting: Granting::Freely };
        let word = |holders| AtomicU64::new(assigned(holders).to_word());
        let taken_from = holders.iter().map(|_| AtomicU8::new(Holders::NOBODY)).collect();
        Self { slices: holders.into_iter().map(word).collect(), taken_from, ..self }
    }

    /// The same cluster, to whose locators only other nodes can send.
    #[must_use]
    pub fn with_guarded_locators(self, are_guarded: bool) -> Self {
        Self { takes_softwires: are_guarded, ..self }
    }

    /// Whether there are slices.
    #[must_use]
    pub fn has_slices(&self) -> bool {
        !self.slices.is_empty()
    }

    /// The numbers of all slices.
    #[must_use]
    pub fn slices(&self) -> std::ops::Range<u16> {
        0..u16::try_from(self.slices.len()).unwrap_or(u16::MAX)
    }

    /// What is known of a slice.
    #[must_use]
    pub fn assigned(&self, slice: u16) -> Assigned {
        let word = self.slices.get(usize::from(slice));
        word.map_or(Assigned::NOBODY, |word| Assigned::of_word(word.load(Ordering::Relaxed)))
    }

    /// The holders of a slice.
    #[must_use]
    pub fn holders(&self, slice: u16) -> Holders {
        self.assigned(slice).holders
    }

    /// From now on this is known of a slice.
    pub fn assign(&self, slice: u16, assigned: Assigned) {
        if let Some(word) = self.slices.get(usize::from(slice)) {
            word.store(assigned.to_word(), Ordering::Relaxed);
        }
    }

    /// True if a slice is the gateway's own.
    #[must_use]
    pub fn owns(&self, slice: u16) -> bool {
        usize::from(self.holders(slice).owner) == self.own
    }

    /// True if it is not known who has a slice: nobody may, or the node has not heard of it yet.
    #[must_use]
    pub fn is_nobodys(&self, slice: u16) -> bool {
        self.holders(slice).owner == Holders::NOBODY
    }

    /// Where the packets of a slice are served, as far as is known. A node for which nobody has vouched for a while leaves its own
    /// slices to their backup, if that can be reached; and else serves them as long as its agent lives, which would hear of a successor.
    #[must_use]
    pub fn place_of(&self, slice: u16, now: Now) -> Place {
        let Assigned { holders: Holders { owner, backup }, is_protected, .. } = self.assigned(slice);
        if usize::from(owner) == self.own {
            let is_doubtful = now.0 >= self.serves_until();
            let reached = backup.filter(|_| is_doubtful && is_protected).filter(|backup| self.serves((*backup).into()));
            let is_over = is_doubtful && now.0 >= self.alone_until.load(Ordering::Relaxed);
            return reached.map_or(if is_over { Place::Nowhere } else { Place::Here }, Place::At);
        }
        match backup {
            _ if self.serves(owner.into()) => Place::At(owner),
            Some(backup) if usize::from(backup) == self.own && is_protected && self.has_copy_of(owner) => {
                Place::Acting(owner)
            }
            Some(backup) if usize::from(backup) != self.own && self.serves(backup.into()) => Place::At(backup),
            _ => Place::Nowhere,
        }
    }

    /// Whether this node has the copy of a slice, or is to have it.
    #[must_use]
    pub fn backs_up(&self, slice: u16) -> bool {
        self.owner_backed_up(slice).is_some()
    }

    /// The owner of a slice of which this node is the backup.
    #[must_use]
    pub fn owner_backed_up(&self, slice: u16) -> Option<u8> {
        let holders = self.holders(slice);
        let is_backup = holders.backup.is_some_and(|backup| usize::from(backup) == self.own);
        is_backup.then_some(holders.owner)
    }

    /// Whether there is a copy of a node's slices here by which they can be served.
    #[must_use]
    pub fn has_copy_of(&self, node: u8) -> bool {
        is_set(&self.copied, node.into())
    }

    /// Says of which nodes' slices there is a copy that is up to date, or was when its owner was heard last, [`COPY_LASTS`] before
    /// `now` at most; when it is known who serves. Where a file says who owns what, a copy is good as long as its owner cannot be
    /// seen, however old it becomes: nobody else would ever serve. Where nodes agree, the owner may be well, and grant what it has
    /// released since.
    pub fn set_copied(&self, has_copy: impl Fn(usize) -> bool, now: Tick) {
        let mut copied = 0;
        for (node, gone_since) in self.gone_since.iter().enumerate().take(self.nodes.len()) {
            let was_copied = u8::try_from(node).is_ok_and(|node| self.has_copy_of(node));
            if self.serves(node) {
                gone_since.store(0, Ordering::Relaxed);
            } else if gone_since.load(Ordering::Relaxed) == 0 {
                gone_since.store(now.0, Ordering::Relaxed);
            }
            let goes_on = was_copied && !self.serves(node) && !self.is_agreed;
            copied |= u16::from(has_copy(node) || goes_on) << node;
        }
        self.copied.store(copied, Ordering::Relaxed);
    }

    /// Since when this node serves in the place of a slice's owner; nothing if it does not.
    #[must_use]
    pub fn acts_since(&self, slice: u16) -> Option<Tick> {
        // Of slices of others it makes no difference when.
        let Place::Acting(owner) = self.place_of(slice, Now::default()) else { return None };
        let since = self.gone_since.get(usize::from(owner))?.load(Ordering::Relaxed);
        (since != 0).then_some(Tick(since))
    }

    /// A packet is served in the place of `owner`, or may be by programs in the kernel.
    pub fn note_acting(&self, owner: u8) {
        if !self.has_acted_for(owner) {
            self.acted.fetch_or(1 << owner, Ordering::Relaxed);
        }
    }

    /// What was served in the place of `node` has left nothing behind.
    pub fn forget_acting(&self, node: u8) {
        self.acted.fetch_and(!(1 << node), Ordering::Relaxed);
    }

    /// Whether this node has served in the place of `node`: what it copies from there may have sessions.
    #[must_use]
    pub fn has_acted_for(&self, node: u8) -> bool {
        is_set(&self.acted, node.into())
    }

    /// True if packets of softwires are redirected as they are.
    #[must_use]
    pub fn takes_softwires(&self) -> bool {
        self.takes_softwires
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of the gateway's own node.
    #[must_use]
    pub const fn own(&self) -> usize {
        self.own
    }

    /// The first address of the gateway's own locator.
    #[must_use]
    pub fn locator(&self) -> Ipv6Addr {
        self.nodes[self.own].locator
    }

    /// Whether a node serves, as far as is known.
    #[must_use]
    pub fn serves(&self, node: usize) -> bool {
        is_set(&self.serving, node)
    }

    /// Says which nodes serve. The gateway's own does as long as anybody asks.
    pub fn set_serving(&self, serves: impl Fn(usize) -> bool) {
        let others = (0..self.nodes.len()).filter(|&node| serves(node)).fold(0, |bits, node| bits | 1 << node);
        self.serving.store(others | 1 << self.own, Ordering::Relaxed);
    }

    /// Whether the host has the routes without which this node cannot serve. So it is taken to have before anybody looks.
    #[must_use]
    pub fn is_routed(&self) -> bool {
        self.is_routed.load(Ordering::Relaxed)
    }

    /// Says whether it has.
    pub fn set_routed(&self, is_routed: bool) {
        self.is_routed.store(is_routed, Ordering::Relaxed);
    }

    /// Whether a node's host is there and has a way here, as the routes say; true as long as nobody has looked.
    #[must_use]
    pub fn reaches(&self, node: usize) -> bool {
        is_set(&self.reached, node)
    }

    /// Says which nodes' hosts are there.
    pub fn set_reached(&self, is_reached: impl Fn(usize) -> bool) {
        let reached = (0..self.nodes.len()).filter(|&node| is_reached(node)).fold(0, |bits, node| bits | 1 << node);
        self.reached.store(reached, Ordering::Relaxed);
    }

    /// Whether what comes here can go on from here: only then may packets be brought here.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Says whether it can. It cannot before anybody says so. True if it was otherwise before.
    pub fn set_connected(&self, is_connected: bool) -> bool {
        self.is_connected.swap(is_connected, Ordering::Relaxed) != is_connected
    }

    /// Whether this node sees no other one that serves.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.serving.load(Ordering::Relaxed) & !(1 << self.own) == 0
    }

    /// Whether others may be there that this node does not see.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(Ordering::Relaxed)
    }

    /// Says whether they may: nodes agree on owners, and this one has no lease and is alone. True if it was otherwise before.
    pub fn set_in_doubt(&self, is_in_doubt: bool) -> bool {
        self.is_in_doubt.swap(is_in_doubt, Ordering::Relaxed) != is_in_doubt
    }

    /// Whether redirected packets come to this address.
    pub(crate) fn has(&self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.locator().to_bits()) >> (128 - REDIRECTS_LENGTH) == 0
    }

    /// The node that redirects from this address.
    pub(crate) fn node_at(&self, source: Ipv6Addr) -> Option<usize> {
        self.nodes.iter().position(|node| node.locator == source)
    }

    /// How, and how often, a packet has been redirected that comes to this address.
    pub(crate) fn redirected_to(&self, destination: Ipv6Addr) -> Option<(Means, Hops)> {
        let all = [Means::Header, Means::Destination].map(|means| [(means, Hops::One), (means, Hops::Two)]);
        let address = |means, hops: Hops| hops.address(self.locator(), means);
        all.into_iter().flatten().find(|&(means, hops)| address(means, hops) == Some(destination))
    }

    /// The serving node that has the highest number for `what`, as all nodes reckon it that know of the same
    /// ones. When a node comes or goes, only what is its own moves (Thaler and Ravishankar, "Using name-based
    /// mappings to increase hit rates", 1998).
    pub(crate) fn home_of(&self, what: u64) -> usize {
        let number = |node: &usize| {
            let locator = self.nodes[*node].locator.to_bits();
            KEY.hash([what, halves(locator)[0], halves(locator)[1]]).0
        };
        (0..self.nodes.len()).filter(|&node| self.serves(node)).max_by_key(number).unwrap_or(self.own)
    }
}

/// The bit of a node; nobody has none.
fn bit_of(node: u8) -> u16 {
    1_u16.checked_shl(node.into()).unwrap_or(0)
}

/// Whether a node's bit is set.
fn is_set(bits: &AtomicU16, node: usize) -> bool {
    node < MOST_NODES && bits.load(Ordering::Relaxed) >> node & 1 == 1
}

impl Hops {
    /// The address in a node's locator to which packets go that have been redirected so often.
    pub(crate) fn address(self, locator: Ipv6Addr, means: Means) -> Option<Ipv6Addr> {
        let place = match (self, means) {
            (Self::None, _) => return None,
            (Self::One, Means::Header) => 1,
            (Self::Two, Means::Header) => 2,
            (Self::One, Means::Destination) => 0xa,
            (Self::Two, Means::Destination) => 0xb,
        };
        Some(Ipv6Addr::from_bits(locator.to_bits() | place))
    }

    /// After one more; none if there may be no more.
    pub(crate) fn next(self) -> Option<Self> {
        match self {
            Self::None => Some(Self::One),
            Self::One => Some(Self::Two),
            Self::Two => None,
        }
    }
}

/// A number for a datagram or a flow, the same on all nodes: by its addresses, and by what fragments of a datagram,
/// or packets of a flow, have in common besides.
pub(crate) fn flow_number(source: u128, destination: u128, rest: u32) -> u64 {
    let ([a, b], [c, d]) = (halves(source), halves(destination));
    KEY.hash([c, d, KEY.hash([a, b, rest.into()]).0]).0
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are taken")]
fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(own: usize) -> Cluster {
        let node = |number: u16| Node {
            name: format!("n{number}"),
            locator: Ipv6Addr::new(0x2001, 0xdb8, 0xc1, number, 0, 0, 0, 0),
        };
        Cluster::new((1..=3).map(node).collect(), own).unwrap()
    }

    #[test]
    fn nodes_agree_and_only_what_a_lost_one_had_moves() {
        let clusters = [cluster(0), cluster(1), cluster(2)];
        clusters.iter().for_each(|cluster| cluster.set_serving(|_| true));
        let homes = |cluster: &Cluster| (0..3000).map(|what| cluster.home_of(what)).collect::<Vec<_>>();
        let before = homes(&clusters[0]);
        assert!(clusters.iter().all(|cluster| homes(cluster) == before));
        for node in 0..3 {
            let share = before.iter().filter(|home| **home == node).count();
            assert!((850..1150).contains(&share), "node {node} has {share} of 3000");
        }
        clusters[0].set_serving(|node| node != 2);
        let moved = before.iter().zip(homes(&clusters[0])).filter(|(before, after)| *before != after);
        assert!(moved.clone().all(|(before, after)| *before == 2 && after != 2));
        assert!(moved.count() > 850);
    }

    #[test]
    fn nobody_else_serves_before_anybody_says_so() {
        let cluster = cluster(1);
        assert!((0..100).all(|what| cluster.home_of(what) == 1));
        cluster.set_serving(|_| false);
        assert!(cluster.serves(1) && !cluster.serves(0));
    }

    #[test]
    fn hosts_are_there_before_anybody_says_otherwise() {
        let cluster = cluster(1);
        assert!((0..3).all(|node| cluster.reaches(node)));
        cluster.set_reached(|node| node == 2);
        assert_eq!([0, 1, 2, 200].map(|node| cluster.reaches(node)), [false, false, true, false]);
    }

    #[test]
    fn a_slice_is_served_by_its_owner_and_reached_by_its_backup() {
        let holders = |owner, backup| Holders { owner, backup };
        let slices = vec![holders(0, Some(1)), holders(1, Some(2)), holders(2, Some(0)), holders(2, None)];
        let cluster = cluster(0).with_slices(slices);
        let places = || [0, 1, 2, 3, 4].map(|slice| cluster.place_of(slice, Now(1)));
        let (here, nowhere, at) = (Place::Here, Place::Nowhere, Place::At);
        assert_eq!(places(), [here, nowhere, nowhere, nowhere, nowhere], "nobody else serves yet");
        cluster.set_serving(|_| true);
        assert_eq!(places(), [here, at(1), at(2), at(2), nowhere]);
        cluster.set_serving(|node| node == 2);
        assert_eq!(places(), [here, at(2), at(2), at(2), nowhere]);
        // This node is the backup of the third, has no copy of its state, and does not act.
        cluster.set_serving(|node| node == 1);
        assert_eq!(places(), [here, at(1), nowhere, nowhere, nowhere]);
        assert_eq!([0, 1, 2, 3, 4].map(|slice| cluster.owns(slice)), [true, false, false, false, false]);
    }

    #[test]
    fn a_backup_with_a_copy_acts_while_the_owner_is_gone_however_long() {
        let holders = |owner, backup| Holders { owner, backup: Some(backup) };
        let cluster = cluster(0).with_slices(vec![holders(1, 0), holders(1, 2), holders(2, 0)]);
        let places = || [0, 1, 2].map(|slice| cluster.place_of(slice, Now(1)));
        let (at, nowhere, acting) = (Place::At, Place::Nowhere, Place::Acting);
        cluster.set_serving(|_| true);
        cluster.set_copied(|node| node == 1, Tick(100));
        assert_eq!((places(), cluster.acts_since(0)), ([at(1), at(1), at(2)], None));
        cluster.set_serving(|node| node == 2);
        assert_eq!(places(), [acting(1), at(2), at(2)]);
        assert_eq!(cluster.acts_since(0), None, "nobody has said since when");
        for now in [110, 500, 100_000] {
            // The copy is of no use to begin with by now.
            cluster.set_copied(|node| node == 1 && now < 500, Tick(now));
            assert_eq!((places()[0], cluster.acts_since(0)), (acting(1), Some(Tick(110))));
        }
        cluster.set_serving(|_| true);
        cluster.set_copied(|_| false, Tick(200_000));
        cluster.set_serving(|node| node == 2);
        cluster.set_copied(|_| false, Tick(200_001));
        assert_eq!(places(), [nowhere, at(2), at(2)], "the owner was back, and its copy is not complete");
        assert!(!cluster.has_acted_for(1));
        cluster.note_acting(1);
        assert!(cluster.has_acted_for(1) && !cluster.has_acted_for(2));
        cluster.forget_acting(1);
        assert!(!cluster.has_acted_for(1));
    }

    #[test]
    fn where_nodes_agree_who_acts_does_so_by_a_copy_that_is_good() {
        for is_agreed in [false, true] {
            let cluster = cluster(0).with_slices(vec![Holders { owner: 1, backup: Some(0) }]);
            let cluster = if is_agreed { cluster.with_agreement() } else { cluster };
            cluster.set_copied(|_| true, Tick(1));
            cluster.set_serving(|_| false);
            cluster.set_copied(|_| true, Tick(2));
            assert_eq!(cluster.place_of(0, Now(1)), Place::Acting(1));
            // Its owner was heard too long ago.
            cluster.set_copied(|_| false, Tick(80));
            let place = if is_agreed { Place::Nowhere } else { Place::Acting(1) };
            assert_eq!(cluster.place_of(0, Now(1)), place);
        }
    }

    #[test]
    fn a_node_for_which_nobody_vouches_leaves_its_slices_to_a_backup_that_it_sees_and_grants_nothing() {
        let holders = |owner, backup| Holders { owner, backup };
        let cluster =
            cluster(0).with_slices(vec![holders(0, Some(1)), holders(0, None), holders(Holders::NOBODY, None)]);
        let places = |now| [0, 1, 2].map(|slice| cluster.place_of(slice, Now(now)));
        let (here, nowhere) = (Place::Here, Place::Nowhere);
        cluster.set_serving(|_| true);
        assert_eq!((places(u64::MAX - 1), cluster.may_grant(Now(u64::MAX - 1))), ([here, here, nowhere], true));
        cluster.set_grants_until(100);
        cluster.set_serves_until(200);
        assert!(cluster.may_grant(Now(99)) && !cluster.may_grant(Now(100)));
        assert_eq!((places(199), places(200)), ([here, here, nowhere], [Place::At(1), here, nowhere]));
        cluster.set_serving(|_| false);
        assert_eq!(places(200), [here, here, nowhere], "it is the last one");
        cluster.set_alone_until(300);
        assert_eq!(places(299), [here, here, nowhere]);
        assert_eq!(places(300), [nowhere; 3], "it hangs, and others may have taken over");
    }

    #[test]
    fn who_has_a_slice_changes_under_packets() {
        let holders = |owner, backup| Holders { owner, backup };
        let cluster = cluster(0).with_slices(vec![Assigned::NOBODY.holders; 2]).with_epoch(0).with_agreement();
        let here = |slice| cluster.place_of(slice, Now(1));
        cluster.set_serving(|_| true);
        assert_eq!((here(0), here(1), cluster.epoch_of(0)), (Place::Nowhere, Place::Nowhere, 0));
        assert!(cluster.is_nobodys(0) && !cluster.is_entrance() && !cluster.may_grant(Now(1)));
        let granted = [Granting::ByOffers, Granting::Freely, Granting::Nothing];
        for ((epoch, is_protected), granting) in [(7, true), (8, true), (u32::MAX, false)].into_iter().zip(granted) {
            let assigned = Assigned { holders: holders(2, Some(0)), epoch, is_protected, granting };
            cluster.assign(1, assigned);
            assert_eq!(cluster.assigned(1), assigned);
        }
        assert_eq!((here(0), here(1)), (Place::Nowhere, Place::At(2)));
        cluster.set_serving(|_| false);
        cluster.set_copied(|_| true, Tick(1));
        assert_eq!(here(1), Place::Nowhere, "its copy was never whole");
        cluster.assign(1, Assigned { is_protected: true, ..cluster.assigned(1) });
        assert_eq!(here(1), Place::Acting(2));
        cluster.assign(1, Assigned { holders: holders(0, None), ..cluster.assigned(1) });
        assert_eq!(here(1), Place::Nowhere, "its agent has said nothing yet");
        cluster.set_alone_until(2);
        assert_eq!(here(1), Place::Here);
    }

    #[test]
    fn of_a_slice_its_owner_grants_until_its_lease_ends_and_nobody_else_ever() {
        let holders = |owner, backup| Holders { owner, backup };
        let cluster = cluster(0).with_slices(vec![holders(0, None), holders(1, Some(0)), holders(1, None)]);
        let until = || [0, 1, 2].map(|slice| cluster.grants_of_slice_until(slice, Now(1)));
        cluster.set_serving(|_| true);
        assert_eq!(until(), [u64::MAX, 0, 0]);
        cluster.set_copied(|_| true, Tick(1));
        cluster.set_serving(|_| false);
        assert_eq!((cluster.place_of(1, Now(1)), until()), (Place::Acting(1), [u64::MAX, 0, 0]));
        cluster.set_grants_until(77);
        assert_eq!(until(), [77, 0, 0]);
        // It has another lease, and the slice is still that of the former one.
        cluster.assign(0, Assigned { granting: Granting::Nothing, ..cluster.assigned(0) });
        assert_eq!((cluster.place_of(0, Now(1)), until()), (Place::Here, [0; 3]));
    }

    #[test]
    fn whoever_was_deposed_is_known_until_it_is_forgotten() {
        let cluster = cluster(0).with_slices(vec![Holders { owner: 2, backup: Some(0) }; 4]);
        let taken = |node| cluster.taken_from(node).collect::<Vec<_>>();
        let own = |epoch| Assigned { holders: Holders { owner: 0, backup: None }, epoch, ..cluster.assigned(1) };
        cluster.assign(0, own(1));
        cluster.depose(1, 2);
        assert_eq!([0, 1, 2, u8::MAX].map(|node| cluster.has_deposed(node)), [false, false, true, false]);
        assert!(taken(2).is_empty(), "it is not this node's yet");
        cluster.assign(1, own(2));
        cluster.depose(3, 2);
        cluster.assign(3, own(7));
        assert_eq!([0, 1, 2, u8::MAX].map(taken), [vec![], vec![], vec![(1, 2), (3, 7)], vec![]]);
        cluster.assign(3, Assigned { holders: Holders { owner: 1, backup: None }, ..own(8) });
        assert_eq!(taken(2), [(1, 2)], "it is another one's by now");
        cluster.forget_deposed(2);
        assert!(!cluster.has_deposed(2));
        cluster.depose(4, 2);
        assert!(!cluster.has_deposed(2), "there is no such slice");
        cluster.depose(3, 2);
        assert!(taken(2).is_empty(), "what it has heard of is not told again");
    }

    #[test]
    fn a_node_is_taken_to_have_its_routes_until_somebody_looks() {
        let cluster = cluster(0);
        assert!(cluster.is_routed());
        cluster.set_routed(false);
        assert!(!cluster.is_routed());
    }

    #[test]
    fn a_packet_is_redirected_twice_at_most() {
        let cluster = cluster(0);
        let at = |place| Ipv6Addr::new(0x2001, 0xdb8, 0xc1, 1, 0, 0, 0, place);
        for (means, first) in [(Means::Header, 1), (Means::Destination, 0xa)] {
            assert_eq!(cluster.redirected_to(at(first)), Some((means, Hops::One)));
            assert_eq!(cluster.redirected_to(at(first + 1)), Some((means, Hops::Two)));
        }
        assert_eq!((Hops::One.next(), Hops::Two.next()), (Some(Hops::Two), None));
        assert!([0, 3, 9, 0xc].iter().all(|place| cluster.redirected_to(at(*place)).is_none()));
        assert!(cluster.has(at(0xff)) && !cluster.has(at(0x100)));
    }
}
