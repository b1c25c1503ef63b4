//! What the engine counts: packets and bytes by verdict, and drops by reason, for each service.
//!
//! One set a worker, written by that worker alone and read by anybody: no shared writes on the
//! packet's way.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_wire::pcp::ResultCode;

use crate::answered::Answered;
use crate::cluster::MOST_NODES;
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};

/// Whose packet it is, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whose {
    /// Where it came from.
    pub side: Side,
    /// The number of its service.
    pub service: Option<u8>,
}

/// Counters of one worker.
#[derive(Debug)]
pub struct Counters {
    /// By number, from the first packet of each.
    services: [OnceLock<Box<Counted>>; 256],
    /// Of packets that are no service's.
    others: Counted,
    /// Requests of PCP by opcode and result.
    pcp: PcpCounters,
    /// Packets that were sent to each node of the cluster, and that came from it.
    redirected: [[AtomicU64; MOST_NODES]; 2],
}

type PcpCounters = [[AtomicU64; ResultCode::ALL.len()]; Answered::OPCODES.len()];

impl Default for Counters {
    fn default() -> Self {
        Self {
            services: [const { OnceLock::new() }; 256],
            others: Counted::default(),
            pcp: PcpCounters::default(),
            redirected: <_>::default(),
        }
    }
}

#[derive(Debug)]
struct Counted {
    received: [AtomicU64; 2],
    received_bytes: [AtomicU64; 2],
    forwarded: [AtomicU64; 2],
    to_host: AtomicU64,
    held: AtomicU64,
    replied: AtomicU64,
    drops: [AtomicU64; DropReason::COUNT],
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            received: Default::default(),
            received_bytes: Default::default(),
            forwarded: Default::default(),
            to_host: AtomicU64::default(),
            held: AtomicU64::default(),
            replied: AtomicU64::default(),
            drops: [const { AtomicU64::new(0) }; DropReason::COUNT],
        }
    }
}

/// Adds up counters of which this thread is the only writer.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// Takes back what this thread has added.
fn take(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_sub(count), Ordering::Relaxed);
}

impl Counters {
    #[inline]
    fn of(&self, service: Option<u8>) -> &Counted {
        match service {
            Some(number) => self.services[usize::from(number)].get_or_init(Box::default),
            None => &self.others,
        }
    }

    /// Counts a packet of `bytes` bytes that ended as `verdict`.
    #[inline]
    pub fn count(&self, whose: Whose, bytes: usize, verdict: Verdict) {
        let (side, counted) = (whose.side as usize, self.of(whose.service));
        add(&counted.received[side], 1);
        add(&counted.received_bytes[side], bytes as u64);
        match verdict {
            Verdict::Forward => add(&counted.forwarded[side], 1),
            Verdict::ToHost => add(&counted.to_host, 1),
            Verdict::Hold => add(&counted.held, 1),
            Verdict::EchoReply => add(&counted.replied, 1),
            Verdict::Pcp(answered) => {
                add(&counted.replied, 1);
                let (opcode, code) = answered.place();
                add(&self.pcp[opcode][code], 1);
            }
            Verdict::Redirect(node) => self.redirected[0].get(usize::from(node)).into_iter().for_each(|to| add(to, 1)),
            Verdict::Reply(_) | Verdict::Drop(_) => counted.end(verdict),
        }
    }

    /// Counts a packet that this node of the cluster has redirected here.
    pub(crate) fn add_redirected_by(&self, node: usize) {
        self.redirected[1].get(node).into_iter().for_each(|by| add(by, 1));
    }

    /// Counts what became in the end of a packet of `service` that was held.
    pub fn count_late(&self, service: u8, verdict: Verdict) {
        self.of(Some(service)).end(verdict);
    }

