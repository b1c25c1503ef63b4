//! What the links of a lab drop: queues that were full.

use std::io;

use serde_json::Value;

use crate::{Lab, LabError};

/// Packets that interfaces of these nodes have dropped so far. A processor that is kept from its
/// interrupts, by a process of real-time priority say, queues a thousand and drops the rest.
///
/// # Errors
/// [`LabError`] if `ip` does not tell.
pub fn dropped_by_links(lab: &Lab, nodes: &[&str]) -> Result<u64, LabError> {
    let mut dropped = 0;
    for node in nodes {
        let output = lab.node(node)?.command("ip").args(["-j", "-s", "link", "show"]).run()?.success()?;
        let links: Vec<Value> = serde_json::from_str(&output.stdout)
            .map_err(|error| LabError::system("read the links", io::Error::from(error)))?;
        dropped += links.iter().map(of_link).sum::<u64>();
    }
    Ok(dropped)
}

fn of_link(link: &Value) -> u64 {
    let read = |pointer| link.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    ["/stats64/rx/dropped", "/stats64/tx/dropped", "/stats64/rx/over_errors"].into_iter().map(read).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_both_directions_count() {
        let link = serde_json::json!({"stats64": {"rx": {"dropped": 2, "packets": 9}, "tx": {"dropped": 3}}});
        assert_eq!(of_link(&link), 5);
    }
}
