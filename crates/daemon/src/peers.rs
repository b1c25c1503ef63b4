//! The thread that follows which nodes of the cluster serve, by the routes that they announce: the short one to a locator
//! while the host and its routing daemon live, the long one while the gateway serves; and whether this node itself can:
//! whether what comes can go on, and the network between the nodes carries what they redirect.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};
use tombolo_cluster::link::Copying;
use tombolo_cluster::ownership::Moment;
use tombolo_engine::Now;
use tombolo_engine::cluster::{Cluster, LOCATOR_LENGTH, Node, Place};
use tombolo_io::clock::{boottime_nanos, monotonic_nanos};
use tombolo_io::host::{Host, PresenceWatch};
use tombolo_io::worker::StopSignal;

use crate::copies::Copies;
use crate::core_paths::{Asked, CorePaths, Known, Trial};
use crate::doubt::{Doubt, Signs, UNHEARD};
use crate::provision::redirects;
use crate::running::Running;
use crate::seen::{Seen, Witness};
use crate::threads::{self, Guarded};

/// How often is asked whether something was heard; a gateway that ends waits as long.
const WAIT: Duration = Duration::from_millis(250);
/// How often is looked although nothing was heard.
const PERIOD: Duration = Duration::from_secs(2);
/// The same of a node that sees nobody, as soon as it could hear that etcd is silent; and of one of which others say that they do not see it.
const SOON: Duration = Duration::from_millis(20);

/// The parts of the gateway, in its health.
const PART: &str = "cluster";
const COPIES: &str = "copies";

/// The running thread.
#[derive(Debug)]
pub(crate) struct Peers(JoinHandle<()>);

/// What is known of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The gateway serves.
    Serving,
    /// Its host can be reached, and the gateway does not serve.
    Up,
    /// Nobody announces it.
    Gone,
}

impl Presence {
    /// It in a word.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Up => "up",
            Self::Gone => "gone",
        }
    }

    /// That of a node, as the host's routes say.
    pub(crate) fn of(node: &Node, host: &mut Host) -> Self {
        if redirects(node.locator).is_some_and(|prefix| host.reaches(prefix)) {
            Self::Serving
        } else if locator(node).is_some_and(|prefix| host.reaches(prefix)) {
            Self::Up
        } else {
            Self::Gone
        }
    }
}

fn locator(node: &Node) -> Option<IpNet> {
    Ipv6Net::new(node.locator, LOCATOR_LENGTH).ok().map(IpNet::from)
}

impl Peers {
    /// Starts it; it ends when `stop` is given. Nothing is started where there is no cluster.
    ///
    /// # Errors
    /// If the kernel does not announce changes, or if there are no more threads.
    pub(crate) fn start(running: &Arc<Running>, stop: StopSignal) -> std::io::Result<Option<Self>> {
        let Some(cluster) = running.plan.load().cluster.clone() else { return Ok(None) };
        let needs = running.settings.cluster.iter().flat_map(|cluster| cluster.needs.clone()).collect::<Vec<_>>();
        let concerns = cluster.nodes().iter().filter_map(locator).chain(needs.iter().copied());
        let watch = PresenceWatch::open(concerns.collect())?;
        let host = Host::open().map_err(std::io::Error::other)?;
        let size = running.settings.cluster.as_ref().map_or(0, |cluster| cluster.core_mtu);
        let paths = CorePaths::open(cluster.nodes().len(), size);
        let guarded = Guarded { name: "peers", stop: stop.clone(), health: Arc::clone(&running.health) };
        let running = Arc::clone(running);
        let follow = move || {
            let known = vec![Presence::Gone; cluster.nodes().len()];
            let mut follower = Follower {
                running,
                cluster,
                needs,
                known,
                host,
                paths,
                trial: Trial::default(),
                doubt: Doubt::default(),
                seen: Seen::default(),
                is_seen: true,
                has_served: false,
            };
            follower.follow(&watch, &stop);
        };
        Ok(Some(Self(threads::spawn(guarded, follow)?)))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}

struct Follower {
    running: Arc<Running>,
    cluster: Arc<Cluster>,
    /// Prefixes without which this node cannot serve.
    needs: Vec<IpNet>,
    known: Vec<Presence>,
    host: Host,
    paths: CorePaths,
    trial: Trial,
    doubt: Doubt,
    seen: Seen,
    is_seen: bool,
    /// It has announced the services. From then on a narrow path is a fault and no reason to withdraw what others
    /// reach.
    has_served: bool,
}

impl Follower {
    fn follow(&mut self, watch: &PresenceWatch, stop: &StopSignal) {
        let mut due = Instant::now();
        while !stop.is_given() {
            tombolo_io::fault::trip("thread-peers");
            if Instant::now() >= due {
                self.look_at_others();
                let is_settled = self.look_at_oneself() && self.paths.known() != Known::Doubtful;
                due = Instant::now() + if is_settled { PERIOD } else { self.pause() };
            }
            let limit = if self.seen.is_denied() { SOON } else { WAIT };
            let is_changed = watch.wait(limit.min(due.saturating_duration_since(Instant::now()))).unwrap_or(true);
            if self.look_whether_seen() || is_changed {
                due = Instant::now();
            }
        }
    }

