//! What the user asked for: `plain`, `iptables`, `tombolo:off`, `faulty:loss=100`, `external`, ...

use std::fmt;
use std::str::FromStr;

use super::between_ports::{Faults, Hooks};
use super::kind::Kind;
use super::technology::Technology;

/// A gateway to be measured with frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// One that the lab starts; the word is this project's `fastpath` setting, if any.
    Lab(Kind, Option<String>),
    /// A forwarder with planted faults.
    Faulty(Faults),
    /// Another box.
    External(Hooks),
}

impl Spec {
    /// The kernel's forwarding of the same frames.
    pub const PLAIN: Spec = Spec::Lab(Kind::Plain, None);

    /// The kind that a lab starts.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Spec::Lab(kind, _) => Some(*kind),
            _ => None,
        }
    }

    /// Whether it forwards whatever frames the others of a run get.
    pub fn follows_the_others(&self) -> bool {
        matches!(self, Spec::Lab(Kind::Plain | Kind::PlainPair, _) | Spec::Faulty(_))
    }

    /// What it is measured as where the user does not say.
    pub fn usual_technology(&self) -> Technology {
        match self.kind() {
            Some(Kind::Tombolo | Kind::Jool | Kind::TaygaNat) => Technology::Nat64,
            Some(Kind::Iptables | Kind::Nftables) => Technology::Nat44,
            Some(Kind::Tayga | Kind::JoolSiit) => Technology::Siit,
            _ => Technology::Forward4,
        }
    }

    /// Whether the lab can set it up as this, or it is the user who did.
    pub fn does(&self, technology: Technology) -> bool {
        use Technology::{Aftr, B4, Clat, Forward4, Forward6, Lwb4, MapECe, MapTCe, Nat44, Nat64, Siit};
        match self {
            // Asked about connections, forwarding is the yardstick: it loses none, for it has none.
            Spec::Lab(Kind::Plain, _) | Spec::Faulty(_) => matches!(technology, Forward4 | Forward6 | Nat44),
            Spec::Lab(Kind::PlainPair, _) => matches!(technology, Forward4 | Nat44),
            Spec::Lab(Kind::Iptables, _) => technology == Nat44,
            Spec::Lab(Kind::Nftables, _) => matches!(technology, Nat44 | B4 | Aftr | Lwb4 | MapECe),
            Spec::Lab(Kind::Tombolo, _) => !matches!(technology, Forward4 | Forward6),
            Spec::Lab(Kind::Jool, _) => technology == Nat64,
            Spec::Lab(Kind::Tayga, _) => matches!(technology, Siit | Clat),
            Spec::Lab(Kind::TaygaNat, _) => matches!(technology, Nat64 | MapTCe),
            Spec::Lab(Kind::JoolSiit, _) => technology == Siit,
            Spec::Lab(..) => false,
            Spec::External(_) => true,
        }
    }
}

/// The kinds that are measured with frames.
const KINDS: [Kind; 9] = [
    Kind::Plain,
    Kind::PlainPair,
    Kind::Tombolo,
    Kind::Iptables,
    Kind::Nftables,
    Kind::Tayga,
    Kind::TaygaNat,
    Kind::Jool,
    Kind::JoolSiit,
];

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Spec, String> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let kind = KINDS.into_iter().find(|kind| kind.name() == name);
        match (name, kind, rest) {
            (_, Some(Kind::Tombolo), mode) => Ok(Spec::Lab(Kind::Tombolo, mode.map(str::to_owned))),
            (_, Some(kind), None) => Ok(Spec::Lab(kind, None)),
            ("faulty", _, rest) => rest.unwrap_or("").parse().map(Spec::Faulty),
            ("external", _, None) => Ok(Spec::External(Hooks::default())),
            _ => Err(format!(
                "no gateway is called `{text}`; there are plain, plain-pair, tombolo, tombolo:off, tombolo:tc, tombolo:xdp, \
                 iptables, nftables, tayga, tayga-nat, jool, jool_siit, faulty:FAULT=VALUE,... and external"
            )),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Lab(kind, None) => write!(f, "{kind}"),
            Spec::Lab(kind, Some(mode)) => write!(f, "{kind}:{mode}"),
            Spec::Faulty(faults) => write!(f, "faulty:{faults}"),
            Spec::External(_) => f.write_str("external"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_as_they_are_written() {
        for text in [
            "plain",
            "plain-pair",
            "tombolo",
            "tombolo:off",
            "iptables",
            "nftables",
            "tayga",
            "tayga-nat",
            "jool",
            "jool_siit",
            "external",
        ] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        assert_eq!("faulty:loss=100,delay=2000".parse::<Spec>().unwrap().to_string(), "faulty:loss=100,delay=2000");
        assert!("router".parse::<Spec>().unwrap_err().contains("iptables"));
        assert!("faulty:loss=x".parse::<Spec>().unwrap_err().contains("loss"));
    }
}
