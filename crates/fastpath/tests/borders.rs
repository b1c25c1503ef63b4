//! A customer's edge and a border device without state, both in TC and without any engine: what
//! arrives came through the programs, super-packets whole.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use tombolo_engine::Plan;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::eam::{Eam, EamTable};
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::map_domain::MapDomain;
use tombolo_engine::mapping::map_rule::MapRule;
use tombolo_engine::mapping::port_set::PortDivision;
use tombolo_engine::mapping::softwire_table::{SoftwireRow, SoftwireTable};
use tombolo_engine::mapping::stateless::{DenyList, StatelessMap};
use tombolo_engine::mechanism::napt::Times;
use tombolo_engine::mechanism::{Softwire, SoftwireSettings, TranslateSettings};
use tombolo_engine::plan::{OwnAddresses, Service, ServiceKind};
use tombolo_engine::service::b4::B4;
use tombolo_engine::service::lwaftr::Lwaftr;
use tombolo_engine::service::map_e_br::MapEBr;
use tombolo_engine::service::map_t_br::MapTBr;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_fastpath::{FastPath, Mode, PinnedMemory, Settings};
use tombolo_lab::{Lab, Namespace, Peer, Topology};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::lpm::Prefix;
use tombolo_tables::tables::Capacity;
use tombolo_wire::Prefix64;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const BORDER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xaf, 0, 0, 0, 0, 1);
const BODY: usize = 8_000_000;

/// The programs of one box, and what they lie in.
struct Device {
    fast_path: FastPath,
    plan: Plan,
    directory: PathBuf,
    _tables: Tables,
    _memory: PinnedMemory,
}

impl Device {
    fn start(lab: &Lab, node: &str, interfaces: [&str; 2], kind: ServiceKind) -> Self {
        let directory = PathBuf::from(format!("/sys/fs/bpf/{}-{node}", lab.id()));
        let mut memory = PinnedMemory::open(&directory, "lab").unwrap();
        let plan = Plan {
            services: vec![Service::new(0, node, kind)],
            retired: Vec::new(),
            cluster: None,
            rows: tombolo_engine::row::Rows::default(),
            times: Times::default(),
            capacity: Capacity { subscribers: 10, bindings: 100, sessions: 100, outside_slots: 16, leases: 0 },
            pcp: Default::default(),
            own: OwnAddresses::default(),
        };
        let tables = Tables::new(&mut memory, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap();
        let mut fast_path = FastPath::load(&memory, &tables, &plan, Settings::default()).unwrap();
        assert_eq!(fast_path.services()[0].left_to_engine, None);
        lab.node(node).unwrap().run(|| interfaces.map(|name| fast_path.attach(name, Mode::Tc).unwrap())).unwrap();
        Self { fast_path, plan, directory, _tables: tables, _memory: memory }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = PinnedMemory::remove(&self.directory);
    }
}

fn ipv4(node: &Namespace, via: &str) {
    // No engine tells the senders how much fits.
    let words = ["route", "replace", "default", "via", via, "advmss", "1300"];
    node.command("ip").args(words).run().unwrap().success().unwrap();
}

fn download(lab: &Lab) -> String {
    let words = ["-s", "-m", "20", "-o", "/dev/null", "-w", "%{size_download}", "http://198.51.100.2:8080/"];
    lab.node("client").unwrap().command("curl").args(words).run().unwrap().stdout.trim().to_owned()
}

fn crosses(edge: ServiceKind, border: ServiceKind) {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: network namespaces need root");
        return;
    }
    let lab = Lab::create(&Topology::client_cpe_gateway_server()).unwrap();
    ipv4(lab.node("client").unwrap(), "10.0.0.1");
    let server = lab.node("server").unwrap();
    ipv4(server, "198.51.100.1");
    let edge = Device::start(&lab, "cpe", ["inside0", "core0"], edge);
    let mut border = Device::start(&lab, "gateway", ["core0", "outside0"], border);
    let address: SocketAddr = "198.51.100.2:8080".parse().unwrap();
    let _peer = Peer::http(server, address, vec![b'x'; BODY]).unwrap();
    let told = |border: &Device| format!("{:?} {:?}", edge.fast_path.counters(), border.fast_path.counters());
    assert_eq!(download(&lab), BODY.to_string(), "{}", told(&border));
    let counters = border.fast_path.counters().unwrap();
    let forwarded = counters.forwarded();
    let (packets, bytes) = (forwarded.packets[1], forwarded.bytes[1]);
    assert!(forwarded.packets[0] > 5 && bytes >= BODY as u64, "{}", told(&border));
    assert!(bytes / packets > 3000, "super-packets cross whole: {bytes} bytes in {packets} packets");
    // Another table in place of this one.
    let plan = border.plan.clone();
    lab.node("gateway").unwrap().run(|| border.fast_path.update(&plan, Settings::default()).unwrap()).unwrap();
    assert_eq!(download(&lab), BODY.to_string(), "after a reload: {}", told(&border));
}

