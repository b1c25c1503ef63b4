//! The tester against itself: a veth pair without a gateway. What is sent must arrive, all of it,
//! at the asked rate, and what is wrong must be seen.

#![expect(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test: small numbers, and a panic is a failure"
)]

mod common;

use std::net::Ipv6Addr;

use common::{
    CAPACITY, LEFT, SEGMENTS, TestNamespace, direction, forward, interrupted_wire, plain_host, template, wire,
};
use tombolo_generator::{
    Answer, Background, Direction, DirectionOutcome, Exchange, FrameError, FrameKind, Order, Pace, PacketSocket, Pause,
    Permutation, PortRule, Rig, SourceRule, Timed, Timing, Transport, become_realtime, pin_to,
};

fn rig(wire: &common::TestNamespace) -> Rig {
    let mut rig = Rig::open(&wire.port("left"), &wire.port("right"), CAPACITY).unwrap();
    rig.set_endpoints(&[plain_host([10, 0, 0, 2].into())], &[plain_host([198, 19, 0, 2].into())]).unwrap();
    rig
}

fn play(rig: &mut Rig, direction: Direction) -> DirectionOutcome {
    let outcome = rig.run(&forward(direction), &mut |_, _| true).unwrap();
    outcome.forward.unwrap()
}

#[test]
fn every_frame_of_every_kind_and_size_arrives_once_and_right() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    for (kind, transport, sizes) in [
        (FrameKind::Ipv4, Transport::Udp, [64, 128, 512, 1518]),
        (FrameKind::Ipv6, Transport::Udp, [84, 128, 512, 1518]),
        (FrameKind::Ipv4InIpv6, Transport::Udp, [104, 128, 511, 1518]),
        (FrameKind::Ipv4, SEGMENTS, [76, 128, 512, 1518]),
        (FrameKind::Ipv6, SEGMENTS, [96, 128, 512, 1518]),
        (FrameKind::Ipv4InIpv6, SEGMENTS, [116, 128, 511, 1518]),
    ] {
        for size in sizes {
            let mut direction = direction(kind, size, 50_000, 400_000);
            direction.template.transport = transport;
            // Other work on the machine can make the receiver lose some of one attempt.
            let mut attempts = (0..4).map(|_| play(&mut rig, direction.clone()));
            let outcome = attempts.find(|outcome| outcome.lost() == 0).unwrap();
            let what = format!("{kind:?} {transport:?} {size}");
            assert!(outcome.is_perfect(), "{what}: {:?} lost {}", outcome.arrivals.errors, outcome.lost());
            assert_eq!(outcome.departures.failed, 0);
            assert_eq!(outcome.arrivals.delays.count(), 50_000);
            assert_eq!(outcome.arrivals.bitmap.longest_gap(), None);
            assert_eq!(outcome.arrivals.bytes, 50_000 * (u64::from(size) - 18));
        }
    }
}

#[test]
fn the_rate_is_the_asked_one() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    // Other work on the machine can make one attempt late; it cannot make one exact by accident.
    let mut attempts = (0..10).map(|_| play(&mut rig, direction(FrameKind::Ipv4, 64, 40_000, 100_000)).departures);
    let exact = attempts.any(|d| d.burst_frames == 1 && (d.rate() / 100_000.0 - 1.0).abs() < 0.001);
    assert!(exact, "ten attempts at 100,000 frames a second were all off by 0.1 % or more");
}

#[test]
fn a_change_of_rate_happens_at_its_frame() {
    let Some(wire) = wire() else { return };
    let mut direction = direction(FrameKind::Ipv4, 64, 30_000, 100_000);
    direction.pace = Pace { rate: 100_000, then: Some((20_000, 50_000)), burst: None };
    let mut rig = rig(&wire);
    let mut spans = (0..10).map(|_| play(&mut rig, direction.clone()).departures).map(|d| d.last_ns - d.first_ns);
    assert!(spans.any(|span| span.abs_diff(400_000_000) < 400_000));
}

#[test]
fn nothing_stops_the_sending_thread_once_a_second() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    if let Err(why) = rig.realtime_limit() {
        eprintln!("skipped: {why}");
        return;
    }
    // The kernel's limit leaves 50 ms of each second, and a sender that keeps a pace sleeps never.
    let stopped = |pause: &Pause| (40_000_000..60_000_000).contains(&pause.late_max_ns);
    let free = (0..4).any(|_| {
        let pauses = play(&mut rig, direction(FrameKind::Ipv4, 64, 280_000, 100_000)).pauses;
        !pauses.iter().any(stopped)
    });
    assert!(free, "a pause of 50 ms in each of four trials of 2.8 s: {:?}", rig.realtime_limit());
}

