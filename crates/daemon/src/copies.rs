//! Copies of the tables at other nodes of the cluster, and of theirs here: the threads that keep them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
#[cfg(feature = "cluster")]
use std::{
    collections::BTreeMap,
    sync::{PoisonError, mpsc},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tombolo_cluster::link::{self, Copying, Incoming, Outgoing, Promises, Returns, Standings, Surroundings, Terms};
use tombolo_cluster::replica::Sender;
#[cfg(feature = "cluster")]
use tombolo_cluster::{
    link::{CopyingState, Successor, Taken},
    ownership::{CopyState, Event},
    replica::{To, View},
};
use tombolo_config::{Cluster, Replication};
use tombolo_engine::{Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::worker::StopSignal;
use tombolo_tables::Tables;
use tombolo_tables::tick::Tick;

use crate::error::DaemonError;
use crate::health::Health;
use crate::threads::{self, Guarded};

/// A copy that is behind by more, in microseconds, is not near,
#[cfg(feature = "cluster")]
const LAGGING: u64 = 50_000;
/// and one that is behind by more than this is none.
#[cfg(feature = "cluster")]
const LOST: u64 = 1_000_000;
/// Nor is one at a node that says nothing for so long, which vouches four times a second, or at least says once a second that it is alive;
#[cfg(feature = "cluster")]
const SILENT: Duration = Duration::from_millis(1500);
/// or for so long, where the routes say as well that its host is gone.
#[cfg(feature = "cluster")]
const QUIET: Duration = Duration::from_millis(600);

/// What is kept, before and after its threads run.
#[derive(Debug)]
pub(crate) struct Copies {
    incoming: Arc<Incoming>,
    outgoing: Arc<Outgoing>,
    standings: Arc<Standings>,
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "nobody agrees on owners in such a build"))]
    promises: Arc<Promises>,
    listener: TcpListener,
    /// Number, name and address of each backup.
    backups: Vec<(u8, String, SocketAddr)>,
}

/// The running threads.
#[derive(Debug)]
pub(crate) struct CopyThreads(Vec<JoinHandle<()>>);

#[derive(Debug)]
struct Around {
    plan: Arc<ArcSwap<Plan>>,
    promises: Arc<Promises>,
    stop: StopSignal,
}

impl Surroundings for Around {
    fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    fn now(&self) -> Tick {
        Now(monotonic_nanos()).tick()
    }

    fn is_over(&self) -> bool {
        self.stop.is_given()
    }

    fn promises(&self) -> Option<&Promises> {
        Some(&self.promises)
    }
}