fn b4(local: Ipv6Addr) -> ServiceKind {
    let inside = AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 0, 0, 255)]);
    let ends = Softwire { local, remote: BORDER };
    let softwire = SoftwireSettings::default();
    ServiceKind::B4(B4 { inside, ends, far_end: None, softwire, icmp_source: Ipv4Addr::new(192, 0, 0, 2) })
}

/// One subscriber with the client's whole address.
fn domain() -> MapDomain {
    let ipv6 = Prefix::covering(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0).to_bits(), 64);
    MapDomain::new(vec![MapRule::new(ipv6, Prefix::covering(CLIENT.to_bits(), 32), 0, 6, None).unwrap()]).unwrap()
}

fn map_address() -> Ipv6Addr {
    let domain = domain();
    let rule = domain.rules()[0];
    rule.map_address(rule.share_of(CLIENT, 0).unwrap())
}

/// Before Linux 6.3 TC leaves what comes out of a softwire to the engine, and here is none.
fn skip_before_6_3(test: &str) -> bool {
    let (major, minor) = tombolo_lab::kernel();
    if (major, minor) < (6, 3) {
        println!("SKIPPED: {test}: Linux {major}.{minor} cannot take the header of a softwire off in TC (6.3 can)");
    }
    (major, minor) < (6, 3)
}

#[test]
fn tcp_crosses_the_softwire_between_b4_and_lwaftr() {
    if skip_before_6_3("tcp_crosses_the_softwire_between_b4_and_lwaftr") {
        return;
    }
    let b4_address = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0xb4);
    let row = SoftwireRow {
        ipv4: CLIENT,
        division: PortDivision::new(0, 0).unwrap(),
        psid: 0,
        b4: b4_address,
        local: BORDER,
    };
    let lwaftr = Lwaftr {
        addresses: vec![BORDER],
        ipv4: AddressRanges::new([CLIENT..=CLIENT]),
        table: SoftwireTable::new(&[row]).unwrap(),
        softwire: SoftwireSettings::default(),
        hairpinning: true,
        tell_unknown: true,
        tell_unreachable: true,
        inbound_icmp: true,
    };
    crosses(b4(b4_address), ServiceKind::Lwaftr(lwaftr));
}

#[test]
fn tcp_crosses_the_relay_of_map_e() {
    if skip_before_6_3("tcp_crosses_the_relay_of_map_e") {
        return;
    }
    let border = MapEBr { domain: domain(), address: BORDER, softwire: SoftwireSettings::default() };
    crosses(b4(map_address()), ServiceKind::MapEBr(border));
}

#[test]
fn tcp_crosses_the_relay_of_map_t() {
    let edge = ServiceKind::Siit(Siit {
        role: Role::Clat,
        mapping: StatelessMap {
            explicit: EamTable::new(vec![Eam::parse("10.0.0.2", &map_address().to_string()).unwrap()]).unwrap(),
            prefix: Some(Prefix64::WELL_KNOWN),
            well_known_prefix_strict: false,
            denied: DenyList::default(),
        },
        dynamic: None,
        embedded_hosts: Vec::new(),
        hairpinning: Hairpinning::Off,
        error_sources: ErrorSources::default(),
        identify_nodes: false,
        translate: TranslateSettings::default(),
    });
    let border = ServiceKind::MapTBr(MapTBr {
        domain: domain(),
        dmr: Prefix64::WELL_KNOWN,
        well_known_prefix_strict: false,
        error_sources: ErrorSources::default(),
        translate: TranslateSettings::default(),
    });
    crosses(edge, border);
}
