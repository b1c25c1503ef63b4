//! What the links of the lab drop: queues that were full.

use anyhow::Context as _;
use serde_json::Value;
use tombolo_lab::Lab;

/// Packets that interfaces of all nodes have dropped so far.
pub(super) fn dropped_by_links(lab: &Lab) -> anyhow::Result<u64> {
    let mut dropped = 0;
    for node in ["client", "gateway", "server"] {
        let output = lab.node(node)?.command("ip").args(["-j", "-s", "link", "show"]).run()?.success()?;
        let links: Vec<Value> = serde_json::from_str(&output.stdout).context("ip -j -s link printed no JSON")?;
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
