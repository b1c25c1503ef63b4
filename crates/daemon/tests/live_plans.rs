//! A plan takes another one's place over the same tables: what both allow stays where it is, and what the
//! new one does not allow ends.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use tombolo_engine::layout::{self, Misfit};
use tombolo_engine::settle::{Count, Ended, Loss, foresee, settle};
use tombolo_engine::{Plan, static_bindings};
use tombolo_tables::audit;

mod packets;
mod world;

use world::{ROOM, World, addresses, cgn, go_on, host, key, nat44, plan, populate};

/// A world whose tables have room for more than its plan.
fn spread(services: &str) -> World {
    let mut plan = plan(ROOM, services);
    layout::spread(&mut plan, 16);
    World::new(plan)
}

/// The plan of `services` takes the place of the one in force: what has ended.
fn reload(world: &mut World, services: &str) -> Result<BTreeMap<Loss, Count>, Misfit> {
    let mut next = plan(ROOM, services);
    layout::follow(&mut next, &world.plan)?;
    let foreseen = foresee(&world.tables, &world.plan, &next);
    let former = std::mem::replace(&mut world.plan, next);
    let mut told = 0;
    let ended = settle(&world.tables, &former, &world.plan, world.now, &mut |_| told += 1);
    assert_eq!(foreseen, ended);
    assert_eq!(told, ended.values().map(|count| count.bindings).sum::<u64>());
    assert_eq!(audit::check(&world.tables), Vec::<String>::new());
    assert_eq!(settle(&world.tables, &former, &world.plan, world.now, &mut |_| ()), BTreeMap::new());
    Ok(ended)
}

fn number(plan: &Plan, name: &str) -> u8 {
    plan.services.iter().find(|service| service.name == name).unwrap().number
}

#[test]
fn pools_and_services_come_go_and_stand_elsewhere_and_nobody_notices() {
    let siit = "[[service]]\nkind = \"siit\"\nprefix = \"2001:db8:64::/96\"\n";
    let other = nat44("other", "10.1.0.0/24", &addresses("203.0.113.0/28"), "");
    let mut world = spread(&format!("{other}{}", cgn("192.0.2.0/30")));
    let all = populate(&mut world, 20);
    let split = "{ addresses = \"192.0.2.0/31\", ports = \"512-65535\" }, { addresses = \"192.0.2.2-192.0.2.9\" }";
    for services in [
        cgn("192.0.2.0/30"),
        format!("{siit}{}{other}", cgn("192.0.2.0/29")),
        nat44("cgn", "10.0.0.0/16", split, ""),
        format!(
            "{}{other}",
            cgn("192.0.0.0/22").replace("}]", ", ports = \"1024-65000\" }]").replace("192.0.0.0/22", "192.0.2.0/28")
        ),
    ] {
        // A port that is not handed out any more ends what is there.
        let before = all.len();
        let ended = reload(&mut world, &services).unwrap();
        let ports: u64 = ended.values().map(|count| count.bindings).sum();
        let ports = usize::try_from(ports).unwrap();
        assert!(ended.keys().all(|loss| loss.why == Ended::Pool) && ports <= 2, "{services}: {ended:?}");
        assert!(go_on(&mut world, &all) >= before - ports, "{services}");
        assert_eq!(number(&world.plan, "cgn"), 1, "its number stays");
    }
}

#[test]
fn what_left_the_pool_ends_and_its_hosts_begin_anew_elsewhere() {
    let mut world = spread(&cgn("192.0.2.0/30"));
    let all = populate(&mut world, 20);
    let stays = |outside: &[(Ipv4Addr, u16); 2]| outside[0].0 <= Ipv4Addr::new(192, 0, 2, 1);
    let staying = all.values().filter(|outside| stays(outside)).count();
    assert!((1..20).contains(&staying), "the test needs both");
    let ended = reload(&mut world, &cgn("192.0.2.0/31")).unwrap();
    let gone = 2 * (20 - staying as u64);
    let loss =
        Loss { service: 0, why: Ended::Pool, addresses: (Ipv4Addr::new(192, 0, 2, 0), Ipv4Addr::new(192, 0, 2, 3)) };
    assert_eq!(ended, [(loss, Count { bindings: gone, sessions: gone })].into());
    assert_eq!(go_on(&mut world, &all), staying);
    for (host, outside) in &all {
        if !stays(outside) {
            assert!(world.udp((*host, 5000)).unwrap().0 <= Ipv4Addr::new(192, 0, 2, 1), "{host} has another address");
        }
    }
    // Fewer hosts inside.
    let ended = reload(&mut world, &nat44("cgn", "10.0.0.0/28", &addresses("192.0.2.0/31"), "")).unwrap();
    assert!(ended.keys().all(|loss| loss.why == Ended::Host), "{ended:?}");
    assert!(world.tables.find_inside(&key(host(15), 5000, 17, 0)).is_some());
    assert!(world.tables.find_inside(&key(host(16), 5000, 17, 0)).is_none());
}

