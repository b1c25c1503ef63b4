//! Whether the network between the nodes of a cluster carries what they redirect: a packet of full size in a header
//! more. Where it does not, what is redirected whole stands still, and nobody hears of it.
//!
//! Each node that serves is asked to send back a small echo and one of full size, at its locator, where its gateway
//! answers. Who answers the small one alone is behind a path that is too narrow.

use std::io;
use std::time::{Duration, Instant};

use tombolo_engine::cluster::Node;
use tombolo_io::path_probe::{Echoed, PathProbe};

/// Bytes of the small echo.
const SMALL: u16 = 100;
/// How long an echo may take. Nodes are at one site.
const PATIENCE: Duration = Duration::from_millis(100);
/// From one look at the same nodes to the next, and to the next where one was lost.
const PERIOD: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(200);
/// So many full ones in a row are lost on a narrow path; one may be on any.
const IN_A_ROW: u8 = 3;

/// The paths to the other nodes.
#[derive(Debug)]
pub(crate) struct CorePaths {
    /// None where the process may not have such a socket.
    probe: Option<PathProbe>,
    /// Bytes of a full packet.
    size: u16,
    /// Of the last requests.
    number: u16,
    /// By number of the node.
    lost: Vec<u8>,
    /// Who was asked last, and when to ask the same ones again.
    asked: Vec<usize>,
    due: Instant,
}

/// Which echoes of a node came back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Echoes {
    small: bool,
    full: bool,
}

impl CorePaths {
    /// Paths to so many nodes, which are to carry packets of `size` bytes.
    pub(crate) fn open(nodes: usize, size: u16) -> Self {
        let probe = PathProbe::open();
        if let Err(error) = &probe {
            tracing::warn!(
                "nobody tries whether the network between the nodes carries {size} bytes: a raw socket: {error}"
            );
        }
        Self { probe: probe.ok(), size, number: 0, lost: vec![0; nodes], asked: Vec::new(), due: Instant::now() }
    }

    /// Bytes of a full packet.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Asks the nodes that `serve`, and waits for them; unless they were asked just now.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn look(&mut self, nodes: &[Node], serve: impl Fn(usize) -> bool) -> io::Result<()> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let asked: Vec<usize> = (0..nodes.len()).filter(|number| serve(*number)).collect();
        if Instant::now() < self.due && asked.iter().all(|node| self.asked.contains(node)) {
            return Ok(());
        }
        self.number = self.number.wrapping_add(1);
        let mut came = vec![Echoes::default(); nodes.len()];
        for node in &asked {
            // Nobody there, or no way: the routes say that.
            let _ = probe.ask(nodes[*node].locator, SMALL, self.number);
            let _ = probe.ask(nodes[*node].locator, self.size, self.number);
        }
        let deadline = Instant::now() + PATIENCE;
        while asked.iter().any(|node| came[*node] != Echoes { small: true, full: true }) && probe.wait(deadline)? {
            while let Some(echoed) = probe.echoed()? {
                self.note(nodes, echoed, &mut came);
            }
        }
        for (node, lost) in self.lost.iter_mut().enumerate() {
            *lost = if asked.contains(&node) { lost_after(*lost, came[node]) } else { 0 };
        }
        self.asked = asked;
        self.due = Instant::now() + if self.are_in_doubt() { SOON } else { PERIOD };
        Ok(())
    }

    fn note(&self, nodes: &[Node], Echoed { from, number, size }: Echoed, came: &mut [Echoes]) {
        let node = nodes.iter().position(|node| node.locator == from).filter(|_| number == self.number);
        if let Some(echoes) = node.and_then(|node| came.get_mut(node)) {
            echoes.small |= size == usize::from(SMALL);
            echoes.full |= size == usize::from(self.size);
        }
    }

    /// The nodes behind paths that are too narrow.
    pub(crate) fn narrow(&self) -> impl Iterator<Item = usize> {
        (0..self.lost.len()).filter(|node| self.lost[*node] >= IN_A_ROW)
    }

    /// True if it is not known of each path yet.
    pub(crate) fn are_in_doubt(&self) -> bool {
        self.lost.iter().any(|lost| (1..IN_A_ROW).contains(lost))
    }
}

/// How many full echoes in a row were lost, with these: a node that answers neither says nothing of the path.
fn lost_after(before: u8, echoes: Echoes) -> u8 {
    match echoes {
        Echoes { full: true, .. } => 0,
        Echoes { small: true, .. } => before.saturating_add(1),
        Echoes { .. } => before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_narrow_when_small_ones_alone_come_back_again_and_again() {
        let echoes = |small, full| Echoes { small, full };
        let after = |all: &[Echoes]| all.iter().fold(0, |lost, echoes| lost_after(lost, *echoes));
        assert_eq!(after(&[echoes(true, false); 3]), IN_A_ROW);
        assert_eq!(after(&[echoes(true, false), echoes(false, false), echoes(true, false)]), 2);
        assert_eq!(after(&[echoes(true, false), echoes(true, false), echoes(false, true)]), 0);
        assert_eq!(after(&[echoes(true, false); 300]), u8::MAX);
    }
}
