//! The fast path in XDP beside the kernel's forwarding and its own NAT44, interleaved: `make
//! bench-fastpath`.
//!
//! `--rounds N`; `--only SERIES,...`; `--without CONTENDER,...`; `--against PROGRAM` measures another
//! build of this benchmark in the same rounds, as that of the commit before a change; `--results FILE`
//! writes lines that `tombolo report --bars` reads.
//!
//! One core sends, forwards and receives. Each round measures every contender once; the table shows
//! medians, and the median of the ratios within rounds. Absolute rates drift by a factor of two on
//! a shared machine; ratios do not.

#![expect(clippy::unwrap_used, reason = "a benchmark says why it stopped by panicking")]

mod cluster;
mod connection;
mod contender;
mod gateway;
mod machine;
mod netfilter;
mod other;
mod population;
mod redirect;
mod written;

use std::collections::HashMap;
use std::io::Write as _;

use crate::contender::{Contender, Kind, Load, Outcome};
use crate::other::Other;
use crate::population::Population;
use crate::written::Written;

/// What is measured.
struct Series {
    name: &'static str,
    load: Load,
    /// Every tuple once, from an empty table; else random tuples over a full one.
    creates: bool,
    contenders: &'static [Kind],
}

/// One subscriber, from inside.
const fn one(ports: (u32, u32), frames: u32) -> Load {
    Load { ports, population: Population::One, is_tcp: false, inward: false, frames }
}

/// Many subscribers, of whom random ones send, or are sent to.
const fn many(population: Population, inward: bool) -> Load {
    Load { ports: (16, 50), population, is_tcp: false, inward, frames: 1_000_000 }
}

/// Frames of which six come to each of a million bindings. The first looks at the binding, and those of the next quarter of a
/// minute need not (`bpf/shortcut.h`), so that with fewer frames a round would measure the first ones.
const OFTEN: u32 = 6_000_000;

/// The hosts of homes: 50 ports each to one of the server's.
const fn homes(inward: bool, frames: u32) -> Load {
    Load { ports: (50, 1), population: Population::Homes, is_tcp: false, inward, frames }
}

/// The same with connections of TCP.
const fn tcp(load: Load) -> Load {
    Load { is_tcp: true, ..load }
}

