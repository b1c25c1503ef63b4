//! A packet's way through the gateway: parse, classify, hand to the service, answer, count.
//!
//! One [`Engine`] a worker. Workers share the tables and the fragments that wait for others, and nothing else.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rand_core::{Rng, SeedableRng};
use tombolo_tables::Tables;

use crate::answer::{answer_ipv4, answer_ipv6};
use crate::cluster::{Cluster, Granting, Hops, Means, Standing};
use crate::counters::{Counters, Whose};
use crate::mapping::stateless::Claim;
use crate::mechanism::error_limit::{ErrorLimit, ErrorLimits};
use crate::mechanism::identification::IdentificationGenerator;
use crate::mechanism::napt::{Admissions, Exhausted, Nat, held};
use crate::mechanism::offload::reconcile_offload;
use crate::mechanism::redirect;
use crate::mechanism::screen::{check_obstacle, check_obstacle_at_end};
use crate::mechanism::slice;
use crate::mechanism::{Fragments, IcmpAnswer, ReassemblyLimits, Refusal, Room, echo};
use crate::now::Now;
use crate::own_addresses::AnsweredBy;
use crate::packet::{HEADROOM, Offload, Outbox, Packet};
use crate::packet_words::describe;
use crate::parse::{Parsed, Payload, parse_ipv4, parse_ipv6};
use crate::pcp;
use crate::plan::Plan;
use crate::random::Random;
use crate::refused::{Refused, RefusedLog};
use crate::row::{self, Between};
use crate::service::Service;
use crate::side::Side;
use crate::trace::{Notes, Trace};
use crate::verdict::{DropReason, Verdict};
use crate::work::{ECHO_REPLIES, Work, Worker};

/// From where a packet has come to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From a network.
    Network,
    /// From another service.
    Service,
}

/// From where a packet has come, and when.
type Arrival = (Way, Now);

/// A service's number has eight bits.
const SERVICES: usize = 256;

