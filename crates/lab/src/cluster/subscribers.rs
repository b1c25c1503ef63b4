//! Hosts of the NAT64, the NAT44 and the AFTR.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    time::Duration,
};

use super::boxes::ClusterLab;
use crate::scenario::SLICES;
use crate::{Flow, LabError, Talk};

/// The server, as hosts with IPv4 and hosts with IPv6 see it.
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const SERVER_BY_NAT64: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x6464, 0, 0, 0, 0xc633, 0x6402);
/// Subscribers of the NAT64, the NAT44 and the AFTR that are there from the beginning.
const THERE: [u8; 3] = [8, 8, 3];
/// Numbers of subscribers of the NAT64 and of the NAT44 are below that.
const MOST: u8 = 250;
/// Where the server talks with those who connect.
const TALK: u16 = 10;
/// The port that each flow comes from, so that it can be told from others of the same host.
const FLOW: u16 = 4000;

/// A host that is a subscriber by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscriber {
    /// Its box.
    pub host: &'static str,
    /// A name for it: box and number.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
}

/// The subscribers that are there from the beginning.
#[must_use]
pub fn subscribers() -> Vec<Subscriber> {
    let makers: [fn(u8) -> Subscriber; 3] = [Subscriber::of_nat64, Subscriber::of_nat44, Subscriber::of_aftr];
    let all = makers.into_iter().zip(THERE);
    all.flat_map(|(make, count)| (0..count).map(make)).collect()
}

impl Subscriber {
    /// One of the NAT64, with a number below 250.
    #[must_use]
    pub fn of_nat64(number: u8) -> Self {
        Self::new("phone", number, Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 2 + u16::from(number)).into())
    }

    /// One of the NAT44, with a number below 250.
    #[must_use]
    pub fn of_nat44(number: u8) -> Self {
        Self::new("lan", number, Ipv4Addr::new(100, 64, 0, 2 + number).into())
    }

    /// One of the AFTR, with a number below 3.
    #[must_use]
    pub fn of_aftr(number: u8) -> Self {
        Self::new("home", number, Ipv4Addr::new(10, number + 1, 0, 2).into())
    }

    fn new(host: &'static str, number: u8, address: IpAddr) -> Self {
        Self { host, name: format!("{host} {number}"), address }
    }

    /// A port of the server, as it sees that.
    #[must_use]
    pub fn server(&self, port: u16) -> SocketAddr {
        let address = if self.address.is_ipv6() { SERVER_BY_NAT64.into() } else { SERVER.into() };
        SocketAddr::new(address, port)
    }
}

/// Subscribers that are not there yet, and those that have come.
#[derive(Debug, Default)]
pub struct Newcomers {
    come: BTreeSet<IpAddr>,
}

impl Newcomers {
    /// The next one of a slice, by what says of which slice an address is: of the NAT64, and of the NAT44 where the number of the slice
    /// is odd. `None` when all have come.
    pub fn of_slice(&mut self, slice: u16, slice_of: impl Fn(IpAddr) -> u16) -> Option<Subscriber> {
        let make: fn(u8) -> Subscriber =
            if slice.is_multiple_of(2) { Subscriber::of_nat64 } else { Subscriber::of_nat44 };
        let is_next = |host: &Subscriber| slice_of(host.address) == slice && !self.come.contains(&host.address);
        let newcomer = (THERE[0]..MOST).map(make).find(is_next)?;
        self.come.insert(newcomer.address);
        Some(newcomer)
    }
}

impl ClusterLab {
    /// Gives its box the address of a subscriber that is not there yet.
    ///
    /// # Errors
    /// [`LabError`] if the box has it.
    pub fn settle(&self, subscriber: &Subscriber) -> Result<(), LabError> {
        let length = if subscriber.address.is_ipv6() { 64 } else { 24 };
        let prefix = crate::Prefix { address: subscriber.address, length };
        self.lab.node(subscriber.host)?.add_address("inside0", prefix)?;
        // The kernel joins the group in which neighbours ask for an IPv6 address some time later: who asks before asks again after a second,
        // and a subscriber that is new to a gateway must not wait for that.
        let reached = || self.shell("r1", &format!("ping -q -c 1 -W 1 {}", subscriber.address)).ok();
        self.wait(&format!("the router to reach {}", subscriber.address), reached).map(drop)
    }

    /// A flow of a subscriber's, from a port that is always the same.
    ///
    /// # Errors
    /// [`LabError`] if there is one already.
    pub fn flow(&self, subscriber: &Subscriber) -> Result<Flow, LabError> {
        let from = SocketAddr::new(subscriber.address, FLOW);
        Flow::open(self.lab.node(subscriber.host)?, subscriber.name.clone(), from, subscriber.server(7))
    }

    /// A connection of each of these subscribers with the server.
    ///
    /// # Errors
    /// [`LabError`] if one of them is not answered.
    pub fn talks(&self, subscribers: &[Subscriber]) -> Result<Vec<Talk>, LabError> {
        let at = SocketAddr::new(SERVER.into(), TALK);
        let listener = self.lab.node("server")?.run(|| TcpListener::bind(at))?;
        let listener = listener.map_err(|e| LabError::system(format!("listen at {at}"), e))?;
        let open = |subscriber: &Subscriber| {
            let (name, from) = (subscriber.name.clone(), SocketAddr::new(subscriber.address, 0));
            Talk::open(self.lab.node(subscriber.host)?, name, from, subscriber.server(TALK), &listener)
        };
        subscribers.iter().map(open).collect()
    }

    /// What the server sees of a flow, if it hears of it at all in so many tries.
    #[must_use]
    pub fn endpoint(&self, flow: &Flow, tries: u8) -> Option<SocketAddr> {
        (0..tries).find_map(|_| flow.ask().then(|| self.echo.last_client()).flatten())
    }

    /// The slice of the flow's outside address, of the sixteen addresses that each pool has for eight slices.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] if it is not answered.
    pub fn slice_seen(&self, flow: &Flow) -> Result<u16, LabError> {
        let seen = self.endpoint(flow, 10).map(|endpoint| endpoint.ip());
        match seen {
            Some(IpAddr::V4(address)) => Ok(u16::from(address.octets()[3] % 16) * SLICES / 16),
            _ => Err(LabError::TimedOut {
                what: format!("an answer for {}", flow.name()),
                limit: Duration::from_secs(2),
                output: String::new(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_have_addresses_of_their_own() {
        let all = subscribers();
        let addresses: BTreeSet<IpAddr> = all.iter().map(|subscriber| subscriber.address).collect();
        assert_eq!((all.len(), addresses.len()), (19, 19));
        assert_eq!(Subscriber::of_nat64(0).server(7).to_string(), "[2001:db8:6464::c633:6402]:7");
        assert_eq!(Subscriber::of_nat44(3).address.to_string(), "100.64.0.5");
        assert_eq!(Subscriber::of_aftr(2).address.to_string(), "10.3.0.2");
    }

    #[test]
    fn newcomers_are_of_the_slice_that_is_asked_for_and_come_once() {
        let mut newcomers = Newcomers::default();
        let by_last_byte = |address: IpAddr| match address {
            IpAddr::V4(address) => u16::from(address.octets()[3]) % SLICES,
            IpAddr::V6(address) => address.segments()[7] % SLICES,
        };
        let mut come = BTreeSet::new();
        while let Some(newcomer) = newcomers.of_slice(3, by_last_byte) {
            assert_eq!(by_last_byte(newcomer.address), 3);
            assert!(!subscribers().contains(&newcomer) && come.insert(newcomer.address));
        }
        assert_eq!(come.len(), 31);
    }
}
