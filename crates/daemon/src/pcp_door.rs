//! Requests of PCP that come to the host itself, and announcements to hosts inside.
//!
//! Read first: RFC 6887 sections 8.1 (clients that are told nothing else ask their default router) and 14.1.3 (the server
//! says that it has lost what it knew).
//!
//! The default router's address is the host's own, link-local with IPv6: no route leads packets for it to the device. So a
//! thread has the port at all addresses of the host, while any service takes requests, and an engine of its own that
//! answers them as the workers do. Whoever else has the port keeps it: then hosts ask at the addresses of the plan alone.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_config::Provision;
use tombolo_engine::mechanism::napt::KnownBy;
use tombolo_engine::pcp_request::asked_service;
use tombolo_engine::{Engine, Plan};
use tombolo_io::links;
use tombolo_io::netlink::{INTERNET, egress};
use tombolo_io::port_socket::{Arrived, PortSocket, wait};
use tombolo_io::worker::StopSignal;
use tombolo_wire::pcp::{Body, CLIENT_PORT, LONGEST, Options, Response, SERVER_PORT};

use crate::running::Running;
use crate::threads::{self, Guarded};

/// The part of the gateway, in its health.
const PART: &str = "pcp";
/// How long is waited for a request; a gateway that ends waits as long.
const WAIT: Duration = Duration::from_millis(250);
/// From a try to take the port to the next.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests that are answered before anything else is looked at.
const AT_ONCE: usize = 64;
/// An epoch that is not longer is one that has just begun, in seconds.
const NEW: u64 = 5;
/// Announcements, at most: each interval is twice the one before (section 14.1.3).
const ANNOUNCEMENTS: u32 = 10;
/// The first interval.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Door(JoinHandle<()>);

impl Door {
    /// Starts it; it ends when `stop` is given.
    ///
    /// # Errors
    /// If there are no more threads.
    pub(crate) fn start(running: &Arc<Running>, engine: Engine, stop: StopSignal) -> std::io::Result<Self> {
        let guarded = Guarded { name: "pcp", stop: stop.clone(), health: Arc::clone(&running.health) };
        let announcements = Announcements::of(running.tables.leases.epoch(running.now().0));
        let mut keeper = Keeper { running: Arc::clone(running), engine, door: None, tried: None, announcements };
        threads::spawn(guarded, move || keeper.keep(&stop)).map(Self)
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}

struct Keeper {
    running: Arc<Running>,
    engine: Engine,
    /// The port, of each family that hosts ask in.
    door: Option<Vec<PortSocket>>,
    /// When it was tried to have the port.
    tried: Option<Instant>,
    announcements: Announcements,
}

impl Keeper {
    fn keep(&mut self, stop: &StopSignal) {
        while !stop.is_given() {
            let plan = self.running.plan.load_full();
            let families = families(&plan);
            if families.is_empty() || !matches!(self.running.settings.provision, Provision::Gateway) {
                if self.door.take().is_some() || self.tried.take().is_some() {
                    self.running.health.set(PART, Vec::new());
                }
                std::thread::park_timeout(WAIT);
                continue;
            }
            self.open(&families);
            let Some(door) = &self.door else {
                std::thread::park_timeout(WAIT);
                continue;
            };
            self.announcements.send(door, &self.running);
            let limit = WAIT.min(self.announcements.wait());
            if wait(door, Instant::now() + limit).unwrap_or(false) {
                tombolo_io::fault::trip("thread-pcp");
                self.answer(&plan);
            }
        }
    }

    /// Takes the port, if it is not taken yet or was for other families.
    fn open(&mut self, families: &[bool]) {
        let is_open =
            self.door.as_ref().is_some_and(|door| door.iter().map(PortSocket::is_ipv6).eq(families.iter().copied()));
        if is_open || self.tried.is_some_and(|tried| tried.elapsed() < PATIENCE && self.door.is_none()) {
            return;
        }
        self.door = None;
        self.tried = Some(Instant::now());
        let opened: Result<Vec<_>, _> =
            families.iter().map(|is_ipv6| PortSocket::open(*is_ipv6, SERVER_PORT.0)).collect();
        let fault = match opened {
            Ok(door) => {
                self.door = Some(door);
                None
            }
            Err(error) => Some(format!(
                "UDP port {} of this host is not the gateway's: {error}; hosts that ask their default router for ports \
                 do not reach it, those that ask at pcp_addresses do",
                SERVER_PORT.0
            )),
        };
        self.running.health.set(PART, fault.into_iter().collect());
    }

