//! A gateway in a lab with the tester's rig around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use tombolo_generator::{
    Answer, Capacity, Direction, Ends, Exchange, FrameKind, HeaderRule, LinkRule, Namespace, Order, Pace, Port,
    PortRule, Rig, SourceRule, Template, Timing, link_address,
};
use tombolo_lab::{Lab, Offload, Topology};
use tombolo_tester::gateway::{Flows, Technology, TestFrames};

use crate::cluster;
use crate::gateway::Gateway;
use crate::population::{self, Population};
use crate::redirect::Redirect;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What forwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain4,
    Plain6,
    /// XDP sends each frame on as it came: what the kernel allows.
    Redirect4,
    Redirect6,
    Iptables,
    Nat64,
    Nat44,
    /// Its subscribers have their ports in blocks, as the next one's.
    Nat64Blocks,
    Nat44Blocks,
    /// A node of a cluster that has all slices.
    Nat44Slices,
    /// A node of a cluster whose slices are all another's: it redirects.
    Nat44Elsewhere,
    Siit,
    /// With ten thousand explicit mappings of other hosts.
    Siit10k,
    Lwaftr,
    MapE,
    MapT,
}

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Ports of each subscriber and of the server.
    pub(crate) ports: (u32, u32),
    /// The subscribers.
    pub(crate) population: Population,
    /// From the server to the subscribers, instead of the other way.
    pub(crate) inward: bool,
    /// Frames of a measurement.
    pub(crate) frames: u32,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain4 => "plain4",
            Self::Plain6 => "plain6",
            Self::Redirect4 => "redirect4",
            Self::Redirect6 => "redirect6",
            Self::Iptables => "iptables",
            Self::Nat64 => "nat64",
            Self::Nat44 => "nat44",
            Self::Nat64Blocks => "nat64-blocks",
            Self::Nat44Blocks => "nat44-blocks",
            Self::Nat44Slices => "nat44-slices",
            Self::Nat44Elsewhere => "nat44-elsewhere",
            Self::Siit => "siit",
            Self::Siit10k => "siit-10k",
            Self::Lwaftr => "lwaftr",
            Self::MapE => "map-e br",
            Self::MapT => "map-t br",
        }
    }

    pub(crate) fn technology(self) -> Technology {
        match self {
            Self::Plain4 | Self::Redirect4 => Technology::Forward4,
            Self::Plain6 | Self::Redirect6 => Technology::Forward6,
            Self::Iptables | Self::Nat44 | Self::Nat44Blocks | Self::Nat44Slices | Self::Nat44Elsewhere => {
                Technology::Nat44
            }
            Self::Nat64 | Self::Nat64Blocks => Technology::Nat64,
            Self::Siit | Self::Siit10k => Technology::Siit,
            Self::Lwaftr => Technology::Lwaftr,
            Self::MapE => Technology::MapEBr,
            Self::MapT => Technology::MapTBr,
        }
    }
}

impl Kind {
    /// It has bindings, which packets make.
    fn has_bindings(self) -> bool {
        matches!(self.technology(), Technology::Nat64 | Technology::Nat44) && self != Self::Nat44Elsewhere
    }

    /// It is a node of a cluster.
    pub(crate) fn has_slices(self) -> bool {
        matches!(self, Self::Nat44Slices | Self::Nat44Elsewhere)
    }

    /// Its subscribers have their ports in blocks.
    pub(crate) fn has_blocks(self) -> bool {
        matches!(self, Self::Nat64Blocks | Self::Nat44Blocks)
    }
}

/// What came of a measurement.
pub(crate) struct Outcome {
    pub(crate) rate: f64,
    pub(crate) lost: u64,
}

pub(crate) struct Contender {
    kind: Kind,
    load: Load,
    rig: Rig,
    setup: TestFrames,
    ends_out: Ends,
    ends_in: Ends,
    gateway: Option<Gateway>,
    _redirect: Option<Redirect>,
    lab: Lab,
    seed: u64,
}

impl Contender {
    pub(crate) fn new(kind: Kind, load: Load) -> Result<Self> {
        Self::with_queues(kind, load, 1)
    }

