//! `tombolo lab compare`: random packets through a live gateway, and each beside what `tombolo
//! translate` makes of it.
//!
//! One packet goes in, what must come out is awaited on both sides and compared ([`same`]), and
//! then the next goes in: so state is the same in both gateways at each packet. In the end the
//! counters of the live one must be those of the other, and add up to the packets that were sent
//! and seen ([`counted`]).
//!
//! The kernel around the gateway takes a hop from each packet before and after it; the offline
//! gateway gets and gives them so.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use tombolo_engine::Verdict;
use tombolo_engine::packet::{Offload, Packet};
use tombolo_io::queue::Buffer;

mod bed;
mod counted;
mod datagram;
mod same;
mod served;
mod source;

use crate::numbers::Numbers;
use crate::offline::{Offline, Outcome, Side};
use bed::Bed;
use counted::Counted;
pub(crate) use counted::Fates;
use datagram::{Space, take_hop};
use same::{Comparison, Pairs};
use served::{STATIC_PORTS, Served};

/// So many differences are described.
const DESCRIBED: usize = 5;
/// A gateway has so many packets; then comes another one, with other packets. Nothing expires
/// meanwhile.
const PACKETS_OF_A_GATEWAY: u64 = 20_000;
/// Fragments whose siblings do not come have been given up after this.
const FRAGMENTS_EXPIRE: Duration = Duration::from_secs(10);
/// A port that no pool has.
const NOBODY: u16 = 700;

/// What of the gateway takes the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Path {
    /// The engine has every packet
    Engine,
    /// The programs of TC have what they take
    Tc,
}

/// What came of a service on a path.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) service: &'static str,
    pub(crate) path: Path,
    /// Packets that went in, from inside and from outside.
    pub(crate) sent: [u64; 2],
    /// Packets that came out, on either side.
    pub(crate) arrived: [u64; 2],
    pub(crate) fates: Fates,
    /// Forwarded by the kernel's programs.
    pub(crate) taken_by_the_kernel: u64,
    /// Packets that led to something else than offline.
    pub(crate) different: u64,
    /// What was wrong, in words; not more than a few.
    pub(crate) failures: Vec<String>,
}

/// The names of all services.
pub(crate) fn names() -> Vec<&'static str> {
    served::all().into_iter().map(|served| served.name).collect()
}

/// Compares `packets` packets of the service of that name on `path`.
pub(crate) fn run(name: &str, path: Path, packets: u64, seed: u64) -> anyhow::Result<Report> {
    let Some(served) = served::all().into_iter().find(|served| served.name == name) else {
        anyhow::bail!("there is no service `{name}`; there are {}", names().join(", "))
    };
    let mut report = Report {
        service: served.name,
        path,
        sent: [0; 2],
        arrived: [0; 2],
        fates: Fates::default(),
        taken_by_the_kernel: 0,
        different: 0,
        failures: Vec::new(),
    };
    let mut seed = Numbers(seed);
    while report.sent.iter().sum::<u64>() < packets && report.failures.is_empty() && !tombolo_lab::interrupted() {
        let left = packets - report.sent.iter().sum::<u64>();
        Run::start(&served, path, seed.draw())?.finish(left.min(PACKETS_OF_A_GATEWAY), &mut report)?;
    }
    Ok(report)
}

fn configuration(served: &Served, path: Path) -> String {
    let fastpath = if path == Path::Tc { "tc" } else { "off" };
    format!(
        "[gateway]\nqueues = 1\nfastpath = \"{fastpath}\"\nipv4 = \"198.51.100.1\"\nipv6 = \"2001:db8:2::1\"\n\
         icmp_errors_per_second = 1000000\nicmp_errors_at_once = 1000000\n\
         [capacity]\nsubscribers = 1000\nbindings = 20000\nsessions = 100000\n\
         [[service]]\n{}",
        served.service
    )
}

/// Two gateways with the same configuration, one live and one not, and the packets for both.
struct Run<'s> {
    served: &'s Served,
    /// What the programs take passes what still waits for the engine: after a packet that leads to
    /// nothing, another one must come out before the next goes in.
    overtakes: bool,
    bed: Bed,
    offline: Offline,
    buffer: Box<Buffer>,
    begin: Instant,
    numbers: Numbers,
    pairs: Pairs,
    sent: [u64; 2],
    fates: Fates,
    different: u64,
    failures: Vec<String>,
}

