//! Owners by etcd: the threads that have the agent of this node ([`Agent`]) told what happens, and do what it wants done.
//!
//! ```text
//! etcd        speaks with etcd                                    events ->  agent
//! ownership   the agent; slice table, words, tables          agent  ->  cluster of the plan, copies, etcd
//! announcer   routes of slices, when the slice table has changed
//! ```
//!
//! The agent's thread never waits: not for etcd, and not for routes, which may be held up by a reload; else it would miss its own
//! renewals.

mod agreeing;
mod announcer;
mod news;
pub mod overview;
pub mod wishes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tombolo_cluster::etcd::{Adapter, Credentials, Etcd, Own, ShapeError, found};
use tombolo_cluster::ownership::{Agent, Names, Node};
use tombolo_config::Cluster as ClusterSettings;
use tombolo_engine::mapping::slices::Slicing;
use tombolo_io::worker::StopSignal;

use self::agreeing::{Agreeing, boot_moment, node_value};
use self::announcer::Announcer;
use crate::error::{DaemonError, system};
use crate::error_chain::in_one_line;
use crate::holdings::Holdings;
use crate::running::Running;
use crate::threads::{self, Guarded};

/// From one question to etcd at the start to the next.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the routes are tried again that could not be announced.
const AGAIN: Duration = Duration::from_millis(100);

/// The running threads.
#[derive(Debug)]
pub(crate) struct Ownership {
    threads: Vec<JoinHandle<()>>,
    announcer: Announcer,
}

/// Where the cluster's etcd is; nothing where a file says who owns what.
#[must_use]
pub fn etcd_of(cluster: &ClusterSettings) -> Option<Etcd> {
    let tombolo_config::Etcd { endpoints, name, ca, identity } = cluster.etcd.clone()?;
    let credentials = Credentials { ca, certificate: identity.certificate, key: identity.key };
    Some(Etcd { endpoints, credentials, cluster: name })
}

/// How the cluster is divided, which etcd says once it answers.
pub(crate) fn slicing(cluster: &ClusterSettings) -> Result<Option<Slicing>, DaemonError> {
    let Some(etcd) = etcd_of(cluster) else { return Ok(None) };
    let mut said = String::new();
    loop {
        match found(&etcd) {
            Ok(shape) => {
                let slicing = Slicing::new(shape.secret, shape.slices);
                let unusable = || DaemonError::Failed(format!("etcd: {} slices are no power of two", shape.slices));
                return slicing.ok_or_else(unusable).map(Some);
            }
            Err(error @ ShapeError::Etcd(_)) => {
                let text = in_one_line(&error);
                if text != said {
                    tracing::warn!("waiting for etcd: {text}");
                    said = text;
                }
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(DaemonError::Failed(in_one_line(&error))),
        }
    }
}

impl Ownership {
    /// Starts it, where nodes agree on owners; it ends when `stop` is given.
    ///
    /// # Errors
    /// If there are no more threads.
    pub(crate) fn start(
        running: &Arc<Running>,
        holdings: Option<&Holdings>,
        stop: &StopSignal,
    ) -> Result<Option<Self>, DaemonError> {
        let Some(settings) = running.settings.cluster.as_ref() else { return Ok(None) };
        let parts =
            etcd_of(settings).zip(running.agreement.clone()).zip(holdings).zip(running.plan.load().cluster.clone());
        let Some((((etcd, agreement), holdings), cluster)) = parts else { return Ok(None) };
        let guarded = |name| Guarded { name, stop: stop.clone(), health: Arc::clone(&running.health) };
        let (tell, events) = channel();
        running.copies.iter().for_each(|copies| copies.tell(tell.clone()));
        let incarnation = getrandom::u64().map_err(|error| DaemonError::Failed(error.to_string()))?;
        let value = node_value(running, &cluster, incarnation);
        let own = Own {
            names: Names::new(cluster.nodes().iter().map(|node| node.name.clone()).collect()),
            name: cluster.nodes()[cluster.own()].name.clone(),
            value: value.clone(),
            has_adopted: !holdings.all().is_empty(),
            clock: boot_moment,
            heard: agreement.last_heard(),
        };
        let (adapter, driver) = Adapter::new(etcd, own, tell);
        let failed = system("starting a thread");
        let is_due = Arc::<AtomicBool>::default();
        let (announcing, due, over) = (Arc::clone(running), Arc::clone(&is_due), stop.clone());
        let announce = move || {
            while !over.is_given() {
                std::thread::park_timeout(AGAIN);
                if due.swap(false, Ordering::AcqRel) && !announcing.announce() {
                    due.store(true, Ordering::Release);
                    std::thread::sleep(AGAIN);
                }
            }
        };
        let announcer = threads::spawn(guarded("announcer"), announce).map_err(failed)?;
        let handle = Announcer { thread: announcer.thread().clone(), is_due };
        let number = u8::try_from(cluster.own()).unwrap_or(u8::MAX);
        let mut agreeing = Agreeing {
            agent: Agent::new(Node(number), cluster.slices().end),
            running: Arc::clone(running),
            cluster,
            adapter,
            agreement,
            holdings: holdings.clone(),
            announcer: handle.clone(),
            value,
            told: Default::default(),
            deposed: Default::default(),
        };
        let speak = move || {
            if let Err(error) = driver.run() {
                tracing::error!("nobody speaks with etcd: {error}");
            }
        };
        let speaker = threads::spawn(guarded("etcd"), speak).map_err(system("starting a thread"))?;
        let over = stop.clone();
        let agent = threads::spawn(guarded("ownership"), move || agreeing.go_on(&events, &over));
        let agent = agent.map_err(system("starting a thread"))?;
        Ok(Some(Self { threads: vec![agent, speaker, announcer], announcer: handle }))
    }

    /// Waits for their end.
    pub(crate) fn join(self) {
        self.announcer.thread.unpark();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
