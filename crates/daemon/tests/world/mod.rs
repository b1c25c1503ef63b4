//! A gateway in memory: what packets make under a plan.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and a test may panic")]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::{Engine, Now, Plan, Verdict, static_bindings};
use tombolo_tables::Tables;
use tombolo_tables::binding::InsideKey;
use tombolo_tables::former::FormerMemory;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::{Backing, Heap, MemoryError, MemorySource};
use tombolo_tables::tick::Tick;
use tombolo_wire::Protocol;

use crate::packets::{transport, v4};

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub(crate) const NOW: Now = Now(5000 << Tick::SHIFT);
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// Memory that is read again.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) HashMap<&'static str, Arc<dyn Backing>>);

impl MemorySource for Kept {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        let span = Heap.take(name, bytes)?;
        self.0.insert(name, Arc::clone(&span));
        Ok(span)
    }
}

impl FormerMemory for Kept {
    fn span(&self, name: &'static str) -> Option<Arc<dyn Backing>> {
        self.0.get(name).cloned()
    }
}

pub(crate) fn plan(capacity: (u32, u32, u32), services: &str) -> Plan {
    let (subscribers, bindings, sessions) = capacity;
    let text = format!(
        "[capacity]\nsubscribers = {subscribers}\nbindings = {bindings}\nsessions = {sessions}\n[timeouts]\nport_reuse = 120\n{services}"
    );
    tombolo_config::parse("test.toml", &text).unwrap().plan
}

pub(crate) const ROOM: (u32, u32, u32) = (50, 500, 1000);

/// Datagrams make sessions, too.
pub(crate) fn nat44(name: &str, inside: &str, pool: &str, rest: &str) -> String {
    format!("{}sessions = \"kept\"\n{rest}\n", nat44_without_sessions(name, inside, pool))
}

pub(crate) fn nat44_without_sessions(name: &str, inside: &str, pool: &str) -> String {
    format!("[[service]]\nkind = \"nat44\"\nname = \"{name}\"\ninside = [\"{inside}\"]\npool = [{pool}]\n")
}

pub(crate) fn addresses(addresses: &str) -> String {
    format!("{{ addresses = \"{addresses}\" }}")
}

/// A gateway on tables that can be read again.
pub(crate) struct World {
    pub(crate) memory: Kept,
    pub(crate) plan: Plan,
    pub(crate) tables: Arc<Tables>,
    pub(crate) engine: Engine,
    pub(crate) now: Now,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut memory = Kept::default();
        let tables = Arc::new(Tables::new(&mut memory, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap());
        let engine = Engine::new(Arc::clone(&tables), [7; 32], 0, 1);
        assert!(static_bindings::reconcile(&tables, &plan, NOW).is_empty());
        Self { memory, plan, tables, engine, now: NOW }
    }

    /// Sends a packet; source and destination that it left with.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Option<[(Ipv4Addr, u16); 2]> {
        let mut buffer = [0; HEADROOM + 128];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()).unwrap();
        let mut seen = None;
        let mut outbox = |packet: &mut Packet<'_>| {
            let sent = packet.bytes();
            let address = |at: usize| Ipv4Addr::new(sent[at], sent[at + 1], sent[at + 2], sent[at + 3]);
            let port = |at: usize| u16::from_be_bytes([sent[at], sent[at + 1]]);
            seen = Some([(address(12), port(20)), (address(16), port(22))]);
        };
        match self.engine.process(&self.plan, &mut packet, self.now, &mut outbox) {
            Verdict::Forward => seen,
            _ => None,
        }
    }

    /// A datagram from inside: the endpoint that it leaves from.
    pub(crate) fn udp(&mut self, host: (Ipv4Addr, u16)) -> Option<(Ipv4Addr, u16)> {
        self.pass(&packet(Protocol::UDP, host, (SERVER, 53), 0)).map(|[source, _]| source)
    }

    /// A connection that is established: the endpoint that it leaves from.
    pub(crate) fn tcp(&mut self, host: (Ipv4Addr, u16)) -> (Ipv4Addr, u16) {
        let [outside, _] = self.pass(&packet(Protocol::TCP, host, (SERVER, 80), SYN)).unwrap();
        self.pass(&packet(Protocol::TCP, (SERVER, 80), outside, SYN | ACK)).unwrap();
        outside
    }

    /// Whom a segment of the server's reaches.
    pub(crate) fn answer(&mut self, outside: (Ipv4Addr, u16)) -> Option<(Ipv4Addr, u16)> {
        self.pass(&packet(Protocol::TCP, (SERVER, 80), outside, ACK)).map(|[_, destination]| destination)
    }

    /// Whom a datagram of the server's reaches.
    pub(crate) fn answer_udp(&mut self, outside: (Ipv4Addr, u16)) -> Option<(Ipv4Addr, u16)> {
        self.pass(&packet(Protocol::UDP, (SERVER, 53), outside, 0)).map(|[_, destination]| destination)
    }
}

pub(crate) fn packet(protocol: Protocol, source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), flags: u8) -> Vec<u8> {
    v4(source.0, destination.0, protocol, &transport(protocol, source.1, destination.1, flags))
}

pub(crate) const fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

pub(crate) fn cgn(pool: &str) -> String {
    nat44("cgn", "10.0.0.0/24", &addresses(pool), "")
}

/// So many hosts with a connection and a datagram each: who has which endpoint.
pub(crate) fn populate(world: &mut World, hosts: u8) -> HashMap<Ipv4Addr, [(Ipv4Addr, u16); 2]> {
    (1..=hosts).map(|n| (host(n), [world.tcp((host(n), 4000)), world.udp((host(n), 5000)).unwrap()])).collect()
}

/// How many of them still have their endpoints, both ways.
pub(crate) fn go_on(world: &mut World, all: &HashMap<Ipv4Addr, [(Ipv4Addr, u16); 2]>) -> usize {
    let mut count = 0;
    for (&host, &[tcp, udp]) in all {
        let inward = [world.answer(tcp), world.answer_udp(udp)];
        if inward == [Some((host, 4000)), Some((host, 5000))] {
            let outward = world.pass(&packet(Protocol::TCP, (host, 4000), (SERVER, 80), ACK)).unwrap();
            assert_eq!((outward[0], world.udp((host, 5000))), (tcp, Some(udp)), "{host} is somewhere else");
            count += 1;
        }
    }
    count
}

pub(crate) fn key(host: Ipv4Addr, port: u16, protocol: u8, service: u8) -> InsideKey {
    InsideKey { ipv6: [0; 16], ipv4: host.octets(), port: port.to_be_bytes(), protocol, service }
}
