//! What goes wrong, when, and for how long.

use std::fmt;

use tombolo_cluster::ownership::{Node, Wish};

use crate::tables::Table;
use crate::world::{What, World};

/// Faults begin after this, in microseconds: by then slices are owned and protected.
const CALM: u64 = 8_000_000;
/// They begin within so much time.
const STORM: u64 = 18_000_000;

/// A kind of fault. All end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The process dies, and another one adopts its tables.
    Process,
    /// The host loses power, and its tables with it.
    Power,
    /// All hosts do.
    Site,
    /// All programs of the host stop; its clock goes on.
    Frozen,
    /// A virtual machine is paused together with its clock.
    Paused,
    /// Only the agent stops.
    Stalled,
    /// A node has no way to etcd.
    NoEtcd,
    /// Two nodes have no way to each other.
    Cut,
    /// A node has no way to any other, nor to etcd.
    Core,
    Outside,
    Inside,
    /// etcd has no leader, or no quorum.
    Etcd,
    /// A node's watch is slow.
    SlowWatch,
    /// Watches end, and what they would have said is compacted.
    Compacted,
    /// Requests to etcd and answers are lost, and some answers come twice.
    Lost,
    /// Connections for copies break.
    Broken,
    /// Everything takes long.
    Slow,
    /// No fault: an operator wants a node drained.
    Drain,
    /// Nor is this: an operator pins a slice to a node.
    Pin,
    /// Nor this: an operator has nothing moved for the sake of balance.
    Hold,
}

/// All of them.
pub(crate) const KINDS: [Kind; 20] = [
    Kind::Process,
    Kind::Power,
    Kind::Site,
    Kind::Frozen,
    Kind::Paused,
    Kind::Stalled,
    Kind::NoEtcd,
    Kind::Cut,
    Kind::Core,
    Kind::Outside,
    Kind::Inside,
    Kind::Etcd,
    Kind::SlowWatch,
    Kind::Compacted,
    Kind::Lost,
    Kind::Broken,
    Kind::Slow,
    Kind::Drain,
    Kind::Pin,
    Kind::Hold,
];

#[derive(Clone, Copy)]
pub(crate) struct Fault {
    kind: Kind,
    host: usize,
    other: usize,
    /// When it ends.
    until: u64,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, host, other, until } = self;
        match kind {
            Kind::Site | Kind::Etcd | Kind::Compacted | Kind::Lost | Kind::Broken | Kind::Slow | Kind::Hold => {
                write!(f, "{kind:?}")?
            }
            Kind::Cut => write!(f, "{kind:?} n{host} n{other}")?,
            _ => write!(f, "{kind:?} n{host}")?,
        }
        write!(f, " until {:.3}", *until as f64 / 1e6)
    }
}

impl Fault {
    /// At the beginning no process runs.
    pub(crate) const fn first_start(host: usize) -> Self {
        Self { kind: Kind::Process, host, other: host, until: 0 }
    }
}

/// Faults that are not drawn.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) nodes: usize,
    pub(crate) faults: &'static [Scripted],
}

/// One of them: its kind, the node, the other one, and from when to when, in milliseconds.
pub(crate) type Scripted = (Kind, usize, usize, u64, u64);

impl World {
    /// The faults of a script.
    pub(crate) fn follow(&mut self, script: &Script) {
        self.last = CALM;
        for &(kind, host, other, at, until) in script.faults {
            self.schedule(Fault { kind, host, other, until: until * 1000 }, at * 1000);
        }
    }

    fn schedule(&mut self, fault: Fault, at: u64) {
        self.last = self.last.max(fault.until);
        self.later(at.saturating_sub(self.now), What::Begin(fault));
        self.later(fault.until.saturating_sub(self.now), What::End(fault));
    }

