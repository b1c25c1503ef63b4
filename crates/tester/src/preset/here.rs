//! Which of a preset's gateways this machine has: a kernel module is not everywhere.

use crate::gateway::{Spec, start};

/// Those that are here, in the same order.
pub(super) fn of(gateways: &[&'static str]) -> Vec<&'static str> {
    gateways.iter().copied().filter(|name| missing(name).is_none()).collect()
}

/// For each kind that is not, a line for the reader.
pub(super) fn deviations(gateways: &[&'static str]) -> Vec<String> {
    let say = |name: &&str| {
        let reason = missing(name)?;
        Some(format!("{name} is left out, and its published figures stand without any of this machine: {reason}"))
    };
    gateways.iter().filter_map(say).collect()
}

fn missing(name: &str) -> Option<String> {
    start::missing(name.parse::<Spec>().ok()?.kind()?)
}
