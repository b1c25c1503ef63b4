//! What the gateway counted, beside what was sent and seen.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tombolo_engine::counters::Totals;

/// Counters by name; those that are zero are left out. Both ways through the gateway are added up.
pub(super) type Counted = BTreeMap<String, u64>;

/// The packets of a comparison by what became of them, as the offline gateway says.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(crate) struct Fates {
    pub(crate) forwarded: u64,
    /// Answered with an ICMP error.
    pub(crate) answered: u64,
    pub(crate) echo_replies: u64,
    pub(crate) held: u64,
    pub(crate) dropped: u64,
    pub(crate) to_host: u64,
}

impl Fates {
    pub(super) const fn all(&self) -> u64 {
        self.forwarded + self.answered + self.echo_replies + self.held + self.dropped + self.to_host
    }
}

/// Of the live gateway: what `show counters` says.
pub(super) fn live(rows: &[Value]) -> Counted {
    let mut counted = Counted::new();
    for row in rows {
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        let name = match text("counter") {
            "received-bytes" | "forwarded-bytes" => continue,
            "received" | "forwarded" => format!("{} {}", text("counter"), text("side")),
            "dropped" => format!("dropped {}", text("reason")),
            name => name.to_owned(),
        };
        let value = row["value"].as_u64().unwrap_or(0);
        // What the kernel has forwarded, it has received.
        if text("counter") == "forwarded" && text("path") == "kernel" {
            *counted.entry(format!("received {}", text("side"))).or_default() += value;
            *counted.entry("taken by the kernel".into()).or_default() += value;
        }
        *counted.entry(name).or_default() += value;
    }
    counted
}

/// Of the offline gateway, with the same names.
pub(super) fn offline(totals: &Totals) -> Counted {
    let mut counted = Counted::new();
    for (number, side) in ["inside", "outside"].into_iter().enumerate() {
        counted.insert(format!("received {side}"), totals.received[number]);
        counted.insert(format!("forwarded {side}"), totals.forwarded[number]);
    }
    for (name, value) in [("to-host", totals.to_host), ("held", totals.held), ("replied", totals.replied)] {
        counted.insert(name.into(), value);
    }
    counted.extend(totals.drops().map(|(reason, count)| (format!("dropped {}", reason.name()), count)));
    counted
}

/// What is wrong with the counters of the live gateway, in words. `sent` are the packets that went
/// in, and `arrived` those that came out.
pub(super) fn faults(
    live: &Counted,
    offline: &Counted,
    fates: &Fates,
    sent: [u64; 2],
    arrived: [u64; 2],
) -> Vec<String> {
    let of = |counted: &Counted, name: &str| counted.get(name).copied().unwrap_or(0);
    let mut faults = Vec::new();
    let mut expect = |what: &str, found: u64, expected: u64| {
        if found != expected {
            faults.push(format!("{what}: {found} instead of {expected}"));
        }
    };
    let names = live.keys().chain(offline.keys());
    let compared = |name: &&String| {
        matches!(name.as_str(), "held" | "replied")
            || ["forwarded ", "dropped "].iter().any(|start| name.starts_with(start))
    };
    for name in names.filter(compared).collect::<std::collections::BTreeSet<_>>() {
        expect(name, of(live, name), of(offline, name));
    }
    // The kernel around it talks with the neighbours on every interface, by IPv6.
    let kernels = of(live, "to-host").saturating_sub(fates.to_host);
    expect("received inside", of(live, "received inside").saturating_sub(kernels), of(offline, "received inside"));
    expect("received outside", of(live, "received outside"), of(offline, "received outside"));
    let received = of(live, "received inside") + of(live, "received outside");
    expect("received, of those that went in", received.saturating_sub(kernels), sent.iter().sum());
    expect("forwarded, replied, held and dropped, of those that went in", fates.all(), sent.iter().sum());
    let left = of(live, "queue-sent") + of(live, "taken by the kernel");
    expect("counted as sent, of those that came out", left, arrived.iter().sum());
    expect("received and unusable", of(live, "queue-received-unusable"), 0);
    faults
}