/// The engine of one worker.
#[derive(Debug)]
pub struct Engine {
    pub(crate) tables: Arc<Tables>,
    counters: Arc<Counters>,
    worker: Worker,
    fragments: Arc<Fragments>,
    /// For a datagram that came in fragments.
    room: Room,
    /// Empty between packets; its memory is kept.
    between: Between,
}

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
            fragments: Arc::new(Fragments::new(ReassemblyLimits::default(), secret, 1)),
            room: Room::default(),
            worker: Worker {
                random,
                identifications,
                exhausted: Exhausted::default(),
                admissions: vec![Admissions::new(workers); SERVICES],
                held: held::HeldSyns::default(),
                error_limits: ErrorLimits::new(secret),
                echo_limit: ErrorLimit::new(ECHO_REPLIES, ECHO_REPLIES),
                refused: RefusedLog::default(),
                inner: Room::default(),
            },
            between: Between::default(),
        }
    }

    /// The same engine, which waits for fragments together with those of the other workers: the pieces of a
    /// datagram may come by any of them.
    #[must_use]
    pub fn sharing(self, fragments: Arc<Fragments>) -> Self {
        Self { fragments, ..self }
    }

    /// Its counters, to be read by others.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Takes one packet. What leaves goes through `outbox`; the verdict says what became of it, and
    /// has been counted.
    #[inline]
    pub fn process(&mut self, plan: &Plan, packet: &mut Packet<'_>, now: Now, outbox: &mut dyn Outbox) -> Verdict {
        self.observe(plan, packet, now, outbox).0
    }

    /// As [`process`](Self::process), and says whose packet it was.
    #[inline]
    pub fn observe(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut dyn Outbox,
    ) -> (Verdict, Whose) {
        if plan.rows.is_empty() {
            return self.take(plan, packet, (Way::Network, now), outbox, None);
        }
        self.take_in_row(plan, packet, now, outbox, None)
    }

    /// As [`process`](Self::process), and says in `trace` why.
    pub fn explain(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut dyn Outbox,
        trace: &mut Trace,
    ) -> Verdict {
        self.take_in_row(plan, packet, now, outbox, Some(trace)).0
    }

    /// As [`take`](Self::take), and what the service sends to another one is taken in its turn. What became of the last.
    #[inline(never)]
    fn take_in_row(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut dyn Outbox,
        mut trace: Option<&mut Trace>,
    ) -> (Verdict, Whose) {
        let mut between = std::mem::take(&mut self.between);
        let mut send =
            |packet: &mut Packet<'_>| if between.keeps(&plan.rows, packet) { Ok(()) } else { outbox.send(packet) };
        let mut taken = self.take(plan, packet, (Way::Network, now), &mut send, trace.as_deref_mut());
        for step in 1..=row::LONGEST {
            let mut next = Between::default();
            between.drain(|packet| {
                let mut send = |packet: &mut Packet<'_>| {
                    let is_kept = step < row::LONGEST && next.keeps(&plan.rows, packet);
                    if is_kept { Ok(()) } else { outbox.send(packet) }
                };
                taken = self.take(plan, packet, (Way::Service, now), &mut send, trace.as_deref_mut());
            });
            if next.is_empty() {
                break;
            }
            between = next;
        }
        self.between = between;
        taken
    }

    /// The moment to forget fragments whose siblings did not come. To be called about once a
    /// second.
    pub fn idle(&mut self, now: Now) {
        let (timed_out, pushed_out) = self.fragments.expire(now.0);
        self.counters.add(DropReason::FragmentTimeout, timed_out);
        self.counters.add(DropReason::FragmentMemory, pushed_out);
    }

    /// Hands out the first of the packets that policy has refused since the last call, for a log;
    /// returns how many more there were. To be called about once a second.
    pub fn take_refused(&mut self, each: impl FnMut(&Refused)) -> u64 {
        self.worker.refused.take(each)
    }

    /// Tells the senders of tunnel packets whose fragments did not all come in time (RFC 8200
    /// section 4.5), as the end of the softwire that they were for. To be called about once a
    /// second.
    pub fn answer_expired(&mut self, plan: &Plan, now: Now, outbox: &mut dyn Outbox) {
        self.idle(now);
        let Self { tables, counters, worker, fragments, room, between: _ } = self;
        while let Some(first) = fragments.take_expired() {
            let Some(mut packet) = first.into_packet(room) else { continue };
            let Ok(parsed) = parse_ipv6(&mut packet) else { continue };
            let service = plan.service_of_ipv6(parsed.destination, &mut Claim::Unknown);
            if !service.is_some_and(|(_, service)| service.kind.shape().ends_softwires) {
                continue;
            }
            let mut work = Work {
                packet,
                outbox: &mut *outbox,
                number: 0,
                claim: Claim::Unknown,
                now,
                tables,
                times: &plan.times,
                own: &plan.own,
                pcp: &plan.pcp,
                standing: None,
                fragments,
                granting: Granting::Freely,
                worker,
                notes: Notes(None),
            };
            let refusal = Refusal::with(DropReason::FragmentTimeout, IcmpAnswer::ReassemblyTimeExceeded);
            match answer_ipv6(Some(parsed.destination), refusal, &parsed, &mut work) {
                Ok(_) => counters.add_reply(),
                // No error is sent. The drop has been counted.
                Err(silent) if silent.reason == refusal.reason => {}
                Err(lost) => counters.add(lost.reason, 1),
            }
        }
    }

    #[inline]
    fn take(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        (way, now): Arrival,
        outbox: &mut dyn Outbox,
        trace: Option<&mut Trace>,
    ) -> (Verdict, Whose) {
        let bytes = packet.len();
        let notes = Notes(trace);
        // Until it is known whose packet it is, IPv6 counts as from inside.
        let mut whose = Whose { side: Side::Inside, service: None };
        let result = match packet.bytes().first().map(|first| first >> 4) {
            Some(6) => self.take_ipv6(plan, packet, now, outbox, notes, &mut whose),
            Some(4) => {
                whose.side = Side::Outside;
                self.take_ipv4(plan, packet, (way, now), outbox, notes, &mut whose)
            }
            _ => Err(DropReason::NotIp.into()),
        };
        let verdict = result.unwrap_or_else(|refusal| Verdict::Drop(refusal.reason));
        self.counters.count(whose, bytes, verdict);
        (verdict, whose)
    }

    #[inline]
    fn take_ipv6(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut dyn Outbox,
        mut notes: Notes<'_>,
        whose: &mut Whose,
    ) -> Result<Verdict, Refusal> {
        // By reference: a copy would wait until what the parser wrote field by field has left the store
        // buffer (5 ns, a twelfth of a small packet's time).
        let parsed = parse_ipv6(packet);
        let parsed = parsed.as_ref().map_err(|reason| *reason)?;
        let (mut work, room) = self.work(plan, packet.lend(), now, outbox, notes.lend());
        let verdict = receive_ipv6(plan, parsed, whose, &mut work, room)?;
        match plan.cluster.as_deref() {
            Some(cluster) if verdict == Verdict::ToHost && parsed.destination == cluster.locator() => {
                self.answer_probe(plan, parsed, packet, (now, outbox, notes))
            }
            Some(cluster) if verdict == Verdict::ToHost && cluster.has(parsed.destination) => {
                let hops = self.take_out((plan, cluster), parsed, packet, &mut notes)?;
                self.take_redirected((plan, Standing { cluster, hops }), packet, now, outbox, notes, whose)
            }
            _ => Ok(verdict),
        }
    }

    /// Answers an echo request to the node: others try so what the network between them carries.
    #[cold]
    fn answer_probe(
        &mut self,
        plan: &Plan,
        parsed: &Parsed<Ipv6Addr>,
        packet: &mut Packet<'_>,
        (now, outbox, notes): (Now, &mut dyn Outbox, Notes<'_>),
    ) -> Result<Verdict, Refusal> {
        let (mut work, _) = self.work(plan, packet.lend(), now, outbox, notes);
        if !work.may_answer_echo() {
            return Err(DropReason::RateLimited.into());
        }
        echo::receive_ipv6(parsed, &mut work).map_err(Refusal::silence)
    }

    /// Makes of what another node has redirected the packet that it was. How often it was redirected.
    #[cold]
    fn take_out(
        &self,
        (plan, cluster): (&Plan, &Cluster),
        outer: &Parsed<Ipv6Addr>,
        packet: &mut Packet<'_>,
        notes: &mut Notes<'_>,
    ) -> Result<Hops, DropReason> {
        let (means, hops) = cluster.redirected_to(outer.destination).ok_or(DropReason::RedirectRefused)?;
        match means {
            Means::Header => {
                let node = redirect::take_out(cluster, packet, outer)?;
                notes.add("RFC 2473 section 3.3", || format!("redirected by node {}", cluster.nodes()[node].name));
                self.counters.add_redirected_by(node);
            }
            Means::Destination => {
                let end = plan.softwire_end().filter(|_| cluster.takes_softwires());
                let end = end.ok_or(DropReason::RedirectRefused)?;
                redirect::readdress(packet, end)?;
                notes.add("", || format!("redirected by another node: to {end} again"));
            }
        }
        Ok(hops)
    }

    /// Takes a packet that another node has redirected, as if it came from a network. It is one of a service.
    #[cold]
    fn take_redirected(
        &mut self,
        (plan, standing): (&Plan, Standing<'_>),
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut dyn Outbox,
        notes: Notes<'_>,
        whose: &mut Whose,
    ) -> Result<Verdict, Refusal> {
        let verdict = if packet.bytes()[0] >> 4 == 4 {
            whose.side = Side::Outside;
            let parsed = parse_ipv4(packet)?;
            let (mut work, room) = self.work(plan, packet.lend(), now, outbox, notes);
            work.standing = Some(standing);
            receive_ipv4(plan, &parsed, Way::Network, whose, &mut work, room)?
        } else {
            let parsed = parse_ipv6(packet)?;
            let (mut work, room) = self.work(plan, packet.lend(), now, outbox, notes);
            work.standing = Some(standing);
            receive_ipv6(plan, &parsed, whose, &mut work, room)?
        };
        if verdict == Verdict::ToHost { Err(DropReason::RedirectRefused.into()) } else { Ok(verdict) }
    }

    #[inline]
    fn take_ipv4(
        &mut self,
        plan: &Plan,
        packet: &mut Packet<'_>,
        (way, now): Arrival,
        outbox: &mut dyn Outbox,
        notes: Notes<'_>,
        whose: &mut Whose,
    ) -> Result<Verdict, Refusal> {
        let parsed = parse_ipv4(packet);
        let parsed = parsed.as_ref().map_err(|reason| *reason)?;
        let (mut work, room) = self.work(plan, packet.lend(), now, outbox, notes);
        receive_ipv4(plan, parsed, way, whose, &mut work, room)
    }

    /// What services work with, and where fragments are put together for them.
    #[inline(always)]
    pub(crate) fn work<'a>(
        &'a mut self,
        plan: &'a Plan,
        packet: Packet<'a>,
        now: Now,
        outbox: &'a mut dyn Outbox,
        notes: Notes<'a>,
    ) -> (Work<'a>, &'a mut Room) {
        let work = Work {
            packet,
            outbox,
            number: 0,
            claim: Claim::Unknown,
            now,
            tables: &self.tables,
            times: &plan.times,
            own: &plan.own,
            pcp: &plan.pcp,
            standing: plan.cluster.as_deref().map(|cluster| Standing { cluster, hops: Hops::None }),
            fragments: &self.fragments,
            granting: Granting::Freely,
            worker: &mut self.worker,
            notes,
        };
        (work, &mut self.room)
    }

    /// Answers SYNs that were held long enough in vain (RFC 6146 section 3.5.2.2, RFC 5382 REQ-4).
    /// To be called about once a second.
    pub fn release_held(&mut self, plan: &Plan, now: Now, outbox: &mut dyn Outbox) {
        while let Some(syn) = self.worker.held.take_due(now) {
            let mut buffer = [0; HEADROOM + held::LONGEST];
            buffer[HEADROOM..HEADROOM + syn.bytes().len()].copy_from_slice(syn.bytes());
            if let Some(packet) = Packet::new(&mut buffer, HEADROOM, syn.bytes().len(), Offload::default()) {
                self.release(plan, &syn, packet, now, outbox);
            }
        }
    }

    fn release(&mut self, plan: &Plan, syn: &held::HeldSyn, mut packet: Packet<'_>, now: Now, outbox: &mut dyn Outbox) {
        let Some(service) = plan.service(syn.service) else { return };
        let Some(nat) = service.kind.nat() else { return };
        // What is said to the remote of a hairpinned SYN comes in again and finds the host.
        let hairpins = nat.pool.contains(syn.ends.remote.address);
        let mut returned = [0; HEADROOM + LONGEST_ANSWER];
        let mut length = 0;
        let mut keep = |error: &mut Packet<'_>| {
            if let Some(room) = returned.get_mut(HEADROOM..HEADROOM + error.len()) {
                room.copy_from_slice(error.bytes());
                length = error.len();
            }
        };
        let outlet: &mut dyn Outbox = if hairpins { &mut keep } else { &mut *outbox };
        let (mut work, _) = self.work(plan, packet.lend(), now, outlet, Notes(None));
        work.number = syn.service;
        // The inside opened meanwhile: the SYN has done its work and goes silently (RFC 5382
        // REQ-4).
        if nat.is_open(syn.ends, &mut work) {
            return;
        }
        let refusal = Refusal::with(syn.reason, IcmpAnswer::PortUnreachable);
        let verdict = service.kind.answer_held(refusal, &mut work);
        self.counters.count_late(syn.service, verdict.unwrap_or_else(|refusal| Verdict::Drop(refusal.reason)));
        if let Some(mut error) =
            Packet::new(&mut returned, HEADROOM, length, Offload::default()).filter(|p| !p.is_empty())
        {
            self.process(plan, &mut error, now, outbox);
        }
    }
}

