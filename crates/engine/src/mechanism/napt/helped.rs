//! Connections in which a helper rewrites what the ends say: which they are, and the endpoints that it writes.
//!
//! The packets of such a connection take the same walk as all others; what is rewritten is done before the packet gets
//! its addresses. A port that the inside announces gets a binding by the same rules, and within the same limits, as one
//! that it sends from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_tables::conversation::{Conversation, Conversations, Ends};
use tombolo_wire::Port;

use super::host::Host;
use super::nat::Nat;
use crate::endpoint::Endpoint;
use crate::mapping::pool::PortSpace;
use crate::mechanism::helper::converse::{Conversed, begun, converse, has_ended, opens};
use crate::mechanism::helper::{CONTROL_PORT, Client};
use crate::parse::{Parsed, Payload};
use crate::side::Side;
use crate::verdict::DropReason;
use crate::work::Work;

/// Where an FTP server opens the connections of the data from (RFC 959 section 3.2).
const DATA_PORT: Port = Port(20);

impl Nat {
    /// Helps a packet from `host` to `remote`, which has its binding. What it says of itself now, if that is not what it
    /// said.
    ///
    /// # Errors
    /// [`DropReason::RewritingUnacknowledged`], [`DropReason::NoHeadroom`].
    #[inline]
    pub(crate) fn help_out<A: Copy>(
        &self,
        parsed: &Parsed<A>,
        host: Host,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Option<Parsed<A>>, DropReason> {
        if !self.helps(parsed, parsed.destination_port) {
            return Ok(None);
        }
        let inside = host.key(work.number, PortSpace::Tcp, parsed.source_port);
        self.help(Side::Inside, parsed, Ends { inside, remote: remote.octets() }, work)
    }

    /// Helps a packet from `remote` to `inside`.
    ///
    /// # Errors
    /// As [`help_out`](Self::help_out).
    #[inline]
    pub(crate) fn help_in<A: Copy>(
        &self,
        parsed: &Parsed<A>,
        inside: &InsideKey,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Option<Parsed<A>>, DropReason> {
        if !self.helps(parsed, parsed.source_port) {
            return Ok(None);
        }
        self.help(Side::Outside, parsed, Ends { inside: *inside, remote: remote.octets() }, work)
    }

    #[inline]
    fn helps<A>(&self, parsed: &Parsed<A>, remote_port: Port) -> bool {
        self.policy.helpers.ftp && parsed.payload == Payload::Tcp && remote_port == CONTROL_PORT
    }

    #[cold]
    fn help<A: Copy>(
        &self,
        side: Side,
        parsed: &Parsed<A>,
        ends: Ends,
        work: &mut Work<'_>,
    ) -> Result<Option<Parsed<A>>, DropReason> {
        let (conversations, now) = (&work.tables.conversations, work.now.tick());
        if side == Side::Inside
            && let Some(sequence) = opens(&work.packet, parsed)
        {
            let established = work.times.established();
            let is_over = |found: &Conversation, idle| {
                idle >= established || has_ended(found) && idle >= Conversations::ended_after()
            };
            if !conversations.begin(&Conversation { ends, streams: begun(sequence) }, now, is_over) {
                conversations.count_unchanged();
            }
            return Ok(None);
        }
        let client = client_of(&ends);
        let tables = work.tables;
        let mut packet = std::mem::take(&mut work.packet);
        let conversed = conversations.with(&ends, now, |conversation| {
            let reach = |port| self.reach(&ends, port, work);
            converse(&mut packet, parsed, side, &client, conversation, reach)
        });
        work.packet = packet;
        let Conversed { length, is_rewritten, is_unhelped } = conversed.transpose()?.unwrap_or_default();
        if is_unhelped {
            tables.conversations.count_unchanged();
        }
        if is_rewritten {
            work.notes.add("RFC 6384 section 4", || {
                format!("a line about addresses becomes another one; the packet has {} bytes", work.packet.len())
            });
        }
        Ok(length.map(|length| Parsed { length, ..*parsed }))
    }

    /// The outside endpoint at which the remote reaches `port` of the same host.
    fn reach(&self, ends: &Ends, port: Port, work: &mut Work<'_>) -> Option<Endpoint> {
        let inside = InsideKey { port: port.0.to_be_bytes(), ..ends.inside };
        let remote = Endpoint { address: ends.remote.into(), port: DATA_PORT };
        self.state(work).expect(&inside, remote).ok()
    }
}

fn client_of(Ends { inside, remote }: &Ends) -> Client {
    let (ipv6, ipv4) = (Ipv6Addr::from(inside.ipv6), Ipv4Addr::from(inside.ipv4));
    let host = if ipv4.is_unspecified() { IpAddr::V6(ipv6) } else { IpAddr::V4(ipv4) };
    Client { host, server: Ipv4Addr::from(*remote) }
}
