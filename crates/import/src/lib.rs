//! Other gateways' configurations as files for this one, and what of them could not be carried.
//!
//! A file is read by the module of its gateway, which makes a draft and a list of what is [`Left`]. iptables and
//! nftables say the same in two languages; both become the rules of `netfilter`, which makes the draft.
//! Nothing is dropped in silence: whatever is not in the draft is in the list, with the reason and what to do.

#![forbid(unsafe_code)]

mod draft;
mod hints;
mod iptables;
mod jool;
mod netfilter;
mod nft;
mod outcome;
mod snabb;
mod vpp;
mod words;

pub use hints::Hints;
pub use outcome::{ImportError, Imported, Left};

/// Whose configuration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateway {
    /// Jool's NAT64: the file of `jool file handle` (JSON).
    Jool,
    /// Jool's SIIT: the file of `jool_siit file handle` (JSON).
    JoolSiit,
    /// iptables: what `iptables-save` prints.
    Iptables,
    /// nftables: what `nft -j list ruleset` prints (JSON).
    Nft,
    /// VPP: lines of its command line, as `exec` reads them.
    Vpp,
    /// Snabb's lwAFTR: its configuration file.
    Snabb,
}

/// The configuration that a file of another gateway becomes.
///
/// # Errors
/// [`ImportError`]: it is not in that gateway's language, or says nothing that this one could do.
pub fn import(gateway: Gateway, text: &str, hints: &Hints) -> Result<Imported, ImportError> {
    match gateway {
        Gateway::Jool => jool::import(text, jool::Kind::Nat64, hints),
        Gateway::JoolSiit => jool::import(text, jool::Kind::Siit, hints),
        Gateway::Iptables => iptables::import(text, hints),
        Gateway::Nft => nft::import(text, hints),
        Gateway::Vpp => vpp::import(text, hints),
        Gateway::Snabb => snabb::import(text),
    }
}
