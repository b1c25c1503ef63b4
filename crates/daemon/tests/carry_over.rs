//! State made by packets under one plan is carried over to another: what the new plan allows goes
//! on, at the same outside endpoint and with its sessions, and the rest is told.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use tombolo_daemon::migration::described;
use tombolo_engine::carry_over::{Carried, CarryOver, Ended, Ends, FormerPlan};
use tombolo_engine::{Engine, Now, Plan, static_bindings};
use tombolo_tables::binding::Binding;
use tombolo_tables::former::{Description, FormerMemory, FormerTables};
use tombolo_tables::hash::HashKey;
use tombolo_tables::lease::{Before, Lease, Use};
use tombolo_tables::leasing::give_flags;
use tombolo_tables::memory::Slab;
use tombolo_tables::session::{DOUBTED, State, UNANSWERED};
use tombolo_tables::shortcut::LEAD;
use tombolo_tables::subscriber::{Subscriber, SubscriberId};
use tombolo_tables::tables::Removal;
use tombolo_tables::tick::Tick;
use tombolo_tables::{Tables, audit};
use tombolo_wire::Protocol;

mod packets;
mod world;

use packets::v4;
use world::*;

impl World {
    /// The gateway under another plan.
    fn carried_to(&self, plan: Plan) -> (World, Carried, Told) {
        self.carried_as(&described(&self.plan), &self.memory, plan)
    }

    fn carried_as(&self, text: &str, memory: &dyn FormerMemory, plan: Plan) -> (World, Carried, Told) {
        let mut next = Self::new(plan);
        next.now = self.now;
        // What the plan fixes is made again by the transfer, or by the start after it.
        let mut memory_of_next = Kept::default();
        next.tables =
            Arc::new(Tables::new(&mut memory_of_next, next.plan.capacity, HashKey::new([9, 8, 7, 6])).unwrap());
        next.memory = memory_of_next;
        next.engine = Engine::new(Arc::clone(&next.tables), [8; 32], 0, 1);
        let description = Description::parse(text).unwrap();
        let was = FormerPlan::parse(&description).unwrap();
        let former = FormerTables::open(memory, &description).unwrap();
        let mut carry_over = CarryOver::new(former, was, Arc::clone(&next.tables), &next.plan);
        let once = carry_over.pass(self.now);
        assert_eq!(carry_over.pass(self.now), once, "a second pass finds nothing");
        let mut told = Told::default();
        carry_over.tell(self.now, &mut told);
        assert_eq!(audit::check(&next.tables), Vec::<String>::new());
        (next, once, told)
    }
}

/// What has ended.
#[derive(Debug, Default)]
struct Told {
    bindings: Vec<(Ipv4Addr, u16, Ended)>,
    blocks: Vec<(Ipv4Addr, (u16, u16))>,
}

impl Told {
    fn reasons(&self) -> BTreeMap<Ended, usize> {
        let mut reasons = BTreeMap::new();
        self.bindings.iter().for_each(|(.., why)| *reasons.entry(*why).or_default() += 1);
        reasons
    }
}

impl Ends for Told {
    fn binding(&mut self, binding: &Binding, why: Ended) {
        self.bindings.push((binding.inside.ipv4.into(), u16::from_be_bytes(binding.inside.port), why));
    }

    fn block(&mut self, subscriber: &Subscriber, ports: (u16, u16)) {
        self.blocks.push((subscriber.key.ipv4.into(), ports));
    }
}

