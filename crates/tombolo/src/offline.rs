//! The gateway without a network: packets from files or the command line through the same engine
//! that `tombolo run` has.
//!
//! Everything is repeatable: the seed is an argument, and the clock is what the packets say.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tombolo_engine::counters::Totals;
use tombolo_engine::mechanism::session_state::Side as EngineSide;
use tombolo_engine::packet::Packet;
use tombolo_engine::plan::{Service, ServiceKind};
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{Engine, Now, Plan, Trace, Verdict};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::sweep::Sweeper;

/// The side of the gateway that a packet is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Side {
    /// The subscribers' side
    Inside,
    /// The other one
    Outside,
}

impl Side {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Inside => Self::Outside,
            Self::Outside => Self::Inside,
        }
    }
}

/// Where the clock stands at the first packet: far enough from zero that no state looks old.
const START: Duration = Duration::from_secs(1000);

/// One engine with tables of its own.
pub(crate) struct Offline {
    plan: Plan,
    engine: Engine,
    first: Option<Duration>,
    idle_at: u64,
    tables: Arc<Tables>,
    swept_at: Now,
}

/// The daemon's sweep takes about as long for all tables.
const SWEEP: Duration = Duration::from_secs(10);

/// A packet that left.
pub(crate) struct Sent {
    pub(crate) side: Side,
    pub(crate) bytes: Vec<u8>,
}

/// What became of a packet.
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) sent: Vec<Sent>,
}

impl Offline {
    /// The gateway of a configuration file; its warnings come too.
    pub(crate) fn load(path: &Path, seed: u64) -> anyhow::Result<(Self, Vec<String>)> {
        let configuration = tombolo_config::load(path)?;
        let plan = configuration.plan;
        for service in &plan.services {
            if matches!(&service.kind, ServiceKind::Siit(siit) if siit.awaits_prefix()) {
                anyhow::bail!("service {}: prefix = \"auto\" needs the network; name the prefix", service.name);
            }
            if let Some((name, _)) = service.kind.named_end() {
                anyhow::bail!("service {}: the resolver is not asked for {name}; write its address", service.name);
            }
        }
        let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([seed, !seed, 3, 4]))?;
        let tables = Arc::new(tables);
        let now = Now(nanos(START));
        let conflicts = tombolo_engine::static_bindings::reconcile(&tables, &plan, now);
        if let Some(conflict) = conflicts.first() {
            anyhow::bail!("service {}: {:?}: {}", conflict.service, conflict.binding, conflict.reason);
        }
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let engine = Engine::new(Arc::clone(&tables), bytes, 0, 1);
        let warnings = configuration.warnings.iter().map(ToString::to_string).collect();
        Ok((Self { plan, engine, first: None, idle_at: now.0, tables, swept_at: now }, warnings))
    }

    /// What it does.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The side that a packet comes from, by its addresses: that of the service which has them,
    /// else inside for IPv6 and outside for IPv4.
    pub(crate) fn side_of(&self, bytes: &[u8]) -> Side {
        match service_of(&self.plan, bytes) {
            Some((side, _)) => side.into(),
            None if version(bytes) == 4 => Side::Outside,
            None => Side::Inside,
        }
    }

    /// Takes a packet that came from `side` at the time `at`, from whatever epoch.
    pub(crate) fn pass(&mut self, side: Side, at: Duration, packet: &mut Packet<'_>) -> Outcome {
        self.pass_with(side, at, packet, None)
    }

    /// As [`pass`](Self::pass), and says why.
    pub(crate) fn explain(&mut self, side: Side, packet: &mut Packet<'_>, trace: &mut Trace) -> Outcome {
        self.pass_with(side, Duration::ZERO, packet, Some(trace))
    }

    /// Forgets fragments whose siblings have not come by the time `at`, as the daemon does all the
    /// time.
    #[cfg_attr(not(feature = "tester"), expect(dead_code, reason = "`lab compare` asks"))]
    pub(crate) fn idle(&mut self, at: Duration) {
        let first = *self.first.get_or_insert(at);
        self.engine.idle(Now(nanos(START + at.saturating_sub(first))));
    }

    /// What it has counted.
    #[cfg_attr(not(feature = "tester"), expect(dead_code, reason = "`lab compare` asks"))]
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.engine.counters().add_to(&mut totals);
        totals
    }

    fn pass_with(&mut self, side: Side, at: Duration, packet: &mut Packet<'_>, trace: Option<&mut Trace>) -> Outcome {
        let now = self.clock(at);
        let way = Way::of(&self.plan, side, packet.bytes());
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        let verdict = match trace {
            None => self.engine.process(&self.plan, packet, now, &mut outbox),
            Some(trace) => self.engine.explain(&self.plan, packet, now, &mut outbox, trace),
        };
        let sent = sent.into_iter().map(|bytes| Sent { side: way.leaves(verdict, &bytes), bytes }).collect();
        Outcome { verdict, sent }
    }

    /// The engine's clock for a packet of the time `at`. It does not go back, whatever the captures
    /// say.
    fn clock(&mut self, at: Duration) -> Now {
        let first = *self.first.get_or_insert(at);
        let now = Now(nanos(START + at.saturating_sub(first)));
        if now.0 >= self.idle_at + 1_000_000_000 {
            self.engine.idle(now);
            self.idle_at = now.0;
        }
        if now.0 >= self.swept_at.0 + nanos(SWEEP) {
            self.sweep(now);
        }
        now
    }

    /// Removes what has expired, as the daemon does all the time.
    fn sweep(&mut self, now: Now) {
        let mut expiry = Expiry::new(&self.plan);
        let parts = Sweeper::parts(&self.tables);
        let _complete = Sweeper::new(&self.tables, now.tick()).advance(&self.tables, parts, now.tick(), &mut expiry);
        self.swept_at = now;
    }
}

