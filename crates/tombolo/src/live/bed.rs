//! The lab of a comparison: a gateway, and a bare cable on each side of it.
//!
//! ```text
//!  frames -- inside0 gateway outside0 -- frames
//! ```
//!
//! Nobody lives at the cables' other ends: what is sent there comes from this process, and what
//! arrives there is all that the gateway sends.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use tombolo_lab::{End, Frames, Lab, Link, Process, Route, Topology};

use super::served::Served;
use crate::offline::Side;

const READY: Duration = Duration::from_secs(20);
/// A packet that has not come after this does not come.
const PATIENCE: Duration = Duration::from_secs(2);
/// MTU of the cables: what fits is the gateway's to decide.
const MTU: u32 = 9000;
const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEIGHBOUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const LONGEST_FRAME: usize = 10_000;

/// A side of the gateway.
struct Plug {
    /// The node at the other end of its cable.
    node: &'static str,
    interface: &'static str,
    /// The gateway's address, the next hop's, and the bits of their network.
    neighbours: [(&'static str, &'static str, u8); 2],
}

const SIDES: [Plug; 2] = [
    Plug {
        node: "client",
        interface: "inside0",
        neighbours: [("10.0.0.1", "10.0.0.2", 24), ("2001:db8:1::1", "2001:db8:1::2", 64)],
    },
    Plug {
        node: "server",
        interface: "outside0",
        neighbours: [("198.51.100.1", "198.51.100.2", 24), ("2001:db8:2::1", "2001:db8:2::2", 64)],
    },
];

/// A gateway that runs, and both cables.
pub(super) struct Bed {
    lab: Lab,
    gateway: Process,
    cables: [Frames; 2],
    buffer: Vec<u8>,
    /// Packets that have come out so far, inside and outside.
    pub(super) arrived: [u64; 2],
}

impl Bed {
    /// Starts the gateway of `configuration` for a service.
    pub(super) fn start(served: &Served, configuration: &str) -> anyhow::Result<Self> {
        let lab = Lab::create(&topology(served)?)?;
        for Plug { node, interface, neighbours } in SIDES {
            let ip = |node: &str, arguments: &str| -> anyhow::Result<()> {
                lab.node(node)?.command("ip").args(arguments.split(' ')).run()?.success()?;
                Ok(())
            };
            ip("gateway", &format!("link set {interface} address {}", words(GATEWAY_MAC)))?;
            ip(node, &format!("link set {interface} address {}", words(NEIGHBOUR_MAC)))?;
            for (_, neighbour, _) in neighbours {
                let mac = words(NEIGHBOUR_MAC);
                ip("gateway", &format!("neigh replace {neighbour} lladdr {mac} nud permanent dev {interface}"))?;
            }
        }
        let file = lab.directory()?.join("gateway.toml");
        std::fs::write(&file, configuration).with_context(|| format!("cannot write {}", file.display()))?;
        let cables = [lab.node("client")?.frames("inside0")?, lab.node("server")?.frames("outside0")?];
        let program = std::env::current_exe().context("cannot find the program that is running")?;
        let command = lab.node("gateway")?.command(program.display().to_string());
        let mut gateway = command.args(["run", "-c"]).arg(file.display().to_string()).spawn()?;
        gateway.wait_for_text("ready", READY)?;
        Ok(Self { lab, gateway, cables, buffer: vec![0; LONGEST_FRAME], arrived: [0; 2] })
    }

    /// Sends a packet in from a side.
    pub(super) fn send(&self, side: Side, packet: &[u8]) -> anyhow::Result<()> {
        let mut frame = [GATEWAY_MAC, NEIGHBOUR_MAC].concat();
        frame.extend(if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(packet);
        self.cables[side as usize].send(&frame).context("cannot send a frame")
    }

    /// Waits until so many packets have come out on each side, and takes them.
    pub(super) fn receive(&mut self, expected: [usize; 2]) -> [Vec<Vec<u8>>; 2] {
        let mut packets = [Vec::new(), Vec::new()];
        let begin = Instant::now();
        loop {
            for (cable, packets) in self.cables.iter().zip(&mut packets) {
                while let Some(length) = cable.receive(&mut self.buffer) {
                    packets.extend(of_ip(&self.buffer[..length]));
                }
            }
            let all = packets.iter().zip(expected).all(|(packets, expected)| packets.len() >= expected);
            if all || begin.elapsed() > PATIENCE {
                for (arrived, packets) in self.arrived.iter_mut().zip(&packets) {
                    *arrived += packets.len() as u64;
                }
                return packets;
            }
            let mut watched = self.cables.each_ref().map(|cable| PollFd::new(cable.as_fd(), PollFlags::POLLIN));
            // A signal, or a timeout, is met by the look at the clock.
            let _ = poll(&mut watched, PollTimeout::from(100_u8));
        }
    }

    /// What the gateway has counted: lines of JSON.
    pub(super) fn counters(&mut self) -> anyhow::Result<Vec<serde_json::Value>> {
        ensure!(self.gateway.is_running(), "the gateway ended: {}", self.gateway.log_tail(5));
        let program = std::env::current_exe().context("cannot find the program that is running")?;
        let command = self.lab.node("gateway")?.command(program.display().to_string());
        let output = command.args(["show", "counters", "--all", "--json"]).run()?.success()?;
        output.stdout.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Ends the gateway.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.gateway.signal(Signal::SIGTERM)?;
        let output = self.gateway.wait(READY)?;
        ensure!(output.stderr.contains("stopped"), "the gateway did not stop in order: {}", output.tail(10));
        Ok(())
    }
}

/// The packet in a frame, without padding, unless it is the kernel's own talk with its neighbours.
fn of_ip(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = frame.get(14..)?;
    match frame[12..14] {
        [8, 0] => {
            let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
            Some(packet.get(..length).unwrap_or(packet).to_vec())
        }
        [0x86, 0xdd] => {
            let length = 40 + usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            let link_local = packet.get(8)? & 0xfe == 0xfe && packet.get(9)? & 0xc0 == 0x80;
            let multicast = *packet.get(24)? == 0xff;
            (!link_local && !multicast).then(|| packet.get(..length).unwrap_or(packet).to_vec())
        }
        _ => None,
    }
}

fn words(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn topology(served: &Served) -> anyhow::Result<Topology> {
    let mut topology = Topology::chain("comparison", &["client", "gateway", "server"]);
    for Plug { node, interface, neighbours } in SIDES {
        let end = |node: &str| End { node: node.into(), interface: interface.into(), addresses: Vec::new() };
        let (bare, mut own) = (end(node), end("gateway"));
        for (address, _, length) in neighbours {
            own.addresses.push(tombolo_lab::Prefix { address: address.parse()?, length });
        }
        topology.links.push(Link { mtu: Some(MTU), ..Link::new(bare, own) });
        let bare = topology.node_mut(node).context("a node is missing")?;
        bare.sysctls.push(("net.ipv6.conf.all.disable_ipv6".into(), "1".into()));
    }
    let routes = ["10.0.1.0/24", "2001:db8:1:f::/64"].into_iter().chain(served.inside_routes.iter().copied());
    let routes = routes.map(|prefix| (prefix, 0)).chain(served.outside_routes.iter().map(|&prefix| (prefix, 1)));
    let gateway = topology.node_mut("gateway").context("a node is missing")?;
    for (prefix, side) in routes {
        let destination: tombolo_lab::Prefix = prefix.parse()?;
        let via = SIDES[side].neighbours[usize::from(destination.address.is_ipv6())].1.parse()?;
        gateway.routes.push(Route { destination, via });
    }
    Ok(topology)
}