impl<'s> Run<'s> {
    fn start(served: &'s Served, path: Path, seed: u64) -> anyhow::Result<Self> {
        let text = configuration(served, path);
        let bed = Bed::start(served, &text)?;
        let file = std::env::temp_dir().join(format!("tombolo-compare-{}.toml", std::process::id()));
        std::fs::write(&file, text)?;
        let offline = Offline::load(&file, seed);
        std::fs::remove_file(&file)?;
        let mut pairs = Pairs::default();
        if served.binds {
            for port in STATIC_PORTS {
                pairs.learn(Space::Tcp, port, port);
            }
        }
        Ok(Self {
            served,
            overtakes: path == Path::Tc,
            bed,
            offline: offline?.0,
            buffer: Buffer::new(),
            begin: Instant::now(),
            numbers: Numbers(seed),
            pairs,
            sent: [0; 2],
            fates: Fates::default(),
            different: 0,
            failures: Vec::new(),
        })
    }

    /// Sends so many packets, looks at the counters and adds what was seen to `report`.
    fn finish(mut self, packets: u64, report: &mut Report) -> anyhow::Result<()> {
        while self.sent.iter().sum::<u64>() < packets && self.failures.len() < DESCRIBED {
            self.next()?;
        }
        let arrived = self.bed.receive([0, 0]);
        let late: usize = arrived.iter().map(Vec::len).sum();
        if late > 0 {
            self.failures
                .push(format!("{late} packets came out that nothing led to: {}", hex(arrived.iter().flatten())));
        }
        let live = self.count()?;
        for side in 0..2 {
            report.sent[side] += self.sent[side];
            report.arrived[side] += self.bed.arrived[side];
        }
        report.fates.add(&self.fates);
        report.taken_by_the_kernel += live.get("taken by the kernel").copied().unwrap_or(0);
        report.different += self.different;
        report.failures.append(&mut self.failures);
        self.bed.finish()
    }