    /// Until the next look while something is to come.
    fn pause(&self) -> Duration {
        let is_to_hear = self.cluster.is_agreed() && self.cluster.is_alone() && !self.cluster.is_in_doubt();
        let left = Duration::from_millis(UNHEARD.saturating_sub(self.silence()));
        if is_to_hear { left.clamp(SOON, WAIT) } else { WAIT }
    }

    /// For how long etcd has said nothing, in milliseconds.
    fn silence(&self) -> u64 {
        let agreement = self.running.agreement.as_deref();
        agreement.map_or(0, |agreement| agreement.silence(Moment::of_nanos(boottime_nanos())))
    }

    /// Whether others see this node. True if that is otherwise than before.
    fn look_whether_seen(&mut self) -> bool {
        let Some(copies) = self.running.copies.as_deref().filter(|_| self.cluster.is_agreed()) else { return false };
        let of = |(number, copying): (usize, Copying)| Witness {
            spoke: copying.spoke,
            unseen: copying.unseen,
            is_reached: self.known.get(number).is_some_and(|known| *known != Presence::Gone),
        };
        let witnesses: Vec<Witness> = copies.standings().into_iter().enumerate().map(of).collect();
        let is_seen = self.seen.look(&witnesses, Instant::now());
        std::mem::replace(&mut self.is_seen, is_seen) != is_seen
    }

    fn look_at_others(&mut self) {
        let own = self.cluster.own();
        for (number, (node, known)) in self.cluster.nodes().iter().zip(&mut self.known).enumerate() {
            let now = Presence::of(node, &mut self.host);
            if now != *known && number != own {
                tracing::info!(node = node.name, "node of the cluster: {}", now.name());
            }
            *known = now;
        }
        self.cluster.set_serving(|number| self.known.get(number) == Some(&Presence::Serving));
        self.cluster.set_reached(|number| self.known.get(number) != Some(&Presence::Gone));
        let copies = self.running.copies.as_deref();
        let has_copy = |node| copies.is_some_and(|copies| copies.has(node));
        self.cluster.set_copied(has_copy, Now(monotonic_nanos()).tick());
        if let Some(accelerator) = &self.running.accelerator {
            // What the programs do in an owner's place they do not say.
            let acting =
                self.cluster.slices().filter_map(|slice| match self.cluster.place_of(slice, Now(monotonic_nanos())) {
                    Place::Acting(owner) => Some(owner),
                    _ => None,
                });
            acting.for_each(|owner| self.cluster.note_acting(owner));
            accelerator.follow_cluster(&self.cluster);
        }
        let standings = copies.map(Copies::standings).unwrap_or_default();
        let serving = self.cluster.nodes().iter().zip(&standings).enumerate();
        let serving = serving.filter(|(number, _)| *number != own && self.cluster.serves(*number));
        let faults = serving.flat_map(|(_, (node, copying))| {
            let [to, from] = &copying.faults;
            let to = to.iter().map(|why| format!("node {} has no copy of this node's slices: {why}", node.name));
            to.chain(from.iter().map(|why| format!("there is no copy of node {}'s slices: {why}", node.name)))
        });
        self.running.health.set(COPIES, faults.collect());
        let is_starting = !self.has_served;
        let asked = |number: usize| match self.known.get(number) {
            _ if number == own => None,
            Some(Presence::Serving) => Some(Asked::Serving),
            Some(Presence::Up) if is_starting => Some(Asked::Starting),
            _ => None,
        };
        if let Err(error) = self.paths.look(self.cluster.nodes(), asked) {
            tracing::debug!("nobody knows whether the network between the nodes carries what they redirect: {error}");
        }
    }

