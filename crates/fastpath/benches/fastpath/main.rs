//! The fast path in XDP beside the kernel's forwarding and its own NAT44, interleaved: `make bench-fastpath`.
//!
//! One core sends, forwards and receives. Each round measures every contender once; the table shows medians, and the
//! median of the ratios within rounds. Absolute rates drift by a factor of two on a shared machine; ratios do not.

#![expect(clippy::unwrap_used, reason = "a benchmark says why it stopped by panicking")]

mod contender;
mod gateway;

use std::io::Write as _;

use crate::contender::{Contender, Kind};

/// What is measured.
struct Series {
    name: &'static str,
    /// Ports of the subscriber and of the server: the four tuples.
    ports: (u32, u32),
    /// Every tuple once, from an empty table; else random tuples over a full one.
    creates: bool,
    contenders: &'static [Kind],
    /// Frames of a measurement.
    frames: u32,
}

const SERIES: [Series; 4] = [
    Series {
        name: "nat64",
        ports: (4000, 250),
        creates: false,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Iptables],
        frames: 1_000_000,
    },
    Series {
        name: "nat44",
        ports: (4000, 250),
        creates: false,
        contenders: &[Kind::Plain4, Kind::Nat44, Kind::Iptables],
        frames: 1_000_000,
    },
    Series {
        name: "siit",
        ports: (4000, 250),
        creates: false,
        contenders: &[Kind::Plain6, Kind::Siit],
        frames: 1_000_000,
    },
    Series {
        name: "new sessions",
        ports: (4000, 1000),
        creates: true,
        contenders: &[Kind::Plain6, Kind::Nat64, Kind::Plain4, Kind::Nat44, Kind::Iptables],
        frames: 4_000_000,
    },
];

fn main() {
    if !nix::unistd::geteuid().is_root() {
        say("SKIPPED: the fast path is measured in network namespaces, which needs root");
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let option = |name: &str| {
        let place = arguments.iter().position(|word| word == name)?;
        arguments.get(place + 1).cloned()
    };
    let rounds: usize = option("--rounds").map_or(7, |n| n.parse().unwrap());
    let only = option("--only");
    let without = option("--without").unwrap_or_default();
    for series in
        SERIES.iter().filter(|series| only.as_deref().is_none_or(|only| only.split(',').any(|o| o == series.name)))
    {
        measure(series, rounds, &without);
    }
}

fn measure(series: &Series, rounds: usize, without: &str) {
    let kinds = series.contenders.iter().filter(|kind| !without.split(',').any(|word| word == kind.name()));
    let mut contenders: Vec<Contender> =
        kinds.map(|&kind| Contender::new(kind, series.ports, series.frames).unwrap()).collect();
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    let mut lost = vec![0; contenders.len()];
    if !series.creates {
        contenders.iter_mut().for_each(Contender::fill);
    }
    for _ in 0..rounds {
        for (number, contender) in contenders.iter_mut().enumerate() {
            let outcome = if series.creates { contender.create() } else { contender.load(series.frames) };
            rates[number].push(outcome.rate);
            lost[number] += outcome.lost;
        }
    }
    let tuples = series.ports.0 * series.ports.1;
    say(&format!("{}: {tuples} tuples, {rounds} rounds of {} frames, one core", series.name, series.frames));
    for (number, contender) in contenders.iter().enumerate() {
        let ratio = |other: usize| {
            let mut ratios: Vec<f64> =
                rates[number].iter().zip(&rates[other]).map(|(own, other)| own / other).collect();
            median(&mut ratios)
        };
        let against: Vec<String> = contenders
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number)
            .map(|(other, c)| format!("{:.2} x {}", ratio(other), c.name()))
            .collect();
        let rate = median(&mut rates[number].clone());
        say(&format!(
            "  {:<9} {:>6.3} Mpps  lost {:>6}  {}  {}",
            contender.name(),
            rate / 1e6,
            lost[number],
            against.join("  "),
            contender.remarks()
        ));
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
