//! Bindings that a host inside asks for, for a time (RFC 6887 sections 11.3 and 12.3).
//!
//! Such a binding is made as packets make theirs: for a subscriber with its address, within its limits, from
//! the ports that it may have; the one that was suggested comes first. If packets have made it before it
//! stays where it is, and becomes what it was when the lease is over.

use rand_core::Rng;
use tombolo_tables::binding::{Binding, InsideKey, Origin};
use tombolo_tables::lease::{Before, Book, Lease, Use};
use tombolo_tables::leasing::give_flags;
use tombolo_tables::tick::Tick;
use tombolo_wire::Port;

use super::nat::Nat;
use super::state::{Napt, outside_of};
use crate::endpoint::Endpoint;
use crate::mapping::pool::{Parity, PortSpace};
use crate::verdict::DropReason;
use crate::work::Work;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// What proves later that it is the holder who asks.
    pub(crate) nonce: [u8; 12],
    /// What for.
    pub(crate) purpose: Use,
    /// Until when.
    pub(crate) expires: Tick,
    /// The outside address suggested.
    pub(crate) address: Option<std::net::Ipv4Addr>,
    /// The outside port suggested.
    pub(crate) port: Option<Port>,
    /// What was suggested, or nothing.
    pub(crate) is_strict: bool,
    /// Whether the port is to be odd or even as the one inside.
    pub(crate) parity: Parity,
    /// Leases that a subscriber may have.
    pub(crate) most: u32,
}

/// What was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The outside endpoint.
    pub(crate) outside: Endpoint,
    /// It is always there: the configuration or an operator has made it.
    pub(crate) is_fixed: bool,
}

/// Why nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseError {
    /// Another one has it, for so many ticks more.
    NotTheHolder(u32),
    /// The binding is there, and nobody has asked for it.
    NotLeased,
    /// The host may have no binding.
    Denied,
    /// The subscriber has as many as it may have.
    Quota,
    /// A table or a pool has no room, or nothing new may begin.
    NoRoom,
    /// What was suggested cannot be had.
    NotThatEndpoint,
}

impl From<DropReason> for LeaseError {
    fn from(reason: DropReason) -> Self {
        match reason {
            DropReason::SubscriberLimit => Self::Quota,
            DropReason::Denied => Self::Denied,
            _ => Self::NoRoom,
        }
    }
}

impl Nat {
    /// Makes or renews the lease of `inside` that is wished for.
    ///
    /// # Errors
    /// [`LeaseError`].
    pub(crate) fn lease(
        &self,
        inside: &InsideKey,
        space: PortSpace,
        wish: &Wish,
        work: &mut Work<'_>,
    ) -> Result<Granted, LeaseError> {
        self.state(work).lease(inside, space, wish)
    }

    /// Ends the lease of `inside` for this purpose; which outside endpoint the binding has, or had. What is
    /// not there may be ended, but nobody takes away what packets or an operator have made.
    ///
    /// # Errors
    /// [`LeaseError::NotTheHolder`], [`LeaseError::NotLeased`].
    pub(crate) fn end_lease(
        &self,
        inside: &InsideKey,
        purpose: Use,
        nonce: [u8; 12],
        work: &mut Work<'_>,
    ) -> Result<Option<Endpoint>, LeaseError> {
        let (tables, now) = (work.tables, work.now.tick());
        let mut book = tables.leases.open();
        let outside = tables.find_inside(inside).map(|(_, found)| outside_of(&found));
        match book.find(inside, purpose) {
            Some((id, lease)) if lease.nonce == nonce => {
                let _ = book.end(tables, id, now);
                Ok(outside)
            }
            Some((_, lease)) => Err(LeaseError::NotTheHolder(lease.expires.since(now))),
            None if purpose == Use::Anybody && outside.is_some() => Err(LeaseError::NotLeased),
            None => Ok(outside),
        }
    }
}

