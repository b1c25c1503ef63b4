//! What happens to the gateway, one thing after another, and what the witnesses saw of each.

use serde::Serialize;

use super::forged::{self, Forger};

/// A stretch of the soak.
pub(super) struct Phase {
    /// A word for it.
    pub(super) name: &'static str,
    pub(super) act: Act,
}

/// What happens in a phase.
#[derive(Clone, Copy)]
pub(super) enum Act {
    /// Nothing but what the hosts do all the time.
    Nothing,
    /// Forged packets from a node of the lab.
    Forge { node: &'static str, forger: Forger },
    /// Fragments and errors come from both sides.
    ForgeBothWays { forger: Forger },
    /// The configuration is read again and again.
    Reload,
    /// Links of the gateway go down and up.
    FlapLinks,
    /// The gateway's routes are thrown away.
    FlushRoutes,
    /// The gateway's interfaces get other MAC addresses.
    ChangeMacs,
    /// The gateway is killed and started again.
    Kill,
}

impl Act {
    /// True if packets are lost on the way to the gateway or from it, whatever the gateway does.
    pub(super) const fn cuts(self) -> bool {
        matches!(self, Self::FlapLinks | Self::FlushRoutes | Self::ChangeMacs | Self::Kill)
    }
}

const fn phase(name: &'static str, act: Act) -> Phase {
    Phase { name, act }
}

const fn attack(name: &'static str, node: &'static str, forger: Forger) -> Phase {
    phase(name, Act::Forge { node, forger })
}

/// All phases, in the order in which they come; after the last the first comes again.
pub(super) const PHASES: [Phase; 14] = [
    phase("quiet", Act::Nothing),
    attack("remotes to a bound port", "server", forged::to_a_bound_port),
    attack("hosts that nobody has", "client", forged::from_new_hosts),
    phase("kill and start", Act::Kill),
    attack("chosen addresses", "client", forged::from_chosen_hosts),
    attack("scan", "server", forged::scan),
    attack("resets", "server", forged::resets),
    phase("links down and up", Act::FlapLinks),
    phase("fragments", Act::ForgeBothWays { forger: forged::fragments }),
    attack("pings and forged errors", "server", forged::icmp),
    attack("expiring hop limits", "client", forged::expiring),
    phase("reloads", Act::Reload),
    phase("other MAC addresses", Act::ChangeMacs),
    phase("routes thrown away", Act::FlushRoutes),
];

/// What was seen of a phase.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Seen {
    /// The phase.
    pub(crate) name: &'static str,
    /// Packets of the attack, or times that it happened.
    pub(crate) acts: u64,
    /// Datagrams of flows that lived before: sent, and not answered.
    pub(crate) asked: u64,
    pub(crate) lost: u64,
    /// Of these, lost by the links: full queues of the lab's interfaces.
    pub(crate) dropped_by_links: u64,
    /// Exchanges over TCP connections that lived before.
    pub(crate) exchanges: u64,
    /// New flows and connections of other hosts: that worked, and that did not.
    pub(crate) opened: u64,
    pub(crate) refused: u64,
    /// After this all flows had answers again, in milliseconds; where the way was cut.
    pub(crate) back_after_ms: Option<u64>,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.acts += other.acts;
        self.asked += other.asked;
        self.lost += other.lost;
        self.dropped_by_links += other.dropped_by_links;
        self.exchanges += other.exchanges;
        self.opened += other.opened;
        self.refused += other.refused;
        self.back_after_ms = self.back_after_ms.max(other.back_after_ms);
    }

    /// What is not as it should be.
    pub(super) fn failures(&self, act: Act) -> Vec<String> {
        let mut failures = Vec::new();
        let name = self.name;
        if self.asked == 0 || self.exchanges == 0 && !act.cuts() {
            failures.push(format!("{name}: flows that lived before said nothing"));
        }
        if !act.cuts() && self.lost > self.dropped_by_links {
            let Self { lost, asked, dropped_by_links, .. } = self;
            failures.push(format!(
                "{name}: flows that lived before lost {lost} of {asked} datagrams, the links only {dropped_by_links}"
            ));
        }
        if !act.cuts() && self.refused > self.opened {
            failures.push(format!("{name}: of new flows {} worked and {} did not", self.opened, self.refused));
        }
        if self.acts == 0 && !matches!(act, Act::Nothing) {
            failures.push(format!("{name}: it did not happen"));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Seen = Seen {
        name: "scan",
        acts: 9,
        asked: 100,
        lost: 0,
        dropped_by_links: 0,
        exchanges: 5,
        opened: 5,
        refused: 0,
        back_after_ms: None,
    };
    const ATTACK: Act = Act::Forge { node: "server", forger: forged::scan };

    #[test]
    fn a_loss_that_no_link_explains_is_a_failure_unless_the_way_was_cut() {
        assert_eq!(FINE.failures(ATTACK), Vec::<String>::new());
        let lossy = Seen { lost: 3, dropped_by_links: 2, ..FINE };
        assert_eq!(lossy.failures(ATTACK).len(), 1);
        assert_eq!(lossy.failures(Act::FlapLinks).len(), 0);
        let excused = Seen { lost: 2, dropped_by_links: 2, ..FINE };
        assert_eq!(excused.failures(ATTACK).len(), 0);
    }

    #[test]
    fn what_did_not_happen_or_was_not_watched_is_a_failure() {
        assert_eq!(Seen { acts: 0, ..FINE }.failures(ATTACK).len(), 1);
        assert_eq!(Seen { asked: 0, ..FINE }.failures(ATTACK).len(), 1);
        assert_eq!(Seen { opened: 1, refused: 2, ..FINE }.failures(ATTACK).len(), 1);
    }
}