#[test]
fn a_service_that_is_removed_ends_and_its_number_is_nobody_elses_for_long() {
    let other = |name: &str| nat44(name, "10.1.0.0/24", &addresses("203.0.113.0/30"), "");
    let mut world = spread(&format!("{}{}", other("a"), cgn("192.0.2.0/30")));
    let all = populate(&mut world, 5);
    world.udp((Ipv4Addr::new(10, 1, 0, 1), 4000)).unwrap();
    for round in 0..300_u32 {
        // Its addresses are the next one's at once.
        let name = format!("s{round}");
        let ended = reload(&mut world, &format!("{}{}", cgn("192.0.2.0/30"), other(&name))).unwrap();
        assert_eq!(ended.values().map(|count| count.bindings).sum::<u64>(), 1, "{round}: {ended:?}");
        assert!(ended.keys().all(|loss| loss.why == Ended::Service));
        let was = world.plan.retired.last().unwrap();
        assert_eq!(was.name, if round == 0 { "a".to_owned() } else { format!("s{}", round - 1) });
        assert_eq!(world.plan.service_ever(was.number).unwrap().name, was.name, "it can still be named");
        assert_ne!(number(&world.plan, &name), was.number);
        world.udp((Ipv4Addr::new(10, 1, 0, 1), 4000)).unwrap();
    }
    assert_eq!(go_on(&mut world, &all), 5);
    assert!(world.plan.retired.len() <= 254);
}

/// RFC 7596 section 5.1.
#[test]
fn another_port_set_ends_what_lies_outside_of_it() {
    let lwb4 = |psid: &str| {
        format!(
            "[[service]]\nkind = \"lwb4\"\ninside = [\"10.0.0.0/24\"]\nipv4 = \"192.0.2.10\"\naftr = \"2001:db8::2\"\n\
             address = \"2001:db8::1\"\n{psid}\n"
        )
    };
    let mut world = spread(&lwb4("psid_length = 2\npsid = 1"));
    let bind = |world: &mut World| -> Vec<u16> {
        for n in 1..=50 {
            world.udp((host(n), 5000));
        }
        let bindings = world.tables.bindings.iter().filter_map(|id| world.tables.bindings.read(id));
        bindings.map(|(binding, _)| u16::from_be_bytes(binding.outside_port)).collect()
    };
    let ports = bind(&mut world);
    assert!(ports.len() == 50 && ports.iter().all(|port| (0x4000..0x8000).contains(port)), "{ports:?}");
    // Half of the set.
    let staying = ports.iter().filter(|port| **port < 0x6000).count() as u64;
    assert!((1..50).contains(&staying), "the test needs both");
    let ended = reload(&mut world, &lwb4("psid_length = 3\npsid = 2")).unwrap();
    assert!(ended.iter().all(|(loss, _)| loss.why == Ended::Pool), "{ended:?}");
    assert_eq!(ended.values().map(|count| count.bindings).sum::<u64>(), 50 - staying);
    // Another one.
    let ended = reload(&mut world, &lwb4("psid_length = 2\npsid = 2")).unwrap();
    assert_eq!(ended.values().map(|count| count.bindings).sum::<u64>(), staying);
    let ports = bind(&mut world);
    assert!(ports.len() == 50 && ports.iter().all(|port| (0x8000..0xc000).contains(port)), "{ports:?}");
}

#[test]
fn ports_in_other_portions_are_another_service_to_the_tables() {
    let blocks = "allocation = { mode = \"blocks\", block_size = 256 }\n";
    let with = |rest: &str| nat44("cgn", "10.0.0.0/24", &addresses("192.0.2.0/30"), rest);
    let mut world = spread(&with(""));
    populate(&mut world, 3);
    let ended = reload(&mut world, &with(blocks)).unwrap();
    assert_eq!(
        ended.iter().map(|(loss, count)| (loss.why, count.bindings)).collect::<Vec<_>>(),
        [(Ended::Allocation, 6)]
    );
    let all = populate(&mut world, 20);
    // In the same portions, with more and with less.
    for pool in ["192.0.2.0/29", "192.0.2.0/30"] {
        let ended = reload(&mut world, &nat44("cgn", "10.0.0.0/24", &addresses(pool), blocks)).unwrap();
        assert_eq!((ended, go_on(&mut world, &all)), (BTreeMap::new(), 20));
    }
    // A range that is split: blocks stay where they are, and whoever comes gets others.
    let pool = "{ addresses = \"192.0.2.0\" }, { addresses = \"192.0.2.1-192.0.2.3\" }";
    let split = nat44("cgn", "10.0.0.0/24", pool, blocks);
    assert_eq!((reload(&mut world, &split).unwrap(), go_on(&mut world, &all)), (BTreeMap::new(), 20));
    for n in 21..=60 {
        world.udp((host(n), 5000));
    }
    assert_eq!(audit::check(&world.tables), Vec::<String>::new());
    assert_eq!(go_on(&mut world, &all), 20);
}

