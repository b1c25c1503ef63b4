//! The connections on which tables are copied: TCP, TLS 1.3, both ends certified by the cluster's own
//! authority. A node has one to each of its backups, and one from each node whose backup it is; and one to each node from which it
//! took slices over, as long as that may not know, or that its routes have lost.
//!
//! ```text
//! owner -> backup   hello     versions, incarnation, sizes of its tables, its name, its services
//! backup -> owner   welcome   whether it has a copy of this incarnation        or: refusal, in words
//!
//! (where the owner lacks what the backup has)
//! backup -> owner   hello, batch, batch ...         until the owner is seen to serve
//! owner -> backup   applied
//! backup -> owner   welcome   as above
//!
//! owner -> backup   batch, batch ...
//! backup -> owner   applied: the number of the last batch
//! both              alive, where there was nothing else for a second
//!
//! (where nodes agree on who has which slice)
//! backup -> owner   vouch     it has taken over nothing
//! both              took      what it has taken over from the other end, as long as that may not know
//! both              unseen    its host's routes do not lead to the other end any more, as long as they do not
//!
//! (where etcd does not answer)
//! owner -> backup   ask: a number
//! backup -> owner   promise: the same number          if it will take over nothing for 2 s
//! ```
//!
//! A certificate is for the name of its node: whoever has another one cannot speak for it.

mod ends;
mod frame;
mod giving_back;
mod incoming;
mod kept;
mod outgoing;
mod promises;
mod returns;
mod standing;
mod stream;
mod taken;
mod terms;
mod took;
mod unseen;

pub use ends::{Incoming, Outgoing, Successor};
pub use incoming::receive;
pub use outgoing::send;
pub use promises::Promises;
pub use returns::Returns;
pub use standing::{Copying, CopyingState, Standings};
pub use taken::Taken;
pub use terms::{Terms, TermsError};

use std::sync::Arc;
use std::time::Duration;

use tombolo_engine::Plan;
use tombolo_tables::tick::Tick;

/// How long a node may say nothing at all.
const SILENCE: Duration = Duration::from_secs(5);
/// After so long without a word a node says that it is alive.
const ALIVE: Duration = Duration::from_secs(1);
/// How long a connection is waited for. The kernel asks ever more rarely, and the other host may just have come back.
const CONNECT: Duration = Duration::from_secs(1);
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Between two looks whether there is something to be done.
const PERIOD: Duration = Duration::from_millis(1);
/// From a connection that failed to the next one.
const PAUSE: Duration = Duration::from_millis(500);
/// A copy that is older was overtaken by what the owner did since: it is made anew.
const COPY_LASTS: Duration = Duration::from_secs(tombolo_engine::cluster::COPY_LASTS as u64);
/// So long after the last word is a copy good: the other end may have been silent before.
const UNHEARD_LASTS: Duration = COPY_LASTS.saturating_sub(SILENCE);

/// What the threads of connections have around them.
pub trait Surroundings: std::fmt::Debug + Send + Sync {
    /// The plan in force.
    fn plan(&self) -> Arc<Plan>;
    /// The tables' clock.
    fn now(&self) -> Tick;
    /// The gateway ends.
    fn is_over(&self) -> bool;
    /// What agents ask of each other, where nodes agree on who has which slice.
    fn promises(&self) -> Option<&Promises> {
        None
    }
}