/// Longest ICMP error about a SYN that was held: two headers more.
const LONGEST_ANSWER: usize = held::LONGEST + 64;

#[inline]
fn receive_ipv6(
    plan: &Plan,
    parsed: &Parsed<Ipv6Addr>,
    whose: &mut Whose,
    work: &mut Work<'_>,
    room: &mut Room,
) -> Result<Verdict, Refusal> {
    work.notes.add("", || describe("IPv6", parsed));
    let own = &plan.own;
    if pcp::has_ipv6(plan, parsed.destination) {
        return pcp::receive_ipv6(plan, parsed, work);
    }
    if own.answered_by == AnsweredBy::Gateway && own.ipv6 == Some(parsed.destination) {
        return echo::receive_ipv6(parsed, work).or_else(|refusal| answer_ipv6(own.ipv6, refusal, parsed, work));
    }
    let Some((number, service)) = plan.service_of_ipv6(parsed.destination, &mut work.claim) else {
        work.notes.add("", || format!("no service has {}: left to the host's routes", parsed.destination));
        return Ok(Verdict::ToHost);
    };
    work.notes.add("", || format!("{} belongs to service {}", parsed.destination, service.name));
    work.number = number;
    let shape = service.kind.shape();
    *whose = Whose { side: shape.ipv6, service: Some(number) };
    if plan.loops(service, parsed.source) {
        return Err(DropReason::SourceInPrefix.into());
    }
    reconcile_offload(&mut work.packet, parsed)?;
    if work.standing.is_some()
        && let Some(nat) = service.kind.nat()
    {
        if let Some(verdict) = serve_elsewhere_ipv6(plan, (service, nat), parsed, work)? {
            return Ok(verdict);
        }
        work.settle();
    }
    let from = if shape.ends_softwires { Some(parsed.destination) } else { own.ipv6 };
    if !parsed.is_piece() || !shape.gathers_ipv6 {
        return serve_ipv6(service, from, parsed, work);
    }
    let checked = if shape.ends_softwires { check_obstacle_at_end(parsed) } else { check_obstacle(parsed) };
    if let Err(refusal) = checked.and_then(|()| service.kind.admits(parsed)) {
        return answer_ipv6(from, refusal, parsed, work);
    }
    if let Some(other) = redirect::meeting_ipv6(parsed, work) {
        return redirect::send(other, parsed, work);
    }
    match work.fragments.accept_ipv6(&work.packet, parsed, work.now.0, room)? {
        Some((whole, parsed)) => serve_ipv6(service, from, &parsed, &mut work.on(whole)),
        None => Ok(Verdict::Hold),
    }
}

