//! A packet's way through the gateway: parse, classify, hand to the service, count.
//!
//! One [`Engine`] a worker. Workers share the tables and nothing else.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use tombolo_tables::Tables;
use tombolo_tables::tick::Tick;
use tombolo_wire::{tcp, udp};

use crate::counters::Counters;
use crate::mapping::stateless::Claim;
use crate::mechanism::held::{self, Held, HeldSyns};
use crate::mechanism::napt::{Admissions, Exhausted, Times};
use crate::mechanism::offload::complete_checksum;
use crate::mechanism::reassembly::{Reassembly, ReassemblyLimits};
use crate::mechanism::reply::{ErrorLimit, may_answer_ipv4, may_answer_ipv6, reply_ipv4, reply_ipv6};
use crate::mechanism::session_state::Side;
use crate::mechanism::{IcmpAnswer, IdentificationGenerator, Refusal};
use crate::packet::{ChecksumState, HEADROOM, Offload, Outbox, Packet, Segmentation};
use crate::parse::{AnyParsed, Parsed, Payload, parse, parse_ipv4};
use crate::plan::{AnsweredBy, ErrorPolicy, OwnAddresses, Plan, Refusals, Service, ServiceKind};
use crate::service::own;
use crate::service::siit::Arrival;
use crate::service::stateful;
use crate::trace::{Notes, Trace};
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
    pub(crate) admissions: &'a mut [Admissions],
    pub(crate) held: &'a mut HeldSyns,
    pub(crate) error_limit: &'a mut ErrorLimit,
    /// Fragments that were inside softwires. Absent while a datagram from it is worked on.
    pub(crate) inner: &'a mut Option<Reassembly>,
    pub(crate) own: &'a OwnAddresses,
    pub(crate) notes: Notes<'a>,
    /// What is known of the destination of the packet at hand.
    pub(crate) claim: Claim,
    pub(crate) now: Now,
}

impl Work<'_> {
    /// Whether one more ICMP error may be sent now, by the rate that the plan sets.
    pub(crate) fn may_send_error(&mut self) -> bool {
        let policy = self.own.errors;
        self.error_limit.allow(policy.rate, policy.burst, self.now.0)
    }
}

/// The engine of one worker.
#[derive(Debug)]
pub struct Engine {
    pub(crate) tables: Arc<Tables>,
    counters: Arc<Counters>,
    random: Random,
    identifications: IdentificationGenerator,
    exhausted: Exhausted,
    admissions: Vec<Admissions>,
    held: HeldSyns,
    reassembly: Reassembly,
    inner: Option<Reassembly>,
    error_limit: ErrorLimit,
}

/// A service's number has eight bits.
const SERVICES: usize = 256;

impl Engine {
    /// The engine of worker number `worker` of `workers` on `tables`. `seed` must be random, and
    /// the same for all of them.
    #[must_use]
    pub fn new(tables: Arc<Tables>, seed: [u8; 32], worker: u16, workers: u16) -> Self {
        let mut random = Random::from_seed(seed);
        let identifications = IdentificationGenerator::new([random.next_u64(), random.next_u64()], worker, workers);
        let secret = [random.next_u64(), random.next_u64()];
        random.set_stream(u64::from(worker) + 1);
        Self {
            tables,
            counters: Arc::default(),
            random,
            identifications,
            exhausted: Exhausted::default(),
            admissions: vec![Admissions::new(workers); SERVICES],
            held: HeldSyns::default(),
            reassembly: Reassembly::new(ReassemblyLimits::default(), secret),
            inner: Some(Reassembly::new(ReassemblyLimits::default(), secret)),
            error_limit: ErrorLimit::new(ErrorPolicy::default().rate, ErrorPolicy::default().burst),
        }
    }

    /// Its counters, to be read by others.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Takes one packet. What leaves goes through `outbox`; the verdict says what became of it, and
    /// has been counted.
    pub fn process(&mut self, plan: &Plan, packet: &mut Packet<'_>, now: Now, outbox: &mut impl Outbox) -> Verdict {
        self.take(plan, packet, now, outbox, None)
    }

    /// As [`process`](Self::process), and says in `trace` why.
    pub fn explain(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut impl Outbox,
        trace: &mut Trace,
    ) -> Verdict {
        self.take(plan, packet, now, outbox, Some(trace))
    }