const SERIES: [Series; 35] = [
    Series {
        name: "ceiling",
        load: one((4000, 250), 1_000_000),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Plain6, Kind::Redirect4, Kind::Plain4],
    },
    Series {
        name: "entries ipv4",
        load: homes(false, 2_000_000),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Entry4(16), Kind::Entry4(32), Kind::Entry4(64), Kind::Nat44],
    },
    Series {
        name: "entries ipv6",
        load: homes(false, 2_000_000),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Entry6(16), Kind::Entry6(32), Kind::Entry6(64), Kind::Nat64],
    },
    Series {
        name: "entries inward",
        load: homes(true, 2_000_000),
        creates: false,
        contenders: &[
            Kind::Redirect4,
            Kind::Slot4(16),
            Kind::Slot4(32),
            Kind::SlotAndEntry4(16),
            Kind::SlotAndEntry4(32),
            Kind::Nat44,
        ],
    },
    Series {
        name: "entries new",
        load: homes(false, 1_000_000),
        creates: true,
        contenders: &[Kind::Redirect4, Kind::Claim4(32), Kind::Nat44],
    },
    Series {
        name: "homes nat64",
        load: homes(false, 2_000_000),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Plain6, Kind::Nat64, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "homes nat64 inward",
        load: homes(true, OFTEN),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Plain4, Kind::Nat64],
    },
    Series {
        name: "homes nat44",
        load: homes(false, 2_000_000),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "homes nat44 inward",
        load: homes(true, OFTEN),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Plain4, Kind::Nat44],
    },
    Series {
        name: "homes aftr",
        load: homes(false, 2_000_000),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Plain6, Kind::Aftr],
    },
    Series {
        name: "homes aftr inward",
        load: homes(true, 2_000_000),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Plain4, Kind::Aftr],
    },
    Series {
        name: "homes tcp nat64",
        load: tcp(homes(false, 2_000_000)),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Plain6, Kind::Nat64, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "homes tcp nat64 inward",
        load: tcp(homes(true, 2_000_000)),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Plain4, Kind::Nat64],
    },
    Series {
        name: "homes tcp nat44",
        load: tcp(homes(false, 2_000_000)),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "homes tcp nat44 inward",
        load: tcp(homes(true, 2_000_000)),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Plain4, Kind::Nat44],
    },
    Series {
        name: "homes new bindings",
        load: homes(false, 1_000_000),
        creates: true,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "homes tcp new connections",
        load: tcp(homes(false, 1_000_000)),
        creates: true,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "homes new bindings in blocks",
        load: homes(false, 1_000_000),
        creates: true,
        contenders: &[Kind::Nat64, Kind::Nat64Blocks, Kind::Nat44, Kind::Nat44Blocks],
    },
    Series {
        name: "cluster",
        load: homes(false, 2_000_000),
        creates: false,
        contenders: &[Kind::Redirect4, Kind::Plain4, Kind::Nat44, Kind::Nat44Slices, Kind::Nat44Elsewhere],
    },
    Series {
        name: "lwaftr",
        load: many(Population::Softwires, false),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Plain6, Kind::Lwaftr],
    },
    Series {
        name: "lwaftr inward",
        load: many(Population::Softwires, true),
        creates: false,
        contenders: &[Kind::Plain4, Kind::Lwaftr],
    },
    Series {
        name: "map-e",
        load: many(Population::Rules, false),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Plain6, Kind::MapE],
    },
    Series {
        name: "map-e inward",
        load: many(Population::Rules, true),
        creates: false,
        contenders: &[Kind::Plain4, Kind::MapE],
    },
    Series {
        name: "map-t",
        load: many(Population::Rules, false),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Plain6, Kind::MapT],
    },
    Series {
        name: "map-t inward",
        load: many(Population::Rules, true),
        creates: false,
        contenders: &[Kind::Plain4, Kind::MapT],
    },
    Series {
        name: "nat64",
        load: one((4000, 250), 1_000_000),
        creates: false,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "nat44",
        load: one((4000, 250), 1_000_000),
        creates: false,
        contenders: &[Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "nat64 256",
        load: one((64, 4), 1_000_000),
        creates: false,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "nat64 10k",
        load: one((400, 25), 1_000_000),
        creates: false,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "nat44 256",
        load: one((64, 4), 1_000_000),
        creates: false,
        contenders: &[Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "nat44 10k",
        load: one((400, 25), 1_000_000),
        creates: false,
        contenders: &[Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "one tcp nat64",
        load: tcp(one((4000, 250), 1_000_000)),
        creates: false,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "one tcp nat44",
        load: tcp(one((4000, 250), 1_000_000)),
        creates: false,
        contenders: &[Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
    Series {
        name: "siit",
        load: one((4000, 250), 1_000_000),
        creates: false,
        contenders: &[Kind::Redirect6, Kind::Plain6, Kind::Siit, Kind::Siit10k],
    },
    Series {
        name: "new sessions",
        load: one((4000, 1000), 4_000_000),
        creates: true,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Plain4, Kind::Nat44, Kind::Iptables, Kind::Nftables],
    },
];

/// What a session takes in a table of them.
const SESSION_BYTES: u64 = 21;

/// What may be asked for.
const USAGE: &str = "--rounds N, --only SERIES,..., --without CONTENDER,..., --against PROGRAM, --results FILE";
/// Series that are no comparison of contenders.
const OTHER_SERIES: [&str; 2] = ["cores", "sessions"];

/// The first word that asks for nothing there is: this runs for half an hour, at real-time priority.
fn misunderstood(arguments: &[String]) -> Option<&String> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let is_series = |name: &str| SERIES.iter().any(|series| series.name == name) || OTHER_SERIES.contains(&name);
        let is_understood = match word.as_str() {
            "--led" => true,
            "--rounds" => words.next().is_some_and(|n| n.parse::<usize>().is_ok_and(|n| n > 0)),
            "--only" => words.next().is_some_and(|names| names.split(',').all(is_series)),
            "--without" | "--against" => words.next().is_some(),
            _ => false,
        };
        if !is_understood {
            return Some(word);
        }
    }
    None
}

fn main() {
    if !nix::unistd::geteuid().is_root() {
        say("SKIPPED: the fast path is measured in network namespaces, which needs root");
        return;
    }
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let mut written = Written::to(&mut arguments);
    if let Some(word) = misunderstood(&arguments) {
        if word == "--help" {
            return say(USAGE);
        }
        say(&format!("{word} is not understood, or what follows it, and nothing is measured; there are: {USAGE}"));
        std::process::exit(2);
    }
    let option = |name: &str| {
        let place = arguments.iter().position(|word| word == name)?;
        arguments.get(place + 1).cloned()
    };
    let rounds: usize = option("--rounds").map_or(7, |n| n.parse().unwrap());
    let only = option("--only");
    let without = option("--without").unwrap_or_default();
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only.split(',').any(|o| o == name));
    let against = option("--against");
    let is_led = arguments.iter().any(|word| word == "--led");
    if !is_led {
        say(&machine::describe());
    }
    for series in SERIES.iter().filter(|series| wanted(series.name)) {
        if is_led {
            lead(series, &without);
        } else {
            measure(series, rounds, &without, against.as_deref(), &mut written);
        }
    }
    if is_led {
        return;
    }
    if wanted("cores") {
        for kind in [Kind::Nat64, Kind::Nat44, Kind::Siit, Kind::Plain6] {
            measure_cores(kind, rounds, &mut written);
        }
    }
    if wanted("sessions") {
        for kind in [Kind::Nat64, Kind::Nat44] {
            measure_sessions(kind, rounds, &mut written);
        }
    }
}