#[inline]
fn receive_ipv4(
    plan: &Plan,
    parsed: &Parsed<Ipv4Addr>,
    way: Way,
    whose: &mut Whose,
    work: &mut Work<'_>,
    room: &mut Room,
) -> Result<Verdict, Refusal> {
    work.notes.add("", || describe("IPv4", parsed));
    let own = &plan.own;
    if pcp::has_ipv4(plan, parsed.destination) {
        whose.side = Side::Inside;
        return pcp::receive_ipv4(plan, parsed, work);
    }
    if own.answered_by == AnsweredBy::Gateway && own.ipv4 == Some(parsed.destination) {
        return echo::receive_ipv4(parsed, work).or_else(|refusal| answer_ipv4(own.ipv4, refusal, parsed, work));
    }
    // What comes back through a row is for the one before, also an error from an address that hosts inside have as well.
    let comes_back = way == Way::Service && plan.rows.contain(parsed.destination);
    let by_source = if comes_back { None } else { plan.service_of_ipv4_source(parsed.source, parsed.destination) };
    let by_source = by_source.filter(|(_, service)| {
        parsed.payload != Payload::IcmpError || !is_about_sent(plan, service, parsed, &work.packet)
    });
    let (number, service) = if let Some(found) = by_source {
        work.notes.add("", || format!("{} is inside service {}", parsed.source, found.1.name));
        whose.side = Side::Inside;
        found
    } else if let Some(found) = plan.service_of_ipv4(parsed.destination, &mut work.claim) {
        work.notes.add("", || format!("{} belongs to service {}", parsed.destination, found.1.name));
        whose.side = found.1.kind.shape().ipv4;
        found
    } else {
        work.notes.add("", || format!("no service has {}: left to the host's routes", parsed.destination));
        return Ok(Verdict::ToHost);
    };
    work.number = number;
    whose.service = Some(number);
    reconcile_offload(&mut work.packet, parsed)?;
    if work.standing.is_some()
        && let Some(nat) = service.kind.nat()
    {
        if let Some(verdict) = serve_elsewhere_ipv4((service, nat), whose.side, parsed, work)? {
            return Ok(verdict);
        }
        work.settle();
    }
    let from = service.kind.icmp_source().or(own.ipv4);
    if !parsed.is_piece() || !service.kind.shape().gathers_ipv4 {
        return serve_ipv4(service, whose.side, from, parsed, work);
    }
    if let Some(other) = redirect::meeting_ipv4(parsed, work) {
        return redirect::send(other, parsed, work);
    }
    match work.fragments.accept_ipv4(&work.packet, parsed, None, work.now.0, room)? {
        Some((whole, parsed)) => serve_ipv4(service, whose.side, from, &parsed, &mut work.on(whole)),
        None => Ok(Verdict::Hold),
    }
}

