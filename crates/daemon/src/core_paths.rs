//! Whether the network between the nodes of a cluster carries what they redirect: a packet of full size in a header
//! more. Where it does not, what is redirected whole stands still, and nobody hears of it.
//!
//! Each node that serves is asked to send back a small echo and one of full size, at its locator, where its gateway
//! answers. Who answers the small one alone is behind a path that is too narrow. A node that starts announces nothing before
//! it knows, unless there is nobody to ask: whoever is left alone has to serve.
//!
//! Where no node serves, those whose hosts are there may be starting as well, and each would wait for another one to serve: so they are
//! asked, and a gateway answers that announces nothing yet. Such an answer may end the waiting, and never prolongs it.

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
/// So often in a row a node is asked in vain, about three seconds: its gateway may be dead and its route not gone yet, or
/// its host be busy.
const IN_VAIN: u8 = 10;
/// How long a node that starts looks for others that it can try the network with, from when it has its routes: sessions
/// of BGP come up one after the other, some seconds apart.
const ALONE: Duration = Duration::from_secs(5);

/// The paths to the other nodes.
#[derive(Debug)]
pub(crate) struct CorePaths {
    /// None where the process may not have such a socket.
    probe: Option<PathProbe>,
    /// Bytes of a full packet.
    size: u16,
    /// Of the last requests.
    number: u16,
    /// By number of the node; none to those that were not asked last.
    paths: Vec<Option<Path>>,
    /// None of those that were asked last serves.
    are_starting: bool,
    /// When to ask the same ones again.
    due: Instant,
}

/// As what a node is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It serves.
    Serving,
    /// Its host is there: its gateway may be starting.
    Starting,
}

/// What is known of the paths to all nodes that serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// They carry full packets, as far as there is an answer.
    Wide,
    /// One of them does not.
    Narrow,
    /// Not of each yet.
    Doubtful,
    /// Nothing: no node serves, or none answers.
    Nothing,
}

/// The path to a node that was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Path {
    has_answered: bool,
    /// Full echoes in a row that were lost where the small ones came back.
    lost: u8,
    /// How often in a row nothing came back.
    in_vain: u8,
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
        let (paths, due) = (vec![None; nodes], Instant::now());
        Self { probe: probe.ok(), size, number: 0, paths, are_starting: false, due }
    }

    /// Bytes of a full packet.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Asks nodes, and waits for them; unless they were asked just now. Those that start are asked where none serves.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn look(&mut self, nodes: &[Node], asked: impl Fn(usize) -> Option<Asked>) -> io::Result<()> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let all = |wanted| (0..nodes.len()).filter(|number| asked(*number) == Some(wanted)).collect::<Vec<usize>>();
        let serving = all(Asked::Serving);
        self.are_starting = serving.is_empty();
        let asked = if self.are_starting { all(Asked::Starting) } else { serving };
        if Instant::now() < self.due && asked.iter().all(|node| self.paths[*node].is_some()) {
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
        for (node, path) in self.paths.iter_mut().enumerate() {
            *path = asked.contains(&node).then(|| path.unwrap_or_default().after(came[node]));
        }
        let is_waited_for = self.known() == Known::Doubtful || self.are_starting && !asked.is_empty();
        self.due = Instant::now() + if is_waited_for { SOON } else { PERIOD };
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
        (0..self.paths.len()).filter(|node| self.paths[*node].is_some_and(|path| path.is_narrow()))
    }

    /// What is known of all of them.
    pub(crate) fn known(&self) -> Known {
        let paths = self.paths.iter().flatten();
        match self.probe {
            // Who cannot try them does not wait for what he will not know.
            None => Known::Wide,
            Some(_) if self.are_starting => Known::of_starting(paths),
            Some(_) => Known::of(paths),
        }
    }
}

impl Known {
    fn of<'p>(paths: impl Iterator<Item = &'p Path> + Clone) -> Self {
        if paths.clone().any(Path::is_narrow) {
            Self::Narrow
        } else if paths.clone().any(Path::is_in_doubt) {
            Self::Doubtful
        } else if paths.clone().any(|path| path.has_answered) {
            Self::Wide
        } else {
            Self::Nothing
        }
    }

    /// Where none of them serves yet, and may never.
    fn of_starting<'p>(paths: impl Iterator<Item = &'p Path> + Clone) -> Self {
        let is_wide = |path: &Path| path.has_answered && path.lost == 0;
        if paths.clone().any(is_wide) && !paths.clone().any(Path::is_narrow) { Self::Wide } else { Self::Nothing }
    }
}

