//! Jool, a kernel module: stateful NAT64, or SIIT. Its instance is of the gateway's namespace and
//! ends with it. Debian has the module as source (jool-dkms) and its tool (jool-tools).

use std::{fs, io, net::Ipv4Addr, net::SocketAddrV4, path::Path, process::Command, time::Duration};

use tombolo_lab::{Lab, LabError, Namespace, topology::SERVER_V4_TRANSLATED};

use super::running::{Running, STATIC_PORT};
use crate::gateway::kind::Kind;
use crate::machine;

/// So that no connection expires during a trial (RFC 9693 section 4.4), in seconds.
pub(in crate::gateway) const UDP_TIMEOUT_SECONDS: u64 = 10_000;
/// The gateway's own outside address, which Jool shares with it.
pub(in crate::gateway) const POOL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const MAPPED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

pub(super) fn start(kind: Kind, lab: &Lab) -> Result<Running, LabError> {
    if let Some(reason) = missing(kind) {
        let action = format!("load the kernel module {kind}");
        return Err(LabError::System { action, source: io::Error::other(reason) });
    }
    let file = lab.directory()?.join(format!("{kind}.json"));
    let action = || format!("write {}", file.display());
    fs::write(&file, configuration(kind)).map_err(|source| LabError::System { action: action(), source })?;
    // The kernel may take its time with a module that is there.
    let _ = Command::new("modprobe").arg(kind.name()).output();
    begin(kind, lab)?;
    let seen = if kind == Kind::JoolSiit { MAPPED } else { POOL };
    Ok(Running {
        kind,
        version: machine::version_of(kind.name(), &["--version"]),
        server_seen_by_client: SERVER_V4_TRANSLATED.into(),
        client_seen_by_server: Some(SocketAddrV4::new(seen, STATIC_PORT)),
        started_in: Duration::ZERO,
        processes: Vec::new(),
    })
}

/// Deletes the instance with all that it knows of connections, and makes it anew: Jool deletes no
/// sessions by themselves.
///
/// # Errors
/// [`LabError`] if its tool refuses.
pub(in crate::gateway) fn flush(kind: Kind, lab: &Lab) -> Result<(), LabError> {
    tool(kind, lab.node("gateway")?, &["instance", "remove"])?;
    begin(kind, lab)
}

/// Sessions, by the counters of the instance.
pub(in crate::gateway) fn sessions(node: &Namespace) -> Option<u64> {
    count(&tool(Kind::Jool, node, &["stats", "display", "--all"]).ok()?, "JSTAT_SESSIONS")
}

/// What this machine lacks of Jool, and where it is to be had.
pub(super) fn missing(kind: Kind) -> Option<String> {
    let succeeds =
        |program, arguments: &[&str]| Command::new(program).args(arguments).output().is_ok_and(|o| o.status.success());
    let has_module = Path::new("/sys/module").join(kind.name()).exists()
        || succeeds("modprobe", &["--dry-run", "--quiet", kind.name()]);
    let what = match (has_module, succeeds(kind.name(), &["--version"])) {
        (true, true) => return None,
        (true, false) => "its tool is not there; install jool-tools",
        (false, _) => "the module is not there; install jool-dkms and jool-tools on a kernel that loads modules",
    };
    Some(format!("{what}, or measure it in an emulated guest: scripts/measure-jool.sh"))
}

/// Makes the instance from its file.
fn begin(kind: Kind, lab: &Lab) -> Result<(), LabError> {
    let file = lab.directory()?.join(format!("{kind}.json"));
    tool(kind, lab.node("gateway")?, &["file", "handle", &file.display().to_string()]).map(drop)
}

fn tool(kind: Kind, node: &Namespace, arguments: &[&str]) -> Result<String, LabError> {
    Ok(node.command(kind.name()).args(arguments.iter().copied()).run()?.success()?.stdout)
}

fn configuration(kind: Kind) -> String {
    let (global, own) = if kind == Kind::JoolSiit { siit() } else { nat64() };
    format!(
        r#"{{
  "instance": "default",
  "framework": "netfilter",
  "global": {{ "pool6": "64:ff9b::/96"{global} }},
  {own}
}}
"#
    )
}

fn nat64() -> (String, String) {
    // The tool wants hours, minutes and seconds.
    let (minutes, seconds) = (UDP_TIMEOUT_SECONDS / 60, UDP_TIMEOUT_SECONDS % 60);
    let timeout = format!(r#", "udp-timeout": "{}:{:02}:{seconds:02}""#, minutes / 60, minutes % 60);
    let pool = ["TCP", "UDP", "ICMP"].map(|protocol| {
        format!(r#"{{ "protocol": "{protocol}", "prefix": "{POOL}/32", "port range": "1024-65535" }}"#)
    });
    let inside = format!("2001:db8:1::2#{STATIC_PORT}");
    let bindings = ["TCP", "UDP"].map(|protocol| {
        format!(r#"{{ "protocol": "{protocol}", "ipv6 address": "{inside}", "ipv4 address": "{POOL}#{STATIC_PORT}" }}"#)
    });
    (timeout, format!("\"pool4\": [{}],\n  \"bib\": [{}]", pool.join(", "), bindings.join(", ")))
}

fn siit() -> (String, String) {
    let row = format!(r#"{{ "ipv6 prefix": "2001:db8:1::2/128", "ipv4 prefix": "{MAPPED}/32" }}"#);
    (String::new(), format!("\"eamt\": [{row}]"))
}

/// A counter among lines of names and values.
fn count(text: &str, name: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(found, _)| found.trim() == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_json_with_what_the_module_is_told() {
        for (kind, key) in [(Kind::Jool, "pool4"), (Kind::JoolSiit, "eamt")] {
            let value: serde_json::Value = serde_json::from_str(&configuration(kind)).unwrap();
            assert_eq!(value["global"]["pool6"], "64:ff9b::/96");
            assert!(value[key].as_array().is_some_and(|rows| !rows.is_empty()), "{value}");
        }
        assert!(configuration(Kind::Jool).contains("\"2:46:40\""));
    }

    #[test]
    fn sessions_are_counted_by_name() {
        let text = "JSTAT_RECEIVED6: 4\nJSTAT_BIB_ENTRIES: 3\nJSTAT_SESSIONS: 40000\n";
        assert_eq!((count(text, "JSTAT_SESSIONS"), count("", "JSTAT_SESSIONS")), (Some(40_000), None));
    }
}