/// Two cores against one. Each core does everything for its own share of the packets: it sends, the
/// gateway forwards on it (a veth is polled by the core that sent), and it receives. So this is the
/// whole path twice, over one set of tables.
fn measure_cores(kind: Kind, rounds: usize, written: &mut Written) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        say("SKIPPED: cores: this machine has one");
        return;
    }
    const FRAMES: u32 = 1_000_000;
    let mut contender = Contender::with_queues(kind, one((4000, 250), 2 * FRAMES), 2).unwrap();
    contender.fill();
    let (mut one, mut two, mut lost) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        let single = contender.load_on(&[round % 2], FRAMES);
        let double = contender.load_on(&[0, 1], 2 * FRAMES);
        one.push(single.rate);
        two.push(double.rate);
        lost += single.lost + double.lost;
    }
    say(&format!("cores, {}: 1000000 tuples, {rounds} rounds of {FRAMES} frames a core", kind.name()));
    written.ratio(kind.name(), "two cores over one", &two, &one);
    say_rates(&[("one core", &one), ("two cores", &two)], lost, &contender.remarks());
}

/// A hundred million sessions against one million; where the machine has no memory for them, as many as
/// half of it holds, which says what a hundred million reach at most. They have ten times as many bindings as the
/// million, so a million in as many as those are measured as well: what the sessions cost, and what the bindings, is
/// told apart by that.
fn measure_sessions(kind: Kind, rounds: usize, written: &mut Written) {
    const FRAMES: u32 = 2_000_000;
    let (bindings, asked) = (40_000, 2500);
    let remotes = u32::try_from(machine::available_bytes() / 2 / SESSION_BYTES / u64::from(bindings)).unwrap_or(asked);
    let millions = u64::from(bindings) * u64::from(remotes.min(asked)) / 1_000_000;
    if millions <= 1 {
        say(&format!("SKIPPED: sessions, {}: this machine has no memory for more than {millions} M", kind.name()));
        return;
    }
    let ports = [(4000, 250), (bindings, 25), (bindings, remotes.min(asked))];
    let mut contenders = ports.map(|ports| Contender::new(kind, one(ports, FRAMES)).unwrap());
    contenders.iter_mut().for_each(Contender::fill_directly);
    let (mut rates, mut lost) = ([const { Vec::new() }; 3], 0);
    for _ in 0..rounds {
        for (contender, rates) in contenders.iter_mut().zip(&mut rates) {
            let outcome = contender.load(FRAMES);
            rates.push(outcome.rate);
            lost += outcome.lost;
        }
    }
    let [few, few_spread, many] = &rates;
    say(&format!("sessions, {}: {rounds} rounds of {FRAMES} frames, one core, random tuples", kind.name()));
    for (under, which) in [(few, ""), (few_spread, " in as many bindings")] {
        let quantity = format!("100 M sessions over 1 M{which}");
        if remotes < asked {
            let why = format!("of {millions} M sessions: the machine has no memory for 100 M");
            written.ratio_at_most(kind.name(), &quantity, many, under, &why);
        } else {
            written.ratio(kind.name(), &quantity, many, under);
        }
    }
    let (as_many, all) = (format!("1 million in {bindings} bindings"), format!("{millions} million"));
    let rows: [(&str, &[f64]); 3] = [("1 million", few), (&as_many, few_spread), (&all, many)];
    say_rates(&rows, lost, &contenders[2].remarks());
}

