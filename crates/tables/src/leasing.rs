//! How leases end, and what becomes of their bindings: the account of them ([`lease`](crate::lease)) and the
//! tables together.

use crate::binding::{Binding, BindingId, InsideKey, flags};
use crate::lease::{Before, Book, Lease, LeaseId, Leases, Use};
use crate::tables::Tables;
use crate::tick::Tick;

/// How often the removal of a binding is tried that packets use meanwhile.
const ATTEMPTS: usize = 8;

impl Leases {
    /// Ends the leases whose time is over, and those whose bindings somebody has removed. The bindings that
    /// have gone with their leases since this was asked last: their numbers are still to be freed, with
    /// [`Removal::finish_withdrawn`](crate::tables::Removal::finish_withdrawn).
    #[must_use]
    pub fn tidy(&self, tables: &Tables, now: Tick) -> Vec<(BindingId, Binding)> {
        let is_over = |id: &LeaseId| self.records.read(*id).is_some_and(|(lease, _)| is_over(tables, &lease, now));
        // Requests wait for the account, and packets behind them.
        let over: Vec<_> = self.records.iter().filter(is_over).collect();
        let mut book = self.open();
        // One that was being made just now has its binding by now.
        for id in over.into_iter().filter(is_over) {
            let _ = book.end(tables, id, now);
        }
        std::mem::take(&mut book.found_by.withdrawn)
    }
}

impl Book<'_> {
    /// It is over, and its binding with it, unless it has another one: it goes, or becomes what it was
    /// before. Says which binding has gone. Its sessions follow ([`Leases::tidy`]).
    pub fn end(&mut self, tables: &Tables, id: LeaseId, now: Tick) -> Option<Binding> {
        let (lease, _) = self.leases.records.read(id)?;
        let others: Vec<_> = self.of(&lease.inside).into_iter().filter(|(other, _)| *other != id).collect();
        let gone = match others.iter().any(|(_, other)| other.purpose == Use::Anybody) {
            true => None,
            false if others.is_empty() && lease.before == Before::Nothing => self.withdraw(tables, &lease.inside, now),
            false => {
                let flags = others.iter().fold(0, |flags, (_, other)| flags | other.purpose.flags());
                give_flags(tables, &lease.inside, flags, now);
                None
            }
        };
        self.forget(id, &lease);
        gone
    }

    /// From now on nothing finds the binding.
    fn withdraw(&mut self, tables: &Tables, inside: &InsideKey, now: Tick) -> Option<Binding> {
        for _ in 0..ATTEMPTS {
            let (id, _) = tables.find_inside(inside)?;
            let (binding, seen) = tables.bindings.read(id).filter(|(found, _)| is_leased(found, inside))?;
            if tables.withdraw(id, &binding, seen, now) {
                self.found_by.withdrawn.push((id, binding));
                return Some(binding);
            }
        }
        // Packets do not let it go: it is one as any other from now on, and goes when they cease.
        give_flags(tables, inside, 0, now);
        None
    }
}

/// True if the time of a lease is over, or somebody has removed its binding.
fn is_over(tables: &Tables, lease: &Lease, now: Tick) -> bool {
    lease.expires <= now || tables.find_inside(&lease.inside).is_none_or(|(_, found)| !is_leased(&found, &lease.inside))
}

/// Gives the binding of a lease these flags in place of its own. False if it is not there any more.
pub fn give_flags(tables: &Tables, inside: &InsideKey, flags: u16, now: Tick) -> bool {
    (0..ATTEMPTS).any(|_| {
        let Some((id, found)) = tables.find_inside(inside) else { return false };
        found.flags == flags || tables.bindings.touch(id, now) && tables.change_flags(id, &found, flags)
    })
}

