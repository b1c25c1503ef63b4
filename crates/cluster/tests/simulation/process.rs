//! The process of a node: it tells its agent what has happened, and does what that wants.

use tombolo_cluster::ownership::{Action, Beginning, Cause, Epoch, Event, Moment, Role, TICK};

use crate::flaw::Flaw;
use crate::host::{Asked, Process};
use crate::judge::Invariant;
use crate::replication::By;
use crate::requests::Request;
use crate::tables::{REST, State};
use crate::world::{What, World};

/// How often an owner looks through its tables.
const SWEEP: u64 = 250_000;

impl World {
    /// A process begins, with the tables that there are.
    pub(crate) fn start(&mut self, host: usize) {
        let incarnation = self.number();
        let slices = self.slices;
        let now = self.now;
        let own = &mut self.hosts[host];
        own.generation += 1;
        own.process = Some(Process::new(own.node, slices, incarnation));
        own.note(now);
        let generation = own.generation;
        for slice in 0..slices {
            let whole = self.hosts[host].table(slice).whole;
            if whole.is_some() {
                self.tell(host, Event::Holds(slice, whole));
            }
        }
        let first = self.random.between(0, 100_000);
        self.later(first, What::Tick(host, generation));
        self.later(first, What::Sweep(host, generation));
    }

    pub(crate) fn stop(&mut self, host: usize) {
        let own = &mut self.hosts[host];
        own.generation += 1;
        own.process = None;
        own.note(self.now);
    }

    pub(crate) fn tick(&mut self, host: usize, generation: u64) {
        if self.hosts[host].generation != generation {
            return;
        }
        let late = if self.random.chance(20) { 150_000 } else { 0 };
        let next = TICK * 1000 + self.random.between(0, 2000) + late;
        self.later(next, What::Tick(host, generation));
        if self.hosts[host].is_awake() {
            for slice in 0..self.slices {
                self.copy(host, slice, By::Look);
            }
            self.greet(host);
            self.hear_routes(host);
            self.keep_watch(host);
            self.tell(host, Event::Tick);
        }
    }

