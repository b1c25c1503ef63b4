//! Jool, a kernel module: stateful NAT64, or SIIT.

use std::{io, net::Ipv4Addr, net::SocketAddrV4, path::Path, process::Command, time::Duration};

use tombolo_lab::{Lab, LabError, topology::SERVER_V4_TRANSLATED};

use super::running::{Running, STATIC_PORT};
use crate::gateway::kind::Kind;
use crate::machine;

/// So that no connection expires during a trial (RFC 9693 section 4.4), in seconds.
pub(in crate::gateway) const UDP_TIMEOUT_SECONDS: u64 = 10_000;

pub(super) fn start(kind: Kind, lab: &Lab) -> Result<Running, LabError> {
    let is_siit = kind == Kind::JoolSiit;
    let name = if is_siit { "jool_siit" } else { "jool" };
    load(name)?;
    let gateway = lab.node("gateway")?;
    let tool = |arguments: &[&str]| gateway.command(name).args(arguments.iter().copied()).run()?.success().map(drop);
    tool(&["instance", "add", "--netfilter", "--pool6", "64:ff9b::/96"])?;
    if is_siit {
        tool(&["eamt", "add", "2001:db8:1::2/128", "192.0.2.2/32"])?;
    } else {
        for protocol in ["--udp", "--icmp"] {
            tool(&["pool4", "add", "198.51.100.1", "1024-65535", protocol])?;
        }
        // The tool wants hours, minutes and seconds.
        let (minutes, seconds) = (UDP_TIMEOUT_SECONDS / 60, UDP_TIMEOUT_SECONDS % 60);
        let timeout = format!("{}:{:02}:{seconds:02}", minutes / 60, minutes % 60);
        tool(&["global", "update", "udp-timeout", &timeout])?;
    }
    Ok(Running {
        kind,
        version: machine::version_of(name, &["--version"]),
        server_seen_by_client: SERVER_V4_TRANSLATED.into(),
        client_seen_by_server: is_siit.then_some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), STATIC_PORT)),
        started_in: Duration::ZERO,
        processes: Vec::new(),
    })
}

fn load(module: &str) -> Result<(), LabError> {
    let loaded = Path::new("/sys/module").join(module).exists()
        || Command::new("modprobe").arg(module).output().is_ok_and(|output| output.status.success());
    if loaded {
        return Ok(());
    }
    let reason = "it is not there; install jool-dkms on a kernel that loads modules";
    Err(LabError::System { action: format!("load the kernel module {module}"), source: io::Error::other(reason) })
}