impl Copies {
    /// Prepares them, where the file asks for some; the node listens from now on. Where the tables are fresh, backups are
    /// asked for what they have.
    ///
    /// # Errors
    /// [`DaemonError::Failed`]: certificates, or the address to listen at.
    pub(crate) fn prepare(
        cluster: Option<&Cluster>,
        plan: &Arc<ArcSwap<Plan>>,
        (tables, is_fresh): (&Arc<Tables>, bool),
        stop: StopSignal,
    ) -> Result<Option<Arc<Self>>, DaemonError> {
        let Some((cluster, replication)) = cluster.and_then(|cluster| Some((cluster, cluster.replication.as_ref()?)))
        else {
            return Ok(None);
        };
        let Replication { addresses, port, ca, identity } = replication;
        let unusable = |error: &dyn std::fmt::Display| DaemonError::Failed(format!("cluster.replication: {error}"));
        let terms = Terms::new(ca, &identity.certificate, &identity.key).map_err(|error| unusable(&error))?;
        let own = addresses.get(cluster.own).copied().unwrap_or(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED));
        let listener = TcpListener::bind((own, *port)).map_err(|error| {
            let what = format!("nobody can connect to {own}, port {port} ({error}); give this host the address");
            unusable(&what)
        })?;
        let standings = Arc::new(Standings::of(cluster.nodes.len()));
        let promises = Arc::<Promises>::default();
        let around: Arc<dyn Surroundings> =
            Arc::new(Around { plan: Arc::clone(plan), promises: Arc::clone(&promises), stop });
        let sender = Arc::new(Mutex::new(Sender::new(Arc::clone(tables))));
        let incoming = Incoming::new(
            terms.clone(),
            Arc::clone(tables),
            Arc::clone(&sender),
            Arc::clone(&standings),
            Arc::clone(&around),
        );
        let backups = backups(cluster, addresses, *port);
        // A node that has lost its tables owns nothing before it is agreed on that it does.
        let returns = if is_fresh && cluster.etcd.is_none() {
            Returns::from(backups.iter().map(|(node, ..)| *node))
        } else {
            Returns::none()
        };
        let outgoing = Outgoing {
            terms,
            sender,
            returns,
            incarnation: getrandom::u64().map_err(|error| unusable(&error))?,
            capacity: (tables.subscribers.capacity(), tables.bindings.capacity()),
            standings: Arc::clone(&standings),
            around,
        };
        Ok(Some(Arc::new(Self {
            incoming: Arc::new(incoming),
            outgoing: Arc::new(outgoing),
            standings,
            promises,
            listener,
            backups,
        })))
    }

    /// Starts the threads; they end when the stop signal is given.
    ///
    /// # Errors
    /// If there are no more threads.
    pub(crate) fn start(self: &Arc<Self>, health: &Arc<Health>, stop: &StopSignal) -> io::Result<CopyThreads> {
        let guarded = |name| Guarded { name, stop: stop.clone(), health: Arc::clone(health) };
        let mut threads = Vec::new();
        for (node, name, address) in self.backups.clone() {
            let copies = Arc::clone(self);
            let send = move || link::send(&copies.outgoing, node, &name, address);
            threads.push(threads::spawn(guarded("copy-to"), send)?);
        }
        let (copies, of_each) = (Arc::clone(self), guarded("copy-from"));
        let receive = move || {
            let spawn = |serve: Box<dyn FnOnce() + Send>| threads::spawn(of_each.clone(), serve).map(drop);
            if let Err(error) = link::receive(&copies.incoming, &copies.listener, &spawn) {
                tracing::error!("no other node's bindings are copied here: {error}");
            }
        };
        threads.push(threads::spawn(guarded("copies"), receive)?);
        Ok(CopyThreads(threads))
    }

    /// Whether there is a copy of all that a node has.
    pub(crate) fn has(&self, node: usize) -> bool {
        u8::try_from(node).is_ok_and(|node| self.incoming.has_copy(node))
    }

    /// Whether there is a whole copy of a slice that a node owns as of this epoch.
    #[cfg(feature = "cluster")]
    pub(crate) fn holds(&self, slice: u16, node: u8, epoch: u32) -> bool {
        self.incoming.holds(slice, node, epoch)
    }

    /// A slice was handed over to a node, which owns it as of this epoch: what there is of it is a whole copy until that one's takes its place.
    #[cfg(feature = "cluster")]
    pub(crate) fn keep(&self, slice: u16, node: u8, epoch: u32) {
        self.incoming.keep(slice, node, epoch);
    }

    /// Whether what there is of a slice was kept so, as of this epoch.
    #[cfg(feature = "cluster")]
    pub(crate) fn keeps(&self, slice: u16, epoch: u32) -> bool {
        self.incoming.keeps(slice, epoch)
    }

    /// What there was of some slices is here no more.
    #[cfg(feature = "cluster")]
    pub(crate) fn lose(&self, is_lost: impl Fn(u16) -> bool) {
        self.incoming.lose(is_lost);
    }

    /// Who has said since the last time that it owns a slice which this node hands over to it.
    #[cfg(feature = "cluster")]
    pub(crate) fn take_successors(&self) -> Vec<Successor> {
        self.incoming.take_successors()
    }

    /// Whether this node's tables were lost, and what others have of them is not back yet: it does not serve meanwhile.
    pub(crate) fn are_awaited(&self) -> bool {
        self.outgoing.returns.are_awaited()
    }

    /// How the copy of this node's slices stands at a node.
    #[cfg(feature = "cluster")]
    pub(crate) fn state_at(&self, node: u8) -> CopyState {
        let copying = self.standings().into_iter().nth(node.into()).unwrap_or_default();
        let plan = self.outgoing.around.plan();
        // Who reaches nobody may be cut off itself.
        let is_reached =
            plan.cluster.as_deref().is_none_or(|cluster| cluster.reaches(node.into()) || cluster.is_alone());
        let silence = copying.heard.map_or(Duration::MAX, |heard| heard.elapsed());
        if let Some(broken) = broken(&copying, silence, is_reached) {
            return broken;
        }
        let to = To::Backup(node);
        let sender = self.outgoing.sender.lock().unwrap_or_else(PoisonError::into_inner);
        match () {
            () if copying.lag > LAGGING || !sender.is_whole(to) => CopyState::Copying,
            () if sender.is_settled(to) => CopyState::Settled,
            () if sender.is_held(to) => CopyState::Whole,
            () => CopyState::Near,
        }
    }

    /// Whether a node has all that has changed before now, is from now on asked anew.
    #[cfg(feature = "cluster")]
    pub(crate) fn settle(&self, node: u8, plan: &Plan) {
        if let Some(view) = View::of(plan) {
            let now = self.outgoing.around.now();
            let mut sender = self.outgoing.sender.lock().unwrap_or_else(PoisonError::into_inner);
            sender.settle(To::Backup(node), view, now);
        }
    }

    /// When each node said last that it has taken over none of this one's slices.
    #[cfg(feature = "cluster")]
    pub(crate) fn vouched(&self) -> Vec<(u8, Instant)> {
        let vouched = (0..).zip(self.standings()).filter_map(|(node, copying)| Some((node, copying.vouched?)));
        vouched.collect()
    }

    /// What nodes said, since this was asked last, that they took over from this one.
    #[cfg(feature = "cluster")]
    pub(crate) fn taken(&self) -> BTreeMap<u8, Vec<Taken>> {
        self.standings.take_taken()
    }

    /// The agent hears what others ask of this node and promise to it.
    #[cfg(feature = "cluster")]
    pub(crate) fn tell(&self, agent: mpsc::Sender<Event>) {
        self.promises.tell(agent);
    }

    /// A backup is asked for a promise.
    #[cfg(feature = "cluster")]
    pub(crate) fn ask(&self, node: u8, number: u64) {
        self.promises.ask(node, number);
    }

    /// An owner is promised what it has asked for.
    #[cfg(feature = "cluster")]
    pub(crate) fn promise(&self, node: u8, number: u64) {
        self.promises.promise(node, number);
    }

    /// Slices are copied to a node from now on.
    #[cfg(feature = "cluster")]
    pub(crate) fn take_up(&self, node: u8, is_taken: impl Fn(u16) -> bool, plan: &Plan) {
        if let Some(view) = View::of(plan) {
            let mut sender = self.outgoing.sender.lock().unwrap_or_else(PoisonError::into_inner);
            sender.take_up(node, is_taken, view);
        }
    }

    /// This node grants by offers from now on, of slices of which a node has the copy.
    #[cfg(feature = "cluster")]
    pub(crate) fn mark(&self, node: u8, plan: &Plan) {
        if let Some(view) = View::of(plan) {
            self.outgoing.sender.lock().unwrap_or_else(PoisonError::into_inner).mark(node, view);
        }
    }

    /// How they stand, node by node.
    pub(crate) fn standings(&self) -> Vec<Copying> {
        self.standings.all()
    }
}

