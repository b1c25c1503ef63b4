//! What the gateway changes on its host: the device is set up, gets its addresses, and the
//! services' prefixes are routed to it. Everything is recorded and taken back when the [`Host`] is
//! dropped, except what keeps private sources in ([`Host::divert`]) once the start is complete.
//!
//! Nothing is taken from anybody: an address or a route that is there already is an error which
//! names its owner, never a replacement.
//!
//! * `changes`: the changes, and how they are taken back. `messages`: how they are said to the
//!   kernel.
//! * `upkeep`: finds out what somebody else has taken away, and puts it back.
//! * `leftovers`: what an earlier gateway has left, and its end.
//! * `replace`: what another plan needs, in the place of what the one before did.
//! * `keys`, `error`, `forwarding`.

mod changes;
mod error;
mod forwarding;
mod keys;
mod leftovers;
mod messages;
mod replace;
mod upkeep;

pub use changes::{Host, has_device};
pub use error::HostError;
pub use forwarding::{Forwarding, Switch};
pub use leftovers::{Leftovers, take_down};
pub use messages::{Family, HostAddress, Reach};
pub use replace::Setting;
pub use upkeep::{Missing, Subject, Watch};