    /// Counts a packet as dropped that was counted as `verdict` in the same batch: what it became was held, and not
    /// taken in the end.
    pub fn count_lost(&self, whose: Whose, verdict: Verdict, reason: DropReason) {
        let counted = self.of(whose.service);
        match verdict {
            Verdict::Forward => take(&counted.forwarded[whose.side as usize], 1),
            Verdict::ToHost => take(&counted.to_host, 1),
            Verdict::Redirect(node) => self.redirected[0].get(usize::from(node)).into_iter().for_each(|to| take(to, 1)),
            // Dropped already, or nothing that is held comes of it.
            Verdict::Drop(_) | Verdict::Reply(_) | Verdict::Hold | Verdict::EchoReply | Verdict::Pcp(_) => return,
        }
        counted.end(Verdict::Drop(reason));
    }

    /// Counts packets that were given up later than they came.
    pub fn add(&self, reason: DropReason, count: u64) {
        add(&self.others.drops[reason as usize], count);
    }

    /// Counts an answer to a packet whose drop has been counted.
    pub fn add_reply(&self) {
        add(&self.others.replied, 1);
    }

    /// Adds what was counted to `totals`.
    pub fn add_to(&self, totals: &mut Totals) {
        self.others.add_to(totals);
        for (totals, counted) in totals.pcp.iter_mut().flatten().zip(self.pcp.iter().flatten()) {
            *totals += counted.load(Ordering::Relaxed);
        }
        for (totals, counted) in totals.redirected.iter_mut().flatten().zip(self.redirected.iter().flatten()) {
            *totals += counted.load(Ordering::Relaxed);
        }
        self.services.iter().filter_map(OnceLock::get).for_each(|counted| counted.add_to(totals));
    }

    /// Adds what was counted of the service that has this number to `totals`.
    pub fn add_service_to(&self, number: u8, totals: &mut Totals) {
        if let Some(counted) = self.services[usize::from(number)].get() {
            counted.add_to(totals);
        }
    }
}

impl Counted {
    fn end(&self, verdict: Verdict) {
        match verdict {
            Verdict::Reply(reason) => {
                add(&self.replied, 1);
                add(&self.drops[reason as usize], 1);
            }
            Verdict::Drop(reason) => add(&self.drops[reason as usize], 1),
            Verdict::Forward
            | Verdict::EchoReply
            | Verdict::Pcp(_)
            | Verdict::Redirect(_)
            | Verdict::Hold
            | Verdict::ToHost => {}
        }
    }

    fn add_to(&self, totals: &mut Totals) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for side in 0..2 {
            totals.received[side] += read(&self.received[side]);
            totals.received_bytes[side] += read(&self.received_bytes[side]);
            totals.forwarded[side] += read(&self.forwarded[side]);
        }
        totals.to_host += read(&self.to_host);
        totals.held += read(&self.held);
        totals.replied += read(&self.replied);
        for (total, drop) in totals.drops.iter_mut().zip(&self.drops) {
            *total += read(drop);
        }
    }
}

/// Counters of all workers, added up. Index 0 is the inside, 1 the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// Packets received.
    pub received: [u64; 2],
    /// Bytes received, IP headers included.
    pub received_bytes: [u64; 2],
    /// Packets translated and sent on.
    pub forwarded: [u64; 2],
    /// Packets that were not the gateway's.
    pub to_host: u64,
    /// Packets kept for later.
    pub held: u64,
    /// Packets answered: echo requests to the gateway itself, and those that got an ICMP error,
    /// which are in `drops` too.
    pub replied: u64,
    /// Packets dropped or answered with an ICMP error, by reason.
    pub drops: [u64; DropReason::COUNT],
    /// Requests of PCP, by the places of [`Answered`]; of the whole gateway alone.
    pub pcp: [[u64; ResultCode::ALL.len()]; Answered::OPCODES.len()],
    /// Packets that were redirected to each node of the cluster, and by each to this one; of the whole gateway alone.
    pub redirected: [[u64; MOST_NODES]; 2],
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            received: [0; 2],
            received_bytes: [0; 2],
            forwarded: [0; 2],
            to_host: 0,
            held: 0,
            replied: 0,
            drops: [0; DropReason::COUNT],
            pcp: Default::default(),
            redirected: Default::default(),
        }
    }
}

impl Totals {
    /// Reasons that occurred, with how often.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.drops[reason as usize])).filter(|&(_, count)| count > 0)
    }
}
