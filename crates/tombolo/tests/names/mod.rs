//! The resolver that this machine has configured, played by a thread in a lab.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and a test may panic")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tombolo_lab::{Namespace, Prefix};

/// Names and their IPv6 addresses; other names do not exist. It falls silent when it is dropped.
pub(crate) struct Names {
    known: Arc<Mutex<BTreeMap<String, Vec<Ipv6Addr>>>>,
    ends: Arc<AtomicBool>,
}

impl Names {
    /// Answers in a namespace, at the address that `/etc/resolv.conf` has, which it gives it.
    pub(crate) fn serve(namespace: &Namespace) -> Self {
        let configured = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let server = configured.lines().find_map(|line| line.strip_prefix("nameserver ")?.trim().parse().ok());
        let server: IpAddr = server.unwrap_or(Ipv4Addr::LOCALHOST.into());
        if !server.is_loopback() {
            let length = if server.is_ipv4() { 32 } else { 128 };
            // It is there already if another one has been dropped.
            let _ = namespace.add_address("lo", Prefix { address: server, length });
        }
        let socket = namespace.run(|| UdpSocket::bind((server, 53)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let names = Self { known: Arc::default(), ends: Arc::default() };
        let (known, ends) = (Arc::clone(&names.known), Arc::clone(&names.ends));
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while !ends.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                let _ = socket.send_to(&answer(&question[..length], &known.lock().unwrap()), from);
            }
        });
        names
    }

    /// A name has these addresses from now on.
    pub(crate) fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.known.lock().unwrap().insert(name.to_owned(), addresses);
    }

    /// A name does not exist any more.
    pub(crate) fn remove(&self, name: &str) {
        self.known.lock().unwrap().remove(name);
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Header 12 bytes, name, type 28 for IPv6 addresses, class; the lifetime of an answer is a second.
fn answer(question: &[u8], known: &BTreeMap<String, Vec<Ipv6Addr>>) -> Vec<u8> {
    let mut labels = Vec::new();
    let mut at = 12;
    while question[at] > 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..end]).to_lowercase());
        at = end;
    }
    let found = known.get(&labels.join("."));
    let wants_ipv6 = question[at + 1..].starts_with(&[0, 28]);
    let addresses = found.map_or(&[][..], |found| if wants_ipv6 { found } else { &[] });
    let mut answer = question[..at + 5].to_vec();
    // Of a name that does not exist, that.
    let code = if found.is_some() { 0x80 } else { 0x83 };
    answer[2..12].copy_from_slice(&[0x81, code, 0, 1, 0, u8::try_from(addresses.len()).unwrap(), 0, 0, 0, 0]);
    for address in addresses {
        answer.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 1, 0, 16]);
        answer.extend(address.octets());
    }
    answer
}