    fn answer(&mut self, plan: &Plan) {
        let Self { running, engine, door, .. } = self;
        for socket in door.iter().flatten() {
            // One byte more than a request may have is enough to see that it is too long.
            let mut message = [0; LONGEST + 1];
            for _ in 0..AT_ONCE {
                let Ok(Some(arrived)) = socket.receive(&mut message) else { break };
                if !comes_from_inside(running, plan, &arrived) {
                    continue;
                }
                let mut response = [0; LONGEST];
                let (client, request) = (arrived.from.ip(), &message[..arrived.length]);
                if let Some(length) = engine.respond_to_request(plan, client, request, running.now(), &mut response)
                    && let Err(error) = socket.answer(&arrived, &response[..length])
                {
                    tracing::debug!(%client, "a response to a request for a port was not sent: {error}");
                }
            }
        }
    }
}

/// The families in which hosts inside may ask: IPv4, IPv6, or both. Behind a B4 they ask in their softwire.
fn families(plan: &Plan) -> Vec<bool> {
    let takes = |known_by: KnownBy| {
        plan.services.iter().any(|service| {
            service.kind.hosts_known_by() == known_by && service.kind.nat().is_some_and(|nat| nat.policy.pcp.is_some())
        })
    };
    [(KnownBy::Ipv4, false), (KnownBy::Ipv6, true)]
        .into_iter()
        .filter(|(by, _)| takes(*by))
        .map(|(_, is_ipv6)| is_ipv6)
        .collect()
}

/// A request comes in where its sender is, as all packets from inside do (`inside_interfaces`).
fn comes_from_inside(running: &Running, plan: &Plan, arrived: &Arrived) -> bool {
    let client = arrived.from.ip();
    if arrived.to.is_multicast() {
        return false;
    }
    let Some((_, service)) = asked_service(plan, client) else { return false };
    running.guard.admits(&service.name, client, arrived.interface)
}

/// What is said of an epoch that has begun with this process: what was known before is lost.
#[derive(Debug)]
struct Announcements {
    sent: u32,
    next: Option<Instant>,
}

impl Announcements {
    fn of(epoch: u64) -> Self {
        Self { sent: 0, next: (epoch <= NEW).then(Instant::now) }
    }

    fn wait(&self) -> Duration {
        self.next.map_or(WAIT, |next| next.saturating_duration_since(Instant::now()))
    }

    fn send(&mut self, door: &[PortSocket], running: &Running) {
        let Some(next) = self.next.filter(|next| *next <= Instant::now()) else { return };
        for socket in door {
            let epoch = running.tables.leases.epoch(running.now().0);
            let mut bytes = [0; LONGEST];
            let announcement = Response {
                lifetime: 0,
                epoch: u32::try_from(epoch).unwrap_or(u32::MAX),
                body: Body::Announce,
                options: Options::default(),
            };
            let length = announcement.emit(&mut bytes);
            for interface in inside(running, socket.is_ipv6()) {
                if let Err(error) = socket.send_to_all(interface, CLIENT_PORT.0, &bytes[..length]) {
                    tracing::debug!(interface, "hosts inside are not told that leases are lost: {error}");
                }
            }
        }
        self.sent += 1;
        let interval = FIRST_INTERVAL * 2_u32.pow(self.sent - 1);
        self.next = (self.sent < ANNOUNCEMENTS).then(|| next + interval);
    }
}

/// The interfaces that hosts inside are on: those that are listed; else all but that of the default route, if there is
/// another.
fn inside(running: &Running, is_ipv6: bool) -> Vec<u32> {
    let Ok(mut links) = links::all() else { return Vec::new() };
    links.retain(|link| {
        link.is_up && link.asks && !link.is_port && link.name != running.settings.device && link.name != "lo"
    });
    if let Some(names) = running.guard.listed() {
        links.retain(|link| names.contains(&link.name));
    } else {
        let internet = if is_ipv6 { IpAddr::V6(INTERNET.1) } else { IpAddr::V4(INTERNET.0) };
        let uplink = egress(internet).ok().flatten();
        if links.iter().any(|link| Some(link.index) != uplink) {
            links.retain(|link| Some(link.index) != uplink);
        }
    }
    links.iter().map(|link| link.index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_epoch_that_begins_is_announced() {
        assert!(Announcements::of(0).next.is_some());
        assert!(Announcements::of(60).next.is_none());
        assert_eq!(Announcements::of(60).wait(), WAIT);
    }
}
