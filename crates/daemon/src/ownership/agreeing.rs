//! The thread of the agent: it is told what happens (`news.rs`: what etcd does not say), and what it wants done is done here.
//!
//! The order of what is done: tables of a slice that begins, then the slice table, then the three words. Whoever loses a slice stops
//! granting before it could go on by a prolonged word, and whoever gets one has its tables before packets find it the owner. A word that
//! becomes shorter does so first of all: a slice may become this node's by which it was not meant.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tombolo_cluster::etcd::Adapter;
use tombolo_cluster::ownership::{
    Action, Agent, Beginning, Capacity, Cause, CopyState, Epoch, Event, Moment, Node, NodeState, NodeValue, Phase,
    Presence, Revision, Role, TICK, VALUE_VERSION,
};
use tombolo_engine::cluster::{Assigned, Cluster, Granting, Holders};
use tombolo_engine::{adoption, static_bindings};
use tombolo_io::clock::{boottime_nanos, monotonic_nanos};
use tombolo_io::worker::StopSignal;

use super::announcer::Announcer;
use crate::agreement::Agreement;
use crate::copies::Copies;
use crate::holdings::Holdings;
use crate::running::Running;

/// What etcd says of the slices of one transaction it says at once, and their tables are looked through once.
const TOGETHER: Duration = Duration::from_millis(2);
/// So long a packet is served at most that was begun with before granting ended.
const SERVED: Duration = Duration::from_millis(10);
/// How often it is looked how copies stand while a slice is handed over.
const SOON: Duration = Duration::from_millis(5);
/// The part of the gateway, in its health.
const PART: &str = "etcd";

/// The agent with all that it acts on.
pub(super) struct Agreeing {
    pub(super) agent: Agent,
    pub(super) running: Arc<Running>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) adapter: Adapter,
    pub(super) agreement: Arc<Agreement>,
    pub(super) holdings: Holdings,
    pub(super) announcer: Announcer,
    /// What etcd was told of this node.
    pub(super) value: NodeValue,
    pub(super) told: Told,
    /// Nodes of which slices were taken over, and the lives that had them.
    pub(super) deposed: BTreeMap<u8, Revision>,
}

/// What the agent was told last.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) copying: HashMap<u16, (u8, Epoch, CopyState)>,
    pub(super) holds: HashMap<u16, Option<Epoch>>,
    pub(super) vouched: BTreeMap<u8, Instant>,
    /// The host lacks routes without which this node cannot serve.
    pub(super) lacks_routes: bool,
    /// Until when this node may grant.
    grant_until: Moment,
    /// What the engine was told of it.
    granted_until: Moment,
    fault: Option<String>,
}

/// The moment on the clock by which leases are counted: it goes on while the host sleeps.
pub(super) fn boot_moment() -> Moment {
    Moment::of_nanos(boottime_nanos())
}

/// What is said of this node in etcd.
pub(super) fn node_value(running: &Running, cluster: &Cluster, incarnation: u64) -> NodeValue {
    let state = match cluster.is_connected() {
        // It is gone in a moment. One that drains takes the time that its plan takes.
        _ if running.is_leaving.load(Ordering::Relaxed) => NodeState::Joining,
        _ if running.plan.load().times.draining_since.is_some() => NodeState::Draining,
        true if cluster.is_entrance() => NodeState::Serving,
        // It serves what it has yet.
        true => NodeState::Draining,
        false => NodeState::Joining,
    };
    let tables = &running.tables;
    NodeValue {
        version: VALUE_VERSION,
        incarnation,
        locator: cluster.locator(),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: 1,
        weight: 1,
        state,
        // Whoever registers knows.
        began_bare: false,
        configuration: 0,
        capacity: Capacity {
            subscribers: tables.subscribers.capacity().into(),
            bindings: tables.bindings.capacity().into(),
        },
    }
}

