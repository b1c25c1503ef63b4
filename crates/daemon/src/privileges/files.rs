//! The files that a running gateway reads, writes, makes and removes, each with its reason.
//!
//! Files that are replaced by renaming are allowed by their directory: configuration, log, leases. So
//! they belong into directories of their own.

use std::path::{Path, PathBuf};

use tombolo_config::{Host, MetricsAddress, Transport};
use tombolo_io::privileges::{Access, FileRule, Files};

use super::places::{Places, Tasked, directory_of};
use crate::directories;

/// Ports of collectors over TCP: syslog by RFC 6587 and RFC 3195, over TLS, and IPFIX with and without it.
const USUAL: [u16; 5] = [514, 601, 6514, 4739, 4740];
/// The port of metrics by the documentation.
const METRICS: u16 = 9464;
/// Ports below take a capability that is given up.
const UNPRIVILEGED: u16 = 1024;
/// DNS over TCP.
const DNS: u16 = 53;

/// The files that are left to it.
pub(super) fn rules(settings: &Host, tasked: Tasked, places: &Places<'_>) -> Files {
    let mut rules = Rules(Vec::new());
    // A reload reads them. Through a link, where it leads to as well.
    rules.read_beside(places.configuration);
    settings.file_directories.iter().for_each(|directory| rules.add(directory, Access::Read));
    // The tables' files, the control socket; at the end they go.
    rules.add(places.socket, Access::Keep);
    if places.socket.parent() == Some(Path::new(directories::ROOT)) {
        rules.add(directories::ROOT, Access::RemoveDirectories);
    }
    if let Some(directory) = &settings.run_directory {
        rules.add(directory, Access::Keep);
    }
    // Links of interfaces that come and go; a reload brings new maps.
    if let Some(pins) = places.pins {
        rules.add(pins, Access::Keep);
        pins.parent().into_iter().for_each(|parent| rules.add(parent, Access::RemoveDirectories));
    }
    // Opened again after it was rotated.
    if let Some(directory) = settings.binding_log.as_deref().and_then(directory_of) {
        rules.add(directory, Access::Keep);
    }
    for directory in settings.lease_files.iter().filter_map(|(_, file)| directory_of(file)) {
        rules.add(directory, Access::Keep);
    }
    if let Some(MetricsAddress::Unix(socket)) = &settings.metrics
        && let Some(directory) = directory_of(socket)
    {
        rules.add(directory, Access::RemoveFiles);
    }
    // Whether the host forwards; routes as /proc has them; what a panic says of itself.
    rules.add("/proc/sys/net", Access::Read);
    rules.add("/proc/self", Access::Read);
    std::env::current_exe().into_iter().for_each(|program| rules.add(program, Access::Read));
    if tasked.has_programs {
        // Types of the kernel, and its processors, for maps with a value each.
        rules.add("/sys/kernel/btf", Access::Read);
        rules.add("/sys/devices/system/cpu", Access::Read);
    }
    if tasked.awaits.asks_resolver() {
        // The resolver.
        rules.add("/etc", Access::Read);
        rules.read_beside(Path::new("/etc/resolv.conf"));
    }
    // Connections to collectors of the log, which are made anew when they break, and to those that a reload
    // may bring.
    let collectors = settings.binding_log_collectors.iter().filter(|collector| collector.transport != Transport::Udp);
    let usual = settings.binding_log.iter().flat_map(|_| USUAL);
    let collectors = collectors.map(|collector| collector.address.port()).chain(usual);
    // Nodes of the cluster that have copies of the tables, and etcd.
    let nodes = settings.cluster.iter().filter_map(|cluster| Some(cluster.replication.as_ref()?.port));
    let etcd = settings.cluster.iter().flat_map(|cluster| &cluster.etcd).flat_map(|etcd| &etcd.endpoints);
    let etcd = etcd.filter_map(|endpoint| endpoint.rsplit_once(':')?.1.parse::<u16>().ok());
    let nodes = nodes.chain(etcd);
    let ports = tasked.awaits.asks_resolver().then_some(DNS).into_iter().chain(collectors).chain(nodes).collect();
    // Metrics that a reload brings, or moves to another address. What listens without a name for its port
    // gets one that nobody asks for.
    let metrics = match settings.metrics {
        Some(MetricsAddress::Tcp(address)) => Some(address.port()),
        _ => None,
    };
    let own_ports = metrics.into_iter().chain([METRICS]).filter(|port| *port >= UNPRIVILEGED).collect();
    Files { rules: rules.0, ports, own_ports }
}

struct Rules(Vec<FileRule>);

impl Rules {
    fn add(&mut self, path: impl Into<PathBuf>, access: Access) {
        self.0.push(FileRule { path: path.into(), access });
    }

    fn read_beside(&mut self, file: &Path) {
        if file.as_os_str().is_empty() {
            return;
        }
        let target = std::fs::canonicalize(file).ok();
        for file in std::iter::once(file).chain(target.as_deref()) {
            directory_of(file).into_iter().for_each(|directory| self.add(directory, Access::Read));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::awaits::Awaits;

    #[test]
    fn only_what_is_used_is_allowed() {
        let places = Places {
            configuration: Path::new("/etc/tombolo/gateway.toml"),
            socket: Path::new("/run/tombolo/tombolo"),
            pins: None,
        };
        let plain = rules(&Host::default(), Tasked { has_programs: false, awaits: Awaits::default() }, &places);
        let has = |files: &Files, path: &str| files.rules.iter().any(|rule| rule.path == Path::new(path));
        assert!(has(&plain, "/etc/tombolo") && has(&plain, "/run/tombolo/tombolo") && plain.ports.is_empty());
        assert!(!has(&plain, "/etc") && !has(&plain, "/sys/kernel/btf"));
        let asking = rules(
            &Host::default(),
            Tasked { has_programs: true, awaits: Awaits { prefix: true, far_ends: false } },
            &places,
        );
        assert!(has(&asking, "/etc") && has(&asking, "/sys/kernel/btf") && asking.ports == [53]);
    }
}
