//! `tombolo binding who`: the answer of a running gateway or of a log, in words; with `-c FILE` whose an
//! outside port is by computation (RFC 7422 section 2.3), by a rule of MAP, by a softwire or by an explicit
//! mapping, without either.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use tombolo_daemon::binding_log::history::Question;
use tombolo_daemon::control::filter;
use tombolo_daemon::control::who;
use tombolo_engine::Plan;
use tombolo_engine::mapping::allocation::{Allocation, PortHolder};
use tombolo_engine::mapping::map_domain::{AddressOwner, MapDomain};
use tombolo_engine::plan::{Service, ServiceKind, StaticBinding};

use super::format::Format;
use super::output::Output;
use super::print;
use super::rows::{Cell, print_table};

const OWNERS: &[Cell] = &[
    Cell::Text("service"),
    Cell::Text("protocol"),
    Cell::Endpoint { name: "outside", address: "outside", port: "outside_port" },
    Cell::Host { name: "inside", address: "inside", port: Some("inside_port"), softwire: "softwire" },
    Cell::Text("since"),
    Cell::Text("until"),
    Cell::Text("certain_until"),
    Cell::Text("source"),
];

/// What the files of a log say of an endpoint.
pub(crate) fn in_logs(
    logs: &[PathBuf],
    (address, port): (Ipv4Addr, u16),
    time: &str,
    protocol: Option<&str>,
) -> anyhow::Result<Vec<Value>> {
    let question = Question { address, port, time: who::parse_time(time).map_err(|error| anyhow!(error))? };
    let spaces = filter::protocols(protocol).map_err(|error| anyhow!(error))?;
    let found = who::in_logs(logs, question, &spaces, true).map_err(|error| anyhow!(error))?;
    found.iter().map(|row| Ok(serde_json::to_value(row)?)).collect()
}

/// Prints who has an endpoint, or had it. Nobody is named for certain where it is not.
pub(crate) fn print(rows: &[Value], outside: SocketAddr, is_past: bool, output: Output) -> anyhow::Result<()> {
    let (uncertain, certain): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|row| row["certain"] == false);
    if output.format() != Format::Table {
        output.rows(rows, |_| Ok(()))?;
    } else if !certain.is_empty() {
        print_table(&certain, OWNERS)?;
    }
    if !certain.is_empty() {
        return Ok(());
    }
    let why: Vec<String> = uncertain.iter().map(|row| doubt(row)).collect();
    anyhow::ensure!(why.is_empty(), "it is not certain who had {outside} at that time{}", why.concat());
    bail!("nobody {} {outside}{}", if is_past { "had" } else { "has" }, if is_past { " at that time" } else { "" })
}

/// Why it is not certain, and what is.
fn doubt(row: &Value) -> String {
    let protocol = row["protocol"].as_str().map_or_else(String::new, |protocol| format!("{protocol}: "));
    let before = row["before"].as_object().map(|before| {
        let port = before.get("inside_port").map_or_else(String::new, |port| format!(" port {port}"));
        let (inside, until) = (print::word(&row["before"]["inside"]), print::word(&row["before"]["certain_until"]));
        format!("; {inside}{port} had it for certain until {until}")
    });
    format!("\n  {protocol}{}{}", print::word(&row["why"]), before.unwrap_or_default())
}

/// What the configuration says about an outside port.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    service: String,
    owner: Option<Owner>,
    static_bindings: Vec<StaticBinding>,
}

/// Whose a port is by the configuration alone.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// Of a pool that is given out by computation.
    Computed(PortHolder),
    /// A subscriber's, without any state: its End-user prefix (MAP), its tunnel address (Lightweight 4over6), or
    /// its address (an explicit mapping).
    Stateless(String),
    /// Nobody's, of an address that subscribers share.
    Nobody,
}

/// Prints whose `port` of `address` is in the configuration at `path`.
pub(crate) fn run(path: &Path, address: Ipv4Addr, port: u16, output: Output) -> anyhow::Result<()> {
    let plan = tombolo_config::load(path)?.plan;
    let Some(answer) = answer(&plan, address, port) else {
        bail!("no service of {} has {address}", path.display());
    };
    if answer.owner.is_none() && answer.static_bindings.is_empty() {
        bail!(
            "the pool of service {} is not deterministic: ask the running gateway (tombolo show bindings), or its log",
            answer.service
        );
    }
    output.answer(&as_json(&answer), || print::line(&in_words(&answer, address, port)))
}

