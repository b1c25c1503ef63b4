//! This project's gateway, started as the program that users start: stateful NAT64 with 64:ff9b::/96, a pool of 16 addresses, and
//! the client's port 8080 bound to 192.0.2.1:8080.

use std::{fs, net::Ipv4Addr, net::SocketAddrV4, time::Duration};

use tombolo_lab::{Lab, LabError, topology::SERVER_V4_TRANSLATED};

use super::{Dut, Gateway, Options, STATIC_PORT};
use crate::machine;

const READY_LIMIT: Duration = Duration::from_secs(15);

pub(super) fn start(lab: &Lab, options: &Options) -> Result<Gateway, LabError> {
    let file = lab.directory()?.join("tombolo.toml");
    let action = || format!("write {}", file.display());
    fs::write(&file, configuration(&options.tombolo_settings))
        .map_err(|source| LabError::System { action: action(), source })?;
    let executable = options.tombolo.display().to_string();
    let mut process = lab
        .node("gateway")?
        .command(executable.as_str())
        .args(["run", "-c"])
        .arg(file.display().to_string())
        .spawn()?;
    // Written once its routes are in place.
    process.wait_for_text("ready", READY_LIMIT)?;
    Ok(Gateway {
        dut: Dut::Tombolo,
        version: machine::version_of(&executable, &["--version"]),
        server_seen_by_client: SERVER_V4_TRANSLATED.into(),
        client_seen_by_server: Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), STATIC_PORT)),
        started_in: Duration::ZERO,
        process: Some(process),
    })
}

fn configuration(settings: &str) -> String {
    format!(
        r#"{settings}
[[service]]
kind   = "nat64"
prefix = "64:ff9b::/96"
# The lab's addresses are documentation addresses, which are not global.
well_known_prefix_strict = false
pool   = [{{ addresses = "192.0.2.0/28", ports = "1024-65535" }}]
static = [{{ inside = "[2001:db8:1::2]:{STATIC_PORT}", outside = "192.0.2.1:{STATIC_PORT}", protocol = "tcp" }}]
"#
    )
}
