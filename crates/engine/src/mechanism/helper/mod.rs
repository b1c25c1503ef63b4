//! Helpers: what the ends of a connection say of addresses and ports, rewritten on its way. Off unless a service is told to.
//!
//! ```text
//! a segment of a control connection
//!   segment   its numbers and its text in the packet's bytes, with the checksum
//!   stream    by how much its numbers differ for the receiver, and what was rewritten last
//!   converse  its lines, one by one: what begins here, what was seen before, what is only a part
//!   ftp       what a line becomes (RFC 959, RFC 2428, RFC 6384)
//! ```
//!
//! Nothing is held back and nothing is reassembled: what is rewritten stands whole in one segment, as every client and
//! server sends it. What does not is left as it was, and counted. The state is a
//! [`Conversation`](tombolo_tables::conversation::Conversation); who asks is `napt/helped`.

pub(super) mod converse;
mod ftp;
mod segment;
mod stream;
mod text;

pub(super) use ftp::{CONTROL_PORT, Client};

/// What a service helps with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Helpers {
    /// FTP: control connections to port 21 of a remote.
    pub ftp: bool,
}

impl Helpers {
    /// Their names in the configuration, each with what it switches on.
    pub const NAMES: [(&'static str, Self); 1] = [("ftp", Self { ftp: true })];

    /// Both of them.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { ftp: self.ftp || other.ftp }
    }

    /// The port of remotes whose TCP is left to the engine, if there is any.
    #[must_use]
    pub const fn control_port(self) -> Option<u16> {
        if self.ftp { Some(CONTROL_PORT.0) } else { None }
    }

    /// The names of those that are on.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(_, one)| one.and(self) == self).map(|(name, _)| name)
    }
}
