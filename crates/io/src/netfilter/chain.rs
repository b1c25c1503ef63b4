//! A chain by its names, and the command that has it let packets pass.

use std::fmt;

use ipnet::IpNet;
use libc::{NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV};

/// A chain of nf_tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The family of its table: `ip`, `ip6`, `inet` or `netdev`.
    pub family: &'static str,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
}

/// Packets that a chain is to let pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector<'n> {
    /// Those that come in by an interface.
    ComesInBy(&'n str),
    /// Those that leave by one.
    LeavesBy(&'n str),
    /// Those from a prefix.
    ComesFrom(IpNet),
    /// Those to a prefix.
    GoesTo(IpNet),
}

impl Chain {
    pub(super) fn of(family: u8, table: String, name: String) -> Option<Self> {
        let family = match i32::from(family) {
            NFPROTO_IPV4 => "ip",
            NFPROTO_IPV6 => "ip6",
            NFPROTO_INET => "inet",
            NFPROTO_NETDEV => "netdev",
            _ => return None,
        };
        Some(Self { family, table, name })
    }

    /// The command that has packets pass: a rule before the one with the number `rule`, or before all.
    #[must_use]
    pub fn admission(&self, rule: Option<u64>, selector: &Selector<'_>) -> String {
        let Self { family, table, name } = self;
        if let Some(program) = self.iptables() {
            return admission_by(program, table, name, selector);
        }
        let place = rule.map(|rule| format!(" handle {rule}")).unwrap_or_default();
        let family_of = |net: &IpNet| if net.addr().is_ipv4() { "ip" } else { "ip6" };
        let selector = match selector {
            Selector::ComesInBy(interface) => format!("iifname \"{interface}\""),
            Selector::LeavesBy(interface) => format!("oifname \"{interface}\""),
            Selector::ComesFrom(net) => format!("{} saddr {net}", family_of(net)),
            Selector::GoesTo(net) => format!("{} daddr {net}", family_of(net)),
        };
        format!("nft 'insert rule {family} {table} {name}{place} {selector} accept'")
    }

    /// The program that keeps the table, by the names that it gives: what another one changes there it
    /// may not understand.
    fn iptables(&self) -> Option<&'static str> {
        let is_its = ["filter", "mangle", "raw", "nat", "security"].contains(&self.table.as_str())
            && self.name.chars().any(char::is_uppercase);
        match self.family {
            "ip" if is_its => Some("iptables-nft"),
            "ip6" if is_its => Some("ip6tables-nft"),
            _ => None,
        }
    }
}

/// The same for iptables, by the name of the program.
#[must_use]
pub fn admission_by(program: &str, table: &str, chain: &str, selector: &Selector<'_>) -> String {
    let selector = match selector {
        Selector::ComesInBy(interface) => format!("-i {interface}"),
        Selector::LeavesBy(interface) => format!("-o {interface}"),
        Selector::ComesFrom(net) => format!("-s {net}"),
        Selector::GoesTo(net) => format!("-d {net}"),
    };
    let table = if table == "filter" { String::new() } else { format!(" -t {table}") };
    format!("{program}{table} -I {chain} {selector} -j ACCEPT")
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chain {} of table {} {}", self.name, self.family, self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_let_in_by_the_program_that_keeps_the_chain() {
        let chain = |family, name: &str| Chain { family, table: "filter".into(), name: name.into() };
        let to = Selector::LeavesBy("tombolo");
        let net = Selector::GoesTo("64:ff9b::/96".parse().unwrap());
        assert_eq!(
            chain("inet", "guests").admission(Some(7), &to),
            "nft 'insert rule inet filter guests handle 7 oifname \"tombolo\" accept'"
        );
        assert_eq!(
            chain("inet", "prerouting").admission(None, &net),
            "nft 'insert rule inet filter prerouting ip6 daddr 64:ff9b::/96 accept'"
        );
        assert_eq!(chain("ip", "FORWARD").admission(None, &to), "iptables-nft -I FORWARD -o tombolo -j ACCEPT");
        assert_eq!(
            admission_by("ip6tables-legacy", "raw", "PREROUTING", &net),
            "ip6tables-legacy -t raw -I PREROUTING -d 64:ff9b::/96 -j ACCEPT"
        );
    }
}
