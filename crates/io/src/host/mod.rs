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
//! * `shared`: ports of the host's own address. `reserved_ports`: the host uses none of them meanwhile.
//!   `given_back`: what comes from the device as it came to it. `source_check`: the kernel's of what comes from there.
//! * `neighbours`: they are answered for what lies behind the gateway. `proxies`: the kernel's entries for that.
//! * `native`: whether the host has IPv4 of its own.
//! * `announcement`: routes for a routing daemon. `presence`: who is there, as routes say.
//! * `own_address`: which address an interface has, and that it changes.
//! * `keys`, `error`, `forwarding`.

mod announcement;
mod changes;
mod error;
mod forwarding;
mod given_back;
mod keys;
mod leftovers;
mod messages;
mod native;
mod neighbours;
mod own_address;
mod presence;
mod proxies;
mod replace;
mod reserved_ports;
mod shared;
mod source_check;
mod upkeep;

pub use announcement::{Announcement, Rank};
pub use changes::{Host, has_device};
pub use error::HostError;
pub use forwarding::{Forwarding, Switch};
pub use leftovers::{Leftovers, take_down};
pub use messages::{Family, HostAddress, Reach, is_for_the_rest};
pub use neighbours::Answers;
pub use own_address::AddressWatch;
pub use presence::PresenceWatch;
pub use replace::Setting;
pub use shared::SharedAddress;
pub use upkeep::{Missing, Subject, Watch};
