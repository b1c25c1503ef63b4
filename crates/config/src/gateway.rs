//! Tables `[gateway]` and `[[interface]]`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use tombolo_engine::plan::{AnsweredBy, ErrorPolicy, OwnAddresses, Refusals};

use crate::collectors;
use crate::document::{Node, Table};
use crate::host::{FastPath, Host, InsideInterfaces, LogDetail, LogFormat, LogLevel, MetricsAddress};
use crate::problem::{Log, Problem};
use crate::reference::{GATEWAY, INTERFACE};

const ANSWERED_BY: [(&str, AnsweredBy); 2] = [("host", AnsweredBy::Host), ("gateway", AnsweredBy::Gateway)];
const MODES: [(&str, FastPath); 4] =
    [("auto", FastPath::Auto), ("xdp", FastPath::Xdp), ("tc", FastPath::Tc), ("off", FastPath::Off)];
const DETAILS: [(&str, LogDetail); 3] =
    [("bindings", LogDetail::Bindings), ("blocks", LogDetail::Blocks), ("sessions", LogDetail::Sessions)];
const LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];
const FORMATS: [(&str, LogFormat); 4] =
    [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json), ("journal", LogFormat::Journal)];

/// Reads `[gateway]` and `[[interface]]`.
pub(crate) fn read(file: &Table<'_>, log: &mut Log) -> (Host, OwnAddresses) {
    let interfaces = read_interfaces(file, log);
    read_gateway(file, interfaces, log)
}

/// Reads `[[interface]]`.
fn read_interfaces(file: &Table<'_>, log: &mut Log) -> BTreeMap<String, FastPath> {
    let mut interfaces = BTreeMap::new();
    let items = file.find("interface").and_then(|node| log.keep(node.items())).unwrap_or_default();
    for item in items {
        let Some(table) = item.table(&INTERFACE, log) else { continue };
        let name = table.require("name", log).and_then(|node| log.keep(device(&node)));
        let mode = table.require("fastpath", log).and_then(|node| log.keep(node.choice(&MODES)));
        if let (Some(name), Some(mode)) = (name, mode)
            && interfaces.insert(name.clone(), mode).is_some()
        {
            log.mistake(item.problem(format!("a second table for {name}; remove one of them")));
        }
    }
    interfaces
}

fn read_gateway(file: &Table<'_>, interfaces: BTreeMap<String, FastPath>, log: &mut Log) -> (Host, OwnAddresses) {
    let defaults = Host { interfaces, ..Host::default() };
    let Some(table) = file.table("gateway", &GATEWAY, log) else { return (defaults, OwnAddresses::default()) };
    let queues = |node: &Node<'_>| node.number32(1..=256).map(|queues| Some(queues as usize));
    let collectors = table.find("binding_log_collectors").map(|node| collectors::read(&node, log)).unwrap_or_default();
    let host = Host {
        device: table.read_or("device", defaults.device, log, device),
        queues: table.read_or("queues", None, log, queues),
        pin: table.read_or("pin", defaults.pin, log, Node::switch),
        mtu: table.read_or("mtu", defaults.mtu, log, |node| node.number32(1280..=65_535)),
        run_directory: table.read_or("run_directory", None, log, directory),
        memory: defaults.memory,
        table: table.read_or("table", defaults.table, log, |node| {
            node.number32(1..=u32::MAX - 1).and_then(|number| routing_table(number, node))
        }),
        fastpath: table.read_or("fastpath", defaults.fastpath, log, |node| node.choice(&MODES)),
        interfaces: defaults.interfaces,
        inside_interfaces: table.read_or("inside_interfaces", defaults.inside_interfaces, log, inside_interfaces),
        service_interfaces: defaults.service_interfaces,
        proxy_neighbours: table.read_or("proxy_neighbours", defaults.proxy_neighbours, log, Node::switch),
        fastpath_netfilter: table.read_or("fastpath_netfilter", defaults.fastpath_netfilter, log, Node::switch),
        metrics: table.read_or("metrics", None, log, |node| metrics(node).map(Some)),
        binding_log: table.read_or("binding_log", None, log, directory),
        binding_log_rate: table
            .read_or("binding_log_rate", defaults.binding_log_rate, log, |node| node.number32(1..=1_000_000)),
        binding_log_detail: table
            .read_or("binding_log_detail", defaults.binding_log_detail, log, |node| node.choice(&DETAILS)),
        binding_log_collectors: collectors,
        provision: defaults.provision,
        addresses: defaults.addresses,
        lease_files: defaults.lease_files,
        shared_pools: defaults.shared_pools,
        user: table.read_or("user", None, log, |node| user(node).map(Some)),
        sandbox: table.read_or("sandbox", defaults.sandbox, log, Node::switch),
        log_level: table.read_or("log_level", defaults.log_level, log, |node| node.choice(&LEVELS)),
        log_format: table.read_or("log_format", defaults.log_format, log, |node| node.choice(&FORMATS)),
        file_directories: defaults.file_directories,
        cluster: defaults.cluster,
    };
    if let Some(node) = table.find("fastpath_netfilter")
        && host.fastpath_netfilter
        && host.interfaces.values().chain([&host.fastpath]).any(|mode| *mode == FastPath::Xdp)
    {
        log.mistake(
            node.problem("netfilter cannot see what XDP sends; where fastpath is \"xdp\", make it \"tc\" or \"auto\""),
        );
    }
    if let Some(node) = table.find("binding_log_collectors")
        && host.binding_log.is_none()
        && !host.binding_log_collectors.is_empty()
    {
        log.mistake(
            node.problem("they get what is in the file of the log, and there is none; set binding_log as well"),
        );
    }
    let own = OwnAddresses {
        ipv4: table.read_or("ipv4", None, log, |node| match address(node)? {
            IpAddr::V4(address) => Ok(Some(address)),
            IpAddr::V6(_) => Err(node.problem("an IPv6 address; put it under gateway.ipv6")),
        }),
        ipv6: table.read_or("ipv6", None, log, |node| match address(node)? {
            IpAddr::V6(address) => Ok(Some(address)),
            IpAddr::V4(_) => Err(node.problem("an IPv4 address; put it under gateway.ipv4")),
        }),
        answered_by: table.read_or("answered_by", AnsweredBy::default(), log, |node| node.choice(&ANSWERED_BY)),
        errors: errors(&table, log),
    };
    (host, own)
}

