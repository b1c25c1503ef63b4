//! Sends forged packets at a rate, from a node of the lab, until told to stop.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto, socket,
};
use tombolo_lab::{Lab, LabError};

use super::forged::Forger;
use super::known::Known;
use super::traffic::Random;

/// Packets a second: 20 at a time.
const BATCH: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// An attack under way.
pub(super) struct Attacker {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: JoinHandle<Result<nix::Result<()>, LabError>>,
}

impl Attacker {
    /// Starts it. Packets of the other family than its node can send are left out.
    pub(super) fn start(lab: &Lab, node: &str, forger: Forger, known: Known, seed: u32) -> Result<Self, LabError> {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&sent));
        let only_ipv6 = node == "client";
        let thread = lab.node(node)?.spawn(move || {
            let sockets = Raw::open()?;
            let mut random = Random(seed | 1);
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..BATCH {
                    let Some(packet) = forger(&mut random, &known) else { continue };
                    if (packet[0] >> 4 == 6) == only_ipv6 && sockets.send(&packet) {
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(PAUSE);
            }
            Ok(())
        })?;
        Ok(Self { stop, sent, thread })
    }

    /// Ends it; the number of packets that were sent.
    ///
    /// # Errors
    /// Words, if it could not send.
    pub(super) fn stop(self) -> Result<u64, String> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(Ok(Ok(()))) => Ok(self.sent.load(Ordering::Relaxed)),
            Ok(Ok(Err(error))) => Err(format!("an attacker could not send: {error}")),
            Ok(Err(error)) => Err(format!("an attacker has no node: {error}")),
            Err(_) => Err("an attacker panicked".into()),
        }
    }
}

/// Sockets that send IP packets as they are.
struct Raw {
    ipv4: OwnedFd,
    ipv6: OwnedFd,
}

impl Raw {
    fn open() -> nix::Result<Self> {
        let open = |family| socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
        Ok(Self { ipv4: open(AddressFamily::Inet)?, ipv6: open(AddressFamily::Inet6)? })
    }

    /// False if the kernel did not take it: it has no route at the moment, or no room.
    fn send(&self, packet: &[u8]) -> bool {
        let sent = if packet[0] >> 4 == 4 {
            let Some(to) = packet.get(16..20).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()) else { return false };
            let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::from(to), 0));
            sendto(self.ipv4.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT)
        } else {
            let Some(to) = packet.get(24..40).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) else { return false };
            let to = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::from(to), 0, 0, 0));
            sendto(self.ipv6.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT)
        };
        sent.is_ok()
    }
}
