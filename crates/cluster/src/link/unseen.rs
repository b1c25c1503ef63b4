//! What a node says whose routes lead to another one no more, though the two hear each other. That one may not know: a routing daemon that
//! was killed leaves its host all routes that it had, and nobody else any.
//!
//! It is said again and again as long as it is so, on whatever connection there is between the two; nobody acknowledges it.

use std::time::{Duration, Instant};

use tombolo_engine::cluster::Cluster;

use super::ends::say;
use super::frame::Frame;
use super::standing::Standings;
use super::stream::{Stream, StreamError};

/// How often it is said.
const AGAIN: Duration = Duration::from_millis(100);

/// When it was said last on one connection.
#[derive(Debug, Default)]
pub(super) struct Unseen(Option<Instant>);

/// Whether a node is to hear that the routes have lost it. A node that does not serve may be the one that is lost; and where nodes have agreed on
/// owners by a file, none could take over.
pub(super) fn is_unseen(node: u8, cluster: &Cluster) -> bool {
    cluster.is_agreed() && cluster.is_connected() && !cluster.reaches(node.into())
}

impl Unseen {
    /// Tells the other end, the node with this number, if it is so, and time to.
    pub(super) fn tell(&mut self, node: u8, cluster: &Cluster, stream: &mut Stream) -> Result<(), StreamError> {
        let is_due = self.0.is_none_or(|at| at.elapsed() >= AGAIN);
        if !is_due || !is_unseen(node, cluster) || !stream.has_room() {
            return Ok(());
        }
        self.0 = Some(Instant::now());
        say(stream, &Frame::Unseen)
    }
}

/// Notes what a node says.
pub(super) fn hear(standings: &Standings, node: u8) {
    standings.change(node, |copying| copying.unseen = Some(Instant::now()));
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use tombolo_engine::cluster::{Holders, Node};

    use super::*;

    #[test]
    fn a_node_that_serves_tells_those_that_its_routes_have_lost() {
        let node = |name: &str| Node { name: name.to_owned(), locator: Ipv6Addr::LOCALHOST };
        let slices = vec![Holders { owner: 0, backup: Some(1) }; 4];
        let by_file = Cluster::new(vec![node("n1"), node("n2"), node("n3")], 0).unwrap().with_slices(slices);
        by_file.set_connected(true);
        by_file.set_reached(|_| false);
        assert!(!is_unseen(1, &by_file), "nobody could take its slices over");
        let cluster = by_file.with_agreement();
        cluster.set_reached(|node| node != 1);
        cluster.set_connected(false);
        assert!(!is_unseen(1, &cluster), "this node may be the one that is lost");
        cluster.set_connected(true);
        assert_eq!([1, 2].map(|node| is_unseen(node, &cluster)), [true, false]);
    }
}
