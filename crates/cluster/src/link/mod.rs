//! The connections on which tables are copied: TCP, TLS 1.3, both ends certified by the cluster's own
//! authority. A node has one to each of its backups, and one from each node whose backup it is.
//!
//! ```text
//! owner -> backup   hello     versions, incarnation, sizes of its tables, its name, its services
//! backup -> owner   welcome   whether it has a copy of this incarnation        or: refusal, in words
//! owner -> backup   batch, batch ...
//! backup -> owner   applied: the number of the last batch
//! both              alive, where there was nothing else for a second
//! ```
//!
//! A certificate is for the name of its node: whoever has another one cannot speak for it.

mod frame;
mod incoming;
mod outgoing;
mod standing;
mod stream;
mod terms;

pub use incoming::{Incoming, receive};
pub use outgoing::{Outgoing, send};
pub use standing::{Copying, CopyingState, Standings};
pub use terms::{Terms, TermsError};

use std::sync::Arc;
use std::time::Duration;

use tombolo_engine::Plan;
use tombolo_tables::tick::Tick;

/// How long a node may say nothing at all.
const SILENCE: Duration = Duration::from_secs(5);
/// After so long without a word a node says that it is alive.
const ALIVE: Duration = Duration::from_secs(1);
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Between two looks whether there is something to be done.
const PERIOD: Duration = Duration::from_millis(1);
/// From a connection that failed to the next one.
const PAUSE: Duration = Duration::from_millis(500);
/// A copy that is older was overtaken by what the owner did since: it is made anew.
const COPY_LASTS: Duration = Duration::from_secs(60);

/// What the threads of connections have around them.
pub trait Surroundings: std::fmt::Debug + Send + Sync {
    /// The plan in force.
    fn plan(&self) -> Arc<Plan>;
    /// The tables' clock.
    fn now(&self) -> Tick;
    /// The gateway ends.
    fn is_over(&self) -> bool;
}