/// A name or a number. Whether there is such a user is the host's business, at the start.
fn user(node: &Node<'_>) -> Result<String, Problem> {
    let name = node.text()?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if is_name { Ok(name.to_owned()) } else { Err(node.problem("not the name of a user, nor its number")) }
}

fn errors(table: &Table<'_>, log: &mut Log) -> ErrorPolicy {
    let defaults = ErrorPolicy::default();
    ErrorPolicy {
        rate: table.read_or("icmp_errors_per_second", defaults.rate, log, |node| node.number32(0..=1_000_000)),
        burst: table.read_or("icmp_errors_at_once", defaults.burst, log, |node| node.number32(1..=1_000_000)),
        refusals: table.read_or("icmp_refusals", defaults.refusals, log, |node| {
            Ok(if node.switch()? { Refusals::Told } else { Refusals::Silent })
        }),
    }
}

pub(crate) fn device(node: &Node<'_>) -> Result<String, Problem> {
    let name = node.text()?;
    let is_forbidden = |byte: u8| byte.is_ascii_whitespace() || byte.is_ascii_control() || b"/:%".contains(&byte);
    if name.is_empty() || name.len() > 15 || name.bytes().any(is_forbidden) || name == "." || name == ".." {
        return Err(node.problem("cannot be the name of a device; use 1 to 15 letters, digits and hyphens"));
    }
    Ok(name.to_owned())
}

/// `"by-route"`, `"any"`, or names of interfaces.
pub(crate) fn inside_interfaces(node: &Node<'_>) -> Result<InsideInterfaces, Problem> {
    const WORDS: [(&str, InsideInterfaces); 2] =
        [("by-route", InsideInterfaces::ByRoute), ("any", InsideInterfaces::Any)];
    if let Ok(word) = node.text() {
        let known = WORDS.into_iter().find(|(known, _)| *known == word).map(|(_, inside)| inside);
        return known.ok_or_else(|| {
            node.problem(format!("\"{word}\" means nothing here; use \"by-route\", \"any\", or a list: [\"{word}\"]"))
        });
    }
    let names: Vec<_> = node.items()?.iter().map(device).collect::<Result<_, _>>()?;
    if names.is_empty() {
        return Err(
            node.problem("names no interface, so that nobody inside could send; name some, or use \"by-route\"")
        );
    }
    Ok(InsideInterfaces::Listed(names))
}

fn directory(node: &Node<'_>) -> Result<Option<PathBuf>, Problem> {
    let path = PathBuf::from(node.text()?);
    if path.is_absolute() { Ok(Some(path)) } else { Err(node.problem("not an absolute path; begin with \"/\"")) }
}

fn metrics(node: &Node<'_>) -> Result<MetricsAddress, Problem> {
    let text = node.text()?;
    match text.parse() {
        Ok(address) => Ok(MetricsAddress::Tcp(address)),
        Err(_) if text.starts_with('/') => Ok(MetricsAddress::Unix(PathBuf::from(text))),
        Err(_) => Err(node.problem("neither address and port nor an absolute path; use \"127.0.0.1:9464\"")),
    }
}

/// Tables 253 to 255 are the host's own: default, main and local. The gateway may need the table behind, too.
pub(crate) fn routing_table(number: u32, node: &Node<'_>) -> Result<u32, Problem> {
    match number {
        252..=255 => {
            Err(node.problem("it, or the table behind it, is one that every host has and needs; choose another number"))
        }
        number => Ok(number),
    }
}

pub(crate) fn address(node: &Node<'_>) -> Result<IpAddr, Problem> {
    let address: IpAddr =
        node.text()?.parse().map_err(|_| node.problem("not an IP address; write it without a prefix length"))?;
    if address.is_multicast() || address.is_unspecified() || address.is_loopback() {
        return Err(node.problem("no host could answer to it; use a unicast address of this host"));
    }
    Ok(address)
}
