//! The ways in which frames leave, apart from live frames on a veth pair, which `wire.rs` is about:
//! AF_XDP and packet sockets, frames longer than a page, ports without native XDP, and what a port's
//! own driver drops.

#![expect(clippy::unwrap_used, reason = "a test: a panic is a failure")]

mod common;

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{CAPACITY, TestNamespace, direction, forward, plain_host, template, wire};
use tombolo_generator::{Direction, DirectionOutcome, Exchange, FrameError, FrameKind, Means, Pace, PacketSocket, Rig};

/// The machine for itself: a sending core is busy with one test.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rig that sends so; `None` (said loudly) where the kernel does not have it for frames of so many
/// bytes.
fn rig(wire: &TestNamespace, means: Means, frame_bytes: u16) -> Option<Rig> {
    let mut rig = Rig::open(&wire.port("left"), &wire.port("right"), CAPACITY).unwrap();
    rig.set_endpoints(&[plain_host([10, 0, 0, 2].into())], &[plain_host([198, 19, 0, 2].into())]).unwrap();
    rig.set_means(means);
    match rig.prepare(frame_bytes) {
        Ok(sending) => assert_eq!(sending.means, means),
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "SKIP: generator: {why}");
            return None;
        }
    }
    Some(rig)
}

fn with_jumbo_frames(wire: TestNamespace) -> TestNamespace {
    ["left", "right"].iter().for_each(|port| wire.ip(&format!("link set {port} mtu 9198")));
    wire
}

/// A cable whose ends have no native XDP: each has more transmit queues than the other has receive
/// queues, which a veth refuses.
fn wire_without_native_xdp() -> Option<TestNamespace> {
    let namespace = TestNamespace::new()?;
    namespace.ip("link add left numrxqueues 1 numtxqueues 2 type veth peer name right numrxqueues 1 numtxqueues 2");
    namespace.ip("link set left address 02:00:00:00:00:01 up");
    namespace.ip("link set right address 02:00:00:00:00:02 up");
    Some(namespace)
}

fn play(rig: &mut Rig, direction: Direction) -> DirectionOutcome {
    rig.run(&forward(direction), &mut |_, _| true).unwrap().forward.unwrap()
}

const SIZES: [(FrameKind, [u16; 6]); 3] = [
    (FrameKind::Ipv4, [64, 128, 512, 1518, 4096, 9216]),
    (FrameKind::Ipv6, [84, 128, 1518, 4101, 8192, 9216]),
    (FrameKind::Ipv4InIpv6, [104, 128, 511, 4100, 8193, 9216]),
];

/// Every frame of every kind and size arrives once and right.
fn send_all_kinds_and_sizes(rig: &mut Rig, frames: u32, rate: u64) {
    for (kind, sizes) in SIZES {
        for size in sizes {
            let mut tries = (0..5).map(|_| play(rig, direction(kind, size, frames, rate)));
            let right = tries.find(|outcome| {
                println!(
                    "{} {kind:?} {size}: lost {}, latest {} us, delay {:?} ns",
                    rig_name(outcome),
                    outcome.lost(),
                    outcome.departures.late_max_ns / 1000,
                    outcome.arrivals.delays.percentile_ns(0.5)
                );
                assert_eq!(outcome.arrivals.errored + outcome.arrivals.unreadable, 0, "{:?}", outcome.arrivals.errors);
                outcome.is_perfect()
            });
            let outcome = right.unwrap_or_else(|| panic!("{kind:?} {size}: frames were lost five times"));
            assert_eq!(outcome.departures.failed, 0);
            assert_eq!(outcome.arrivals.delays.count(), u64::from(frames));
            assert_eq!(outcome.arrivals.bytes, u64::from(frames) * (u64::from(size) - 18));
        }
    }
}

fn rig_name(outcome: &DirectionOutcome) -> String {
    format!("{:.0} frames/s", outcome.departures.rate())
}

#[test]
fn af_xdp_sends_every_kind_and_size() {
    let _turn = turn();
    let Some(wire) = wire().map(with_jumbo_frames) else { return };
    let Some(mut rig) = rig(&wire, Means::AfXdp, 9216) else { return };
    assert!(rig.port_xdp().iter().all(|port| port.is_native && port.interface.is_virtual_cable()));
    send_all_kinds_and_sizes(&mut rig, 20_000, 100_000);
    assert!(!rig.sending().is_zero_copy, "a veth has no zero copy");
}

#[test]
fn packet_sockets_send_every_kind_and_size() {
    let _turn = turn();
    let Some(wire) = wire().map(with_jumbo_frames) else { return };
    let Some(mut rig) = rig(&wire, Means::PacketSockets, 9216) else { return };
    send_all_kinds_and_sizes(&mut rig, 10_000, 50_000);
}

