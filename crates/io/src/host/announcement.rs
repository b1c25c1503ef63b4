//! Routes that a routing daemon is to announce, in a table of their own: BIRD learns them from there, makes a MED of
//! the metric, and withdraws them when they go. They lead to the device, so that they go with it, however the
//! process ends. No rule leads to the table, and no packet is forwarded by it.

use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};

use super::changes::{Ends, Host, What, index_of};
use super::error::{HostError, fail};
use super::messages::{in_table, route_message};

/// Metric of what all nodes serve alike: routers spread packets over all of them.
const ENTRANCE: u32 = 100;

/// Routes to be announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The routing table that the daemon learns them from.
    pub table: u32,
    /// Where they lead.
    pub prefixes: Vec<IpNet>,
}

/// The routes of an announcement to the device with this index.
pub(super) fn announcing(index: u32, announcement: Option<&Announcement>) -> Vec<What> {
    let route = |table: u32, prefix: IpNet| {
        let mut message: RouteMessage = in_table(route_message(index, prefix), table);
        message.attributes.push(RouteAttribute::Priority(ENTRANCE));
        What::Route(message)
    };
    let Some(Announcement { table, prefixes }) = announcement else { return Vec::new() };
    prefixes.iter().map(|prefix| route(*table, prefix.trunc())).collect()
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
