//! What an operator wants of a cluster in etcd: it is checked, written, and waited for.

use std::path::Path;
use std::time::{Duration, Instant};

use tombolo_cluster::etcd::{Etcd, Shape, Wanted, found, read_all, want};
use tombolo_cluster::ownership::{Epoch, NodeState};
use tombolo_config::Configuration;

use super::overview::{Condition, Overview, OverviewError, SliceStatus, etcd_in};

/// From one look at how it stands to the next.
const PAUSE: Duration = Duration::from_millis(300);

/// A cluster, as an operator speaks with it.
#[derive(Debug)]
pub struct Operator {
    etcd: Etcd,
    shape: Shape,
    /// The names of the nodes in the file.
    nodes: Vec<String>,
}

/// Whether what is wanted is so, or what there is instead.
type Progress = Result<(), String>;

impl Operator {
    /// Of the cluster that a file describes.
    ///
    /// # Errors
    /// [`OverviewError`].
    pub fn of(file: &Path, configuration: &Configuration) -> Result<Self, OverviewError> {
        let etcd = etcd_in(file, configuration)?;
        let nodes = configuration.host.cluster.iter().flat_map(|cluster| &cluster.nodes);
        let nodes = nodes.map(|node| node.name.clone()).collect();
        Ok(Self { shape: found(&etcd)?, etcd, nodes })
    }

    /// How the cluster stands.
    ///
    /// # Errors
    /// [`OverviewError::Etcd`].
    pub fn look(&self) -> Result<Overview, OverviewError> {
        Ok(Overview::of(self.shape.slices, &read_all(&self.etcd)?))
    }

    /// A node is to give its slices away, and to take none.
    ///
    /// # Errors
    /// [`OverviewError`]: above all if nobody could take them.
    pub fn drain(&self, node: &str) -> Result<(), OverviewError> {
        self.check_node(node)?;
        let overview = self.look()?;
        if !overview.nodes.iter().any(|other| other.node != node && takes_slices(&overview, &other.node)) {
            let why = format!("no node but {node} takes slices: start another one, or undrain one");
            return Err(OverviewError::Nowhere(why));
        }
        Ok(want(&self.etcd, &Wanted::Drain(node.to_owned(), true))?)
    }

    /// A node is to have its share again.
    ///
    /// # Errors
    /// [`OverviewError`].
    pub fn undrain(&self, node: &str) -> Result<(), OverviewError> {
        self.check_node(node)?;
        Ok(want(&self.etcd, &Wanted::Drain(node.to_owned(), false))?)
    }

    /// Nothing is to move for the sake of balance, or what is uneven is to be shared out again.
    ///
    /// # Errors
    /// [`OverviewError::Etcd`].
    pub fn hold(&self, is_wanted: bool) -> Result<(), OverviewError> {
        Ok(want(&self.etcd, &Wanted::Hold(is_wanted))?)
    }

    /// A slice is to be a node's, or of whoever has room.
    ///
    /// # Errors
    /// [`OverviewError`]: above all if that node takes none.
    pub fn pin(&self, slice: u16, node: Option<&str>) -> Result<(), OverviewError> {
        self.check_slice(slice)?;
        if let Some(node) = node {
            self.check_node(node)?;
            if !takes_slices(&self.look()?, node) {
                let why = format!("{node} takes no slices: it is not there, does not serve, or is to be drained");
                return Err(OverviewError::Nowhere(why));
            }
        }
        Ok(want(&self.etcd, &Wanted::Pin(slice, node.map(str::to_owned)))?)
    }

    /// Owners and backups of these slices are gone for good: others take them, with empty tables.
    ///
    /// # Errors
    /// [`OverviewError::Served`], if one of them is not vacant.
    pub fn assume(&self, slices: &[u16]) -> Result<(), OverviewError> {
        let overview = self.look()?;
        let mut assumed = Vec::new();
        for slice in slices {
            self.check_slice(*slice)?;
            let status = overview.slice(*slice).filter(|status| status.owner.is_some());
            let Some(SliceStatus { status, epoch, reason, .. }) = status else { continue };
            if *status != Condition::Vacant {
                return Err(OverviewError::Served(*slice, reason.clone()));
            }
            assumed.push((*slice, Epoch(*epoch)));
        }
        Ok(want(&self.etcd, &Wanted::Assume(assumed))?)
    }

