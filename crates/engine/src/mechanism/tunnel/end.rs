//! What every end of a softwire does: it sorts what arrives at a tunnel address, reassembles what
//! is inside, asks which port tells whose a packet is, sends, and answers hosts at the far end.
//!
//! Read first: RFC 2473 sections 3 and 8, RFC 6333 section 5, RFC 7596 sections 6.2 and 8.

use std::net::{Ipv4Addr, Ipv6Addr};

use rand_core::Rng;
use tombolo_wire::ipv6;

use super::softwire::{Softwire, SoftwireSettings, decapsulate, encapsulate, put_back, small_path};
use crate::mechanism::echo::{answer_echo_ipv4, answer_echo_ipv6};
use crate::mechanism::fragment::send_fragments;
use crate::mechanism::redirect;
use crate::mechanism::reply::{may_answer_ipv4, reply_ipv4};
use crate::mechanism::screen::{is_illegal_destination_ipv4, is_illegal_source_ipv4};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload, parse_ipv4};
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// An end of one softwire or of many, as what comes to its tunnel address meets it.
pub(crate) trait SoftwireEnd {
    /// The packet at hand came out of a softwire.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    fn out_of_softwire(&self, came: &Emerged<'_>, work: &mut Work<'_>) -> Result<Verdict, Refusal>;

    /// The packet at hand is an ICMPv6 error about a packet that this end sent through a softwire:
    /// it goes on to whoever sent what was inside.
    ///
    /// # Errors
    /// The reason why it does not.
    fn relay(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal>;
}

/// An IPv4 packet that came out of a softwire. It may be a fragment.
#[derive(Debug)]
pub(crate) struct Emerged<'p> {
    /// The packet.
    pub(crate) inner: Parsed<Ipv4Addr>,
    /// What it was in.
    pub(crate) outer: &'p Parsed<Ipv6Addr>,
}

/// Sorts what comes to a tunnel address: errors, packets, and echo requests, which are answered as
/// any interface does. `check_remote` says whether its sender has a softwire to `end`, where that
/// shows before the packet inside is looked at.
///
/// # Errors
/// [`DropReason::IcmpUntranslatable`] for other messages of ICMPv6, [`DropReason::RateLimited`],
/// and what `check_remote` and `end` refuse.
#[inline]
pub(crate) fn receive(
    end: &impl SoftwireEnd,
    settings: &SoftwireSettings,
    check_remote: impl FnOnce(Ipv6Addr) -> Result<(), Refusal>,
    outer: &Parsed<Ipv6Addr>,
    work: &mut Work<'_>,
) -> Result<Verdict, Refusal> {
    match outer.payload {
        Payload::IcmpError => {
            learn_path(settings, check_remote, outer, work);
            return end.relay(outer, work);
        }
        Payload::EchoRequest => return answer_outer_echo(outer, settings, work),
        Payload::EchoReply | Payload::IcmpOther => return Err(DropReason::IcmpUntranslatable.into()),
        _ => {}
    }
    check_remote(outer.source)?;
    let inner = decapsulate(&mut work.packet, outer, settings)?;
    end.out_of_softwire(&Emerged { inner, outer }, work)
}

/// The one remote that an end with a single softwire has.
///
/// # Errors
/// [`DropReason::UnknownSoftwire`] if `remote` is another.
pub(crate) fn check_only_remote(ends: Softwire, remote: Ipv6Addr) -> Result<(), Refusal> {
    if remote == ends.remote && !ends.awaits_far_end() { Ok(()) } else { Err(DropReason::UnknownSoftwire.into()) }
}

/// Asks whether there is another end to send to.
///
/// # Errors
/// [`DropReason::FarEndUnknown`], with "host unreachable", until its name has an address.
#[inline]
pub(crate) fn check_far_end(ends: Softwire) -> Result<(), Refusal> {
    if ends.awaits_far_end() {
        return Err(Refusal::with(DropReason::FarEndUnknown, IcmpAnswer::HostUnreachable));
    }
    Ok(())
}

/// Remembers the path to a remote, if a router says that it is smaller than the settings do: what may be
/// fragmented is cut to it from now on, and what may not be is refused here (RFC 2473 section 6.7).
#[cold]
fn learn_path(
    settings: &SoftwireSettings,
    check_remote: impl FnOnce(Ipv6Addr) -> Result<(), Refusal>,
    outer: &Parsed<Ipv6Addr>,
    work: &mut Work<'_>,
) {
    let Some((remote, mtu)) = small_path(&mut work.packet, outer) else { return };
    if mtu < settings.path_mtu() && check_remote(remote).is_ok() {
        work.tables.paths.learn(remote.octets(), mtu, work.now.tick());
        work.notes.add("RFC 2473 section 6.7", || format!("the path to {remote} takes {mtu} bytes, a router says"));
    }
}

