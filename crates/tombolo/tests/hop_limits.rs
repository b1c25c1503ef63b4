//! What a packet loses of its hop limit, and which path traceroute shows: the same whether the engine
//! has the packet or the kernel's fast path. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::time::Duration;

use tombolo_lab::{Lab, Offload, Process, Topology, skip_without, wait_until};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);
const SERVER: &str = "64:ff9b::198.51.100.2";

/// Three for the two steps of the kernel and the one of the engine.
const HOPS: u32 = 3;

fn start(lab: &Lab, fastpath: &str) -> Process {
    let file = lab.directory().unwrap().join("gateway.toml");
    let text = format!(
        "[gateway]\nfastpath = \"{fastpath}\"\n[capacity]\nsubscribers = 100\nbindings = 10000\nsessions = 10000\n\
         [[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\nwell_known_prefix_strict = false\n\
         pool = [{{ addresses = \"192.0.2.1\", ports = \"1024-65535\" }}]\n"
    );
    fs::write(&file, text).unwrap();
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    gateway
}

/// One ping with this hop limit: with which the answer arrives, or who says that it has run out.
fn ping(lab: &Lab, hop_limit: u32) -> Result<u32, String> {
    let limit = hop_limit.to_string();
    let arguments = ["-n", "-c", "1", "-W", "2", "-t", &limit, SERVER];
    let printed = lab.node("client").unwrap().command("ping").args(arguments).run().unwrap().stdout;
    let word_after = |mark: &str| {
        let rest = printed.split_once(mark)?.1;
        rest.split([' ', '\n']).next().map(|word| word.trim_end_matches(':').to_owned())
    };
    match word_after(" ttl=") {
        Some(ttl) => Ok(ttl.parse().unwrap()),
        None => Err(word_after("From ").unwrap_or_else(|| format!("nobody: {printed}"))),
    }
}

/// Packets that the kernel has translated.
fn taken(lab: &Lab) -> u64 {
    let output = lab.node("gateway").unwrap().command(TOMBOLO).args(["show", "fastpath", "--json"]).run().unwrap();
    let rows = output.stdout;
    let row = rows.lines().find(|line| line.contains("\"taken-inside\"")).unwrap_or_default();
    let value = row.split("\"value\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("0");
    value.parse().unwrap()
}

#[test]
fn the_programs_take_as_many_hops_as_the_way_through_the_engine() {
    let name = "the_programs_take_as_many_hops_as_the_way_through_the_engine";
    if skip_without(name, &["ip", "ping"]) {
        return;
    }
    let mut paths = Vec::new();
    for fastpath in ["off", "tc", "xdp"] {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        for (node, interface) in [("client", "inside0"), ("server", "outside0")] {
            lab.node(node).unwrap().set_offload(interface, Offload::Gro, true).unwrap();
        }
        let gateway = start(&lab, fastpath);
        // The first packets resolve neighbours and admit the subscriber.
        wait_until("the server answers", PATIENCE, || ping(&lab, 64).ok()).unwrap();
        let before = taken(&lab);
        let arrives = ping(&lab, 64);
        assert_eq!(arrives, Ok(64 - HOPS), "{fastpath}");
        assert_eq!(taken(&lab) > before, fastpath != "off", "{fastpath}");
        assert_eq!(ping(&lab, HOPS + 1), Ok(64 - HOPS), "{fastpath}: it arrives with its last hop");
        paths.push((1..=HOPS).map(|limit| ping(&lab, limit).unwrap_err()).collect::<Vec<_>>());
        drop(gateway);
    }
    assert_eq!((&paths[0], &paths[0]), (&paths[1], &paths[2]), "the same path for all");
    assert!(paths[0].iter().all(|hop| hop.parse::<std::net::Ipv6Addr>().is_ok()), "{paths:?}");
    assert!(paths[0][2].starts_with("64:ff9b::"), "the far side, translated: {paths:?}");
}
