//! Which programs an interface gets: by what is asked for, what it is, and what its packets would pass
//! by.

use std::borrow::Cow;

use tombolo_config::{FastPath as Wanted, Host};
use tombolo_fastpath::Mode;
use tombolo_io::links::Link;
use tombolo_io::netfilter::ForeignRules;

/// Which programs are tried on an interface, the first that it takes being the one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What to try.
    pub modes: &'static [Mode],
    /// Why not more.
    pub why: Cow<'static, str>,
}

/// What the host has that packets which the fast path takes do not meet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassedBy {
    /// Where others have rules of netfilter on the way of what is forwarded.
    pub netfilter: Option<String>,
    /// Rules for routing (`ip rule`), which may ask for more than the destination.
    pub routing: bool,
}

/// Looks for others' rules of netfilter.
#[derive(Debug)]
pub(super) struct ForeignRulesWatch {
    /// `None` where the kernel has no nf_tables.
    rules: Option<ForeignRules>,
    found: Option<String>,
}

impl ForeignRulesWatch {
    pub(super) fn start() -> Self {
        let rules = ForeignRules::watch().inspect_err(|error| tracing::debug!("nf_tables cannot be listed: {error}"));
        Self { rules: rules.ok(), found: None }
    }

    pub(super) fn has_changed(&mut self) -> bool {
        self.rules.as_mut().is_some_and(ForeignRules::has_changed)
    }

    /// Where there are some. What cannot be listed is as it was.
    pub(super) fn find(&mut self) -> Option<String> {
        match self.rules.as_mut().map(ForeignRules::find).transpose() {
            Ok(found) => self.found = found.flatten(),
            Err(error) => tracing::warn!("the rules of netfilter cannot be listed: {error}"),
        }
        self.found.clone()
    }
}

/// What to try on an interface. `single` is what the configuration says about it alone.
#[must_use]
pub fn choose(link: &Link, single: Option<Wanted>, settings: &Host, by: &PassedBy) -> Choice {
    let (modes, why): (&[Mode], Cow<'static, str>) = match single.unwrap_or(settings.fastpath) {
        Wanted::Off => (&[], "the configuration says so".into()),
        _ if link.is_port && single.is_none() => {
            (&[], "it is a part of another interface, which its packets appear on".into())
        }
        Wanted::Xdp => (&[Mode::Xdp, Mode::Tc], "".into()),
        Wanted::Tc => (&[Mode::Tc], "".into()),
        Wanted::Auto => match &by.netfilter {
            _ if settings.fastpath_netfilter => (&[Mode::Tc], "netfilter would not see what XDP sends".into()),
            Some(place) => (&[], would_not_see(place).into()),
            None if by.routing => (&[Mode::Tc], "XDP would not ask all rules for routing (ip rule)".into()),
            None if link.is_card() => (&[Mode::Xdp, Mode::Tc], "".into()),
            None => (&[Mode::Tc], "XDP on virtual interfaces would cost TCP its segmentation".into()),
        },
    };
    Choice { modes, why }
}

fn would_not_see(place: &str) -> String {
    format!(
        "{place} would not see its packets; fastpath_netfilter = true shows it those that are translated, \
         fastpath = \"tc\" none"
    )
}

#[cfg(test)]
mod tests {
    use tombolo_io::links::Intake;

    use super::*;

    #[test]
    fn cards_get_xdp_and_what_is_virtual_gets_tc() {
        let link = |kind: &str, is_port| Link {
            index: 7,
            name: "eth0".to_owned(),
            kind: kind.to_owned(),
            is_port,
            is_up: true,
            is_ethernet: true,
            asks: true,
            mac: [2, 0, 0, 0, 0, 7],
            mtu: 1500,
            intake: Intake::default(),
        };
        let auto = Host { fastpath: Wanted::Auto, ..Host::default() };
        let stack = Host { fastpath_netfilter: true, ..auto.clone() };
        let xdp = Host { fastpath: Wanted::Xdp, ..Host::default() };
        let modes = |link: &Link, single, settings: &Host| choose(link, single, settings, &PassedBy::default()).modes;
        assert_eq!(modes(&link("card", false), None, &auto), [Mode::Xdp, Mode::Tc]);
        assert_eq!(modes(&link("veth", false), None, &auto), [Mode::Tc]);
        assert_eq!(modes(&link("card", false), None, &stack), [Mode::Tc]);
        assert_eq!(modes(&link("veth", false), None, &xdp), [Mode::Xdp, Mode::Tc]);
        assert_eq!(modes(&link("veth", true), None, &xdp), []);
        assert_eq!(modes(&link("veth", true), Some(Wanted::Tc), &xdp), [Mode::Tc]);
        assert_eq!(modes(&link("card", false), Some(Wanted::Off), &xdp), []);
        // A firewall comes first, unless the configuration says otherwise.
        let firewall = PassedBy { netfilter: Some("chain forward of table inet filter".into()), routing: false };
        assert_eq!(choose(&link("card", false), None, &auto, &firewall).modes, []);
        assert_eq!(choose(&link("card", false), None, &stack, &firewall).modes, [Mode::Tc]);
        assert_eq!(choose(&link("card", false), None, &xdp, &firewall).modes, [Mode::Xdp, Mode::Tc]);
        assert_eq!(choose(&link("card", false), Some(Wanted::Tc), &auto, &firewall).modes, [Mode::Tc]);
        let routing = PassedBy { netfilter: None, routing: true };
        assert_eq!(choose(&link("card", false), None, &auto, &routing).modes, [Mode::Tc]);
    }
}