#[test]
fn everything_goes_on_with_another_capacity_a_larger_pool_and_services_in_another_order() {
    let siit = "[[service]]\nkind = \"siit\"\nprefix = \"2001:db8:64::/96\"\n";
    let other = nat44("other", "10.1.0.0/24", &addresses("203.0.113.0/28"), "");
    let mut world = World::new(plan(ROOM, &format!("{}{other}", cgn("192.0.2.0/30"))));
    let all = populate(&mut world, 20);
    let before = world.tables.find_inside(&key(host(1), 4000, 6, 0)).unwrap().1;
    world.now = Now(NOW.0 + (50 << Tick::SHIFT));
    for (room, services) in [
        ((100, 1000, 5000), format!("{}{other}", cgn("192.0.2.0/30"))),
        (ROOM, format!("{}{other}", cgn("192.0.2.0/28"))),
        (ROOM, format!("{siit}{other}{}", cgn("192.0.2.0/30"))),
        (ROOM, cgn("192.0.2.0/30")),
    ] {
        let (mut next, carried, told) = world.carried_to(plan(room, &services));
        assert_eq!((carried.bindings, carried.sessions, carried.ended), (40, 40, 0), "{services}");
        assert!(told.bindings.is_empty() && told.blocks.is_empty(), "{told:?}");
        let (number, _) = next.plan.numbered().find(|(_, service)| service.name == "cgn").unwrap();
        let after = next.tables.find_inside(&key(host(1), 4000, 6, number)).unwrap().1;
        assert_eq!(after.created, before.created, "a binding is as old as it was");
        assert_eq!(go_on(&mut next, &all), 20, "{services}");
        // And once more, from there.
        let (mut again, carried, _) = next.carried_to(world.plan.clone());
        assert_eq!((carried.bindings, go_on(&mut again, &all)), (40, 20));
    }
}

#[test]
fn what_left_the_pool_has_ended_and_the_rest_goes_on() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    let all = populate(&mut world, 20);
    let stays = |outside: &[(Ipv4Addr, u16); 2]| outside[0].0 <= Ipv4Addr::new(192, 0, 2, 1);
    let staying = all.values().filter(|outside| stays(outside)).count();
    assert!((1..20).contains(&staying), "the test needs both");
    let (mut next, carried, told) = world.carried_to(plan(ROOM, &cgn("192.0.2.0/31")));
    assert_eq!((carried.bindings, carried.ended), (2 * staying as u64, 2 * (20 - staying) as u64));
    assert_eq!(told.reasons(), [(Ended::Pool, 2 * (20 - staying))].into());
    assert_eq!(go_on(&mut next, &all), staying);

    // Fewer ports of all addresses, and fewer hosts inside.
    let fewer = nat44("cgn", "10.0.0.0/28", "{ addresses = \"192.0.2.0/30\", ports = \"1024-40000\" }", "");
    let (_, carried, told) = world.carried_to(plan(ROOM, &fewer));
    assert_eq!(told.reasons().get(&Ended::Host), Some(&10), "hosts 16 to 20");
    let lower = all.iter().filter(|(host, _)| host.octets()[3] < 16).flat_map(|(_, outside)| outside);
    assert_eq!(carried.bindings, lower.filter(|(_, port)| *port <= 40_000).count() as u64);
}

#[test]
fn bindings_of_other_protocols_go_on_where_they_are_translated() {
    let with = |further: &str| {
        nat44("cgn", "10.0.0.0/24", &addresses("192.0.2.1"), &format!("further_protocols = [{further}]"))
    };
    let mut world = World::new(plan(ROOM, &with("\"sctp\", \"udp-lite\", \"esp\"")));
    let sctp = |chunk: u8, [from, to]: [u16; 2]| {
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 0, chunk, 0, 0, 4]].concat()
    };
    let inside = v4(host(1), SERVER, Protocol::SCTP, &sctp(1, [4000, 80]));
    let [outside, _] = world.pass(&inside).unwrap();
    world.pass(&v4(SERVER, outside.0, Protocol::SCTP, &sctp(2, [80, outside.1]))).unwrap();
    world.pass(&packet(Protocol::UDP_LITE, (host(1), 5000), (SERVER, 53), 0)).unwrap();
    let esp = |from, to| v4(from, to, Protocol::ESP, &[0, 0, 1, 0, 0, 0, 0, 1]);
    world.pass(&esp(host(1), SERVER)).unwrap();
    world.now = Now(NOW.0 + (50 << Tick::SHIFT));
    let (mut next, carried, told) = world.carried_to(plan((60, 400, 900), &with("\"esp\", \"sctp\", \"udp-lite\"")));
    assert_eq!((carried.bindings, carried.sessions, carried.ended), (3, 3, 0), "{told:?}");
    let back = next.pass(&v4(SERVER, outside.0, Protocol::SCTP, &sctp(0, [80, outside.1])));
    assert_eq!(back.map(|[_, to]| to), Some((host(1), 4000)));
    assert_eq!(next.pass(&esp(SERVER, outside.0)).map(|[_, to]| to.0), Some(host(1)));
    assert_eq!(next.pass(&esp(host(2), SERVER)), None, "the address has its host");
    let (_, carried, told) = world.carried_to(plan(ROOM, &with("\"udp-lite\"")));
    assert_eq!((carried.bindings, told.reasons()), (1, [(Ended::Protocol, 1), (Ended::Pool, 1)].into()));
    // A port that the new configuration binds for TCP is not SCTP's any more.
    let fixed = format!(
        "{}static = [{{ inside = \"10.0.0.9:80\", outside = \"192.0.2.1:{}\", protocol = \"tcp\" }}]\n",
        with("\"sctp\", \"esp\", \"udp-lite\""),
        outside.1
    );
    let (next, carried, told) = world.carried_to(plan(ROOM, &fixed));
    assert_eq!((carried.bindings, told.reasons()), (2, [(Ended::Taken, 1)].into()));
    assert!(static_bindings::reconcile(&next.tables, &next.plan, NOW).is_empty());
}

