//! Bindings that packets make one after the other (`bpf/ahead.h`): what the programs look at ahead of a packet changes nothing of what it
//! gets.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use tombolo_engine::mechanism::napt::Policy;
use tombolo_fastpath::trial::Trial;
use tombolo_tables::binding::InsideKey;
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::tick::Tick;

use crate::Program;
use crate::packets::datagram;
use crate::plans::{Case, OTHER_POOL, both_case};
use crate::world::{World, tick};

const REMOTE: (Ipv4Addr, u16) = (Ipv4Addr::new(8, 8, 8, 8), 5000);
/// Where its NAT44 stands in a plan.
const NAT44: usize = 1;
const HOSTS: u8 = 3;
/// Of each host; fewer than a draw has to look for.
const BINDINGS: u16 = 6;

type Endpoint = (Ipv4Addr, u16);

/// How a datagram of a host leaves; none if it is passed on.
fn outside_of(world: &mut World, program: Program, inside: Endpoint) -> Option<Endpoint> {
    let frame = datagram(inside, REMOTE);
    let result = match program {
        Program::Xdp => world.trials.xdp(&frame),
        Program::Tc => world.trials.tc(&frame),
    };
    let Trial::Translated(bytes) = result.unwrap() else { return None };
    let address = <[u8; 4]>::try_from(&bytes[14 + 12..14 + 16]).unwrap();
    Some((address.into(), u16::from_be_bytes([bytes[14 + 20], bytes[14 + 21]])))
}

fn admit(world: &World, host: Ipv4Addr) {
    let service = &world.plan.services[NAT44];
    let inside = InsideKey { ipv4: host.octets(), protocol: 17, service: service.number, ..InsideKey::default() };
    let key = service.kind.nat().unwrap().policy.subscriber.key(&inside);
    let subscriber = Subscriber { key, outside_ipv4: OTHER_POOL.octets() };
    world.tables.admit(&subscriber, Tick(tick())).unwrap();
}

fn of_several_hosts(name: &str, hits: usize, (_, plan, _): Case) {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: bindings made by the programs need root");
        return;
    }
    for program in [Program::Xdp, Program::Tc] {
        let mut world = World::new(&plan, &format!("{}-{name}-{program:?}", std::process::id()));
        let hosts: Vec<Ipv4Addr> = (2..2 + HOSTS).map(|host| Ipv4Addr::new(10, 0, 0, host)).collect();
        hosts.iter().for_each(|host| admit(&world, *host));
        let mut known: HashMap<Endpoint, Endpoint> = HashMap::new();
        for port in 2000..2000 + BINDINGS {
            for host in &hosts {
                // The port that was drawn may be another one's: then it is the engine's, or drawn again.
                let outside = (0..20).find_map(|_| outside_of(&mut world, program, (*host, port)));
                let outside = outside.unwrap_or_else(|| panic!("{program:?}: no binding for {host} port {port}"));
                assert_eq!(outside.0, OTHER_POOL);
                assert!(known.values().all(|other| *other != outside), "{program:?}: {outside:?} is given out twice");
                known.insert((*host, port), outside);
                // What is expected then comes to nothing, and what was drawn for it is another host's.
                for (inside, outside) in known.iter().take(hits) {
                    assert_eq!(outside_of(&mut world, program, *inside), Some(*outside), "{program:?}");
                }
            }
        }
        world.check();
    }
}

#[test]
fn bindings_in_a_row_are_as_different_as_others() {
    of_several_hosts("row", 0, both_case("", [0, 1], Policy::default()));
}

#[test]
fn bindings_among_packets_that_have_one_are_too() {
    of_several_hosts("mixed", 3, both_case("", [0, 1], Policy::default()));
}