impl<R: Rng> Napt<'_, R> {
    fn lease(&mut self, inside: &InsideKey, space: PortSpace, wish: &Wish) -> Result<Granted, LeaseError> {
        let mut book = self.tables.leases.open();
        // Nobody renews in time what is over, or what an operator has taken away.
        for (id, lease) in book.of(inside) {
            let has_binding =
                self.tables.find_inside(inside).is_some_and(|(_, found)| found.origin() == Origin::Leased);
            if !has_binding || lease.expires <= self.now {
                let _ = book.end(self.tables, id, self.now);
            }
        }
        match self.tables.find_inside(inside) {
            Some((_, found)) => self.lease_found(&found, wish, &mut book),
            None => self.lease_new(inside, space, wish, &mut book),
        }
    }

    /// Of a binding that is there.
    fn lease_found(&mut self, found: &Binding, wish: &Wish, book: &mut Book<'_>) -> Result<Granted, LeaseError> {
        let outside = outside_of(found);
        let inside = &found.inside;
        let renewed = book.find(inside, wish.purpose);
        if let Some((_, lease)) = renewed
            && lease.nonce != wish.nonce
        {
            return Err(LeaseError::NotTheHolder(lease.expires.since(self.now)));
        }
        if wish.is_strict && !wish.suits(outside) {
            return Err(LeaseError::NotThatEndpoint);
        }
        let is_fixed = matches!(found.origin(), Origin::Configured | Origin::Operator);
        match renewed {
            _ if is_fixed => {}
            Some((id, _)) => book.extend(id, wish.expires),
            None => {
                self.times.check_open()?;
                wish.check_quota(found.subscriber, book)?;
                let others = book.of(inside);
                let before = others.first().map_or(Before::Dynamic, |(_, other)| other.before);
                let lease = wish.lease(inside, before, found.subscriber);
                let id = book.add(&lease, self.now).ok_or(LeaseError::NoRoom)?;
                if !give_flags(self.tables, inside, found.flags | wish.purpose.flags(), self.now) {
                    book.cancel(id);
                    return Err(LeaseError::NoRoom);
                }
            }
        }
        Ok(Granted { outside, is_fixed })
    }

    /// Of one that is not there yet.
    fn lease_new(
        &mut self,
        inside: &InsideKey,
        space: PortSpace,
        wish: &Wish,
        book: &mut Book<'_>,
    ) -> Result<Granted, LeaseError> {
        let (subscriber, grant) = self.admitted(inside, space)?;
        wish.check_quota(subscriber.get(), book)?;
        let flags = wish.purpose.flags();
        let lease = wish.lease(inside, Before::Nothing, subscriber.get());
        let id = book.add(&lease, self.now).ok_or(LeaseError::NoRoom)?;
        let asked = super::bind::Asked { port: wish.port, is_strict: wish.is_strict, flags, parity: wish.parity };
        let is_its_address = wish.address.is_none_or(|address| address.octets() == grant.outside_ipv4);
        let bound = if wish.is_strict && !is_its_address {
            Err(LeaseError::NotThatEndpoint)
        } else {
            self.bind_asked((subscriber, &grant), inside, space, &asked)
                .map_err(LeaseError::from)
                .and_then(|bound| bound.ok_or(LeaseError::NotThatEndpoint))
        };
        match bound {
            // A packet from inside may have been faster.
            Ok((_, binding)) if give_flags(self.tables, inside, binding.flags | flags, self.now) => {
                Ok(Granted { outside: outside_of(&binding), is_fixed: false })
            }
            Ok(_) => {
                book.cancel(id);
                Err(LeaseError::NoRoom)
            }
            Err(error) => {
                book.cancel(id);
                Err(error)
            }
        }
    }
}

impl Wish {
    /// True if the endpoint is what was suggested.
    fn suits(&self, outside: Endpoint) -> bool {
        self.address.is_none_or(|address| address == outside.address)
            && self.port.is_none_or(|port| port == outside.port)
    }

    fn check_quota(&self, subscriber: u32, book: &Book<'_>) -> Result<(), LeaseError> {
        if book.count_of(subscriber) < self.most { Ok(()) } else { Err(LeaseError::Quota) }
    }

    fn lease(&self, inside: &InsideKey, before: Before, subscriber: u32) -> Lease {
        Lease { inside: *inside, purpose: self.purpose, nonce: self.nonce, expires: self.expires, before, subscriber }
    }
}
