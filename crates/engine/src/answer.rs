//! ICMP errors to the senders of refused packets, as far as policy and rates allow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::mechanism::reply::{may_answer_ipv4, may_answer_ipv6, reply_ipv4, reply_ipv6};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::own_addresses::{OwnAddresses, Refusals};
use crate::parse::Parsed;
use crate::verdict::Verdict;
use crate::work::Work;

/// Answers the IPv6 packet at hand, which was refused, from the address `from`.
///
/// # Errors
/// The reason, if no error is sent.
pub(crate) fn answer_ipv6(
    from: Option<Ipv6Addr>,
    refusal: Refusal,
    parsed: &Parsed<Ipv6Addr>,
    work: &mut Work<'_>,
) -> Result<Verdict, Refusal> {
    note(refusal, parsed, work);
    if let (Some(answer), Some(from)) = (refusal.answer, from)
        && is_wanted(answer, work.own)
        && may_answer_ipv6(&work.packet, parsed, answer)
        && work.may_send_error(answer, parsed.source)
    {
        reply_ipv6(&mut work.packet, parsed, from, answer)?;
        work.notes.add("RFC 4443 section 2.4", || format!("ICMP error to its sender: {answer:?}, from {from}"));
        work.outbox.send(&mut work.packet)?;
        return Ok(Verdict::Reply(refusal.reason));
    }
    Err(refusal.silence())
}

/// Answers the IPv4 packet at hand, which was refused, from the address `from`.
///
/// # Errors
/// The reason, if no error is sent.
pub(crate) fn answer_ipv4(
    from: Option<Ipv4Addr>,
    refusal: Refusal,
    parsed: &Parsed<Ipv4Addr>,
    work: &mut Work<'_>,
) -> Result<Verdict, Refusal> {
    note(refusal, parsed, work);
    if let (Some(answer), Some(from)) = (refusal.answer, from)
        && is_wanted(answer, work.own)
        && may_answer_ipv4(parsed)
        && work.may_send_error(answer, parsed.source)
    {
        reply_ipv4(&mut work.packet, parsed, from, answer, &mut work.worker.identifications)?;
        work.notes.add("RFC 1812 section 4.3", || format!("ICMP error to its sender: {answer:?}, from {from}"));
        work.outbox.send(&mut work.packet)?;
        return Ok(Verdict::Reply(refusal.reason));
    }
    Err(refusal.silence())
}

/// Whether the operator wants this error to be sent.
fn is_wanted(answer: IcmpAnswer, own: &OwnAddresses) -> bool {
    own.errors.refusals == Refusals::Told || !is_policy(answer)
}

fn is_policy(answer: IcmpAnswer) -> bool {
    matches!(answer, IcmpAnswer::Prohibited | IcmpAnswer::SourcePolicy)
}

/// What policy refuses is logged as well, where it is told at all.
fn note<A: Copy + Into<IpAddr>>(refusal: Refusal, parsed: &Parsed<A>, work: &mut Work<'_>) {
    if work.own.errors.refusals == Refusals::Told && refusal.answer.is_some_and(is_policy) {
        work.worker.refused.note(refusal.reason, parsed);
    }
}