/// True of an ICMP error about a packet that some service has sent out from the address that the error is for, and not
/// to a host inside `service`. Such an error comes from outside whatever address it has for its source: the host's own
/// kernel, which forwards what was sent out, speaks from any address of the host, and that may be one of `service`'s
/// inside.
#[cold]
fn is_about_sent(plan: &Plan, service: &Service, parsed: &Parsed<Ipv4Addr>, packet: &Packet<'_>) -> bool {
    parsed.embedded(packet).is_ok_and(|about| {
        about.source == parsed.destination
            && !service.kind.claims_source(about.destination, about.source)
            && plan.service_of_ipv4(about.source, &mut Claim::Unknown).is_some()
    })
}

/// Sends a packet to the node of the cluster that has its subscriber, if that is another. Fragments, too: all of a
/// datagram have the subscriber in common, so they meet there.
#[inline(never)]
fn serve_elsewhere_ipv6(
    plan: &Plan,
    (service, nat): (&Service, &Nat),
    parsed: &Parsed<Ipv6Addr>,
    work: &mut Work<'_>,
) -> Result<Option<Verdict>, Refusal> {
    let Some(host) = service.kind.host_of_ipv6(parsed, &work.packet) else { return Ok(None) };
    let Some(other) = slice::node_of_host(nat, host, slice::flow_ipv6(parsed), work)? else { return Ok(None) };
    let takes_softwires = work.standing.is_some_and(|standing| standing.cluster.takes_softwires());
    if takes_softwires && plan.softwire_end() == Some(parsed.destination) {
        return redirect::send_softwire(other, work).map(Some);
    }
    redirect::send(other, parsed, work).map(Some)
}

