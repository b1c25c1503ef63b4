//! VPP's command line, as `exec` reads it: nat64, nat44, det44, dslite and map.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::draft::{Draft, Row, Table, Value};
use crate::hints::Hints;
use crate::outcome::{ImportError, Imported};
use crate::words;

pub(crate) fn import(text: &str, hints: &Hints) -> Result<Imported, ImportError> {
    let mut reader = Reader { hints: hints.clone(), ..Reader::default() };
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let words = words::of_line(line.split('#').next().unwrap_or_default());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if words.is_empty() || line.starts_with("comment") {
            continue;
        }
        if let Err(why) = reader.read(&words) {
            reader.draft.leave(format!("line {number}"), line, why);
        }
    }
    reader.finish()
}

/// What has been said so far. Lines come in any order.
#[derive(Default)]
struct Reader {
    hints: Hints,
    draft: Draft,
    nat64: Option<Nat>,
    nat44: Option<Nat>,
    dslite: Option<Nat>,
    deterministic: Vec<(Ipv4Net, Ipv4Net)>,
    domains: Vec<Domain>,
    /// Addresses of interfaces, and interfaces that are inside of NAT44.
    interfaces: Vec<(String, Ipv4Net)>,
    inside: Vec<String>,
}

/// A NAT: NAT64, NAT44 or an AFTR.
#[derive(Default)]
struct Nat {
    prefix: Option<String>,
    endpoint: Option<String>,
    addresses: Vec<(Ipv4Addr, Ipv4Addr)>,
    bindings: Vec<Row>,
}

impl Nat {
    fn finish(self, mut service: Table) -> Table {
        service.add_rows(
            "pool",
            self.addresses.into_iter().map(|range| -> Row {
                vec![("addresses", Value::Text(words::addresses_text(range))), ("ports", Value::text("1024-65535"))]
            }),
        );
        service.add_rows("static", self.bindings);
        service
    }
}

