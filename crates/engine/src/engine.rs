//! A packet's way through the gateway: parse, classify, hand to the service, count.
//!
//! One [`Engine`] a worker. Workers share the tables and nothing else.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use tombolo_tables::Tables;
use tombolo_tables::tick::Tick;
use tombolo_wire::{tcp, udp};

use crate::counters::Counters;
use crate::mechanism::napt::{Exhausted, Times};
use crate::mechanism::offload::complete_checksum;
use crate::mechanism::session_state::Side;
use crate::mechanism::{IdentificationGenerator, Refusal};
use crate::packet::{ChecksumState, Offload, Outbox, Packet, Segmentation};
use crate::parse::{AnyParsed, Parsed, Payload, parse};
use crate::plan::{Plan, ServiceKind};
use crate::verdict::{DropReason, Verdict};

/// The generator of ports and identifications: fast, and not to be predicted from what it gave.
pub type Random = ChaCha8Rng;

/// A moment: nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now(pub u64);

impl Now {
    /// The same moment on the tables' clock.
    #[must_use]
    pub const fn tick(self) -> Tick {
        Tick::from_nanos(self.0)
    }
}

/// What a service works with, for one packet.
pub(crate) struct Work<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) times: &'a Times,
    pub(crate) random: &'a mut Random,
    pub(crate) identifications: &'a mut IdentificationGenerator,
    pub(crate) exhausted: &'a mut Exhausted,
    pub(crate) now: Now,
}

/// The engine of one worker.
#[derive(Debug)]
pub struct Engine {
    tables: Arc<Tables>,
    counters: Arc<Counters>,
    random: Random,
    identifications: IdentificationGenerator,
    exhausted: Exhausted,
}

impl Engine {
    /// The engine of worker number `worker` of `workers` on `tables`. `seed` must be random, and the same for all of
    /// them.
    #[must_use]
    pub fn new(tables: Arc<Tables>, seed: [u8; 32], worker: u16, workers: u16) -> Self {
        let mut random = Random::from_seed(seed);
        let identifications = IdentificationGenerator::new([random.next_u64(), random.next_u64()], worker, workers);
        random.set_stream(u64::from(worker) + 1);
        Self { tables, counters: Arc::default(), random, identifications, exhausted: Exhausted::default() }
    }

    /// Its counters, to be read by others.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Takes one packet. What leaves goes through `outbox`; the verdict says what became of it, and has been counted.
    pub fn process(&mut self, plan: &Plan, packet: &mut Packet<'_>, now: Now, outbox: &mut impl Outbox) -> Verdict {
        let bytes = packet.len();
        // Until the version is known, a packet counts as from inside.
        let side =
            if packet.bytes().first().is_some_and(|first| first >> 4 == 4) { Side::Outside } else { Side::Inside };
        let verdict = match self.decide(plan, packet, now, outbox) {
            Ok(verdict) => verdict,
            Err(refusal) => Verdict::Drop(refusal.reason),
        };
        self.counters.count(side, bytes, verdict);
        verdict
    }

    fn decide(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let parsed = parse(packet)?;
        let mut work = Work {
            tables: &self.tables,
            times: &plan.times,
            random: &mut self.random,
            identifications: &mut self.identifications,
            exhausted: &mut self.exhausted,
            now,
        };
        match &parsed {
            AnyParsed::V6(parsed) => reconcile_offload(packet, parsed)?,
            AnyParsed::V4(parsed) => reconcile_offload(packet, parsed)?,
        }
        match parsed {
            AnyParsed::V6(parsed) => match plan.service_of_ipv6(parsed.destination) {
                Some((number, service)) => match &service.kind {
                    ServiceKind::Nat64(nat64) => nat64.inside(number, packet, &parsed, &mut work, outbox),
                },
                None => Ok(Verdict::ToHost),
            },
            AnyParsed::V4(parsed) => match plan.service_of_ipv4(parsed.destination) {
                Some((number, service)) => match &service.kind {
                    ServiceKind::Nat64(nat64) => nat64.outside(number, packet, &parsed, &mut work, outbox),
                },
                None => Ok(Verdict::ToHost),
            },
        }
    }
}

/// What was left to the card must agree with the headers, since transformations rely on it.
fn reconcile_offload<A>(packet: &mut Packet<'_>, parsed: &Parsed<A>) -> Result<(), DropReason> {
    let expected = match parsed.payload {
        _ if packet.offload == Offload::default() => return Ok(()),
        Payload::Tcp if !parsed.is_piece() => Some(tcp::CHECKSUM),
        Payload::Udp if !parsed.is_piece() => Some(udp::CHECKSUM),
        _ => None,
    };
    let is_partial = match packet.offload.checksum {
        ChecksumState::Complete => false,
        ChecksumState::Partial { start, offset } => {
            start == parsed.transport_offset && Some(usize::from(offset)) == expected
        }
    };
    match (packet.offload.segmentation, parsed.payload) {
        (Segmentation::None, _) if is_partial => Ok(()),
        (Segmentation::None, _) => complete_checksum(packet, parsed.protocol),
        (Segmentation::Tcp { size: 1.., .. }, Payload::Tcp) | (Segmentation::Udp { size: 1.. }, Payload::Udp)
            if is_partial =>
        {
            Ok(())
        }
        _ => Err(DropReason::Malformed),
    }
}