#[test]
fn services_go_by_name_and_kind() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    populate(&mut world, 3);
    let renamed = nat44("home", "10.0.0.0/24", &addresses("192.0.2.0/30"), "");
    let stolen = format!(
        "{}{}",
        nat44("home", "10.0.0.0/24", &addresses("192.0.2.0/30"), ""),
        nat44("cgn", "10.0.1.0/24", &addresses("203.0.113.0/30"), "")
    );
    for (services, why) in [(renamed, Ended::Service), (stolen, Ended::Host)] {
        let (_, carried, told) = world.carried_to(plan(ROOM, &services));
        assert_eq!((carried.bindings, carried.sessions), (0, 0));
        assert_eq!(told.reasons(), [(why, 6)].into());
    }
}

#[test]
fn where_not_all_have_room_those_that_were_used_last_go_on() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    for n in 1..=20 {
        world.now = Now(NOW.0 + (u64::from(n) << Tick::SHIFT));
        world.udp((host(n), 5000)).unwrap();
    }
    let (next, carried, told) = world.carried_to(plan((50, 8, 1000), &cgn("192.0.2.0/30")));
    assert_eq!((carried.bindings, carried.ended), (8, 12));
    assert!(told.bindings.iter().all(|(host, _, why)| host.octets()[3] <= 12 && *why == Ended::Full), "{told:?}");
    assert_eq!(next.tables.bindings.count(), 8);

    // Sessions: connections that are open before others.
    let mut world = World::new(plan((50, 500, 4000), &cgn("192.0.2.0/30")));
    for port in 0..300 {
        world.pass(&packet(Protocol::TCP, (host(1), 6000), (SERVER, 1000 + port), SYN)).unwrap();
    }
    let open: Vec<_> = (1..=20).map(|n| (host(n), world.tcp((host(n), 4000)))).collect();
    let (mut next, carried, _) = world.carried_to(plan((50, 500, 40), &cgn("192.0.2.0/30")));
    // First sessions of connections lie in their bindings, which have room.
    assert!(carried.refused > 150, "{carried:?}");
    let alive = open.iter().filter(|(host, outside)| next.answer(*outside) == Some((*host, 4000))).count();
    assert_eq!(alive, 20);
}

#[test]
fn limits_of_the_new_plan_hold() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    for port in 0..10 {
        world.udp((host(1), 5000 + port)).unwrap();
    }
    world.udp((host(2), 5000)).unwrap();
    let rest = "bindings_per_subscriber = 4\nlimits = { sessions = 3 }";
    let limited = nat44("cgn", "10.0.0.0/24", &addresses("192.0.2.0/30"), rest);
    let (next, carried, told) = world.carried_to(plan(ROOM, &limited));
    assert_eq!((carried.bindings, carried.sessions, carried.refused), (5, 4, 1));
    assert_eq!(told.reasons(), [(Ended::Limit, 6)].into());
    let (id, _) = next
        .tables
        .find_subscriber(&tombolo_tables::subscriber::SubscriberKey { ipv4: host(1).octets(), ..Default::default() })
        .unwrap();
    assert_eq!((next.tables.subscribers.bindings(id), next.tables.subscribers.sessions(id)), (4, 3));
}