impl Agreeing {
    /// Goes on until the gateway ends.
    pub(super) fn go_on(&mut self, events: &Receiver<Event>, stop: &StopSignal) {
        let held = self.holdings.all().into_iter().map(|(slice, epoch)| Event::Holds(slice, Some(Epoch(epoch))));
        self.hear(held);
        let mut due = Instant::now();
        while !stop.is_given() {
            tombolo_io::fault::trip("thread-ownership");
            match events.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(event) => {
                    std::thread::sleep(TOGETHER);
                    let told: Vec<Event> = std::iter::once(event).chain(events.try_iter()).collect();
                    // Looked at after these have come: what they follow from is there by then.
                    let held = self.held();
                    self.hear(held.into_iter().chain(told));
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The gateway ends.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(TICK)),
            }
            if Instant::now() >= due {
                due = Instant::now() + Duration::from_millis(TICK);
                self.describe();
                let news = self.news();
                self.hear(news.into_iter().chain([Event::Tick]));
                self.say_how_it_is();
            }
            if self.is_handing() {
                due = due.min(Instant::now() + SOON);
            }
        }
    }

    /// The agent is told what has happened, and what it wants is done.
    fn hear(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut actions = Vec::new();
        for event in events {
            self.agreement.hear(&event);
            self.forget_deposed(&event);
            self.agent.handle(boot_moment(), event, &mut |action| actions.push(action));
        }
        let mut begun = Vec::new();
        for action in &actions {
            if !matches!(
                action,
                Action::Renew(_) | Action::GrantUntil(_) | Action::ServeUntil(_) | Action::AloneUntil(_)
            ) {
                tracing::debug!(?action, "the agent wants");
            }
            match action {
                Action::Register | Action::Renew(_) | Action::Transact(_) => self.adapter.act(action.clone()),
                Action::Begin(slice, epoch, beginning) => begun.push((*slice, *epoch, *beginning)),
                Action::Keep(slice, epoch) => self.keep(*slice, *epoch),
                Action::GrantUntil(moment) => self.told.grant_until = *moment,
                Action::Ask(backup, number) => self.with_copies(|copies| copies.ask(backup.0, *number)),
                Action::Promise(owner, number) => self.with_copies(|copies| copies.promise(owner.0, *number)),
                _ => {}
            }
        }
        let is_shortened = self.told.grant_until < self.told.granted_until && self.grant();
        self.begin(&begun);
        let mut is_changed = self.assign();
        let is_other_word = self.grant() | is_shortened;
        self.settle(&actions);
        for action in actions {
            match action {
                Action::ServeUntil(moment) => self.cluster.set_serves_until(engine_nanos(moment)),
                Action::AloneUntil(moment) => self.cluster.set_alone_until(engine_nanos(moment)),
                Action::Enter(is_entrance) => {
                    self.cluster.set_entrance(is_entrance);
                    is_changed = true;
                }
                _ => {}
            }
        }
        if is_changed || is_other_word {
            self.running.accelerator.iter().for_each(|accelerator| accelerator.follow_cluster(&self.cluster));
        }
        if is_changed {
            self.announcer.announce();
        }
    }

    /// The engine hears until when it may grant: while this node hands a slice over it grants nothing, of no slice.
    /// True if that is otherwise than before.
    fn grant(&mut self) -> bool {
        let until = if self.is_handing() { Moment(0) } else { self.told.grant_until };
        self.cluster.set_grants_until(engine_nanos(until));
        std::mem::replace(&mut self.told.granted_until, until) != until
    }

    fn is_handing(&self) -> bool {
        self.cluster.slices().any(|slice| matches!(self.agent.role(slice), Role::Handing { .. }))
    }

    /// Where slices are handed over, it counts from now on what their backups have. Packets that were being served when granting ended are by then.
    fn settle(&mut self, actions: &[Action]) {
        let handed: BTreeMap<u16, u8> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Play(slice, Role::Handing { backup, .. }) => Some((*slice, backup.0)),
                _ => None,
            })
            .collect();
        let Some(copies) = self.running.copies.as_ref().filter(|_| !handed.is_empty()) else { return };
        std::thread::sleep(SERVED);
        let plan = self.running.plan.load();
        handed.values().collect::<BTreeSet<_>>().into_iter().for_each(|node| copies.settle(*node, &plan));
        self.told.copying.retain(|slice, _| !handed.contains_key(slice));
    }

    /// This node has handed a slice over: its tables are a whole copy as of this epoch, which the agent has said by itself, and is told when it
    /// is otherwise.
    fn keep(&mut self, slice: u16, epoch: Epoch) {
        if let Some((copies, successor)) = self.running.copies.as_ref().zip(owner_of(self.agent.role(slice))) {
            copies.keep(slice, successor.0, epoch.0);
            self.told.holds.insert(slice, Some(epoch));
        }
    }

    /// Slices become this node's own: their tables do.
    fn begin(&mut self, begun: &[(u16, Epoch, Beginning)]) {
        let of = |wanted| {
            let slices = begun.iter().filter(move |(.., beginning)| *beginning == wanted);
            slices.map(|(slice, ..)| *slice).collect::<HashSet<u16>>()
        };
        let (taken, lost) = (of(Beginning::Copy), of(Beginning::Nothing));
        // Who has handed a slice over knows that.
        let was_given = |slice: u16, epoch: Epoch| {
            let agreed = self.agreement.assignment(slice);
            agreed.is_some_and(|agreed| (agreed.epoch, agreed.cause) == (epoch, Cause::Handover))
        };
        let is_taken = |(slice, epoch, beginning): &&(u16, Epoch, Beginning)| {
            *beginning != Beginning::Own && !was_given(*slice, *epoch)
        };
        let all_taken: Vec<u16> = begun.iter().filter(is_taken).map(|(slice, ..)| *slice).collect();
        all_taken.into_iter().for_each(|slice| self.depose(slice));
        let (plan, now) = (self.running.plan.load(), self.running.now());
        if !lost.is_empty() {
            let gone = adoption::forget(&self.running.tables, &plan, |slice| lost.contains(&slice), now);
            tracing::info!(slices = lost.len(), gone, "slices of the cluster begin with empty tables here");
        }
        if !taken.is_empty() {
            let bindings = adoption::take_over(&self.running.tables, &plan, |slice| taken.contains(&slice), now);
            tracing::info!(slices = taken.len(), bindings, "slices of another node taken over with their bindings");
        }
    }

    /// Whoever had a slice may not know that it has it no more.
    fn depose(&mut self, slice: u16) {
        let Holders { owner, .. } = self.cluster.holders(slice);
        if usize::from(owner) < self.cluster.nodes().len() && usize::from(owner) != self.cluster.own() {
            self.deposed.entry(owner).or_default();
            self.cluster.depose(slice, owner);
            self.cluster.forget_acting(owner);
        }
    }

    /// A node that has another life by now has heard what became of its slices.
    fn forget_deposed(&mut self, event: &Event) {
        let mut see = |node: Node, presence: Presence| {
            let is_new = self.deposed.get(&node.0).is_some_and(|life| presence.created > *life);
            if is_new {
                self.deposed.remove(&node.0);
                self.cluster.forget_deposed(node.0);
            }
        };
        match event {
            Event::NodeSeen(node, presence) => see(*node, *presence),
            Event::Read(reading) => reading.nodes.iter().for_each(|(node, presence)| see(*node, *presence)),
            _ => {}
        }
    }

    /// The slice table becomes what the agent says. True if it was otherwise.
    fn assign(&mut self) -> bool {
        let own = u8::try_from(self.cluster.own()).unwrap_or(Holders::NOBODY);
        let has_it = |Holders { owner, backup }: Holders| owner == own || backup == Some(own);
        let (mut is_changed, mut has_other_own) = (false, false);
        let mut taken_up = BTreeMap::<u8, HashSet<u16>>::new();
        let (mut lost, mut marked) = (HashSet::new(), BTreeSet::new());
        for slice in self.cluster.slices() {
            let (was, is) = (self.cluster.assigned(slice), self.assigned(slice));
            if was == is {
                continue;
            }
            is_changed = true;
            tracing::debug!(slice, ?was, ?is, "slice table");
            self.cluster.assign(slice, is);
            let Holders { owner, backup } = is.holders;
            self.holdings.hold(slice, (owner == own).then_some(is.epoch));
            has_other_own |= (owner == own) != (was.holders.owner == own);
            if let Some(backup) = backup.filter(|_| owner == own && (was.holders, was.epoch) != (is.holders, is.epoch))
            {
                taken_up.entry(backup).or_default().insert(slice);
            }
            if is.granting == Granting::ByOffers && was.granting != Granting::ByOffers {
                marked.extend(backup);
            }
            // What was handed over is kept, though etcd may not have said yet that this node is the backup.
            let keeps = |epoch| self.running.copies.as_ref().is_some_and(|copies| copies.keeps(slice, epoch));
            let is_others = owner != Holders::NOBODY && !has_it(is.holders) && !keeps(is.epoch);
            if is_others && (has_it(was.holders) || was.holders.owner == Holders::NOBODY || keeps(was.epoch)) {
                lost.insert(slice);
            }
        }
        if is_changed {
            // Before anybody hears of it by a copy that begins: a former owner redirects from then on.
            self.running.accelerator.iter().for_each(|accelerator| accelerator.follow_cluster(&self.cluster));
        }
        let (plan, now) = (self.running.plan.load(), self.running.now());
        if let Some(copies) = &self.running.copies {
            taken_up.iter().for_each(|(node, slices)| copies.take_up(*node, |slice| slices.contains(&slice), &plan));
            marked.into_iter().for_each(|node| copies.mark(node, &plan));
        }
        if !lost.is_empty() {
            adoption::forget(&self.running.tables, &plan, |slice| lost.contains(&slice), now);
            self.running.copies.iter().for_each(|copies| copies.lose(|slice| lost.contains(&slice)));
        }
        if has_other_own {
            for conflict in static_bindings::reconcile(&self.running.tables, &plan, now) {
                tracing::warn!(service = conflict.service, binding = ?conflict.binding, "static binding: {}", conflict.reason);
            }
        }
        is_changed
    }

    /// What the engine is to know of a slice.
    fn assigned(&self, slice: u16) -> Assigned {
        let own = u8::try_from(self.cluster.own()).unwrap_or(Holders::NOBODY);
        let number = |node: Option<Node>| node.map(|node| node.0);
        let agreed = self.agreement.assignment(slice);
        let granting = match self.agent.role(slice) {
            Role::Owner { by_offers: true, .. } => Granting::ByOffers,
            Role::Owner { by_offers: false, .. } => Granting::Freely,
            _ => Granting::Nothing,
        };
        let is_agreed = |epoch| agreed.is_some_and(|agreed| agreed.epoch == epoch && agreed.phase == Phase::Protected);
        let (owner, backup, epoch, is_protected) = match self.agent.role(slice) {
            Role::Nobody => return Assigned::NOBODY,
            Role::Owner { epoch, backup, .. } | Role::Former { epoch, backup } => {
                (own, number(backup), epoch, is_agreed(epoch))
            }
            Role::Handing { epoch, backup } => (own, Some(backup.0), epoch, true),
            Role::Learner { epoch, owner } => (owner.0, Some(own), epoch, false),
            Role::Backup { epoch, owner } => (owner.0, Some(own), epoch, true),
            Role::Others { epoch, owner, backup } => {
                (number(owner).unwrap_or(Holders::NOBODY), number(backup), epoch, is_agreed(epoch))
            }
        };
        Assigned { holders: Holders { owner, backup }, epoch: epoch.0, is_protected, granting }
    }

    /// Tells etcd what has become otherwise with this node.
    fn describe(&mut self) {
        let value = node_value(&self.running, &self.cluster, self.value.incarnation);
        if value != self.value {
            self.value = value.clone();
            self.adapter.describe(value);
        }
    }

    fn with_copies(&self, say: impl FnOnce(&Copies)) {
        if let Some(copies) = &self.running.copies {
            say(copies);
        }
    }

    /// Says whether this node may grant, by what, and why not.
    fn say_how_it_is(&mut self) {
        let fault = self.adapter.take_fault();
        if fault.is_some() {
            self.told.fault = fault;
        }
        let now = boot_moment();
        let faults = if now < self.agent.deadline() {
            self.told.fault = None;
            Vec::new()
        } else {
            let why = self.told.fault.as_deref().unwrap_or("it has not answered yet");
            let what = match self.agent.grace(now).filter(|_| !self.is_handing()) {
                // Not each second is news.
                Some(left) => format!("new subscribers are admitted for {} s more at most", left.div_ceil(10_000) * 10),
                None => "nobody new is admitted".to_owned(),
            };
            vec![format!("{what}, since this node has no lease in etcd: {why}")]
        };
        self.running.health.set(PART, faults);
    }
}

/// Whose a slice is, or will be in a moment, where that is another node.
const fn owner_of(role: Role) -> Option<Node> {
    match role {
        Role::Handing { backup, .. } => Some(backup),
        Role::Backup { owner, .. } | Role::Learner { owner, .. } => Some(owner),
        Role::Others { owner, .. } => owner,
        Role::Nobody | Role::Owner { .. } | Role::Former { .. } => None,
    }
}

/// The same moment by the engine's clock. That one stands still while the host sleeps, so it is reckoned anew each time.
fn engine_nanos(Moment(millis): Moment) -> u64 {
    let (boot, engine) = (boottime_nanos(), monotonic_nanos());
    let at = millis.saturating_mul(1_000_000);
    if at >= boot { engine.saturating_add(at - boot) } else { engine.saturating_sub(boot - at) }
}