impl CopyThreads {
    /// Waits for their end.
    pub(crate) fn join(self) {
        for thread in self.0 {
            let _ = thread.join();
        }
    }
}

/// How there is no copy at a node that was not heard for so long, and whose host is there by the routes or is not; `None` if there may be one.
#[cfg(feature = "cluster")]
fn broken(copying: &Copying, silence: Duration, is_reached: bool) -> Option<CopyState> {
    let is_connected = matches!(copying.to, CopyingState::Copying | CopyingState::Complete);
    let is_broken = !is_connected || copying.lag > LOST || silence >= SILENT;
    match is_reached {
        true if is_broken => Some(CopyState::Broken),
        false if is_broken || silence >= QUIET => Some(CopyState::Lost),
        _ => None,
    }
}

/// The nodes that back up slices of this one, or may.
fn backups(cluster: &Cluster, addresses: &[IpAddr], port: u16) -> Vec<(u8, String, SocketAddr)> {
    let others = || (0..).take(cluster.nodes.len()).filter(|node| usize::from(*node) != cluster.own);
    let holders = cluster.slices.iter().flat_map(|slices| &slices.holders);
    let own = holders.filter(|holders| usize::from(holders.owner) == cluster.own);
    let mut backups: Vec<u8> = match cluster.etcd {
        Some(_) => others().collect(),
        None => own.filter_map(|holders| holders.backup).collect(),
    };
    backups.sort_unstable();
    backups.dedup();
    let found = backups.into_iter().filter_map(|node| {
        let place = usize::from(node);
        Some((node, cluster.nodes.get(place)?.name.clone(), SocketAddr::new(*addresses.get(place)?, port)))
    });
    found.collect()
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_broken_when_nothing_is_heard_and_lost_when_the_routes_say_so_too() {
        let connected = Copying { to: CopyingState::Complete, ..Copying::default() };
        let after = |copying: &Copying, millis| {
            [true, false].map(|is_reached| broken(copying, Duration::from_millis(millis), is_reached))
        };
        let (broken, lost) = (Some(CopyState::Broken), Some(CopyState::Lost));
        // A word is due every quarter of a second.
        assert_eq!([0, 550].map(|millis| after(&connected, millis)), [[None; 2]; 2]);
        assert_eq!([600, 1450].map(|millis| after(&connected, millis)), [[None, lost]; 2]);
        assert_eq!(after(&connected, 1500), [broken, lost]);
        let lagging = Copying { lag: LOST + 1, ..connected };
        assert_eq!(after(&lagging, 0), [broken, lost]);
        for to in [CopyingState::None, CopyingState::Broken, CopyingState::Returning] {
            assert_eq!(after(&Copying { to, ..Copying::default() }, 0), [broken, lost]);
        }
    }
}
