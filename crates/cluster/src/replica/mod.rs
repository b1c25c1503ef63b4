//! The copy of a node's slices at its backup.
//!
//! The table is the log: there is no queue of events. Whoever changes a record sets a bit
//! ([`tombolo_tables::changes`]); the sender takes the bits and sends what the records say *now*. A record that
//! has changed ten times meanwhile is sent once, a peer that cannot keep up costs no memory, and nothing is
//! lost: what was not acknowledged when a connection breaks is sent again.
//!
//! ```text
//! owner      changes -> [sender] a bit a record and backup -> batches of 16 KB, at most 4 MB unacknowledged
//! backup     [applier] (owner, its number) -> own record, made through the same doors as by packets
//! ```
//!
//! An owner that comes back without its tables gets them back by the same means, before it serves; and one that was
//! not seen for a while gets what was made meanwhile, and takes what is not in the way of its own.
//!
//! The numbers of records are the owner's, as are those of services, which have names besides. Outside
//! endpoints say by themselves which slot they have under the backup's plan. Times are ages: clocks are each
//! machine's own.

mod applier;
mod batch;
mod bits;
mod numbers;
mod offers;
mod record;
mod sender;
mod slices;
mod to;
mod view;
mod words;

pub use applier::{Applied, Applier, Purpose, Refused};
pub use batch::{BATCH_BYTES, BatchError, Epochs};
pub use record::{Class, RecordError};
pub use sender::{Lacking, Sender, Start, WINDOW_BYTES};
pub use to::To;
pub use view::{ServiceName, View};