#[test]
fn blocks_stay_with_their_subscribers_or_have_ended() {
    let in_blocks = |pool: &str, size: u32, most: u32| {
        let rest = format!("allocation = {{ mode = \"blocks\", block_size = {size}, blocks = {most} }}");
        nat44("cgn", "10.0.0.0/24", &addresses(pool), &rest)
    };
    let mut world = World::new(plan(ROOM, &in_blocks("192.0.2.0/31", 64, 3)));
    let mut all = HashMap::new();
    for n in 1..=4 {
        for port in 0..100 {
            all.insert((n, port), world.udp((host(n), 5000 + port)).unwrap());
        }
    }
    let (mut next, carried, told) = world.carried_to(plan(ROOM, &in_blocks("192.0.2.0/28", 64, 3)));
    assert_eq!((carried.bindings, carried.ended, told.blocks.len()), (400, 0, 0));
    for ((n, port), outside) in &all {
        assert_eq!(next.udp((host(*n), 5000 + port)), Some(*outside));
    }
    // One block less for each: its bindings have ended, and so has it.
    let (next, carried, told) = world.carried_to(plan(ROOM, &in_blocks("192.0.2.0/31", 64, 1)));
    assert!(carried.bindings + carried.ended == 400 && carried.ended >= 4 * 36, "{carried:?}");
    assert_eq!(told.reasons().keys().collect::<Vec<_>>(), [&Ended::Allocation]);
    assert_eq!(told.blocks.len(), 4);
    assert_eq!(next.tables.subscribers.iter().map(|id| next.tables.subscribers.blocks(id).count()).sum::<usize>(), 4);
    // Larger blocks, in which at most one subscriber finds itself, and no blocks at all.
    let (_, carried, told) = world.carried_to(plan(ROOM, &in_blocks("192.0.2.0/31", 1024, 4)));
    assert!(carried.bindings > 0 && told.blocks.len() == 8, "{carried:?} {told:?}");
    let (_, carried, told) = world.carried_to(plan(ROOM, &cgn("192.0.2.0/31")));
    assert_eq!((carried.bindings, carried.ended, told.blocks.len()), (400, 0, 8));
}

#[test]
fn static_bindings_go_with_the_configuration_and_come_before_others() {
    let fixed = |port: u16| {
        let rest =
            format!("static = [{{ protocol = \"tcp\", inside = \"10.0.0.9:80\", outside = \"192.0.2.1:{port}\" }}]");
        nat44("cgn", "10.0.0.0/24", &addresses("192.0.2.1"), &rest)
    };
    let mut world = World::new(plan(ROOM, &fixed(8080)));
    let visitor = packet(Protocol::TCP, (SERVER, 1234), (Ipv4Addr::new(192, 0, 2, 1), 8080), SYN);
    assert_eq!(world.pass(&visitor).unwrap()[1], (host(9), 80));
    let free = world.udp((host(1), 5000)).unwrap();
    let binding = tombolo_engine::plan::StaticBinding {
        space: tombolo_engine::mapping::pool::PortSpace::Udp,
        softwire: std::net::Ipv6Addr::UNSPECIFIED,
        inside: host(8).into(),
        inside_port: tombolo_wire::Port(53),
        outside: tombolo_engine::mechanism::napt::Endpoint {
            address: Ipv4Addr::new(192, 0, 2, 1),
            port: tombolo_wire::Port(5353),
        },
    };
    static_bindings::add(&world.tables, 0, &world.plan.services[0], &binding, NOW).unwrap();

    let (next, carried, told) = world.carried_to(plan((50, 400, 900), &fixed(8080)));
    assert_eq!((carried.bindings, carried.sessions, carried.ended), (3, 2, 0), "{told:?}");
    assert!(static_bindings::reconcile(&next.tables, &next.plan, NOW).is_empty());
    // Another endpoint for the same host, and one that a dynamic binding has.
    let (next, carried, told) = world.carried_to(plan(ROOM, &fixed(8081)));
    assert_eq!((carried.bindings, told.reasons()), (2, [(Ended::Taken, 1)].into()));
    assert!(static_bindings::reconcile(&next.tables, &next.plan, NOW).is_empty());
    let taken = nat44(
        "cgn",
        "10.0.0.0/24",
        &addresses("192.0.2.1"),
        &format!("static = [{{ protocol = \"udp\", inside = \"10.0.0.7:80\", outside = \"192.0.2.1:{}\" }}]", free.1),
    );
    let (next, carried, told) = world.carried_to(plan(ROOM, &taken));
    assert_eq!(carried.bindings, 1, "the operator's");
    assert_eq!(told.reasons(), [(Ended::Taken, 1), (Ended::Configuration, 1)].into());
    assert!(static_bindings::reconcile(&next.tables, &next.plan, NOW).is_empty(), "the newcomer has its endpoint");
}

