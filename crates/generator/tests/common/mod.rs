//! Network namespaces and exchanges for the generator's tests.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tombolo_generator::{
    Answer, Capacity, Direction, Endpoint, Ends, Exchange, FrameKind, HeaderRule, LinkRule, Namespace, Order, Pace,
    Port, PortRule, SourceRule, TcpHeader, Template, Timing, Transport, TupleShape,
};

/// Link-layer addresses of the two ports.
pub(crate) const LEFT: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const RIGHT: [u8; 6] = [2, 0, 0, 0, 0, 2];

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace that goes away with the value.
pub(crate) struct TestNamespace(pub(crate) String);

impl TestNamespace {
    /// A new one, or `None` (said loudly) without the privileges.
    pub(crate) fn new() -> Option<TestNamespace> {
        let name = format!("tg{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if ip(&["netns", "add", &name]) {
            return Some(TestNamespace(name));
        }
        let _ = writeln!(std::io::stderr(), "SKIP: generator: no privileges for network namespaces");
        None
    }

    pub(crate) fn ip(&self, args: &str) {
        assert!(self.tries(args), "ip -n {} {args}", self.0);
    }

    pub(crate) fn tries(&self, args: &str) -> bool {
        let mut all = vec!["-n", &self.0];
        all.extend(args.split_whitespace());
        ip(&all)
    }

    pub(crate) fn port(&self, name: &str) -> Port {
        Port { name: name.to_owned(), namespace: Some(Namespace::named(&self.0)) }
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.0]);
    }
}

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).status().is_ok_and(|s| s.success())
}

/// Two ports of the tester joined by a wire: `left` and `right` are the ends of one veth pair.
pub(crate) fn wire() -> Option<TestNamespace> {
    let namespace = TestNamespace::new()?;
    namespace.ip("link add left numrxqueues 1 numtxqueues 1 type veth peer name right numrxqueues 1 numtxqueues 1");
    namespace.ip("link set left address 02:00:00:00:00:01 up");
    namespace.ip("link set right address 02:00:00:00:00:02 up");
    Some(namespace)
}

pub(crate) const CAPACITY: Capacity = Capacity { frames: 1 << 24, records: 1 << 20, a_hosts: 16, b_hosts: 16 };

pub(crate) fn ipv4(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&address.octets());
    bytes
}

/// The host as the same IPv4 address on both sides: nothing translates on a wire.
pub(crate) fn plain_host(address: Ipv4Addr) -> Endpoint {
    Endpoint {
        left: ipv4(address),
        right: ipv4(address),
        left_inner: address.octets(),
        right_inner: address.octets(),
        ..Endpoint::default()
    }
}

pub(crate) fn template(kind: FrameKind, frame_bytes: u16) -> Template {
    let ends = Ends { source: LEFT, destination: RIGHT };
    Template { ends, kind, transport: Transport::Udp, frame_bytes, hop_limit: 10 }
}

/// Segments in the midst of a connection.
pub(crate) const SEGMENTS: Transport = Transport::Tcp(TcpHeader {
    sequence: 0xfedc_ba98,
    acknowledgement: 0x1234_5678,
    flags: TcpHeader::ACK,
    window: 0xf00d,
});

/// Ports with somebody between them, who passes frames on from `left-far` to `right-far`.
pub(crate) fn interrupted_wire() -> Option<TestNamespace> {
    let wire = TestNamespace::new()?;
    for side in ["left", "right"] {
        wire.ip(&format!(
            "link add {side} numrxqueues 2 numtxqueues 2 type veth peer name {side}-far numrxqueues 2 numtxqueues 2"
        ));
    }
    wire.ip("link set left address 02:00:00:00:00:01");
    // A veth takes redirected frames only while its own end polls, which receive offload makes it do.
    let offload = ["netns", "exec", &wire.0, "ethtool", "-K", "left-far", "gro", "on"];
    assert!(Command::new("ip").args(offload).status().unwrap().success());
    wire.ip("link set right address 02:00:00:00:00:02");
    ["left", "left-far", "right", "right-far"].iter().for_each(|port| wire.ip(&format!("link set {port} up")));
    Some(wire)
}

/// Frames of one kind over a wire: what arrives is what was sent.
pub(crate) fn direction(kind: FrameKind, frame_bytes: u16, frames: u32, rate: u64) -> Direction {
    Direction {
        template: template(kind, frame_bytes),
        order: Order::Enumerate { seed: 1 },
        shape: TupleShape::plain(1024, 40_000, 1, 100),
        frames,
        pace: Pace::at(rate),
        cores: vec![0],
        background: None,
        imix: None,
        timed: None,
        answer: Answer {
            kind,
            source: SourceRule::Exact,
            source_port: PortRule::Exact,
            hop_limit: 10,
            inner_hop_limit: 10,
            header: HeaderRule {
                traffic_class: Some(0),
                dont_fragment: Some(true),
                identification: Some(0),
                flow_label: Some(0),
            },
            link: LinkRule { source: Some(LEFT), destination: Some(RIGHT) },
            record: false,
            timing: Timing::Delays,
            timeout_ns: 0,
        },
    }
}

pub(crate) fn forward(direction: Direction) -> Exchange {
    Exchange { forward: Some(direction), reverse: None, drain: Duration::from_millis(200), always_drain: false }
}
