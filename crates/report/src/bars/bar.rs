//! One speed that the design asks for, and which rows of result files say it.

use std::ops::RangeInclusive;

/// One speed, and what it is judged by.
pub(super) struct Bar {
    pub(super) what: &'static str,
    pub(super) asked: f64,
    /// Whether it is not to be exceeded; else it is to be reached.
    pub(super) is_most: bool,
    /// Any of these.
    pub(super) by: &'static [By],
    /// What measures it; where the files have it already, this is not shown.
    pub(super) command: &'static str,
}

/// Which rows say it.
pub(super) enum By {
    /// The ratio to plain forwarding of a procedure's rows for a technology and so many hosts.
    OverPlain { procedure: &'static str, technology: &'static str, hosts: RangeInclusive<u64>, least_tuples: u64 },
    /// A value itself, of a gateway of this name.
    Value { gateway: &'static str, quantity: &'static str },
    /// Values of this gateway whose quantities begin so: whichever direction, size or number.
    Each { gateway: &'static str, quantity: &'static str },
    /// One value over another of the same run.
    Quotient { over: (&'static str, &'static str), under: (&'static str, &'static str) },
    /// The ratio of streams to plain forwarding, with or without the programs in the kernel.
    Streams { gateway: &'static str, is_engine_alone: bool },
}
