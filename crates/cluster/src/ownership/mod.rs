//! Who owns which slice: what a node does about its lease, its slices and other nodes' that are gone, as a pure state machine. Events
//! in, actions out; the time is an argument. No thread, no socket, no clock: whoever has those is the *adapter*.
//!
//! ```text
//!               events                        actions
//!   etcd     -> registered, renewed, lost,    register, renew,                 -> etcd
//!               keys, answers                 transactions
//!   copies   -> copying, holds, vouched,      [agent]  roles, beginnings       -> slice table, copies
//!               asked, promised                        ask, promise            -> other nodes' agents
//!   routers  -> reaches, deposed              three words                      -> shared memory, engine
//!   operator -> wishes                        metrics, entrances               -> routing table 8464
//!   clock    -> tick
//! ```
//!
//! | word | meaning |
//! |---|---|
//! | presence | a node's key `nodes/<name>`, under its lease. [`Revision`] of its making: one life of the node |
//! | assignment | a slice's key `slices/<nnnn>`, without a lease: owner, epoch, backup, phase |
//! | gone | an owner whose key was made at another revision than the assignment says, or is not there |
//! | epoch | number of ownerships that a slice has had: the higher one is right |
//! | to hold | to have all of a slice's state in the own tables, as its owner or by a whole copy |
//! | deadline | until when a node counts on its lease: a word that is compared before anything is granted |
//! | to vouch | of a backup: to say that it has taken over nothing |
//! | to promise | of a backup: to say that it will take over nothing for 2 s |
//! | grace | 30 s after its lease for which an owner grants by its backups' promises |
//! | offer | a block that the backup knows may be granted from now on |
//! | wish | what an operator wants: a node is to be drained, a slice is pinned to a node, owner and backup of a slice are gone for good, nothing is to move for balance |
//! | plan | who should have which slice, which all agents compute alike from members, assignments and wishes |
//! | handover | a planned change of owner: the backup becomes the owner, and the owner the backup |
//!
//! Who owns a slice is decided by etcd alone, one transaction at a time, each of which says what it goes by:
//!
//! ```text
//! takeover    owner's key is not of the life that is in the assignment    a claimant
//!             own key is the one that was made; assignments as read       -> owner = own, epoch + 1
//! handover    own key and successor's are those that were made;           the owner -> owner = backup, backup = own, epoch + 1
//!             assignments as read
//! tending     own key is the one that was made; assignments as read       the owner -> backup, phase
//! ```
//!
//! So an agent that sees etcd late, or not at all, may try what is refused, and cannot do harm. What it must not do is to grant after its
//! lease has ended, unless its backups have promised to take over nothing; the deadline passes first, and so does the promise as the owner
//! counts it.

mod action;
mod agent;
mod assignment;
mod change;
mod claims;
mod event;
mod grace;
mod handover;
mod lease;
mod node;
mod number;
mod plan;
mod planning;
mod promises;
mod roles;
mod tending;
mod time;
mod value;
mod view;
mod wishes;

pub use action::{Action, Beginning, Compare, Role, Transaction};
pub use agent::Agent;
pub use assignment::{Assignment, Cause, Epoch, Phase};
pub use event::{CopyState, Event, Reading};
pub use node::{Names, Node, Presence};
pub use number::{Lease, Number, Revision};
pub use plan::{MOVES, Member, Plan, Target};
pub use time::{LastHeard, Moment};
pub use value::{Capacity, NodeState, NodeValue, SliceValue, VALUE_VERSION, ValueError, WishValue};
pub use wishes::{Wish, Wishes};

/// How long a lease lasts after its renewal, in milliseconds of etcd's clock. Longer than an election (`--election-timeout 500`).
pub const TTL: u64 = 2000;
/// How often an agent is told that time passes, in milliseconds.
pub const TICK: u64 = 100;
/// How often a lease is renewed, in milliseconds.
pub const RENEWAL: u64 = 500;