#[test]
fn ports_without_native_xdp_are_sent_through_by_af_xdp_of_itself() {
    let _turn = turn();
    let Some(wire) = wire_without_native_xdp().map(with_jumbo_frames) else { return };
    if rig(&wire, Means::AfXdp, 9216).is_none() {
        return;
    }
    let mut rig = Rig::open(&wire.port("left"), &wire.port("right"), CAPACITY).unwrap();
    rig.set_endpoints(&[plain_host([10, 0, 0, 2].into())], &[plain_host([198, 19, 0, 2].into())]).unwrap();
    assert!(rig.port_xdp().iter().all(|port| !port.is_native));
    if rig.port_xdp()[0].interface.xdp.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIP: generator: the kernel does not say who takes redirected frames");
        return;
    }
    assert_eq!(rig.sending().means, Means::AfXdp, "nobody takes live frames here");
    send_all_kinds_and_sizes(&mut rig, 10_000, 50_000);
}

#[test]
fn the_length_decides_how_frames_leave_where_nobody_says() {
    let _turn = turn();
    let Some(wire) = wire().map(with_jumbo_frames) else { return };
    if rig(&wire, Means::AfXdp, 9216).is_none() {
        return;
    }
    let mut rig = Rig::open(&wire.port("left"), &wire.port("right"), CAPACITY).unwrap();
    let mut means = |bytes| rig.prepare(bytes).map(|sending| sending.means);
    assert_eq!(means(64).unwrap(), Means::LiveFrames);
    assert_eq!(means(9216).unwrap(), Means::AfXdp);
    assert_eq!(means(3400).unwrap(), Means::LiveFrames);
    assert_eq!(means(3401).unwrap(), Means::AfXdp);
    assert!(means(9257).unwrap_err().to_string().contains("9256 is the most"));
    wire.ip("link set right mtu 4000");
    assert!(means(4096).unwrap_err().to_string().contains("an MTU of 4078 on right, which has 4000"));
    rig.set_means(Means::LiveFrames);
    assert!(rig.prepare(4000).unwrap_err().to_string().contains("cannot be live frames"));
}

#[test]
fn both_directions_and_mixed_lengths_share_a_core() {
    let _turn = turn();
    let Some(wire) = wire().map(with_jumbo_frames) else { return };
    for means in [Means::AfXdp, Means::PacketSockets] {
        let Some(mut rig) = rig(&wire, means, 9216) else { return };
        let pace = Pace { rate: 50_000, then: None, burst: Some(2) };
        let imix = Some([template(FrameKind::Ipv6, 570), template(FrameKind::Ipv6, 4500)]);
        let there = Direction { pace, imix, ..direction(FrameKind::Ipv6, 84, 12_000, 50_000) };
        let back = Direction { pace, ..direction(FrameKind::Ipv4, 64, 12_000, 50_000) };
        let exchange = Exchange { reverse: Some(back), ..forward(there) };
        let is_right = (0..3).any(|_| {
            let outcome = rig.run(&exchange, &mut |_, _| true).unwrap();
            let both = [outcome.forward.unwrap(), outcome.reverse.unwrap()];
            println!("{means:?}: lost {:?}, {:?}", both.each_ref().map(|d| d.lost()), both[0].arrivals.errors);
            both.iter().all(DirectionOutcome::is_perfect)
        });
        assert!(is_right, "{means:?}");
    }
}

/// Bursts longer than what one call makes, and a sender that never waits.
#[test]
fn af_xdp_sends_long_bursts_whole() {
    let _turn = turn();
    let Some(wire) = wire() else { return };
    let Some(mut rig) = rig(&wire, Means::AfXdp, 64) else { return };
    for burst in [1, 63, 64, 65, 200] {
        let pace = Pace { rate: 100_000, then: None, burst: Some(burst) };
        let is_right = (0..3).any(|_| {
            let outcome = play(&mut rig, Direction { pace, ..direction(FrameKind::Ipv4, 64, 10_001, 100_000) });
            assert_eq!(outcome.departures.sent, 10_001);
            outcome.is_perfect() && outcome.departures.bursts == u64::from(10_001_u32.div_ceil(burst))
        });
        assert!(is_right, "bursts of {burst}");
    }
    let fastest = (0..5).any(|_| {
        let outcome = play(&mut rig, direction(FrameKind::Ipv4, 64, 500_000, 0));
        println!("as fast as possible: {}, lost {}", rig_name(&outcome), outcome.lost());
        outcome.is_perfect()
    });
    assert!(fastest, "frames were lost in each of five attempts");
}

