//! Shortcuts (`bpf/shortcut.h`): plans whose bindings live long enough for them, and what ends them.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::napt::{Policy, SubscriberIs, Times};
use tombolo_engine::mechanism::session_state::Timeouts;
use tombolo_fastpath::trial::Trial;
use tombolo_tables::binding::{Binding, BindingId, InsideKey};
use tombolo_tables::outside::Slot;
use tombolo_tables::shortcut::LEAD;
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::tables::Candidate;
use tombolo_tables::tick::Tick;

use crate::Program;
use crate::packets::datagram;
use crate::plans::{Case, OTHER_POOL, POOL, both_case};
use crate::portions::in_blocks;
use crate::world::{World, tick};

pub(crate) fn cases() -> Vec<Case> {
    let prefixes = Policy { subscriber: SubscriberIs::Host { prefix_length: 64 }, ..Policy::default() };
    vec![
        lasting(both_case("shortcuts: nat64 and nat44", [0, 1], Policy::default())),
        lasting(both_case("shortcuts: nat64 and nat44, prefixes", [4, 2], prefixes)),
        in_blocks(lasting(both_case("shortcuts: nat64 and nat44, blocks", [0, 1], Policy::default()))),
    ]
}

/// The same, where bindings of UDP live for five minutes.
fn lasting((name, mut plan, build): Case) -> Case {
    plan.times = Times::new(&Timeouts { udp: 300, ..Timeouts::default() }, 10);
    (name, plan, build)
}

const REMOTE: (Ipv4Addr, u16) = (Ipv4Addr::new(8, 8, 8, 8), 5000);
const PORT: u16 = 1030;

/// A service of the plan with one outside endpoint, which hosts have one after the other.
struct Endpoint<'w> {
    world: &'w mut World,
    program: Program,
    place: usize,
    outside: Ipv4Addr,
    slot: u32,
}

impl Endpoint<'_> {
    /// Gives it to a host.
    fn bind(&self, host: u8) {
        let nat = self.world.plan.services[self.place].kind.nat().unwrap();
        let mut inside = InsideKey {
            port: [9, host],
            protocol: 17,
            service: self.world.plan.services[self.place].number,
            ..InsideKey::default()
        };
        if self.place == 0 {
            inside.ipv6 = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host.into()).octets();
        } else {
            inside.ipv4 = [10, 0, 0, host];
        }
        let (tables, now) = (&self.world.tables, Tick(tick()));
        let subscriber = Subscriber { key: nat.policy.subscriber.key(&inside), outside_ipv4: self.outside.octets() };
        let (id, _) = tables.admit(&subscriber, now).unwrap();
        let binding = Binding { inside, subscriber: id.get(), ..Binding::default() };
        let candidate = Candidate { slot: self.slot, ipv4: self.outside.octets(), port: PORT.to_be_bytes() };
        tables.bind(&binding, [candidate], 0, now).unwrap();
    }

    /// The binding that has it.
    fn owner(&self) -> BindingId {
        let Slot::Taken(id) = self.world.tables.outside.read(self.slot) else { panic!("nobody has the endpoint") };
        id
    }

    /// The last byte of the host that a datagram comes to; none if it is passed on.
    fn host(&mut self) -> Option<u8> {
        let frame = datagram(REMOTE, (self.outside, PORT));
        let result = match self.program {
            Program::Xdp => self.world.trials.xdp(&frame),
            Program::Tc => self.world.trials.tc(&frame),
        };
        let Trial::Translated(bytes) = result.unwrap() else { return None };
        let (address, port) = if self.place == 0 { (14 + 39, 14 + 42) } else { (14 + 19, 14 + 22) };
        assert_eq!(bytes[port..port + 2], [9, bytes[address]], "address and port are of one host");
        Some(bytes[address])
    }

    /// The same, while the tables know nothing of the endpoint.
    fn host_by_shortcut(&mut self) -> Option<u8> {
        let tables = self.world.copy();
        self.world.forget_slots();
        let host = self.host();
        self.world.put_back(&tables);
        host
    }
}

/// For each of two programs, and the services at these places of a plan.
fn for_each_endpoint(case: usize, places: std::ops::Range<usize>, name: &str, run: impl Fn(Endpoint<'_>)) {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: shortcuts of the programs need root");
        return;
    }
    let (_, plan, _) = cases().remove(case);
    for place in places {
        let outside = [POOL, OTHER_POOL][place];
        for program in [Program::Xdp, Program::Tc] {
            let name = format!("{}-{name}-{place}{program:?}", std::process::id());
            // One in which changes are not noted.
            let name = if name.len().is_multiple_of(2) { format!("{name}-") } else { name };
            let mut world = World::new(&plan, &name);
            let pool = world.plan.services[place].kind.pool().unwrap();
            let slot = pool.slot(outside, PortSpace::Udp, PORT).unwrap();
            run(Endpoint { world: &mut world, program, place, outside, slot });
            world.check();
        }
    }
}

#[test]
fn a_datagram_after_another_needs_no_binding() {
    for_each_endpoint(0, 0..2, "short", |mut endpoint| {
        endpoint.bind(2);
        assert_eq!(endpoint.host_by_shortcut(), None, "nobody has come yet");
        assert_eq!(endpoint.host(), Some(2));
        assert_eq!(endpoint.host_by_shortcut(), Some(2));
        let (_, touched) = endpoint.world.tables.bindings.read(endpoint.owner()).unwrap();
        assert!(touched >= Tick(tick() + LEAD - 1), "kept ahead: {touched:?}");
    });
}

#[test]
fn a_shortcut_ends_with_its_binding() {
    for_each_endpoint(0, 0..2, "ends", |mut endpoint| {
        endpoint.bind(2);
        assert_eq!(endpoint.host(), Some(2));
        assert_eq!(endpoint.host_by_shortcut(), Some(2));
        endpoint.world.remove(endpoint.owner());
        assert_eq!(endpoint.host(), None, "its binding is gone");
        endpoint.bind(3);
        assert_eq!(endpoint.host(), Some(3), "another host has the endpoint");
        // Words that are as old as the one that has ended hold no more, whosever they are.
        let now = tick();
        while tick() == now {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(endpoint.host_by_shortcut(), None);
        assert_eq!(endpoint.host(), Some(3));
        assert_eq!(endpoint.host_by_shortcut(), Some(3));
    });
}

#[test]
fn no_shortcut_leads_to_one_of_many_that_are_one_subscriber() {
    for_each_endpoint(1, 0..1, "many", |mut endpoint| {
        endpoint.bind(2);
        assert_eq!(endpoint.host(), Some(2));
        assert_eq!(endpoint.host_by_shortcut(), None);
    });
}
