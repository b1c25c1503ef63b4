//! A node: a host with a clock, tables that survive the process, and the process with its agent.

use std::collections::BTreeMap;

use tombolo_cluster::ownership::{Agent, Event, Lease, Moment, Node, Number, Role};

use crate::clock::Clock;
use crate::replication::Copying;
use crate::tables::{COPY_LASTS, Table};

/// A route to a host that is gone stays for so long (BFD), in microseconds.
const DETECTION: u64 = 300_000;

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) node: Node,
    pub(crate) clock: Clock,
    pub(crate) tables: Vec<Table>,
    /// The lease under which the tables' owner was registered: the next process goes on with it.
    pub(crate) saved: Option<Lease>,
    pub(crate) process: Option<Process>,
    /// Counts processes: what was meant for an earlier one is not heard.
    pub(crate) generation: u64,
    /// Faults at this moment: there is no process; the host does nothing; its clock neither; only its agent does nothing; no way to etcd;
    /// no way outside or inside.
    pub(crate) down: u8,
    pub(crate) frozen: u8,
    pub(crate) paused: u8,
    pub(crate) stalled: u8,
    pub(crate) no_etcd: u8,
    pub(crate) no_outside: u8,
    pub(crate) no_inside: u8,
    /// Operators who want it drained.
    pub(crate) drained: u8,
    /// Its clock has missed time at this moment of its own, and its agent has not heard of its lease since.
    pub(crate) late: Option<Moment>,
    /// When it died or froze.
    gone_at: Option<u64>,
    /// Since when it has a session with the router outside, or will.
    pub(crate) session: u64,
    /// Its watch is slow until then.
    pub(crate) slow_until: u64,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) agent: Agent,
    pub(crate) incarnation: u64,
    /// Shared memory: the three words, and the slice table.
    pub(crate) grant_until: Moment,
    pub(crate) serve_until: Moment,
    pub(crate) alone_until: Moment,
    pub(crate) roles: Vec<Role>,
    /// Routing table 8464.
    pub(crate) metrics: Vec<Option<u32>>,
    pub(crate) is_entrance: bool,
    /// What the agent has been told of routers.
    pub(crate) reaches: bool,
    /// Requests to etcd without an answer.
    pub(crate) asked: BTreeMap<u64, Asked>,
    /// Where its watch is.
    pub(crate) cursor: Option<usize>,
    /// When it said something last, or was confirmed.
    pub(crate) watched: Moment,
    /// Of each slice: the copy at its backup, where this node is the owner.
    pub(crate) copies: Vec<Option<Copying>>,
    /// Of each slice: when its owner was heard last, where this node is the backup.
    pub(crate) heard: Vec<Moment>,
    /// Of each slice: the connection by which its copy comes. What is on its way by an earlier one is not read any more.
    pub(crate) incoming: Vec<u64>,
    /// What the agent has not been told yet, since it is asleep.
    pub(crate) backlog: Vec<Event>,
}

/// What etcd was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Registration,
    Renewal,
    Reading,
    Transaction(Number),
}

impl Host {
    pub(crate) fn new(node: Node, clock: Clock, slices: u16) -> Self {
        Self {
            node,
            clock,
            tables: vec![Table::new(); slices.into()],
            saved: None,
            process: None,
            generation: 0,
            down: 0,
            frozen: 0,
            paused: 0,
            stalled: 0,
            no_etcd: 0,
            no_outside: 0,
            no_inside: 0,
            drained: 0,
            late: None,
            gone_at: Some(0),
            session: 0,
            slow_until: 0,
        }
    }

    pub(crate) fn moment(&self, now: u64) -> Moment {
        self.clock.moment(now)
    }

    /// Its programs run.
    pub(crate) fn runs(&self) -> bool {
        self.process.is_some() && self.frozen == 0
    }

    /// Its agent runs.
    pub(crate) fn is_awake(&self) -> bool {
        self.runs() && self.stalled == 0
    }

    /// Notes since when it is gone.
    pub(crate) fn note(&mut self, now: u64) {
        self.gone_at = if self.runs() { None } else { Some(self.gone_at.unwrap_or(now)) };
    }

    /// It was gone for so long that routers have ended their sessions with it.
    pub(crate) fn was_given_up(&self, now: u64) -> bool {
        self.gone_at.is_some_and(|at| now - at >= DETECTION)
    }

    /// It has what the router outside says, and a way there.
    pub(crate) fn has_routes(&self, now: u64) -> bool {
        self.no_outside == 0 && now >= self.session
    }

    /// Others have routes to it.
    pub(crate) fn is_announced(&self, now: u64) -> bool {
        self.gone_at.is_none_or(|at| self.process.is_some() && now - at < DETECTION)
    }

    /// Its clock has missed time, and it cannot know yet: until it hears of its lease, or nothing counts any more that it knew then.
    pub(crate) fn is_excused(&self, now: u64) -> bool {
        self.clock.is_stopped() || self.late.is_some_and(|late| self.moment(now).since(late) <= COPY_LASTS)
    }

    pub(crate) fn role(&self, slice: u16) -> Role {
        self.process.as_ref().map_or(Role::Nobody, |process| process.roles[usize::from(slice)])
    }

    pub(crate) fn table(&mut self, slice: u16) -> &mut Table {
        &mut self.tables[usize::from(slice)]
    }
}

impl Process {
    pub(crate) fn new(node: Node, slices: u16, incarnation: u64) -> Self {
        let count = usize::from(slices);
        Self {
            agent: Agent::new(node, slices),
            incarnation,
            grant_until: Moment(0),
            serve_until: Moment(0),
            alone_until: Moment(0),
            roles: vec![Role::Nobody; count],
            metrics: vec![None; count],
            is_entrance: false,
            reaches: true,
            asked: BTreeMap::new(),
            cursor: None,
            watched: Moment(0),
            copies: (0..count).map(|_| None).collect(),
            heard: vec![Moment(0); count],
            incoming: vec![0; count],
            backlog: Vec::new(),
        }
    }
}
