//! How hosts close connections, through live gateways: the rows of `docs/tcp-sessions.md`, "Ways to
//! close", as raw packets and in part by Linux hosts, with and without the programs in the kernel.
//! Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, unreachable_pub, reason = "helpers of tests fail like tests")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::Linger};
use serde_json::Value;
use tombolo_lab::{Frames, Lab, Process, Topology, skip_without, wait_until};

mod running;
#[path = "../../engine/tests/support/mod.rs"]
mod support;
#[path = "../../engine/tests/support/ways_to_close.rs"]
mod ways_to_close;

use running::{PATIENCE, TOMBOLO, run, show};
use support::{see, tcp};
use ways_to_close::{Step, Way, ways};

/// Hosts that no kernel has, so that none answers.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);
const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
/// That of all ways that have one.
const PAUSE: Duration = Duration::from_secs(10);
/// Seconds that the whole table may take, and by which ticks are coarse.
const SLACK: u64 = 5;

struct Bed {
    lab: Lab,
    _gateway: Process,
    inside: Cable,
    outside: Cable,
}

/// One end of a cable, and the gateway's MAC address at the other.
struct Cable {
    frames: Frames,
    gateway: [u8; 6],
}

impl Cable {
    fn open(lab: &Lab, node: &str, interface: &str, host: Ipv4Addr) -> Self {
        let ip = |arguments: &str| {
            lab.node("gateway").unwrap().command("ip").args(arguments.split(' ')).run().unwrap().success().unwrap()
        };
        let links: Value = serde_json::from_str(&ip(&format!("-j link show {interface}")).stdout).unwrap();
        let bytes = links[0]["address"].as_str().unwrap().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
        let gateway: Vec<u8> = bytes.collect();
        ip(&format!("neigh replace {host} lladdr 02:00:00:00:00:77 nud permanent dev {interface}"));
        Self { frames: lab.node(node).unwrap().frames(interface).unwrap(), gateway: gateway.try_into().unwrap() }
    }

    fn send(&self, packet: &[u8]) {
        self.frames.send(&[&self.gateway[..], &MAC, &[8, 0], packet].concat()).unwrap();
    }

    /// Waits for the next TCP packet to `host`.
    fn receive(&self, host: Ipv4Addr) -> support::Seen {
        let mut buffer = [0; 2000];
        wait_until("a packet crosses", PATIENCE, || {
            while let Some(length) = self.frames.receive(&mut buffer) {
                let frame = &buffer[..length];
                if frame[12..14] == [8, 0] && frame[23] == 6 && frame[30..34] == host.octets() {
                    let length = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
                    return Some(see(&frame[14..14 + length]));
                }
            }
            None
        })
        .unwrap()
    }
}

impl Bed {
    fn start(fastpath: &str) -> Self {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        let inside = Cable::open(&lab, "client", "inside0", HOST);
        let outside = Cable::open(&lab, "server", "outside0", REMOTE);
        let file = lab.directory().unwrap().join("gateway.toml");
        let text = format!(
            "[gateway]\nfastpath = \"{fastpath}\"\n[capacity]\nsubscribers = 100\nbindings = 10000\nsessions = 10000\n\
             [[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\npool = [{{ addresses = \"{POOL}\" }}]\n"
        );
        std::fs::write(&file, text).unwrap();
        let gateway = run(TOMBOLO, &lab, &file);
        Self { lab, _gateway: gateway, inside, outside }
    }

    /// State and seconds that are left of the session of a port inside.
    fn session(&self, port: u16) -> Option<(String, u64)> {
        let rows = show(&self.lab, "sessions");
        let row = rows.iter().find(|row| row["inside_port"] == port)?;
        Some((row["state"].as_str()?.to_owned(), row["expires"].as_u64()?))
    }

    /// Takes steps of the way that has `port`; `outside` is its port outside, once that is known.
    fn go(&self, steps: &[Step], port: u16, outside: &mut Option<u16>) {
        let payload = |data: bool| if data { b"some data".as_slice() } else { b"" };
        for &step in steps {
            match step {
                Step::Pause(seconds) => assert_eq!(seconds, PAUSE.as_secs()),
                Step::Inside(flags, data) => {
                    self.inside.send(&tcp((HOST, port), (REMOTE, 80), flags, payload(data)));
                    let seen = self.outside.receive(REMOTE);
                    assert_eq!(*outside.get_or_insert(seen.ports.0), seen.ports.0);
                }
                Step::Outside(flags, data) => {
                    self.outside.send(&tcp((REMOTE, 80), (POOL, outside.unwrap()), flags, payload(data)));
                    assert_eq!(self.inside.receive(HOST).ports, (80, port));
                }
            }
        }
    }