    /// What was asleep goes on with what has come meanwhile.
    pub(crate) fn wake(&mut self, host: usize) {
        if !self.hosts[host].is_awake() {
            return;
        }
        if self.random.chance(500) {
            self.tell(host, Event::Tick);
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        for event in std::mem::take(&mut process.backlog) {
            self.tell(host, event);
        }
    }

    /// The agent is told, and obeyed.
    pub(crate) fn tell(&mut self, host: usize, event: Event) {
        let own = &mut self.hosts[host];
        let (moment, is_awake) = (own.moment(self.now), own.is_awake());
        let Some(process) = &mut own.process else { return };
        if !is_awake {
            process.backlog.push(event);
            return;
        }
        match &event {
            Event::Registered { lease, sent, .. } => {
                own.saved = Some(*lease);
                own.late = own.late.filter(|late| sent <= late);
            }
            Event::Renewed { sent, .. } => own.late = own.late.filter(|late| sent <= late),
            _ => {}
        }
        let event = match event {
            Event::Promised(node, _) if self.flaw == Some(Flaw::PromiseCountedFromAnswer) => {
                Event::Promised(node, moment.0)
            }
            event => event,
        };
        let mut actions = Vec::new();
        let line = (self.trace.is_kept() && event != Event::Tick)
            .then(|| (slice_of(&event), format!("n{host} hears {event:?}")));
        process.agent.handle(moment, event, &mut |action| actions.push(action));
        if let Some((slice, line)) = line {
            self.note(slice, || line);
        }
        for action in actions {
            self.perform(host, moment, action);
        }
    }

    fn perform(&mut self, host: usize, moment: Moment, action: Action) {
        if !matches!(action, Action::GrantUntil(_) | Action::ServeUntil(_) | Action::AloneUntil(_)) {
            let slice = match &action {
                Action::Begin(slice, ..)
                | Action::Keep(slice, _)
                | Action::Play(slice, _)
                | Action::Announce(slice, _) => Some(*slice),
                _ => None,
            };
            self.note(slice, || format!("n{host} does {action:?}"));
        }
        let own = &mut self.hosts[host];
        let resumed = own.saved;
        let Some(process) = &mut own.process else { return };
        match action {
            Action::Register => {
                let incarnation = process.incarnation;
                let is_bare = own.tables.iter().all(|table| table.whole.is_none());
                self.ask(host, moment, Asked::Registration, Request::Register { incarnation, is_bare, resumed });
            }
            Action::Renew(lease) => self.ask(host, moment, Asked::Renewal, Request::Renew(lease)),
            Action::Transact(transaction) => {
                self.ask(host, moment, Asked::Transaction(transaction.number), Request::Transact(transaction));
            }
            Action::GrantUntil(until) => process.grant_until = until,
            Action::ServeUntil(until) => process.serve_until = until,
            Action::AloneUntil(until) => process.alone_until = until,
            Action::Ask(backup, number) if self.flaw == Some(Flaw::PromiseForgotten) => {
                self.pass(backup.0.into(), host, Event::Promised(backup, number));
            }
            Action::Ask(backup, number) => {
                let owner = own.node;
                self.pass(host, backup.0.into(), Event::Asked(owner, number));
            }
            Action::Promise(owner, number) => {
                let backup = own.node;
                self.judge.seen.promises += 1;
                self.pass(host, owner.0.into(), Event::Promised(backup, number));
            }
            Action::Begin(slice, epoch, beginning) => self.begin(host, moment, slice, epoch, beginning),
            Action::Keep(slice, epoch) => self.keep(host, moment, slice, epoch),
            Action::Play(slice, role) => {
                process.roles[usize::from(slice)] = role;
                if let Role::Handing { backup, .. } = role {
                    self.ambush(host, backup.0.into());
                }
                self.copy_as_played(host, slice);
            }
            Action::Announce(slice, metric) => process.metrics[usize::from(slice)] = metric,
            Action::Enter(is_entrance) => process.is_entrance = is_entrance,
        }
    }

    fn begin(&mut self, host: usize, moment: Moment, slice: u16, epoch: Epoch, beginning: Beginning) {
        let assigned = self.etcd.assignment(slice).filter(|assigned| assigned.epoch == epoch);
        if beginning == Beginning::Nothing {
            if let Some(cause @ (Cause::Takeover | Cause::Return | Cause::Handover)) =
                assigned.map(|assigned| assigned.cause)
            {
                self.judge
                    .accuse(Invariant::Succession, slice, || format!("n{host} begins with nothing after a {cause:?}"));
            }
            self.judge.begin_anew(slice, epoch);
        }
        let table = self.hosts[host].table(slice);
        let was_whole = table.whole;
        table.begin(epoch, beginning, moment);
        if beginning == Beginning::Own && was_whole == Some(epoch) {
            return;
        }
        for (block, kept) in self.hosts[host].tables[usize::from(slice)].blocks.iter().enumerate() {
            if let State::Granted { subscriber, since, .. } = kept.state {
                self.judge.log(slice, epoch, block, subscriber, since);
            }
        }
    }

    /// What a node has handed over is a whole copy, as fresh as it was when it owned it.
    fn keep(&mut self, host: usize, moment: Moment, slice: u16, epoch: Epoch) {
        let table = self.hosts[host].table(slice);
        (table.epoch, table.whole) = (epoch, Some(epoch));
        if let Some(process) = &mut self.hosts[host].process {
            process.heard[usize::from(slice)] = moment;
        }
        self.judge.seen.kept += 1;
    }

    pub(crate) fn sweep(&mut self, host: usize, generation: u64) {
        if self.hosts[host].generation != generation {
            return;
        }
        let next = SWEEP + self.random.between(0, 10_000);
        self.later(next, What::Sweep(host, generation));
        if !self.hosts[host].runs() {
            return;
        }
        let moment = self.hosts[host].moment(self.now);
        let rest = if self.flaw == Some(Flaw::NoRest) { 0 } else { REST };
        for slice in 0..self.slices {
            let Role::Owner { epoch, .. } = self.hosts[host].role(slice) else { continue };
            let released = self.hosts[host].tables[usize::from(slice)].sweep(moment, rest, &mut self.random);
            for block in released {
                self.judge.log_end(slice, epoch, block, self.now);
            }
            self.copy(host, slice, By::Change);
        }
    }
}

/// The slice that an event is about, if it is about one.
const fn slice_of(event: &Event) -> Option<u16> {
    match event {
        Event::SliceSeen(slice, ..)
        | Event::Copying { slice, .. }
        | Event::Holds(slice, _)
        | Event::Deposed(slice, ..) => Some(*slice),
        _ => None,
    }
}