/// Rates of the same rounds, each as a share of those above it as well.
fn say_rates(rows: &[(&str, &[f64])], lost: u64, remarks: &str) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (number, (name, rates)) in rows.iter().enumerate() {
        let share = |(above, others): &(&str, &[f64])| {
            let mut ratios = written::ratios(rates, others);
            let ratio = median(&mut ratios);
            format!("  {ratio:.2} x {above} ({:.2} to {:.2})", ratios[0], ratios[ratios.len() - 1])
        };
        let shares: String = rows[..number].iter().map(share).collect();
        say(&format!("  {name:<width$}  {:>6.3} Mpps{shares}", median(&mut rates.to_vec()) / 1e6));
    }
    say(&format!("  lost {lost}  {remarks}"));
}

/// What a step takes: by how much a frame through one contender takes longer than through another, in nanoseconds.
const STEPS: [(&str, Kind, Kind); 13] = [
    ("waiting for one of a million entries of 16 bytes", Kind::Entry4(16), Kind::Redirect4),
    ("of 32 bytes", Kind::Entry4(32), Kind::Redirect4),
    ("of 64 bytes", Kind::Entry4(64), Kind::Redirect4),
    ("waiting for one of a million entries of 16 bytes", Kind::Entry6(16), Kind::Redirect6),
    ("of 32 bytes", Kind::Entry6(32), Kind::Redirect6),
    ("of 64 bytes", Kind::Entry6(64), Kind::Redirect6),
    ("waiting for one of two million slots of 16 bytes", Kind::Slot4(16), Kind::Redirect4),
    ("of 32 bytes", Kind::Slot4(32), Kind::Redirect4),
    ("waiting for a slot of 4 bytes and an entry of 16 bytes", Kind::SlotAndEntry4(16), Kind::Redirect4),
    ("and one of 32 bytes", Kind::SlotAndEntry4(32), Kind::Redirect4),
    ("claiming an entry of 32 bytes and a slot at once", Kind::Claim4(32), Kind::Redirect4),
    ("is the slice this node's", Kind::Nat44Slices, Kind::Nat44),
    ("sending it to another node", Kind::Nat44Elsewhere, Kind::Redirect4),
];