    /// What the live gateway has counted, once it has given up the fragments that wait.
    fn count(&mut self) -> anyhow::Result<Counted> {
        let begin = Instant::now();
        loop {
            let live = counted::live(&self.bed.counters()?);
            self.offline.idle(self.begin.elapsed());
            let offline = counted::offline(&self.offline.totals());
            let faults = counted::faults(&live, &offline, &self.fates, self.sent, self.bed.arrived);
            if faults.is_empty() || !self.failures.is_empty() {
                return Ok(live);
            }
            if begin.elapsed() > FRAGMENTS_EXPIRE {
                self.failures = faults;
                return Ok(live);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// One packet from some side, or the fragments of one.
    fn next(&mut self) -> anyhow::Result<()> {
        let side = if self.numbers.one_in(2) { Side::Inside } else { Side::Outside };
        let facing = if side == Side::Inside { &self.served.inside } else { &self.served.outside };
        // The same draws for both; what they have bound differs.
        let mut again = self.numbers.clone();
        let bound = |gateway: usize| {
            let pairs = &self.pairs;
            move |space, draw: u64| {
                let known = pairs.of(space);
                let place = usize::try_from(draw >> 8).unwrap_or(0) % known.len().max(1);
                // One gateway may have drawn a port that a host has itself: in errors it would stand for that one.
                let is_told_apart = |ports: &&[u16; 2]| !ports.iter().any(|port| source::USUAL.contains(port));
                let port = known.get(place).filter(|_| !draw.is_multiple_of(32)).filter(is_told_apart);
                port.map_or(NOBODY, |ports| ports[gateway])
            }
        };
        let live = source::next(&mut self.numbers, facing, side == Side::Inside, &bound(0));
        let offline = source::next(&mut again, facing, side == Side::Inside, &bound(1));
        for (live, offline) in live.iter().zip(offline) {
            if !self.step(side, live, offline)? && self.overtakes {
                let last = source::expiring(&mut self.numbers, &self.served.inside);
                self.step(Side::Inside, &last, last.clone())?;
            }
        }
        Ok(())
    }

    /// Sends one packet into both, and compares what comes out; false if nothing must come.
    fn step(&mut self, side: Side, live: &[u8], mut packet: Vec<u8>) -> anyhow::Result<bool> {
        take_hop(&mut packet);
        let outcome = self.translate(side, &packet)?;
        let expected = [Side::Inside, Side::Outside].map(|side| {
            let sent = outcome.sent.iter().filter(|sent| sent.side == side);
            sent.map(|sent| {
                let mut bytes = sent.bytes.clone();
                take_hop(&mut bytes);
                bytes
            })
            .collect::<Vec<_>>()
        });
        self.bed.send(side, live)?;
        self.sent[side as usize] += 1;
        self.fates.count(outcome.verdict);
        let arrived = self.bed.receive(expected.each_ref().map(Vec::len));
        let mut comparison = Comparison {
            pairs: &mut self.pairs,
            input: &packet,
            may_bind: self.served.binds && side == Side::Inside && outcome.verdict == Verdict::Forward,
            identifications: HashMap::new(),
        };
        if let Err(difference) = compare(&mut comparison, &arrived, &expected) {
            self.different += 1;
            let (verdict, reason) = (outcome.verdict.name(), outcome.verdict.reason());
            let reason = reason.map(tombolo_engine::DropReason::name).unwrap_or_default();
            self.failures.push(format!(
                "packet {} from {}: {difference}\n  in, live: {}\n  in, offline: {}\n  offline: {verdict} {reason}\n  \
                 must leave inside:  {}\n  must leave outside: {}\n  left inside:  {}\n  left outside: {}",
                self.sent.iter().sum::<u64>(),
                side.name(),
                hex([live]),
                hex([&packet]),
                hex(&expected[0]),
                hex(&expected[1]),
                hex(&arrived[0]),
                hex(&arrived[1]),
            ));
        }
        Ok(expected.iter().any(|packets| !packets.is_empty()))
    }

    /// What the offline gateway does.
    fn translate(&mut self, side: Side, bytes: &[u8]) -> anyhow::Result<Outcome> {
        const HEADROOM: usize = tombolo_engine::packet::HEADROOM;
        let buffer = self.buffer.bytes_mut();
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let Some(mut packet) = Packet::new(buffer, HEADROOM, bytes.len(), Offload::default()) else {
            anyhow::bail!("a packet has no room")
        };
        Ok(self.offline.pass(side, self.begin.elapsed(), &mut packet))
    }
}

fn compare(
    comparison: &mut Comparison<'_>,
    arrived: &[Vec<Vec<u8>>; 2],
    expected: &[Vec<Vec<u8>>; 2],
) -> Result<(), String> {
    for (side, (arrived, expected)) in ["inside", "outside"].into_iter().zip(arrived.iter().zip(expected)) {
        if arrived.len() != expected.len() {
            return Err(format!("{} packets left {side} instead of {}", arrived.len(), expected.len()));
        }
        for (arrived, expected) in arrived.iter().zip(expected) {
            comparison.same(arrived, expected, side == "outside")?;
        }
    }
    Ok(())
}

impl Fates {
    const fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Forward | Verdict::Redirect(_) => self.forwarded += 1,
            Verdict::Reply(_) => self.answered += 1,
            Verdict::EchoReply | Verdict::Pcp(_) => self.echo_replies += 1,
            Verdict::Hold => self.held += 1,
            Verdict::ToHost => self.to_host += 1,
            Verdict::Drop(_) => self.dropped += 1,
        }
    }

    const fn add(&mut self, other: &Self) {
        self.forwarded += other.forwarded;
        self.answered += other.answered;
        self.echo_replies += other.echo_replies;
        self.held += other.held;
        self.dropped += other.dropped;
        self.to_host += other.to_host;
    }
}

fn hex<'p>(packets: impl IntoIterator<Item = impl AsRef<[u8]> + 'p>) -> String {
    let packets =
        packets.into_iter().map(|packet| packet.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let packets: Vec<String> = packets.collect();
    if packets.is_empty() { "nothing".into() } else { packets.join(" ") }
}