    /// Whether what other nodes have to serve would reach them, as far as that can be known. Asked when the routes are there.
    fn reaches_others(&mut self) -> bool {
        self.has_served || !self.cluster.has_slices() || self.trial.allows(self.paths.known(), Instant::now())
    }

    /// Announces the services while what comes can go on. False if that is to be done again: the gateway still starts.
    fn look_at_oneself(&mut self) -> bool {
        let host = &mut self.host;
        let missing: Vec<String> =
            self.needs.iter().filter(|prefix| !host.reaches(**prefix)).map(ToString::to_string).collect();
        let is_routed = missing.is_empty() && self.is_seen;
        self.cluster.set_routed(is_routed);
        // Both begin when the routes are there, and go on side by side.
        let is_awaiting =
            is_routed && !self.has_served && self.running.copies.as_deref().is_some_and(Copies::are_awaited);
        let is_cut_off = is_routed && !self.reaches_others();
        // Who is an entrance no more has slices yet that nobody else can serve.
        let is_known = self.has_served || self.cluster.is_entrance();
        let is_connected = is_routed && !is_awaiting && !is_cut_off && is_known;
        let is_settled = !self.cluster.set_connected(is_connected) || self.running.announce();
        if !is_settled {
            self.cluster.set_connected(!is_connected);
        }
        self.has_served |= is_connected && is_settled;
        // Nobody says when a lease is over, or that etcd is silent.
        let is_alone = self.cluster.is_agreed() && self.cluster.is_alone();
        let signs = Signs { has_lease: self.cluster.may_grant(Now(monotonic_nanos())), silence: self.silence() };
        let is_in_doubt = self.doubt.look(is_alone.then_some(signs), Instant::now());
        let is_ranked = !self.cluster.set_in_doubt(is_in_doubt) || !is_connected || self.running.announce();
        if !is_ranked {
            self.cluster.set_in_doubt(!is_in_doubt);
        }
        let lacks = |prefix: &String| format!("nothing is announced: the host has no route for {prefix}");
        let narrow = self.paths.narrow().filter_map(|number| self.cluster.nodes().get(number));
        let size = self.paths.size();
        let narrow = narrow.map(|node| {
            let what =
                if self.has_served { "what is redirected there in full size is lost" } else { "nothing is announced" };
            format!("{what}: packets of {size} bytes do not reach node {}; see core_mtu in [cluster]", node.name)
        });
        let untried = match self.paths.known() {
            Known::Nothing => "no other node is seen yet with which the network between them can be tried",
            _ => "the network between the nodes is being tried",
        };
        let untried = (is_cut_off && self.paths.known() != Known::Narrow).then_some(untried);
        let awaiting = is_awaiting.then_some("backups give back what was lost here");
        let unheard = (is_routed && !is_known).then_some("this node is not known in etcd yet, or is to be drained");
        let waiting =
            untried.into_iter().chain(awaiting).chain(unheard).map(|why| format!("nothing is announced: {why}"));
        let unseen = (!self.is_seen).then(|| {
            "nothing is announced: other nodes hear this one, and their routes do not lead to it any more; is its routing daemon alive?"
                .to_owned()
        });
        let reasons = missing.iter().map(lacks).chain(unseen).chain(narrow).chain(waiting);
        self.running.health.set(PART, reasons.collect());
        is_settled && is_ranked && !is_alone && !is_awaiting && !is_cut_off && is_known
    }
}