fn say_steps(contenders: &[Contender], rates: &[Vec<f64>]) {
    let of = |kind: Kind| contenders.iter().position(|contender| contender.name() == kind.name()).map(|n| &rates[n]);
    for (step, with, without) in STEPS {
        let Some((with, without)) = of(with).zip(of(without)) else { continue };
        let mut nanos: Vec<f64> = with.iter().zip(without).map(|(with, without)| 1e9 / with - 1e9 / without).collect();
        let nanos = (median(&mut nanos), nanos[0], nanos[nanos.len() - 1]);
        say(&format!("  {step}: {:.1} ns a frame ({:.1} to {:.1})", nanos.0, nanos.1, nanos.2));
    }
}

/// The contenders of a series, with what they need filled.
fn contenders(series: &Series, without: &str) -> Vec<Contender> {
    let kinds = series.contenders.iter().filter(|kind| !without.split(',').any(|word| word == kind.name()));
    let mut contenders: Vec<Contender> = kinds.map(|&kind| Contender::new(kind, series.load).unwrap()).collect();
    if !series.creates {
        contenders.iter_mut().for_each(Contender::fill);
    }
    contenders
}

fn round(series: &Series, contenders: &mut [Contender]) -> Vec<(&'static str, Outcome)> {
    let measure = |contender: &mut Contender| {
        let outcome = if series.creates { contender.create() } else { contender.load(series.load.frames) };
        (contender.name(), outcome)
    };
    contenders.iter_mut().map(measure).collect()
}

fn lead(series: &Series, without: &str) {
    let mut contenders = contenders(series, without);
    other::be_led(|| round(series, &mut contenders));
}

fn measure(series: &Series, rounds: usize, without: &str, against: Option<&str>, written: &mut Written) {
    let mut contenders = contenders(series, without);
    let others_without = format!("{without},plain4,plain6,redirect4,redirect6,iptables,nftables");
    let mut other = against.map(|program| Other::start(program, series.name, &others_without));
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    let mut others: HashMap<String, Vec<f64>> = HashMap::new();
    let mut lost = vec![0; contenders.len()];
    for _ in 0..rounds {
        for (number, (_, outcome)) in round(series, &mut contenders).into_iter().enumerate() {
            rates[number].push(outcome.rate);
            lost[number] += outcome.lost;
        }
        for (name, rate) in other.iter_mut().flat_map(Other::round) {
            others.entry(name).or_default().push(rate);
        }
    }
    let Load { population, frames, .. } = series.load;
    let hosts = population.hosts();
    say(&format!("{}: {hosts} subscribers, {rounds} rounds of {frames} frames, one core", series.name));
    for (number, contender) in contenders.iter().enumerate() {
        written.rate(contender.name(), series.name, &rates[number]);
        for (other, rates_of_other) in
            contenders.iter().zip(&rates).filter(|(other, _)| other.name() != contender.name())
        {
            written.ratio(
                contender.name(),
                &format!("{} over {}", series.name, other.name()),
                &rates[number],
                rates_of_other,
            );
        }
        let ratio = |others: &[f64]| median(&mut written::ratios(&rates[number], others));
        let neighbours = contenders.iter().zip(&rates).enumerate().filter(|(other, _)| *other != number);
        let mut against: Vec<String> =
            neighbours.map(|(_, (c, rates))| format!("{:.2} x {}", ratio(rates), c.name())).collect();
        if let Some(before) = others.get(contender.name()) {
            let rate = median(&mut before.clone()) / 1e6;
            against.push(format!("{:.2} x the other build ({rate:.3} Mpps)", ratio(before)));
        }
        let rate = median(&mut rates[number].clone());
        say(&format!(
            "  {:<12} {:>6.3} Mpps  lost {:>6}  {}  {}",
            contender.name(),
            rate / 1e6,
            lost[number],
            against.join("  "),
            contender.remarks()
        ));
    }
    say_steps(&contenders, &rates);
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
