//! The programs against the engine, on the same packets and the same tables: same verdict, same
//! bytes, same effect.
//!
//! The tables lie in BPF arrays and are small. For each packet their bytes are copied, the program
//! runs, its effect is copied, the first copy is put back, and the engine runs. What the program
//! passes on must leave no trace. What it translates the engine must have translated likewise; only
//! outside ports of new bindings may differ, which are drawn at random.
//!
//! `TOMBOLO_CASE` is a part of the names of the plans to try, `TOMBOLO_TRIALS` says how many packets of each; 6 000 by default, millions on
//! request.

#![expect(clippy::unwrap_used, reason = "a test")]

mod borders;
mod cluster;
mod compare;
mod in_a_row;
mod objects;
mod packets;
mod plans;
mod portions;
mod shortcuts;
mod softwires;
mod world;

use tombolo_engine::{DropReason, Verdict};
use tombolo_fastpath::trial::Trial;

use crate::compare::{expected_in_tc, expected_in_xdp, same_packet};
use crate::packets::Numbers;
use crate::world::World;

/// The first kernel that knows `BPF_F_ADJ_ROOM_DECAP_L3_IPV4`.
const TAKES_HEADERS_OFF: (u32, u32) = (6, 3);

/// Parts of the names of plans by which the programs make bindings.
const BINDING: [&str; 7] = ["nat64 and nat44", "blocks", "runs", "shares", "prefixes", "map-e ce", "map-t ce"];

/// Which program is tried.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Program {
    Xdp,
    Tc,
}

#[test]
fn programs_decide_as_the_engine_does() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: comparing the programs with the engine needs root");
        return;
    }
    let trials: u64 = std::env::var("TOMBOLO_TRIALS").ok().and_then(|n| n.parse().ok()).unwrap_or(6_000);
    let only = std::env::var("TOMBOLO_CASE").unwrap_or_default();
    let mut total = Score::default();
    for (number, (name, plan, build)) in plans::all().into_iter().enumerate().filter(|(_, case)| case.0.contains(&only))
    {
        for program in [Program::Xdp, Program::Tc] {
            let mut world = World::new(&plan, &format!("{}-{number}-{program:?}", std::process::id()));
            let mut numbers = Numbers(
                number as u64 * 2 + program as u64 + std::env::var("TOMBOLO_SEED").map_or(0, |s| s.parse().unwrap()),
            );
            let mut score = Score::default();
            for _ in 0..trials {
                world.disturb(&mut numbers);
                let frame = build(&mut numbers, &world);
                try_one(&mut world, program, &frame, &mut score, name);
            }
            world.check();
            println!("{name}, {program:?}: {score:?}");
            // The first packets find few sessions that were there before; of a few, none says anything.
            let one_in = if trials < 20_000 { 200 } else { 50 };
            let enough = trials < 500 || score.translated * one_in > trials;
            assert!(enough, "{name}: hardly a packet was translated: {score:?}");
            let binds = BINDING.iter().any(|part| name.contains(part));
            assert!(trials < 1000 || !binds || score.bindings > 0, "{name}: no binding was made: {score:?}");
            let is_cluster = world.slices.is_some();
            let draws = name == "cluster: nat64 and nat44";
            assert!(trials < 1000 || !draws || score.not_granting > 0, "{name}: nothing was refused: {score:?}");
            assert!(trials < 1000 || !is_cluster || score.redirected > 20, "{name}: little was redirected: {score:?}");
            if is_cluster && trials >= 1000 && program == Program::Tc {
                let [to, by] = world.trials.counters().unwrap().redirected.map(|nodes| nodes.iter().sum::<u64>());
                assert!(to >= score.redirected && by > 0, "{name}: the programs have counted {to}, {by}: {score:?}");
            }
            total.add(&score);
        }
    }
    println!("all: {total:?}");
}

/// Programs that reckon a slice in another way are found out by a few hundred packets.
#[test]
fn another_decision_about_slices_is_noticed() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: comparing the programs with the engine needs root");
        return;
    }
    let (name, plan, build) = cluster::cases().remove(0);
    for (number, (what, theirs)) in cluster::wrong(&plan).into_iter().enumerate() {
        let mut world = World::with_programs_of(&plan, &theirs, &format!("{}-wrong-{number}", std::process::id()));
        let mut numbers = Numbers(number as u64);
        let mut score = Score::default();
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..3000 {
                world.disturb(&mut numbers);
                let frame = build(&mut numbers, &world);
                try_one(&mut world, Program::Xdp, &frame, &mut score, name);
            }
        }));
        assert!(tried.is_err(), "nobody notices that {what} is another one in the programs: {score:?}");
        println!("{what}: noticed after {} packets that were taken", score.translated);
    }
}

/// Programs that go on to draw ports when the node may not are found out.
#[test]
fn a_lease_that_the_programs_do_not_know_is_noticed() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: comparing the programs with the engine needs root");
        return;
    }
    let (name, plan, build) = cluster::cases().remove(0);
    for program in [Program::Xdp, Program::Tc] {
        let mut world = World::new(&plan, &format!("{}-lease-{program:?}", std::process::id()));
        let mut numbers = Numbers(7);
        let mut score = Score::default();
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..6000 {
                world.disturb(&mut numbers);
                cluster::mislead(&world);
                let frame = build(&mut numbers, &world);
                try_one(&mut world, program, &frame, &mut score, name);
            }
        }));
        assert!(tried.is_err(), "nobody notices that the programs know of no lease: {score:?}");
    }
}