/// A domain of MAP or, with rules, of Lightweight 4over6.
#[derive(Default)]
struct Domain {
    words: Vec<(&'static str, String)>,
    is_translated: bool,
    /// PSID and B4.
    rules: Vec<(u64, String)>,
}

impl Domain {
    fn get(&self, key: &str) -> Option<&str> {
        self.words.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    fn number(&self, key: &str) -> u64 {
        self.get(key).and_then(|value| value.parse().ok()).unwrap_or(0)
    }
}

type Line<'a> = &'a [&'a str];
/// Why a line is left.
type Why = String;

fn unknown() -> Why {
    "not known; see whether a key of this gateway does the same".into()
}

impl Reader {
    fn read(&mut self, line: Line<'_>) -> Result<(), Why> {
        match line {
            ["nat64" | "nat44" | "det44" | "dslite" | "map", "plugin", "enable", ..] => Ok(()),
            ["nat44", "enable", "sessions" | "endpoint-dependent", ..] | ["nat44", "ed" | "ei", "enable", ..] => Ok(()),
            ["nat64", "add", rest @ ..] => self.nat64(rest),
            ["set", "nat64", "timeouts", rest @ ..] | ["set", "nat", "timeout", rest @ ..] => self.timeouts(rest),
            ["set", "interface", "nat64", ..] => Ok(()),
            ["nat44", "ed" | "ei", rest @ ..] => self.nat44(rest),
            ["nat44", rest @ ..] => self.nat44(rest),
            ["set", "interface", "nat44", rest @ ..] => {
                let rest = rest.strip_prefix(&["ei"]).unwrap_or(rest);
                if let Some(at) = rest.iter().position(|word| *word == "in") {
                    self.inside.extend(rest.get(at + 1).map(|name| (*name).to_owned()));
                }
                Ok(())
            }
            ["set", "int" | "interface", "ip", "address", interface, address, ..] => self.address(interface, address),
            ["set", "int" | "interface", "state", ..] => {
                Err("interfaces, addresses and routes are the kernel's".into())
            }
            ["ip", "route", ..] | ["create", ..] | ["ip", "neighbor", ..] => {
                Err("interfaces, addresses and routes are the kernel's".into())
            }
            ["det44", "add", "in", inside, "out", outside, ..] => match (words::net(inside), words::net(outside)) {
                (Some(inside), Some(outside)) => {
                    self.deterministic.push((inside, outside));
                    Ok(())
                }
                _ => Err("a prefix cannot be read".into()),
            },
            ["dslite", rest @ ..] => self.dslite(rest),
            ["map", "add", "domain", rest @ ..] => self.domain(rest),
            ["map", "add", "rule", rest @ ..] => self.rule(rest),
            ["map", "params" | "interface", ..] => Err(unknown()),
            _ => Err(unknown()),
        }
    }

    fn nat64(&mut self, line: Line<'_>) -> Result<(), Why> {
        let nat = self.nat64.get_or_insert_default();
        match line {
            ["prefix", prefix, rest @ ..] => {
                nat.prefix = Some((*prefix).to_owned());
                tenant(rest)
            }
            ["pool", "address", rest @ ..] => nat.addresses.push_range(rest),
            ["static", "bib", inside, inside_port, outside, outside_port, protocol, rest @ ..] => {
                nat.bindings.push(binding(
                    &format!("[{inside}]:{inside_port}"),
                    &format!("{outside}:{outside_port}"),
                    protocol,
                ));
                tenant(rest)
            }
            _ => Err(unknown()),
        }
    }

    fn nat44(&mut self, line: Line<'_>) -> Result<(), Why> {
        let nat = self.nat44.get_or_insert_default();
        match line {
            ["add", "address", rest @ ..] => nat.addresses.push_range(rest),
            [
                "add",
                "static",
                "mapping",
                protocol @ ("tcp" | "udp" | "icmp"),
                "local",
                inside,
                inside_port,
                "external",
                outside,
                outside_port,
                rest @ ..,
            ] => {
                nat.bindings.push(binding(
                    &format!("{inside}:{inside_port}"),
                    &format!("{outside}:{outside_port}"),
                    protocol,
                ));
                match rest {
                    [] => Ok(()),
                    rest => Err(format!("the mapping was made without: {}", rest.join(" "))),
                }
            }
            ["add", "static", "mapping", ..] => Err(
                "a whole address for one host, or the address of an interface: a service of its own with that address"
                    .into(),
            ),
            ["add", "interface", "address", ..] => {
                Err("the address of the interface is not in the file; add it to `pool`".into())
            }
            _ => Err(unknown()),
        }
    }

    fn dslite(&mut self, line: Line<'_>) -> Result<(), Why> {
        let nat = self.dslite.get_or_insert_default();
        match line {
            ["add", "pool", "address", rest @ ..] => nat.addresses.push_range(rest),
            ["set", "aftr-tunnel-endpoint-address", address] => {
                nat.endpoint = Some((*address).to_owned());
                Ok(())
            }
            _ => Err(unknown()),
        }
    }

    /// Pairs of a name and seconds.
    fn timeouts(&mut self, line: Line<'_>) -> Result<(), Why> {
        let mut left = Vec::new();
        for pair in line.chunks(2) {
            let (name, seconds) = (pair[0], pair.get(1).and_then(|seconds| seconds.parse::<u64>().ok()));
            let (keys, least): (&[&'static str], u64) = match name {
                "udp" => (&["udp"], 120),
                "icmp" => (&["icmp"], 60),
                "tcp-est" | "tcp-established" => (&["tcp_established"], 7200),
                "tcp-trans" | "tcp-transitory" => (&["tcp_opening", "tcp_transitory"], 240),
                _ => (&[], 0),
            };
            match seconds {
                Some(seconds) if !keys.is_empty() && seconds >= least => {
                    keys.iter().for_each(|key| self.draft.timeouts.set(key, Value::Number(seconds)));
                }
                _ => left.push(pair.join(" ")),
            }
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("less than the RFCs ask for, or not known: {}; the defaults hold", left.join(", ")))
        }
    }

    fn address(&mut self, interface: &str, address: &str) -> Result<(), Why> {
        // An address of IPv6 says nothing about who is inside.
        self.interfaces.extend(words::net(address).map(|net| (interface.to_owned(), net)));
        Err("interfaces, addresses and routes are the kernel's".into())
    }

    fn domain(&mut self, line: Line<'_>) -> Result<(), Why> {
        const KEYS: [&str; 7] = ["ip4-pfx", "ip6-pfx", "ip6-src", "ea-bits-len", "psid-offset", "psid-len", "mtu"];
        let mut domain = Domain::default();
        let mut words = line.iter();
        let mut left = Vec::new();
        while let Some(word) = words.next() {
            match KEYS.iter().find(|key| *key == word) {
                Some(key) => domain.words.extend(words.next().map(|value| (*key, (*value).to_owned()))),
                None if *word == "map-t" => domain.is_translated = true,
                None if *word == "tag" => drop(words.next()),
                None => left.push(*word),
            }
        }
        self.domains.push(domain);
        if left.is_empty() { Ok(()) } else { Err(format!("the domain was made without: {}", left.join(" "))) }
    }

    fn rule(&mut self, line: Line<'_>) -> Result<(), Why> {
        let value = |name: &str| line.iter().position(|word| *word == name).and_then(|at| line.get(at + 1));
        let index = value("index").and_then(|index| index.parse::<usize>().ok());
        let psid = value("psid").and_then(|psid| psid.parse().ok());
        let (Some(index), Some(psid), Some(b4)) = (index, psid, value("ip6-dst")) else {
            return Err("index, psid or ip6-dst is missing".into());
        };
        match self.domains.get_mut(index) {
            Some(domain) => {
                domain.rules.push((psid, (*b4).to_owned()));
                Ok(())
            }
            None => Err("no line above makes the domain with this index".into()),
        }
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        let mut services = Vec::new();
        if let Some(nat) = self.nat64.take() {
            let prefix = nat.prefix.clone().unwrap_or_else(|| "64:ff9b::/96".into());
            services.push(nat.finish(Table::service("nat64").with("prefix", Value::Text(prefix))));
        }
        if let Some(nat) = self.nat44.take() {
            let mut inside: Vec<String> = (self.interfaces.iter())
                .filter(|(name, _)| self.inside.contains(name))
                .map(|(_, net)| words::net_text(&net.trunc()))
                .collect();
            if inside.is_empty() {
                inside = self.hints.inside_ipv4().iter().map(words::net_text).collect();
                if !self.hints.says_inside() {
                    let why = "has no addresses for the interfaces inside: taken as the private ones; say what is there with --inside PREFIX";
                    self.draft.leave("the file", "nat44", why);
                }
            }
            services.push(nat.finish(Table::service("nat44").with("inside", Value::Texts(inside))));
        }
        let many = self.deterministic.len() > 1;
        for (number, (inside, outside)) in self.deterministic.iter().enumerate() {
            let mut service = Table::service("nat44");
            if many || services.len() > 1 {
                service.name(format!("deterministic-{}", number + 1));
            }
            service.set("inside", Value::texts([words::net_text(inside)]));
            service.add_rows(
                "pool",
                [vec![("addresses", Value::Text(words::net_text(outside))), ("ports", Value::text("1024-65535"))]],
            );
            service.set("allocation", Value::Row(vec![("mode", Value::text("deterministic"))]));
            services.push(service);
        }
        if let Some(nat) = self.dslite.take() {
            let mut service = Table::service("aftr");
            service.set_if("address", nat.endpoint.clone().map(Value::Text));
            let b4s = self.hints.inside_ipv6();
            if b4s.is_empty() {
                let why =
                    "serves any B4, here only those of `b4s` are; say what prefixes they have with --inside PREFIX";
                self.draft.leave("the file", "dslite", why);
            } else {
                service.set("b4s", Value::texts(b4s));
            }
            services.push(nat.finish(service));
        }
        services.extend(domains(&self.domains));
        if services.is_empty() {
            return Err(ImportError::at(
                "the file",
                "has no line of nat64, nat44, det44, dslite or map that this gateway could do",
            ));
        }
        self.draft.services = services;
        Ok(self.draft.finish("VPP's commands"))
    }
}

/// A service for each relay: domains of MAP-E with the same address of the relay share one, and so on.
fn domains(domains: &[Domain]) -> Vec<Table> {
    let mut services: Vec<(String, Table)> = Vec::new();
    for domain in domains {
        let source = domain.get("ip6-src").unwrap_or_default();
        let address = source.split('/').next().unwrap_or_default();
        let kind = match (domain.rules.is_empty(), domain.is_translated) {
            (false, _) => "lwaftr",
            (true, true) => "map-t",
            (true, false) => "map-e",
        };
        let key = format!("{kind} {source}");
        let at = services.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            let mut service = Table::service(kind);
            match kind {
                "lwaftr" => service.set("addresses", Value::texts([address])),
                "map-t" => {
                    service.set("role", Value::text("br"));
                    service.set("dmr", Value::text(source));
                }
                _ => {
                    service.set("role", Value::text("br"));
                    service.set("br", Value::text(address));
                }
            }
            service.set_if(
                "ipv6_mtu",
                domain.get("mtu").and_then(|mtu| mtu.parse().ok()).filter(|mtu| *mtu >= 1280).map(Value::Number),
            );
            services.push((key, service));
            services.len() - 1
        });
        let service = &mut services[at].1;
        let ipv4 = domain.get("ip4-pfx").unwrap_or_default();
        if kind == "lwaftr" {
            let whole = ipv4.split('/').next().unwrap_or_default();
            service.set("ipv4", Value::texts([ipv4]));
            service.add_rows(
                "softwires",
                domain.rules.iter().map(|(psid, b4)| -> Row {
                    vec![
                        ("b4", Value::text(b4)),
                        ("ipv4", Value::text(whole)),
                        ("psid_offset", Value::Number(domain.number("psid-offset"))),
                        ("psid_length", Value::Number(domain.number("psid-len"))),
                        ("psid", Value::Number(*psid)),
                    ]
                }),
            );
        } else {
            service.add_rows(
                "rules",
                [vec![
                    ("ipv6", Value::text(domain.get("ip6-pfx").unwrap_or_default())),
                    ("ipv4", Value::text(ipv4)),
                    ("ea_bits", Value::Number(domain.number("ea-bits-len"))),
                    ("psid_offset", Value::Number(domain.number("psid-offset"))),
                ]],
            );
        }
    }
    let names = services.len() > 1;
    let service = |(number, (_, mut service)): (usize, (String, Table))| {
        if names {
            service.name(format!("map-{}", number + 1));
        }
        service
    };
    services.into_iter().enumerate().map(service).collect()
}

fn binding(inside: &str, outside: &str, protocol: &str) -> Row {
    vec![("inside", Value::text(inside)), ("outside", Value::text(outside)), ("protocol", Value::text(protocol))]
}

/// A table of VPP's other than the first has no counterpart.
fn tenant(rest: Line<'_>) -> Result<(), Why> {
    match rest {
        [] | ["tenant-vrf" | "vrf", "0"] => Ok(()),
        rest => Err(format!("made without: {}", rest.join(" "))),
    }
}

/// `ADDRESS [- ADDRESS]`, and a table.
trait Ranges {
    fn push_range(&mut self, line: Line<'_>) -> Result<(), Why>;
}

impl Ranges for Vec<(Ipv4Addr, Ipv4Addr)> {
    fn push_range(&mut self, line: Line<'_>) -> Result<(), Why> {
        let (text, rest) = match line {
            [first, "-", last, rest @ ..] => (format!("{first}-{last}"), rest),
            [address, rest @ ..] => ((*address).to_owned(), rest),
            [] => (String::new(), &[][..]),
        };
        self.push(words::addresses(&text).ok_or("the addresses cannot be read")?);
        tenant(rest)
    }
}