/// As [`serve_elsewhere_ipv6`]; from outside by the address that it goes to.
#[inline(never)]
fn serve_elsewhere_ipv4(
    (service, nat): (&Service, &Nat),
    side: Side,
    parsed: &Parsed<Ipv4Addr>,
    work: &mut Work<'_>,
) -> Result<Option<Verdict>, Refusal> {
    let other = match side {
        Side::Outside => slice::node_of_address(nat, parsed, work)?,
        Side::Inside => match service.kind.host_of_ipv4(parsed, &work.packet) {
            Some(host) => slice::node_of_host(nat, host, slice::flow_ipv4(parsed), work)?,
            None => None,
        },
    };
    other.map(|other| redirect::send(other, parsed, work)).transpose()
}

#[inline]
fn serve_ipv6(
    service: &Service,
    from: Option<Ipv6Addr>,
    parsed: &Parsed<Ipv6Addr>,
    work: &mut Work<'_>,
) -> Result<Verdict, Refusal> {
    service.kind.serve_ipv6(parsed, work).or_else(|refusal| answer_ipv6(from, refusal, parsed, work))
}

#[inline]
fn serve_ipv4(
    service: &Service,
    side: Side,
    from: Option<Ipv4Addr>,
    parsed: &Parsed<Ipv4Addr>,
    work: &mut Work<'_>,
) -> Result<Verdict, Refusal> {
    if service.kind.nat().is_some_and(|nat| nat.leaves_to_host(parsed, work)) {
        return work.leave_to_host(parsed.destination);
    }
    service.kind.serve_ipv4(side, parsed, work).or_else(|refusal| answer_ipv4(from, refusal, parsed, work))
}