    /// Draws the faults of this schedule. In half of them slices are moved besides.
    pub(crate) fn plan(&mut self) {
        self.last = CALM;
        let (faults, moves) = (self.random.between(1, 6), self.random.below(4).saturating_sub(1));
        self.ambushes = self.random.below(4) as u8;
        for number in 0..faults + moves as u64 {
            let kind = match number {
                _ if number < faults => self.kind(),
                _ => [Kind::Drain, Kind::Pin][self.random.below(2)],
            };
            let at = self.random.between(CALM, CALM + STORM);
            let until = at + self.duration();
            let host = self.random.below(self.hosts.len());
            let other = self.other(host);
            self.schedule(Fault { kind, host, other, until }, at);
            if kind == Kind::Etcd && self.random.chance(500) {
                // This node does not hear that etcd is back, and goes on by the word of backups that may take over again.
                let (at, later) = (self.random.between(at, until), self.random.between(100_000, 6_000_000));
                self.schedule(Fault { kind: Kind::NoEtcd, host, other, until: until + later }, at);
            }
        }
    }

    fn kind(&mut self) -> Kind {
        loop {
            let kind = KINDS[self.random.below(KINDS.len())];
            if kind != Kind::Site || self.random.chance(300) {
                return kind;
            }
        }
    }

    fn other(&mut self, host: usize) -> usize {
        (host + 1 + self.random.below(self.hosts.len() - 1)) % self.hosts.len()
    }

    /// A slice is handed over from one node to another: perhaps something goes wrong right now.
    pub(crate) fn ambush(&mut self, owner: usize, successor: usize) {
        if self.ambushes == 0 || !self.random.chance(300) {
            return;
        }
        self.ambushes -= 1;
        self.judge.seen.ambushes += 1;
        let kind = self.kind();
        let host = if self.random.chance(500) { owner } else { successor };
        let other = if self.random.chance(500) { owner + successor - host } else { self.other(host) };
        let at = self.now + self.random.between(0, 20_000);
        let until = at + self.random.between(5_000, 3_000_000);
        self.schedule(Fault { kind, host, other, until }, at);
    }

    fn duration(&mut self) -> u64 {
        match self.random.below(20) {
            0..8 => self.random.between(20_000, 1_500_000),
            8..15 => self.random.between(1_500_000, 6_000_000),
            15..19 => self.random.between(6_000_000, 20_000_000),
            _ => self.random.between(30_000_000, 60_000_000),
        }
    }

    pub(crate) fn begin_fault(&mut self, fault: Fault) {
        self.note(None, || format!("---- fault: {fault:?}"));
        self.judge.faults.insert(fault.kind);
        let Fault { kind, host, other, until } = fault;
        match kind {
            Kind::Process => self.go_down(host),
            Kind::Power => self.lose_power(host),
            Kind::Site => (0..self.hosts.len()).for_each(|host| self.lose_power(host)),
            Kind::Frozen => self.freeze(host),
            Kind::Paused => self.pause(host),
            Kind::Stalled => self.hosts[host].stalled += 1,
            Kind::NoEtcd => self.hosts[host].no_etcd += 1,
            Kind::Cut => self.cut(host, other, 1),
            Kind::Core => self.cut_core(host, 1),
            Kind::Outside => self.hosts[host].no_outside += 1,
            Kind::Inside => self.hosts[host].no_inside += 1,
            Kind::Etcd => self.etcd.fail(until),
            Kind::SlowWatch => self.hosts[host].slow_until = until,
            Kind::Compacted => self.weather.compacted = 300,
            Kind::Lost => self.weather.lost = 250,
            Kind::Broken => self.weather.broken = 150,
            Kind::Slow => self.weather.slowest = 200_000,
            Kind::Drain => self.drain(host, 1),
            Kind::Pin => self.pin(host, other, true),
            Kind::Hold => self.hold(1),
        }
    }

