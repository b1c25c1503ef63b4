//! What a reload changes, or would change: the keys of the file, what ends, what could not be made. The log
//! and whoever has asked get the same.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Subnets;
use tombolo_config::Change;
use tombolo_engine::Plan;
use tombolo_engine::settle::{Count, Loss};
use tombolo_engine::static_bindings::Conflict;

use crate::table_rows::service_name;

/// What has come of a configuration, or would.
#[derive(Debug, Default)]
pub struct Changed {
    /// Keys that the file has otherwise.
    pub keys: Vec<Change>,
    /// What ends.
    pub ends: Vec<End>,
    /// Static bindings that could not be made.
    pub conflicts: Vec<Conflict>,
    /// Where the fast path did not follow, and why. The engine takes the packets there.
    pub not_followed: Vec<String>,
    /// Seconds within which it has to be confirmed.
    pub confirm_within: Option<u32>,
}

/// State that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Name of the service.
    pub service: String,
    /// Outside addresses.
    pub addresses: String,
    /// How much.
    pub count: Count,
    /// Why.
    pub reason: &'static str,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, addresses, count: Count { bindings, sessions }, reason } = self;
        let (sessions, bindings) = (plural(*sessions, "session"), plural(*bindings, "binding"));
        write!(f, "{sessions} and {bindings} of {service} on {addresses} end: {reason}")
    }
}

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

impl End {
    /// What ends with `plan`, in words.
    pub(crate) fn all(losses: &BTreeMap<Loss, Count>, plan: &Plan) -> Vec<Self> {
        let end = |(loss, count): (&Loss, &Count)| Self {
            service: service_name(plan, loss.service).to_owned(),
            addresses: addresses(loss.addresses),
            count: *count,
            reason: loss.why.reason(),
        };
        losses.iter().map(end).collect()
    }
}

fn addresses((first, last): (Ipv4Addr, Ipv4Addr)) -> String {
    let mut subnets = Ipv4Subnets::new(first, last, 0);
    match (subnets.next(), subnets.next()) {
        (Some(subnet), None) if first == last => subnet.addr().to_string(),
        (Some(subnet), None) => subnet.to_string(),
        _ => format!("{first}-{last}"),
    }
}

impl Changed {
    /// Says it in the log; conflicts are said where they are found.
    pub(crate) fn log(&self) {
        for change in &self.keys {
            tracing::info!("changed: {change}");
        }
        for end in &self.ends {
            tracing::warn!("{end}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_is_said_in_words() {
        let end = |first: [u8; 4], last: [u8; 4], sessions| {
            let count = Count { bindings: 1, sessions };
            End { service: "cgn".into(), addresses: addresses((first.into(), last.into())), count, reason: "so" }
                .to_string()
        };
        assert_eq!(
            end([192, 0, 2, 16], [192, 0, 2, 31], 12),
            "12 sessions and 1 binding of cgn on 192.0.2.16/28 end: so"
        );
        assert_eq!(
            end([192, 0, 2, 16], [192, 0, 2, 18], 1),
            "1 session and 1 binding of cgn on 192.0.2.16-192.0.2.18 end: so"
        );
        assert_eq!(end([192, 0, 2, 1], [192, 0, 2, 1], 0), "0 sessions and 1 binding of cgn on 192.0.2.1 end: so");
    }
}