    #[inline]
    fn take(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut impl Outbox,
        trace: Option<&mut Trace>,
    ) -> Verdict {
        let bytes = packet.len();
        // Until it is known whose packet it is, IPv6 counts as from inside.
        let mut side = match packet.bytes().first().map(|first| first >> 4) {
            Some(4) => Side::Outside,
            _ => Side::Inside,
        };
        let verdict = self.decide(plan, packet, now, outbox, &mut side, Notes(trace)).unwrap_or_else(Verdict::Drop);
        self.counters.count(side, bytes, verdict);
        verdict
    }

    /// The moment to forget fragments whose siblings did not come. To be called about once a
    /// second.
    pub fn idle(&mut self, now: Now) {
        for reassembly in std::iter::once(&mut self.reassembly).chain(&mut self.inner) {
            reassembly.expire(now.0);
            self.counters.add(DropReason::FragmentTimeout, reassembly.take_timed_out());
            self.counters.add(DropReason::FragmentMemory, reassembly.take_pushed_out());
        }
    }

    /// What services work with, and what puts fragments together for them.
    fn work<'a>(&'a mut self, plan: &'a Plan, now: Now, notes: Notes<'a>) -> (Work<'a>, &'a mut Reassembly) {
        let work = Work {
            tables: &self.tables,
            times: &plan.times,
            random: &mut self.random,
            identifications: &mut self.identifications,
            exhausted: &mut self.exhausted,
            admissions: &mut self.admissions,
            held: &mut self.held,
            error_limit: &mut self.error_limit,
            inner: &mut self.inner,
            own: &plan.own,
            notes,
            claim: Claim::Unknown,
            now,
        };
        (work, &mut self.reassembly)
    }

    /// Tells the senders of SYNs that were held long enough in vain (RFC 6146 section 3.5.2.2, RFC
    /// 5382 REQ-4). To be called about once a second.
    pub fn release_held(&mut self, plan: &Plan, now: Now, outbox: &mut impl Outbox) {
        while let Some(syn) = self.held.take_due(now) {
            let mut buffer = [0; HEADROOM + held::LONGEST];
            buffer[HEADROOM..HEADROOM + syn.bytes().len()].copy_from_slice(syn.bytes());
            let Some(mut packet) = Packet::new(&mut buffer, HEADROOM, syn.bytes().len(), Offload::default()) else {
                continue;
            };
            self.release(plan, &syn, &mut packet, now, outbox);
        }
    }

    fn release(&mut self, plan: &Plan, syn: &Held, packet: &mut Packet<'_>, now: Now, outbox: &mut impl Outbox) {
        let Ok(parsed) = parse_ipv4(packet) else { return };
        let Some((number, service)) = plan.service_of_ipv4(parsed.destination, &mut Claim::Unknown) else { return };
        let (mut work, _) = self.work(plan, now, Notes(None));
        let (outside, remote) = held::ends(&parsed);
        // The inside opened meanwhile: the SYN has done its work and goes silently (RFC 5382
        // REQ-4).
        let Some(pool) = service.kind.pool() else { return };
        if stateful::is_open(number, pool, outside, remote, &mut work) {
            return;
        }
        let refusal = Refusal::with(syn.reason, IcmpAnswer::PortUnreachable);
        // A hairpinned SYN: what is told to its outside source comes in again and finds the host.
        let turns_round = pool.contains(parsed.source);
        let verdict = if turns_round {
            let mut keep = |_: &mut Packet<'_>| {};
            answer_ipv4(plan.own.ipv4, &mut work, refusal, packet, &parsed, &mut keep)
        } else {
            answer_ipv4(plan.own.ipv4, &mut work, refusal, packet, &parsed, outbox)
        };
        self.counters.count_late(verdict.unwrap_or_else(Verdict::Drop));
        if turns_round && verdict.is_ok() {
            self.process(plan, packet, now, outbox);
        }
    }

    fn decide(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut impl Outbox,
        side: &mut Side,
        mut notes: Notes<'_>,
    ) -> Result<Verdict, DropReason> {
        let parsed = parse(packet)?;
        notes.add("", || describe(&parsed));
        let own = &plan.own;
        let (mut work, reassembly) = self.work(plan, now, notes);
        match parsed {
            AnyParsed::V6(parsed) => {
                if own.answered_by == AnsweredBy::Gateway && own.ipv6 == Some(parsed.destination) {
                    return own::receive_ipv6(packet, &parsed, outbox)
                        .or_else(|refusal| answer_ipv6(plan.own.ipv6, &mut work, refusal, packet, &parsed, outbox));
                }
                let Some((number, service)) = plan.service_of_ipv6(parsed.destination, &mut work.claim) else {
                    work.notes.add("", || format!("no service has {}: left to the host's routes", parsed.destination));
                    return Ok(Verdict::ToHost);
                };
                work.notes.add("", || format!("{} belongs to service {}", parsed.destination, service.name));
                *side = service.kind.side_of_ipv6();
                reconcile_offload(packet, &parsed)?;
                let own = if service.kind.answers_as_destination() { Some(parsed.destination) } else { plan.own.ipv6 };
                if !parsed.is_piece() || !service.kind.collects_ipv6() {
                    let result = receive_ipv6(service, number, packet, &parsed, &mut work, outbox);
                    return result.or_else(|refusal| answer_ipv6(own, &mut work, refusal, packet, &parsed, outbox));
                }
                match reassembly.accept_ipv6(packet, &parsed, now.0)? {
                    None => Ok(Verdict::Hold),
                    Some((mut whole, parsed)) => receive_ipv6(service, number, &mut whole, &parsed, &mut work, outbox)
                        .or_else(|refusal| answer_ipv6(own, &mut work, refusal, &mut whole, &parsed, outbox)),
                }
            }
            AnyParsed::V4(parsed) => {
                if own.answered_by == AnsweredBy::Gateway && own.ipv4 == Some(parsed.destination) {
                    return own::receive_ipv4(packet, &parsed, outbox)
                        .or_else(|refusal| answer_ipv4(plan.own.ipv4, &mut work, refusal, packet, &parsed, outbox));
                }
                let (number, service) = if let Some(found) =
                    plan.service_of_ipv4_source(parsed.source, parsed.destination)
                {
                    work.notes.add("", || format!("{} is inside service {}", parsed.source, found.1.name));
                    *side = Side::Inside;
                    found
                } else if let Some(found) = plan.service_of_ipv4(parsed.destination, &mut work.claim) {
                    work.notes.add("", || format!("{} belongs to service {}", parsed.destination, found.1.name));
                    *side = found.1.kind.side_of_ipv4();
                    found
                } else {
                    work.notes.add("", || format!("no service has {}: left to the host's routes", parsed.destination));
                    return Ok(Verdict::ToHost);
                };
                let from = *side;
                reconcile_offload(packet, &parsed)?;
                let own = service.kind.icmp_source().or(plan.own.ipv4);
                if !parsed.is_piece() || !service.kind.collects_ipv4() {
                    let result = receive_ipv4(service, number, from, packet, &parsed, &mut work, outbox);
                    return result.or_else(|refusal| answer_ipv4(own, &mut work, refusal, packet, &parsed, outbox));
                }
                match reassembly.accept_ipv4(packet, &parsed, now.0)? {
                    None => Ok(Verdict::Hold),
                    Some((mut whole, parsed)) => {
                        receive_ipv4(service, number, from, &mut whole, &parsed, &mut work, outbox)
                            .or_else(|refusal| answer_ipv4(own, &mut work, refusal, &mut whole, &parsed, outbox))
                    }
                }
            }
        }
    }
}

