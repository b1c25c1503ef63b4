//! A gateway in a lab with the tester's rig around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tombolo_generator::{
    Answer, Capacity, Direction, Ends, Exchange, FrameError, FrameKind, HeaderRule, LinkRule, Namespace, Order, Pace,
    Port, PortRule, Rig, SourceRule, Template, Timing, Transport, link_address,
};
use tombolo_lab::{Lab, Offload, Topology};
use tombolo_tester::gateway::{Flows, Technology, TestFrames};

use crate::cluster;
use crate::connection;
use crate::gateway::Gateway;
use crate::netfilter;
use crate::population::{self, Population};
use crate::redirect::{Redirect, Wait};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What forwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain4,
    Plain6,
    /// XDP sends each frame on as it came: what the kernel allows.
    Redirect4,
    Redirect6,
    /// The same, after one of a million entries of so many bytes has been read: what a table allows.
    Entry4(u32),
    Entry6(u32),
    /// The same, after a slot of four bytes that says which entry.
    SlotAndEntry4(u32),
    /// The same, where the slot has all of it.
    Slot4(u32),
    /// The same, after an entry of so many bytes and a slot have been claimed, as for a new binding.
    Claim4(u32),
    Iptables,
    Nftables,
    Nat64,
    Nat44,
    Aftr,
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
    /// Packets of TCP connections, instead of datagrams.
    pub(crate) is_tcp: bool,
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
            Self::Entry4(16) | Self::Entry6(16) => "entry 16",
            Self::Entry4(32) | Self::Entry6(32) => "entry 32",
            Self::Entry4(_) | Self::Entry6(_) => "entry 64",
            Self::SlotAndEntry4(16) => "slot, entry 16",
            Self::SlotAndEntry4(_) => "slot, entry 32",
            Self::Slot4(16) => "slot 16",
            Self::Slot4(_) => "slot 32",
            Self::Claim4(_) => "claim",
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
            Self::Nat64 => "nat64",
            Self::Nat44 => "nat44",
            Self::Aftr => "aftr",
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
            Self::Plain4
            | Self::Redirect4
            | Self::Entry4(_)
            | Self::SlotAndEntry4(_)
            | Self::Slot4(_)
            | Self::Claim4(_) => Technology::Forward4,
            Self::Plain6 | Self::Redirect6 | Self::Entry6(_) => Technology::Forward6,
            Self::Iptables
            | Self::Nftables
            | Self::Nat44
            | Self::Nat44Blocks
            | Self::Nat44Slices
            | Self::Nat44Elsewhere => Technology::Nat44,
            Self::Nat64 | Self::Nat64Blocks => Technology::Nat64,
            Self::Aftr => Technology::Aftr,
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
        let has_napt = matches!(self.technology(), Technology::Nat64 | Technology::Nat44 | Technology::Aftr);
        has_napt && self != Self::Nat44Elsewhere
    }

    /// What each frame waits for where XDP sends it on as it came.
    fn wait(self) -> Option<Wait> {
        match self {
            Self::Redirect4 | Self::Redirect6 => Some(Wait::Nothing),
            Self::Entry4(bytes) | Self::Entry6(bytes) => Some(Wait::Entry(bytes)),
            Self::Slot4(bytes) => Some(Wait::Slot(bytes)),
            Self::SlotAndEntry4(bytes) => Some(Wait::SlotAndEntry(bytes)),
            Self::Claim4(bytes) => Some(Wait::Claim(bytes)),
            _ => None,
        }
    }

    /// What is sent inwards answers what came out. Redirected homes are answered as well, though the server knows their addresses: so the rig
    /// looks the same up for all of a series.
    fn is_answered(self, load: Load) -> bool {
        load.inward && (self.has_bindings() || self.wait().is_some() && load.population == Population::Homes)
    }

    /// It is the kernel's own NAT.
    fn is_netfilter(self) -> bool {
        matches!(self, Self::Iptables | Self::Nftables)
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

/// The frames of one run.
struct Sending<'c> {
    transport: Transport,
    frames: u32,
    order: Order,
    cores: &'c [usize],
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
            | Kind::Aftr
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
            Kind::Iptables | Kind::Nftables | Kind::Plain4 | Kind::Plain6 => None,
            Kind::Redirect4
            | Kind::Redirect6
            | Kind::Entry4(_)
            | Kind::Entry6(_)
            | Kind::SlotAndEntry4(_)
            | Kind::Slot4(_)
            | Kind::Claim4(_) => None,
        };
        if kind.is_netfilter() {
            netfilter::start(&lab, kind, sessions, load.population)?;
        }
        let redirect = kind.wait().map(|wait| Redirect::start(&lab, wait)).transpose()?;
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
        // Who answers has to learn what to, and so has who answers a SYN.
        let learned = kind.is_answered(load) || kind.has_bindings() && load.is_tcp;
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
        let is_answered = self.kind.is_answered(self.load);
        if self.load.population != Population::One && !self.kind.has_bindings() && !is_answered {
            let frames = self.load.frames / 4;
            self.get_through(frames, |contender| contender.load(frames));
            return;
        }
        self.clear();
        if self.load.is_tcp && self.kind.has_bindings() {
            self.fill_by(connection::SYN, Self::open);
            self.fill_by(connection::SYN_ACK, Self::answer);
            self.fill_by(connection::ACK, Self::open);
        } else {
            self.fill_by(self.first_packet(), Self::open);
        }
    }

    fn fill_by(&mut self, transport: Transport, send: fn(&mut Self, Transport) -> Outcome) {
        let tuples = self.tuples();
        self.get_through(tuples, |contender| send(contender, transport));
    }

    /// Where the machine pauses, some of the frames are lost: all are sent again, and what has come through makes nothing
    /// twice.
    fn get_through(&mut self, frames: u32, mut send: impl FnMut(&mut Self) -> Outcome) {
        let few = (u64::from(frames) / 100).max(1);
        let mut lost = 0;
        for _ in 0..3 {
            lost = send(self).lost;
            if lost == 0 {
                break;
            }
        }
        assert!(lost < few, "{}: {lost} of {frames} lost while filling {}", self.name(), self.remarks());
    }

    /// Every tuple once. How it leaves the gateway is remembered, if it is to be answered.
    fn open(&mut self, transport: Transport) -> Outcome {
        let record = self.rig.capacity().records > 1;
        self.every_tuple(transport, record)
    }

    fn every_tuple(&mut self, transport: Transport, record: bool) -> Outcome {
        self.seed += 1;
        let (frames, seed) = (self.tuples(), self.seed);
        self.outwards(&Sending { transport, frames, order: Order::Enumerate { seed }, cores: &[0] }, record)
    }

    /// An answer to each of them.
    fn answer(&mut self, transport: Transport) -> Outcome {
        self.seed += 1;
        let (count, seed) = (self.tuples(), self.seed);
        self.inwards(&Sending { transport, frames: count, order: Order::RecordsOnce { count, seed }, cores: &[0] })
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
        let order = Order::Enumerate { seed };
        let sending = Sending { transport: Transport::Udp, frames: 12 * bindings, order, cores: &[0] };
        self.outwards(&sending, false);
        let ports = self.load.ports.1;
        if let Some(gateway) = &mut self.gateway {
            gateway.make_sessions(std::net::Ipv4Addr::new(198, 51, 100, 2), 1024, ports);
        }
    }

    /// Every tuple once, from an empty table.
    pub(crate) fn create(&mut self) -> Outcome {
        self.clear();
        self.every_tuple(self.first_packet(), false)
    }

    /// Forgets all bindings and sessions.
    fn clear(&mut self) {
        match &mut self.gateway {
            Some(gateway) => gateway.clear(),
            None if self.kind.is_netfilter() => {
                let node = self.lab.node("gateway").unwrap();
                node.command("conntrack").args(["-F"]).run().unwrap().success().unwrap();
            }
            None => {}
        }
    }

    /// What makes a binding.
    fn first_packet(&self) -> Transport {
        if self.load.is_tcp { connection::SYN } else { Transport::Udp }
    }

    /// Random tuples.
    pub(crate) fn load(&mut self, frames: u32) -> Outcome {
        self.load_on(&[0], frames)
    }

    /// Random tuples from several cores, each of which sends, forwards and receives its share.
    pub(crate) fn load_on(&mut self, cores: &[usize], frames: u32) -> Outcome {
        self.seed += 1;
        let seed = self.seed;
        let transport = match (self.load.is_tcp, self.load.inward) {
            (false, _) => Transport::Udp,
            (true, false) => connection::ACK,
            (true, true) => connection::ACK_INWARDS,
        };
        let order = match self.kind.is_answered(self.load) {
            true => Order::RecordsRandom { count: self.tuples(), seed },
            false => Order::Random { seed },
        };
        let sending = Sending { transport, frames, order, cores };
        if self.load.inward { self.inwards(&sending) } else { self.outwards(&sending, false) }
    }

    pub(crate) fn remarks(&self) -> String {
        self.gateway.as_ref().map(Gateway::remarks).unwrap_or_default()
    }

    fn tuples(&self) -> u32 {
        u32::try_from(self.setup.shape.tuples()).unwrap_or(u32::MAX)
    }

    /// From the subscribers to the server.
    fn outwards(&mut self, sending: &Sending<'_>, record: bool) -> Outcome {
        let direction = self.direction(self.ends_out, (self.setup.left, self.setup.right), sending);
        let answer = Answer { source: self.source(), record, ..direction.answer };
        self.run(Some(Direction { answer, ..direction }), None)
    }

    /// Where translated packets come from. What our programs pass on may come through the kernel as it was.
    fn source(&self) -> SourceRule {
        let (first, last) = self.load.population.pool();
        let has_pool = self.gateway.is_some() && self.kind.has_bindings();
        if has_pool { SourceRule::Pool(first, last) } else { SourceRule::Any }
    }

    /// From the server to the subscribers.
    fn inwards(&mut self, sending: &Sending<'_>) -> Outcome {
        let direction = self.direction(self.ends_in, (self.setup.right, self.setup.left), sending);
        self.run(None, Some(direction))
    }

    fn direction(&self, ends: Ends, (sent, received): (FrameKind, FrameKind), sending: &Sending<'_>) -> Direction {
        let Sending { transport, frames, order, cores } = *sending;
        // As short as they can be.
        let template = Template { ends, kind: sent, transport, frame_bytes: 0, hop_limit: 64 };
        Direction {
            template: Template { frame_bytes: template.shortest(), ..template },
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
        // What came through untranslated is as good as lost.
        let errors = FrameError::ALL.into_iter().filter(|error| *error != FrameError::Source);
        let wrong: u64 = errors.map(|error| way.arrivals.count(error)).sum();
        assert!(wrong == 0, "{}: {wrong} errors in frames that came back", self.kind.name());
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
