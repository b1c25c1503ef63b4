//! What would become of a packet in a running gateway, and why. Nothing of the gateway's changes: what
//! its tables have that concerns the packet is copied into tables of the rehearsal's own, and an engine
//! of its own takes the packet there, by the plan in force.
//!
//! * `copy`: what concerns a packet, in tables of its own.
//! * [`flow`]: a packet of a connection, from its ends.
//!
//! What is drawn at random for new state is drawn anew each time: a port that a rehearsal gives is one
//! that the gateway might give. Rates, and what a worker alone knows (fragments and SYNs that wait), have no part in it.

mod copy;
pub mod flow;
mod transport;

use std::sync::Arc;

use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::trace::Step;
use tombolo_engine::{Engine, Now, Plan, Trace, Verdict};
use tombolo_tables::Tables;

use copy::Copy;

/// Longest packet that is rehearsed: one of Ethernet's, and more.
pub const LONGEST: usize = 8000;

/// What would become of a packet.
#[derive(Debug)]
pub struct Rehearsal {
    /// What the tables have about it, in words.
    pub known: Vec<String>,
    /// What was decided, one by one.
    pub steps: Vec<Step>,
    /// In the end.
    pub verdict: Verdict,
    /// What would be sent.
    pub sent: Vec<Vec<u8>>,
}