/// The packet in words.
fn describe(parsed: &AnyParsed) -> String {
    fn words<A: std::fmt::Display>(family: &str, parsed: &Parsed<A>) -> String {
        let Parsed { source, destination, length, payload, hop_limit, .. } = parsed;
        let ports = match payload {
            Payload::Tcp | Payload::Udp => format!(" port {} to {}", parsed.source_port.0, parsed.destination_port.0),
            Payload::EchoRequest | Payload::EchoReply => format!(" identifier {}", parsed.source_port.0),
            _ => String::new(),
        };
        let piece = match parsed.fragment.filter(|fragment| fragment.is_piece()) {
            Some(piece) => format!(", a fragment at {} of {}", u32::from(piece.offset) * 8, piece.identification),
            None => String::new(),
        };
        let protocol = parsed.protocol.0;
        format!(
            "{family} {source} to {destination}, {length} bytes, hop limit {hop_limit}, protocol {protocol}: \
             {payload:?}{ports}{piece}"
        )
    }
    match parsed {
        AnyParsed::V4(parsed) => words("IPv4", parsed),
        AnyParsed::V6(parsed) => words("IPv6", parsed),
    }
}

fn receive_ipv6(
    service: &Service,
    number: u8,
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    work: &mut Work<'_>,
    outbox: &mut impl Outbox,
) -> Result<Verdict, Refusal> {
    match &service.kind {
        ServiceKind::Nat64(nat64) => nat64.inside(number, packet, parsed, work, outbox),
        ServiceKind::Siit(siit) => siit.receive_ipv6(packet, parsed, work, outbox),
        ServiceKind::B4(b4) => b4.outside(packet, parsed, work, outbox),
        ServiceKind::Aftr(aftr) => aftr.inside(number, packet, parsed, work, outbox),
        ServiceKind::Lwb4(lwb4) => lwb4.outside(number, packet, parsed, work, outbox),
        ServiceKind::Lwaftr(lwaftr) => lwaftr.inside(packet, parsed, work, outbox),
        ServiceKind::MapTBr(br) => br.inside(packet, parsed, work, outbox),
        ServiceKind::MapTCe(ce) => ce.outside(number, packet, parsed, work, outbox),
        ServiceKind::MapEBr(br) => br.inside(packet, parsed, work, outbox),
        ServiceKind::MapECe(ce) => ce.outside(number, packet, parsed, work, outbox),
        // No IPv6 address is this service's.
        ServiceKind::Nat44(_) => Ok(Verdict::ToHost),
    }
}