impl Path {
    /// With these echoes. A node that answers neither says nothing of the path.
    fn after(self, echoes: Echoes) -> Self {
        match echoes {
            Echoes { full: true, .. } => Self { has_answered: true, lost: 0, in_vain: 0 },
            Echoes { small: true, .. } => Self { has_answered: true, lost: self.lost.saturating_add(1), in_vain: 0 },
            Echoes { .. } => Self { in_vain: self.in_vain.saturating_add(1), ..self },
        }
    }

    fn is_narrow(&self) -> bool {
        self.lost >= IN_A_ROW
    }

    fn is_in_doubt(&self) -> bool {
        let is_known = self.has_answered && !(1..IN_A_ROW).contains(&self.lost);
        !is_known && self.in_vain < IN_VAIN
    }
}

/// Whether a node that starts has tried what it can.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// Since when nothing else is in the way.
    since: Option<Instant>,
}

impl Trial {
    /// True if the node may announce its services, of which this is known, and which has the routes that it needs.
    pub(crate) fn allows(&mut self, known: Known, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        match known {
            Known::Wide => true,
            Known::Narrow | Known::Doubtful => false,
            Known::Nothing => now.saturating_duration_since(since) >= ALONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(all: &[(bool, bool)]) -> Path {
        all.iter().fold(Path::default(), |path, (small, full)| path.after(Echoes { small: *small, full: *full }))
    }

    #[test]
    fn a_path_is_narrow_when_small_ones_alone_come_back_again_and_again() {
        assert!(after(&[(true, false); 3]).is_narrow());
        let twice = after(&[(true, false), (false, false), (true, false)]);
        assert!(!twice.is_narrow() && twice.is_in_doubt());
        let wide = after(&[(true, false), (true, false), (false, true)]);
        assert!(!wide.is_narrow() && !wide.is_in_doubt());
        assert_eq!(after(&[(true, false); 300]).lost, u8::MAX);
    }

    #[test]
    fn a_node_that_does_not_answer_is_in_doubt_and_not_for_ever() {
        let silent = [(false, false); IN_VAIN as usize];
        assert!(Path::default().is_in_doubt() && after(&silent[1..]).is_in_doubt());
        assert!(!after(&silent).is_in_doubt() && !after(&[&[(true, false)][..], &silent].concat()).is_in_doubt());
        assert!(!after(&[(true, true), (false, false)]).is_in_doubt());
    }

    #[test]
    fn a_node_announces_nothing_before_it_has_tried_the_paths_and_alone_it_serves() {
        let silent = after(&[(false, false); IN_VAIN as usize]);
        let [fresh, narrow, wide] = [after(&[]), after(&[(true, false); 3]), after(&[(true, true)])];
        let known = |paths: &[Path]| Known::of(paths.iter());
        assert_eq!([known(&[]), known(&[silent])], [Known::Nothing; 2]);
        assert_eq!([known(&[wide, fresh]), known(&[silent, fresh])], [Known::Doubtful; 2]);
        assert_eq!([known(&[wide, narrow]), known(&[wide, silent])], [Known::Narrow, Known::Wide]);

        // All start at once: whoever answers ends the waiting, and nobody prolongs it.
        let known = |paths: &[Path]| Known::of_starting(paths.iter());
        assert_eq!([known(&[wide, fresh]), known(&[silent, wide])], [Known::Wide; 2]);
        let in_doubt = after(&[(true, false)]);
        for paths in [&[fresh, silent][..], &[in_doubt], &[narrow], &[wide, narrow], &[]] {
            assert_eq!(known(paths), Known::Nothing, "{paths:?}");
        }

        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        // The others' routes are gone when it starts, and come back.
        let mut trial = Trial::default();
        assert!(!trial.allows(Known::Nothing, at(0)) && !trial.allows(Known::Nothing, at(4)));
        assert!(!trial.allows(Known::Doubtful, at(5)) && !trial.allows(Known::Narrow, at(100)));
        assert!(trial.allows(Known::Wide, at(101)));
        // Nobody else is there, or answers.
        for first in [Known::Nothing, Known::Doubtful] {
            let mut trial = Trial::default();
            assert!(!trial.allows(first, at(0)) && !trial.allows(Known::Nothing, at(4)));
            assert!(trial.allows(Known::Nothing, at(5)));
        }
    }
}
