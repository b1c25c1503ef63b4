//! A cluster that is protected, known subscribers of each slice with flows and connections, and others that nobody knows yet.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use tombolo_engine::mapping::slices::Slicing;
use tombolo_lab::cluster::{Newcomers, Owned, PATIENCE, Subscriber};
use tombolo_lab::scenario::SLICES;
use tombolo_lab::{Effect, Flow, Heard, Scenario, Talk, first_answers, talking, under_load, wait_until};
use tombolo_tables::subscriber::SubscriberKey;

use super::limits::Limits;
use crate::boxes::Cluster;
use crate::subscribers::{alive, dead};

pub(super) struct Bed {
    pub(super) cluster: Cluster,
    /// A flow of each slice at least, by the number of the slice.
    known: Vec<(u16, Flow)>,
    talks: Vec<Talk>,
    /// Connections that say nothing.
    idle: Vec<(String, TcpStream)>,
    slicing: Slicing,
    newcomers: Newcomers,
}

/// What was seen of a fault.
pub(super) struct Seen {
    what: String,
    /// What flows noticed, by the slices of their hosts.
    effects: Vec<(u16, Effect)>,
    heard: Vec<Heard>,
    /// How long new subscribers waited, the longest last; none of those that were not admitted.
    pub(super) waits: Vec<Option<Duration>>,
}

impl Bed {
    pub(super) fn up() -> Self {
        Self::of(Scenario::agreed_cluster())
    }

    pub(super) fn of(scenario: Scenario) -> Self {
        let cluster = Cluster::of(scenario);
        // Cases say who owns what after a fault: what moves ten seconds later for the sake of balance would be in their way.
        cluster.hold_balanced("n1").unwrap();
        cluster.wait_for_slices();
        let slicing = Slicing::new(cluster.secret().unwrap(), SLICES).unwrap();
        let (known, talks, idle) = (Vec::new(), Vec::new(), cluster.connections());
        let mut bed = Self { cluster, known, talks, idle, slicing, newcomers: Newcomers::default() };
        let hosts: Vec<Subscriber> =
            (0..SLICES).map(|slice| bed.host_of(slice)).chain((0..3).map(Subscriber::of_aftr)).collect();
        bed.known = hosts.iter().map(|host| bed.flow_of(host)).collect();
        bed.talks = bed.cluster.talks(&hosts).unwrap();
        assert_eq!(alive(&bed.idle), bed.idle.len());
        // What they have is copied by then.
        std::thread::sleep(Duration::from_millis(200));
        bed
    }

    /// A host that was not there before, of a slice.
    fn host_of(&mut self, slice: u16) -> Subscriber {
        let host = self.newcomers.of_slice(slice, |address| self.slicing.of_subscriber(&key_of(address)));
        let host = host.expect("hosts of all slices");
        self.cluster.settle(&host).unwrap();
        host
    }

    /// The flow of a host that becomes known, and its slice by its outside address.
    fn flow_of(&self, host: &Subscriber) -> (u16, Flow) {
        let flow = self.cluster.flow(host).unwrap();
        let seen = self.cluster.slice_seen(&flow).unwrap();
        if host.host != "home" {
            assert_eq!(
                seen,
                self.slicing.of_subscriber(&key_of(host.address)),
                "{} has an address of its slice",
                host.name
            );
        }
        (seen, flow)
    }

    /// Hosts that nobody knows yet, one of each of these slices.
    pub(super) fn strangers(&mut self, slices: &[u16]) -> Vec<Flow> {
        let hosts: Vec<Subscriber> = slices.iter().map(|slice| self.host_of(*slice)).collect();
        hosts.iter().map(|host| self.cluster.flow(host).unwrap()).collect()
    }

    /// What the server sees of known subscribers.
    pub(super) fn endpoints(&self) -> Vec<SocketAddr> {
        let seen = |(_, flow): &(u16, Flow)| {
            let endpoint = self.cluster.endpoint(flow, 10);
            endpoint.unwrap_or_else(|| panic!("{} gets no answer", flow.name()))
        };
        self.known.iter().map(seen).collect()
    }

    /// What known subscribers notice of a fault, and how long each of these strangers waits for its first answer.
    pub(super) fn during(&mut self, what: &str, strangers: &[Flow], fault: impl FnOnce(&mut Cluster)) -> Seen {
        self.during_for(what, strangers, PATIENCE, fault)
    }

    /// The same, where strangers are not waited for longer.
    pub(super) fn during_for(
        &mut self,
        what: &str,
        strangers: &[Flow],
        patience: Duration,
        fault: impl FnOnce(&mut Cluster),
    ) -> Seen {
        let (slices, flows): (Vec<u16>, Vec<Flow>) = self.known.drain(..).unzip();
        let cluster = &mut self.cluster;
        let ((mut waits, effects), heard) = talking(&self.talks, || {
            under_load(&flows, || {
                fault(cluster);
                first_answers(strangers, Instant::now(), patience)
            })
        });
        waits.sort_by_key(|wait| wait.unwrap_or(Duration::MAX));
        self.known = slices.iter().copied().zip(flows).collect();
        let seen = Seen { what: what.to_owned(), effects: slices.into_iter().zip(effects).collect(), heard, waits };
        seen.report();
        seen
    }

    /// All connections live, those that say nothing as well.
    pub(super) fn all_live(&self, what: &str) {
        let dead = dead(&self.idle);
        assert!(dead.is_empty(), "{what}: of {} connections that said nothing are dead: {dead:?}", self.idle.len());
    }

