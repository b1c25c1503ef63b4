//! Whose each block of ports was, by the logs of all nodes joined: at no time of two subscribers, nor of one soon after another.
//!
//! A node that dies writes no more: what it had open counts until the last time of which its log speaks. A copy is logged by the node
//! that has it, so what was an owner's is in another log as well.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use serde_json::Value;

/// Seconds by which times in logs of one host may be off: the tables are walked once a second, and times are cut to seconds.
const EXACT: u64 = 3;

/// A block of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Block {
    outside: Ipv4Addr,
    first: u16,
    last: u16,
}

/// That a block was a subscriber's, as a node has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    node: &'static str,
    block: Block,
    subscriber: String,
    /// From when to when, in seconds of UTC.
    from: u64,
    to: u64,
}

/// What the log of a node claims.
pub(super) fn of_log(node: &'static str, log: &str) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut open: HashMap<(Block, String), u64> = HashMap::new();
    let mut last = 0;
    for line in log.lines() {
        // Of a line that a killed process has begun nothing counts.
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let Some(time) = seconds(&line["time"]) else { continue };
        let event = line["event"].as_str().unwrap_or_default();
        let claim = |(block, subscriber), from, to| Claim { node, block, subscriber, from, to };
        match event {
            "start" if line["state"] == "none" => {
                claims.extend(open.drain().map(|(key, from)| claim(key, from, last)));
            }
            "all-removed" => claims.extend(open.drain().map(|(key, from)| claim(key, from, time))),
            "block-allocated" | "block-adopted" => {
                if let Some(key) = key_of(&line) {
                    open.entry(key).or_insert(time);
                }
            }
            "block-released" => {
                if let Some(key) = key_of(&line) {
                    let from = open.remove(&key).or_else(|| seconds(&line["created"])).unwrap_or(time);
                    claims.push(claim(key, from, time));
                }
            }
            _ => {}
        }
        last = last.max(time).max(seconds(&line["until"]).unwrap_or_default());
    }
    claims.extend(open.into_iter().map(|((block, subscriber), from)| Claim {
        node,
        block,
        subscriber,
        from,
        to: last,
    }));
    claims
}

/// Blocks that were two subscribers' within `rest` seconds, in words.
pub(super) fn conflicts(mut claims: Vec<Claim>, rest: u64) -> Vec<String> {
    let rest = rest.saturating_sub(EXACT);
    claims.sort_by_key(|claim| (claim.block, claim.from));
    let mut found = Vec::new();
    for (place, one) in claims.iter().enumerate() {
        let overlap = |other: &&Claim| other.block.outside == one.block.outside && other.block.first <= one.block.last;
        for other in claims[place + 1..].iter().take_while(overlap) {
            let is_soon = one.from < other.to + rest && other.from < one.to + rest;
            if one.subscriber != other.subscriber && is_soon {
                found.push(format!("{} and {}", one.in_words(), other.in_words()));
            }
        }
    }
    found
}

impl Claim {
    fn in_words(&self) -> String {
        let Self { node, block: Block { outside, first, last }, subscriber, from, to } = self;
        format!("{outside} ports {first}-{last} were of {subscriber} from {from} to {to} by {node}")
    }
}

fn key_of(line: &Value) -> Option<(Block, String)> {
    let port = |key: &str| u16::try_from(line[key].as_u64()?).ok();
    let block = Block {
        outside: line["outside"].as_str()?.parse().ok()?,
        first: port("first_port")?,
        last: port("last_port")?,
    };
    let softwire = line["softwire"].as_str().unwrap_or_default();
    Some((
        block,
        format!("{} {} {softwire}", line["service"].as_str()?, line["inside"].as_str()?).trim_end().to_owned(),
    ))
}

fn seconds(time: &Value) -> Option<u64> {
    let time = humantime::parse_rfc3339(time.as_str()?).ok()?;
    time.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u64, event: &str, inside: &str, first: u16) -> String {
        let (minute, second, last) = (second / 60, second % 60, first + 511);
        format!(
            "{{\"time\":\"2026-01-01T00:{minute:02}:{second:02}Z\",\"event\":\"{event}\",\"service\":\"nat44\",\"inside\":\"{inside}\",\
             \"outside\":\"203.0.113.80\",\"first_port\":{first},\"last_port\":{last}}}\n"
        )
    }

    fn start(second: u64, state: &str) -> String {
        format!("{{\"time\":\"2026-01-01T00:00:{second:02}Z\",\"event\":\"start\",\"state\":\"{state}\"}}\n")
    }

    fn found(logs: &[String], rest: u64) -> usize {
        let claims = ["n1", "n2", "n3"].into_iter().zip(logs).flat_map(|(node, log)| of_log(node, log));
        conflicts(claims.collect(), rest).len()
    }

    #[test]
    fn a_copy_is_no_conflict_and_another_subscriber_is_one() {
        let owner = line(1, "block-allocated", "10.0.0.7", 2048) + &line(30, "block-released", "10.0.0.7", 2048);
        let copy = line(2, "block-allocated", "10.0.0.7", 2048);
        assert_eq!(found(&[owner.clone(), copy.clone()], 120), 0);
        let other = line(25, "block-allocated", "10.0.0.8", 2048) + &line(26, "block-adopted", "10.0.0.9", 2560);
        assert_eq!(found(&[owner.clone(), copy, other], 120), 2, "while it was the first one's, by owner and copy");
        let soon = line(100, "block-allocated", "10.0.0.8", 2048);
        assert_eq!(found(&[owner.clone(), soon.clone()], 120), 1, "70 of 120 s later");
        assert_eq!(found(&[owner, soon], 60), 0);
    }

    #[test]
    fn what_a_dead_node_had_ends_with_its_log_and_what_it_kept_does_not() {
        let had = line(1, "block-allocated", "10.0.0.7", 2048) + &line(9, "block-allocated", "10.0.0.1", 9000);
        let other = line(50, "block-allocated", "10.0.0.8", 2048);
        assert_eq!(found(&[had.clone() + "{\"torn", other.clone()], 30), 0, "41 s after its last word");
        assert_eq!(found(&[had.clone() + "{\"torn", other.clone()], 120), 1);
        let lost = had.clone() + &start(40, "none") + &line(55, "block-allocated", "10.0.0.2", 9600);
        assert_eq!(found(&[lost, other.clone()], 30), 0);
        let kept = had + &start(40, "tables") + &line(55, "block-allocated", "10.0.0.2", 9600);
        assert_eq!(found(&[kept, other], 30), 1, "it has it still");
    }
}
