//! Rules of the kernel's NAT, whichever language they were written in, and the NAT44 that does the same.
//!
//! A rule that gives packets another source is a service; rules with the same target are one. A rule that gives them another
//! destination is a static binding of the service that has the address in its pool.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::draft::{Draft, Row, Table, Value};
use crate::hints::Hints;
use crate::words;

/// Ports that the kernel hands out to those who had one above 1023.
const PORTS: (u16, u16) = (1024, 65_535);

/// A rule, and where it stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rule {
    pub(crate) place: String,
    /// As it was written.
    pub(crate) said: String,
    pub(crate) sources: Vec<Ipv4Net>,
    pub(crate) destinations: Vec<Ipv4Net>,
    /// The destinations are those that the rule is not for.
    pub(crate) destinations_negated: bool,
    /// `tcp`, `udp`, `icmp`.
    pub(crate) protocols: Vec<String>,
    pub(crate) destination_ports: Vec<(u16, u16)>,
    /// What else it asks for, which cannot be carried.
    pub(crate) conditions: Vec<String>,
    pub(crate) action: Action,
}

/// What becomes of the rules of miniupnpd, which hosts have asked it for.
pub(crate) const PORTS_ASKED_FOR: &str = "miniupnpd opens ports that hosts ask for; with pcp = true in the service they ask the gateway, by PCP (UPnP and NAT-PMP are not spoken)";

/// True if a chain is miniupnpd's.
pub(crate) fn is_of_miniupnpd(chain: &str) -> bool {
    chain.to_ascii_lowercase().contains("miniupnpd")
}

/// What it does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Action {
    /// Another source: these addresses, and ports if they are said.
    Source(Vec<(Ipv4Addr, Ipv4Addr)>, Option<(u16, u16)>),
    /// The address of the interface that the packet leaves by.
    Masquerade(Option<(u16, u16)>),
    /// Another destination.
    Destination(Ipv4Addr, Option<(u16, u16)>),
    /// No NAT.
    Accept,
    /// Something else.
    #[default]
    Other,
}

/// Sources of NAT that have the same target.
struct Pool {
    addresses: Vec<(Ipv4Addr, Ipv4Addr)>,
    ports: (u16, u16),
    protocols: Vec<String>,
    inside: Vec<Ipv4Net>,
    untranslated: Vec<Ipv4Net>,
    bindings: Vec<Row>,
    reserved: Vec<Reserved>,
}

/// Ports that only static bindings have.
struct Reserved {
    address: Ipv4Addr,
    protocol: String,
    ports: Vec<(u16, u16)>,
}

/// Rules of both chains, in order, as services.
pub(crate) fn convert(rules: &[Rule], hints: &Hints, draft: &mut Draft) {
    let mut pools: Vec<Pool> = Vec::new();
    let mut exempt: Vec<&Rule> = Vec::new();
    for rule in rules {
        if !rule.conditions.is_empty() {
            let why = format!("depends on {}, which NAT here does not look at", rule.conditions.join(", "));
            draft.leave(&rule.place, &rule.said, why);
            continue;
        }
        match &rule.action {
            Action::Source(addresses, ports) => {
                Sources { hints, exempt: &exempt }.add(rule, addresses.clone(), *ports, &mut pools, draft)
            }
            Action::Masquerade(ports) => match hints.outside {
                Some(address) => {
                    Sources { hints, exempt: &exempt }.add(rule, vec![(address, address)], *ports, &mut pools, draft)
                }
                None => {
                    let why = "the address of the interface is not in the file; say it with --outside ADDRESS, an address that this host does not use itself";
                    draft.leave(&rule.place, &rule.said, why);
                }
            },
            Action::Accept if !rule.destinations.is_empty() && !rule.destinations_negated => exempt.push(rule),
            Action::Accept => {}
            Action::Destination(..) => {}
            Action::Other => draft.leave(&rule.place, &rule.said, "this gateway has nothing of the kind"),
        }
    }
    for rule in rules.iter().filter(|rule| rule.conditions.is_empty()) {
        if let Action::Destination(host, ports) = rule.action {
            bind(rule, host, ports, hints, &mut pools, draft);
        }
    }
    let is_single = pools.len() == 1;
    draft.services.extend(pools.into_iter().enumerate().map(|(number, pool)| pool.service(number, is_single)));
}

/// What rules for sources depend on.
struct Sources<'a> {
    hints: &'a Hints,
    /// Rules above that are for no NAT.
    exempt: &'a [&'a Rule],
}

