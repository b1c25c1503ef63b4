//! Routes that a routing daemon is to announce, in a table of their own: BIRD learns them from there, makes a MED of
//! the metric, and withdraws them when they go. They lead to the device, so that they go with it, however the
//! process ends. No rule leads to the table, and no packet is forwarded by it.

use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};

use super::changes::{Ends, Host, What, index_of};
use super::error::{HostError, fail};
use super::messages::{in_table, route_message};

/// Routes to be announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The routing table that the daemon learns them from.
    pub table: u32,
    /// Where they lead, and as what.
    pub prefixes: Vec<(IpNet, Rank)>,
}

/// What a route is among those that other nodes announce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// All nodes serve it alike: routers spread packets over all of them.
    Entrance,
    /// The same at a node that may be cut off from the others: routers bring packets there if nobody else announces it.
    LastEntrance,
    /// Of a slice that the node owns. A later owner's is preferred: the number of owners that there were, this one
    /// included, says so.
    Owner {
        /// That number.
        epoch: u32,
    },
    /// Of a slice that the node has a copy of: where packets go while the owner announces nothing.
    Backup {
        /// As of the owner.
        epoch: u32,
    },
    /// Of a whole pool: where packets go whose owner announces nothing.
    LastResort,
}

impl Rank {
    /// The metric, and so the MED.
    const fn metric(self) -> u32 {
        match self {
            Self::Entrance => 100,
            Self::LastEntrance => 200,
            Self::Owner { epoch } => (1 << 31) - 1 - epoch,
            Self::Backup { epoch } => u32::MAX - 15 - epoch,
            Self::LastResort => u32::MAX - 1,
        }
    }
}

/// The routes of an announcement to the device with this index.
pub(super) fn announcing(index: u32, announcement: Option<&Announcement>) -> Vec<What> {
    let route = |table: u32, (prefix, rank): &(IpNet, Rank)| {
        let mut message: RouteMessage = in_table(route_message(index, prefix.trunc()), table);
        message.attributes.push(RouteAttribute::Priority(rank.metric()));
        What::Route(message)
    };
    let Some(Announcement { table, prefixes }) = announcement else { return Vec::new() };
    prefixes.iter().map(|announced| route(*table, announced)).collect()
}

impl Host {
    /// Announces what is not announced yet.
    ///
    /// # Errors
    /// [`HostError`]; in particular if somebody else has such a route in the table.
    pub(super) fn announce(&mut self, device: &str, announcement: Option<&Announcement>) -> Result<(), HostError> {
        for what in announcing(index_of(device)?, announcement) {
            if !self.has(&what) {
                let action = format!("announcing a route in routing table {}", announcement.map_or(0, |to| to.table));
                self.add(what, Ends::WithGateway).map_err(|source| fail(&action, source))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever changes a rank makes the new route and then removes the old one.
    #[test]
    fn a_route_of_another_rank_is_another_route_in_both_families() {
        let route = |prefix: &str, rank| {
            let prefixes = vec![(prefix.parse().unwrap(), rank)];
            announcing(7, Some(&Announcement { table: 8464, prefixes })).remove(0).key()
        };
        for prefix in ["192.0.2.0/24", "2001:db8:6464::/96"] {
            assert!(route(prefix, Rank::Entrance) == route(prefix, Rank::Entrance));
            assert!(route(prefix, Rank::Entrance) != route(prefix, Rank::LastEntrance), "{prefix}");
            assert!(route(prefix, Rank::Owner { epoch: 1 }) != route(prefix, Rank::Owner { epoch: 2 }), "{prefix}");
        }
    }
}
