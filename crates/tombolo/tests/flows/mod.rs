//! Flows through a gateway in a lab that must not notice what happens to it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and a test may panic")]

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tombolo_lab::{Lab, wait_until};

use crate::running::PATIENCE;

/// A datagram from the client and its answer.
pub(crate) fn ask(lab: &Lab, to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let from = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = lab.node("client").unwrap().run(|| UdpSocket::bind(from).unwrap()).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let answered = || {
        socket.send(b"anybody?").ok()?;
        socket.recv(&mut [0; 8]).ok()
    };
    wait_until("an answer", PATIENCE, answered).unwrap();
}

/// Datagrams through one session, a thousand a second: how many were sent, which all have their
/// number in them, and the numbers of those that were answered.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) sent: AtomicU64,
    answered: Mutex<BTreeSet<u64>>,
    pub(crate) stop: AtomicBool,
}

impl Stream {
    pub(crate) fn run(&self, lab: &Lab, to: &str) {
        let socket = lab.node("client").unwrap().run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
        socket.connect(to.parse::<SocketAddr>().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        // A thread that is kept from the processor loses nothing.
        setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = [0; 8];
                loop {
                    match socket.recv(&mut bytes) {
                        Ok(8) => drop(self.answered.lock().unwrap().insert(u64::from_be_bytes(bytes))),
                        Err(_) if self.stop.load(Ordering::Acquire) => break,
                        _ => {}
                    }
                }
            });
            while !self.stop.load(Ordering::Acquire) {
                if socket.send(&self.sent.load(Ordering::Acquire).to_be_bytes()).is_ok() {
                    self.sent.fetch_add(1, Ordering::AcqRel);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }

    pub(crate) fn answered(&self) -> usize {
        self.answered.lock().unwrap().len()
    }

    /// Numbers of those that were sent and not answered.
    pub(crate) fn lost(&self) -> Vec<u64> {
        let answered = self.answered.lock().unwrap();
        (0..self.sent.load(Ordering::Acquire)).filter(|number| !answered.contains(number)).collect()
    }
}

/// Datagrams that arrived at the client or the server and found no room in a socket: not the gateway's
/// loss.
pub(crate) fn lost_at_the_ends(lab: &Lab) -> u64 {
    let of = |node| {
        let command = lab.node(node).unwrap().command("cat").args(["/proc/net/snmp", "/proc/net/snmp6"]);
        let text = command.run().unwrap().stdout;
        let mut udp = text.lines().filter_map(|line| line.strip_prefix("Udp: ")).map(|line| line.split(' '));
        let place = udp.next().unwrap().position(|word| word == "RcvbufErrors").unwrap();
        let ipv4: u64 = udp.next().unwrap().nth(place).unwrap().parse().unwrap();
        let ipv6 = text.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors")).unwrap();
        ipv4 + ipv6.trim().parse::<u64>().unwrap()
    };
    of("client") + of("server")
}

/// Segments that a node has sent again because they were lost. Others it sends again because an answer is late on a
/// busy machine, which the receiver tells it (RFC 2883), or which it finds out when the answer to a probe comes (RFC
/// 8985): they do not count.
pub(crate) fn segments_lost(lab: &Lab, node: &str) -> u64 {
    let command = lab.node(node).unwrap().command("cat").args(["/proc/net/snmp", "/proc/net/netstat"]);
    let text = command.run().unwrap().stdout;
    let counter = |group: &str, name: &str| -> u64 {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)).map(|line| line.split(' '));
        let place = lines.next().unwrap().position(|word| word == name).unwrap();
        lines.next().unwrap().nth(place).unwrap().parse().unwrap()
    };
    let unneeded = counter("TcpExt:", "TCPDSACKRecvSegs");
    let repairs = ["TCPFastRetrans", "TCPSlowStartRetrans", "TCPTimeouts", "TCPLossProbeRecovery"];
    let repaired: u64 = repairs.iter().map(|name| counter("TcpExt:", name)).sum();
    counter("Tcp:", "RetransSegs").saturating_sub(unneeded).min(repaired)
}

/// Ends the stream also when the test fails.
pub(crate) struct EndOnDrop<'s>(pub(crate) &'s AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
