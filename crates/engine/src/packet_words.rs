//! A packet in words, for whoever asks why it went where it went.

use crate::parse::{Parsed, Payload};

/// The packet, of the family named, in words.
pub(crate) fn describe<A: std::fmt::Display>(family: &str, parsed: &Parsed<A>) -> String {
    let Parsed { source, destination, length, payload, hop_limit, .. } = parsed;
    let ports = match payload {
        Payload::EchoRequest | Payload::EchoReply => format!(" identifier {}", parsed.source_port.0),
        payload if payload.has_ports() => {
            format!(" port {} to {}", parsed.source_port.0, parsed.destination_port.0)
        }
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
