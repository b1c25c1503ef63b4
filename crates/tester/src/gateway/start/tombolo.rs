//! This project's gateway, started as the program that users start: stateful NAT64 with
//! 64:ff9b::/96, stateful NAT44, or SIIT, where the outside sees the client's port 8080 at
//! 192.0.2.1:8080; or one end of a technology, with the tester's addresses ([`ends`](super::ends)).

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use tombolo_lab::{
    Lab, LabError,
    topology::{SERVER_V4, SERVER_V4_TRANSLATED},
};

use super::ends;
use super::running::{Options, Running, STATIC_PORT};
use crate::gateway::addresses::{SIIT_PREFIX, embed};
use crate::gateway::kind::Kind;
use crate::gateway::technology::Technology;
use crate::machine;

/// An emulated processor takes its time to verify the programs.
const READY_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn start(lab: &Lab, options: &Options) -> Result<Running, LabError> {
    let file = lab.directory()?.join("tombolo.toml");
    let action = || format!("write {}", file.display());
    fs::write(&file, configuration(options)).map_err(|source| LabError::System { action: action(), source })?;
    let executable = options.tombolo.display().to_string();
    let mut process = lab
        .node("gateway")?
        .command(executable.as_str())
        .args(["run", "-c"])
        .arg(file.display().to_string())
        .spawn()?;
    // Written once its routes are in place.
    process.wait_for_text("ready", READY_LIMIT)?;
    Ok(Running {
        kind: Kind::Tombolo,
        version: machine::version_of(&executable, &["--version"]),
        server_seen_by_client: server_seen_by_client(options.technology),
        client_seen_by_server: Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), STATIC_PORT)),
        started_in: Duration::ZERO,
        processes: vec![process],
    })
}

fn server_seen_by_client(technology: Technology) -> IpAddr {
    match technology {
        Technology::Nat44 => SERVER_V4.into(),
        Technology::Siit => embed(SIIT_PREFIX, SERVER_V4).into(),
        _ => SERVER_V4_TRANSLATED.into(),
    }
}

fn configuration(options: &Options) -> String {
    let (settings, own) = of_the_service(&options.settings);
    let service = match options.technology {
        Technology::Nat44 => nat44(),
        Technology::Siit => siit(),
        end if end.is_one_end() => ends::service(end, &options.addresses, options.subscribers),
        _ => nat64(),
    };
    format!("{settings}\n[[service]]\n{service}{}{own}", mtu_keys(options.technology, options.mtu))
}

/// The settings that go before the service, and those of the service itself: lines like
/// `service.sessions = "kept"`.
fn of_the_service(settings: &str) -> (String, String) {
    let (mut before, mut own) = (String::new(), String::new());
    for line in settings.lines() {
        let (text, line) = match line.trim_start().strip_prefix("service.") {
            Some(key) => (&mut own, key),
            None => (&mut before, line),
        };
        text.push_str(line);
        text.push('\n');
    }
    (before, own)
}

/// What a service has to know of links with another MTU than the usual one.
pub(super) fn mtu_keys(technology: Technology, mtu: Option<u32>) -> String {
    use Technology::{Clat, MapE, MapECe, MapT, MapTBr, MapTCe, Nat44, Nat64, Siit, Xlat464};
    let Some(mtu) = mtu else { return String::new() };
    match technology {
        Nat44 => String::new(),
        Nat64 | Siit | Clat | Xlat464 | MapE | MapECe | MapT | MapTCe | MapTBr => {
            format!("ipv6_mtu = {mtu}\nipv4_mtu = {mtu}\n")
        }
        _ => format!("ipv6_mtu = {mtu}\n"),
    }
}

fn nat64() -> String {
    format!(
        r#"kind   = "nat64"
prefix = "64:ff9b::/96"
# The lab's addresses are documentation addresses, which are not global.
well_known_prefix_strict = false
pool   = [{{ addresses = "192.0.2.0/28", ports = "1024-65535" }}]
static = [{{ inside = "[2001:db8:1::2]:{STATIC_PORT}", outside = "192.0.2.1:{STATIC_PORT}", protocol = "tcp" }}]
"#
    )
}

fn nat44() -> String {
    format!(
        r#"kind   = "nat44"
inside = ["10.0.0.0/8"]
pool   = [{{ addresses = "192.0.2.0/28", ports = "1024-65535" }}]
static = [{{ inside = "10.0.0.2:{STATIC_PORT}", outside = "192.0.2.1:{STATIC_PORT}", protocol = "tcp" }}]
"#
    )
}

/// The same mapping as Tayga's.
fn siit() -> String {
    r#"kind   = "siit"
prefix = "2001:db8:64::/96"
eam    = [{ ipv4 = "192.0.2.1", ipv6 = "2001:db8:1::2" }]
"#
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_service_are_in_its_table() {
        let settings = "gateway.fastpath = \"xdp\"\n service.sessions = \"kept\"\ntimeouts.udp = 300".to_owned();
        let text = configuration(&Options::new("tombolo".into(), settings, Technology::Nat44));
        let (before, service) = text.split_once("[[service]]\n").unwrap();
        assert_eq!(before, "gateway.fastpath = \"xdp\"\ntimeouts.udp = 300\n\n");
        assert!(
            service.starts_with("kind   = \"nat44\"\n") && service.ends_with("\nsessions = \"kept\"\n"),
            "{service}"
        );
    }
}