fn is_leased(binding: &Binding, inside: &InsideKey) -> bool {
    binding.inside == *inside && binding.flags & flags::LEASED != 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::arena::Stored as _;
    use crate::hash::HashKey;
    use crate::memory::Heap;
    use crate::tables::{Candidate, Capacity, Removal};

    const INSIDE: InsideKey =
        InsideKey { ipv6: [0; 16], ipv4: [10, 0, 0, 7], port: [0x1f, 0x90], protocol: 6, service: 0 };
    const LEASE: Lease = Lease {
        inside: INSIDE,
        purpose: Use::Anybody,
        nonce: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        expires: Tick(100),
        before: Before::Nothing,
        subscriber: 3,
    };

    #[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
    fn tables() -> Tables {
        let capacity = Capacity { subscribers: 8, bindings: 64, sessions: 64, outside_slots: 64, leases: 4 };
        Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])).unwrap()
    }

    #[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
    fn bind(tables: &Tables, flags: u16) {
        let template = Binding { inside: INSIDE, flags, ..Binding::default() };
        let candidate = Candidate { slot: 5, ipv4: [192, 0, 2, 1], port: [0, 80] };
        tables.bind(&template, [candidate], 0, Tick(1)).unwrap();
    }

    #[test]
    fn a_lease_is_read_back_whole() {
        for purpose in [Use::Anybody, Use::Remote([203, 0, 113, 9], [1, 187])] {
            for before in [Before::Nothing, Before::Dynamic] {
                let lease = Lease { purpose, before, ..LEASE };
                assert_eq!(Lease::from_words(lease.to_words()), lease);
            }
        }
    }

    #[test]
    fn a_binding_goes_with_its_lease_and_its_number_is_free_again() {
        let tables = tables();
        let mut book = tables.leases.open();
        let id = book.add(&LEASE, Tick(1)).unwrap();
        bind(&tables, flags::STATIC | flags::LEASED);
        assert_eq!((book.count_of(3), book.find(&INSIDE, Use::Anybody)), (1, Some((id, LEASE))));
        book.extend(id, Tick(500));
        drop(book);
        assert!(tables.leases.tidy(&tables, Tick(499)).is_empty());
        let withdrawn = tables.leases.tidy(&tables, Tick(500));
        assert_eq!((tables.find_inside(&INSIDE), tables.leases.count()), (None, 0));
        assert_eq!((tables.bindings.count(), withdrawn.len()), (1, 1), "its sessions may be there still");
        let mut removal = Removal::new(&tables);
        withdrawn.iter().for_each(|(id, binding)| removal.finish_withdrawn(*id, binding));
        removal.finish();
        assert_eq!(tables.bindings.count(), 0);
        assert!(crate::audit::check(&tables).is_empty());
    }

    #[test]
    fn a_binding_that_packets_had_made_becomes_what_it_was() {
        let tables = tables();
        let mut book = tables.leases.open();
        let id = book.add(&Lease { before: Before::Dynamic, ..LEASE }, Tick(1)).unwrap();
        bind(&tables, 0);
        assert!(give_flags(&tables, &INSIDE, flags::STATIC | flags::LEASED, Tick(2)));
        assert_eq!(tables.find_inside(&INSIDE).unwrap().1.flags, flags::STATIC | flags::LEASED);
        assert_eq!(book.end(&tables, id, Tick(3)), None);
        assert_eq!(tables.find_inside(&INSIDE).unwrap().1.flags, 0);
    }

    #[test]
    fn a_lease_for_a_remote_outlives_the_one_for_anybody() {
        let tables = tables();
        let mut book = tables.leases.open();
        let open = book.add(&LEASE, Tick(1)).unwrap();
        let remote = book.add(&Lease { purpose: Use::Remote([203, 0, 113, 9], [1, 187]), ..LEASE }, Tick(1)).unwrap();
        bind(&tables, flags::STATIC | flags::LEASED);
        assert_eq!(book.end(&tables, open, Tick(3)), None);
        assert_eq!(tables.find_inside(&INSIDE).unwrap().1.flags, flags::LEASED);
        assert!(book.end(&tables, remote, Tick(3)).is_some());
    }

    #[test]
    fn leases_without_a_binding_end_and_a_full_table_says_so() {
        let tables = tables();
        let mut book = tables.leases.open();
        for port in 0..4 {
            let inside = InsideKey { port: [0, port], ..INSIDE };
            assert!(book.add(&Lease { inside, ..LEASE }, Tick(1)).is_some());
        }
        assert_eq!(book.add(&LEASE, Tick(1)), None);
        drop(book);
        assert!(tables.leases.tidy(&tables, Tick(2)).is_empty());
        assert_eq!(tables.leases.count(), 0);
    }

    #[test]
    fn the_epoch_goes_on_unless_the_clock_begins_anew() {
        let leases = tables().leases;
        let second = 1_000_000_000;
        assert_eq!([5, 6, 9].map(|at| leases.epoch(at * second)), [0, 1, 4]);
        assert_eq!([2, 3].map(|at| leases.epoch(at * second)), [0, 1]);
    }
}
