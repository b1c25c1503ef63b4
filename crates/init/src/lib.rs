//! The files that a gateway needs on a host, from what the host has and three answers.
//!
//! ```text
//!   Survey (what the host has) --+--defaults--> questions --> Answers --+
//!                                |                                     |--> files: text alone, written by whoever asked
//!                                +-------------------------------------+
//! ```
//!
//! * `survey`: interfaces, addresses, routes, firewall, programs. The only module that looks at the host.
//! * `answers`: what is asked, what is taken without an answer, and what an answer means.
//! * `files`: one of each (`file`), by `gateway` (its configuration), `unit` (systemd, sysctl), `firewall` (nftables), `resolver`
//!   (unbound) and `advertisements` (radvd, odhcpd).

#![forbid(unsafe_code)]

mod advertisements;
mod answers;
mod file;
mod files;
mod firewall;
mod gateway;
mod resolver;
mod survey;
mod unit;

pub use answers::{AnswerError, Answers, Outside, Purpose, Question};
pub use file::File;
pub use files::files;
pub use survey::{Interface, Programs, Survey};