    pub(crate) fn end_fault(&mut self, fault: Fault) {
        self.note(None, || format!("---- ended: {fault:?}"));
        let Fault { kind, host, other, .. } = fault;
        match kind {
            Kind::Process | Kind::Power => self.come_up(host),
            Kind::Site => (0..self.hosts.len()).for_each(|host| self.come_up(host)),
            Kind::Frozen => self.thaw(host),
            Kind::Paused => self.go_on(host),
            Kind::Stalled => {
                self.hosts[host].stalled -= 1;
                self.wake(host);
            }
            Kind::NoEtcd => self.hosts[host].no_etcd -= 1,
            Kind::Cut => self.cut(host, other, -1),
            Kind::Core => self.cut_core(host, -1),
            Kind::Outside => {
                self.hosts[host].no_outside -= 1;
                self.open_session(host);
            }
            Kind::Inside => self.hosts[host].no_inside -= 1,
            Kind::Etcd => self.etcd.recover(self.now),
            Kind::SlowWatch => {}
            Kind::Compacted => self.weather.compacted = 0,
            Kind::Lost => self.weather.lost = 0,
            Kind::Broken => self.weather.broken = 0,
            Kind::Slow => self.weather.slowest = 5000,
            Kind::Drain => self.drain(host, -1),
            Kind::Pin => self.pin(host, other, false),
            Kind::Hold => self.hold(-1),
        }
    }

    fn go_down(&mut self, host: usize) {
        self.hosts[host].down += 1;
        self.stop(host);
    }

    fn lose_power(&mut self, host: usize) {
        self.go_down(host);
        let slices = self.slices;
        let own = &mut self.hosts[host];
        (own.saved, own.tables) = (None, vec![Table::new(); slices.into()]);
        self.open_session(host);
    }

    fn come_up(&mut self, host: usize) {
        self.hosts[host].down -= 1;
        if self.hosts[host].down == 0 {
            self.start(host);
        }
    }

    fn freeze(&mut self, host: usize) {
        let own = &mut self.hosts[host];
        own.frozen += 1;
        own.note(self.now);
    }

    fn thaw(&mut self, host: usize) {
        self.hosts[host].frozen -= 1;
        if self.hosts[host].frozen > 0 {
            return;
        }
        if self.hosts[host].was_given_up(self.now) {
            self.open_session(host);
        }
        self.hosts[host].note(self.now);
        self.wake(host);
    }

    fn pause(&mut self, host: usize) {
        self.freeze(host);
        let own = &mut self.hosts[host];
        own.paused += 1;
        if own.paused == 1 {
            own.clock.stop(self.now);
        }
    }

    fn go_on(&mut self, host: usize) {
        let own = &mut self.hosts[host];
        own.paused -= 1;
        if own.paused == 0 {
            own.late = Some(own.moment(self.now));
            own.clock.go_on(self.now);
        }
        self.thaw(host);
    }

    fn drain(&mut self, host: usize, by: i8) {
        let own = &mut self.hosts[host];
        own.drained = own.drained.saturating_add_signed(by);
        self.etcd.wish(Wish::Drain(Node(host as u8), own.drained > 0));
    }

    /// Which slice it is follows from the other node.
    fn pin(&mut self, host: usize, other: usize, is_wanted: bool) {
        let (slice, node) = (other as u16 % self.slices, Node(host as u8));
        if is_wanted || self.etcd.wishes().pins.get(&slice) == Some(&node) {
            self.etcd.wish(Wish::Pin(slice, is_wanted.then_some(node)));
        }
    }

    fn hold(&mut self, by: i8) {
        self.holds = self.holds.saturating_add_signed(by);
        self.etcd.wish(Wish::Hold(self.holds > 0));
    }

    fn cut(&mut self, one: usize, other: usize, by: i8) {
        for (one, other) in [(one, other), (other, one)] {
            self.cuts[one][other] = self.cuts[one][other].saturating_add_signed(by);
        }
    }

    fn cut_core(&mut self, host: usize, by: i8) {
        let own = &mut self.hosts[host];
        own.no_etcd = own.no_etcd.saturating_add_signed(by);
        for other in (0..self.hosts.len()).filter(|other| *other != host) {
            self.cut(host, other, by);
        }
    }

    /// The session with the router outside begins anew.
    fn open_session(&mut self, host: usize) {
        let wait = self.random.between(50_000, 500_000);
        self.hosts[host].session = self.now + wait;
    }
}
