//! The mechanisms that services compose: each takes a packet and addresses that were already
//! decided.
//!
//! Three carry the technologies: [`translate`], [`tunnel`] and [`napt`]. Beside them, in the order
//! in which a packet meets them: [`screen`] refuses what may not pass at all, [`reassembly`] waits
//! for fragments, those of all workers in one place ([`fragments`]; `redirect` has them meet at one node of a cluster, `slice` says which node has the state of a packet), [`fragment`] sends in pieces where it has to, [`reply`]
//! answers, and [`helper`] rewrites what applications say of addresses, where a service is told to. What is refused
//! comes back as a [`Refusal`], which names the ICMP error for its sender.

pub mod echo;
pub(crate) mod error_limit;
pub mod fragment;
pub mod fragments;
pub(crate) mod hairpin;
pub mod helper;
pub mod identification;
pub mod napt;
pub mod offload;
pub mod pcp;
pub mod reassembly;
pub(crate) mod redirect;
pub mod refusal;
pub mod reply;
pub mod screen;
pub(crate) mod slice;
pub mod translate;
pub mod tunnel;

pub use fragments::Fragments;
pub use helper::Helpers;
pub use identification::IdentificationGenerator;
pub use napt::{Identification, NextLink, readdress, readdress_error, session_state};
pub use reassembly::{Reassembly, ReassemblyLimits, Room};
pub use refusal::{IcmpAnswer, Refusal};
pub use translate::{
    ErrorRewrite, Plateaus, Rewrite, TrafficClass, TranslateSettings, Translated, UdpZeroChecksum, icmp, mtu,
    translate_4to6, translate_6to4, translate_error_4to6, translate_error_6to4,
};
pub use tunnel::{FarEndName, Softwire, SoftwireSettings, decapsulate, encapsulate, softwire};