#[test]
fn the_program_enumerates_as_the_permutation_says() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    let mut direction = direction(FrameKind::Ipv4, 64, 1_000_000, 0);
    direction.shape.b_ports = 25;
    direction.order = Order::Enumerate { seed: 42 };
    direction.answer.record = true;
    // As fast as it goes: other work on the machine can make the receiver lose some of one attempt.
    assert!(
        (0..5).any(|_| play(&mut rig, direction.clone()).is_perfect()),
        "frames were lost in each of five attempts"
    );
    let permutation = Permutation::new(1_000_000, 42);
    let mut seen = vec![false; 1_000_000];
    for number in 0..1_000_000 {
        let record = rig.record(number).unwrap();
        let tuple = record.tuple_plus_one - 1;
        assert_eq!(tuple, permutation.at(number));
        assert_eq!(u16::from_be_bytes(record.source_port), 1024 + (tuple % 40_000) as u16);
        assert_eq!(u16::from_be_bytes(record.destination_port), 1 + (tuple / 40_000) as u16);
        assert!(!std::mem::replace(&mut seen[tuple as usize], true));
    }
}

#[test]
fn recorded_tuples_are_answered_each_once() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    for transport in [Transport::Udp, SEGMENTS] {
        let mut there = direction(FrameKind::Ipv4, 76, 20_000, 400_000);
        there.template.transport = transport;
        there.answer.record = true;
        assert!(play(&mut rig, there.clone()).is_perfect());
        there.answer.record = false;
        there.order = Order::RecordsOnce { count: 20_000, seed: 5 };
        let exchange = Exchange { forward: None, reverse: Some(there.clone()), ..forward(there) };
        let outcome = rig.run(&exchange, &mut |_, _| true).unwrap().reverse.unwrap();
        assert!(outcome.is_perfect(), "{transport:?}: {:?}", outcome.arrivals.errors);
    }
}

#[test]
fn each_kind_of_error_is_counted_under_its_name() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    let mut expect_of = |kind: FrameKind, error: FrameError, change: &dyn Fn(&mut Answer)| {
        let mut direction = direction(kind, kind.shortest(), 1000, 100_000);
        change(&mut direction.answer);
        let outcome = play(&mut rig, direction);
        assert_eq!((outcome.arrivals.count(error), outcome.arrivals.errored), (1000, 1000), "{error:?}");
        assert_eq!((outcome.arrivals.received, outcome.lost()), (0, 0));
    };
    let kinds = [FrameKind::Ipv4, FrameKind::Ipv6, FrameKind::Ipv4InIpv6];
    for kind in kinds {
        expect_of(kind, FrameError::TrafficClass, &|a| a.header.traffic_class = Some(4));
        expect_of(kind, FrameError::LinkAddress, &|a| a.link.source = Some([2, 0, 0, 0, 0, 9]));
        expect_of(kind, FrameError::LinkAddress, &|a| a.link.destination = Some(LEFT));
    }
    for kind in [FrameKind::Ipv4, FrameKind::Ipv4InIpv6] {
        expect_of(kind, FrameError::DontFragment, &|a| a.header.dont_fragment = Some(false));
        expect_of(kind, FrameError::Identification, &|a| a.header.identification = Some(0x100));
    }
    for kind in [FrameKind::Ipv6, FrameKind::Ipv4InIpv6] {
        expect_of(kind, FrameError::FlowLabel, &|a| a.header.flow_label = Some(1));
    }
    expect_of(FrameKind::Ipv4InIpv6, FrameError::HopLimit, &|a| a.inner_hop_limit = 9);
    let mut expect = |error, change: &dyn Fn(&mut Answer)| expect_of(FrameKind::Ipv4, error, change);
    expect(FrameError::HopLimit, &|a| a.hop_limit = 9);
    expect(FrameError::Family, &|a| a.kind = FrameKind::Ipv6);
    expect(FrameError::Source, &|a| a.source = SourceRule::Pool([192, 0, 2, 0].into(), [192, 0, 2, 9].into()));
}