#[test]
fn what_is_kept_back_stays_kept_back() {
    let narrow =
        nat44("cgn", "10.0.0.0/24", "{ addresses = \"192.0.2.1\", ports = \"1024-1025\", protocols = [\"udp\"] }", "");
    let mut world = World::new(plan(ROOM, &narrow));
    let outside = world.udp((host(1), 5000)).unwrap();
    let (id, binding) = world.tables.find_inside(&key(host(1), 5000, 17, 0)).unwrap();
    let mut removal = Removal::new(&world.tables);
    assert!(removal.unbind(id, &binding, NOW.tick(), NOW.tick()));
    assert_eq!(removal.finish(), 1);
    let (mut next, ..) = world.carried_to(plan((40, 400, 900), &narrow));
    let other = next.udp((host(2), 5000)).unwrap();
    assert_ne!(other, outside);
    assert_eq!(next.udp((host(3), 5000)), None, "the other port is kept back");
    next.now = Now(NOW.0 + (130 << Tick::SHIFT));
    assert_eq!(next.udp((host(3), 5000)), Some(outside));
}

#[test]
fn what_happens_in_the_old_tables_meanwhile_is_carried_over_too() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    let first = world.tcp((host(1), 4000));
    let pending = packet(Protocol::TCP, (host(3), 4000), (SERVER, 80), SYN);
    let [waiting, _] = world.pass(&pending).unwrap();
    let next = World::new(plan(ROOM, &cgn("192.0.2.0/29")));
    let description = Description::parse(&described(&world.plan)).unwrap();
    let was = FormerPlan::parse(&description).unwrap();
    let former = FormerTables::open(&world.memory, &description).unwrap();
    let mut carry_over = CarryOver::new(former, was, Arc::clone(&next.tables), &next.plan);
    assert_eq!(carry_over.pass(NOW).bindings, 2);

    // The old programs go on: another binding, an answer to a SYN, the end of a connection.
    let second = world.tcp((host(2), 4000));
    world.pass(&packet(Protocol::TCP, (SERVER, 80), waiting, SYN | ACK)).unwrap();
    world.now = Now(NOW.0 + (9 << Tick::SHIFT));
    world.pass(&packet(Protocol::TCP, (SERVER, 80), first, FIN | ACK)).unwrap();
    let carried = carry_over.pass(world.now);
    assert_eq!((carried.bindings, carried.sessions), (3, 3));
    assert_eq!(audit::check(&next.tables), Vec::<String>::new());
    assert_eq!(sessions(&next.tables), sessions(&world.tables));
    let mut next = next;
    assert_eq!(next.answer(second), Some((host(2), 4000)));
}

/// State, flags that outlive the plan, and age of every session.
fn sessions(tables: &Tables) -> Vec<(State, u8, Tick)> {
    let mut found: Vec<_> = tables
        .each_session()
        .map(|session| (session.state, session.flags & (UNANSWERED | DOUBTED), session.seen))
        .collect();
    found.sort();
    found
}

