//! What an agent is told.

use super::assignment::{Assignment, Epoch};
use super::node::{Node, Presence};
use super::number::{Lease, Number, Revision};
use super::time::Moment;
use super::wishes::{Wish, Wishes};

/// What an agent is told. Answers of etcd may be late, and those to an earlier lease or transaction may still come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Some time has passed: said every [`TICK`](super::TICK) milliseconds, whatever else there is.
    Tick,

    /// The own key was made under this lease, or was found there: it is of this life, or of an earlier one whose tables this process
    /// has adopted. A process without them waits until the former key is gone.
    Registered {
        /// The lease, asked for or renewed at `sent`.
        lease: Lease,
        /// When the key was made.
        created: Revision,
        /// Before the request was sent that was answered.
        sent: Moment,
    },
    /// It was not, or nobody knows.
    NotRegistered,
    /// The lease was renewed by a request made at `sent`. A renewal without an answer is not told.
    Renewed {
        /// Which one.
        lease: Lease,
        /// Before the request was sent that was answered.
        sent: Moment,
    },
    /// There is no such lease, etcd says.
    LeaseLost(Lease),

    /// All that etcd has. It replaces what was known.
    Read(Reading),
    /// A node's key is there, or has another value.
    NodeSeen(Node, Presence),
    /// A node's key is gone.
    NodeGone(Node),
    /// A slice's key has this value, since this revision.
    SliceSeen(u16, Assignment, Revision),
    /// What an operator wants is otherwise.
    Wished(Wish),

    /// A transaction was carried out, at this revision.
    Done(Number, Revision),
    /// It was not, since something was otherwise than it says.
    Refused(Number),
    /// Nobody knows, and it may still be carried out.
    Unknown(Number),

    /// At the owner: how the copy of a slice at this backup stands; told when it changes. A role that names a backup, in an epoch, which
    /// the role before did not name begins another copy, which is `Broken` until something else is told.
    Copying {
        /// The slice.
        slice: u16,
        /// Where the copy is.
        backup: Node,
        /// How it stands.
        state: CopyState,
    },
    /// The tables here have all of a slice, as of this epoch, as its owner's or as its backup's whole copy; or they do not.
    /// Told when it changes, before what etcd says that may follow from it, and with what the owner sends: a node whose lease was lost acts by
    /// a copy only after that.
    Holds(u16, Option<Epoch>),
    /// A backup says that it has taken over nothing that is this node's.
    Vouched(Node),
    /// An owner, with a number of its own, asks this node to promise that it will claim nothing of its for 2 s.
    Asked(Node, u64),
    /// A node has promised what it was asked for with this number.
    Promised(Node, u64),
    /// Whether the node reaches routers of both sides, which is assumed until this is told. One that does not takes over nothing: it could
    /// not serve, and an owner that is cut off from everybody else would not hear from the routers that it is one no more.
    Reaches(bool),
    /// Somebody else owns the slice: its successor says so on the connection for copies, or the routers do, who do not say who.
    Deposed(u16, Epoch, Option<Node>),
}

/// All that etcd has, at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// The nodes whose keys are there.
    pub nodes: Vec<(Node, Presence)>,
    /// The slices whose keys are there.
    pub slices: Vec<(u16, Assignment, Revision)>,
    /// What operators want.
    pub wishes: Wishes,
}

/// How the copy of a slice stands, as its owner knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum CopyState {
    /// As `Broken`, and the routes say that the backup's host is gone, or the path to it.
    Lost,
    /// There is no connection, or it lags by more than a second.
    #[default]
    Broken,
    /// Records are being sent.
    Copying,
    /// All were sent, and what changes is, within 50 ms.
    Near,
    /// Besides, all that was granted before the slice was [`by_offers`](super::Role::Owner::by_offers) is acknowledged, so that the
    /// backup knows each block that was granted or may be.
    Whole,
    /// Besides, the slice is [`Handing`](super::Role::Handing), and all that was changed before it was is acknowledged: the backup knows all
    /// that the owner does.
    Settled,
}
