//! The faults that can be planted in a forwarder.

use std::fmt;
use std::str::FromStr;

/// What to do wrong. 0 means not at all; N means every Nth frame of the direction inside to
/// outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Drop every Nth.
    pub loss: u64,
    /// Damage a payload byte of every Nth and leave the checksum as it was.
    pub corrupt: u64,
    /// Change the destination port of every Nth, with a right checksum.
    pub misdirect: u64,
    /// Take two more off the hop limit of every Nth.
    pub hops: u64,
    /// Set the type of service or traffic class of every Nth.
    pub tos: u64,
    /// Clear the "don't fragment" bit of every Nth, over IPv4.
    pub df: u64,
    /// Change the identification of every Nth, over IPv4.
    pub id: u64,
    /// Set the flow label of every Nth, over IPv6.
    pub label: u64,
    /// Send every Nth from another link-layer address.
    pub mac: u64,
    /// Send every Nth twice.
    pub duplicate: u64,
    /// Swap every Nth with its successor.
    pub reorder: u64,
    /// Hold all frames back for so many microseconds, both directions.
    pub delay: u64,
    /// Forward only the first so many different four tuples; drop the others.
    pub capacity: u64,
    /// Forward at most so many frames a second; drop the others (token bucket of 2 ms).
    pub rate: u64,
    /// Forward at half of `rate` once there are more than so many different four tuples.
    pub crowd: u64,
    /// Be dead for so many milliseconds after a reset.
    pub outage: u64,
    /// 1: let answers in only to four tuples that were seen from inside, and forget these at a
    /// reset.
    pub state: u64,
    /// Pass all four tuples, but keep only the first so many: with endpoint-independent filtering
    /// a few bindings answer for sessions that are not there.
    pub keep: u64,
    /// Forget four tuples so many milliseconds after they were last seen from inside.
    pub timeout: u64,
}

/// What is changed in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    HopLimit,
    TrafficClass,
    DontFragment,
    Identification,
    FlowLabel,
    LinkSource,
}

impl Faults {
    /// Which field of the frame with this number is to be changed.
    pub(super) fn field_of(&self, count: u64) -> Option<Field> {
        let all = [
            (self.hops, Field::HopLimit),
            (self.tos, Field::TrafficClass),
            (self.df, Field::DontFragment),
            (self.id, Field::Identification),
            (self.label, Field::FlowLabel),
            (self.mac, Field::LinkSource),
        ];
        all.into_iter().find(|(every, _)| *every != 0 && count.is_multiple_of(*every)).map(|(_, field)| field)
    }

    fn fields(&mut self) -> [(&'static str, &mut u64); 19] {
        [
            ("loss", &mut self.loss),
            ("hops", &mut self.hops),
            ("tos", &mut self.tos),
            ("df", &mut self.df),
            ("id", &mut self.id),
            ("label", &mut self.label),
            ("mac", &mut self.mac),
            ("duplicate", &mut self.duplicate),
            ("corrupt", &mut self.corrupt),
            ("misdirect", &mut self.misdirect),
            ("reorder", &mut self.reorder),
            ("delay", &mut self.delay),
            ("capacity", &mut self.capacity),
            ("rate", &mut self.rate),
            ("crowd", &mut self.crowd),
            ("outage", &mut self.outage),
            ("state", &mut self.state),
            ("keep", &mut self.keep),
            ("timeout", &mut self.timeout),
        ]
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Faults, String> {
        let mut faults = Faults::default();
        for pair in text.split(',').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not FAULT=VALUE"))?;
            let mut fields = faults.fields();
            let field = fields.iter_mut().find(|(known, _)| *known == name);
            let (_, field) = field.ok_or_else(|| {
                let names = Faults::default().fields().map(|(name, _)| name).join(", ");
                format!("no fault is called `{name}`; there are {names}")
            })?;
            **field = value.parse().map_err(|_| format!("{name}={value}: not a number"))?;
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        let set: Vec<String> =
            copy.fields().iter().filter(|(_, v)| **v != 0).map(|(name, v)| format!("{name}={v}")).collect();
        f.write_str(&set.join(","))
    }
}