#[test]
fn any_port_of_an_address_may_be_bound() {
    let fixed = |port: u16| {
        format!("static = [{{ inside = \"10.0.0.9:80\", outside = \"192.0.2.1:{port}\", protocol = \"tcp\" }}]")
    };
    let with =
        |rest: &str| nat44("cgn", "10.0.0.0/24", "{ addresses = \"192.0.2.0/30\", ports = \"20000-20099\" }", rest);
    let mut world = spread(&with(""));
    let all = populate(&mut world, 10);
    for port in [80, 443, 65_535, 1] {
        let before = world.tables.bindings.count();
        reload(&mut world, &with(&fixed(port))).unwrap();
        assert_eq!(static_bindings::reconcile(&world.tables, &world.plan, world.now), []);
        let there = world.tables.find_inside(&key(host(9), 80, 6, 0)).unwrap().1;
        assert_eq!(u16::from_be_bytes(there.outside_port), port);
        assert_eq!(world.tables.bindings.count(), before.max(21), "the one before is gone");
        assert_eq!(go_on(&mut world, &all), 10);
    }
}

#[test]
fn what_has_no_room_is_refused_and_changes_nothing() {
    let mut world = spread(&cgn("192.0.2.0/30"));
    let all = populate(&mut world, 5);
    let misfit = reload(&mut world, &cgn("192.0.2.0/26")).unwrap_err();
    assert!(matches!(misfit, Misfit::Room { .. }), "{misfit}");
    assert_eq!(go_on(&mut world, &all), 5);
    assert_eq!(reload(&mut world, &cgn("192.0.2.0/28")).unwrap(), BTreeMap::new());

    // Many addresses with few ports each have slots for these alone.
    let few = |ports: &str| {
        nat44("cgn", "10.0.0.0/24", &format!("{{ addresses = \"192.0.2.0/26\", ports = \"{ports}\" }}"), "")
    };
    let mut world = spread(&few("2048-3071"));
    assert_eq!(reload(&mut world, &few("2048-2559")).unwrap(), BTreeMap::new());
    let misfit = reload(&mut world, &few("2048-4095")).unwrap_err();
    assert!(misfit.to_string().contains("ports 2048 to 3071 of 192.0.2.0"), "{misfit}");
}

/// Numbers that are the same in each run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u8) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u8::try_from(self.0 % u64::from(end)).unwrap()
    }
}

/// Pools of random pieces, one plan after the other: no slot is ever two endpoints', and what goes on is
/// found where it was.
#[test]
fn random_plans_follow_each_other() {
    let mut random = Numbers(7);
    let mut world = spread(&cgn("192.0.2.0/28"));
    let mut all = populate(&mut world, 40);
    let (mut reloads, mut lost) = (0, 0);
    for round in 0..400 {
        let mut pool = Vec::new();
        let mut next: u8 = random.below(3);
        while next < 28 {
            let length = (1 + random.below(11)).min(28 - next);
            let ports = ["1024-65535", "512-65535", "1-65535", "1024-50000"][usize::from(random.below(4))];
            pool.push(format!(
                "{{ addresses = \"192.0.2.{next}-192.0.2.{}\", ports = \"{ports}\" }}",
                next + length - 1
            ));
            next += length + random.below(3) / 2;
        }
        let cgn = nat44("cgn", "10.0.0.0/24", &pool.join(", "), "");
        let other = nat44("other", "10.1.0.0/24", &addresses("203.0.113.0/31"), "");
        let services = match random.below(3) {
            0 => cgn,
            1 => format!("{other}{cgn}"),
            _ => format!("{cgn}{other}"),
        };
        let Ok(ended) = reload(&mut world, &services) else { continue };
        reloads += 1;
        lost += ended.values().map(|count| count.bindings).sum::<u64>();
        let mut slots: Vec<_> = world.plan.ranges().map(|range| (range.first_slot, range.slots().unwrap())).collect();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "round {round}: {slots:?}");
        assert!(slots.last().is_none_or(|last| last.0 + last.1 <= world.plan.capacity.outside_slots));
        all.retain(|host, _| world.tables.find_inside(&key(*host, 4000, 6, number(&world.plan, "cgn"))).is_some());
        all.retain(|host, _| world.tables.find_inside(&key(*host, 5000, 17, number(&world.plan, "cgn"))).is_some());
        assert_eq!(go_on(&mut world, &all), all.len(), "round {round}");
        if all.len() < 10 {
            let n = all.len();
            all = populate(&mut world, 40);
            assert!(all.len() > n);
        }
    }
    println!("{reloads} reloads, {lost} bindings ended");
    assert!(reloads > 200 && lost > 100);
}