fn answer(plan: &Plan, address: Ipv4Addr, port: u16) -> Option<Answer> {
    let stateless = plan.services.iter().find_map(|service| {
        let owner = Some(stateless_owner(&service.kind, address, port)?);
        Some(Answer { service: service.name.clone(), owner, static_bindings: Vec::new() })
    });
    stateless.or_else(|| answer_of_pool(plan, address, port))
}

/// Whose the port is where no bindings are made; `None` if the address is not the service's.
fn stateless_owner(service: &ServiceKind, address: Ipv4Addr, port: u16) -> Option<Owner> {
    match service {
        ServiceKind::MapEBr(relay) => owner_by_rule(&relay.domain, address, port),
        ServiceKind::MapTBr(relay) => owner_by_rule(&relay.domain, address, port),
        ServiceKind::Lwaftr(lwaftr) => {
            let softwire = lwaftr.table.find(address, Some(port)).map(|softwire| softwire.remote.to_string());
            let is_shared = || lwaftr.table.rows().any(|row| row.ipv4 == address);
            softwire.map(Owner::Stateless).or_else(|| is_shared().then_some(Owner::Nobody))
        }
        ServiceKind::Siit(siit) => {
            siit.mapping.explicit.to_ipv6(address).map(|(host, _)| Owner::Stateless(host.to_string()))
        }
        _ => None,
    }
}

fn owner_by_rule(domain: &MapDomain, address: Ipv4Addr, port: u16) -> Option<Owner> {
    match domain.owner(address, port) {
        AddressOwner::Subscriber { rule, share, .. } => {
            let rule = domain.rules().get(rule as usize)?;
            Some(Owner::Stateless(rule.end_user_prefix(share).to_string()))
        }
        AddressOwner::Nobody => Some(Owner::Nobody),
        AddressOwner::Outside => None,
    }
}

fn answer_of_pool(plan: &Plan, address: Ipv4Addr, port: u16) -> Option<Answer> {
    let has_it = |service: &&Service| service.kind.pool().is_some_and(|pool| pool.contains(address));
    let service = plan.services.iter().find(has_it)?;
    let owner = match service.kind.pool()?.allocation() {
        Allocation::Deterministic(shares) => shares.owner(address, port),
        Allocation::Ports | Allocation::Blocks(_) => None,
    };
    let is_it = |binding: &&StaticBinding| binding.outside.address == address && binding.outside.port.0 == port;
    let static_bindings = service.kind.static_bindings().iter().filter(is_it).copied().collect();
    Some(Answer { service: service.name.clone(), owner: owner.map(Owner::Computed), static_bindings })
}

const fn word(owner: &Owner) -> &'static str {
    match owner {
        Owner::Stateless(_) | Owner::Computed(PortHolder::Subscriber(_)) => "subscriber",
        Owner::Computed(PortHolder::Dynamic) => "dynamic",
        Owner::Computed(PortHolder::Reserved) => "reserved",
        Owner::Nobody | Owner::Computed(PortHolder::Unassigned) => "unassigned",
    }
}

fn as_json(answer: &Answer) -> serde_json::Value {
    let subscriber = match &answer.owner {
        Some(Owner::Computed(PortHolder::Subscriber(address))) => Some(address.to_string()),
        Some(Owner::Stateless(subscriber)) => Some(subscriber.clone()),
        _ => None,
    };
    let hosts: Vec<IpAddr> = answer.static_bindings.iter().map(|binding| binding.inside).collect();
    json!({
        "service": answer.service,
        "owner": answer.owner.as_ref().map(word),
        "subscriber": subscriber,
        "static": hosts,
    })
}