/// The way of a packet through the gateway.
struct Way {
    /// Where it came from.
    from: Side,
    /// The side that each family is on, where the service has one on each.
    families: Option<Families>,
    /// It is from one host inside for another, by the outside address of that.
    hairpins: bool,
}

struct Families {
    ipv4: Side,
    ipv6: Side,
}

impl Way {
    fn of(plan: &Plan, from: Side, bytes: &[u8]) -> Self {
        let service = service_of(plan, bytes).map(|(_, service)| service);
        let families = service.filter(|service| !matches!(service.kind, ServiceKind::Nat44(_)));
        let families = families.map(|service| service.kind.shape());
        let families = families.map(|shape| Families { ipv4: shape.ipv4.into(), ipv6: shape.ipv6.into() });
        let destination = four(bytes, 16).filter(|_| version(bytes) == 4);
        let pool = service.and_then(|service| service.kind.pool());
        let hairpins = from == Side::Inside
            && pool.zip(destination).is_some_and(|(pool, destination)| pool.contains(destination.into()));
        Self { from, families, hairpins }
    }

    /// The side that a packet leaves on: that of its family, where the sides have one each. Of a NAT
    /// from IPv4 to IPv4 what is forwarded crosses, unless it is hairpinned, and answers go back.
    fn leaves(&self, verdict: Verdict, sent: &[u8]) -> Side {
        match &self.families {
            Some(families) if version(sent) == 4 => families.ipv4,
            Some(families) => families.ipv6,
            None if verdict == Verdict::Forward && !self.hairpins => self.from.other(),
            None => self.from,
        }
    }
}

impl From<EngineSide> for Side {
    fn from(side: EngineSide) -> Self {
        match side {
            EngineSide::Inside => Self::Inside,
            EngineSide::Outside => Self::Outside,
        }
    }
}

/// The service that a packet is for, and the side that it comes from.
fn service_of<'p>(plan: &'p Plan, bytes: &[u8]) -> Option<(EngineSide, &'p Service)> {
    if version(bytes) != 4 {
        let address = bytes.get(24..40).and_then(|address| <[u8; 16]>::try_from(address).ok())?;
        let (_, service) = plan.service_of_ipv6(address.into(), &mut Default::default())?;
        return Some((service.kind.shape().ipv6, service));
    }
    let (source, destination) = (four(bytes, 12)?.into(), four(bytes, 16)?.into());
    if let Some((_, service)) = plan.service_of_ipv4_source(source, destination) {
        return Some((EngineSide::Inside, service));
    }
    let (_, service) = plan.service_of_ipv4(destination, &mut Default::default())?;
    Some((service.kind.shape().ipv4, service))
}

fn four(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4).and_then(|address| address.try_into().ok())
}

fn version(bytes: &[u8]) -> u8 {
    bytes.first().map_or(0, |first| first >> 4)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