#[test]
fn each_sending_core_has_a_queue_of_its_own() {
    let _turn = turn();
    let cores = std::thread::available_parallelism().unwrap().get();
    let Some(wire) = TestNamespace::new() else { return };
    wire.ip("link add left numrxqueues 2 numtxqueues 2 type veth peer name right numrxqueues 2 numtxqueues 2");
    wire.ip("link set left address 02:00:00:00:00:01 up");
    wire.ip("link set right address 02:00:00:00:00:02 up");
    let Some(mut rig) = rig(&wire, Means::AfXdp, 64) else { return };
    let there = Direction { cores: (0..cores.min(2)).collect(), ..direction(FrameKind::Ipv4, 64, 20_001, 40_000) };
    let is_right = (0..5).any(|_| play(&mut rig, there.clone()).is_perfect());
    assert!(is_right, "frames were lost in each of five attempts");
    if cores > 2 {
        let more = Direction { cores: vec![0, 1, 2], ..there };
        let error = rig.run(&forward(more), &mut |_, _| true).err().unwrap().to_string();
        assert!(error.contains("queue 2 of left") && error.contains("ethtool -L"), "{error}");
    }
}

/// Passes frames on from the left cable's far end to the right cable's; `change` says what becomes
/// of each, and whether it goes on at all.
fn relay(wire: &TestNamespace, frames: usize, change: fn(usize, &mut [u8]) -> usize) -> JoinHandle<()> {
    let entrance = PacketSocket::open(&wire.port("left-far")).unwrap();
    let exit = PacketSocket::open(&wire.port("right-far")).unwrap();
    std::thread::spawn(move || {
        let mut frame = vec![0; 10_000];
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut passed = 0;
        while passed < frames && Instant::now() < deadline {
            let Some(length) = entrance.receive(&mut frame).unwrap() else {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            };
            // Not neighbour discovery.
            if frame[12..14] != [8, 0] {
                continue;
            }
            passed += 1;
            let length = change(passed, &mut frame[..length]);
            while length > 0 && !exit.send(&frame[..length]).unwrap() {}
        }
    })
}

fn two_cables() -> Option<TestNamespace> {
    let wire = TestNamespace::new()?;
    for side in ["left", "right"] {
        wire.ip(&format!("link add {side} mtu 9198 type veth peer name {side}-far mtu 9198"));
    }
    wire.ip("link set left address 02:00:00:00:00:01");
    wire.ip("link set right address 02:00:00:00:00:02");
    ["left", "left-far", "right", "right-far"].iter().for_each(|port| wire.ip(&format!("link set {port} up")));
    Some(wire)
}

#[test]
fn planted_losses_and_damage_of_jumbo_frames_are_counted_exactly() {
    let _turn = turn();
    let Some(wire) = two_cables() else { return };
    for means in [Means::AfXdp, Means::PacketSockets] {
        let Some(mut rig) = rig(&wire, means, 9216) else { return };
        let mut through = |change: fn(usize, &mut [u8]) -> usize| {
            let relay = relay(&wire, 2000, change);
            let outcome = play(&mut rig, direction(FrameKind::Ipv4, 9216, 2000, 4000));
            relay.join().unwrap();
            outcome
        };
        let lossy = through(|number, frame| if number % 10 == 0 { 0 } else { frame.len() });
        assert_eq!((lossy.lost(), lossy.arrivals.received), (200, 1800), "{:?}", lossy.arrivals.errors);
        // The filler of every 16th frame is verified, in whichever buffer it lies.
        let damaged = through(|_, frame| {
            frame[9000] ^= 1;
            frame.len()
        });
        assert_eq!((damaged.arrivals.count(FrameError::Filler), damaged.arrivals.received), (125, 1875));
        let short = through(|number, frame| if number % 100 == 0 { 9100 } else { frame.len() });
        assert_eq!((short.arrivals.count(FrameError::Length), short.arrivals.received), (20, 1980));
    }
}

#[test]
fn what_the_own_driver_does_not_take_is_counted() {
    let _turn = turn();
    let Some(wire) = TestNamespace::new() else { return };
    // Taps that nobody reads: their driver drops every frame.
    for (port, address) in [("left", "02:00:00:00:00:01"), ("right", "02:00:00:00:00:02")] {
        if !wire.tries(&format!("tuntap add dev {port} mode tap")) {
            let _ = writeln!(std::io::stderr(), "SKIP: generator: no tap devices here");
            return;
        }
        wire.ip(&format!("link set {port} address {address} up"));
    }
    for means in [Means::LiveFrames, Means::AfXdp] {
        let Some(mut rig) = rig(&wire, means, 64) else { return };
        assert!(rig.port_xdp().iter().all(|port| !port.interface.is_virtual_cable()));
        let outcome = play(&mut rig, direction(FrameKind::Ipv4, 64, 1000, 100_000));
        assert_eq!((rig.refused(), outcome.lost()), (1000, 1000), "{means:?}");
    }
}