fn answer_outer_echo(
    outer: &Parsed<Ipv6Addr>,
    settings: &SoftwireSettings,
    work: &mut Work<'_>,
) -> Result<Verdict, Refusal> {
    if !work.may_answer_echo() {
        return Err(DropReason::RateLimited.into());
    }
    answer_echo_ipv6(&mut work.packet, outer)?;
    let identification = outer.fragment.map_or(0, |fragment| fragment.identification);
    let path = settings.over(work.tables.paths.of(outer.source.octets(), work.now.tick()));
    send_fragments(&mut work.packet, path.path_mtu(), identification, work.outbox)?;
    Ok(Verdict::EchoReply)
}

/// Hands the packet to `then`, reassembled first if it is a fragment. If `then` refuses it with an
/// ICMP error, the error is for the end of the softwire, and the packet is made ready to be quoted
/// to it; a reassembled packet cannot be, so then there is none.
pub(crate) fn with_whole(
    came: &Emerged<'_>,
    work: &mut Work<'_>,
    then: impl FnOnce(&Parsed<Ipv4Addr>, &mut Work<'_>) -> Result<Verdict, Refusal>,
) -> Result<Verdict, Refusal> {
    let Emerged { inner, outer } = came;
    if !inner.is_piece() {
        return then(inner, work).or_else(|refusal| {
            if refusal.answer.is_some() {
                put_back(&mut work.packet, outer)?;
            }
            Err(refusal)
        });
    }
    if let Some(other) = redirect::meeting_inner(inner, outer.source, work) {
        put_back(&mut work.packet, outer)?;
        return redirect::send(other, outer, work);
    }
    // Taken out for as long as the datagram in it is worked on.
    let mut room = std::mem::take(&mut work.worker.inner);
    let softwire = Some(outer.source);
    let result = match work.fragments.accept_ipv4(&work.packet, inner, softwire, work.now.0, &mut room) {
        Ok(None) => Ok(Verdict::Hold),
        Ok(Some((whole, parsed))) => then(&parsed, &mut work.on(whole)).map_err(Refusal::silence),
        Err(reason) => Err(reason.into()),
    };
    work.worker.inner = room;
    result
}

/// What every router asks of a packet that it forwards.
///
/// # Errors
/// [`Refusal`] for illegal addresses and a TTL that runs out here.
#[inline]
pub(crate) fn screen(parsed: &Parsed<Ipv4Addr>) -> Result<(), Refusal> {
    if is_illegal_source_ipv4(parsed.source) {
        return Err(DropReason::IllegalSource.into());
    }
    if is_illegal_destination_ipv4(parsed.destination) {
        return Err(DropReason::IllegalDestination.into());
    }
    if parsed.hop_limit <= 1 {
        return Err(Refusal::with(DropReason::HopLimit, IcmpAnswer::TimeExceeded));
    }
    Ok(())
}

/// Asks of a packet that came out of a softwire whether it may go on outside. Besides what every
/// router asks: 192.0.0.0/29 is for the ends of softwires and for hosts behind them, and nowhere on
/// the way (RFC 6333 section 5.7, RFC 7335 section 4).
///
/// # Errors
/// As [`screen`], and [`DropReason::IllegalDestination`] with "host unreachable".
#[inline]
pub(crate) fn screen_outbound(parsed: &Parsed<Ipv4Addr>) -> Result<(), Refusal> {
    screen(parsed)?;
    if parsed.destination.to_bits() & !0b111 == SERVICE_CONTINUITY.to_bits() {
        return Err(Refusal::with(DropReason::IllegalDestination, IcmpAnswer::HostUnreachable));
    }
    Ok(())
}

/// An address and the port that says whose it is; no port for protocols that have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: Option<u16>,
}

