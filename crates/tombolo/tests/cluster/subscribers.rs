//! Hosts of a NAT64, a NAT44 and an AFTR: a socket for each, and connections.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tombolo_lab::cluster::{ClusterLab, subscribers};
use tombolo_lab::{Flow, wait_until};

use crate::boxes::Cluster;
use crate::loads::{Effect, report};
use crate::running::{PATIENCE, TOMBOLO, rows};

/// Who sends through a NAT64, a NAT44 and an AFTR: host, first part of its addresses, how many, and to where.
pub(super) const BOUND: [(&str, &str, u8, &str); 3] = [
    ("phone", "2001:db8:6::", 8, "[2001:db8:6464::198.51.100.2]"),
    ("lan", "100.64.0.", 8, "198.51.100.2"),
    ("home", "10.", 3, "198.51.100.2"),
];
/// Connections of each host.
const CONNECTIONS: usize = 5;

impl Cluster {
    /// Waits until the outside router knows the owner of each slice of the three pools, and the inside one all nodes.
    pub(super) fn wait_for_slices(&self) {
        ClusterLab::wait_for_slices(self, 3).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Has everything from these hosts come to one node.
    pub(super) fn enter_by(&self, node: u8) {
        let line = format!(
            "set -e
            ip -6 route replace default via 2001:db8:a::{node} table 109
            ip route replace default via 10.254.0.{node} table 109
            for home in home4 home6; do ip -6 rule add pref 90 iif $home lookup 109 2>/dev/null || true; done
            ip rule add pref 90 iif home5 lookup 109 2>/dev/null || true"
        );
        self.command("r1", &line);
    }

    /// Everything comes to any node again.
    pub(super) fn enter_by_all(&self) {
        let line = "for home in home4 home6; do ip -6 rule del pref 90 iif $home; done; ip rule del pref 90 iif home5";
        self.command("r1", line);
    }

    /// A flow of each subscriber's, to the server.
    pub(super) fn subscribers(&self) -> Vec<Flow> {
        subscribers().iter().map(|subscriber| self.flow(subscriber).unwrap()).collect()
    }

    /// A counter of `show peers`, over all nodes.
    pub(super) fn peers_total(&self, counter: &str) -> u64 {
        let of = |node: &str| -> u64 {
            let shown = rows(&self.command(node, &format!("{TOMBOLO} show peers --json")));
            shown.iter().map(|row| row[counter].as_u64().unwrap()).sum()
        };
        ["n1", "n2", "n3"].into_iter().map(of).sum()
    }
}

impl Cluster {
    /// Waits until each backup has a complete copy.
    pub(super) fn wait_for_copies(&self) {
        let are_complete = |node: &str| {
            let shown = rows(&self.command(node, &format!("{TOMBOLO} show peers --json")));
            let count = |key: &str| shown.iter().filter(|row| row[key] == "complete").count();
            count("copy_there") == 1 && count("copy_here") == 1 && shown.iter().all(|row| row["pending"] == 0)
        };
        let all = || ["n1", "n2", "n3"].iter().all(|node| are_complete(node)).then_some(());
        let found = wait_until("copies", PATIENCE, all);
        found
            .unwrap_or_else(|error| panic!("{error}\n{}", self.command("n1", &format!("{TOMBOLO} show peers --json"))));
    }

    /// Connections of all hosts to a server that says what it hears.
    pub(super) fn connections(&self) -> Vec<(String, TcpStream)> {
        let listener = self.lab.node("server").unwrap().run(|| TcpListener::bind("198.51.100.2:9").unwrap()).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut bytes) {
                        if stream.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        let mut connections = Vec::new();
        for (host, network, count, to) in BOUND {
            for number in 0..count {
                let address = match host {
                    "home" => format!("10.{}.0.2", number + 1),
                    _ => format!("{network}{}", number + 2),
                };
                let (address, to): (IpAddr, SocketAddr) =
                    (address.parse().unwrap(), format!("{to}:9").parse().unwrap());
                for _ in 0..CONNECTIONS {
                    let from = SocketAddr::new(address, 0);
                    let stream = self.lab.node(host).unwrap().run(|| connected(from, to)).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    stream.set_write_timeout(Some(PATIENCE)).unwrap();
                    connections.push((format!("{host} {number}"), stream));
                }
            }
        }
        connections
    }
}

/// A connection from an address that the host chooses.
pub(super) fn connected(from: SocketAddr, to: SocketAddr) -> TcpStream {
    tombolo_lab::connected(from, to).unwrap()
}

/// How many of them are alive, which is tried on all of them at once.
pub(super) fn alive(connections: &[(String, TcpStream)]) -> usize {
    connections.len() - dead(connections).len()
}

/// Whose are not, and what became of them.
pub(super) fn dead(connections: &[(String, TcpStream)]) -> Vec<String> {
    for (_, stream) in connections {
        let mut stream = stream;
        let _ = stream.write_all(b"are you there?");
    }
    let why = |(name, stream): &(String, TcpStream)| {
        let mut stream: &TcpStream = stream;
        let mut bytes = [0; 14];
        match stream.read_exact(&mut bytes) {
            Ok(()) if &bytes == b"are you there?" => None,
            answer => Some(format!("{name} from {:?}: {answer:?}", stream.local_addr())),
        }
    };
    connections.iter().filter_map(why).collect()
}

/// The flows are silent for so long at most, and connections live on.
pub(super) fn check_all(what: &str, effects: &[Effect], limit: Duration, connections: &[(String, TcpStream)]) {
    report(what, effects);
    let silent: Vec<String> = effects
        .iter()
        .filter(|Effect { seen, .. }| !seen.is_within(limit))
        .map(|Effect { seen, .. }| format!("{} for {:?} after {:?}", seen.name, seen.silence, seen.began))
        .collect();
    assert!(silent.is_empty(), "{what}: were silent: {silent:#?}");
    let began = Instant::now();
    let (there, all) = (alive(connections), connections.len());
    eprintln!("{what}: {there} of {all} connections live, after {:?}", began.elapsed());
    assert_eq!(there, all, "{what}");
}