    /// The slices of a node, as etcd has it.
    pub(super) fn slices_of(&self, owner: &str) -> Vec<u16> {
        let all = self.cluster.slices(reporter(owner)).unwrap();
        all.into_iter().filter(|(_, owned)| owned.owner.as_deref() == Some(owner)).map(|(slice, _)| slice).collect()
    }

    /// The node that owns most.
    pub(super) fn greatest_owner(&self) -> &'static str {
        ["n1", "n2", "n3"].into_iter().max_by_key(|node| self.slices_of(node).len()).unwrap()
    }

    /// How long after `fault` what etcd has of these slices was written, the last of them.
    pub(super) fn written_after(&self, fault: SystemTime, slices: &[u16]) -> Duration {
        let written = self.cluster.written().unwrap();
        let last = slices.iter().map(|slice| written[usize::from(*slice)]).max().unwrap();
        last.duration_since(fault).unwrap()
    }

    /// Waits until others own, and have copies of, all that a node had, and says how long that took.
    pub(super) fn without(&self, node: &str) -> Duration {
        let began = Instant::now();
        let by = reporter(node);
        let has_some = |owned: &Owned| [&owned.owner, &owned.backup].into_iter().flatten().any(|holder| holder == node);
        let gone = || (!self.cluster.owned(by).values().any(has_some)).then_some(());
        wait_until(&format!("others to have what {node} had"), PATIENCE, gone).unwrap();
        self.cluster.protected(by);
        began.elapsed()
    }
}

/// A node that can say how the cluster stands while another one cannot.
fn reporter(dead: &str) -> &'static str {
    if dead == "n1" { "n2" } else { "n1" }
}

/// The key by which a host alone is a subscriber.
fn key_of(address: IpAddr) -> SubscriberKey {
    match address {
        IpAddr::V4(address) => SubscriberKey { ipv4: address.octets(), ..SubscriberKey::default() },
        IpAddr::V6(address) => SubscriberKey { ipv6: address.octets(), ..SubscriberKey::default() },
    }
}

impl Seen {
    /// For the figures of the documentation.
    fn report(&self) {
        let Self { what, effects, heard, waits } = self;
        let lost: usize = effects.iter().map(|(_, effect)| effect.lost).sum();
        let [host, server] = [0, 1].map(|end| heard.iter().map(|heard| heard.silence[end]).max().unwrap_or_default());
        let live = heard.iter().filter(|heard| heard.is_alive).count();
        eprintln!(
            "CASE {what}: datagrams silent for {:?} ({lost} lost); TCP from the server {host:?}, to it {server:?}; {live} of {} live; \
             new subscribers wait {waits:?}; the machine took {:?}",
            self.silence(),
            heard.len(),
            self.stalled()
        );
    }

    /// The longest silence of any flow.
    pub(super) fn silence(&self) -> Duration {
        self.effects.iter().map(|(_, effect)| effect.silence).max().unwrap_or_default()
    }

    /// What the machine took of that, all in all: limits are of the gateway.
    fn stalled(&self) -> Duration {
        self.effects.iter().map(|(_, effect)| effect.stalled).max().unwrap_or_default()
    }

    /// No flow, and no connection, was silent for longer.
    pub(super) fn within(&self, limits: Limits) {
        self.within_of(limits, |_| true);
        for Heard { name, silence, is_alive } in &self.heard {
            assert!(is_alive, "{}: the connection of {name} is dead", self.what);
            assert!(
                silence.iter().all(|silence| *silence <= self.allowed(limits.tcp)),
                "{}: {name} heard nothing for {silence:?}",
                self.what
            );
        }
    }

    /// No flow of these slices was.
    pub(super) fn within_of(&self, limits: Limits, is_meant: impl Fn(u16) -> bool) {
        for (slice, effect) in self.effects.iter().filter(|(slice, _)| is_meant(*slice)) {
            let (what, Effect { name, lost, silence, .. }) = (&self.what, effect);
            assert!(
                effect.is_within(limits.datagrams),
                "{what}: {name} of slice {slice} lost {lost}, silent for {silence:?}"
            );
        }
    }

    /// A limit, and what the machine took.
    pub(super) fn allowed(&self, limit: Duration) -> Duration {
        limit + self.stalled()
    }

    /// The longest wait of a new subscriber: all were admitted.
    pub(super) fn longest_wait(&self) -> Duration {
        let longest = self.waits.last().expect("there were new subscribers");
        longest.unwrap_or_else(|| panic!("{}: a new subscriber was not admitted: {:?}", self.what, self.waits))
    }
}

impl Cluster {
    /// Waits until each slice has an owner and a whole copy.
    pub(super) fn protected(&self, by: &str) -> Duration {
        let took = self.wait_until_protected(by).unwrap_or_else(|error| panic!("{error}"));
        eprintln!("  protected after {took:?}");
        took
    }

    /// All slices, as etcd has them.
    pub(super) fn owned(&self, by: &str) -> BTreeMap<u16, Owned> {
        self.slices(by).unwrap()
    }

    /// The sum of all epochs, as etcd has it.
    pub(super) fn epochs(&self, by: &str) -> u64 {
        self.owned(by).values().map(|owned| owned.epoch).sum()
    }

    /// All nodes and routers know of each other again, and all slices are protected.
    pub(super) fn mended(&self) {
        self.wait_for_all();
        self.wait_for_slices();
        self.protected("n1");
    }
}