/// Passes so many frames on, each as `change` makes it, which is given its number from 1 on.
fn relay(
    wire: &TestNamespace,
    frames: usize,
    change: impl Fn(usize, &mut [u8]) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let [entrance, exit] = ["left-far", "right-far"].map(|port| PacketSocket::open(&wire.port(port)).unwrap());
    std::thread::spawn(move || {
        let mut passed = 0;
        let mut frame = vec![0; 2048];
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while passed < frames && std::time::Instant::now() < deadline {
            let Some(length) = entrance.receive(&mut frame).unwrap() else {
                std::thread::sleep(std::time::Duration::from_micros(50));
                continue;
            };
            // Not neighbour discovery, nor reports of listeners.
            if frame[12..14] == [0x86, 0xdd] && [0, 58].contains(&frame[20]) {
                continue;
            }
            passed += 1;
            change(passed, &mut frame[..length]);
            while !exit.send(&frame[..length]).unwrap() {}
        }
    })
}

/// Adds one to a 16-bit word, and takes it from the checksum, both in the header at `transport`.
fn add_one(frame: &mut [u8], transport: usize, word: usize) {
    for (at, one) in [(transport + word, 1), (transport + 16, 0xfffe)] {
        let (sum, carry) = u16::from_be_bytes([frame[at], frame[at + 1]]).overflowing_add(one);
        frame[at..at + 2].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    }
}

#[test]
fn what_becomes_of_a_segment_on_its_way_is_found_and_named() {
    let Some(wire) = interrupted_wire() else { return };
    let mut rig = rig(&wire);
    for kind in [FrameKind::Ipv4, FrameKind::Ipv6, FrameKind::Ipv4InIpv6] {
        let transport = usize::from(kind.transport_offset());
        // The low words of sequence number and acknowledgement, flags, window.
        let words = [6, 10, 12, 14];
        let relay = relay(&wire, 1000, move |number, frame| match number % 100 {
            10 => frame[transport + 17] ^= 1,
            20 => add_one(frame, transport, 0),
            30 => add_one(frame, transport, 2),
            40 => add_one(frame, transport, words[number / 100 % 4]),
            // The protocol: it is none of the tester's.
            50 => frame[if kind == FrameKind::Ipv6 { 20 } else { transport - 11 }] = 17,
            _ => {}
        });
        let mut direction = direction(kind, 130, 1000, 2000);
        direction.template.transport = SEGMENTS;
        let arrivals = play(&mut rig, direction).arrivals;
        relay.join().unwrap();
        let found =
            [FrameError::UdpChecksum, FrameError::SourcePort, FrameError::DestinationPort, FrameError::TcpHeader];
        assert_eq!(found.map(|error| arrivals.count(error)), [10; 4], "{kind:?}");
        assert_eq!((arrivals.received, arrivals.unreadable, arrivals.errored), (950, 10, 30), "{kind:?}");
        assert!(arrivals.foreign >= 10, "{kind:?}");
    }
}

#[test]
fn background_traffic_and_two_lengths_share_the_stream() {
    let Some(wire) = wire() else { return };
    for size in [64, 236, 1498] {
        let mut direction = direction(FrameKind::Ipv4, size, 100_000, 400_000);
        let (source, destination): (Ipv6Addr, Ipv6Addr) =
            ("2001:2::2".parse().unwrap(), "2001:2:0:8000::2".parse().unwrap());
        let template = template(FrameKind::Ipv6, size + 20);
        direction.background = Some(Background { template, source, destination, n: 10, m: 9, hop_limit: 10 });
        let outcome = play(&mut rig(&wire), direction);
        assert!(outcome.is_perfect(), "{size}: {:?}", outcome.arrivals.errors);
        assert_eq!((outcome.departures.background, outcome.arrivals.background), (10_000, 10_000));
    }
}

#[test]
fn a_mix_is_spread_evenly() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    for (n, m) in [(10, 9), (2, 1), (10, 1), (100, 90), (7, 3)] {
        let mut direction = direction(FrameKind::Ipv4, 64, 1000, 100_000);
        direction.background = Some(Background {
            template: template(FrameKind::Ipv6, 84),
            source: "2001:2::2".parse().unwrap(),
            destination: "2001:2:0:8000::2".parse().unwrap(),
            n,
            m,
            hop_limit: 10,
        });
        direction.answer.record = true;
        assert!(play(&mut rig, direction).is_perfect());
        // Background frames have no IPv4 source.
        let is_foreground: Vec<bool> = (0..1000).map(|k| rig.record(k).unwrap().source != [0; 4]).collect();
        let most = (u64::from(n).div_ceil(u64::from(m)).max(u64::from(n).div_ceil(u64::from(n - m)))) as usize;
        let longest = is_foreground.chunk_by(|a, b| a == b).map(<[bool]>::len).max().unwrap();
        assert!(longest <= most, "{m} of {n}: {longest} frames of one kind in a row");
        let count = is_foreground.iter().take(1000 / n as usize * n as usize).filter(|f| **f).count();
        assert_eq!(count, 1000 / n as usize * m as usize, "{m} of {n}");
    }
}