fn receive_ipv4(
    service: &Service,
    number: u8,
    from: Side,
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    work: &mut Work<'_>,
    outbox: &mut impl Outbox,
) -> Result<Verdict, Refusal> {
    match &service.kind {
        ServiceKind::Nat64(nat64) => nat64.outside(number, packet, parsed, work, outbox),
        ServiceKind::Nat44(nat44) => match from {
            Side::Inside => nat44.inside(number, packet, parsed, work, outbox),
            Side::Outside => nat44.outside(number, packet, parsed, work, outbox),
        },
        ServiceKind::Siit(siit) => siit.receive_ipv4(packet, parsed, Arrival::FromNetwork, work, outbox),
        ServiceKind::B4(b4) => b4.inside(packet, parsed, work, outbox),
        ServiceKind::Aftr(aftr) => aftr.outside(number, packet, parsed, work, outbox),
        ServiceKind::Lwb4(lwb4) => lwb4.inside(number, packet, parsed, work, outbox),
        ServiceKind::Lwaftr(lwaftr) => lwaftr.outside(packet, parsed, work, outbox),
        ServiceKind::MapTBr(br) => br.outside(packet, parsed, Arrival::FromNetwork, work, outbox),
        ServiceKind::MapTCe(ce) => ce.inside(number, packet, parsed, work, outbox),
        ServiceKind::MapEBr(br) => br.outside(packet, parsed, work, outbox),
        ServiceKind::MapECe(ce) => ce.inside(number, packet, parsed, work, outbox),
    }
}

/// Tells the sender of a refused IPv6 packet, if it may be told.
fn answer_ipv6(
    own: Option<Ipv6Addr>,
    work: &mut Work<'_>,
    refusal: Refusal,
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    outbox: &mut impl Outbox,
) -> Result<Verdict, DropReason> {
    if let (Some(answer), Some(from)) = (refusal.answer, own)
        && is_wanted(answer, work.own)
        && may_answer_ipv6(packet, parsed, answer)
        && work.may_send_error()
    {
        reply_ipv6(packet, parsed, from, answer)?;
        work.notes.add("RFC 4443 section 2.4", || format!("its sender is told: {answer:?}, from {from}"));
        outbox.send(packet);
        return Ok(Verdict::Reply(refusal.reason));
    }
    Err(refusal.reason)
}

/// Tells the sender of a refused IPv4 packet, if it may be told.
fn answer_ipv4(
    own: Option<Ipv4Addr>,
    work: &mut Work<'_>,
    refusal: Refusal,
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    outbox: &mut impl Outbox,
) -> Result<Verdict, DropReason> {
    if let (Some(answer), Some(from)) = (refusal.answer, own)
        && is_wanted(answer, work.own)
        && may_answer_ipv4(parsed)
        && work.may_send_error()
    {
        reply_ipv4(packet, parsed, from, answer, work.identifications)?;
        work.notes.add("RFC 1812 section 4.3", || format!("its sender is told: {answer:?}, from {from}"));
        outbox.send(packet);
        return Ok(Verdict::Reply(refusal.reason));
    }
    Err(refusal.reason)
}

/// Whether the operator wants senders to be told this.
fn is_wanted(answer: IcmpAnswer, own: &OwnAddresses) -> bool {
    own.errors.refusals == Refusals::Told || !matches!(answer, IcmpAnswer::Prohibited | IcmpAnswer::SourcePolicy)
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