    /// All ways, one after another; those with a pause have it together.
    fn all_ways(&self) {
        let ways = ways();
        let pause = |way: &Way| way.steps.iter().position(|step| matches!(step, Step::Pause(_)));
        let ports: Vec<u16> = (40_000..).take(ways.len()).collect();
        let mut outside = vec![None; ways.len()];
        for ((way, &port), outside) in ways.iter().zip(&ports).zip(&mut outside) {
            if let Some(at) = pause(way) {
                self.go(&way.steps[..at], port, outside);
            }
        }
        std::thread::sleep(PAUSE);
        for ((way, &port), outside) in ways.iter().zip(&ports).zip(&mut outside) {
            self.go(&way.steps[pause(way).unwrap_or(0)..], port, outside);
        }
        for (way, &port) in ways.iter().zip(&ports) {
            let (state, left) = self.session(port).unwrap_or_else(|| panic!("{}: no session", way.what));
            println!("{}: {state}, {left} s left, and should be {}", way.what, way.seconds);
            assert_eq!(state, way.state, "{}", way.what);
            assert!((way.seconds - SLACK..=way.seconds + 3).contains(&left), "{}: {left} s left", way.what);
        }
    }

    /// Ways that Linux has, by what the client and the server do with an open connection.
    fn linux(&self) {
        type Act = fn(TcpStream, TcpStream);
        let ways: [(&str, &str, Act); 4] = [
            ("the inside closes", "both-fin", |client, mut server| {
                drop(client);
                assert_eq!(server.read(&mut [0; 9]).unwrap(), 0);
            }),
            ("the outside closes", "both-fin", |mut client, server| {
                drop(server);
                assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
            }),
            ("the inside aborts", "reset", |client, mut server| {
                setsockopt(&client, Linger, &libc_linger()).unwrap();
                drop(client);
                assert!(server.read(&mut [0; 9]).is_err());
            }),
            ("closed with data unread", "reset", |client, mut server| {
                server.write_all(b"data").unwrap();
                client.peek(&mut [0; 4]).unwrap();
                drop(client);
                assert!(server.read(&mut [0; 9]).is_err());
            }),
        ];
        let listener = self.lab.node("server").unwrap().run(|| TcpListener::bind("198.51.100.2:80")).unwrap().unwrap();
        for (what, expected, act) in ways {
            let remote: SocketAddr = "198.51.100.2:80".parse().unwrap();
            let client =
                self.lab.node("client").unwrap().run(|| TcpStream::connect_timeout(&remote, PATIENCE)).unwrap();
            let (client, (server, _)) = (client.unwrap(), listener.accept().unwrap());
            let port = client.local_addr().unwrap().port();
            for stream in [&client, &server] {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
            }
            act(client, server);
            let left = wait_until(&format!("{what}: {expected}"), PATIENCE, || {
                self.session(port).filter(|(state, _)| state == expected).map(|(_, left)| left)
            });
            let left = left.unwrap();
            println!("{what}, by Linux: {expected}, {left} s left");
            assert!((240 - SLACK..=243).contains(&left), "{what}: {left} s left");
        }
    }
}

/// Close with a reset.
fn libc_linger() -> nix::libc::linger {
    nix::libc::linger { l_onoff: 1, l_linger: 0 }
}

fn every_way(name: &str, fastpath: &str) {
    if skip_without(name, &["ip"]) {
        return;
    }
    let bed = Bed::start(fastpath);
    bed.all_ways();
    bed.linux();
    let forwarded = |row: &&Value| row["counter"] == "forwarded" && row["path"] == "kernel";
    let taken: u64 =
        show(&bed.lab, "counters").iter().filter(forwarded).map(|row| row["value"].as_u64().unwrap()).sum();
    assert_eq!(taken > 50, fastpath == "tc", "{taken} packets were the kernel's");
}

#[test]
fn every_way_to_close_leaves_what_the_docs_say() {
    every_way("every_way_to_close_leaves_what_the_docs_say", "off");
}

#[test]
fn every_way_to_close_leaves_the_same_with_the_programs_in_the_kernel() {
    every_way("every_way_to_close_leaves_the_same_with_the_programs_in_the_kernel", "tc");
}
