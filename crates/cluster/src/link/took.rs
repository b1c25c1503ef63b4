//! What a node says that took slices over from another one, which may not know. That one hears it on whatever connection there is
//! between the two, so that it leaves its slices to their new owner also where etcd does not hear it.
//!
//! It is said as long as the other one may not know, at once and then again and again: nobody acknowledges it.

use std::time::{Duration, Instant};

use tombolo_engine::cluster::Cluster;

use super::ends::say;
use super::frame::Frame;
use super::standing::Standings;
use super::stream::{Stream, StreamError};
use super::taken::Taken;

/// How often it is said again.
const AGAIN: Duration = Duration::from_millis(100);

/// What was said on one connection.
#[derive(Debug, Default)]
pub(super) struct Told {
    taken: Vec<Taken>,
    at: Option<Instant>,
}

/// It took over what there is not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it says that it took over slice {0}, which this cluster does not have; is it a node of another one?")]
pub(super) struct UnknownSlice(u16);

impl Told {
    /// Tells the other end, the node with this number, which of its slices this node has, if it is time to.
    pub(super) fn tell(&mut self, node: u8, cluster: &Cluster, stream: &mut Stream) -> Result<(), StreamError> {
        if !cluster.has_deposed(node) || !stream.has_room() {
            return Ok(());
        }
        let taken = || cluster.taken_from(node).map(|(slice, epoch)| Taken { slice, epoch });
        let is_due = self.at.is_none_or(|at| at.elapsed() >= AGAIN);
        if !is_due && taken().eq(self.taken.iter().copied()) {
            return Ok(());
        }
        *self = Self { taken: taken().collect(), at: Some(Instant::now()) };
        if self.taken.is_empty() { Ok(()) } else { say(stream, &Frame::Took(self.taken.clone())) }
    }
}

/// Notes what a node says.
pub(super) fn hear(standings: &Standings, node: u8, taken: Vec<Taken>, cluster: &Cluster) -> Result<(), UnknownSlice> {
    match taken.iter().find(|taken| !cluster.slices().contains(&taken.slice)) {
        Some(unknown) => Err(UnknownSlice(unknown.slice)),
        None => {
            standings.note_taken(node, taken);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv6Addr;

    use tombolo_engine::cluster::{Holders, Node};

    use super::*;

    #[test]
    fn the_last_word_of_each_node_is_kept_and_none_of_slices_that_there_are_not() {
        let node = |name: &str| Node { name: name.to_owned(), locator: Ipv6Addr::LOCALHOST };
        let slices = vec![Holders { owner: 0, backup: Some(1) }; 4];
        let cluster = Cluster::new(vec![node("n1"), node("n2"), node("n3")], 0).unwrap().with_slices(slices);
        let standings = Standings::of(3);
        let taken = |slice, epoch| Taken { slice, epoch };
        assert_eq!(hear(&standings, 1, vec![taken(0, 2)], &cluster), Ok(()));
        assert_eq!(hear(&standings, 1, vec![taken(0, 2), taken(3, 2)], &cluster), Ok(()));
        assert_eq!(hear(&standings, 2, vec![taken(1, 5)], &cluster), Ok(()));
        assert_eq!(hear(&standings, 2, vec![taken(1, 6), taken(4, 6)], &cluster), Err(UnknownSlice(4)));
        let last = BTreeMap::from([(1, vec![taken(0, 2), taken(3, 2)]), (2, vec![taken(1, 5)])]);
        assert_eq!((standings.take_taken(), standings.take_taken()), (last, BTreeMap::new()));
    }
}
