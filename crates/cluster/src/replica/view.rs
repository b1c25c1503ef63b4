//! What copying has to know of the plan, and of who has which slice.

use std::net::Ipv4Addr;

use tombolo_engine::Plan;
use tombolo_engine::cluster::Cluster;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::{Pool, PortSpace};
use tombolo_engine::mechanism::napt::session_state::{ESTABLISHED, INSIDE_FIN, OUTSIDE_FIN};
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId, flags};
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::tick::Tick;

use super::record::Class;
use super::to::To;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
/// A TCP binding that is as old, in ticks, has a session: the sweep would have removed it. It may be one that is
/// not in the binding's record.
const HAS_SESSION: u32 = 60;

/// A service by its name, under the number that it has at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName {
    /// Its number there.
    pub number: u8,
    /// Its kind, as in the configuration.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A block of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// The service's number.
    pub(super) service: u8,
    /// Its outside address.
    pub(super) outside_ipv4: [u8; 4],
    /// Its place there.
    pub(super) place: u16,
    /// The slice of the address.
    pub(super) slice: u16,
}

/// A plan with slices.
#[derive(Debug, Clone, Copy)]
pub struct View<'p> {
    plan: &'p Plan,
    cluster: &'p Cluster,
}

impl<'p> View<'p> {
    /// `None` if the plan has no slices.
    #[must_use]
    pub fn of(plan: &'p Plan) -> Option<Self> {
        let cluster = plan.cluster.as_deref().filter(|cluster| cluster.has_slices())?;
        Some(Self { plan, cluster })
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &'p Cluster {
        self.cluster
    }

    /// Whether blocks are told of before they are granted: where a backup may become the owner.
    pub(super) fn makes_offers(&self) -> bool {
        self.cluster.is_agreed()
    }

    /// The services that have bindings.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceName> {
        let stateful = self.plan.numbered().filter(|(_, service)| service.kind.nat().is_some());
        let named = stateful.map(|(number, service)| ServiceName {
            number,
            kind: service.kind.name().to_owned(),
            name: service.name.clone(),
        });
        named.collect()
    }

    /// The service's own number here, by its name and kind.
    pub(super) fn number_of(&self, service: &ServiceName) -> Option<u8> {
        let is_it = |own: &ServiceName| own.name == service.name && own.kind == service.kind;
        self.services().into_iter().find(is_it).map(|own| own.number)
    }

    fn pool(&self, service: u8) -> Option<&'p Pool> {
        self.plan.service(service)?.kind.pool()
    }

    /// The slice of an outside address of a service.
    pub(super) fn slice_of(&self, service: u8, address: [u8; 4]) -> Option<u16> {
        self.pool(service)?.slice_of_address(address.into())
    }

    pub(super) fn slice_of_subscriber(&self, subscriber: &Subscriber) -> Option<u16> {
        self.slice_of(subscriber.key.service, subscriber.outside_ipv4)
    }

    pub(super) fn slice_of_binding(&self, binding: &Binding) -> Option<u16> {
        self.slice_of(binding.inside.service, binding.outside_ipv4)
    }

    /// The node to which a slice is copied from here: the backup of one that this node owns.
    pub(super) fn backup_of(&self, slice: u16) -> Option<u8> {
        let holders = self.cluster.holders(slice);
        holders.backup.filter(|_| usize::from(holders.owner) == self.cluster.own())
    }

    /// Whether what there is of a slice goes there.
    pub(super) fn is_for(&self, to: To, slice: u16) -> bool {
        match to {
            To::Backup(node) => self.backup_of(slice) == Some(node),
            To::Owner(node) => self.cluster.owner_backed_up(slice) == Some(node),
        }
    }

    /// Whether any slice is copied from here to a node.
    pub(crate) fn copies_to(&self, node: u8) -> bool {
        self.cluster.slices().any(|slice| self.backup_of(slice) == Some(node))
    }

    /// The slot of an outside endpoint here.
    pub(super) fn slot(&self, service: u8, protocol: u8, address: [u8; 4], port: [u8; 2]) -> Option<u32> {
        let space = PortSpace::of_protocol(protocol)?;
        self.pool(service)?.slot(Ipv4Addr::from(address), space, u16::from_be_bytes(port))
    }

    /// The block that a port is in, where it is handed out in one.
    pub(super) fn block_of(&self, service: u8, port: [u8; 2]) -> Option<u16> {
        let (allocation, port) = (self.pool(service)?.allocation(), u16::from_be_bytes(port));
        if let Allocation::Deterministic(shares) = allocation {
            shares.dynamic_ports().filter(|&(first, last)| (first..=last).contains(&port))?;
        }
        u16::try_from(u32::from(port) / allocation.block_size()?).ok()
    }

    /// Where the blocks of an address begin in the block index, and behind which place they end.
    pub(super) fn blocks(&self, service: u8, address: [u8; 4]) -> Option<(u32, u16)> {
        let pool = self.pool(service)?;
        pool.blocks(address.into(), pool.allocation().block_size()?)
    }

    /// Services whose ports are handed out in blocks: number, pool, ports of a block.
    pub(super) fn block_pools(&self) -> impl Iterator<Item = (u8, &'p Pool, u32)> + use<'p> {
        let numbered = self.plan.numbered();
        numbered.filter_map(|(number, service)| {
            let pool = service.kind.pool()?;
            Some((number, pool, pool.allocation().block_size()?))
        })
    }

    /// The blocks of all addresses of some slices: what stands where.
    pub(super) fn each_block(&self, is_meant: impl Fn(u16) -> bool, mut each: impl FnMut(u32, Block)) {
        for (service, pool, size) in self.block_pools() {
            for address in (0..pool.addresses()).filter_map(|place| pool.address(place)) {
                let Some(slice) = pool.slice_of_address(address).filter(|slice| is_meant(*slice)) else { continue };
                for (place, word) in pool.block_words(address, size) {
                    each(word, Block { service, outside_ipv4: address.octets(), place, slice });
                }
            }
        }
    }

    /// Ticks for which a block rests that was given back.
    pub(super) fn rest(&self) -> u32 {
        self.plan.times.rest()
    }

    /// What a binding is worth after a takeover.
    pub(super) fn class_of(tables: &Tables, id: BindingId, binding: &Binding, now: Tick) -> Class {
        match binding.inside.protocol {
            TCP => {
                let first = tables.bindings.first_session(id);
                let is_open = match first {
                    Some(first) => [ESTABLISHED, INSIDE_FIN, OUTSIDE_FIN].contains(&first.state),
                    None => now.since(binding.created) >= HAS_SESSION,
                };
                if is_open || binding.flags & flags::RESUMED != 0 { Class::Established } else { Class::Opening }
            }
            ICMP => Class::Icmp,
            UDP => Class::Udp,
            // Datagrams of another protocol.
            _ => Class::Udp,
        }
    }
}