/// Rehearses a packet.
///
/// # Errors
/// In words, if there is no memory, or if the packet is too long.
pub fn rehearse(tables: &Tables, plan: &Plan, bytes: &[u8], now: Now) -> Result<Rehearsal, String> {
    if bytes.len() > LONGEST {
        return Err(format!("a packet of {} bytes is not rehearsed; {LONGEST} are the most", bytes.len()));
    }
    let copy = Copy::of(tables, plan, bytes, now)?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| format!("no random numbers: {error}"))?;
    let mut engine = Engine::new(Arc::new(copy.tables), seed, 0, 1);
    let mut buffer = vec![0; HEADROOM + bytes.len() + HEADROOM];
    buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
    let packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default());
    let mut packet = packet.ok_or("the packet is too long")?;
    let (mut trace, mut sent) = (Trace::default(), Vec::new());
    let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
    let verdict = engine.explain(plan, &mut packet, now, &mut outbox, &mut trace);
    Ok(Rehearsal { known: copy.known, steps: trace.steps().to_vec(), verdict, sent })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tombolo_engine::DropReason;
    use tombolo_engine::counters::Totals;
    use tombolo_tables::hash::HashKey;
    use tombolo_tables::memory::Heap;

    use super::flow::{Ends, Segment};
    use super::*;
    use crate::control::testing;

    const NOW: Now = Now(1000 << 30);

    /// A gateway whose tables nobody else has.
    struct World {
        plan: Plan,
        tables: Arc<Tables>,
        engine: Engine,
    }

    impl World {
        fn new(limits: &str) -> Self {
            let text = format!("{}{limits}", testing::text().replace("static", "#"));
            Self::of(tombolo_config::parse("test.toml", &text).unwrap().plan)
        }

        fn of(plan: Plan) -> Self {
            let tables = Arc::new(Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap());
            let engine = Engine::new(Arc::clone(&tables), [7; 32], 0, 1);
            Self { plan, tables, engine }
        }

        fn pass(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
            let mut buffer = vec![0; 4096];
            buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
            let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()).unwrap();
            let mut sent = Vec::new();
            let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
            self.engine.process(&self.plan, &mut packet, NOW, &mut outbox);
            sent
        }

        fn rehearse(&self, bytes: &[u8]) -> Rehearsal {
            rehearse(&self.tables, &self.plan, bytes, NOW).unwrap()
        }

        fn segment(&self, source: &str, destination: &str, segment: Segment) -> Vec<u8> {
            let end = |text: &str| text.parse::<SocketAddr>().unwrap();
            let (source, destination) = (end(source), end(destination));
            Ends { protocol: "tcp", source, destination, softwire: None }.packet(&self.plan, segment).unwrap()
        }

        /// All that the tables have, in order.
        fn all(&self) -> String {
            let bindings: Vec<_> = self
                .tables
                .bindings
                .iter()
                .map(|id| (self.tables.bindings.read(id), self.tables.bindings.seen(id)))
                .collect();
            let sessions: Vec<_> = self.tables.each_session().collect();
            let subscribers: Vec<_> =
                self.tables.subscribers.iter().map(|id| self.tables.subscribers.read(id)).collect();
            let mut totals = Totals::default();
            self.engine.counters().add_to(&mut totals);
            format!("{bindings:?}{sessions:?}{subscribers:?}{totals:?}")
        }
    }

    const HOST: &str = "[2001:db8:1::2]:50000";
    const SERVER: &str = "5.9.9.9:443";

    #[test]
    fn what_is_open_goes_on_as_the_gateway_would_have_it() {
        let mut world = World::new("");
        let syn = world.segment(HOST, SERVER, Segment::First);
        let sent = world.pass(&syn);
        let ack = world.segment(HOST, SERVER, Segment::Later);
        let before = world.all();
        let rehearsed = world.rehearse(&ack);
        assert_eq!(rehearsed.verdict, Verdict::Forward);
        // Source address and port, and the remote's, are those of the connection.
        assert_eq!(rehearsed.sent[0][12..24], sent[0][12..24]);
        assert!(rehearsed.known.iter().any(|known| known.contains("is bound to")), "{:?}", rehearsed.known);
        assert!(rehearsed.known.iter().any(|known| known.contains("5.9.9.9")), "{:?}", rehearsed.known);
        // The answer comes to the host.
        let outside = SocketAddr::from((
            <[u8; 4]>::try_from(&sent[0][12..16]).unwrap(),
            u16::from_be_bytes([sent[0][20], sent[0][21]]),
        ));
        let answer = world.segment(SERVER, &outside.to_string(), Segment::Later);
        let arrived = world.rehearse(&answer);
        assert_eq!((arrived.verdict, &arrived.sent[0][24..40]), (Verdict::Forward, &syn[8..24]));
        assert_eq!(world.all(), before);
    }

    #[test]
    fn what_is_new_is_made_in_the_copy_alone() {
        let mut world = World::new("");
        let syn = world.segment(HOST, SERVER, Segment::First);
        let before = world.all();
        for _ in 0..3 {
            let rehearsed = world.rehearse(&syn);
            assert_eq!((rehearsed.verdict, rehearsed.sent.len()), (Verdict::Forward, 1));
            assert!(rehearsed.known.iter().any(|known| known.contains("nothing")), "{:?}", rehearsed.known);
        }
        let later = world.segment(HOST, SERVER, Segment::Later);
        assert_eq!(world.rehearse(&later).verdict, Verdict::Drop(DropReason::TcpNotSyn));
        let unasked = world.segment(SERVER, "192.0.2.0:2000", Segment::First);
        assert_ne!(world.rehearse(&unasked).verdict, Verdict::Forward);
        assert_eq!(world.all(), before);
        // Whoever has an address keeps it.
        let sent = world.pass(&syn);
        let next = world.segment("[2001:db8:1::2]:50001", SERVER, Segment::First);
        for _ in 0..8 {
            assert_eq!(world.rehearse(&next).sent[0][12..16], sent[0][12..16]);
        }
    }

    #[test]
    fn who_has_reached_a_limit_is_refused() {
        let mut world = World::new("limits = { sessions = 3 }\n");
        for port in 50_000..50_003 {
            let syn = world.segment(&format!("[2001:db8:1::2]:{port}"), SERVER, Segment::First);
            assert_eq!(world.pass(&syn).len(), 1);
        }
        let before = world.all();
        let next = world.segment("[2001:db8:1::2]:50009", SERVER, Segment::First);
        let rehearsed = world.rehearse(&next);
        assert_eq!(rehearsed.verdict.reason(), Some(DropReason::SubscriberLimit), "{:?}", rehearsed.steps);
        let other = world.segment("[2001:db8:9::2]:50009", SERVER, Segment::First);
        assert_eq!(world.rehearse(&other).verdict, Verdict::Forward);
        assert_eq!(world.all(), before);
    }

    /// As many bindings as a large gateway has: who asks does not wait.
    #[test]
    fn among_a_million_bindings_the_answer_comes_at_once() {
        let text = "[capacity]\nsubscribers = 30_000\nbindings = 1_100_000\nsessions = 1000\n[[service]]\n\
                    kind = \"nat64\"\nname = \"test\"\nprefix = \"64:ff9b::/96\"\n\
                    pool = [{ addresses = \"192.0.2.0/27\", ports = \"1024-65535\" }]\n";
        let mut world = World::of(tombolo_config::parse("test.toml", text).unwrap().plan);
        let datagram = |host: u16, port: u16, plan: &Plan| {
            let source = SocketAddr::from(([0x2001, 0xdb8, host, 0, 0, 0, 0, 1], port));
            let (protocol, destination) = ("udp", SERVER.parse().unwrap());
            Ends { protocol, source, destination, softwire: None }.packet(plan, Segment::First).unwrap()
        };
        for port in 5000..5050 {
            for host in 0..20_000 {
                let packet = datagram(host, port, &world.plan);
                world.pass(&packet);
            }
        }
        assert!(world.tables.bindings.count() > 999_000, "{}", world.tables.bindings.count());
        let mut slowest = std::time::Duration::ZERO;
        for host in (0..20_000).step_by(2000) {
            let (known, new) = (datagram(host, 5007, &world.plan), datagram(host, 6000, &world.plan));
            let sent = world.pass(&known);
            for (packet, is_known) in [(known, true), (new, false)] {
                let began = std::time::Instant::now();
                let rehearsed = world.rehearse(&packet);
                slowest = slowest.max(began.elapsed());
                assert_eq!(rehearsed.verdict, Verdict::Forward);
                // Address and, of the one that is there, port.
                assert_eq!(rehearsed.sent[0][12..16], sent[0][12..16]);
                assert_eq!(rehearsed.sent[0][20..22] == sent[0][20..22], is_known);
            }
        }
        println!("the slowest of 20 answers among {} bindings: {slowest:?}", world.tables.bindings.count());
    }
}
