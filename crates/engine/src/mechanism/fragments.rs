//! Fragments that wait for the others, whichever workers they come by.
//!
//! The kernel spreads packets over the queues of a TUN device by a hash of their addresses, and moves flows to the
//! queue by which their other direction was sent; what another node of a cluster has redirected has other addresses
//! altogether. So the pieces of one datagram may come by several queues, and wait in one place: in one of some
//! [`Reassembly`]s, by a keyed hash of the datagram, each with its own lock. It is held while a piece is
//! filed, not while the datagram is put together or worked on.

use std::hash::BuildHasher;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::reassembly::{Arriving, Complete, FirstPiece, Reassembly, ReassemblyLimits, Room, Secret};
use crate::packet::Packet;
use crate::parse::Parsed;
use crate::verdict::DropReason;

/// Fragments that wait for the others, of all workers of a gateway.
#[derive(Debug)]
pub struct Fragments {
    secret: Secret,
    shelves: Box<[Mutex<Reassembly>]>,
}

impl Fragments {
    /// For so many workers, each of which adds the memory that `limits` allows; `secret` keys the hash.
    #[must_use]
    pub fn new(limits: ReassemblyLimits, secret: [u64; 2], workers: u16) -> Self {
        let shelf = |_| Mutex::new(Reassembly::new(limits, secret));
        Self { secret: Secret([!secret[0], secret[1]]), shelves: (0..workers.max(1)).map(shelf).collect() }
    }

    /// Takes an IPv4 fragment at the moment `now` (nanoseconds), one that came out of the softwire from `softwire` or
    /// none. Gives the datagram, in `room`, if it was the last one missing.
    ///
    /// # Errors
    /// As [`Reassembly::accept`] and [`Complete::into_ipv4`].
    pub fn accept_ipv4<'r>(
        &self,
        packet: &Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        softwire: Option<Ipv6Addr>,
        now: u64,
        room: &'r mut Room,
    ) -> Result<Option<(Packet<'r>, Parsed<Ipv4Addr>)>, DropReason> {
        let complete = self.accept(Arriving::ipv4(packet, parsed, softwire)?, now)?;
        complete.map(|complete| complete.into_ipv4(room)).transpose()
    }

    /// As [`accept_ipv4`](Self::accept_ipv4), for IPv6.
    ///
    /// # Errors
    /// As [`accept_ipv4`](Self::accept_ipv4).
    pub fn accept_ipv6<'r>(
        &self,
        packet: &Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        now: u64,
        room: &'r mut Room,
    ) -> Result<Option<(Packet<'r>, Parsed<Ipv6Addr>)>, DropReason> {
        let complete = self.accept(Arriving::ipv6(packet, parsed)?, now)?;
        complete.map(|complete| complete.into_ipv6(room)).transpose()
    }

    /// Gives up datagrams whose time is over: how many, and how many were given up since the last call because memory
    /// was needed for newer ones.
    pub fn expire(&self, now: u64) -> (u64, u64) {
        let given_up = self.shelves.iter().map(|shelf| {
            let mut shelf = take(shelf);
            shelf.expire(now);
            (shelf.take_timed_out(), shelf.take_pushed_out())
        });
        given_up.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// The first piece, as it came, of an IPv6 datagram whose time was over; each comes once.
    pub fn take_expired(&self) -> Option<FirstPiece> {
        self.shelves.iter().find_map(|shelf| take(shelf).take_expired())
    }

    fn accept(&self, piece: Option<Arriving<'_>>, now: u64) -> Result<Option<Complete>, DropReason> {
        let Some(piece) = piece else { return Ok(None) };
        let [first @ .., last] = &*self.shelves else { return Ok(None) };
        // The hash is 64 bits wide: what is left over of it is as good as even.
        let number = usize::try_from(self.secret.hash_one(piece.key) % self.shelves.len() as u64);
        let shelf = number.ok().and_then(|number| first.get(number)).unwrap_or(last);
        take(shelf).accept(&piece, now)
    }
}

/// A worker that died with it in hand has left pieces or lost some: those of others are whole.
fn take(shelf: &Mutex<Reassembly>) -> MutexGuard<'_, Reassembly> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}
