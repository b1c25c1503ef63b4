//! The server of PCP (RFC 6887): a host inside asks for a port outside, and for how long.
//!
//! What was asked for becomes a binding with a lease (`napt/lease.rs`, [`tombolo_tables::lease`]): from then
//! on it is a binding as any other. Here is what stands around that: `respond` says what a request gets,
//! `datagram` takes it out of its packet and puts the response into one.

mod datagram;
mod respond;

pub(crate) use datagram::{LONGEST_DATAGRAM, is_request, respond_ipv4, respond_ipv6};
pub(crate) use respond::Client;

/// What hosts inside may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcpPolicy {
    /// Mappings that a subscriber may have at a time, of both kinds.
    pub mappings: u32,
    /// The shortest time that one is given for, in seconds.
    pub shortest: u32,
    /// The longest one.
    pub longest: u32,
}

impl Default for PcpPolicy {
    fn default() -> Self {
        Self { mappings: 32, shortest: 120, longest: 86_400 }
    }
}