#[test]
fn sessions_that_the_outside_opened_keep_to_their_budget_and_doubts_go_along() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    let outside = world.udp((host(1), 5000)).unwrap();
    for port in 0..5 {
        world.pass(&packet(Protocol::UDP, (SERVER, 1000 + port), outside, 0)).unwrap();
    }
    // The inside answers one of them.
    world.pass(&packet(Protocol::UDP, (host(1), 5000), (SERVER, 1000), 0)).unwrap();
    let reset = world.tcp((host(2), 4000));
    world.pass(&packet(Protocol::TCP, (SERVER, 80), reset, RST | ACK)).unwrap();
    let was = sessions(&world.tables);
    let having = |flag: u8| was.iter().filter(|(_, flags, _)| flags & flag != 0).count();
    assert_eq!((having(UNANSWERED), having(DOUBTED)), (4, 1), "{was:?}");

    let (next, carried, _) = world.carried_to(plan(ROOM, &cgn("192.0.2.0/29")));
    assert_eq!((carried.sessions, carried.refused), (7, 0));
    assert_eq!(sessions(&next.tables), was);
    let (id, _) = next.tables.find_inside(&key(host(1), 5000, 17, 0)).unwrap();
    assert_eq!(next.tables.bindings.unanswered(id), 4);

    let limited = nat44("cgn", "10.0.0.0/24", &addresses("192.0.2.0/30"), "limits = { unanswered_per_binding = 2 }");
    let (next, carried, _) = world.carried_to(plan(ROOM, &limited));
    assert_eq!((carried.sessions, carried.refused), (5, 2));
    let (id, _) = next.tables.find_inside(&key(host(1), 5000, 17, 0)).unwrap();
    assert_eq!(next.tables.bindings.unanswered(id), 2);
}

/// From sessions to none and back: a binding has the time that it had.
#[test]
fn bindings_keep_their_time_when_their_sessions_go_or_come() {
    let kept = nat44("cgn", "10.0.0.0/24", &addresses("192.0.2.0/30"), "");
    let without = nat44_without_sessions("cgn", "10.0.0.0/24", &addresses("192.0.2.0/30"));
    for (before, after) in [(&kept, &without), (&without, &kept), (&without, &without)] {
        let mut world = World::new(plan(ROOM, before));
        let outside = world.udp((host(1), 5000)).unwrap();
        world.now = Now(NOW.0 + (100 << Tick::SHIFT));
        world.pass(&packet(Protocol::UDP, (SERVER, 53), outside, 0)).unwrap();
        world.now = Now(NOW.0 + (150 << Tick::SHIFT));
        let (next, carried, _) = world.carried_to(plan((50, 400, 900), after));
        assert_eq!((carried.bindings, carried.ended), (1, 0));
        let (id, _) = next.tables.find_inside(&key(host(1), 5000, 17, 0)).unwrap();
        let (_, touched) = next.tables.bindings.read(id).unwrap();
        let sessions: Vec<_> = next.tables.each_session().map(|session| session.seen).collect();
        if after == &kept {
            // A packet makes a session on it, if it comes in time.
            assert!(sessions.is_empty());
        }
        // Without sessions the outside keeps it ahead.
        let ahead = if before == &without { LEAD } else { 0 };
        assert_eq!(touched, Tick(NOW.tick().0 + 100 + ahead), "{before} {after}");
    }
}

#[test]
fn an_answer_in_the_old_tables_meanwhile_takes_a_session_off_the_budget() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    let outside = world.udp((host(1), 5000)).unwrap();
    world.pass(&packet(Protocol::UDP, (SERVER, 1000), outside, 0)).unwrap();
    let next =
        World::new(plan(ROOM, &nat44("cgn", "10.0.0.0/24", &addresses("192.0.2.0/30"), "limits = { sessions = 9 }")));
    let description = Description::parse(&described(&world.plan)).unwrap();
    let was = FormerPlan::parse(&description).unwrap();
    let former = FormerTables::open(&world.memory, &description).unwrap();
    let mut carry_over = CarryOver::new(former, was, Arc::clone(&next.tables), &next.plan);
    carry_over.pass(NOW);
    let (id, binding) = next.tables.find_inside(&key(host(1), 5000, 17, 0)).unwrap();
    let subscriber = SubscriberId::new(binding.subscriber).unwrap();
    assert_eq!((next.tables.bindings.unanswered(id), next.tables.subscribers.sessions(subscriber)), (1, 1));
    world.pass(&packet(Protocol::UDP, (host(1), 5000), (SERVER, 1000), 0)).unwrap();
    carry_over.pass(NOW);
    assert_eq!((next.tables.bindings.unanswered(id), next.tables.subscribers.sessions(subscriber)), (0, 2));
    assert_eq!(sessions(&next.tables), sessions(&world.tables));
    assert_eq!(audit::check(&next.tables), Vec::<String>::new());
}

