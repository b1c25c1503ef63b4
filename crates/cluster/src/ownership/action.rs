//! What an agent wants done.

use super::assignment::{Assignment, Epoch};
use super::node::Node;
use super::number::{Lease, Number, Revision};
use super::time::Moment;

/// What an agent wants done, in this order: a role is taken back before a word is prolonged, and a word before a role is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A lease of [`TTL`](super::TTL), and the own key under it if there is none.
    Register,
    /// One renewal of a lease.
    Renew(Lease),
    /// A transaction; its answer is waited for a second at most.
    Transact(Transaction),

    /// The word in shared memory until which right 3 is used.
    GrantUntil(Moment),
    /// The word until which rights 1 and 2 are used without looking for anybody else.
    ServeUntil(Moment),
    /// The word until which they are used for what is this node's and where nobody else is reached. An agent that lives prolongs it always:
    /// one that hangs does not hear that the slice is somebody else's by now.
    AloneUntil(Moment),
    /// This node becomes the owner, with these tables. Its role follows.
    Begin(u16, Epoch, Beginning),
    /// This node has handed a slice over, and what it has of it is from now on a whole copy, as of its successor's epoch. Its role follows.
    Keep(u16, Epoch),
    /// What this node is to a slice.
    Play(u16, Role),

    /// A backup is asked, on the connection for copies, to promise that it will claim nothing of this node's for 2 s. The number comes back
    /// with its answer, if there is one.
    Ask(Node, u64),
    /// An owner is promised what it has asked for with this number.
    Promise(Node, u64),

    /// The slice's addresses are announced with this metric, or not at all.
    Announce(u16, Option<u32>),
    /// Whether entrances are announced.
    Enter(bool),
}

/// A transaction: all of it, if all compares hold, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its number.
    pub number: Number,
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is written then.
    pub puts: Vec<(u16, Assignment)>,
}

/// What must hold for a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compare {
    /// The node's key was made at this revision.
    NodeIs(Node, Revision),
    /// The node's key was not made at this revision: it is another one, or gone.
    NodeIsNot(Node, Revision),
    /// The slice's key was last changed at this revision; 0: there is none.
    SliceIs(u16, Revision),
}

/// What tables a new owner begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Beginning {
    /// Its own: it was the owner before, and nobody since.
    Own,
    /// The former owner's, whose whole copy it has. Blocks that were offered are not granted for as long as ports rest.
    Copy,
    /// None: what it has of the slice is removed.
    Nothing,
}

/// What a node is to a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Nobody has it, as far as is known.
    Nobody,
    /// It serves it.
    Owner {
        /// The number of the ownership.
        epoch: Epoch,
        /// Where the copy is, or is made.
        backup: Option<Node>,
        /// Only blocks are granted that were offered, and whose offer the backup has acknowledged.
        by_offers: bool,
    },
    /// It hands it over to its backup: it serves what is known, and grants nothing. So it does until its successor is heard.
    Handing {
        /// The number of the ownership.
        epoch: Epoch,
        /// Where the copy is: its successor.
        backup: Node,
    },
    /// It was the owner, and has lost its lease; nobody else is known. It grants nothing.
    Former {
        /// The number of the ownership.
        epoch: Epoch,
        /// Where the copy is, or is made.
        backup: Option<Node>,
    },
    /// Its copy is being made.
    Learner {
        /// The number of the ownership.
        epoch: Epoch,
        /// Whose it is.
        owner: Node,
    },
    /// It has a copy, by which it acts where it has no route to the owner.
    Backup {
        /// The number of the ownership.
        epoch: Epoch,
        /// Whose it is.
        owner: Node,
    },
    /// It is somebody else's.
    Others {
        /// The number of the ownership.
        epoch: Epoch,
        /// Whose it is, if that is known.
        owner: Option<Node>,
        /// Whose copy there is.
        backup: Option<Node>,
    },
}