#[test]
fn three_lengths_share_the_stream_seven_to_four_to_one() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    for kind in [FrameKind::Ipv4, FrameKind::Ipv6, FrameKind::Ipv4InIpv6] {
        let mut direction = direction(kind, kind.shortest(), 120_000, 400_000);
        direction.imix = Some([template(kind, 570), template(kind, 1498)]);
        let outcome = play(&mut rig, direction);
        assert!(outcome.is_perfect(), "{kind:?}: {:?}", outcome.arrivals.errors);
        // IP bytes: what the frames have without Ethernet header and FCS.
        let each = [kind.shortest(), 570, 1498].map(|bytes| u64::from(bytes) - 18);
        assert_eq!(outcome.arrivals.bytes, 10_000 * (7 * each[0] + 4 * each[1] + each[2]), "{kind:?}");
    }
}

#[test]
fn a_frame_that_takes_longer_than_the_timeout_is_late() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    let mut direction = direction(FrameKind::Ipv4, 64, 1000, 100_000);
    direction.answer.timeout_ns = 2_000_000_000;
    assert!(play(&mut rig, direction.clone()).is_perfect());
    // Nothing crosses a wire within a nanosecond.
    direction.answer.timeout_ns = 1;
    let outcome = play(&mut rig, direction);
    assert_eq!((outcome.arrivals.count(FrameError::Late), outcome.arrivals.received), (1000, 0));
}

#[test]
fn a_port_outside_of_the_customers_set_is_an_error() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    // PSID 5 of 8, offset 6 (RFC 7597 section 5.1): ports 6 bits of index, 3 of PSID, 7 of the rest.
    let rule = PortRule::Set { mask: 7 << 7, value: 5 << 7, least: 1 << 10 };
    let wrong = |frame: u32, rig: &Rig| {
        let port = u16::from_be_bytes(rig.record(frame).unwrap().source_port);
        port & 7 << 7 != 5 << 7 || port < 1 << 10
    };
    let mut direction = direction(FrameKind::Ipv4, 64, 4000, 100_000);
    direction.answer.record = true;
    assert!(play(&mut rig, direction.clone()).is_perfect());
    let expected = (0..4000).filter(|frame| wrong(*frame, &rig)).count() as u64;
    direction.answer.source_port = rule;
    let arrivals = play(&mut rig, direction).arrivals;
    assert!(expected > 3000 && expected < 4000);
    assert_eq!((arrivals.count(FrameError::SourcePort), arrivals.errored), (expected, expected));
}

