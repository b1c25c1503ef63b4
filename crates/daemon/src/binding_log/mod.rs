//! The log of bindings: who had which outside endpoint, and when (RFC 6888 REQ-12); without
//! destinations (RFC 6888 section 4, RFC 7422 section 1), unless the configuration asks for sessions.
//!
//! * `live`: the log as the rest of the gateway has it: begun, changed, ended. [`removals`]: where it is told
//!   what has gone.
//! * `writer`: the thread that finds what is new and what has gone, and writes it. `blocks`: the
//!   same for blocks of ports.
//!   `sessions`: the same for sessions, where they are asked for.
//! * `event`: what is logged. [`marks`]: what the log says of itself: where it begins, how far it
//!   is complete, what it lacks.
//! * [`chain`]: each line has a number and a hash over all lines before it. `file`: the file.
//! * `output`: where it is written to, with what it says of itself. `losses`: what could not be logged.
//! * [`collectors`]: who gets it over the network as well. `record`: a line on its way there; `syslog` and
//!   `ipfix`: its forms; `tls`: a connection that nobody else reads.
//! * [`verify`]: whether the lines of a file are those that were written. [`history`]: who had an
//!   endpoint at some time, as far as that is certain.

pub(crate) mod blocks;
pub mod chain;
pub mod collectors;
pub(crate) mod event;
mod file;
pub mod history;
mod in_cluster;
mod ipfix;
pub(crate) mod live;
#[cfg(test)]
mod load;
pub(crate) mod losses;
pub mod marks;
#[cfg(test)]
mod model;
mod output;
mod record;
pub mod removals;
mod sessions;
mod syslog;
#[cfg(test)]
mod testing;
mod tls;
pub mod verify;
pub(crate) mod writer;