    /// With so many queues on each port: a veth hands frames to the queue of the core that sends.
    pub(crate) fn with_queues(kind: Kind, load: Load, queues: usize) -> Result<Self> {
        let (inside, outside) = load.ports;
        let lab = Lab::create(&Topology::client_gateway_server())?;
        let node = lab.node("gateway")?;
        for interface in ["inside0", "outside0"] {
            // The rig's frames are redirected to this end, which it takes only while it polls, as
            // receive offload makes it do.
            node.set_offload(interface, Offload::Gro, true)?;
        }
        if queues > 1 {
            let count = queues.to_string();
            for (node, port) in
                [("client", "inside0"), ("gateway", "inside0"), ("gateway", "outside0"), ("server", "outside0")]
            {
                lab.node(node)?.command("ethtool").args(["-L", port, "rx", &count, "tx", &count]).run()?.success()?;
            }
        }
        resolve_neighbours(&lab)?;
        load.population.route(&lab)?;
        let flows = Flows { inside_first: 1024, outside_first: 1024, ..Flows::sessions(inside, outside) };
        let mut setup = load.population.setup(kind.technology(), &flows)?;
        if kind == Kind::Nat44Elsewhere {
            cluster::lead_elsewhere(&lab, &mut setup)?;
        }
        let hosts = if kind.has_bindings() { load.population.hosts() } else { 1 };
        let sessions = u64::from(hosts) * u64::from(inside) * u64::from(outside);
        let mut gateway = match kind {
            Kind::Nat64
            | Kind::Nat44
            | Kind::Nat64Blocks
            | Kind::Nat44Blocks
            | Kind::Nat44Slices
            | Kind::Nat44Elsewhere
            | Kind::Siit
            | Kind::Siit10k => Some(Gateway::start(&lab, kind, load.population, (hosts * inside, sessions), None)?),
            Kind::Lwaftr | Kind::MapE | Kind::MapT => {
                let service = population::service(kind, &setup);
                Some(Gateway::start(&lab, kind, load.population, (4000, 1000), Some(service))?)
            }
            Kind::Iptables | Kind::Plain4 | Kind::Plain6 | Kind::Redirect4 | Kind::Redirect6 => None,
        };
        if kind == Kind::Iptables {
            start_iptables(&lab, sessions, load.population)?;
        }
        let is_redirect = matches!(kind, Kind::Redirect4 | Kind::Redirect6);
        let redirect = if is_redirect { Some(Redirect::start(&lab)?) } else { None };
        load.population.quieten(&mut setup);
        let port = |node: &str, name: &str| -> Result<Port> {
            Ok(Port { name: name.to_owned(), namespace: Some(Namespace::at(lab.node(node)?.path())) })
        };
        let (left, right) = (port("client", "inside0")?, port("server", "outside0")?);
        let ends = |from: &Port, to: &str| -> Result<Ends> {
            Ok(Ends { source: link_address(from)?, destination: link_address(&port("gateway", to)?)? })
        };
        let (ends_out, ends_in) = (ends(&left, "inside0")?, ends(&right, "outside0")?);
        let hosts = u32::try_from(setup.a.len())?;
        // Who sends inwards to bindings has to learn them.
        let learned = kind.has_bindings() && load.inward;
        let records = if learned { u32::try_from(setup.shape.tuples())? } else { 1 };
        let frames = load.frames.max(records);
        let capacity = Capacity { frames, records, a_hosts: hosts, b_hosts: 1 };
        let mut rig = Rig::open(&left, &right, capacity)?;
        rig.set_endpoints(&setup.a, &setup.b)?;
        if let Some(gateway) = &mut gateway {
            gateway.look_at_ports(&lab)?;
        }
        Ok(Self { kind, load, rig, setup, ends_out, ends_in, gateway, _redirect: redirect, lab, seed: 1 })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Makes every binding and every session once. Of many subscribers without state some packets only, to see that
    /// they get through.
    pub(crate) fn fill(&mut self) {
        if self.load.population != Population::One && !self.kind.has_bindings() {
            let frames = self.load.frames / 4;
            let outcome = self.load(frames);
            assert!(
                outcome.lost * 100 < u64::from(frames),
                "{}: {} lost {}",
                self.name(),
                outcome.lost,
                self.remarks()
            );
            return;
        }
        // Where the machine pauses, some are lost: it is tried again.
        let few = u64::from(self.tuples()) / 100;
        let mut lost = self.create().lost;
        for _ in 0..2 {
            if lost >= few {
                lost = self.create().lost;
            }
        }
        assert!(lost < few.max(1), "{}: {lost} lost while filling", self.name());
    }

    /// Makes every binding by traffic, and every session in user space: a hundred million frames
    /// would take minutes.
    pub(crate) fn fill_directly(&mut self) {
        let (shape, seed) = (&self.setup.shape, self.seed);
        let tuples = shape.tuples();
        if let Some(gateway) = &mut self.gateway {
            gateway.clear();
        }
        let bindings = u32::try_from(tuples / u64::from(self.load.ports.1)).unwrap_or(u32::MAX);
        // Each of them is missed with a probability of e^-12.
        self.outwards(12 * bindings, Order::Enumerate { seed }, &[0]);
        let ports = self.load.ports.1;
        if let Some(gateway) = &mut self.gateway {
            gateway.make_sessions(std::net::Ipv4Addr::new(198, 51, 100, 2), 1024, ports);
        }
    }

    /// Every tuple once, from an empty table.
    pub(crate) fn create(&mut self) -> Outcome {
        match (&mut self.gateway, self.kind) {
            (Some(gateway), _) => gateway.clear(),
            (None, Kind::Iptables) => {
                let node = self.lab.node("gateway").unwrap();
                node.command("conntrack").args(["-F"]).run().unwrap().success().unwrap();
            }
            _ => {}
        }
        self.seed += 1;
        let (frames, seed) = (self.tuples(), self.seed);
        self.outwards(frames, Order::Enumerate { seed }, &[0])
    }

    /// Random tuples.
    pub(crate) fn load(&mut self, frames: u32) -> Outcome {
        self.load_on(&[0], frames)
    }

    /// Random tuples from several cores, each of which sends, forwards and receives its share.
    pub(crate) fn load_on(&mut self, cores: &[usize], frames: u32) -> Outcome {
        self.seed += 1;
        let seed = self.seed;
        match (self.load.inward, self.kind.has_bindings()) {
            (false, _) => self.outwards(frames, Order::Random { seed }, cores),
            (true, false) => self.inwards(frames, Order::Random { seed }, cores),
            (true, true) => self.inwards(frames, Order::RecordsRandom { count: self.tuples(), seed }, cores),
        }
    }

    pub(crate) fn remarks(&self) -> String {
        self.gateway.as_ref().map(Gateway::remarks).unwrap_or_default()
    }

    fn tuples(&self) -> u32 {
        u32::try_from(self.setup.shape.tuples()).unwrap_or(u32::MAX)
    }

    /// From the subscribers to the server.
    fn outwards(&mut self, frames: u32, order: Order, cores: &[usize]) -> Outcome {
        let record = self.load.inward && self.kind.has_bindings();
        let direction = self.direction(self.ends_out, (self.setup.left, self.setup.right), frames, order, cores);
        let answer = Answer { record, ..direction.answer };
        self.run(Some(Direction { answer, ..direction }), None)
    }

    /// From the server to the subscribers.
    fn inwards(&mut self, frames: u32, order: Order, cores: &[usize]) -> Outcome {
        let direction = self.direction(self.ends_in, (self.setup.right, self.setup.left), frames, order, cores);
        self.run(None, Some(direction))
    }

    fn direction(
        &self,
        ends: Ends,
        (sent, received): (FrameKind, FrameKind),
        frames: u32,
        order: Order,
        cores: &[usize],
    ) -> Direction {
        Direction {
            template: Template { ends, kind: sent, frame_bytes: sent.shortest(), hop_limit: 64 },
            order,
            shape: self.setup.shape,
            frames,
            pace: Pace::at(0),
            cores: cores.to_vec(),
            background: None,
            imix: None,
            timed: None,
            answer: Answer {
                kind: received,
                source: SourceRule::Any,
                source_port: PortRule::Any,
                hop_limit: 0,
                inner_hop_limit: 0,
                header: HeaderRule::default(),
                link: LinkRule::default(),
                record: false,
                timing: Timing::Off,
                timeout_ns: 0,
            },
        }
    }

    fn run(&mut self, forward: Option<Direction>, reverse: Option<Direction>) -> Outcome {
        let plan = Exchange { forward, reverse, drain: Duration::from_millis(100), always_drain: false };
        let outcome = self.rig.run(&plan, &mut |_, _| true).unwrap();
        let way = outcome.forward.or(outcome.reverse).unwrap();
        let seconds = (way.departures.last_ns - way.departures.first_ns) as f64 / 1e9;
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = way.arrivals.received as f64 / seconds;
        let wrong = way.arrivals.errored + way.arrivals.unreadable;
        assert!(wrong == 0, "{}: {wrong} frames came back wrong", self.kind.name());
        Outcome { rate, lost: way.departures.sent - way.arrivals.received }
    }
}

/// XDP sends to neighbours that are resolved, and the tester's ports answer nobody.
fn resolve_neighbours(lab: &Lab) -> Result<()> {
    let servers: [(&str, &str, &str, IpAddr); 4] = [
        ("client", "inside0", "inside0", Ipv4Addr::new(10, 0, 0, 2).into()),
        ("client", "inside0", "inside0", Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2).into()),
        ("server", "outside0", "outside0", Ipv4Addr::new(198, 51, 100, 2).into()),
        ("server", "outside0", "outside0", Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2).into()),
    ];
    for (node, interface, own, address) in servers {
        let port = Port { name: interface.to_owned(), namespace: Some(Namespace::at(lab.node(node)?.path())) };
        let mac: Vec<String> = link_address(&port)?.iter().map(|byte| format!("{byte:02x}")).collect();
        let words =
            ["neigh", "replace", &address.to_string(), "lladdr", &mac.join(":"), "dev", own, "nud", "permanent"];
        lab.node("gateway")?.command("ip").args(words).run()?.success()?;
    }
    Ok(())
}

fn start_iptables(lab: &Lab, sessions: u64, population: Population) -> Result<()> {
    let wanted = (sessions * 3 / 2).max(262_144).next_power_of_two().to_string();
    for path in ["/proc/sys/net/netfilter/nf_conntrack_max", "/sys/module/nf_conntrack/parameters/hashsize"] {
        lab.change_setting(Path::new(path), &wanted)?;
    }
    let node = lab.node("gateway")?;
    let (first, last) = population.pool();
    let pool = format!("{first}-{last}");
    let target = if first == last { vec!["MASQUERADE"] } else { vec!["SNAT", "--to-source", &pool] };
    let words = ["-t", "nat", "-A", "POSTROUTING", "-o", "outside0", "-j"];
    node.command("iptables").args(words).args(target).run()?.success()?;
    for key in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        node.set_sysctl(&format!("net.netfilter.{key}"), "10000")?;
    }
    Ok(())
}