    /// Waits until a node owns nothing, and has no copies, if others can have them.
    ///
    /// # Errors
    /// [`OverviewError::Late`].
    pub fn wait_until_drained(&self, node: &str, wait: Waiting<'_>) -> Result<(), OverviewError> {
        self.wait(wait, |overview| {
            let Some(status) = overview.nodes.iter().find(|status| status.node == node) else { return Ok(()) };
            let others = overview.nodes.iter().filter(|other| takes_slices(overview, &other.node)).count();
            match (status.owns, status.backs_up) {
                (0, backs_up) if backs_up == 0 || others < 2 => Ok(()),
                (0, backs_up) => Err(format!("{node} owns nothing, and has copies of {backs_up} slices")),
                (owns, _) => Err(format!("{node} owns {owns} slices")),
            }
        })
    }

    /// Waits until no slice is to move.
    ///
    /// # Errors
    /// [`OverviewError::Late`].
    pub fn wait_until_balanced(&self, wait: Waiting<'_>) -> Result<(), OverviewError> {
        self.wait(wait, |overview| match (overview.moves, overview.status) {
            (0, Condition::Protected | Condition::Single) => Ok(()),
            (0, _) => Err(overview.reason.clone()),
            (moves, _) if overview.is_held => {
                Err(format!("{moves} slices are to move, and are held: run `tombolo cluster release`"))
            }
            (moves, _) => Err(format!("{moves} slices move next")),
        })
    }

    /// Waits until a slice has this owner.
    ///
    /// # Errors
    /// [`OverviewError::Late`].
    pub fn wait_until_owned(&self, slice: u16, node: &str, wait: Waiting<'_>) -> Result<(), OverviewError> {
        self.wait(wait, |overview| {
            let status = overview.slice(slice);
            let owner = status.and_then(|status| status.owner.as_deref());
            let backup = status.and_then(|status| status.backup.as_deref()).unwrap_or("nobody");
            match owner {
                Some(owner) if owner == node => Ok(()),
                owner => Err(format!("slice {slice} is {}'s, its copy is at {backup}", owner.unwrap_or("nobody"))),
            }
        })
    }

    /// Waits until slices are served.
    ///
    /// # Errors
    /// [`OverviewError::Late`].
    pub fn wait_until_served(&self, slices: &[u16], wait: Waiting<'_>) -> Result<(), OverviewError> {
        self.wait(wait, |overview| {
            let is_vacant = |slice: &&u16| overview.slice(**slice).is_none_or(|it| it.status == Condition::Vacant);
            match slices.iter().filter(is_vacant).count() {
                0 => Ok(()),
                vacant => Err(format!("{vacant} slices are vacant")),
            }
        })
    }

    fn wait(
        &self,
        Waiting { limit, say }: Waiting<'_>,
        progress: impl Fn(&Overview) -> Progress,
    ) -> Result<(), OverviewError> {
        let (began, mut said) = (Instant::now(), String::new());
        loop {
            let Err(stands) = progress(&self.look()?) else { return Ok(()) };
            if began.elapsed() >= limit {
                return Err(OverviewError::Late(limit.as_secs(), stands));
            }
            if stands != said {
                say(&stands);
                said = stands;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn check_node(&self, node: &str) -> Result<(), OverviewError> {
        let is_known = self.nodes.iter().any(|known| known == node);
        if is_known { Ok(()) } else { Err(OverviewError::Node(node.to_owned(), self.nodes.join(", "))) }
    }

    fn check_slice(&self, slice: u16) -> Result<(), OverviewError> {
        if slice < self.shape.slices { Ok(()) } else { Err(OverviewError::Slice(slice, self.shape.slices)) }
    }
}

/// How long is waited, and where it is said how it stands.
#[derive(Clone, Copy)]
pub struct Waiting<'a> {
    /// So long at most.
    pub limit: Duration,
    /// How it stands, whenever that is news.
    pub say: &'a dyn Fn(&str),
}

fn takes_slices(overview: &Overview, node: &str) -> bool {
    let status = overview.nodes.iter().find(|status| status.node == node);
    status.is_some_and(|status| status.state == NodeState::Serving && status.drain.is_none())
}