/// The same state in records that lie otherwise: as another version of this program might have them.
#[test]
fn tables_of_another_layout_are_read_by_their_description() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    let all = populate(&mut world, 20);
    let outside = world.udp((host(1), 5001)).unwrap();
    world.pass(&packet(Protocol::UDP, (SERVER, 999), outside, 0)).unwrap();
    let (text, memory) = in_another_layout(&world);
    let (mut next, carried, told) = world.carried_as(&text, &memory, plan(ROOM, &cgn("192.0.2.0/30")));
    assert_eq!((carried.bindings, carried.sessions, carried.ended), (41, 42, 0), "{told:?}");
    assert_eq!(sessions(&next.tables), sessions(&world.tables));
    let created = |world: &World| world.tables.find_inside(&key(host(1), 4000, 6, 0)).unwrap().1.created;
    assert_eq!(created(&next), created(&world));
    assert_eq!(go_on(&mut next, &all), 20);
}

/// Bindings of 96 bytes with their fields in another order, four sessions of 24 bytes after a word,
/// ticks of half the length, and states with other numbers.
fn in_another_layout(world: &World) -> (String, Kept) {
    let own = described(&world.plan);
    let mut lines: Vec<String> = own
        .lines()
        .filter(|line| {
            !["number HASH", "record binding ", "field binding.", "record session", "field session", "state "]
                .iter()
                .any(|start| line.starts_with(start))
        })
        .map(|line| match line {
            "number TICK_SHIFT 30" => "number TICK_SHIFT 29".to_owned(),
            "number BINDING_STATIC 1" => "number BINDING_STATIC 32".to_owned(),
            line if line.starts_with("number SESSION_STATE ") => "number SESSION_STATE 15".to_owned(),
            line if line.starts_with("number SESSION_PENDING ") => "number SESSION_PENDING 128".to_owned(),
            line if line.starts_with("number SESSION_UNANSWERED ") => "number SESSION_UNANSWERED 16".to_owned(),
            line if line.starts_with("number SESSION_DOUBTED ") => "shade light".to_owned(),
            line => line.to_owned(),
        })
        .collect();
    lines.extend(["number HASH 77", "colour red", "record binding 96"].map(String::from));
    let fields = [
        ("created", 8, 4),
        ("flags", 12, 2),
        ("service", 14, 1),
        ("protocol", 15, 1),
        ("outside_port", 20, 2),
        ("inside_port", 22, 2),
        ("outside4", 24, 4),
        ("inside4", 28, 4),
        ("inside", 32, 16),
        ("life", 56, 8),
        ("subscriber", 64, 4),
        ("mood", 72, 8),
    ];
    lines.extend(fields.map(|(name, offset, size)| format!("field binding.{name} {offset} {size}")));
    lines.extend(
        ["record session 24", "field session.seen 0 4", "field session.remote 4 4", "field session.word 16 8"]
            .map(String::from),
    );
    lines.extend(["record session_line 104", "field session_line.entry 8 96"].map(String::from));
    lines.extend(["state udp 6", "state established 1"].map(String::from));

    let mut memory = Kept(world.memory.0.clone());
    let count = world.tables.bindings.capacity() as usize + 1;
    let words: Slab<std::sync::atomic::AtomicU64> = Slab::take(&mut memory, "bindings", count * 12).unwrap();
    let put = |at: usize, bytes: &[u8]| {
        for (n, byte) in bytes.iter().enumerate() {
            let word = &words[(at + n) / 8];
            let mut old = word.load(std::sync::atomic::Ordering::Relaxed).to_ne_bytes();
            old[(at + n) % 8] = *byte;
            word.store(u64::from_ne_bytes(old), std::sync::atomic::Ordering::Relaxed);
        }
    };
    for id in world.tables.bindings.iter() {
        let (binding, seen) = world.tables.bindings.read(id).unwrap();
        let at = id.get() as usize * 96;
        put(at + 8, &(binding.created.0 * 2).to_ne_bytes());
        put(at + 14, &[binding.inside.service, binding.inside.protocol]);
        put(at + 20, &binding.outside_port);
        put(at + 22, &binding.inside.port);
        put(at + 24, &binding.outside_ipv4);
        put(at + 28, &binding.inside.ipv4);
        put(at + 56, &((u64::from(seen.0) * 2) << 32 | 2).to_ne_bytes());
        put(at + 64, &binding.subscriber.to_ne_bytes());
    }
    let all: Vec<_> = world.tables.each_session().collect();
    let lines_of_sessions = all.len().div_ceil(4);
    let sessions: Slab<std::sync::atomic::AtomicU64> =
        Slab::take(&mut memory, "sessions", lines_of_sessions * 13).unwrap();
    let _: Slab<std::sync::atomic::AtomicU64> = Slab::take(&mut memory, "sessions-overflow", 13).unwrap();
    for (line, of_line) in all.chunks(4).enumerate() {
        for (n, session) in of_line.iter().enumerate() {
            let at = line * 13 + 1 + n * 3;
            let state = if session.state.0 == 1 { 6 } else { 1 };
            let port = u64::from(u16::from_ne_bytes(session.key.remote_port)) << 16;
            let unanswered = if session.flags & UNANSWERED == 0 { 0 } else { 16 };
            let word = u64::from(session.key.binding.get()) << 32 | port | unanswered | state;
            let remote = u32::from_ne_bytes(session.key.remote_ipv4);
            let mut halves = [0; 8];
            halves[..4].copy_from_slice(&(session.seen.0 * 2).to_ne_bytes());
            halves[4..].copy_from_slice(&remote.to_ne_bytes());
            sessions[at].store(u64::from_ne_bytes(halves), std::sync::atomic::Ordering::Relaxed);
            sessions[at + 2].store(word, std::sync::atomic::Ordering::Relaxed);
        }
    }
    (lines.join("\n"), memory)
}

