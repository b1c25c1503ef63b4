//! The mechanisms that services compose: each takes a packet and addresses that were already
//! decided.
//!
//! In the order in which a packet meets them: [`screen`] refuses what may not be translated at all,
//! [`translate`] changes a packet from one protocol to the other in place, [`fragment`] sends it in
//! pieces where it has to. What is refused comes back as a [`Refusal`], which says how the sender
//! may be told.

mod bind;
mod extension;
pub mod filtering;
pub mod fragment;
pub(crate) mod hairpin;
pub mod held;
pub mod icmp;
pub mod icmp_error;
pub mod identification;
pub mod mtu;
pub mod napt;
pub mod offload;
pub mod readdress;
pub mod reassembly;
pub mod refusal;
pub mod reply;
pub mod rewrite;
pub mod screen;
pub mod segment;
pub mod session_state;
pub mod softwire;
pub mod translate;

mod transport;

pub use icmp_error::{ErrorRewrite, translate_error_4to6, translate_error_6to4};
pub use identification::IdentificationGenerator;
pub use readdress::{Identification, NextLink, readdress, readdress_error};
pub use reassembly::{Reassembly, ReassemblyLimits};
pub use refusal::{IcmpAnswer, Refusal};
pub use rewrite::{Plateaus, Rewrite, TrafficClass, TranslateSettings, UdpZeroChecksum};
pub use softwire::{Softwire, SoftwireSettings, decapsulate, encapsulate};
pub use translate::{Translated, translate_4to6, translate_6to4};
