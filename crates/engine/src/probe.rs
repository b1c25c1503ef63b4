//! Asks a host whether a connection that has been silent for too long is still there.
//!
//! Read first: RFC 6146 section 3.5.2.2, ESTABLISHED, on the timeout: a segment with the ACK flag,
//! both numbers zero and no data. A host that has the connection answers what is out of its window
//! with an ACK (RFC 9293 section 3.10.7.4), which makes the session established again; one that
//! does not have it answers with RST, and the session goes when the transitory time is over.
//!
//! The host inside is asked: its answer crosses the gateway wherever the remote is.

use tombolo_tables::session::Session;
use tombolo_wire::{Ipv4Header, Protocol, TcpFlags, ipv4, tcp, write_u16};

use crate::engine::Engine;
use crate::now::Now;
use crate::packet::{HEADROOM, Offload, Outbox, Packet};
use crate::parse::parse_ipv4;
use crate::plan::Plan;
use crate::trace::Notes;

const LENGTH: usize = ipv4::HEADER_LENGTH + tcp::HEADER_LENGTH;
/// One more than what the host gets: the gateway takes one off.
const TTL: u8 = 65;

impl Engine {
    /// Sends the probe of a session that the sweep has found silent; false if its binding is gone, or
    /// is none of TCP: other protocols have nothing to ask with.
    pub fn probe(&mut self, plan: &Plan, session: &Session, now: Now, outbox: &mut dyn Outbox) -> bool {
        let Some((binding, _)) = self.tables.bindings.read(session.key.binding) else { return false };
        if binding.inside.protocol != Protocol::TCP.0 {
            return false;
        }
        let mut buffer = [0; HEADROOM + LENGTH];
        let segment = &mut buffer[HEADROOM..];
        let ack = &mut segment[ipv4::HEADER_LENGTH..];
        ack[..2].copy_from_slice(&session.key.remote_port);
        ack[2..4].copy_from_slice(&binding.outside_port);
        // Five words of header.
        ack[tcp::DATA_OFFSET] = 5 << 4;
        ack[tcp::FLAGS] = TcpFlags::ACK.0;
        let (source, destination) = (session.key.remote_ipv4.into(), binding.outside_ipv4.into());
        let checksum = ipv4::transport_checksum(source, destination, Protocol::TCP, ack);
        write_u16(ack, tcp::CHECKSUM, checksum);
        let header = Ipv4Header {
            tos: 0,
            total_length: 40,
            identification: 0,
            fragment_word: ipv4::DF,
            ttl: TTL,
            protocol: Protocol::TCP,
            source,
            destination,
        };
        header.emit(segment);
        let Some(mut packet) = Packet::new(&mut buffer, HEADROOM, LENGTH, Offload::default()) else { return false };
        let Ok(parsed) = parse_ipv4(&mut packet) else { return false };
        let Some(service) = plan.service(binding.inside.service) else { return false };
        let (mut work, _) = self.work(plan, packet, now, outbox, Notes(None));
        work.number = binding.inside.service;
        let delivered = service.kind.deliver(&parsed, &binding.inside, &mut work);
        delivered.inspect_err(|lost| self.counters().add(lost.reason, 1)).is_ok()
    }
}