#[test]
fn a_description_that_lacks_something_says_what() {
    let world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    let text = described(&world.plan);
    for missing in ["field binding.outside4", "number LIFE_TOUCHED", "record session_line", "number TICK_SHIFT"] {
        let without: Vec<&str> = text
            .lines()
            .filter(|line| {
                !line.starts_with(missing) && (missing != "record session_line" || !line.contains("session_line"))
            })
            .collect();
        let description = Description::parse(&without.join("\n")).unwrap();
        let error = FormerTables::open(&world.memory, &description).unwrap_err().to_string();
        assert!(error.contains(missing.split(' ').next_back().unwrap()), "{missing}: {error}");
    }
    let description = Description::parse(&text).unwrap();
    let error = FormerTables::open(&Kept::default(), &description).unwrap_err().to_string();
    assert!(error.contains("is missing"), "{error}");
}

#[test]
fn what_hosts_have_asked_for_goes_on_with_its_holder_and_its_time() {
    let mut world = World::new(plan(ROOM, &cgn("192.0.2.0/30")));
    let lent: Vec<Lease> = [(1, 1000), (2, 10)]
        .into_iter()
        .map(|(number, ticks)| {
            world.udp((host(number), 5000)).unwrap();
            let inside = key(host(number), 5000, 17, 0);
            let subscriber = world.tables.find_inside(&inside).unwrap().1.subscriber;
            let expires = Tick(NOW.tick().0 + ticks);
            let (purpose, before) = (Use::Anybody, Before::Dynamic);
            let lease = Lease { inside, purpose, nonce: [7; 12], expires, before, subscriber };
            assert!(world.tables.leases.open().add(&lease, NOW.tick()).is_some());
            assert!(give_flags(&world.tables, &inside, purpose.flags(), NOW.tick()));
            lease
        })
        .collect();
    world.tables.leases.set_since(123);
    world.now = Now(NOW.0 + (50 << Tick::SHIFT));
    let other = nat44("other", "10.1.0.0/24", &addresses("203.0.113.0/28"), "");
    let (next, carried, _) = world.carried_to(plan((100, 1000, 5000), &format!("{other}{}", cgn("192.0.2.0/28"))));
    assert_eq!((carried.bindings, next.tables.leases.count(), next.tables.leases.since()), (2, 1, 123));
    let found = |number| next.tables.find_inside(&key(host(number), 5000, 17, 1)).unwrap().1;
    assert_eq!((found(1).flags, found(2).flags), (Use::Anybody.flags(), 0), "what is over is a binding as any");
    let there: Vec<Lease> = next.tables.leases.iter().collect();
    assert_eq!(there, [Lease { inside: found(1).inside, subscriber: found(1).subscriber, ..lent[0] }]);
}