fn in_words(answer: &Answer, address: Ipv4Addr, port: u16) -> String {
    let service = &answer.service;
    let hosts = answer.static_bindings.iter().map(|binding| {
        format!(
            "{address} port {port} ({:?}) is bound to {} by the configuration of {service}",
            binding.space, binding.inside
        )
    });
    let owner = answer.owner.as_ref().map(|owner| match owner {
        Owner::Stateless(subscriber) => format!("{address} port {port} is {subscriber}'s ({service})"),
        Owner::Nobody => format!("{address} port {port} is nobody's ({service})"),
        Owner::Computed(PortHolder::Subscriber(host)) => {
            format!("{address} port {port} is {host}'s, by computation ({service})")
        }
        Owner::Computed(PortHolder::Dynamic) => {
            format!("{address} port {port} is in the dynamic pool of {service}: ask the running gateway, or its log")
        }
        Owner::Computed(PortHolder::Reserved) => {
            format!("{address} port {port} is reserved: the pool of {service} does not give it out")
        }
        Owner::Computed(PortHolder::Unassigned) => {
            format!("{address} port {port} is nobody's: what is left over in {service}")
        }
    });
    hosts.chain(owner).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7422 section 2.3: 14 hosts on one address, two shares for the dynamic
    /// pool.
    const EXAMPLE: &str = r#"
[[service]]
kind = "nat44"
inside = ["198.51.100.1-198.51.100.14"]
pool = [{ addresses = "192.0.2.1", ports = "1024-65535" }]
static = [{ inside = "198.51.100.3:80", outside = "192.0.2.1:80", protocol = "tcp" }]
allocation = { mode = "deterministic", dynamic_factor = 2 }
"#;

    #[test]
    fn the_example_of_rfc_7422_is_answered() {
        let plan = tombolo_config::parse("example.toml", EXAMPLE).unwrap().plan;
        let outside = Ipv4Addr::new(192, 0, 2, 1);
        let owner = |port| answer(&plan, outside, port).and_then(|answer| answer.owner);
        let computed = |holder| Some(Owner::Computed(holder));
        let host = |last| computed(PortHolder::Subscriber(Ipv4Addr::new(198, 51, 100, last).into()));
        assert_eq!((owner(2001), owner(57_471)), (host(1), host(14)));
        assert_eq!((owner(58_204), owner(1023)), (computed(PortHolder::Dynamic), computed(PortHolder::Reserved)));
        let fixed = answer(&plan, outside, 80).unwrap();
        assert_eq!(fixed.static_bindings[0].inside, Ipv4Addr::new(198, 51, 100, 3));
        assert!(in_words(&fixed, outside, 80).contains("bound to 198.51.100.3"));
        assert_eq!(as_json(&answer(&plan, outside, 2001).unwrap())["subscriber"], "198.51.100.1");
        assert_eq!(answer(&plan, Ipv4Addr::new(192, 0, 2, 2), 80), None);
    }

    /// A border as in docs/howto, with an explicit mapping.
    const STATELESS: &str = r#"
[[service]]
kind = "map-e"
role = "br"
br = "2001:db8:ffff::1"
rules = [{ ipv6 = "2001:db8:4600::/40", ipv4 = "192.0.2.0/24", ea_bits = 16, psid_offset = 6 }]

[[service]]
kind = "lwaftr"
addresses = ["2001:db8:ffff::2"]
ipv4 = ["203.0.113.0/24"]
softwires = [{ b4 = "2001:db8:4613:3500::1", ipv4 = "203.0.113.10", psid_length = 6, psid = 4 }]

[[service]]
kind = "siit"
prefix = "2001:db8:64::/96"
eam = [{ ipv4 = "198.51.100.8/29", ipv6 = "2001:db8:5::/125" }]
"#;

    #[test]
    fn whose_a_port_is_follows_from_rules_softwires_and_mappings() {
        let plan = tombolo_config::parse("border.toml", STATELESS).unwrap().plan;
        let says = |address: &str, port| {
            let address = address.parse().unwrap();
            answer(&plan, address, port).map(|answer| in_words(&answer, address, port))
        };
        // RFC 7597 appendix A, with another rule.
        let home = "192.0.2.18 port 1232 is 2001:db8:4612:3400::/56's (map-e)";
        assert_eq!(says("192.0.2.18", 1232).as_deref(), Some(home));
        assert_eq!(says("192.0.2.18", 1023).as_deref(), Some("192.0.2.18 port 1023 is nobody's (map-e)"));
        let b4 = "203.0.113.10 port 4096 is 2001:db8:4613:3500::1's (lwaftr)";
        assert_eq!(says("203.0.113.10", 4096).as_deref(), Some(b4));
        assert_eq!(says("203.0.113.10", 5120).as_deref(), Some("203.0.113.10 port 5120 is nobody's (lwaftr)"));
        assert_eq!(says("203.0.113.11", 4096), None);
        assert_eq!(says("198.51.100.9", 7).as_deref(), Some("198.51.100.9 port 7 is 2001:db8:5::1's (siit)"));
        assert_eq!(as_json(&answer(&plan, Ipv4Addr::new(192, 0, 2, 18), 1232).unwrap())["owner"], "subscriber");
    }
}
