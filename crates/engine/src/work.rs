//! What a service works with: the packet at hand, and what the worker has for it.

use std::net::Ipv4Addr;

use tombolo_tables::Tables;

use crate::cluster::{Granting, Hops, Standing};
use crate::mapping::stateless::Claim;
use crate::mechanism::error_limit::{ErrorLimit, ErrorLimits, Recipient};
use crate::mechanism::fragments::Fragments;
use crate::mechanism::identification::IdentificationGenerator;
use crate::mechanism::napt::admissions::Admissions;
use crate::mechanism::napt::exhausted::Exhausted;
use crate::mechanism::napt::held::HeldSyns;
use crate::mechanism::napt::times::Times;
use crate::mechanism::reassembly::Room;
use crate::mechanism::translate::Translated;
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::now::Now;
use crate::own_addresses::OwnAddresses;
use crate::packet::{Outbox, Packet};
use crate::pcp_addresses::PcpAddresses;
use crate::random::Random;
use crate::refused::RefusedLog;
use crate::trace::Notes;
use crate::verdict::Verdict;

/// Echo requests to tunnel addresses that a worker answers in a second, or at once. No RFC limits
/// them; more than any monitoring sends would only serve whoever has the gateway work for a flood.
pub(crate) const ECHO_REPLIES: u32 = 1000;

/// One packet on its way through a service.
pub(crate) struct Work<'a> {
    /// The packet, changed in place.
    pub(crate) packet: Packet<'a>,
    /// Where packets leave.
    pub(crate) outbox: &'a mut dyn Outbox,
    /// Number of the service in the plan.
    pub(crate) number: u8,
    /// What is known of the packet's destination.
    pub(crate) claim: Claim,
    /// When the packet came.
    pub(crate) now: Now,
    pub(crate) tables: &'a Tables,
    pub(crate) times: &'a Times,
    pub(crate) own: &'a OwnAddresses,
    pub(crate) pcp: &'a PcpAddresses,
    /// None where there is no cluster.
    pub(crate) standing: Option<Standing<'a>>,
    /// Those that wait, of all workers.
    pub(crate) fragments: &'a Fragments,
    /// What may be granted of the packet's slice, while this node may grant at all.
    pub(crate) granting: Granting,
    pub(crate) worker: &'a mut Worker,
    pub(crate) notes: Notes<'a>,
}

/// What a worker keeps from packet to packet.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Source of ports and identifications that cannot be guessed.
    pub(crate) random: Random,
    pub(crate) identifications: IdentificationGenerator,
    pub(crate) exhausted: Exhausted,
    /// By number of the service.
    pub(crate) admissions: Vec<Admissions>,
    /// SYNs from outside that wait for the inside to open.
    pub(crate) held: HeldSyns,
    pub(crate) error_limits: ErrorLimits,
    /// Of echo replies from tunnel addresses. They have a bucket of their own: a flood of pings
    /// silences no errors, and who wants no errors is still there to be pinged (RFC 4443 section
    /// 4.2).
    pub(crate) echo_limit: ErrorLimit,
    /// What is to be logged.
    pub(crate) refused: RefusedLog,
    /// For a datagram that came out of a softwire in fragments. Absent while it is worked on.
    pub(crate) inner: Room,
}

impl Work<'_> {
    /// The same work on another packet: one that was reassembled from the one at hand.
    pub(crate) fn on<'b>(&'b mut self, packet: Packet<'b>) -> Work<'b> {
        Work {
            packet,
            outbox: &mut *self.outbox,
            number: self.number,
            claim: self.claim,
            now: self.now,
            tables: self.tables,
            times: self.times,
            own: self.own,
            pcp: self.pcp,
            standing: self.standing,
            fragments: self.fragments,
            granting: self.granting,
            worker: &mut *self.worker,
            notes: self.notes.lend(),
        }
    }

    /// This node of the cluster serves the packet at hand, and if it is a fragment, all of its datagram.
    pub(crate) fn settle(&mut self) {
        self.standing = self.standing.map(|standing| Standing { hops: Hops::Two, ..standing });
    }

    /// Whether one more ICMP error may be sent now, by the rate that the plan sets.
    pub(crate) fn may_send_error(&mut self, answer: IcmpAnswer, to: impl Into<Recipient>) -> bool {
        let policy = self.own.errors;
        self.worker.error_limits.allow(answer, to.into(), policy.rate, policy.burst, self.now.0)
    }

    /// Whether one more echo request to a tunnel address may be answered now.
    pub(crate) fn may_answer_echo(&mut self) -> bool {
        self.worker.echo_limit.allow(ECHO_REPLIES, ECHO_REPLIES, self.now.0)
    }

    /// Sends the packet on, in fragments if it has to be.
    ///
    /// # Errors
    /// As [`Translated::send`].
    #[inline]
    pub(crate) fn forward(&mut self, translated: Translated) -> Result<Verdict, Refusal> {
        translated.send(&mut self.packet, self.outbox)?;
        Ok(Verdict::Forward)
    }

    /// Gives the packet back, as it came, to the host, which has the address `destination` as well.
    ///
    /// # Errors
    /// As [`Outbox::send`].
    #[cold]
    pub(crate) fn leave_to_host(&mut self, destination: Ipv4Addr) -> Result<Verdict, Refusal> {
        self.notes
            .add("", || format!("{destination} is the host's address, and nobody inside has the port: the host's"));
        self.outbox.send(&mut self.packet)?;
        Ok(Verdict::ToHost)
    }

    /// Sends the packet on as it is.
    ///
    /// # Errors
    /// As [`Outbox::send`].
    #[inline]
    pub(crate) fn forward_whole(&mut self) -> Result<Verdict, Refusal> {
        self.outbox.send(&mut self.packet)?;
        Ok(Verdict::Forward)
    }
}
