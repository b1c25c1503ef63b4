//! What a plan needs of the host, in the place of what the one before needed, while packets flow: what is
//! new comes before the plans are exchanged ([`Host::extend`]), what is not needed any more goes afterwards
//! ([`Host::reduce`]).

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::announcement::{Announcement, announcing};
use super::changes::{Change, Ends, Host, Key, What, diverting, index_of};
use super::error::HostError;
use super::given_back::giving_back;
use super::messages::{address_message, route_message};
use super::shared::{SharedAddress, sharing};

/// What a plan needs of its host, beside the device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setting {
    /// Addresses of the device.
    pub addresses: Vec<IpAddr>,
    /// Prefixes that are routed to it.
    pub routes: Vec<IpNet>,
    /// Sources that are diverted to it; none if no packets are.
    pub sources: Vec<IpNet>,
    /// Destinations that packets from these sources reach as they are.
    pub exempt: Vec<IpNet>,
    /// Ports of the host's own addresses that packets come to it for.
    pub shared: Vec<SharedAddress>,
    /// Other packets come back from it as they came.
    pub returns: bool,
    /// Ports that the host does not use for connections of its own.
    pub reserved: Vec<RangeInclusive<u16>>,
    /// Neighbours are answered for what lies in the networks of their links ([`Host::answer_neighbours`]).
    pub answers: bool,
    /// Routes for a routing daemon.
    pub announced: Option<Announcement>,
}

impl Setting {
    fn gives_back(&self) -> bool {
        self.returns || !self.shared.is_empty()
    }
}

impl Host {
    /// Adds what `wanted` needs and is not there yet, for `device` and through routing table `table`.
    ///
    /// # Errors
    /// [`HostError`]: nothing was changed.
    pub fn extend(&mut self, device: &str, table: u32, wanted: &Setting) -> Result<(), HostError> {
        let before = self.changes.len();
        let added = self.add_missing(device, table, wanted);
        while added.is_err()
            && self.changes.len() > before
            && let Some(Change { what, ends }) = self.changes.pop()
        {
            if ends != Ends::Stays {
                self.undo(what);
            }
        }
        added
    }

    fn add_missing(&mut self, device: &str, table: u32, wanted: &Setting) -> Result<(), HostError> {
        let index = index_of(device)?;
        self.proxies.is_on = wanted.answers;
        let known: HashSet<Key> = self.changes.iter().map(|change| change.what.key()).collect();
        let is_known = |what: What| known.contains(&what.key());
        for address in wanted.addresses.iter().copied().map(IpNet::from) {
            if !is_known(What::Address(address_message(index, address))) {
                self.add_address(device, address)?;
            }
        }
        let new = wanted.routes.iter().filter(|prefix| !is_known(What::Route(route_message(index, prefix.trunc()))));
        let new: Vec<IpNet> = new.copied().collect();
        self.add_routes(device, &new)?;
        if !wanted.sources.is_empty() {
            self.divert(device, table, &wanted.sources, &wanted.exempt)?;
        }
        self.take_back(index, wanted.gives_back())?;
        self.share((device, index), table, &wanted.shared, &wanted.reserved)?;
        self.announce(device, wanted.announced.as_ref())
    }

    /// Routes prefixes to the device.
    ///
    /// # Errors
    /// As [`add_route`](Self::add_route).
    pub fn add_routes(&mut self, device: &str, prefixes: &[IpNet]) -> Result<(), HostError> {
        let own = if prefixes.is_empty() { Vec::new() } else { self.addresses()? };
        prefixes.iter().try_for_each(|&prefix| self.add_route_beside(&own, device, prefix))
    }

    /// Takes back what `wanted` does not need, the last first. How many things went.
    ///
    /// # Errors
    /// [`HostError::NoDevice`].
    pub fn reduce(&mut self, device: &str, table: u32, wanted: &Setting) -> Result<usize, HostError> {
        let index = index_of(device)?;
        let addresses = wanted.addresses.iter().map(|&own| What::Address(address_message(index, IpNet::from(own))));
        let routes = wanted.routes.iter().map(|prefix| What::Route(route_message(index, prefix.trunc())));
        let diverting = match &wanted.sources[..] {
            [] => Vec::new(),
            sources => diverting(device, index, table, sources, &wanted.exempt),
        };
        let sharing = sharing(device, index, table, &wanted.shared);
        let needed = addresses.chain(routes).chain(diverting.into_iter().map(|step| step.what)).chain(sharing);
        let needed = needed.chain(giving_back(index, wanted.gives_back()));
        let needed = needed.chain(announcing(index, wanted.announced.as_ref()));
        let needed: HashSet<Key> = needed.map(|what| what.key()).chain([Key::Up]).collect();
        let before = self.changes.len();
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            if needed.contains(&change.what.key()) {
                self.changes.push(change);
            } else {
                self.undo(change.what);
            }
        }
        self.changes.reverse();
        if wanted.sources.is_empty() {
            self.own_errors = None;
        }
        Ok(before - self.changes.len())
    }
}