impl Sources<'_> {
    fn add(
        &self,
        rule: &Rule,
        addresses: Vec<(Ipv4Addr, Ipv4Addr)>,
        ports: Option<(u16, u16)>,
        pools: &mut Vec<Pool>,
        draft: &mut Draft,
    ) {
        let Self { hints, exempt } = self;
        if !rule.destination_ports.is_empty() || (!rule.destinations.is_empty() && !rule.destinations_negated) {
            let why = "NAT for some destinations only is not there; the whole inside gets the pool, but for what is untranslated";
            draft.leave(&rule.place, &rule.said, why);
            return;
        }
        let ports = ports.unwrap_or(PORTS);
        let mut protocols = rule.protocols.clone();
        if protocols.is_empty() {
            protocols = ["tcp", "udp", "icmp"].map(str::to_owned).to_vec();
        }
        let mut inside = rule.sources.clone();
        if inside.is_empty() {
            inside = hints.inside_ipv4();
            if !hints.says_inside() {
                let why =
                    "the rule names no sources: taken as the private addresses; say what is there with --inside PREFIX";
                draft.leave(&rule.place, &rule.said, why);
            }
        }
        let concerned = exempt
            .iter()
            .filter(|other| other.sources.is_empty() || inside.iter().any(|net| other.sources.contains(net)));
        let mut untranslated: Vec<Ipv4Net> = concerned.flat_map(|other| other.destinations.clone()).collect();
        if rule.destinations_negated {
            untranslated.extend(&rule.destinations);
        }
        match pools.iter_mut().find(|pool| pool.addresses == addresses && pool.ports == ports) {
            Some(pool) => {
                pool.inside.extend(inside.into_iter().filter(|net| !pool.inside.contains(net)).collect::<Vec<_>>());
                pool.protocols
                    .extend(protocols.into_iter().filter(|name| !pool.protocols.contains(name)).collect::<Vec<_>>());
                pool.untranslated.extend(
                    untranslated.into_iter().filter(|net| !pool.untranslated.contains(net)).collect::<Vec<_>>(),
                );
            }
            None => {
                pools.push(Pool {
                    addresses,
                    ports,
                    protocols,
                    inside,
                    untranslated,
                    bindings: Vec::new(),
                    reserved: Vec::new(),
                });
            }
        }
    }
}

/// A rule that leads to a host inside, as static bindings.
fn bind(rule: &Rule, host: Ipv4Addr, ports: Option<(u16, u16)>, hints: &Hints, pools: &mut [Pool], draft: &mut Draft) {
    let outside = match rule.destinations.as_slice() {
        [net] if net.prefix_len() == 32 && !rule.destinations_negated => Some(net.addr()),
        [] => hints.outside,
        _ => None,
    };
    let Some(outside) = outside else {
        let why =
            "which outside address it is for is not said; say it with --outside ADDRESS, or write a static binding";
        draft.leave(&rule.place, &rule.said, why);
        return;
    };
    if !rule.sources.is_empty() {
        let why = "a static binding is for all remotes; keep the others out with the kernel's firewall";
        draft.leave(&rule.place, &rule.said, why);
    }
    if rule.destination_ports.is_empty() {
        let why = "a whole address for one host is a mapping of its own: a service with that address alone and `inside` of that host";
        draft.leave(&rule.place, &rule.said, why);
        return;
    }
    let is_taken = |pool: &Pool| pool.holds(outside) && !pool.has_inside(host);
    if pools.iter().any(is_taken) {
        draft.leave(
            &rule.place,
            &rule.said,
            format!("{outside} is shared by hosts of another rule; give the host another address"),
        );
        return;
    }
    let Some(pool) = pools.iter_mut().find(|pool| pool.has_inside(host)) else {
        let why =
            "no rule of the file gives the host an outside address, so there is no service that it could belong to";
        draft.leave(&rule.place, &rule.said, why);
        return;
    };
    let is_of_pool = pool.hands_out(outside);
    for protocol in &rule.protocols {
        if !is_of_pool {
            pool.reserve(outside, protocol, &rule.destination_ports);
        }
        for &(first, last) in &rule.destination_ports {
            let inside = ports.map_or(first, |(inside, _)| inside);
            let mut row: Row = vec![
                ("inside", Value::text(format!("{host}:{inside}"))),
                ("outside", Value::text(format!("{outside}:{first}"))),
                ("protocol", Value::text(protocol)),
            ];
            if last > first {
                row.push(("count", Value::Number(u64::from(last - first) + 1)));
            }
            pool.bindings.push(row);
        }
    }
}

impl Pool {
    /// True if hosts share the address.
    fn hands_out(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|(first, last)| (first..=last).contains(&&address))
    }

    fn has_inside(&self, host: Ipv4Addr) -> bool {
        self.inside.iter().any(|net| net.contains(&host))
    }

    fn holds(&self, address: Ipv4Addr) -> bool {
        self.hands_out(address) || self.reserved.iter().any(|other| other.address == address)
    }

    /// Ports for static bindings alone.
    fn reserve(&mut self, address: Ipv4Addr, protocol: &str, ports: &[(u16, u16)]) {
        match self.reserved.iter_mut().find(|other| other.address == address && other.protocol == protocol) {
            Some(known) => known.ports.extend(ports),
            None => self.reserved.push(Reserved { address, protocol: protocol.to_owned(), ports: ports.to_vec() }),
        }
    }

    fn service(self, number: usize, is_single: bool) -> Table {
        let mut service = Table::service("nat44");
        if !is_single {
            service.name(format!("nat44-{}", number + 1));
        }
        service.set("inside", Value::texts(self.inside.iter().map(words::net_text)));
        if !self.untranslated.is_empty() {
            service.set("untranslated", Value::texts(self.untranslated.iter().map(words::net_text)));
        }
        service.add_rows(
            "pool",
            self.addresses.iter().map(|&range| {
                let mut row: Row = vec![
                    ("addresses", Value::Text(words::addresses_text(range))),
                    ("ports", Value::Text(words::range_text(self.ports))),
                ];
                if self.protocols.len() < 3 {
                    row.push(("protocols", Value::Texts(self.protocols.clone())));
                }
                row
            }),
        );
        // All of these ports are the bindings', so that no host gets an address with nothing left on it.
        service.add_rows(
            "pool",
            self.reserved.into_iter().map(|Reserved { address, protocol, ports }| -> Row {
                let ports: Vec<String> = ports.into_iter().map(words::range_text).collect();
                vec![
                    ("addresses", Value::text(address)),
                    ("ports", Value::Text(ports.join(","))),
                    ("protocols", Value::Texts(vec![protocol])),
                ]
            }),
        );
        service.add_rows("static", self.bindings);
        service
    }
}