/// Random words, and those that lie at an edge of the halves.
#[test]
fn programs_hash_as_the_tables_do() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: comparing the programs' hash with the tables' needs root");
        return;
    }
    let (_, plan, _) = plans::all().remove(0);
    let world = World::new(&plan, &format!("{}-hash", std::process::id()));
    let key = world.tables.geometry().key;
    let mut numbers = Numbers(1);
    for trial in 0..20_000_u64 {
        let mut word = || {
            let random = numbers.draw();
            let edge = [0, 1, u64::MAX, 1 << 63, 1 << 31, 0xffff_ffff, 1 << 32, 0xffff_ffff_0000_0000];
            if trial % 2 == 0 { random } else { edge[(random % 8) as usize] ^ u64::from(random & 1 << 20 != 0) }
        };
        let words = [word(), word(), word()];
        let buckets = u32::try_from(numbers.draw() >> 32).unwrap() >> (trial % 32);
        let hash = key.hash(words);
        let [first, second] = hash.buckets(buckets);
        let expected = [hash.0, hash.tag().into(), hash.rehash().0, u64::from(second) << 32 | u64::from(first)];
        assert_eq!(world.trials.hash(words, buckets).unwrap(), expected, "{words:x?} in {buckets}");
    }
}

/// What happened.
#[derive(Debug, Default)]
struct Score {
    translated: u64,
    bindings: u64,
    redirected: u64,
    not_granting: u64,
    passed: u64,
    forwarded_by_engine_only: u64,
    left_half_done: u64,
}

impl Score {
    fn add(&mut self, other: &Self) {
        self.translated += other.translated;
        self.bindings += other.bindings;
        self.redirected += other.redirected;
        self.not_granting += other.not_granting;
        self.passed += other.passed;
        self.forwarded_by_engine_only += other.forwarded_by_engine_only;
        self.left_half_done += other.left_half_done;
    }
}

fn try_one(world: &mut World, program: Program, frame: &[u8], score: &mut Score, name: &str) {
    let before = world.copy();
    let tick = world::tick();
    let result = match program {
        Program::Xdp => world.trials.xdp(frame),
        Program::Tc => world.trials.tc(frame),
    };
    let translated = match result.unwrap() {
        Trial::Translated(bytes) => Some(bytes.to_vec()),
        Trial::Passed => None,
        Trial::Other(value) => panic!("{name}: the program returned {value} for {frame:02x?}"),
    };
    let after = world.copy();
    if world::tick() != tick {
        // The second changed in between; which one the program has seen nobody knows.
        world.put_back(&before);
        world.end_shortcuts();
        return;
    }
    world.put_back(&before);
    let way = world.engine_way(&frame[14..], tick);
    let Some((verdict, sent)) = way else {
        assert_eq!(translated, None, "{name}: the kernel would have refused {frame:02x?}");
        return;
    };
    let by_engine = world.copy();
    let Some(bytes) = translated else {
        if !world.untouched(&before, &after) {
            // It made a binding and found no room near for its session, or it is a kernel that
            // cannot take a softwire's header off in TC: the engine goes on from there.
            let is_stuck = program == Program::Tc && tombolo_lab::kernel() < TAKES_HEADERS_OFF;
            let made_binding = world.bindings_in(&before) != world.bindings_in(&after);
            let differences = world.differences(&before, &after);
            let trace = || format!("{name}: a packet that was passed on left a trace: {differences:?}, {frame:02x?}");
            assert!(is_stuck || made_binding && world.same_sessions(&before, &after), "{}", trace());
            world.put_back(&after);
            assert_eq!(world.engine_way(&frame[14..], tick).unwrap().0, verdict, "{}", trace());
            world.check();
            score.left_half_done += 1;
        }
        score.passed += 1;
        let is_refused =
            matches!(verdict, Verdict::Drop(DropReason::NotGranting) | Verdict::Reply(DropReason::NotGranting));
        score.not_granting += u64::from(is_refused);
        score.forwarded_by_engine_only += u64::from(verdict == Verdict::Forward);
        return;
    };
    score.translated += 1;
    let context =
        || format!("{name}, {program:?}: frame {frame:02x?}, translated {bytes:02x?}, engine {verdict:?} {sent:02x?}");
    assert!(matches!(verdict, Verdict::Forward | Verdict::Redirect(_)) && sent.len() == 1, "{}", context());
    let expected = match program {
        Program::Xdp if world.slices.is_some() => {
            cluster::forwarded(&sent[0]).unwrap_or_else(|| panic!("{}: the kernel would have refused it", context()))
        }
        Program::Tc if world.slices.is_some() => sent[0].clone(),
        Program::Xdp => expected_in_xdp(&sent[0]),
        Program::Tc => expected_in_tc(&sent[0]),
    };
    world.put_back(&after);
    let new_binding = world.bindings_in(&after) != world.bindings_in(&before);
    if new_binding {
        score.bindings += 1;
        world.check_new_binding(&before, &after, &by_engine, &context);
        world.check_noted(&before, &context);
        world.check();
    } else {
        let same = world.same(&after, &by_engine);
        assert!(same, "{}: the tables differ: {:?}", context(), world.differences(&after, &by_engine));
    }
    let ethertype = u16::from_be_bytes([bytes[12], bytes[13]]);
    assert_eq!(ethertype, if expected[0] >> 4 == 4 { 0x0800 } else { 0x86dd }, "{}", context());
    if let Verdict::Redirect(_) = verdict {
        score.redirected += 1;
        // The packet in it is as it came, whatever it is.
        assert_eq!(&bytes[14..14 + expected.len()], &expected, "{}", context());
        return;
    }
    same_packet(&bytes[14..], &expected, new_binding).unwrap_or_else(|why| panic!("{}: {why}", context()));
}
