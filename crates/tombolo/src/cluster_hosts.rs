//! Hosts of the cluster in a lab, chosen by their slices: so that each slice has one, and those of a node that dies are known.

use std::net::IpAddr;

use anyhow::Context as _;
use tombolo_engine::mapping::slices::Slicing;
use tombolo_lab::Flow;
use tombolo_lab::cluster::{ClusterLab, Newcomers, Subscriber};
use tombolo_lab::scenario::SLICES;
use tombolo_tables::subscriber::SubscriberKey;

/// Where hosts that nobody knows yet come from.
#[derive(Debug)]
pub(crate) struct Hosts {
    slicing: Slicing,
    newcomers: Newcomers,
}

impl Hosts {
    /// Those of a cluster whose nodes agree by etcd.
    pub(crate) fn of(cluster: &ClusterLab) -> anyhow::Result<Self> {
        let slicing = Slicing::new(cluster.secret()?, SLICES).context("the slices are no power of two")?;
        Ok(Self { slicing, newcomers: Newcomers::default() })
    }

    /// A host of each of these slices, with an address in its box.
    pub(crate) fn come(&mut self, cluster: &ClusterLab, slices: &[u16]) -> anyhow::Result<Vec<Subscriber>> {
        let mut come = Vec::new();
        for slice in slices {
            let slicing = self.slicing;
            let host = self.newcomers.of_slice(*slice, |address| slicing.of_subscriber(&key_of(address)));
            let host = host.with_context(|| format!("slice {slice} has no more hosts in the lab"))?;
            cluster.settle(&host)?;
            come.push(host);
        }
        Ok(come)
    }
}

/// A flow of each host.
pub(crate) fn flows(cluster: &ClusterLab, hosts: &[Subscriber]) -> anyhow::Result<Vec<Flow>> {
    hosts.iter().map(|host| Ok(cluster.flow(host)?)).collect()
}

/// The key by which a host alone is a subscriber.
fn key_of(address: IpAddr) -> SubscriberKey {
    match address {
        IpAddr::V4(address) => SubscriberKey { ipv4: address.octets(), ..SubscriberKey::default() },
        IpAddr::V6(address) => SubscriberKey { ipv6: address.octets(), ..SubscriberKey::default() },
    }
}