/// Passes frames on between two ports, the odd ones from another core than the even ones, so that
/// they arrive on two cores; each pair is swapped if asked for.
fn relay_over_two_cores(wire: &TestNamespace, swapped: bool, frames: usize) -> std::thread::JoinHandle<()> {
    let (from, to) = (wire.port("left-far"), wire.port("right-far"));
    let (odd_work, odd_orders) = std::sync::mpsc::sync_channel::<Vec<u8>>(0);
    let (odd_done, odd_ready) = std::sync::mpsc::sync_channel::<()>(0);
    let exits = [PacketSocket::open(&to).unwrap(), PacketSocket::open(&to).unwrap()];
    let [even_exit, odd_exit] = exits;
    std::thread::spawn(move || {
        pin_to(0, &[1]).unwrap();
        become_realtime(0, 2).unwrap();
        for frame in odd_orders {
            while !odd_exit.send(&frame).unwrap() {}
            std::thread::sleep(std::time::Duration::from_micros(50));
            odd_done.send(()).unwrap();
        }
    });
    let entrance = PacketSocket::open(&from).unwrap();
    std::thread::spawn(move || {
        pin_to(0, &[0]).unwrap();
        become_realtime(0, 2).unwrap();
        let mut even: Option<Vec<u8>> = None;
        let mut passed = 0;
        let mut frame = vec![0; 2048];
        let send_odd = |frame: Vec<u8>| {
            odd_work.send(frame).unwrap();
            odd_ready.recv().unwrap();
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while passed < frames && std::time::Instant::now() < deadline {
            let Some(length) = entrance.receive(&mut frame).unwrap() else {
                std::thread::sleep(std::time::Duration::from_micros(50));
                continue;
            };
            // Not neighbour discovery.
            if frame[12..14] != [8, 0] {
                continue;
            }
            let this = frame[..length].to_vec();
            match even.take() {
                None => even = Some(this),
                Some(first) => {
                    if swapped {
                        send_odd(this);
                        while !even_exit.send(&first).unwrap() {}
                    } else {
                        while !even_exit.send(&first).unwrap() {}
                        std::thread::sleep(std::time::Duration::from_micros(50));
                        send_odd(this);
                    }
                    passed += 2;
                }
            }
        }
    })
}

#[test]
fn order_and_variations_are_those_of_the_stream_on_whatever_cores_it_arrives() {
    let Some(wire) = interrupted_wire() else { return };
    let mut rig = rig(&wire);
    for (swapped, reordered) in [(false, 0), (true, 500)] {
        let relay = relay_over_two_cores(&wire, swapped, 1000);
        let mut direction = direction(FrameKind::Ipv4, 64, 1000, 1000);
        direction.answer.timing = Timing::Variations;
        let outcome = play(&mut rig, direction);
        relay.join().unwrap();
        let arrivals = outcome.arrivals;
        assert_eq!(arrivals.received, 1000, "{:?}", arrivals.errors);
        assert_eq!(arrivals.reordered, reordered);
        assert_eq!(arrivals.variations_up.count() + arrivals.variations_down.count(), 999);
    }
}

#[test]
fn timed_frames_and_variations_are_kept() {
    let Some(wire) = wire() else { return };
    let mut direction = direction(FrameKind::Ipv6, 84, 50_000, 200_000);
    direction.timed = Some(Timed { from: 25_000, every: 25 });
    direction.answer.timing = Timing::Variations;
    let arrivals = play(&mut rig(&wire), direction).arrivals;
    assert_eq!(arrivals.timed.len(), 1000);
    assert!(arrivals.timed.iter().all(|d| d.is_some_and(|ns| ns > 0)));
    assert_eq!(arrivals.variations_up.count() + arrivals.variations_down.count(), 49_999);
}

#[test]
fn both_directions_and_two_cores_share_the_enumeration() {
    let Some(wire) = wire() else { return };
    let mut both = direction(FrameKind::Ipv4, 64, 99_999, 200_000);
    both.cores = vec![0, 1 % std::thread::available_parallelism().unwrap().get()];
    let exchange = Exchange { reverse: Some(both.clone()), ..forward(both) };
    let outcome = rig(&wire).run(&exchange, &mut |_, _| true).unwrap();
    for direction in [outcome.forward.unwrap(), outcome.reverse.unwrap()] {
        assert!(direction.is_perfect(), "{:?} lost {}", direction.arrivals.errors, direction.lost());
        assert_eq!(direction.arrivals.bitmap.longest_gap(), None);
    }
}

#[test]
fn one_core_serves_both_directions_with_different_frames() {
    let Some(wire) = wire() else { return };
    // Encapsulated frames have headers where the others' filler begins.
    let (udp, tcp) = (Transport::Udp, SEGMENTS);
    for (kind, transport, bytes) in [
        (FrameKind::Ipv6, udp, 104),
        (FrameKind::Ipv4InIpv6, udp, 104),
        (FrameKind::Ipv4InIpv6, udp, 300),
        (FrameKind::Ipv6, tcp, 104),
        (FrameKind::Ipv4InIpv6, tcp, 116),
        (FrameKind::Ipv4InIpv6, tcp, 300),
    ] {
        let (mut there, mut back) =
            (direction(kind, bytes, 60_000, 200_000), direction(FrameKind::Ipv4, 64, 30_000, 100_000));
        (there.template.transport, back.template.transport) = (transport, transport);
        back.template.frame_bytes = back.template.shortest();
        let pace = |rate| Pace { rate, then: None, burst: Some(2) };
        let (there, back) = (Direction { pace: pace(200_000), ..there }, Direction { pace: pace(100_000), ..back });
        let exchange = Exchange { reverse: Some(back), ..forward(there) };
        let outcome = rig(&wire).run(&exchange, &mut |_, _| true).unwrap();
        for (direction, frames) in [(outcome.forward.unwrap(), 60_000), (outcome.reverse.unwrap(), 30_000)] {
            assert!(direction.is_perfect(), "{kind:?}: {:?} lost {}", direction.arrivals.errors, direction.lost());
            assert_eq!(direction.arrivals.received, frames);
        }
    }
}

#[test]
fn random_order_repeats_tuples_but_loses_no_frame() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    let mut direction = direction(FrameKind::Ipv4, 64, 100_000, 400_000);
    direction.order = Order::Random { seed: 3 };
    direction.shape.b_ports = 10;
    direction.answer.record = true;
    assert!(play(&mut rig, direction).is_perfect());
    let mut tuples: Vec<u32> = (0..100_000).map(|n| rig.record(n).unwrap().tuple_plus_one - 1).collect();
    tuples.sort_unstable();
    tuples.dedup();
    // 400,000 tuples, 100,000 draws: 400,000 * (1 - exp(-1/4)) = 88,480 are hit.
    assert!(tuples.len().abs_diff(88_480) < 1000, "{} different tuples", tuples.len());
}

