//! A node of a cluster of two, which has all slices, or none and redirects to the other one, in the server's place.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_engine::cluster::{Cluster, Holders, Node};
use tombolo_engine::mapping::pool::Pool;
use tombolo_engine::mapping::slices::{PoolSlices, Slicing};
use tombolo_generator::FrameKind;
use tombolo_lab::Lab;
use tombolo_tester::gateway::TestFrames;

use crate::contender::Kind;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SLICES: u16 = 32;
const LOCATORS: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 0xc1, 1, 0, 0, 0, 0), Ipv6Addr::new(0x2001, 0xdb8, 0xc1, 2, 0, 0, 0, 0)];

/// The cluster, as its first node sees it.
pub(crate) fn cluster(kind: Kind) -> Option<Arc<Cluster>> {
    let owner = if kind == Kind::Nat44Elsewhere { 1 } else { 0 };
    let nodes = LOCATORS.map(|locator| Node { name: locator.to_string(), locator });
    let holders = vec![Holders { owner, backup: None }; SLICES.into()];
    let cluster = Cluster::new(nodes.to_vec(), 0).filter(|_| kind.has_slices())?.with_slices(holders);
    cluster.set_serving(|_| true);
    Some(Arc::new(cluster))
}

/// The pool, cut into slices.
pub(crate) fn cut(pool: Pool) -> Pool {
    let ranges: Vec<_> = pool.ranges().iter().map(|range| (range.first, range.last)).collect();
    pool.with_slices(PoolSlices::new(Slicing::new([1, 2, 3, 4], SLICES).unwrap(), ranges))
}

/// What comes to the server is what was redirected.
pub(crate) fn lead_elsewhere(lab: &Lab, setup: &mut TestFrames) -> Result<()> {
    let words = ["-6", "route", "add", "2001:db8:c1:2::/64", "via", "2001:db8:2::2"];
    lab.node("gateway")?.command("ip").args(words).run()?.success()?;
    setup.right = FrameKind::Ipv4InIpv6;
    let [own, other] = LOCATORS;
    let ipv4 = |address: [u8; 16]| [address[0], address[1], address[2], address[3]];
    for host in &mut setup.a {
        (host.right, host.right_inner) = (own.octets(), ipv4(host.left));
    }
    for host in &mut setup.b {
        (host.right, host.right_inner) = ((other.to_bits() | 1).to_be_bytes(), ipv4(host.left));
    }
    assert!(setup.b.iter().all(|host| !Ipv4Addr::from(host.right_inner).is_unspecified()));
    Ok(())
}