/// Who sends the packet. An error is sent by whom the packet in it was for (RFC 7596 leaves that
/// open).
///
/// # Errors
/// [`DropReason::IcmpErrorUnusable`] for an error about somebody else's packet,
/// [`DropReason::IcmpUntranslatable`] for ICMP that is neither echo nor error (RFC 7596 section
/// 8.1).
pub(crate) fn sender(packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<Owned, DropReason> {
    match parsed.payload {
        Payload::IcmpError => {
            let about = parsed.embedded(packet)?;
            Ok(Owned { address: about.destination, port: port_of(&about, about.destination_port.0)? })
        }
        _ => Ok(Owned { address: parsed.source, port: port_of(parsed, parsed.source_port.0)? }),
    }
}

/// Whom the packet is for. An error is for the sender of the packet in it (RFC 7596 section 8.1).
///
/// # Errors
/// As [`sender`]; [`DropReason::IcmpErrorUnusable`] also if the error goes to another address than
/// its packet came from.
pub(crate) fn receiver(packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<Owned, DropReason> {
    match parsed.payload {
        Payload::IcmpError => {
            let about = parsed.embedded(packet)?;
            if about.source != parsed.destination {
                return Err(DropReason::IcmpErrorUnusable);
            }
            Ok(Owned { address: about.source, port: port_of(&about, about.source_port.0)? })
        }
        _ => Ok(Owned { address: parsed.destination, port: port_of(parsed, parsed.destination_port.0)? }),
    }
}

fn port_of(parsed: &Parsed<Ipv4Addr>, port: u16) -> Result<Option<u16>, DropReason> {
    match parsed.payload {
        payload if payload.has_ports() => Ok(Some(port)),
        Payload::IcmpError => Err(DropReason::IcmpErrorUnusable),
        Payload::IcmpOther => Err(DropReason::IcmpUntranslatable),
        _ => Ok(None),
    }
}

/// A softwire, and how packets enter it here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entrance<'s> {
    /// The two ends.
    pub(crate) ends: Softwire,
    /// How packets cross.
    pub(crate) settings: &'s SoftwireSettings,
}

impl Entrance<'_> {
    /// Sends the packet at hand through the softwire.
    ///
    /// # Errors
    /// As [`encapsulate`].
    #[inline]
    pub(crate) fn send(self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let Softwire { local, remote } = self.ends;
        work.notes.add("RFC 2473 section 3.1", || format!("into the softwire from {local} to {remote}"));
        let identification = work.worker.random.next_u32();
        // What must fit was asked about, or the path's routers will say so.
        let settings = if self.settings.must_fit(parsed) { *self.settings } else { self.settings(work) };
        encapsulate(&mut work.packet, parsed, self.ends, &settings, identification, work.outbox)?;
        Ok(Verdict::Forward)
    }

    /// As [`SoftwireSettings::check_size`], for the path as it is known.
    ///
    /// # Errors
    /// [`Refusal`]: too big with DF set.
    #[inline]
    pub(crate) fn check_size(self, parsed: &Parsed<Ipv4Addr>, work: &Work<'_>) -> Result<(), Refusal> {
        self.settings(work).check_size(&work.packet, parsed)
    }

    /// As [`SoftwireSettings::limit`], for the path as it is known.
    #[inline]
    pub(crate) fn limit(self, parsed: &Parsed<Ipv4Addr>, work: &Work<'_>) -> u32 {
        self.settings(work).limit(parsed)
    }

    /// How packets cross, by what is known of the path. What fits every path is not asked about.
    #[inline]
    fn settings(self, work: &Work<'_>) -> SoftwireSettings {
        if work.packet.len() + ipv6::HEADER_LENGTH <= usize::from(ipv6::MINIMUM_MTU) {
            return *self.settings;
        }
        self.settings.over(work.tables.paths.of(self.ends.remote.octets(), work.now.tick()))
    }

    /// Answers the packet at hand, which came out of the softwire and is for this end itself, as a
    /// host would: an echo request through the softwire.
    ///
    /// # Errors
    /// [`Refusal`] of everything but whole echo requests, [`DropReason::RateLimited`].
    pub(crate) fn answer_echo(self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        if parsed.payload == Payload::EchoRequest && !work.may_answer_echo() {
            return Err(DropReason::RateLimited.into());
        }
        answer_echo_ipv4(&mut work.packet, parsed)?;
        let reply = parse_ipv4(&mut work.packet)?;
        self.send(&reply, work)?;
        Ok(Verdict::EchoReply)
    }

    /// Answers the packet at hand, which came out of the softwire, with the ICMP error that
    /// `refusal` asks for, from the address `from`, through the softwire. The packet must be as it
    /// came out of it. Without `from` nothing is sent.
    ///
    /// # Errors
    /// The reason, if no error is sent.
    pub(crate) fn answer(
        self,
        refusal: Refusal,
        parsed: &Parsed<Ipv4Addr>,
        from: Option<Ipv4Addr>,
        work: &mut Work<'_>,
    ) -> Result<Verdict, Refusal> {
        let (Some(answer), Some(from)) = (refusal.answer, from) else { return Err(refusal.silence()) };
        if !may_answer_ipv4(parsed) || !work.may_send_error(answer, parsed.source) {
            return Err(refusal.silence());
        }
        reply_ipv4(&mut work.packet, parsed, from, answer, &mut work.worker.identifications)?;
        work.notes.add("RFC 1812 section 4.3", || format!("ICMP error to its sender: {answer:?}, from {from}"));
        let error = parse_ipv4(&mut work.packet)?;
        self.send(&error, work)?;
        Ok(Verdict::Reply(refusal.reason))
    }
}

/// The address to speak from inside a softwire that has no other: 192.0.0.1 for the provider's end,
/// 192.0.0.2 for the customer's (RFC 6333 section 5.7).
pub(crate) const AFTR_IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);

/// The IPv4 Service Continuity Prefix, a /29 (RFC 7335).
const SERVICE_CONTINUITY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 0);