#[test]
fn flows_that_begin_one_after_another_are_few_at_first_and_all_in_the_end() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    let mut direction = direction(FrameKind::Ipv4, 64, 100_000, 400_000);
    direction.shape.a_ports = 100;
    direction.shape.b_ports = 10;
    direction.order = Order::Random { seed: 3 }.one_after_another(50_000);
    direction.answer.record = true;
    assert!(play(&mut rig, direction).is_perfect());
    let different = |frames: std::ops::Range<u32>| {
        let mut tuples: Vec<u32> = frames.map(|n| rig.record(n).unwrap().tuple_plus_one).collect();
        tuples.sort_unstable();
        tuples.dedup();
        tuples.len()
    };
    // A thousand begin within 50,000 frames: one each fifty.
    assert_eq!((different(0..50), different(0..100_000)), (1, 1000));
    let begun = different(0..5000);
    assert!((80..=100).contains(&begun), "{begun} of 100 have sent");
    assert_eq!(different(50_000..100_000), 1000);
}

#[test]
fn a_stopped_run_ends_soon_and_says_so() {
    let Some(wire) = wire() else { return };
    let started = std::time::Instant::now();
    let exchange = forward(direction(FrameKind::Ipv4, 64, 10_000_000, 100_000));
    let outcome = rig(&wire).run(&exchange, &mut |sent, _| sent < 20_000).unwrap();
    assert!(outcome.stopped && started.elapsed().as_secs() < 20);
    let forward = outcome.forward.unwrap();
    assert_eq!(forward.lost(), 0);
    assert!(forward.departures.sent >= 20_000 && forward.departures.sent < 1_000_000);
}

#[test]
fn what_does_not_fit_is_said_before_anything_is_sent() {
    let Some(wire) = wire() else { return };
    let mut rig = rig(&wire);
    let mut refuse = |direction: Direction, words: &str| {
        let error = rig.run(&forward(direction), &mut |_, _| true).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refuse(direction(FrameKind::Ipv6, 64, 10, 10), "no room for the tester's tag");
    refuse(direction(FrameKind::Ipv4, 64, u32::MAX, 10), "opened for 16777216");
    let mut short = direction(FrameKind::Ipv4, 64, 10, 10);
    short.template.transport = SEGMENTS;
    refuse(short, "76 is the least here");
    refuse(Direction { cores: vec![], ..direction(FrameKind::Ipv4, 64, 10, 10) }, "at least one");
    refuse(Direction { cores: (0..17).collect(), ..direction(FrameKind::Ipv4, 64, 10, 10) }, "17 sending cores");
    let mut many = direction(FrameKind::Ipv4, 64, 10, 10);
    many.shape.b_ports = 49_151;
    many.shape.b_hosts = 16;
    refuse(many, "four tuples");
    let mut any = direction(FrameKind::Ipv4, 64, 10, 10);
    any.answer.source_port = PortRule::Any;
    any.order = Order::RecordsOnce { count: 0, seed: 0 };
    refuse(any, "cannot answer 0 records");
    drop(rig);
    let missing = Rig::open(&wire.port("left"), &wire.port("nowhere"), CAPACITY).err().unwrap();
    assert!(missing.to_string().contains("nowhere does not exist in the network namespace"), "{missing}");
}
